#pragma once
/// How BT distributes its grid over processes: the diagonal multi-partition scheme (Naik, IBM Systems Journal 34(2),
/// 1995; van der Wijngaart, SC 1993). With q x q processes the grid is cut q times in each direction, and every process
/// gets q cells, one in each slab of z, such that no two of its cells share a slab of x or y either. Any-thread.

#include <array>
#include <cstdint>
#include <vector>

namespace sonde::ioload {

constexpr std::uint64_t bt_components = 5, bt_point_bytes = 8 * bt_components;

struct Cell {
  std::array<int, 3> low, size;  ///< grid points in x, y, z
};

/// The side of a square number of ranks; 0 if the number is not square.
constexpr int side_of(int ranks) {
  int side = 0;
  while (side * side < ranks) ++side;
  return side * side == ranks ? side : 0;
}

/// The cells of `rank`, ascending in z. points: grid points a side; at least side_of(ranks), which is not 0.
inline std::vector<Cell> cells_of(int rank, int ranks, int points) {
  const int side = side_of(ranks);
  std::vector<Cell> cells;
  for (int slab = 0; slab < side; ++slab) {
    const std::array<int, 3> part{(rank % side + slab) % side, (rank / side - slab + side) % side, slab};
    Cell cell{};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const int least = points / side, longer = points % side;  // the first parts are longer by one
      cell.size[axis] = least + (part[axis] < longer ? 1 : 0);
      cell.low[axis] = part[axis] * least + (part[axis] < longer ? part[axis] : longer);
    }
    cells.push_back(cell);
  }
  return cells;
}

/// Grid points a side of a class; 0: there is no such class.
constexpr int bt_points(char problem) {
  return problem == 'S'   ? 12
         : problem == 'W' ? 24
         : problem == 'A' ? 64
         : problem == 'B' ? 102
         : problem == 'C' ? 162
                          : 0;
}

/// Number of dumps in `steps` steps: one after every `interval` steps, and one after the last.
constexpr std::uint64_t bt_dumps(std::uint64_t steps, std::uint64_t interval) {
  return (steps + interval - 1) / interval;
}

}  // namespace sonde::ioload
