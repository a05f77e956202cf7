#pragma once
/// What strangers hand to the power stack (configurations, JSON and Sparkplug commands by MQTT, samples of peers that
/// the bridge tells on), damaged in every way, and whether what reads it keeps its promises. Used by the libFuzzer
/// harness, by sonde-powerfuzz and by tests. Owner-thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bus/types.hpp"

namespace sonde::power::fuzz {

/// The types of all messages, and one that has every kind of field.
const std::vector<bus::TypePtr>& types();

/// What is wrong; empty: nothing, whether the input is sound or not.
/// A configuration: an error without code, place or hint; a value out of its bounds that was let pass.
std::string judge_config(std::string_view toml);
/// JSON from MQTT: what was let pass is no sample, or comes back as another one.
std::string judge_json(const bus::TypePtr& type, std::string_view text);
/// A payload of the bus, where verify() lets it pass: its JSON is not the bus's own, does not come back; a topic or
/// text that MQTT does not carry.
std::string judge_sample(const bus::TypePtr& type, bus::Bytes payload);
/// An NCMD of Sparkplug: what follows a request for a rebirth hides it.
std::string judge_command(std::string_view protobuf);
/// One level of a topic of MQTT.
std::string judge_level(std::string_view level);

/// An input of libFuzzer: what it is, the number of a type, and that.
enum class What : std::uint8_t { config, json, sample, command, level };
struct Input {
  What what = What::config;
  std::uint8_t type = 0;
  std::string text;
};
std::string judge(std::string_view input);
std::string input_of(const Input& input);
/// Sound ones, where the damage begins: a configuration with every key, and of each type a sample.
std::vector<Input> seeds();

struct Tally {
  std::uint64_t inputs = 0, sound = 0;  ///< sound: nevertheless
  std::string wrong, input;             ///< what judge() said of `input`; empty: nothing ever
};
/// `mutations` of the seeds; ends at the first that is judged wrong.
Tally attack(std::uint64_t mutations, std::uint64_t random_seed);

}  // namespace sonde::power::fuzz
