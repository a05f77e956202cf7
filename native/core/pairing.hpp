#pragma once
/// The pairs of each round, such that every unordered pair of ranks meets exactly once.
///
/// The circle method (round-robin tournament; Kirkman 1847): size-1 rounds when size is even, size rounds when
/// it is odd, and then one rank pauses in each. Any-thread.

#include <cstdint>

namespace sonde {

/// Rounds needed for `size` ranks; 0 for fewer than two.
constexpr int pairing_rounds(int size) { return size < 2 ? 0 : (size % 2 == 0 ? size - 1 : size); }

/// The partner of `rank` in `round` (0 .. pairing_rounds-1), or -1 when it pauses.
constexpr int pairing_partner(int rank, int round, int size) {
  const int even = size + size % 2;  // an odd team plays with a ghost, and who meets it pauses
  const int turn = even - 1;
  int partner;
  if (rank == even - 1) {
    // The one who does not turn meets the rank r with 2r = round (mod turn).
    partner = static_cast<int>((static_cast<std::int64_t>(round) * (even / 2)) % turn);
  } else {
    partner = ((round - rank) % turn + turn) % turn;
    if (partner == rank) partner = even - 1;
  }
  return partner < size ? partner : -1;
}

}  // namespace sonde
