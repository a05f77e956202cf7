#pragma once
/// Converts samples to JSON and back, directly between payload and text. Any-thread.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bus/types.hpp"
#include "core/error.hpp"

namespace sonde::power::bridge {

inline constexpr std::size_t most_message_bytes = 1u << 20;  ///< largest message from MQTT
inline constexpr int most_json_depth = 32;

/// Appends one line, as bus::to_json() writes it: octets as "base64:…", a float that is not finite as null, invalid
/// UTF-8 as U+FFFD. The payload must have passed verify().
void append_json(const bus::Type& type, bus::Bytes payload, std::string& out);

/// Reads JSON from append_json(), or written by a person: fields in any order, missing ones are zero or empty; null is
/// NaN for a float. Reading stops at a field of the wrong kind. Errors: bridge.too_large, bridge.bad_utf8 (where),
/// bridge.bad_json
/// (where, what), bridge.wrong_type (the field, what it is, what is allowed).
Result<void> payload_of_json(const bus::Type& type, std::string_view text, std::vector<std::byte>& payload);

/// The position of the first byte that is not valid UTF-8; npos: none.
std::size_t first_bad_utf8(std::string_view text);

/// Replaces invalid UTF-8 by U+FFFD, byte by byte.
void append_utf8(std::string_view text, std::string& out);

/// Appends text as JSON, whatever its bytes are.
void append_text(std::string_view text, std::string& out);

}  // namespace sonde::power::bridge
