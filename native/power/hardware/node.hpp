#pragma once
/// A node: one or more Hardware, one cap in sum. What draws power and cannot be capped (fans, memory, boards) is
/// `base_w` of the configuration, counted as drawn always, so that a node at its cap is not above it. Owner-thread.

#include <memory>
#include <string>
#include <vector>

#include "power/hardware/cpufreq.hpp"
#include "power/hardware/hardware.hpp"

namespace sonde::power {

struct NodeReading {
  struct Domain {
    std::string name;
    Source source = Source::none;
    DomainReading now;
    Range range;
  };
  double power_w = unknown;  ///< of the whole node's domain where there is one, else the sum of all domains and base_w
  double energy_j = unknown;
  double cap_w = unknown;        ///< what the hardware was read back to have, in sum; NaN: it cannot tell
  Source source = Source::none;  ///< of power_w
  std::vector<Domain> domains;
  std::vector<Frequency> frequencies;
  std::vector<Sensor> sensors;  ///< of a BMC up to 30 s old: it takes seconds for all of them
  std::string trouble;          ///< code and sentence of the first that failed; empty: nothing did
};

class Node {
 public:
  struct Settings {
    double base_w = 0;
    std::vector<HardwareSpec> hardware;
  };
  /// Errors: those of open_hardware(); power.no_cap (none of it can be capped; `read_only` must be said where that is
  /// wanted).
  static Result<std::unique_ptr<Node>> open(const Settings& settings);
  virtual ~Node() = default;

  virtual Range range() const = 0;  ///< of the node's cap
  virtual const std::string& model() const = 0;
  /// Never fails as a whole: what fails is NaN, and `trouble` tells it. A whole node's own domain ("node", "psys")
  /// stands for all of it, for its power and, where it can be set, for its cap; base_w then counts for nothing.
  virtual NodeReading read() = 0;
  /// Shares the cap over the domains (level(), policy.hpp), lowers before it raises, reads back. Returns the sum that
  /// was read back; a domain that did not follow counts with what it has. Errors: power.out_of_range, power.read_only,
  /// power.hardware_failed.
  virtual Result<double> cap(double cap_w) = 0;
  /// What the hardware has now, in sum: firmware and others overwrite caps.
  virtual Result<double> capped() = 0;
  /// Domains are "powercap:package-0"; of the second hardware of a kind "redfish#2:node".
  virtual Result<std::vector<Original>> originals() = 0;
  virtual Result<void> restore(const std::vector<Original>& originals) = 0;
};

/// Whether a cap is obeyed: energy of some periods against it. A node that says it follows and draws more is a liar.
class Obedience {
 public:
  explicit Obedience(double tolerance = 0.05, double patience_s = 10)
      : tolerance_(tolerance), patience_s_(patience_s) {}
  /// A reading; returns for how long the node has been above its cap by more than the tolerance, s; 0: it is not.
  double add(double power_w, double cap_w, double now_s);
  bool disobeys() const { return above_s_ >= patience_s_; }

 private:
  double tolerance_, patience_s_, since_s_ = unknown, above_s_ = 0;
};

}  // namespace sonde::power
