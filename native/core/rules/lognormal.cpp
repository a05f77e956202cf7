#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/rules/rule_base.hpp"
#include "core/rules/sketch.hpp"
#include "core/stats/lognormal.hpp"
#include "core/stats/warm_up.hpp"

namespace sonde::rules {

const RuleInfo lognormal_info{
    "lognormal",
    "stops when three-parameter lognormals fitted to two halves of the epochs say the same of low, middle and high "
    "delays",
    "Cohen, JASA 46, 1951, 206-212, for the law; halves: docs/explain/stopping-rules.md",
    {{"precision", "share", "largest relative difference of a quantile between the halves", 0.02, 1e-6, 1},
     {"first", "int", "epochs before the first peek", 12, 8, 100000},
     {"growth", "float", "epochs at a peek over epochs at the last", 1.25, 1.01, 10},
     {"hold", "int", "peeks in a row that must agree", 2, 1, 100},
     {"fit", "share", "largest distance of the samples' distribution from the fitted law", 0.1, 0.01, 1}},
};

namespace {

constexpr double asked_quantiles[] = {0.05, 0.5, 0.95};
constexpr std::size_t most_fitted = 1000;  // values a half; a fit costs about 1 µs a value

/// The halves are every other batch of consecutive epochs, so that a slow drift meets both alike and what is compared
/// is how well the law is known. Delays are often mixtures that no lognormal fits, and what a law says that does not
/// hold is no reason to stop: it goes on while the fit is far off (Kolmogorov and Smirnov's distance).
///
/// State: the sketch, at most about 20 KiB. A peek fits twice 1000 values.
class Lognormal final : public RuleBase {
 public:
  Lognormal(const Options& options, const RuleContext& context)
      : RuleBase(context),
        precision_(options.find("precision")->second),
        farthest_(options.find("fit")->second),
        hold_(static_cast<unsigned>(options.find("hold")->second)),
        grid_(static_cast<std::uint64_t>(options.find("first")->second), options.find("growth")->second),
        sketch_(context.seed) {}

 private:
  Decision consider(std::span<const double> epoch) override {
    sketch_.add(epoch);
    if (!grid_.due(sketch_.epochs())) {
      if (sketch_.epochs() == 1) say("too few epochs to say");
      return Decision::proceed;
    }
    return peek();
  }

  Decision at_cap() override { return grid_.unseen(sketch_.epochs()) ? peek() : Decision::cap; }

  Decision peek() {
    grid_.advance(sketch_.epochs());
    stats::Batches view = sketch_.view();
    const std::string after = " after " + std::to_string(sketch_.epochs()) + " epochs";
    const stats::WarmUp warm_up = stats::find_warm_up(view, stats::false_alarm);
    if (!warm_up.over) {
      alike_ = 0;
      say("still warming up" + after);
      return Decision::proceed;
    }
    view.drop_front(warm_up.leave_out);
    std::vector<double> half[2];
    for (std::size_t b = 0; b < view.batches.size(); ++b)
      for (std::size_t k = view.batches[b].begin; k < view.batches[b].end; ++k)
        half[b % 2].push_back(view.values[k].value);
    double quantiles[2][std::size(asked_quantiles)], ks = 0;
    for (int h = 0; h < 2; ++h) {
      thin(half[h]);
      const auto [low, high] = std::minmax_element(half[h].begin(), half[h].end());
      if (half[h].empty() || !(*low < *high)) {
        // A clock that shows one value only: the law is a point, known as well as it can be.
        for (double& q : quantiles[h]) q = half[h].empty() ? 0 : *low;
        continue;
      }
      const stats::Lognormal3 fit = stats::fit_lognormal3(half[h]);
      if (!fit.converged) {
        alike_ = 0;
        say("no lognormal fits" + after);
        return Decision::proceed;
      }
      ks = std::max(ks, fit.ks);
      for (std::size_t q = 0; q < std::size(asked_quantiles); ++q)
        quantiles[h][q] = stats::lognormal3_quantile(asked_quantiles[q], fit);
    }
    double apart = 0;
    for (std::size_t q = 0; q < std::size(asked_quantiles); ++q) {
      const double scale = std::max(std::abs(quantiles[0][q]), std::abs(quantiles[1][q]));
      if (scale > 0) apart = std::max(apart, std::abs(quantiles[0][q] - quantiles[1][q]) / scale);
    }
    say("quantiles of halves within " + percent(apart) + ", distance of the fit " + number(ks, 2) + after);
    alike_ = apart <= precision_ && ks <= farthest_ ? alike_ + 1 : 0;
    return alike_ >= hold_ ? Decision::converged : Decision::proceed;
  }

  // At equal steps of rank, so that thinning keeps the law.
  static void thin(std::vector<double>& values) {
    if (values.size() <= most_fitted) return;
    std::sort(values.begin(), values.end());
    for (std::size_t k = 0; k < most_fitted; ++k) values[k] = values[(2 * k + 1) * values.size() / (2 * most_fitted)];
    values.resize(most_fitted);
  }

  std::size_t held_bytes() const override {
    return sizeof(Lognormal) - sizeof(RuleBase) - sizeof(EpochSketch) + sketch_.bytes();
  }

  double precision_, farthest_;
  unsigned hold_, alike_ = 0;
  PeekGrid grid_;
  EpochSketch sketch_;
};

}  // namespace

std::unique_ptr<Rule> make_lognormal(const Options& options, const RuleContext& context) {
  return std::make_unique<Lognormal>(options, context);
}

}  // namespace sonde::rules
