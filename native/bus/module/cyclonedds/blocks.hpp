#pragma once
/// Memory of samples. A thread of Cyclone allocates received samples, and the taking thread frees them. With malloc
/// each of these takes a lock, and freeing the last one returns its pages, which then fault in again. Here each thread
/// caches some blocks, and threads exchange them in packs. The caches are bounded: about 2 MiB for each class, and up
/// to 200 KiB of it in each thread. Any-thread.

#include <cstddef>

namespace sonde::bus::cyclonedds {

inline constexpr std::size_t least_block_bytes = 384;  ///< the classes are this size, twice this size, …
inline constexpr std::size_t block_classes = 8;
inline constexpr std::size_t most_block_bytes = least_block_bytes
                                                << (block_classes - 1);  ///< larger blocks come from malloc

/// Null: no memory.
void* take_block(std::size_t bytes) noexcept;
/// `bytes`: the requested size.
void give_block(void* block, std::size_t bytes) noexcept;

}  // namespace sonde::bus::cyclonedds
