#pragma once
/// A stopping rule over a recorded series: the same object that decides during a measurement, with the same epochs.
/// Any-thread.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/rule.hpp"

namespace sonde {

struct Replay {
  Decision decision;       ///< proceed: the series ended before the rule decided
  std::uint64_t n;         ///< samples the decision rests on, counted from the first
  std::uint64_t skipped;   ///< of those, left out at the beginning as warm-up
  std::uint64_t epochs;    ///< epochs, or pieces of them, among the n
  double estimate;         ///< median of the samples used, s
  double ci_low, ci_high;  ///< its interval at `level`, from what differs between epochs (stats::steady_median)
  std::string why;         ///< in the rule's words
};

/// Replays one series. x: s, in order of measurement; NaN is counted as the rule counts it and left out of the
/// estimate. epoch: of each sample, or empty; a run of equal numbers is one epoch and passed as a whole, and a sample
/// with a negative number is ignored. Without epochs the series is cut into bursts of `burst` samples, as a probe that
/// measured without pause would have passed it.
/// Errors: core.bad_rule; core.unequal_lengths when epoch is neither empty nor as long as x.
Result<Replay> replay(std::span<const double> x, std::span<const std::int32_t> epoch, std::string_view spec,
                      const RuleContext& context, std::size_t burst = 50, double level = 0.95);

}  // namespace sonde
