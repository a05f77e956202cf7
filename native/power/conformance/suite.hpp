#pragma once
/// What hardware.hpp promises, as cases that any Hardware can be held against: `sonde-powerconform KIND`. Some set
/// caps, within the range, and put back what was there; on a machine that others use, choose `set = false`.
/// Owner-thread.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "power/hardware/hardware.hpp"

namespace sonde::power::conformance {

enum class Outcome { passed, failed, unsupported };

struct Case {
  std::string name;  ///< "energy: it does not fall"
  Outcome outcome = Outcome::failed;
  std::string reason;  ///< what was expected and what was seen, or what it cannot do; empty where it passed
  double elapsed_s = 0;
};

struct Settings {
  HardwareSpec spec;
  /// open_hardware(), or another for tests of the suite.
  std::function<Result<std::unique_ptr<Hardware>>(const HardwareSpec&)> open = open_hardware;
  std::string only;                       ///< names of cases, '*' and '?' allowed; empty: all
  bool set = true;                        ///< false: cases that set caps are left out, as unsupported
  double patience_s = 10;                 ///< how long hardware may take until it draws no more than its cap
  double tolerance_w = 1;                 ///< between what was set and what is read back: hardware rounds
  std::function<void(const Case&)> told;  ///< each case, when it is over
  std::function<bool()> ended;            ///< asked between cases: whoever started it wants its end
};

/// All cases, in order. What was set at the beginning is put back at the end. Errors: those of open_hardware();
/// power.conformance: no case fits.
Result<std::vector<Case>> check(const Settings& settings);

std::vector<std::string> case_names();

}  // namespace sonde::power::conformance
