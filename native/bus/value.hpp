#pragma once
/// A sample whose type is known only at run time: for Python, the command line and tests. C++ programs use typed.hpp.
/// Any-thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bus/types.hpp"

namespace sonde::bus {

/// A structure is a Struct in the order of its fields. Sequences and arrays are a List, those of octets, chars and
/// uint8 a Blob. An enumeration is its name, a char a text of one character (its code, 0 … 255).
struct Value;
struct Member;
using List = std::vector<Value>;
using Struct = std::vector<Member>;
using Blob = std::vector<std::byte>;
struct Value {
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Blob, List, Struct> is;
};

/// A field of a Struct.
struct Member {
  std::string name;
  Value value;

  Member(std::string called, Value is) : name(std::move(called)), value(std::move(is)) {}
};

namespace limit {
inline constexpr std::size_t values =
    16u << 20;  ///< the most values that decode() creates from one sample: each needs 40 bytes or more
}  // namespace limit

/// Missing fields become zero or empty, enumerations their first enumerator. Accepted too: whole numbers for floats,
/// numbers for enumerators, lists for Blobs, and texts for Blobs of chars. Errors: bus.bad_value (path, value, what is
/// allowed), for a number out of range, a string with a NUL or above its bound, or an unknown field (with the nearest
/// known one).
Result<void> encode(const Type& type, const Value& value, std::vector<std::byte>& payload);
/// Errors: bus.malformed, as verify(); bus.too_large.
Result<Value> decode(const Type& type, Bytes payload);
/// One line of JSON; octets as "base64:…", float NaN and infinities as null, invalid UTF-8 in strings as U+FFFD.
std::string to_json(const Value& value);

}  // namespace sonde::bus
