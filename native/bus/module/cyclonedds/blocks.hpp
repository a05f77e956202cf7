#pragma once
/// Memory of samples. A thread of Cyclone's makes received samples and the taker's gives them up, which malloc serves
/// by a lock for each, and, where the one was the last, by giving its pages back and faulting them in again: here
/// threads keep some and exchange them by the pack. What is kept is bounded: some 2 MiB of each class, and up to 200
/// KiB of it by each thread. Any-thread.

#include <cstddef>

namespace sonde::bus::cyclonedds {

inline constexpr std::size_t least_block_bytes = 384;  ///< classes are this, twice this, …
inline constexpr std::size_t block_classes = 8;
inline constexpr std::size_t most_block_bytes = least_block_bytes << (block_classes - 1);  ///< larger ones are malloc's

/// Null: no memory.
void* take_block(std::size_t bytes) noexcept;
/// `bytes`: as it was asked for.
void give_block(void* block, std::size_t bytes) noexcept;

}  // namespace sonde::bus::cyclonedds
