// sonde-net: measures delays between MPI ranks.
//
// Publishes: events on stdout (rank 0), block files in --dir. Consumes: `stop` on stdin of rank 0.
// When the parent goes silent (end of file on stdin) it finishes the burst, writes what it has, and ends.
// When a rank dies MPI ends the others; what was flushed, at most half a second ago, stays.

#include <mpi.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/control.hpp"
#include "core/json.hpp"
#include "core/runner.hpp"
#include "mpi/forward.hpp"
#include "mpi/team.hpp"
#include "mpi/topology.hpp"
#include "net/options.hpp"
#include "net/probe.hpp"

namespace {

using namespace sonde;

void emit(const JsonLine& line) {
  std::puts(line.text().c_str());
  std::fflush(stdout);
}

int print_version() {
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
  return 0;
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

void emit_error(const Error& error) {
  emit(JsonLine().add("event", "error").add("code", error.code).add("what", error.what).add("hint", error.hint));
}

// Rank 0 speaks for the rank that failed.
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

// Any rank's error before the run becomes everyone's; rank 0 tells the first.
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

int measure(const net::Options& options, MpiTeam& team) {
  Control control(options.budget_s, team.rank() == 0);
  auto forwarding = Forwarding::open(options.dir, team, options.forward);
  if (!all_well(forwarding ? nullptr : &forwarding.error(), team)) return 3;
  auto sink = forwarding->sink();
  if (!all_well(sink ? nullptr : &sink.error(), team)) return 3;
  auto probe = net::NetProbe::make(options, team, *forwarding);
  if (!all_well(probe ? nullptr : &probe.error(), team)) return 3;
  const RuleContext rules{options.cap, options.least, options.seed};
  auto first_rule = make_rule(options.rule, rules);
  if (!all_well(first_rule ? nullptr : &first_rule.error(), team)) return 3;

  const RecordSchema schema = (*probe)->schema(find_place());
  const std::size_t buffer = std::max<std::size_t>(64 + 4 * static_cast<std::size_t>(team.size()), (std::size_t{1} << 20) / schema.record_bytes);
  auto writer = RecordWriter::open(**sink, schema, buffer, options.cap_bytes);
  if (!all_well(writer ? nullptr : &writer.error(), team)) return 3;

  if (team.rank() == 0)
    emit(JsonLine().add("event", "start").add("ranks", team.size()).add("mpi", SONDE_MPI_FLAVOUR)
             .add("mpi_version", mpi_library_version()).add("oversubscribed", team.oversubscribed())
             .add("ranks_on_node", team.ranks_on_node()).add("clock_cost_s", clock_cost_s())
             .add("forwarding_ranks", forwarding->forwarding_ranks()));
  (*probe)->open();
  control.leave_at_least(options.budget_s / 4);
  const auto& check = (*probe)->interference();
  if (team.rank() == 0) {
    JsonLine line;
    line.add("event", "pairing").add("pairing", (*probe)->parallel() ? "parallel" : "serial").add("steps", (*probe)->steps());
    if (check.checked)
      line.add("interference_median", check.median_ratio).add("interference_worst", check.worst_ratio)
          .add("interference_pairs", check.pairs);
    emit(line);
  }

  const net::Options& o = options;
  const Stop stop = run(
      **probe, {o.epochs, o.epoch_length, 0.5, o.gap_s}, o.seed, [&] { return std::move(*make_rule(o.rule, rules)); }, *writer, team,
      control, [](const Progress& p) {
        emit(JsonLine().add("event", "progress").add("done", p.steps_done).add("active", p.steps_active)
                 .add("steps", p.steps).add("decided", p.cells_decided).add("cells", p.cells).add("epoch", p.epoch)
                 .add("samples", p.samples).add("elapsed_s", p.elapsed_s));
      });
  (*probe)->close();
  auto drained = forwarding->drain();
  auto synced = (*sink)->sync();
  bool well = all_well(drained ? nullptr : &drained.error(), team) && all_well(synced ? nullptr : &synced.error(), team);
  if (stop.reason == StopReason::failed) {
    emit_failure(stop, team);
    well = false;
  }
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  if (team.rank() == 0)
    emit(JsonLine().add("event", "end").add("stop_reason", to_string(stop.reason)).add("samples", stop.samples)
             .add("elapsed_s", stop.elapsed_s).add("dropped", stop.dropped).add("peak_rss_kib", use.ru_maxrss));
  return well ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "--version") return print_version();

  MPI_Init(&argc, &argv);
  int code = 0;
  {
    MpiTeam team(MPI_COMM_WORLD);
    if (args.size() == 1 && args[0] == "--hello") {
      say_hello(team);
    } else if (auto options = net::parse_options(args); !options) {
      if (team.rank() == 0) emit_error(options.error());
      code = 2;
    } else if (team.size() < 2) {
      emit_error({"net.too_few_ranks", "delays need two ranks at least, and there is one",
                  "start more with --ntasks 2"});
      code = 3;
    } else {
      code = measure(*options, team);
    }
  }
  MPI_Finalize();
  return code;
}
