#pragma once
/// Shared by the sources of Session: session.cpp (life, frames, requests), session_login.cpp, session_execute.cpp.

#include "store/server/session.hpp"

#include <cstddef>

namespace sonde::store {

inline constexpr std::size_t backlog_max =
    4u << 20;  ///< answers that a slow reader may leave in memory before its reads wait

inline Op op_of(const wire::Record& r, Bytes data) {
  Op op;
  op.code = r.code;
  op.flags = r.flags;
  op.space = r.space;
  op.key = r.key;
  op.offset = r.offset;
  op.length = r.length;
  op.data = data;
  return op;
}

}  // namespace sonde::store
