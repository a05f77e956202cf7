#include "mpi/team.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "core/clock.hpp"

namespace sonde {

MpiTeam::MpiTeam(MPI_Comm comm) : comm_(comm) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  MPI_Comm node;
  MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &on_node_);
  // The union of what the node's ranks may run on: each may be bound to a core of its own.
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof mine, &mine);
  cpu_set_t all = mine;
  MPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR, node);
  MPI_Comm_free(&node);
  int crowded = on_node_ > std::max(1, CPU_COUNT(&all));
  MPI_Allreduce(MPI_IN_PLACE, &crowded, 1, MPI_INT, MPI_MAX, comm_);
  oversubscribed_ = crowded != 0;
}

double MpiTeam::least_on_node(double value) const {
  MPI_Comm node;
  MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MIN, node);
  MPI_Comm_free(&node);
  return value;
}

void MpiTeam::wait(MPI_Request& request) {
  if (!oversubscribed_) {
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
