#pragma once
/// The ranks of MPI_COMM_WORLD as a Team. Owner-thread.
///
/// Where a node runs more ranks than it has cores, a rank that waits must not burn the core that the measured
/// pair needs: collective waits then poll with growing pauses of at most 0.2 ms.

#include <mpi.h>
#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.hpp"
#include "core/runner.hpp"

namespace sonde {

class MpiTeam final : public Team {
 public:
  explicit MpiTeam(MPI_Comm comm);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::uint32_t agree(std::uint32_t flags) override;
  void intersect(std::vector<std::uint8_t>& bits) override;
  void sum(std::vector<std::uint64_t>& values) override;
  void pause_until(double until_s) override;
  void barrier();
  /// The least of what the ranks of this node give; they read one clock. Collective over the node.
  double least_on_node(double value) const;

  MPI_Comm comm() const { return comm_; }
  /// Some node has more ranks than cores that they may run on, or several that are one host by its boot ID have.
  bool shares_cores() const { return oversubscribed_ || crowded_kernel_; }
  int ranks_on_node() const { return on_node_; }
  /// Where most ranks share a core.
  int ranks_on_kernel() const { return on_kernel_; }
  /// The lowest rank under this rank's kernel, and the processors that the kernel's ranks may use.
  int first_on_kernel() const { return first_on_kernel_; }
  const cpu_set_t& kernel_cpus() const { return kernel_cpus_; }
  /// Adds to a line what is known of the ranks' cores: oversubscribed, ranks_on_node, and ranks_on_kernel, kernel_cores
  /// and crowded_kernel, which is whether nodes that are one host by its boot ID, as containers are, have more ranks
  /// together than cores. Of the fullest such host; the same on each rank.
  void add_cores(JsonLine& line) const;

  /// Waits for a request, politely where ranks share cores.
  void wait(MPI_Request& request);

 private:
  MPI_Comm comm_;
  int rank_ = 0, size_ = 1, on_node_ = 1;
  int on_kernel_ = 1, kernel_cores_ = 1, first_on_kernel_ = 0;
  cpu_set_t kernel_cpus_{};
  bool oversubscribed_ = false, crowded_kernel_ = false;
};

/// "Open MPI v4.1.4, …": the first line of MPI_Get_library_version, without what follows a comma.
std::string mpi_library_version();

}  // namespace sonde
