#include "core/replay.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/stats/pooled.hpp"

namespace sonde {

Result<Replay> replay(std::span<const double> x, std::span<const std::int32_t> epoch, std::string_view spec,
                      const RuleContext& context, std::size_t burst, double level) {
  if (!epoch.empty() && epoch.size() != x.size()) {
    return Error{"core.unequal_lengths",
                 std::to_string(x.size()) + " samples came with " + std::to_string(epoch.size()) + " epoch numbers",
                 "give one epoch number for every sample, or none at all"};
  }
  auto made = make_rule(spec, context);
  if (!made) return made.error();
  Rule& rule = **made;
  burst = std::max<std::size_t>(burst, 1);

  Decision decision = Decision::proceed;
  std::size_t taken = 0;         // samples of x so far
  std::vector<double> kept;      // the rule's input, in order
  std::vector<std::int32_t> of;  // its epoch, counted from 0
  std::int32_t epochs = 0;
  while (taken < x.size() && decision == Decision::proceed) {
    if (!epoch.empty() && epoch[taken] < 0) {
      ++taken;
      continue;
    }
    std::size_t end = taken + 1;
    while (end < x.size() && (epoch.empty() ? end - taken < burst : epoch[end] == epoch[taken])) ++end;
    kept.insert(kept.end(), x.begin() + static_cast<std::ptrdiff_t>(taken),
                x.begin() + static_cast<std::ptrdiff_t>(end));
    of.resize(kept.size(), epochs++);
    decision = rule.add(x.subspan(taken, end - taken));
    taken = end;
  }

  Replay out{decision, rule.used(), 0, 0, 0, 0, 0, rule.why()};
  kept.resize(out.n);
  of.resize(out.n);
  out.epochs = of.empty() ? 0 : static_cast<std::uint64_t>(of.back() + 1);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!std::isfinite(kept[i])) of[i] = -1;
  }
  const stats::SteadyMedian found = stats::steady_median(stats::Epochs(kept, of), level);
  out.skipped = found.skipped;
  out.estimate = found.median;
  out.ci_low = found.low;
  out.ci_high = found.high;
  return out;
}

}  // namespace sonde
