#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/rules/rule_base.hpp"
#include "core/rules/sketch.hpp"
#include "core/stats/pooled.hpp"
#include "core/stats/warm_up.hpp"

namespace sonde::rules {

const RuleInfo ci_info{
    "ci",
    "stops when the median is known to the precision asked for: its confidence interval, made from what differs "
    "between epochs, is narrow enough",
    "docs/explain/stopping-rules.md",
    {{"precision", "share", "half-width of the interval over the median", 0.01, 1e-6, 1},
     {"level", "share", "confidence of the interval", 0.95, 0.5, 0.9999},
     {"first", "int", "epochs before the first peek", 20, 8, 100000},
     {"growth", "float", "epochs at a peek over epochs at the last", 1.15, 1.01, 10},
     {"ranks", "share", "share of all samples that the interval may reach to either side of the median", 0.1, 0.001,
      0.5},
     {"drift", "share", "chance of a false alarm at a peek, of the test for drift", stats::false_alarm, 0, 0.5},
     {"patience", "int", "peeks in a row that must find no steady level before drift is final", 5, 1, 100}},
};

namespace {

/// At each peek: leaves out the warm-up and tests the rest for drift. Without drift it checks whether the median has
/// the required precision. State: the sketch, at most about 20 KiB. A peek sorts the values of the sketch, at most
/// 4096.
class Ci final : public RuleBase {
 public:
  Ci(const Options& options, const RuleContext& context)
      : RuleBase(context),
        precision_(options.find("precision")->second),
        level_(options.find("level")->second),
        ranks_(options.find("ranks")->second),
        alarm_(options.find("drift")->second),
        patience_(static_cast<unsigned>(options.find("patience")->second)),
        grid_(static_cast<std::uint64_t>(options.find("first")->second), options.find("growth")->second),
        sketch_(context.seed) {}

 private:
  Decision consider(std::span<const double> epoch) override {
    sketch_.add(epoch);
    if (sketch_.epochs() == 1) say("too few epochs to say");
    return grid_.due(sketch_.epochs()) ? peek() : Decision::proceed;
  }

  /// The samples since the last peek are tested, too. At the end, two tests in a row without a steady level are drift.
  Decision at_cap() override {
    const Decision last = grid_.unseen(sketch_.epochs()) ? peek() : Decision::proceed;
    return last == Decision::proceed && drifting_ >= 2 ? Decision::drift : last;
  }

  Decision peek() {
    grid_.advance(sketch_.epochs());
    ++peeks_;
    stats::Batches view = sketch_.view();
    const stats::WarmUp warm_up = stats::find_warm_up(view, alarm_);
    if (!warm_up.over) {
      say("still warming up after " + epochs());
      return ++drifting_ >= patience_ ? Decision::drift : Decision::proceed;
    }
    std::uint64_t skipped = 0;
    for (std::size_t b = 0; b < warm_up.leave_out; ++b) skipped += view.batches[b].samples;
    view.drop_front(warm_up.leave_out);
    std::sort(view.values.begin(), view.values.end(), [](const auto& a, const auto& b) { return a.value < b.value; });

    const auto found = stats::pooled_median(view, level_);
    const std::vector<double> shares = view.shares_below(found.median);
    const double p = stats::drift_p(shares);
    if (p < alarm_) {
      say("level changed " + epochs_before(view, stats::drift_at(shares)) + " epochs before the end of " + epochs() +
          ", p " + number(p, 2));
      return ++drifting_ >= patience_ ? Decision::drift : Decision::proceed;
    }
    drifting_ = 0;

    const double half_width = (found.high - found.low) / 2;
    say("half-width " +
        (found.median != 0 ? percent(half_width / std::fabs(found.median)) : number(half_width) + " s") +
        " of the median after " + epochs() +
        (skipped ? ", the first " + std::to_string(skipped) + " samples left out as warm-up" : ""));
    // A median of 0 is known to any precision when its interval is a point, else to none.
    if (!(half_width <= precision_ * std::fabs(found.median))) return Decision::proceed;
    if (!firm(view, found)) {
      say("half-width " + percent(half_width / std::fabs(found.median)) +
          " of the median, but it reaches over too many ranks to be trusted after " + epochs());
      return Decision::proceed;
    }
    // Frequent peeks stop when the interval is narrow by chance, which is too early. The first peek has no such choice;
    // later ones must agree with the next.
    const bool agreed = peeks_ == 1 || narrow_at_ + 1 == peeks_;
    narrow_at_ = peeks_;
    return agreed ? Decision::converged : Decision::proceed;
  }

  /// A narrow interval that spans many ranks is narrow because the delays so far crowd there by chance; the next regime
  /// may be on the other side. If all delays are close together this does no harm.
  bool firm(const stats::Batches& view, const stats::PooledMedian& found) const {
    double total = 0, below = 0, above = 0;
    for (const auto& v : view.values) {
      total += v.weight;
      if (v.value < found.low) below += v.weight;
      if (v.value > found.high) above += v.weight;
    }
    if (total - below - above <= 2 * ranks_ * total) return true;
    double reached = 0, tenth = view.values.front().value, nine_tenths = view.values.back().value;
    for (const auto& v : view.values) {
      if (reached <= 0.1 * total) tenth = v.value;
      reached += v.weight;
      if (reached >= 0.9 * total) {
        nine_tenths = v.value;
        break;
      }
    }
    return (nine_tenths - tenth) / 2 <= 2 * precision_ * std::fabs(found.median);
  }

  std::string epochs() const { return std::to_string(sketch_.epochs()) + " epochs"; }

  static std::string epochs_before(const stats::Batches& view, std::size_t at) {
    std::uint64_t out = 0;
    for (std::size_t b = at; b < view.batches.size(); ++b) out += view.batches[b].epochs;
    return std::to_string(out);
  }

  std::size_t held_bytes() const override { return sizeof(Ci) - sizeof(RuleBase) + sketch_.bytes(); }

  double precision_, level_, ranks_, alarm_;
  unsigned patience_, drifting_ = 0, peeks_ = 0, narrow_at_ = 0;
  PeekGrid grid_;
  EpochSketch sketch_;
};

}  // namespace

std::unique_ptr<Rule> make_ci(const Options& options, const RuleContext& context) {
  return std::make_unique<Ci>(options, context);
}

}  // namespace sonde::rules
