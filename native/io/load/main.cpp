// sonde-ioload: makes the parallel I/O of IOR or of NAS BT-IO, measures it and verifies the data.
//
// Publishes: tables on stdout, errors and warnings on stderr (rank 0), one JSON document with --json. Consumes:
// nothing. Unlike the options of the probes, people type its options (docs/adr/0013-ioload.md). SIGINT and SIGTERM
// remove the file that is being written, except with -k. A kill -9 leaves it.

#include <mpi.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "io/load/cleanup.hpp"
#include "io/load/gfapi.hpp"
#include "io/load/workload.hpp"
#include "mpi/program.hpp"
#include "mpi/team.hpp"

namespace {

using namespace sonde;
using namespace sonde::ioload;

/// The launcher's number for this rank, before MPI is initialised; -1 if unknown.
int told_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return -1;
}

/// Open MPI yields cores while it waits if this is set before it starts; for MPICH there is the variable of polite.hpp.
void give_way_when_crowded() {
  const char* ranks = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (ranks && std::atol(ranks) > ::sysconf(_SC_NPROCESSORS_ONLN)) ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

/// Distributes rank 0's hints, because its variables may not have reached the others; all ranks get them or the same
/// error.
std::optional<Error> share_hints(Options& o, MpiTeam& team) {
  std::optional<Error> error;
  std::string packed;
  if (team.rank() == 0) {
    std::vector<std::string> environment;
    for (char** variable = environ; *variable != nullptr; ++variable) environment.emplace_back(*variable);
    std::ostringstream text;
    if (!o.hints_file.empty()) {
      std::ifstream file(o.hints_file);
      text << file.rdbuf();
      if (!file)
        error = Error{"ioload.bad_option", "cannot read the hints of -U " + o.hints_file + ": " + std::strerror(errno),
                      "name a file of hints with -U"};
    }
    if (!error)
      if (const auto added = add_hints(environment, text.str(), o.hints_file, o.hints); !added) error = added.error();
    for (const auto& [name, value] : o.hints) packed += name + '\0' + value + '\0';
  }
  if (auto failed = first_error(error ? &*error : nullptr, team)) return failed;
  int length = static_cast<int>(packed.size());
  MPI_Bcast(&length, 1, MPI_INT, 0, team.comm());
  packed.resize(static_cast<std::size_t>(length));
  MPI_Bcast(packed.data(), length, MPI_CHAR, 0, team.comm());
  for (std::size_t at = 0; at < packed.size();) {
    const std::string name = packed.c_str() + at, value = packed.c_str() + at + name.size() + 1;
    o.hints[name] = value;
    at += name.size() + value.size() + 2;
  }
  return std::nullopt;
}

Circumstances look_around(const std::vector<std::string>& command, MpiTeam& team) {
  Circumstances c;
  c.command = command;
  c.began_utc = utc_now();
  c.mpi = SONDE_MPI_FLAVOUR;
  c.mpi_version = mpi_library_version();
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  c.host = host;
  c.tasks = team.size();
  c.oversubscribed = team.shares_cores();
  MPI_Comm node;
  MPI_Comm_split_type(team.comm(), MPI_COMM_TYPE_SHARED, team.rank(), MPI_INFO_NULL, &node);
  int first = team.rank(), place = 0;
  MPI_Comm_rank(node, &place);
  MPI_Bcast(&first, 1, MPI_INT, 0, node);
  MPI_Comm_free(&node);
  c.nodes = static_cast<int>(total(place == 0, team));
  c.filled = team.size() == 1 || total(team.rank() == 1 && first == 0, team) == 1;
  c.tasks_per_node =
      static_cast<int>(total(team.rank() == 0 ? static_cast<std::uint64_t>(team.ranks_on_node()) : 0, team));
  return c;
}

int work(Options& o, const std::vector<std::string>& command, MpiTeam& team) {
  if (const auto wrong = wrong_for_ranks(o, team.size())) {
    if (team.rank() == 0) tell(*wrong);
    return exit_usage;
  }
  if (auto failed = share_hints(o, team)) {
    if (team.rank() == 0) tell(*failed);
    return exit_usage;
  }
  const Circumstances c = look_around(command, team);
  if (c.oversubscribed) {
    ::setenv("SONDE_YIELD", "1", 0);  // read by polite.hpp at its first use
    if (team.rank() == 0)
      std::fprintf(
          stderr,
          "warning: there are more ranks than cores (%d ranks on this host): times include waiting for a core\n"
          "  hint: start fewer ranks, or read the figures as those of an oversubscribed job\n",
          team.ranks_on_kernel());
  }
  remove_when_interrupted(team.rank() == 0);
  if (o.bt_io) return run_bt_io(o, c, team);
  if (o.api != Api::gfapi) return run_ior(o, c, team);
  const auto connected = gfapi_connect(o);
  if (const auto failed = first_error(connected ? nullptr : &connected.error(), team)) {
    if (team.rank() == 0) tell(*failed);
    return exit_failed;
  }
  return run_ior(o, c, team);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  std::vector<std::string> command{"sonde-ioload"};
  command.insert(command.end(), args.begin(), args.end());
  auto options = parse_options(args);
  if (!options && told_rank() < 0) {
    tell(options.error());
    return exit_usage;
  }
  if (options && (options->help || options->version)) {
    if (told_rank() > 0) return exit_done;
    if (options->help) {
      std::fputs(help_text().c_str(), stdout);
    } else {
      const std::string hdf5 = hdf5_version();
      std::printf("sonde-ioload %s (%s; %s)\n", SONDE_VERSION, mpi_library_version().c_str(),
                  hdf5.empty() ? "without HDF5" : ("HDF5 " + hdf5).c_str());
    }
    return exit_done;
  }
  give_way_when_crowded();
  MPI_Init(&argc, &argv);
  int code = exit_done;
  {
    MpiTeam team(MPI_COMM_WORLD);
    if (options) {
      code = work(*options, command, team);
    } else {
      if (team.rank() == 0) tell(options.error());
      code = exit_usage;
    }
    // A launcher ends all ranks as soon as one ends with an error; rank 0 must have printed its text before.
    team.barrier();
  }
  MPI_Finalize();
  return code;
}
