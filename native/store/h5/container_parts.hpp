#pragma once
/// Shared by the sources of Container: container.cpp (files, gathering and sending), container_objects.cpp,
/// container_data.cpp.

#include "store/h5/container.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_set>
#include <vector>

namespace sonde::store::h5 {

inline constexpr std::size_t wave_bytes =
    4u << 20;  // bytes gathered before a batch is sent; at most two waves are in memory

inline constexpr std::size_t wave_ops = 4096;

inline std::string data_name(const Object& object, Part part) {
  return part == Part::data && object.pool ? hex(object.pool) + 'p' : hex(object.id) + static_cast<char>(part);
}

inline void run(Batch& batch, const std::string& doing) {
  if (auto sent = batch.run(); !sent) {
    fail(sent.error(), doing);
  }
}

inline void need(const Batch& batch, std::size_t k, const std::string& doing) {
  if (const auto status = batch[k].status; status != Status::ok && status != Status::not_found) {
    fail(Why::io, doing + ": " + batch.why(k) + " [store." + std::string(name_of(status)) + "]");
  }
}

inline std::string file_key() { return "f"; }
inline std::string order_key() { return "s"; }

/// A batch of operations, and the memory that it is sent from.
struct Container::Wave {
  Wave(Batch empty) : batch(std::move(empty)) {}
  Batch batch;
  std::string run_name;  // the object and place whose data is being gathered
  std::uint64_t run_at = 0;
  std::vector<std::byte> run;
  std::deque<std::vector<std::byte>> runs;
  std::vector<std::string> values;       // of kv
  std::unordered_set<ObjectId> objects;  // objects whose data is in this wave
  std::size_t data_bytes = 0;
  bool started = false;
};

}  // namespace sonde::store::h5
