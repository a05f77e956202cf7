#include <algorithm>
#include <cmath>

#include "core/rules/rule_base.hpp"
#include "core/rules/sketch.hpp"
#include "core/rules/stationarity.hpp"
#include "core/stats/pooled.hpp"

namespace sonde::rules {

const RuleInfo ci_info{
    "ci",
    "stops when the median is known to the precision asked for: its confidence interval, made from what differs "
    "between epochs, is narrow enough",
    "docs/explain/stopping-rules.md",
    {{"precision", "share", "half-width of the interval over the median", 0.01, 1e-6, 1},
     {"level", "share", "confidence of the interval", 0.95, 0.5, 0.9999},
     {"first", "int", "epochs before the first peek", 12, 8, 100000},
     {"growth", "float", "epochs at a peek over epochs at the last", 1.25, 1.01, 10},
     {"hold", "int", "peeks in a row that must find it precise", 1, 1, 100},
     {"margin", "float", "factor by which the half-width must be smaller than asked", 1.0, 0.1, 10},
     {"drift", "share", "chance of a false alarm at a peek, of the test that holds convergence back", 0.01, 0, 0.5},
     {"patience", "int", "peeks in a row that must find a drift before it is final", 4, 1, 100}},
};

namespace {

/// State: the sketch, at most about 20 KiB. A peek sorts what the sketch holds, at most 4096 values.
class Ci final : public RuleBase {
 public:
  Ci(const Options& options, const RuleContext& context)
      : RuleBase(context),
        precision_(options.find("precision")->second),
        level_(options.find("level")->second),
        margin_(options.find("margin")->second),
        alarm_(options.find("drift")->second),
        hold_(static_cast<unsigned>(options.find("hold")->second)),
        patience_(static_cast<unsigned>(options.find("patience")->second)),
        grid_(static_cast<std::uint64_t>(options.find("first")->second), options.find("growth")->second),
        sketch_(context.seed) {}

  std::uint64_t skipped() const override { return skipped_; }

 private:
  Decision consider(std::span<const double> epoch) override {
    sketch_.add(epoch);
    if (!grid_.due(sketch_.epochs())) {
      if (sketch_.epochs() == 1) say("too few epochs to say");
      return Decision::proceed;
    }
    grid_.advance(sketch_.epochs());
    return peek();
  }

  Decision peek() {
    const std::string after = " after " + std::to_string(sketch_.epochs()) + " epochs";
    EpochSketch::View view = sketch_.view();
    std::vector<double> medians;
    for (const auto& batch : view.batches) medians.push_back(batch.median);
    const WarmUp warm_up = find_warm_up(medians);
    skipped_ = 0;
    for (std::size_t b = 0; b < warm_up.leave_out; ++b) skipped_ += view.batches[b].samples;
    view.drop_front(warm_up.leave_out);

    const auto batches = view.batches;
    std::vector<double> shares = shares_below_median(view);
    const double p = drift_p(shares);
    if (p < alarm_ || !warm_up.over) {
      precise_ = 0;
      const std::size_t at = drift_at(shares);
      const bool drifting = p < alarm_;
      say((drifting ? "level changed near epoch " + std::to_string(epochs_before(batches, at)) + " of those kept, p " +
                          number(p, 2)
                    : "still warming up") + after);
      return ++drifting_ >= patience_ ? Decision::drift : Decision::proceed;
    }
    drifting_ = 0;

    const auto found = stats::pooled_median(std::move(view.values), batches.size(), level_);
    const double half_width = (found.high - found.low) / 2;
    // A median of 0 is known to any precision when its interval is a point, else to none.
    const bool precise = half_width * margin_ <= precision_ * std::fabs(found.median);
    say("half-width " + (found.median != 0 ? percent(half_width / std::fabs(found.median)) : number(half_width) + " s") +
        " of the median" + after +
        (skipped_ ? ", the first " + std::to_string(skipped_) + " samples left out as warm-up" : ""));
    precise_ = precise ? precise_ + 1 : 0;
    return precise_ >= hold_ ? Decision::converged : Decision::proceed;
  }

  static std::vector<double> shares_below_median(const EpochSketch::View& view) {
    const double median = stats::pooled_median(view.values, view.batches.size(), 0.95).median;
    std::vector<double> shares(view.batches.size(), 0.0);
    for (const auto& v : view.values) {
      if (v.value <= median) shares[v.batch] += v.weight * (v.value < median ? 1 : 0.5);
    }
    for (std::size_t b = 0; b < shares.size(); ++b) shares[b] /= static_cast<double>(view.batches[b].samples);
    return shares;
  }

  static std::uint64_t epochs_before(const std::vector<EpochSketch::Batch>& batches, std::size_t at) {
    std::uint64_t out = 0;
    for (std::size_t b = 0; b < at; ++b) out += batches[b].epochs;
    return out;
  }

  std::size_t held_bytes() const override { return sizeof(Ci) - sizeof(RuleBase) + sketch_.bytes(); }

  double precision_, level_, margin_, alarm_;
  unsigned hold_, patience_, precise_ = 0, drifting_ = 0;
  PeekGrid grid_;
  EpochSketch sketch_;
  std::uint64_t skipped_ = 0;
};

}  // namespace

std::unique_ptr<Rule> make_ci(const Options& options, const RuleContext& context) {
  return std::make_unique<Ci>(options, context);
}

}  // namespace sonde::rules
