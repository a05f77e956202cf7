#pragma once
/// Which bytes of which file a task moves, in which order: IOR's arithmetic, without any I/O. Any-thread.

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "io/load/options.hpp"

namespace sonde::ioload {

/// One transfer of a task.
struct Piece {
  std::uint64_t segment;
  std::uint64_t within;  ///< where it begins in the task's block of this segment, B
};

class Layout {
 public:
  Layout(const Options& o, int tasks)
      : tasks_(o.per_process ? 1 : static_cast<std::uint64_t>(tasks)),
        transfer_(o.transfer),
        block_(o.block),
        segments_(o.segments) {}

  std::uint64_t pieces() const { return segments_ * (block_ / transfer_); }  ///< of one task
  std::uint64_t file_bytes() const { return segments_ * tasks_ * block_; }
  std::uint64_t segment_bytes() const { return tasks_ * block_; }

  Piece piece(std::uint64_t k) const {
    const std::uint64_t per_block = block_ / transfer_;
    return {k / per_block, k % per_block * transfer_};
  }

  /// The offset of the piece in the file of task `owner`, or in its part of the shared file.
  std::uint64_t offset(const Piece& piece, int owner) const {
    return piece.segment * segment_bytes() + place(owner) * block_ + piece.within;
  }
  /// The block of `owner` within a segment: 0 with a file per process.
  std::uint64_t place(int owner) const { return tasks_ == 1 ? 0 : static_cast<std::uint64_t>(owner); }

 private:
  std::uint64_t tasks_, transfer_, block_, segments_;
};

/// Fills `order` with the order in which -z moves the pieces of `owner`; its size is their number. Random, by the
/// method of Fisher and Yates, and the same for every reader.
inline void draw_order(std::vector<std::uint32_t>& order, std::uint64_t seed, int owner) {
  for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<std::uint32_t>(k);
  Random numbers(Random(seed ^ 0x6f72646572ull).next() + static_cast<std::uint64_t>(owner));
  for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[numbers.below(k)]);
}

/// The distance in ranks to the task whose data a task reads with -C. As in IOR, it counts nodes if ranks fill one node
/// after another; if ranks are placed on nodes in turn, it counts ranks.
inline int task_shift(std::uint64_t nodes, std::uint64_t tasks_per_node, bool filled, int tasks) {
  const std::uint64_t step = filled ? tasks_per_node % static_cast<std::uint64_t>(tasks) : 1;
  return static_cast<int>(nodes % static_cast<std::uint64_t>(tasks) * step % static_cast<std::uint64_t>(tasks));
}

/// The folder of `path`; "." if it names none.
inline std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

/// "out.00000003": `path` and a number with at least `digits` digits.
inline std::string numbered(const std::string& path, int number, int digits) {
  char text[24];
  std::snprintf(text, sizeof text, ".%0*d", digits, number);
  return path + text;
}

/// The file of task `owner` in repetition `repetition`: IOR's names.
inline std::string file_name(const Options& o, std::uint64_t repetition, int owner) {
  std::string name = o.file;
  if (o.multi_file) name = numbered(name, static_cast<int>(repetition), 1);
  return o.per_process ? numbered(name, owner, 8) : name;
}

}  // namespace sonde::ioload
