#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/rules/rule_base.hpp"

namespace sonde::rules {

const RuleInfo fixed_info{
    "fixed",
    "stops after n samples, whatever they say",
    "what every other benchmark does",
    {{"n", "int", "samples to take", 1000, 1, 1e9}},
};

namespace {

/// Counts. State: a few words.
class Fixed final : public RuleBase {
 public:
  Fixed(std::uint64_t n, const RuleContext& context) : RuleBase(context), n_(n) {}

 private:
  Decision consider(std::span<const double> epoch) override {
    const std::uint64_t before = count_;
    count_ += epoch.size();
    say(std::to_string(count_) + " of " + std::to_string(n_) + " samples");
    if (count_ < n_) return Decision::proceed;
    std::size_t last = before < n_ ? n_ - before - 1 : 0;
    while (last + 1 < epoch.size() && !may_stop_at(last)) ++last;
    if (may_stop_at(last)) stop_at(last);
    say(std::to_string(before + last + 1) + " samples taken");
    return Decision::converged;
  }
  std::size_t held_bytes() const override { return sizeof(Fixed) - sizeof(RuleBase); }

  std::uint64_t n_, count_ = 0;
};

}  // namespace

std::unique_ptr<Rule> make_fixed(const Options& options, const RuleContext& context) {
  return std::make_unique<Fixed>(static_cast<std::uint64_t>(options.find("n")->second), context);
}

}  // namespace sonde::rules
