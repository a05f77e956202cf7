// sonde-net: measures delays between MPI ranks.
//
// Publishes: events on stdout (rank 0), block files in --dir. Consumes: `stop` on stdin of rank 0.
// When the parent goes silent (end of file on stdin) it finishes the burst, writes what it has, and ends.
// When a rank dies MPI ends the others; what was flushed, at most half a second ago, stays.

#include <mpi.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/control.hpp"
#include "core/json.hpp"
#include "core/runner.hpp"
#include "mpi/forward.hpp"
#include "mpi/other_programs.hpp"
#include "mpi/program.hpp"
#include "mpi/team.hpp"
#include "mpi/topology.hpp"
#include "net/options.hpp"
#include "net/probe.hpp"

namespace {

using namespace sonde;

int measure(const net::Options& options, MpiTeam& team) {
  Control control(options.budget_s, team.rank() == 0);
  auto forwarding = Forwarding::open(options.dir, team, options.forward);
  if (!all_well(forwarding, team)) return 3;
  auto sink = forwarding->sink();
  if (!all_well(sink, team)) return 3;
  auto probe = net::NetProbe::make(options, team, *forwarding);
  if (!all_well(probe, team)) return 3;
  const RuleContext rules{options.cap, options.least, options.seed};
  auto first_rule = make_rule(options.rule, rules);
  if (!all_well(first_rule, team)) return 3;

  const RecordSchema schema = (*probe)->schema(find_place());
  const std::size_t buffer = std::max<std::size_t>(64 + 4 * static_cast<std::size_t>(team.size()),
                                                   (std::size_t{1} << 20) / schema.record_bytes);
  auto writer = RecordWriter::open(**sink, schema, buffer, options.cap_bytes);
  if (!all_well(writer, team)) return 3;

  emit_start(team, forwarding->forwarding_ranks());
  const OtherPrograms others(team);
  (*probe)->open();
  control.leave_at_least(options.budget_s / 4);
  const auto& check = (*probe)->interference();
  if (team.rank() == 0) {
    JsonLine line;
    line.add("event", "pairing")
        .add("pairing", (*probe)->parallel() ? "parallel" : "serial")
        .add("steps", (*probe)->steps());
    if (check.checked)
      line.add("interference_median", check.median_ratio)
          .add("interference_worst", check.worst_ratio)
          .add("interference_pairs", check.pairs);
    emit(line);
  }

  const net::Options& o = options;
  const Stop stop = run(
      **probe, {o.epochs, o.epoch_length, 0.5, o.gap_s}, o.seed, [&] { return std::move(*make_rule(o.rule, rules)); },
      *writer, team, control,
      [](const Progress& p) {
        emit(JsonLine()
                 .add("event", "progress")
                 .add("done", p.steps_done)
                 .add("active", p.steps_active)
                 .add("steps", p.steps)
                 .add("decided", p.cells_decided)
                 .add("cells", p.cells)
                 .add("epoch", p.epoch)
                 .add("samples", p.samples)
                 .add("elapsed_s", p.elapsed_s));
      });
  (*probe)->close();
  auto drained = forwarding->drain();
  auto synced = (*sink)->sync();
  bool well = all_well(drained, team) && all_well(synced, team);
  if (stop.reason == StopReason::failed) {
    emit_failure(stop, team);
    well = false;
  }
  std::vector<std::string> hosts;
  std::vector<double> shares;
  for (const HostShare& one : others.shares()) {
    if (!std::isfinite(one.share)) continue;
    hosts.push_back(one.host);
    shares.push_back(one.share);
  }
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  if (team.rank() == 0)
    emit(JsonLine()
             .add("event", "end")
             .add("stop_reason", to_string(stop.reason))
             .add("samples", stop.samples)
             .add("elapsed_s", stop.elapsed_s)
             .add("dropped", stop.dropped)
             .add("peak_rss_kib", use.ru_maxrss)
             .add("others_hosts", hosts)
             .add("others_share", shares));
  return well ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "--version") {
    print_version();
    return 0;
  }

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
      emit_error(
          {"net.too_few_ranks", "delays need two ranks at least, and there is one", "start more with --ntasks 2"});
      code = 3;
    } else {
      code = measure(*options, team);
    }
  }
  MPI_Finalize();
  return code;
}
