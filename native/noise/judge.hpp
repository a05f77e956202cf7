#pragma once
/// Does the agent disturb the loop? A permutation test on blocks with and without it.
///
/// Two statistics, each the largest of many, both computed again for labels drawn anew within the segments:
///
///   fold    Stalls are folded at the agent's period, which is cut into cells, twice, the second time half a cell
///           further, once counted from the run's begin (agents with a clock of their own) and once from the moment
///           the agent was let go (agents that start a timer then). In each cell it counts slots, that is periods,
///           that hold a stall there: one burst is one slot, however many stalls it makes. What a stall is comes from
///           both kinds of block together, without their labels: the longest 1/2, 1, 2, 4, 8 a slot for the coarse
///           fold of 80 cells, down to the longest 32 for the fine fold of 640, which also takes stalls of like length
///           by themselves. z = (slots on - slots off) / its deviation under permutation; T is the largest z of a
///           fold; each of the two has half of fold_weight.
///   ranked  Blocks ranked within their segment by: stalls, 100 ms bins with a stall and lost time, each above
///           thresholds chosen as before, and the given levels (quantiles of the iteration). T is the largest
///           standardised rank sum. Needs no period.
///
/// p = (1 + #{T* >= T}) / (1 + permutations) for each; p_fold is twice the smaller of the two folds' p. A run has one
/// p: the least of them, each divided by its share (fold_weight, and the rest for ranked), is compared with the same of
/// every permutation. Exact whatever the machine does, as long as the labels were drawn. Any-thread.
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
  std::vector<double> periods_s;  ///< to fold at; empty: the fold is left out
  double fold_weight = 0.8;       ///< share of alpha for the fold, in (0, 1)
  std::uint32_t permutations = 1999;
  std::uint64_t seed = 1;
  /// Above this p is not worth knowing: permuting ends as soon as it is sure to be above. 1: p is always exact.
  double exact_below = 1;
};

struct TestResult {
  double p = 1, p_fold = 1, p_ranked = 1;
  double z_fold = 0, z_ranked = 0;
  double period_s = 0, phase_s = 0;  ///< where the fold was largest: the middle of its cell
  bool from_resume = false;          ///< the phase counts from the moment the agent was let go
  std::uint32_t feature = 0;         ///< which of ranked was largest: 3 * threshold + (count, bins, lost), then levels
  std::uint32_t permutations = 0;    ///< behind p
};

/// Asked before each piece of a long computation, by its owner's clock; false ends it with what it has. Empty: to the
/// end.
using Proceed = std::function<bool()>;

/// Needs at least one segment with blocks of both kinds; else p is 1. Ended early it has fewer permutations, with which
/// p is as valid and cannot be as small: the clock that ends it does not know the labels.
TestResult test(std::span<const Evidence> blocks, const TestOptions& options, const Proceed& proceed = {});

constexpr std::uint32_t ranked_thresholds = 7;

/// Looks at a run that goes on. spend: share of alpha for each look, adding up to 1 at most.
class Sequential {
 public:
  /// looks, p: those that are over already, and what they came to.
  Sequential(std::vector<double> spend, TestOptions options, std::uint32_t looks = 0, double p = 1)
      : spend_(std::move(spend)), options_(std::move(options)), p_(p), looks_(looks) {}

  /// After a segment: tests all blocks so far. Once detected, further looks are still told but decide nothing.
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
/// shortest_s are not seen. Turns clean blocks into noisy ones, for power.
void inject(Evidence& block, double period_s, double phase_s, double burst_s, double shortest_s);

/// A design of blocks, as a run that is planned or over.
struct Design {
  std::vector<std::uint32_t> rounds;  ///< pairs of each segment
  std::vector<double> spend;
  double alpha = 0.01;
};

/// Share of `runs` simulated runs of this design in which bursts are found. Each run draws its blocks from `clean`
/// with replacement, each turned by a random part of its length so that no two are equal, draws labels and a phase, and
/// tests as Sequential does. seconds: to each run the number of blocks that had been seen when it was found, 0 where it
/// was not.
double power(std::span<const Evidence> clean, const Design& design, double period_s, double burst_s, double shortest_s,
             const TestOptions& options, std::uint32_t runs, std::vector<std::uint32_t>* blocks_needed = nullptr);

/// A search for the shortest burst that is found. It goes from coarse to fine, so that it has an answer whenever it is
/// ended: one that errs on the long side.
struct Search {
  std::optional<double> burst_s;  ///< the shortest that was found often enough so far; nullopt: not even the longest
  std::uint32_t done = 0;         ///< steps, each of which halves what is left of the range
  std::uint32_t steps = 0;        ///< of a whole search
};

/// The shortest burst a period that is found with probability `wanted`, by bisection on a logarithmic scale between
/// shortest_s and half a period; to about 10 %. A step ends as soon as its runs decide it. proceed: asked before each
/// simulated run.
Search detectable_burst(std::span<const Evidence> clean, const Design& design, double period_s, double shortest_s,
                        const TestOptions& options, double wanted, std::uint32_t runs, const Proceed& proceed = {});

}  // namespace sonde::noise
