#pragma once
/// Names and payloads of samples in MQTT. Any-thread.
///
///   sonde      PREFIX/TOPIC/KEY                                    one JSON object, the sample
///   examon     org/PREFIX/cluster/C/node/KEY/plugin/sonde/chnl/data/METRIC     value;seconds since 1970, one message a
///                                                                              metric
///   sparkplug  sparkplug.hpp

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bus/types.hpp"

namespace sonde::power::bridge {

/// Whether a topic of the bus matches a list of patterns: it matches at least one, and none that begins with '!'.
bool chosen(const std::vector<std::string>& patterns, std::string_view topic);

/// Appends one level of an MQTT topic: '%', '/', '+', '#', control characters and invalid UTF-8 as %XX; "" as "%".
void append_level(std::string_view text, std::string& out);
/// The text of a level; false: append_level() never writes this level.
bool level_text(std::string_view level, std::string& out);

/// The sample's key fields as levels, with '/' between them; empty for types without a key.
void append_key(const bus::Type& type, bus::Bytes payload, std::string& out);

/// A tag of Examon: '+', '#', '/', blanks, control characters and invalid UTF-8 become '_'; "" becomes "_".
void append_tag(std::string_view text, std::string& out);

/// Examon's messages for a sample: known numbers and booleans (no message for NaN), in the order of the type.
/// `source_ns`: the time if the sample has no at_ns. Calls `message(topic, payload)`. Returns the number of messages.
std::size_t examon(const bus::Type& type, bus::Bytes payload, std::int64_t source_ns, std::string_view org,
                   std::string_view cluster,
                   const std::function<void(std::string_view topic, std::string_view payload)>& message);

}  // namespace sonde::power::bridge
