#pragma once
/// The one runner: executes the steps of a schedule, feeds every burst to the stopping rule of its cell, writes it
/// down, and ends when all rules have decided, the budget is spent, or the parent sends stop.
///
/// A *cell* is the object of one rule, and belongs to the rank that measures it. A *step* is the joint action of the
/// whole team; each rank may measure several cells in it, or none. Owner-thread.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/block.hpp"
#include "core/control.hpp"
#include "core/rule.hpp"
#include "core/schedule.hpp"

namespace sonde {

/// All ranks of a run. Every call is collective: all ranks make it, in the same order.
struct Team {
  virtual ~Team() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Bitwise OR of everyone's flags; also a barrier.
  virtual std::uint32_t agree(std::uint32_t flags) = 0;
  /// Bitwise AND, element by element, into everyone's `bits`.
  virtual void intersect(std::vector<std::uint8_t>& bits) = 0;
  /// All ranks pause, without using a core, until rank 0's clock shows `until_s`.
  virtual void pause_until(double until_s) = 0;
  /// Sum over ranks, element by element.
  virtual void sum(std::vector<std::uint64_t>& values) = 0;
};

/// A team of one.
struct Solo final : Team {
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::uint32_t agree(std::uint32_t flags) override { return flags; }
  void intersect(std::vector<std::uint8_t>&) override {}
  void sum(std::vector<std::uint64_t>&) override {}
  void pause_until(double until_s) override { sleep_until(until_s); }
};

/// Samples of one cell taken in one go. The spans are the probe's, valid until its next measure().
struct Burst {
  std::uint32_t cell;             ///< this rank's number for it, 0 .. cells()-1
  double t0;                      ///< s since the run began
  std::span<const double> value;  ///< s
  std::span<const float> offset;  ///< s after t0 at which each sample began
};

struct Probe {
  virtual ~Probe() = default;
  virtual std::uint32_t steps() const = 0;
  /// The number of cells that this rank decides about.
  virtual std::uint32_t cells() const = 0;
  /// This rank's cells that belong to the step.
  virtual void cells_of(std::uint32_t step, std::vector<std::uint32_t>& out) const = 0;
  /// Takes part in the step. `decided` marks the cells of this rank that need no more samples; they may still be
  /// measured if they cannot be left out. Appends this rank's bursts.
  virtual Result<void> measure(const Step& step, std::span<const Decision> decided, std::vector<Burst>& out) = 0;
  /// Writes the burst, or a decision (value empty), into the record that the writer reserved.
  virtual void record(const Step& step, const Burst& burst, Decision decision, void* out) const = 0;
  /// Called on every rank after each epoch: synchronise clocks, write a note.
  virtual Result<void> between_epochs(RecordWriter&) { return {}; }
};

struct RunLimits {
  std::uint32_t epochs = 1000;      ///< visits to a step at most
  std::uint32_t epoch_length = 50;  ///< samples a visit
  double flush_s = 0.5;             ///< what a kill -9 may cost
  /// Shortest time from the beginning of one epoch to that of the next, s. On a fast network all epochs would otherwise
  /// be over in a fraction of a second and show only one state of the machine.
  double gap_s = 0;
};

enum class StopReason : std::uint8_t { converged, budget, interrupted, epochs, failed };
const char* to_string(StopReason reason);

struct Progress {
  std::uint64_t steps_done, steps_active, steps, cells_decided, cells, samples;
  std::uint32_t epoch;
  double elapsed_s;
};

struct Stop {
  StopReason reason = StopReason::epochs;
  std::uint64_t samples = 0;  ///< of all ranks
  std::uint64_t dropped = 0;  ///< records of all ranks that found no room
  double elapsed_s = 0;
  int failed_rank = -1;  ///< when reason is failed: the lowest rank that failed
  Error error;           ///< its error, on that rank; empty on the others
};

/// Makes a fresh rule for a cell.
using RuleMaker = std::function<std::unique_ptr<Rule>()>;

/// Runs to the end. `progress` is called on rank 0 only, at most every 0.2 s. Collective.
Stop run(Probe& probe, const RunLimits& limits, std::uint64_t seed, const RuleMaker& make_rule, RecordWriter& writer,
         Team& team, Control& control, const std::function<void(const Progress&)>& progress);

}  // namespace sonde
