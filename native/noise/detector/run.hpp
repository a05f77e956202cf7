#pragma once
/// A noise run: blocks in random order with the agent on or off, a look after each segment, and fresh blocks after a
/// detection. Owner-thread.

#include "core/control.hpp"
#include "core/runner.hpp"
#include "mpi/forward.hpp"
#include "mpi/team.hpp"
#include "noise/detector/detector.hpp"
#include "noise/detector/node_agent.hpp"
#include "noise/detector/options.hpp"
#include "noise/detector/recorder.hpp"

namespace sonde::noise {

/// The parts of a run; all of them outlive it.
struct Run {
  const Options& options;
  MpiTeam& team;
  Detector& detector;
  NodeAgent& agent;
  Recorder& recorder;
  Forwarding& forwarding;
  Control& control;
  double began_s;  ///< now_s() at the run's zero, the same for the ranks of a node
};

/// Runs to the end. Emits `progress` and `look` on rank 0. Collective. reason: converged (detected, and the fresh
/// blocks are complete), epochs (all planned blocks), budget, interrupted, failed (see error and failed_rank).
Stop run_blocks(Run& run);

}  // namespace sonde::noise
