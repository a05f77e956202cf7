// sonde-noise: times a loop of collectives in blocks, with a monitoring agent on in some of them.
//
// Publishes: events on stdout (rank 0), block files in --dir. Consumes: `stop` on stdin of rank 0. Before MPI starts,
// every rank forks a supervisor for each different agent. Only the lowest rank of a node uses its supervisors, which
// start, pause and end the agents there. When the parent goes silent (end of file on stdin), the current block is
// abandoned, the data is written, and agents are ended. When a rank dies, its supervisors end the agents that they
// started.

#include <mpi.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/control.hpp"
#include "core/json.hpp"
#include "mpi/forward.hpp"
#include "mpi/program.hpp"
#include "mpi/team.hpp"
#include "mpi/topology.hpp"
#include "noise/detector/detector.hpp"
#include "noise/detector/options.hpp"
#include "noise/detector/recorder.hpp"
#include "noise/detector/run.hpp"

namespace {

using namespace sonde;
using namespace sonde::noise;

bool leads_node(MpiTeam& team) {
  MPI_Comm node;
  MPI_Comm_split_type(team.comm(), MPI_COMM_TYPE_SHARED, team.rank(), MPI_INFO_NULL, &node);
  int rank = 0;
  MPI_Comm_rank(node, &rank);
  MPI_Comm_free(&node);
  return rank == 0;
}

Result<std::vector<Keeper>> fork_keepers(std::size_t count) {
  std::vector<Keeper> out;
  for (; count > 0; --count) {
    auto keeper = Keeper::fork();
    if (!keeper) return keeper.error();
    out.push_back(std::move(*keeper));
  }
  return out;
}

int measure(const Options& options, MpiTeam& team, std::vector<Keeper> keepers) {
  Control control(options.budget_s, team.rank() == 0);
  auto forwarding = Forwarding::open(options.dir, team, options.forward);
  if (!all_well(forwarding, team)) return 3;
  auto sink = forwarding->sink();
  if (!all_well(sink, team)) return 3;
  DetectorOptions wanted{.op = options.op,
                         .bytes = options.bytes,
                         .poll = options.poll,
                         .longest_block_s = options.block_s,
                         .every = options.every,
                         .stall_s = options.stall_s};
  auto detector = Detector::make(wanted, team);
  if (!all_well(detector, team)) return 3;
  team.barrier();
  const double began_s = team.least_on_node(now_s());
  const Place place = find_place();
  const RecordSchema schema = schema_of(options, team, place, began_s);
  // Room for a block with all its stalls. The records of single iterations are flushed earlier.
  auto writer = RecordWriter::open(**sink, schema, 256, options.cap_bytes);
  if (!all_well(writer, team)) return 3;
  Recorder recorder(*writer, began_s);

  emit_start(team, forwarding->forwarding_ranks());
  NodeAgent agent(std::move(keepers), options.variants);
  auto prepared = agent.prepare();
  if (!all_well(prepared, team)) return 3;
  auto found = detector->calibrate();
  if (!all_well(found, team)) return 3;
  const std::vector<double> told{found->tick_s,
                                 found->steady ? 1.0 : 0.0,
                                 found->iteration_s,
                                 found->stall_s,
                                 found->stamp_s,
                                 found->keeping_share,
                                 found->keeping_low,
                                 found->keeping_high,
                                 static_cast<double>(found->every),
                                 static_cast<double>(found->chunk),
                                 static_cast<double>(found->room)};
  auto kept = recorder.values(Kind::calibration, 0, 0, 0, told);
  if (!all_well(kept, team)) return 3;
  if (team.rank() == 0)
    emit(JsonLine()
             .add("event", "calibrated")
             .add("iteration_s", found->iteration_s)
             .add("stall_s", found->stall_s)
             .add("keeping_share", found->keeping_share)
             .add("elapsed_s", now_s() - began_s));

  Run run{options, team, *detector, agent, recorder, *forwarding, control, began_s};
  const Stop stop = run_blocks(run);
  auto flushed = recorder.flush();  // writes the record of the last look
  auto ended = agent.end();
  auto drained = forwarding->drain();
  auto synced = (*sink)->sync();
  bool well = all_well(flushed, team) && all_well(ended, team) && all_well(drained, team) && all_well(synced, team);
  if (stop.reason == StopReason::failed) {
    emit_failure(stop, team);
    well = false;
  }
  std::uint64_t dropped = writer->dropped();
  MPI_Allreduce(MPI_IN_PLACE, &dropped, 1, MPI_UINT64_T, MPI_SUM, team.comm());
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  if (team.rank() == 0)
    emit(JsonLine()
             .add("event", "end")
             .add("stop_reason", to_string(stop.reason))
             .add("samples", stop.samples)
             .add("elapsed_s", stop.elapsed_s)
             .add("dropped", dropped)
             .add("peak_rss_kib", use.ru_maxrss));
  return well ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "--version") {
    print_version();
    return 0;
  }
  auto options = parse_options(args);
  // Before MPI: a fork later is unsafe with most fabrics.
  auto keepers = fork_keepers(options ? keepers_needed(options->variants) : 1);
  MPI_Init(&argc, &argv);
  int code = 0;
  {
    MpiTeam team(MPI_COMM_WORLD);
    const bool leads = leads_node(team);
    if (keepers && !leads) keepers->clear();
    if (args.size() == 1 && args[0] == "--hello") {
      say_hello(team);
    } else if (!all_well(options, team)) {
      code = 2;
    } else if (!all_well(keepers, team)) {
      code = 3;
    } else if (team.size() < 2) {
      emit_error({"noise.too_few_ranks", "collectives need at least two ranks, but there is one",
                  "start more with --ntasks 2"});
      code = 3;
    } else {
      code = measure(*options, team, std::move(*keepers));
    }
  }
  MPI_Finalize();
  return code;
}
