#include "bus/module/cyclonedds/blocks.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "core/sanitizer.hpp"

namespace sonde::bus::cyclonedds {

namespace {

// A sanitizer finds a use after free only if malloc manages all blocks.
constexpr bool pooled = !sanitized;

constexpr std::size_t most_blocks = 64, most_packs = 64;
constexpr std::size_t pack_bytes = 96 << 10, depot_bytes = 2 << 20;

constexpr std::size_t bytes_of(std::size_t which) { return least_block_bytes << which; }
constexpr std::size_t class_of(std::size_t bytes) {
  return bytes <= least_block_bytes ? 0 : std::bit_width((bytes - 1) / least_block_bytes);
}
/// The number of blocks in a full pack.
constexpr std::size_t blocks_of(std::size_t which) {
  return std::clamp<std::size_t>(pack_bytes / bytes_of(which), 2, most_blocks);
}
constexpr std::size_t packs_of(std::size_t which) {
  return std::min(depot_bytes / (blocks_of(which) * bytes_of(which)), most_packs);
}

static_assert(class_of(least_block_bytes) == 0 && class_of(least_block_bytes + 1) == 1 &&
              class_of(2 * least_block_bytes) == 1);
static_assert(class_of(most_block_bytes) == block_classes - 1 && class_of(most_block_bytes + 1) == block_classes);

struct Pack {
  std::array<void*, most_blocks> blocks;
  std::size_t n = 0;

  void drop() {
    while (n) std::free(blocks[--n]);
  }
};

/// Unused full packs of one class. Never destroyed, because threads of Cyclone may still use it at exit.
struct Depot {
  std::mutex mutex;
  std::array<Pack, most_packs> packs;
  std::size_t n = 0;

  bool put(Pack& pack, std::size_t most) {
    const std::lock_guard lock(mutex);
    if (n == most) return false;
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

Depot& depot(std::size_t which) {
  static auto* const all = new std::array<Depot, block_classes>;
  return (*all)[which];
}

/// Two packs of each class, so that a thread which alternately takes and gives at a pack's end needs no depot access.
struct Own {
  struct Two {
    Pack now, other;
  };
  std::array<Two, block_classes> of;
  ~Own() {
    for (Two& two : of) {
      two.now.drop();
      two.other.drop();
    }
  }
};

Own& own() {
  thread_local Own one;
  return one;
}

}  // namespace

void* take_block(std::size_t bytes) noexcept {
  const std::size_t which = class_of(bytes);
  if (!pooled || which >= block_classes) return std::malloc(bytes);
  auto& [now, other] = own().of[which];
  if (!now.n) {
    if (other.n) std::swap(now, other);
    else if (!depot(which).get(now)) return std::malloc(bytes_of(which));
  }
  return now.blocks[--now.n];
}

void give_block(void* block, std::size_t bytes) noexcept {
  const std::size_t which = class_of(bytes);
  if (!pooled || which >= block_classes) return std::free(block);
  auto& [now, other] = own().of[which];
  if (now.n == blocks_of(which)) {
    if (other.n == blocks_of(which) && !depot(which).put(other, packs_of(which))) return std::free(block);
    std::swap(now, other);
  }
  now.blocks[now.n++] = block;
}

}  // namespace sonde::bus::cyclonedds
