#include <mpi.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/control.hpp"
#include "core/json.hpp"
#include "mpi/forward.hpp"
#include "mpi/team.hpp"
#include "mpi/topology.hpp"
#include "noise/detector/detector.hpp"
#include "noise/detector/options.hpp"
#include "noise/detector/recorder.hpp"
#include "noise/schedule.hpp"

using namespace sonde;
using namespace sonde::noise;

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  MPI_Init(&argc, &argv);
  {
    MpiTeam team(MPI_COMM_WORLD);
    auto options = parse_options(args);
    if (!options) { std::fprintf(stderr, "%s\n", options.error().what.c_str()); MPI_Abort(MPI_COMM_WORLD, 2); }
    auto forwarding = Forwarding::open(options->dir, team, false);
    auto sink = forwarding->sink();
    DetectorOptions d{options->op, options->bytes, options->poll, options->block_s, 0, options->stall_s};
    auto detector = Detector::make(d, team);
    const double began = team.least_on_node(now_s());
    auto schema = schema_of(*options, team, find_place(), began);
    auto writer = RecordWriter::open(**sink, schema, 1024, options->cap_bytes);
    Recorder recorder(*writer, began);
    auto c = detector->calibrate();
    std::fprintf(stderr, "tick %g ns iteration %g us stall %g us stamp %g ns keeping %g [%g, %g] every %u chunk %u room %lu\n", c->tick_s*1e9, c->iteration_s*1e6,
        c->stall_s*1e6, c->stamp_s*1e9, c->keeping_share, c->keeping_low, c->keeping_high, c->every, c->chunk, c->room);
    std::vector<double> cal{c->tick_s, double(c->steady), c->iteration_s, c->stall_s, c->stamp_s, c->keeping_share, c->keeping_low, c->keeping_high, double(c->every), double(c->chunk), double(c->room)};
    (void)recorder.values(Kind::calibration, 0, 0, 0, cal);
    std::vector<std::uint32_t> shares;
    for (auto& v : options->variants) shares.push_back(v.share);
    std::uint32_t n = 0;
    Block block;
    for (auto& p : plan_blocks(shares, options->rounds, options->seed)) {
      detector->idle(options->settle_s);
      detector->measure(options->block_s, block);
      (void)recorder.block(n++, p.segment, p.variant, block, std::nan(""));
      if (options->keep) (void)recorder.iterations(n - 1, std::span(detector->iterations()).first(detector->iterations_kept()));
      (void)recorder.flush();
      if (team.rank() == 0 && n % 10 == 0) std::fprintf(stderr, "%u: %lu its, %.4f s, %zu stalls, excluded %g, delay %g\n", n, block.iterations, block.length_s, block.stalls.size(), block.excluded_s, block.run_delay_s);
    }
  }
  MPI_Finalize();
}
