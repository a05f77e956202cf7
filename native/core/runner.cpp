#include "core/runner.hpp"

#include <algorithm>

#include "core/clock.hpp"

namespace sonde {

namespace {

enum Flag : std::uint32_t { stop_asked = 1, budget_spent = 2, rank_failed = 4 };

struct Cells {
  std::vector<Decision> decided;
  std::vector<std::unique_ptr<Rule>> rules;
  std::uint64_t count = 0;  ///< of decided cells
};

bool all_decided(const Probe& probe, std::uint32_t step, const Cells& cells, std::vector<std::uint32_t>& scratch) {
  scratch.clear();
  probe.cells_of(step, scratch);
  return std::all_of(scratch.begin(), scratch.end(),
                     [&](std::uint32_t cell) { return cells.decided[cell] != Decision::proceed; });
}

}  // namespace

const char* to_string(StopReason reason) {
  switch (reason) {
    case StopReason::converged: return "converged";
    case StopReason::budget: return "budget";
    case StopReason::interrupted: return "interrupted";
    case StopReason::epochs: return "epochs";
    case StopReason::failed: return "failed";
  }
  return "unknown";
}

Stop run(Probe& probe, const RunLimits& limits, std::uint64_t seed, const RuleMaker& make_rule, RecordWriter& writer,
         Team& team, Control& control, const std::function<void(const Progress&)>& progress) {
  const double began = now_s();
  Schedule schedule(probe.steps(), 1, limits.epochs, limits.epoch_length, seed);
  Cells cells{std::vector<Decision>(probe.cells(), Decision::proceed), {}, 0};
  cells.rules.resize(probe.cells());

  Stop stop;
  std::vector<Burst> bursts;
  std::vector<std::uint32_t> scratch;
  std::vector<std::uint8_t> retirable((probe.steps() + 7) / 8);
  std::uint64_t samples = 0, cells_decided = 0, cells_all = 0, steps_done = 0;
  std::vector<bool> retired(probe.steps(), false);
  double last_flush = began, last_progress = 0, epoch_began = began;
  std::uint32_t epoch = 0;

  {
    std::vector<std::uint64_t> total{probe.cells()};
    team.sum(total);
    cells_all = total[0];
  }

  auto fail = [&](const Error& error) {
    if (stop.error.code.empty()) stop.error = error;
  };

  // Every rank does this at the end of an epoch: find the steps that all ranks have finished.
  auto close_epoch = [&] {
    if (auto done = probe.between_epochs(writer); !done) fail(done.error());
    if (auto done = writer.flush(); !done) fail(done.error());
    last_flush = now_s();
    std::fill(retirable.begin(), retirable.end(), std::uint8_t{0});
    for (std::uint32_t step = 0; step < probe.steps(); ++step)
      if (retired[step] || all_decided(probe, step, cells, scratch))
        retirable[step / 8] = static_cast<std::uint8_t>(retirable[step / 8] | (1u << (step % 8)));
    team.intersect(retirable);
    for (std::uint32_t step = 0; step < probe.steps(); ++step)
      if (!retired[step] && (retirable[step / 8] >> (step % 8) & 1)) {
        retired[step] = true;
        schedule.retire(step);
        ++steps_done;
      }
    std::vector<std::uint64_t> total{cells.count};
    team.sum(total);
    cells_decided = total[0];
  };

  stop.reason = StopReason::epochs;
  while (auto step = schedule.next()) {
    if (step->epoch != epoch) {
      epoch = step->epoch;
      close_epoch();
      team.pause_until(epoch_began + limits.gap_s);
      epoch_began = now_s();
      if (retired[step->cell]) continue;  // it was drawn before the epoch was closed
    }
    std::uint32_t flags = stop.error.code.empty() ? 0u : rank_failed;
    if (team.rank() == 0) {
      if (control.stop_requested()) flags |= stop_asked;
      if (control.over_budget()) flags |= budget_spent;
    }
    flags = team.agree(flags);
    if (flags != 0) {
      stop.reason = flags & rank_failed  ? StopReason::failed
                    : flags & stop_asked ? StopReason::interrupted
                                         : StopReason::budget;
      break;
    }

    bursts.clear();
    if (auto done = probe.measure(*step, cells.decided, bursts); !done) fail(done.error());
    for (const Burst& burst : bursts) {
      samples += burst.value.size();
      if (void* out = writer.reserve()) {
        probe.record(*step, burst, Decision::proceed, out);
        writer.commit();
      }
      if (cells.decided[burst.cell] != Decision::proceed) continue;
      auto& rule = cells.rules[burst.cell];
      if (!rule) rule = make_rule();
      cells.decided[burst.cell] = rule->add(burst.value);
      if (cells.decided[burst.cell] != Decision::proceed) {
        ++cells.count;
        rule.reset();
      }
    }

    const double now = now_s();
    if (now - last_flush > limits.flush_s || writer.room() < bursts.size() * 2) {
      if (auto done = writer.flush(); !done) fail(done.error());
      last_flush = now;
    }
    if (team.rank() == 0 && now - last_progress > 0.2) {
      last_progress = now;
      progress({steps_done, schedule.active(), probe.steps(), cells_decided, cells_all, samples, epoch, now - began});
    }
  }
  close_epoch();
  if (schedule.active() == 0 && stop.reason == StopReason::epochs) stop.reason = StopReason::converged;

  for (std::uint32_t cell = 0; cell < probe.cells(); ++cell) {
    if (cells.decided[cell] == Decision::proceed) continue;
    if (writer.room() == 0) {
      if (auto done = writer.flush(); !done) fail(done.error());
    }
    if (void* out = writer.reserve()) {
      probe.record({0, 0, epoch, 0}, {cell, 0, {}, {}}, cells.decided[cell], out);
      writer.commit();
    }
  }
  if (auto done = writer.flush(); !done) fail(done.error());

  const bool failed = !stop.error.code.empty();
  if (team.agree(failed ? rank_failed : 0u) & rank_failed) {
    stop.reason = StopReason::failed;
    std::vector<std::uint64_t> who(static_cast<std::size_t>(team.size()), 0);
    who[static_cast<std::size_t>(team.rank())] = failed;
    team.sum(who);
    stop.failed_rank =
        static_cast<int>(std::find_if(who.begin(), who.end(), [](auto v) { return v != 0; }) - who.begin());
  }
  std::vector<std::uint64_t> total{samples, writer.dropped()};
  team.sum(total);
  stop.samples = total[0];
  stop.dropped = total[1];
  stop.elapsed_s = now_s() - began;
  return stop;
}

}  // namespace sonde
