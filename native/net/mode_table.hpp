#pragma once
/// The table of modes: read by the probe and, through sonde._core, by help and analysis. Any-thread.

#include <span>
#include <string_view>

namespace sonde::net {

/// The ranks that are busy in a step.
enum class Pattern {
  pairs,     ///< pairs of ranks, several at once where they do not disturb each other
  one_pair,  ///< one pair, and the other ranks have a part of their own
  everyone,  ///< all ranks at once
  rooted,    ///< all ranks, around one root
};

enum class Value { rtt_half, one_way, recv_duration, completion };

struct ModeInfo {
  const char* name;
  const char* text;  ///< one line for help
  Pattern pattern;
  Value value;        ///< what a sample is unless asked otherwise
  bool by_receiver;   ///< the samples of (src, dst) are taken by dst, else by src
  bool value_choice;  ///< --value may ask for another kind of sample
};

/// Every mode, in the order help shows them.
std::span<const ModeInfo> mode_list();

/// The mode of that name, or nullptr.
const ModeInfo* find_mode(std::string_view name);

const char* to_string(Value value);
const char* to_string(Pattern pattern);

}  // namespace sonde::net
