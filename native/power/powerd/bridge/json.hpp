#pragma once
/// Samples as JSON and back, straight between payload and text. Any-thread.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bus/types.hpp"
#include "core/error.hpp"

namespace sonde::power::bridge {

inline constexpr std::size_t most_message_bytes = 1u << 20;  ///< of a message from MQTT
inline constexpr int most_json_depth = 32;

/// Appends one line, as bus::to_json() writes it: octets as "base64:…", a float that is not finite as null, what is no
/// UTF-8 as U+FFFD. The payload has passed verify().
void append_json(const bus::Type& type, bus::Bytes payload, std::string& out);

/// What append_json() wrote, or a person: fields in any order, those left out zero or empty; null is NaN of a float.
/// Nothing is read past a field of the wrong kind. Errors: bridge.too_large, bridge.bad_utf8 (where), bridge.bad_json
/// (where, what), bridge.wrong_type (the field, what it is, what is allowed).
Result<void> payload_of_json(const bus::Type& type, std::string_view text, std::vector<std::byte>& payload);

/// The place of the first byte that belongs to no character of UTF-8; npos: none.
std::size_t first_bad_utf8(std::string_view text);

/// What is no UTF-8 becomes U+FFFD, byte by byte.
void append_utf8(std::string_view text, std::string& out);

/// Text as JSON, whatever its bytes are.
void append_text(std::string_view text, std::string& out);

}  // namespace sonde::power::bridge
