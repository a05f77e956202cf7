#pragma once
/// An invented node, for machines without power hardware and for tests. All its values are marked as simulated.
/// Owner-thread.

#include <cstdint>

#include "core/random.hpp"

namespace sonde::power {

/// Power without a clock: demand is idle + load * (busy - idle); what is drawn goes towards the lower of demand and cap
/// with a first-order lag, and never below idle. Energy is the exact integral; noise is of the measurement alone.
class PowerModel {
 public:
  struct Settings {
    double idle_w = 60, busy_w = 300, noise_w = 2, lag_s = 0.5;
    std::uint64_t seed = 1;
  };
  explicit PowerModel(const Settings& settings)
      : settings_(settings), random_(settings.seed), now_w_(settings.idle_w) {}

  /// Time passes under this load (0 … 1) and cap.
  void pass(double s, double load, double cap_w);
  double now_w() const { return now_w_; }  ///< without noise
  double energy_j() const { return energy_j_; }
  /// As an instrument shows it: normal noise, never below 0.
  double measured(double power_w);

 private:
  Settings settings_;
  Random random_;
  double now_w_, energy_j_ = 0;
};

}  // namespace sonde::power
