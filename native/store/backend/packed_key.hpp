#pragma once
/// A key as an ordered store keeps it: the length of the space in one byte, the space, the key. So keys of one space
/// lie side by side in byte order, and no space is the beginning of another. Owner-thread.

#include <cstring>
#include <string_view>

#include "store/types.hpp"

namespace sonde::store {

/// Both must be within limit::space_bytes and limit::key_bytes.
struct PackedKey {
  PackedKey(std::string_view space, std::string_view key) {
    bytes[0] = static_cast<char>(space.size());
    std::memcpy(bytes + 1, space.data(), space.size());
    if (!key.empty()) std::memcpy(bytes + 1 + space.size(), key.data(), key.size());
    size = 1 + space.size() + key.size();
  }
  std::string_view view() const { return {bytes, size}; }

  char bytes[1 + limit::space_bytes + limit::key_bytes];
  std::size_t size;
};

}  // namespace sonde::store
