#include "mpi/other_programs.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "core/clock.hpp"

namespace sonde {

namespace {

/// Seconds that programs spent on these processors outside the kernel, or that the hypervisor gave to others; NaN if
/// the kernel does not report them.
double programs_s(const cpu_set_t& cpus) {
  std::ifstream stat("/proc/stat");
  double ticks = 0;
  bool found = false;
  for (std::string line; std::getline(stat, line);) {
    int cpu = -1;
    if (std::sscanf(line.c_str(), "cpu%d ", &cpu) != 1 || cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &cpus))
      continue;
    std::istringstream fields(line.substr(line.find(' ')));
    // Source: proc(5). The columns are user, nice, system, idle, iowait, irq, softirq, steal.
    std::array<double, 8> column{};
    for (double& value : column) fields >> value;
    ticks += column[0] + column[1] + column[7];
    found = true;
  }
  return found ? ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

OtherPrograms::OtherPrograms(const MpiTeam& team) : team_(team), began_(now()) {}

OtherPrograms::Times OtherPrograms::now() const {
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  Times times;
  times.own_s = static_cast<double>(use.ru_utime.tv_sec) + static_cast<double>(use.ru_utime.tv_usec) * 1e-6;
  times.at_s = now_s();
  if (team_.rank() == team_.first_on_kernel()) times.all_s = programs_s(team_.kernel_cpus());
  return times;
}

std::vector<HostShare> OtherPrograms::shares() const {
  const Times ended = now();
  struct Row {
    double all_s, own_s, elapsed_s;
    int first, cpus;
    char host[64];
  } mine{};
  mine.all_s = ended.all_s - began_.all_s, mine.own_s = ended.own_s - began_.own_s;
  mine.elapsed_s = ended.at_s - began_.at_s;
  mine.first = team_.first_on_kernel(), mine.cpus = CPU_COUNT(&team_.kernel_cpus());
  if (::gethostname(mine.host, sizeof mine.host - 1) != 0) mine.host[0] = '\0';
  std::vector<Row> rows(team_.rank() == 0 ? static_cast<std::size_t>(team_.size()) : 0);
  MPI_Gather(&mine, sizeof mine, MPI_BYTE, rows.data(), sizeof mine, MPI_BYTE, 0, team_.comm());
  std::map<int, double> own_s;
  for (const Row& row : rows) own_s[row.first] += row.own_s;
  std::vector<HostShare> out;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    const Row& row = rows[rank];
    if (row.first != static_cast<int>(rank)) continue;
    const double whole_s = row.elapsed_s * row.cpus;
    HostShare share{row.host};
    // The clocks of processes and of processors differ by ticks, which must not show as less than nothing.
    if (whole_s > 0 && std::isfinite(row.all_s))
      share.share = std::clamp((row.all_s - own_s[row.first]) / whole_s, 0.0, 1.0);
    out.push_back(std::move(share));
  }
  return out;
}

}  // namespace sonde
