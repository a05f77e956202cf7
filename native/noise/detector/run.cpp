#include "noise/detector/run.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "core/clock.hpp"
#include "core/json.hpp"
#include "mpi/program.hpp"
#include "noise/judge.hpp"
#include "noise/schedule.hpp"

namespace sonde::noise {

namespace {

// The part of the budget that each look may take. A look pauses the run, and the last look comes when the time of the
// run is over. With hundreds of blocks and many periods, all permutations would take longer than the run.
constexpr double look_share = 0.05, shortest_look_s = 2;

constexpr double level_quantiles[] = {0.5, 0.9, 0.99, 0.999};
constexpr std::size_t levels = std::size(level_quantiles);

/// The data of a block that a rank sends to rank 0 before its stalls.
struct Told {
  double begin_s, length_s, every, stalls, level[levels];
};

/// The block for the judge, from all ranks; filled only on rank 0. sonde.noise.detector.judge builds the same data from
/// a dataset, so a run that is judged again gives the same result.
Evidence gather(const Run& run, const Block& block, const PlannedBlock& plan, double resumed_s) {
  const Calibration& found = run.detector.calibration();
  Told mine{static_cast<double>(block.begin_ns) * 1e-9 - run.began_s,
            block.length_s,
            static_cast<double>(found.every),
            static_cast<double>(block.stalls.size()),
            {}};
  std::vector<double> edges(Histogram::classes + 1);
  for (std::size_t k = 0; k < edges.size(); ++k) edges[k] = static_cast<double>(Histogram::edge(k)) * found.tick_s;
  for (std::size_t k = 0; k < levels; ++k)
    mine.level[k] = std::log(std::max(quantile(block.count, edges, level_quantiles[k]), found.tick_s));
  const auto n = static_cast<std::size_t>(run.team.size());
  std::vector<Told> told(n);
  constexpr int told_doubles = sizeof(Told) / sizeof(double);
  MPI_Gather(&mine, told_doubles, MPI_DOUBLE, told.data(), told_doubles, MPI_DOUBLE, 0, run.team.comm());
  std::vector<int> counts(n), places(n);
  int total = 0;
  for (std::size_t r = 0; r < n; ++r) {
    counts[r] = static_cast<int>(told[r].stalls) * 4;
    places[r] = total;
    total += counts[r];
  }
  std::vector<float> stalls(static_cast<std::size_t>(total));
  MPI_Gatherv(block.stalls.data(), static_cast<int>(block.stalls.size()) * 4, MPI_FLOAT, stalls.data(), counts.data(),
              places.data(), MPI_FLOAT, 0, run.team.comm());
  Evidence out;
  if (run.team.rank() != 0) return out;
  out.segment = plan.segment;
  out.on = plan.variant != 0;
  out.begin_s = told[0].begin_s;
  for (const auto& t : told) {
    out.begin_s = std::min(out.begin_s, t.begin_s);
    out.length_s = std::max(out.length_s, t.length_s);
  }
  out.resumed_s = out.begin_s - (resumed_s - run.began_s);
  std::size_t reader = 0;
  for (std::size_t r = 1; r < n; ++r)
    if (told[r].every < told[reader].every) reader = r;
  out.levels.assign(std::begin(told[reader].level), std::end(told[reader].level));
  std::vector<Stalls> ranks(n);
  for (std::size_t r = 0; r < n; ++r)
    for (int k = 0; k < counts[r]; k += 4) {
      const float* stall = stalls.data() + places[r] + k;
      ranks[r].t_s.push_back(told[r].begin_s - out.begin_s + static_cast<double>(stall[0]));
      ranks[r].length_s.push_back(static_cast<double>(stall[1]));
    }
  out.stalls = merge(ranks);
  return out;
}

std::vector<PlannedBlock> fresh_blocks(const Options& options, std::uint32_t after_segment) {
  // The order is random within each pair: neighbours are compared, and a drift of the level is in both of them. Only
  // the test needs many possible permutations of the labels, and the test is over.
  const std::uint32_t shares[] = {1, 1};
  const std::vector<std::uint32_t> rounds(options.fresh_rounds, 1);
  auto blocks = plan_blocks(shares, rounds, options.seed + 1);
  for (auto& block : blocks) block.segment += after_segment + 1;
  return blocks;
}

}  // namespace

Stop run_blocks(Run& run) {
  const Options& o = run.options;
  const bool leads = run.team.rank() == 0;
  Stop stop;
  std::vector<std::uint32_t> shares;
  for (const auto& variant : o.variants) shares.push_back(variant.share);
  std::vector<PlannedBlock> plan = plan_blocks(shares, o.rounds, o.seed);
  TestOptions test_options{o.periods_s, o.fold_weight, o.permutations, o.seed};
  Sequential looks(o.spend, test_options);
  std::vector<Evidence> evidence;
  bool detected = false;
  Block block;

  // Every rank must know of an error of any rank before the next collective call.
  auto fails = [&](const Result<void>& result) {
    int failed = result ? run.team.size() : run.team.rank();
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, run.team.comm());
    if (failed == run.team.size()) return false;
    stop.reason = StopReason::failed;
    stop.failed_rank = failed;
    if (run.team.rank() == failed) stop.error = result.error();
    return true;
  };

  double told_s = 0;
  for (std::uint32_t k = 0; k < plan.size(); ++k) {
    enum : std::uint32_t { asked = 1, spent = 2 };
    std::uint32_t flags = 0;
    if (leads) flags = (run.control.stop_requested() ? asked : 0u) | (run.control.over_budget() ? spent : 0u);
    flags = run.team.agree(flags);
    if (flags != 0) {
      stop.reason = (flags & asked) != 0 ? StopReason::interrupted : StopReason::budget;
      break;
    }
    const PlannedBlock& planned = plan[k];
    if (fails(run.agent.on(planned.variant))) break;
    const double resumed_s = now_s();
    if (o.settle_s > 0) run.detector.idle(o.settle_s);
    const bool whole = run.detector.measure(o.block_s, block, [&] { return run.control.stop_requested(); });
    Result<void> well = run.agent.off();
    if (!whole) {
      stop.reason = fails(well) ? StopReason::failed : StopReason::interrupted;
      break;
    }
    if (auto used = run.agent.use(); !used) {
      if (well) well = used.error();
    } else if (run.agent.leads()) {
      if (auto done = run.recorder.values(Kind::agent, k, planned.segment, planned.variant, used->values()); !done)
        well = done;
    }
    // Blocks without an agent use the same origin of time. With different origins, everything that repeats with the
    // blocks would be in different cells of the fold, and would look like the agent.
    if (auto done = run.recorder.block(k, planned.segment, planned.variant, block, resumed_s); !done) well = done;
    if (o.keep)
      if (auto done =
              run.recorder.iterations(k, std::span(run.detector.iterations()).first(run.detector.iterations_kept()));
          !done)
        well = done;
    if (auto done = run.recorder.flush(); !done) well = done;
    if (auto done = run.forwarding.drain(); !done) well = done;
    stop.samples += block.iterations;
    if (fails(well)) break;

    if (!o.spend.empty() && !detected) {
      evidence.push_back(gather(run, block, planned, resumed_s));
      const bool ends = k + 1 == plan.size() || plan[k + 1].segment != planned.segment;
      if (ends) {
        int found = 0;
        if (leads) {
          const double before = now_s();
          const double limit = before + std::max(shortest_look_s, look_share * o.budget_s);
          const TestResult result = looks.look(evidence, [&] { return o.budget_s <= 0 || now_s() < limit; });
          const double elapsed = before - run.began_s, took = now_s() - before;
          found = looks.detected(o.alpha);
          const std::vector<double> values{static_cast<double>(looks.looks() - 1),
                                           static_cast<double>(evidence.size()),
                                           elapsed,
                                           result.p,
                                           result.p_fold,
                                           result.p_ranked,
                                           result.z_fold,
                                           result.z_ranked,
                                           result.period_s,
                                           result.phase_s,
                                           static_cast<double>(result.from_resume),
                                           static_cast<double>(result.feature),
                                           looks.p(),
                                           took,
                                           static_cast<double>(result.permutations)};
          well = run.recorder.values(Kind::look, k, planned.segment, 0, values);
          emit(JsonLine()
                   .add("event", "look")
                   .add("number", looks.looks() - 1)
                   .add("blocks", evidence.size())
                   .add("elapsed_s", elapsed)
                   .add("p", result.p)
                   .add("p_so_far", looks.p())
                   .add("detected", found != 0));
        }
        if (fails(well)) break;
        MPI_Bcast(&found, 1, MPI_INT, 0, run.team.comm());
        if (found != 0) {
          // The blocks that led to the detection overestimate the effect, so its size comes from fresh blocks.
          detected = true;
          plan.resize(k + 1);
          const auto fresh = fresh_blocks(o, planned.segment);
          plan.insert(plan.end(), fresh.begin(), fresh.end());
        }
      }
    }
    if (leads && now_s() - told_s > 0.2) {
      told_s = now_s();
      emit(JsonLine()
               .add("event", "progress")
               .add("done", k + 1)
               .add("active", plan.size() - k - 1)
               .add("cells", plan.size())
               .add("epoch", planned.segment)
               .add("samples", stop.samples)
               .add("elapsed_s", told_s - run.began_s));
    }
  }
  if (stop.reason == StopReason::epochs && detected) stop.reason = StopReason::converged;
  stop.elapsed_s = now_s() - run.began_s;
  return stop;
}

}  // namespace sonde::noise
