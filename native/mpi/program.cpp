#include "mpi/program.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "mpi/topology.hpp"

namespace sonde {

void emit(const JsonLine& line) {
  std::puts(line.text().c_str());
  std::fflush(stdout);
}

void emit_error(const Error& error) {
  emit(JsonLine().add("event", "error").add("code", error.code).add("what", error.what).add("hint", error.hint));
}

namespace {

/// `error` of the rank `failed`, with its words begun so that one knows whose it is, on every rank. Collective.
Error told_to_all(const Error& error, int failed, MpiTeam& team) {
  std::string text = error.code + '\n' + error.what + '\n' + error.hint;
  int length = static_cast<int>(text.size());
  MPI_Request request;
  MPI_Ibcast(&length, 1, MPI_INT, failed, team.comm(), &request);
  team.wait(request);
  text.resize(static_cast<std::size_t>(length));
  MPI_Ibcast(text.data(), length, MPI_CHAR, failed, team.comm(), &request);
  team.wait(request);
  const std::size_t a = text.find('\n'), b = text.find('\n', a + 1);
  return {text.substr(0, a), "rank " + std::to_string(failed) + ": " + text.substr(a + 1, b - a - 1),
          text.substr(b + 1)};
}

}  // namespace

std::optional<Error> first_error(const Error* error, MpiTeam& team) {
  const int mine = error != nullptr ? team.rank() : team.size();
  int failed = mine;
  MPI_Request request;
  MPI_Iallreduce(&mine, &failed, 1, MPI_INT, MPI_MIN, team.comm(), &request);
  team.wait(request);
  if (failed == team.size()) return std::nullopt;
  return told_to_all(team.rank() == failed ? *error : Error{}, failed, team);
}

void emit_failure(const Stop& stop, MpiTeam& team) {
  const Error error = told_to_all(stop.error, stop.failed_rank, team);
  if (team.rank() == 0) emit_error(error);
}

bool all_well(const Error* error, MpiTeam& team) {
  const auto failure = first_error(error, team);
  if (failure && team.rank() == 0) emit_error(*failure);
  return !failure;
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

void emit_start(const MpiTeam& team, int forwarding_ranks) {
  if (team.rank() != 0) return;
  JsonLine line;
  line.add("event", "start")
      .add("ranks", team.size())
      .add("mpi", SONDE_MPI_FLAVOUR)
      .add("mpi_version", mpi_library_version())
      .add("clock_cost_s", clock_cost_s())
      .add("forwarding_ranks", forwarding_ranks);
  team.add_cores(line);
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
  for (int r = 0; r < team.size(); ++r) hosts.emplace_back(all.data() + static_cast<std::ptrdiff_t>(r) * 64);
  JsonLine line;
  line.add("event", "hello").add("ranks", team.size()).add("hosts", hosts).add("mpi_version", mpi_library_version());
  team.add_cores(line);
  emit(line);
}

}  // namespace sonde
