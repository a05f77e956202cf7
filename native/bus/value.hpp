#pragma once
/// A sample whose type is known at run time only: for Python, the command line and tests. C++ programs take typed.hpp.
/// Any-thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bus/types.hpp"

namespace sonde::bus {

/// Structures are Struct in the order of their fields; sequences and arrays List; of octets, chars and uint8 Blob;
/// enumerations their name; a char a text of one character (its code, 0 … 255).
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
inline constexpr std::size_t values = 16u << 20;  ///< that decode() makes of one sample: each takes 40 bytes and more
}  // namespace limit

/// Fields that the value leaves out are zero or empty, and enumerations their first. Whole numbers may stand for
/// floats, numbers for enumerators, lists and, where they are chars, texts for Blobs. Errors: bus.bad_value (path,
/// value, what is allowed: a number out of range, a string with a NUL or over its bound, a field that the type lacks
/// and the nearest that it has).
Result<void> encode(const Type& type, const Value& value, std::vector<std::byte>& payload);
/// Errors: bus.malformed, as verify(); bus.too_large.
Result<Value> decode(const Type& type, Bytes payload);
/// One line of JSON; octets as "base64:…", float NaN and infinities as null, what is no UTF-8 in strings as U+FFFD.
std::string to_json(const Value& value);

}  // namespace sonde::bus
