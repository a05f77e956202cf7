#pragma once
/// The permutation test on blocks with and without the agent: does the agent disturb the loop?
///
/// There are two statistics. Each is the largest of many, and both are computed again for permutations of the labels
/// within the segments:
///
///   fold    Stalls are folded at the agent's period. The period is cut into cells in two ways, the second shifted by
///           half a cell. Time counts once from the run's begin (for agents with their own clock) and once from the
///           moment at which the agent was resumed (for agents that start a timer then). Each cell counts the slots
///           (periods) that have a stall there: one burst is one slot, even if it makes many stalls. The thresholds of
///           a stall come from both kinds of blocks together, without their labels: the longest 1/2, 1, 2, 4, 8 in each
///           slot for the coarse fold of 80 cells, down to the longest 32 for the fine fold of 640 cells. The fine fold
///           also uses stalls of similar length separately. z = (slots on - slots off) / its deviation under
///           permutation. T is the largest z of a fold; each of the two folds has half of fold_weight.
///   ranked  Blocks are ranked within their segment by: stalls, 100 ms bins with a stall, and lost time, each above
///           thresholds chosen as before, and by the given levels (quantiles of the iteration). T is the largest
///           standardised rank sum. It needs no period.
///
/// p = (1 + #{T* >= T}) / (1 + permutations) for each; p_fold is twice the smaller p of the two folds. A run has one p:
/// the least of these, each divided by its share (fold_weight, and the rest for ranked), is compared with the same
/// number of every permutation. It is exact for any behaviour of the machine, if the labels were drawn at random.
/// Any-thread.
///
/// Source: permutation tests with a max statistic: Westfall and Young 1993; stalls as noise: Petrini et al. 2003.

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "noise/evidence.hpp"

namespace sonde::noise {

struct TestOptions {
  std::vector<double> periods_s;  ///< periods to fold at; empty: the fold is left out
  double fold_weight = 0.8;       ///< share of alpha for the fold, in (0, 1)
  std::uint32_t permutations = 1999;
  std::uint64_t seed = 1;
  /// Above this, the exact p does not matter: permuting ends as soon as p is surely above. 1: p is always exact.
  double exact_below = 1;
};

struct TestResult {
  double p = 1, p_fold = 1, p_ranked = 1;
  double z_fold = 0, z_ranked = 0;
  double period_s = 0, phase_s = 0;  ///< of the largest fold: the middle of its cell
  bool from_resume = false;          ///< the phase counts from the moment at which the agent was resumed
  std::uint32_t feature = 0;         ///< the largest ranked feature: 3 * threshold + (count, bins, lost), then levels
  std::uint32_t permutations = 0;    ///< number of permutations for p
};

/// Called before each piece of a long computation. false ends the computation with its results so far; the decision
/// depends only on a clock. Empty: never end early.
using Proceed = std::function<bool()>;

/// Needs at least one segment with blocks of both kinds; otherwise p is 1. If it ends early, it has fewer permutations.
/// Then p is still valid, because the clock that ends it does not depend on the labels, but p cannot be as small.
TestResult test(std::span<const Evidence> blocks, const TestOptions& options, const Proceed& proceed = {});

constexpr std::uint32_t ranked_thresholds = 7;

/// Interim looks at a run that goes on. spend: share of alpha for each look; their sum is at most 1.
class Sequential {
 public:
  /// looks, p: the number of looks that are over, and their p.
  Sequential(std::vector<double> spend, TestOptions options, std::uint32_t looks = 0, double p = 1)
      : spend_(std::move(spend)), options_(std::move(options)), p_(p), looks_(looks) {}

  /// After a segment: tests all blocks so far. After a detection, further looks are still recorded, but decide nothing.
  TestResult look(std::span<const Evidence> blocks, const Proceed& proceed = {});

  /// min over looks of p / spend: at most alpha means detected. Valid by the union bound.
  double p() const { return p_; }
  bool detected(double alpha) const { return p_ <= alpha; }
  std::uint32_t looks() const { return looks_; }

 private:
  std::vector<double> spend_;
  TestOptions options_;
  double p_;
  std::uint32_t looks_;
};

/// Puts a burst into every period of a block: a stall of burst_s at phase_s of the run's time. Bursts shorter than
/// shortest_s are invisible. This makes noisy blocks from clean ones, to compute the power.
void inject(Evidence& block, double period_s, double phase_s, double burst_s, double shortest_s);

/// The design of the blocks of a run.
struct Design {
  std::vector<std::uint32_t> rounds;  ///< pairs of each segment
  std::vector<double> spend;
  double alpha = 0.01;
};

/// The share of `runs` simulated runs of this design that detect the bursts. Each run draws its blocks from `clean`
/// with replacement and rotates each block by a random part of its length, so that no two blocks are equal. It draws
/// labels and a phase, and tests as Sequential. blocks_needed: for each run the number of blocks at the detection, 0
/// without a detection.
double power(std::span<const Evidence> clean, const Design& design, double period_s, double burst_s, double shortest_s,
             const TestOptions& options, std::uint32_t runs, std::vector<std::uint32_t>* blocks_needed = nullptr);

/// A search for the shortest burst that is detected. It goes from coarse to fine, so it has an answer whenever it ends
/// early; this answer may be too long.
struct Search {
  std::optional<double>
      burst_s;              ///< the shortest so far that was detected often enough; nullopt: even the longest was not
  std::uint32_t done = 0;   ///< steps; each step halves the rest of the range
  std::uint32_t steps = 0;  ///< steps of a whole search
};

/// The shortest burst in each period that is detected with probability `wanted`, exact to about 10 %. It uses bisection
/// on a logarithmic scale between shortest_s and half a period. A step ends as soon as its runs decide it. proceed:
/// called before each simulated run.
Search detectable_burst(std::span<const Evidence> clean, const Design& design, double period_s, double shortest_s,
                        const TestOptions& options, double wanted, std::uint32_t runs, const Proceed& proceed = {});

}  // namespace sonde::noise
