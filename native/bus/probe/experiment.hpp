#pragma once
/// One step of a measurement: a case on a variant, run by the programs of its rig. Owner-thread.

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "bus/probe/rig.hpp"

namespace sonde::bus::probe {

struct Samples {
  std::vector<double> value;
  std::vector<float> offset;  ///< one for each value, or empty: the values have no times of their own
};

struct Results {
  std::int64_t t0_ns = 0;  ///< now_ns() at its start
  std::map<Q, Samples> of;
  std::vector<Error> warnings;  ///< each is reported once

  void add(Q quantity, std::vector<double> value, const std::vector<double>& offset = {});
  void add(Q quantity, double value) { add(quantity, std::vector<double>{value}); }
};

/// The sums of the counters of all machines with programs.
struct Counted {
  double datagrams = 0, bytes = 0, overflowed = 0;
  double at_s = 0;  ///< mean time of reading them, each by the clock of its machine
};

class Experiment {
 public:
  Experiment(const Case& what, std::unique_ptr<Rig> rig) : what_(what), rig_(std::move(rig)) {}
  virtual ~Experiment() = default;
  /// The largest number of programs.
  static std::size_t programs(const Case& what, const Known& known);
  static std::unique_ptr<Experiment> make(const Case& what, std::unique_ptr<Rig> rig);
  /// Whether each step needs new programs.
  static bool fresh(const Case& what) { return what.test == Test::discovery || what.test == Test::first; }

  virtual Result<void> set_up() = 0;
  virtual Result<void> visit(Results& results) = 0;
  /// Starts to end its programs; the object is unusable afterwards.
  void dismiss() { rig_->dismiss(); }

 protected:
  Result<Counted> traffic();
  const Case& what_;
  std::unique_ptr<Rig> rig_;
};

}  // namespace sonde::bus::probe
