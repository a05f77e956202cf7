#pragma once
/// Memory of small samples. A thread of Cyclone's makes received samples and the taker's gives them up, which malloc serves by a lock for
/// each: here threads keep some and exchange them by the pack. Any-thread.

#include <cstddef>

namespace sonde::bus::cyclonedds {

inline constexpr std::size_t block_bytes = 384;   ///< larger ones are malloc's

/// Null: no memory.
void* take_block(std::size_t bytes) noexcept;
/// `bytes`: as it was asked for.
void give_block(void* block, std::size_t bytes) noexcept;

}  // namespace sonde::bus::cyclonedds
