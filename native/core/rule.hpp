#pragma once
/// Stopping rules: how many measurements of one cell are enough.
///
/// A rule is fed one epoch of delays after another and answers after each. The same object decides inside a
/// probe while measuring and in `sonde net replay` over a recorded series. Rules hold no clock and draw no
/// random numbers but from the seed they are given. Owner-thread.
///
/// A sample that is NaN or infinite is counted and otherwise ignored. Zeros and repeated values are welcome: a
/// coarse clock makes them.
///
/// Adding one: a file in native/core/rules/, a line in rules/registry.cpp, a row in tests/native/core/test_rules.cpp.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace sonde {

enum class Decision : std::uint8_t {
  proceed = 0,    ///< not yet enough
  converged = 1,  ///< the rule's own criterion is met
  cap = 2,        ///< the largest allowed number of samples was reached first; never silent
  drift = 3,      ///< the series is not stationary: no number of samples will do
};

/// "proceed", "converged", "cap", "drift".
std::string_view decision_name(Decision decision);

struct RuleContext {
  std::uint64_t cap = 1000000;    ///< samples after which the rule gives up
  std::uint64_t min_samples = 0;  ///< samples before which it does not stop (0: the rule's own least)
  std::uint64_t seed = 0;
};

struct Rule {
  virtual ~Rule() = default;
  /// Adds one epoch of delays in s, in order of measurement. After an answer other than proceed, later calls
  /// repeat that answer.
  virtual Decision add(std::span<const double> epoch) = 0;
  /// The number of samples behind the decision: at most the number added. A rule that decides in the middle of an epoch
  /// (clustbench's does) gives that position here.
  virtual std::uint64_t used() const = 0;
  /// The decision, or what it still waits for, as a person reads it: "half-width 0.8 % after 24 epochs".
  virtual std::string why() const = 0;
  /// The memory that it uses, in bytes. It is bounded for every rule, whatever the number of samples is.
  virtual std::size_t state_bytes() const = 0;
};

struct RuleOption {
  std::string name, type, text;  ///< type: "int", "float", "share" (1% or 0.01)
  double fallback;               ///< value when not given
  double least, most;            ///< allowed, both included
};

struct RuleInfo {
  std::string name, text, source;
  std::vector<RuleOption> options;  ///< the first may be given without its name: "ci:1%"
};

/// Every rule, in the order of the help.
std::span<const RuleInfo> rule_list();

/// Makes a rule from its specification: "fixed:1000", "ci:1%", "spectral:tolerance=0.05,hold=2". A value with a
/// per cent sign is a hundredth of what stands before it.
/// Errors: core.bad_rule, which names what was not understood, what is allowed, and the nearest known name.
Result<std::unique_ptr<Rule>> make_rule(std::string_view spec, const RuleContext& context);

}  // namespace sonde
