#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/rules/rule_base.hpp"

namespace sonde::rules {

const RuleInfo entropy_info{
    "entropy",
    "stops when the entropy of the distribution of delays no longer grows with more samples",
    "the idea is nvbench's; correction of the entropy: Miller, Information Theory in Psychology, 1955, 95-100",
    {{"change", "float", "largest change of the entropy over the last peeks, in bits", 0.05, 1e-6, 10},
     {"peeks", "int", "peeks that are compared", 5, 2, 100},
     {"bin", "share", "width of a bin of delays", 0.01, 1e-4, 1},
     {"first", "int", "epochs before the first peek", 12, 1, 100000},
     {"growth", "float", "epochs at a peek over epochs at the last", 1.15, 1.01, 10}},
};

namespace {

using Bin =
    std::pair<int, long>;  // sign, and logarithm of the size over the width; {0, 0}: a clock that did not advance

constexpr std::size_t most_bins = 2048;

/// Bins of log delay; those of negative ones, which the clocks of two hosts can make, are apart. It asks whether new
/// kinds of delay still turn up, not how well any of them is known: on a network whose regimes last long it stops
/// early, which `replay` shows.
///
/// State: at most 2048 bins (neighbours are joined past that), about 100 KiB; usually a few dozen.
class Entropy final : public RuleBase {
 public:
  Entropy(const Options& options, const RuleContext& context)
      : RuleBase(context),
        change_(options.find("change")->second),
        width_(std::log1p(options.find("bin")->second)),
        peeks_(static_cast<std::size_t>(options.find("peeks")->second)),
        grid_(static_cast<std::uint64_t>(options.find("first")->second), options.find("growth")->second) {}

 private:
  Decision consider(std::span<const double> epoch) override {
    ++epochs_;
    for (const double x : epoch) {
      const double size = x == 0 ? 0 : std::floor(std::log(std::abs(x)) / width_);
      ++bins_[{(x > 0) - (x < 0), static_cast<long>(size)}];
      ++count_;
    }
    while (bins_.size() > most_bins) widen();
    if (!grid_.due(epochs_)) {
      if (epochs_ == 1) say("too few epochs to say");
      return Decision::proceed;
    }
    return peek();
  }

  Decision at_cap() override { return grid_.unseen(epochs_) ? peek() : Decision::cap; }

  Decision peek() {
    grid_.advance(epochs_);
    entropies_.push_back(entropy());
    if (entropies_.size() > peeks_) entropies_.erase(entropies_.begin());
    const auto [low, high] = std::minmax_element(entropies_.begin(), entropies_.end());
    const std::string after = " after " + std::to_string(epochs_) + " epochs";
    say("entropy " + number(entropies_.back()) + " bits, changed by " + number(*high - *low, 2) + " over " +
        std::to_string(entropies_.size()) + " peeks" + after);
    return entropies_.size() == peeks_ && *high - *low <= change_ ? Decision::converged : Decision::proceed;
  }

  // Bits. Half a unit for each bin beyond the first over the samples is what so few samples miss (Miller).
  double entropy() const {
    double sum = 0;
    const double n = static_cast<double>(count_);
    for (const auto& [bin, count] : bins_) {
      const double share = static_cast<double>(count) / n;
      sum -= share * std::log2(share);
    }
    return sum + static_cast<double>(bins_.size() - 1) / (2 * n * std::log(2.0));
  }

  void widen() {
    std::map<Bin, std::uint64_t> wider;
    for (const auto& [bin, count] : bins_)
      wider[{bin.first, static_cast<long>(std::floor(static_cast<double>(bin.second) / 2))}] += count;
    bins_ = std::move(wider);
    width_ *= 2;
    entropies_.clear();  // of other bins
  }

  std::size_t held_bytes() const override {
    return sizeof(Entropy) - sizeof(RuleBase) + bins_.size() * (sizeof(Bin) + sizeof(std::uint64_t) + 32) +
           entropies_.capacity() * sizeof(double);
  }

  double change_, width_;
  std::size_t peeks_;
  PeekGrid grid_;
  std::map<Bin, std::uint64_t> bins_;
  std::uint64_t count_ = 0, epochs_ = 0;
  std::vector<double> entropies_;
};

}  // namespace

std::unique_ptr<Rule> make_entropy(const Options& options, const RuleContext& context) {
  return std::make_unique<Entropy>(options, context);
}

}  // namespace sonde::rules
