#pragma once
/// The types of samples: the structures that IDL declares, as values for all implementations, the checker and Python.
///
/// A Type is made once (by idl.hpp, by a profile, by typed.hpp from a C++ structure) and is then immutable and shared.
/// Structures are final in the sense of DDS XTypes and travel as plain CDR (XCDR version 1), which every DDS speaks.
/// Any-thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace sonde::bus {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

enum class Kind : std::uint8_t {
  boolean,
  octet,
  char8,
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float32,
  float64,
  string,
  enumeration,
  sequence,
  array,
  structure
};

struct Type;
using TypePtr = std::shared_ptr<const Type>;

struct Field {
  std::string name;
  TypePtr type;
  bool key = false;  ///< IDL's @key: samples of one key are one instance
  std::string unit;  ///< IDL's @unit("W"); empty: not given. Units need not agree
};

struct Enumerator {
  std::string name;
  std::int32_t value = 0;
};

struct Type {
  Kind kind = Kind::structure;
  std::string name;           ///< for structures and enumerations, with scope: "regale::NodePower"
  std::uint32_t bound = 0;    ///< string (characters without the NUL), sequence: most, 0: unbounded · array: how many,
                              ///< dimensions multiplied
  TypePtr element;            ///< sequence, array
  std::vector<Field> fields;  ///< structure
  std::vector<Enumerator> enumerators;
};

/// Limits of declarations, so that no declaration, from whatever source, can make a reader recurse or allocate without
/// end.
namespace limit {
inline constexpr std::size_t depth = 16;     ///< levels of nested structures, sequences and arrays
inline constexpr std::size_t fields = 1024;  ///< of one structure; enumerators of one enumeration
inline constexpr std::size_t leaves =
    65536;  ///< fields that are not structures; those of inner structures count each time
inline constexpr std::size_t name_bytes = 255;  ///< of types, fields, topics
inline constexpr std::size_t sample_bytes = 64u << 20;
}  // namespace limit

TypePtr primitive(Kind kind);  ///< boolean … float64; null for other kinds
TypePtr string_type(std::uint32_t bound = 0);
TypePtr sequence_of(TypePtr element, std::uint32_t bound = 0);
TypePtr array_of(TypePtr element, std::uint32_t length);  ///< of an array: one array, dimensions multiplied
TypePtr structure(std::string name, std::vector<Field> fields);
TypePtr enumeration(std::string name, std::vector<Enumerator> enumerators);

/// Checks that it can be the type of a topic: a structure, names that IDL allows, no name twice (IDL ignores case, and
/// enumerators are in the scope of their enumeration), nothing empty, within the limits, no recursion; keys are
/// primitives, enumerations, strings, or arrays and structures of those. All functions with a Type rely on this, except
/// the factories above. Errors: bus.bad_type (the path to the field, what is wrong).
Result<void> check(const Type& type);

/// IDL that declares it and all that it needs; parse_idl() of it gives an equal type.
std::string to_idl(const Type& type);

/// Whether all names, kinds, bounds, keys and orders are the same, also inside. Units may differ.
bool equal(const Type& a, const Type& b);
/// A hash, 16 bytes in hexadecimal, of everything that equal() compares. It is announced with the type's name, so that
/// two sides with different structures of one name get an error instead of garbage.
std::string fingerprint(const Type& type);
bool has_key(const Type& type);
std::string_view name_of(Kind kind);

}  // namespace sonde::bus
