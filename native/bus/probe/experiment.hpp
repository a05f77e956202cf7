#pragma once
/// What is done in a visit to a case on a variant, by the programs of its rig. Owner-thread.

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "bus/probe/rig.hpp"

namespace sonde::bus::probe {

struct Samples {
  std::vector<double> value;
  std::vector<float> offset;  ///< as many, or none: no moments of their own
};

struct Results {
  std::int64_t t0_ns = 0;  ///< now_ns() when it began
  std::map<Q, Samples> of;
  std::vector<Error> warnings;  ///< told once each

  void add(Q quantity, std::vector<double> value, const std::vector<double>& offset = {});
  void add(Q quantity, double value) { add(quantity, std::vector<double>{value}); }
};

/// Counters of all machines that programs are on, together.
struct Counted {
  double datagrams = 0, bytes = 0, overflowed = 0;
  double at_s = 0;  ///< mean of when they were read, each by its own machine's clock
};

class Experiment {
 public:
  Experiment(const Case& what, std::unique_ptr<Rig> rig) : what_(what), rig_(std::move(rig)) {}
  virtual ~Experiment() = default;
  /// Programs at most.
  static std::size_t programs(const Case& what, const Known& known);
  static std::unique_ptr<Experiment> make(const Case& what, std::unique_ptr<Rig> rig);
  /// Each visit wants programs that have done nothing yet.
  static bool fresh(const Case& what) { return what.test == Test::discovery || what.test == Test::first; }

  virtual Result<void> set_up() = 0;
  virtual Result<void> visit(Results& results) = 0;
  /// Its programs begin to end; it is of no use any more.
  void dismiss() { rig_->dismiss(); }

 protected:
  Result<Counted> traffic();
  const Case& what_;
  std::unique_ptr<Rig> rig_;
};

}  // namespace sonde::bus::probe
