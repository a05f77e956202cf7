#include "mpi/program.hpp"

#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

#include "mpi/topology.hpp"

namespace sonde {

void emit(const JsonLine& line) {
  std::puts(line.text().c_str());
  std::fflush(stdout);
}

void emit_error(const Error& error) {
  emit(JsonLine().add("event", "error").add("code", error.code).add("what", error.what).add("hint", error.hint));
}

void emit_failure(const Stop& stop, MpiTeam& team) {
  std::string text = stop.error.code + '\n' + stop.error.what + '\n' + stop.error.hint;
  int length = static_cast<int>(text.size());
  MPI_Bcast(&length, 1, MPI_INT, stop.failed_rank, team.comm());
  text.resize(static_cast<std::size_t>(length));
  MPI_Bcast(text.data(), length, MPI_CHAR, stop.failed_rank, team.comm());
  if (team.rank() != 0) return;
  const std::size_t a = text.find('\n'), b = text.find('\n', a + 1);
  emit_error({text.substr(0, a), "rank " + std::to_string(stop.failed_rank) + ": " + text.substr(a + 1, b - a - 1),
              text.substr(b + 1)});
}

bool all_well(const Error* error, MpiTeam& team) {
  Stop stop;
  int failed = error != nullptr ? team.rank() : team.size();
  if (error != nullptr) stop.error = *error;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, team.comm());
  if (failed == team.size()) return true;
  stop.failed_rank = failed;
  if (team.rank() != failed) stop.error = {};
  emit_failure(stop, team);
  return false;
}

void print_version() {
  int version = 0, sub = 0;
  MPI_Get_version(&version, &sub);  // allowed before MPI_Init, as is the library's version
  JsonLine line;
  line.add("sonde", SONDE_VERSION).add("mpi", SONDE_MPI_FLAVOUR).add("mpi_version", mpi_library_version());
  line.add("mpi_standard", std::to_string(version) + "." + std::to_string(sub));
#ifdef SONDE_HAVE_HWLOC
  line.add("hwloc", true);
#else
  line.add("hwloc", false);
#endif
  emit(line);
}

void say_hello(MpiTeam& team) {
  const Place place = find_place();
  std::vector<char> all(static_cast<std::size_t>(team.size()) * 64);
  char mine[64] = {};
  std::snprintf(mine, sizeof mine, "%.63s", place.host.c_str());
  MPI_Gather(mine, 64, MPI_CHAR, all.data(), 64, MPI_CHAR, 0, team.comm());
  if (team.rank() != 0) return;
  std::vector<std::string> hosts;
  for (int r = 0; r < team.size(); ++r) hosts.emplace_back(all.data() + r * 64);
  emit(JsonLine().add("event", "hello").add("ranks", team.size()).add("hosts", hosts)
           .add("mpi_version", mpi_library_version()).add("oversubscribed", team.oversubscribed()));
}

}  // namespace sonde
