#pragma once
/// The command line of sonde-noise: an interface between Sonde's Python and its probe, not for users. Any-thread.

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "noise/keeper.hpp"

namespace sonde::noise {

/// A variant: an agent that may be on in a block. The options after --variant NAME on the command line belong to it.
struct Variant {
  std::string name;
  std::uint32_t share = 1;  ///< blocks in a round
  AgentSpec agent;          ///< without a command nothing is on
  std::vector<int> cpus;    ///< CPUs that the agent may use; empty: all
};

struct Options {
  std::string dir;
  std::string op = "alltoall";
  std::size_t bytes = 1024;
  double block_s = 1, settle_s = 0.05, budget_s = 0, stall_s = 0;
  std::vector<double> periods_s;  ///< periods to fold at
  double fold_weight = 0.8;
  std::uint64_t seed = 1, cap_bytes = std::uint64_t{4} << 30;
  std::vector<std::uint32_t> rounds;  ///< of each segment
  std::vector<double> spend;          ///< share of alpha for the look after each segment; empty: no looks
  double alpha = 0.01;
  std::uint32_t fresh_rounds = 0;  ///< rounds after a detection, for the size of the effect
  bool poll = false, keep = false, forward = false;
  std::uint32_t every = 0;  ///< iterations that share a reading; 0: chosen by its cost
  std::uint32_t permutations = 1999;
  std::vector<Variant> variants;  ///< the first is "off"
};

/// Parses the arguments after the program's name. Errors: noise.bad_option.
Result<Options> parse_options(const std::vector<std::string>& args);

}  // namespace sonde::noise
