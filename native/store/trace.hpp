#pragma once
/// Trace points of the store. `sonde io run` knows these functions by its layer maps store*.toml.
///
/// Each only calls body(what). It is exported and called through an import table, in which a tracer replaces it.
/// Without a tracer a point costs two jumps, some 2 ns. Nothing in the store depends on them. Any-thread.
///
///   bytes    requested: for writes those of their data; trace::unknown when the number is not known
///   request  the same number on both sides: see trace::request. Of a call to a backend instead: the offset, of one
///            operation
///
/// A client's batch becomes one message to each server and role that it concerns. The points of a message, by its
/// number:
///   sonde_store_message_*   client: built and handed to the link
///   sonde_store_serve_*     server: a frame of it, as it came
///   sonde_store_later       server: the part of it that had to wait for its turn, or for others
///   sonde_store_reply       server: a frame of the answer, handed to the link
///   sonde_store_answered    client: the last frame of the answer was taken in

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "store/backend.hpp"

#define SONDE_STORE_TRACE_POINTS(point)                                                                          \
  point(run_read) point(run_write) point(run_other) point(start_read) point(start_write) point(start_other)      \
      point(wait) point(message_read) point(message_write) point(message_other) point(answered) point(link_send) \
          point(link_flush) point(link_wait) point(link_receive) point(serve_read) point(serve_write)            \
              point(serve_other) point(later) point(reply) point(execute_read) point(execute_write)              \
                  point(execute_other) point(backend_sync)

#define SONDE_STORE_TRACE_POINT(name)                                        \
  extern "C" __attribute__((visibility("default"))) void sonde_store_##name( \
      void (*body)(void*), void* what, std::uint64_t bytes, std::uint64_t request);
SONDE_STORE_TRACE_POINTS(SONDE_STORE_TRACE_POINT)
#undef SONDE_STORE_TRACE_POINT

namespace sonde::store::trace {

inline constexpr std::uint64_t unknown = ~std::uint64_t{0};

using Point = void (*)(void (*)(void*), void*, std::uint64_t, std::uint64_t);

/// Runs `body` within a point.
template <typename Body> void call(Point point, std::uint64_t bytes, std::uint64_t request, Body&& body) {
  using Own = std::remove_reference_t<Body>;
  point([](void* what) { (*static_cast<Own*>(what))(); }, const_cast<void*>(static_cast<const void*>(&body)), bytes,
        request);
}

/// A connection's number, from what both sides drew at random as it was made.
std::uint64_t connection(std::string_view nonce);
/// A message's number: its connection's, and its own there.
inline std::uint64_t request(std::uint64_t connection, std::uint64_t id) {
  return connection << 32 | (id & 0xffffffffu);
}

/// The request of a batch, a message or a frame.
struct Asked {
  std::uint64_t bytes = 0;
  bool reads = false, writes = false, other = false;

  void add(Code code, std::uint64_t data_bytes, std::uint64_t length) {
    switch (code) {
      case Code::object_write:
      case Code::kv_put:
      case Code::db_insert:
      case Code::db_update:
        writes = true;
        if (bytes != unknown) bytes += data_bytes;
        break;
      case Code::object_read:
        reads = true;
        if (bytes != unknown) bytes += length;
        break;
      case Code::kv_get:
      case Code::kv_scan:
      case Code::db_query:
        // Only the server knows the size.
        reads = true;
        bytes = unknown;
        break;
      default: other = true;
    }
  }
  void add(const Op& op) { add(op.code, op.data.size(), op.into.empty() ? op.length : op.into.size()); }
  /// Operations of several kinds are `other`.
  Point of(Point read, Point write, Point rest) const {
    return reads && !writes && !other ? read : writes && !reads && !other ? write : rest;
  }
};

}  // namespace sonde::store::trace

namespace sonde::store {

/// Backend::execute within its point.
inline void execute(Backend& backend, std::span<const Op> ops, Safety safety, std::span<Outcome> outcomes,
                    Arena& arena) {
  trace::Asked asked;
  for (const Op& op : ops) asked.add(op);
  trace::call(asked.of(sonde_store_execute_read, sonde_store_execute_write, sonde_store_execute_other), asked.bytes,
              ops.size() == 1 ? ops[0].offset : trace::unknown, [&] { backend.execute(ops, safety, outcomes, arena); });
}

}  // namespace sonde::store
