#pragma once
/// A node: one or more Hardware under one total cap. Parts that draw power but cannot be capped (fans, memory, boards)
/// are covered by `base_w` of the configuration, which always counts as drawn, so that a node at its cap is not above
/// it. Owner-thread.

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
  double power_w = unknown;  ///< of the whole node's domain if there is one, else the sum of all domains and base_w
  double energy_j = unknown;
  double cap_w = unknown;        ///< total read back from the hardware; NaN: unknown
  Source source = Source::none;  ///< of power_w
  std::vector<Domain> domains;
  std::vector<Frequency> frequencies;
  std::vector<Sensor> sensors;  ///< of a BMC up to 30 s old: reading all of them takes seconds
  std::string trouble;          ///< code and sentence of the first fault; empty: none
  std::string note;             ///< code and sentence about a domain that is not counted, because it repeats another
};

class Node {
 public:
  struct Settings {
    double base_w = 0;
    std::vector<HardwareSpec> hardware;
  };
  /// Errors: those of open_hardware(); power.no_cap (no part of it can be capped; set `read_only` if that is intended).
  static Result<std::unique_ptr<Node>> open(const Settings& settings);
  virtual ~Node() = default;

  virtual Range range() const = 0;  ///< of the node's cap
  virtual const std::string& model() const = 0;
  /// Never fails as a whole: a value that fails is NaN, and `trouble` reports it. A domain that covers the whole node
  /// ("node", "psys") is used for its power and, if it can be set, for its cap; base_w is then ignored.
  virtual NodeReading read() = 0;
  /// Distributes the cap over the domains (level(), policy.hpp), lowers before it raises, reads back. Returns the sum
  /// that was read back; a domain that did not follow counts with its actual cap. Errors: power.out_of_range,
  /// power.read_only, power.hardware_failed.
  virtual Result<double> cap(double cap_w) = 0;
  /// The total of the hardware's present caps: firmware and others overwrite caps.
  virtual Result<double> capped() = 0;
  /// Domains are named "powercap:package-0"; of a second hardware of the same kind "redfish#2:node".
  virtual Result<std::vector<Original>> originals() = 0;
  virtual Result<void> restore(const std::vector<Original>& originals) = 0;
};

/// Whether a cap is obeyed: the energy of some periods compared with it. Detects a node that reports compliance and
/// draws more.
class Obedience {
 public:
  explicit Obedience(double tolerance = 0.05, double patience_s = 10)
      : tolerance_(tolerance), patience_s_(patience_s) {}
  /// Adds a reading; returns for how long the node has been above its cap by more than the tolerance, s; 0: it is not.
  double add(double power_w, double cap_w, double now_s);
  bool disobeys() const { return above_s_ >= patience_s_; }

 private:
  double tolerance_, patience_s_, since_s_ = unknown, above_s_ = 0;
};

}  // namespace sonde::power
