#include "mpi/team.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"

namespace sonde {

namespace {

/// One rank, as the others have to know it. A host is its boot ID; where that cannot be read it is the node.
struct Seat {
  char boot[40];
  int node;  // its first rank
  cpu_set_t cpus;
};

Seat own_seat(int node) {
  Seat seat{};
  seat.node = node;
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::read(fd, seat.boot, sizeof seat.boot - 1) <= 0)
    std::snprintf(seat.boot, sizeof seat.boot, "node of rank %d", node);
  if (fd >= 0) ::close(fd);
  sched_getaffinity(0, sizeof seat.cpus, &seat.cpus);
  return seat;
}

}  // namespace

MpiTeam::MpiTeam(MPI_Comm comm) : comm_(comm) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  MPI_Comm node;
  MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &on_node_);
  int first = rank_;
  MPI_Bcast(&first, 1, MPI_INT, 0, node);
  MPI_Comm_free(&node);
  const Seat mine = own_seat(first);
  std::vector<Seat> all(static_cast<std::size_t>(size_));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm_);
  // The union of what the ranks of a place may run on: each may be bound to a core of its own.
  struct Ranks {
    int count = 0, nodes = 0;
    cpu_set_t cpus{};
    int cores() const { return std::max(1, CPU_COUNT(&cpus)); }
    bool crowded() const { return count > cores(); }
  };
  std::map<int, Ranks> nodes;
  std::map<std::string, Ranks> kernels;
  const auto sit = [](Ranks& ranks, const Seat& seat) {
    ++ranks.count;
    CPU_OR(&ranks.cpus, &ranks.cpus, &seat.cpus);
  };
  for (const Seat& seat : all) {
    sit(nodes[seat.node], seat);
    Ranks& kernel = kernels[seat.boot];
    sit(kernel, seat);
    kernel.nodes += nodes[seat.node].count == 1;
  }
  kernel_cpus_ = kernels[mine.boot].cpus;
  while (std::string_view(all[static_cast<std::size_t>(first_on_kernel_)].boot) != mine.boot) ++first_on_kernel_;
  for (const auto& [id, ranks] : nodes) oversubscribed_ = oversubscribed_ || ranks.crowded();
  for (const auto& [id, ranks] : kernels) {
    crowded_kernel_ = crowded_kernel_ || (ranks.nodes > 1 && ranks.crowded());
    if (ranks.count * kernel_cores_ > on_kernel_ * ranks.cores())
      on_kernel_ = ranks.count, kernel_cores_ = ranks.cores();
  }
}

void MpiTeam::add_cores(JsonLine& line) const {
  line.add("oversubscribed", oversubscribed_)
      .add("ranks_on_node", on_node_)
      .add("ranks_on_kernel", on_kernel_)
      .add("kernel_cores", kernel_cores_)
      .add("crowded_kernel", crowded_kernel_);
}

double MpiTeam::least_on_node(double value) const {
  MPI_Comm node;
  MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MIN, node);
  MPI_Comm_free(&node);
  return value;
}

void MpiTeam::wait(MPI_Request& request) {
  if (!shares_cores()) {
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return;
  }
  long pause_ns = 2'000;
  for (int done = 0;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done) return;
    const timespec pause{0, pause_ns};
    nanosleep(&pause, nullptr);
    pause_ns = std::min(pause_ns * 2, 200'000L);
  }
}

std::uint32_t MpiTeam::agree(std::uint32_t flags) {
  std::uint32_t all = 0;
  MPI_Request request;
  MPI_Iallreduce(&flags, &all, 1, MPI_UINT32_T, MPI_BOR, comm_, &request);
  wait(request);
  return all;
}

void MpiTeam::intersect(std::vector<std::uint8_t>& bits) {
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, bits.data(), static_cast<int>(bits.size()), MPI_UINT8_T, MPI_BAND, comm_, &request);
  wait(request);
}

void MpiTeam::sum(std::vector<std::uint64_t>& values) {
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_UINT64_T, MPI_SUM, comm_, &request);
  wait(request);
}

void MpiTeam::pause_until(double until_s) {
  // Clocks of other hosts differ, so each rank sleeps for rank 0's remaining time.
  double left = rank_ == 0 ? until_s - now_s() : 0;
  MPI_Request request;
  MPI_Ibcast(&left, 1, MPI_DOUBLE, 0, comm_, &request);
  wait(request);
  if (left > 0) sleep_until(now_s() + left);
}

void MpiTeam::barrier() {
  MPI_Request request;
  MPI_Ibarrier(comm_, &request);
  wait(request);
}

std::string mpi_library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::string line(text.data(), static_cast<std::size_t>(std::max(length, 0)));
  line = line.substr(0, line.find_first_of(",\n"));
  // MPICH separates with tabs: "MPICH Version:\t4.0.2".
  std::string out;
  for (const char ch : line) {
    const bool blank = ch == '\t' || ch == ' ';
    if (!blank) out += ch;
    else if (!out.empty() && out.back() != ' ') out += ' ';
  }
  return out;
}

}  // namespace sonde
