#pragma once
/// The exchanges that several pairwise modes are made of. Owner-thread.

#include <cstddef>
#include <cstdint>

#include "net/mode.hpp"

namespace sonde::net {

enum class Calls { blocking, nonblocking };

/// n samples of src -> dst in ctx.value's sense, after `extra` untimed exchanges; both ranks call it.
void ping_pong(const Context& ctx, int src, int dst, std::size_t bytes, std::uint32_t n, std::uint32_t extra,
               Calls calls, Samples& out);

}  // namespace sonde::net
