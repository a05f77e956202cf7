#include "bus/module/cyclonedds/blocks.hpp"

#include <array>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace sonde::bus::cyclonedds {

namespace {

// What is used after it was given up is found by a sanitizer only where malloc has all of it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool pooled = false;
#else
constexpr bool pooled = true;
#endif

struct Pack {
  std::array<void*, 64> blocks;
  std::size_t n = 0;

  bool full() const { return n == blocks.size(); }
  void drop() {
    while (n) std::free(blocks[--n]);
  }
};

/// Full packs that nobody has. Never ends: threads of Cyclone's may outlive it.
struct Depot {
  std::mutex mutex;
  std::array<Pack, 64> packs;    // 1.5 MiB at most
  std::size_t n = 0;

  bool put(Pack& pack) {
    const std::lock_guard lock(mutex);
    if (n == packs.size()) return false;
    packs[n++] = pack;
    pack.n = 0;
    return true;
  }
  bool get(Pack& into) {
    const std::lock_guard lock(mutex);
    if (!n) return false;
    into = packs[--n];
    packs[n].n = 0;
    return true;
  }
};

Depot& depot() {
  static Depot* const one = new Depot;
  return *one;
}

/// Two packs, so that who takes and gives by turns at a pack's end does not go to the depot each time.
struct Own {
  Pack now, other;
  ~Own() {
    now.drop();
    other.drop();
  }
};

Own& own() {
  thread_local Own one;
  return one;
}

}  // namespace

void* take_block(std::size_t bytes) noexcept {
  if (!pooled || bytes > block_bytes) return std::malloc(bytes);
  Own& mine = own();
  if (!mine.now.n) {
    if (mine.other.n) std::swap(mine.now, mine.other);
    else if (!depot().get(mine.now)) return std::malloc(block_bytes);
  }
  return mine.now.blocks[--mine.now.n];
}

void give_block(void* block, std::size_t bytes) noexcept {
  if (!pooled || bytes > block_bytes) return std::free(block);
  Own& mine = own();
  if (mine.now.full()) {
    if (mine.other.full() && !depot().put(mine.other)) return std::free(block);
    std::swap(mine.now, mine.other);
  }
  mine.now.blocks[mine.now.n++] = block;
}

}  // namespace sonde::bus::cyclonedds
