#pragma once
/// How samples are called in MQTT. Any-thread.
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

/// Whether a topic of the bus is meant by a list of patterns: by one at least, and by none that begins with '!'.
bool chosen(const std::vector<std::string>& patterns, std::string_view topic);

/// One level of an MQTT topic: '%', '/', '+', '#', control characters and what is no UTF-8 as %XX; "" as "%".
void append_level(std::string_view text, std::string& out);
/// The text of a level; false: append_level() writes no such level.
bool level_text(std::string_view level, std::string& out);

/// The sample's key fields as levels, '/' between them; nothing of types without a key.
void append_key(const bus::Type& type, bus::Bytes payload, std::string& out);

/// Examon's tags: '+', '#', '/', blanks, control characters and what is no UTF-8 become '_'; "" becomes "_".
void append_tag(std::string_view text, std::string& out);

/// Examon's messages of a sample: numbers and booleans that are known (NaN is not told), in the order of the type.
/// `source_ns` where the sample has no at_ns. `message(topic, payload)`. Returns how many.
std::size_t examon(const bus::Type& type, bus::Bytes payload, std::int64_t source_ns, std::string_view org,
                   std::string_view cluster,
                   const std::function<void(std::string_view topic, std::string_view payload)>& message);

}  // namespace sonde::power::bridge
