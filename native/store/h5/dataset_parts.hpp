#pragma once
/// Shared by the sources of DatasetIo: dataset.cpp (chunks, extent), dataset_elements.cpp.

#include "store/h5/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sonde::store::h5 {

inline constexpr std::size_t stage_bytes = 8u << 20;

/// Writes chunks that lie one behind the other in the store as one piece.
class DatasetIo::Stage {
 public:
  Stage(Container& container, Object& object) : container_(container), object_(object) {}
  void add(std::uint64_t offset, Bytes data) {
    if (!held_.empty() && (offset != at_ + held_.size() || held_.size() + data.size() > stage_bytes)) {
      finish();
    }
    if (held_.empty()) {
      at_ = offset;
      if (data.size() >= stage_bytes) {
        container_.write(object_, Part::data, {{offset, data}});
        return;
      }
    }
    held_.insert(held_.end(), data.begin(), data.end());
  }
  void finish() {
    if (!held_.empty()) {
      container_.write(object_, Part::data, {{at_, held_}});
      held_.clear();
    }
  }

 private:
  Container& container_;
  Object& object_;
  std::uint64_t at_ = 0;
  std::vector<std::byte> held_;
};

}  // namespace sonde::store::h5
