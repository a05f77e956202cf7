#pragma once
/// The processor time that other programs use on each host of a run while it measures. Owner-thread.

#include <limits>
#include <string>
#include <vector>

#include "mpi/team.hpp"

namespace sonde {

struct HostShare {
  std::string host;
  /// The part of the time of the processors that the run's ranks may use there: 0 to 1; NaN where the kernel does not
  /// report it. Time within the kernel is not counted: write-back of the run's own data belongs to nobody.
  double share = std::numeric_limits<double>::quiet_NaN();
};

class OtherPrograms {
 public:
  /// Begins to count. Each kernel is one host, under the name of its lowest rank. Collective.
  explicit OtherPrograms(const MpiTeam& team);
  /// The shares since then, on rank 0; elsewhere nothing. Collective.
  std::vector<HostShare> shares() const;

 private:
  /// Seconds so far: of all programs on the kernel's processors (only on its lowest rank; elsewhere 0, and NaN where
  /// they cannot be read), of this rank, and by the clock.
  struct Times {
    double all_s = 0, own_s = 0, at_s = 0;
  };
  Times now() const;

  const MpiTeam& team_;
  Times began_;
};

}  // namespace sonde
