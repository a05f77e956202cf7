#pragma once
/// The common part of all rules: counting, the cap, leaving out NaN, and repeating a decision. Owner-thread.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/rule.hpp"

namespace sonde::rules {

/// Values of a rule's options by name, with every option.
using Options = std::map<std::string, double, std::less<>>;

/// One line of the registry.
struct Entry {
  const RuleInfo* info;
  std::unique_ptr<Rule> (*make)(const Options&, const RuleContext&);
};

class RuleBase : public Rule {
 public:
  Decision add(std::span<const double> epoch) final;
  std::uint64_t used() const final { return used_; }
  std::string why() const final { return why_; }
  std::size_t state_bytes() const final;

 protected:
  explicit RuleBase(const RuleContext& context) : context_(context) {}

  /// One epoch without its NaN, never longer than the cap allows. The answer counts only once min_samples came.
  virtual Decision consider(std::span<const double> epoch) = 0;
  /// Asked when the cap was reached without a decision: the last peek. It may still answer converged or drift.
  virtual Decision at_cap() { return Decision::cap; }
  virtual std::size_t held_bytes() const = 0;

  void say(std::string why) { why_ = std::move(why); }
  /// For rules that decide within an epoch: whether they may after the i-th sample consider() was given, and
  /// that they do.
  bool may_stop_at(std::size_t i) const { return position(i) >= context_.min_samples; }
  void stop_at(std::size_t i) { used_ = position(i); }
  const RuleContext& context() const { return context_; }

 private:
  /// Samples that came up to and with the i-th one that consider() was given.
  std::uint64_t position(std::size_t i) const { return before_ + (offset_.empty() ? i : offset_[i]) + 1; }

  RuleContext context_;
  std::uint64_t used_ = 0, before_ = 0;
  std::vector<double> clean_;
  std::vector<std::size_t> offset_;
  Decision decision_ = Decision::proceed;
  std::string why_ = "no samples yet";
};

/// Fixed grid of peeks: at `first`, then each `growth` times the last, at least one more. A peek after every epoch
/// would give chance too many occasions to look like convergence.
class PeekGrid {
 public:
  PeekGrid(std::uint64_t first, double growth) : next_(first), growth_(growth) {}
  bool due(std::uint64_t count) const { return count >= next_; }
  /// Moves past `count`, where a peek was taken.
  void advance(std::uint64_t count);
  /// Whether samples came after the last peek. False before the first peek: so few are not enough at the cap either.
  bool unseen(std::uint64_t count) const { return last_ > 0 && count > last_; }

 private:
  std::uint64_t next_, last_ = 0;
  double growth_;
};

/// "%.*g" without locale.
std::string number(double value, int digits = 3);
/// 0.0123 as "1.2 %".
std::string percent(double share);

extern const RuleInfo fixed_info, ci_info, spectral_info, lognormal_info, entropy_info, clustbench_fft_info,
    clustbench_modified_info;
std::unique_ptr<Rule> make_fixed(const Options&, const RuleContext&);
std::unique_ptr<Rule> make_ci(const Options&, const RuleContext&);
std::unique_ptr<Rule> make_spectral(const Options&, const RuleContext&);
std::unique_ptr<Rule> make_lognormal(const Options&, const RuleContext&);
std::unique_ptr<Rule> make_entropy(const Options&, const RuleContext&);
std::unique_ptr<Rule> make_clustbench_fft(const Options&, const RuleContext&);
std::unique_ptr<Rule> make_clustbench_modified(const Options&, const RuleContext&);

}  // namespace sonde::rules
