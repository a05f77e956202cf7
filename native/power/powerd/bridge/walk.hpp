#pragma once
/// Reads a sample field by field, guided by its type, without creating values: for JSON, for metrics, for keys.
/// Any-thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "bus/cdr.hpp"
#include "bus/types.hpp"

namespace sonde::power::bridge {

/// A field without inner fields. Enumerations are given by name, chars by code.
using Leaf = std::variant<bool, std::int64_t, std::uint64_t, double, std::string_view>;

inline constexpr std::size_t most_leaves =
    4096;  ///< the most leaves of one sample that become metrics; the rest is left out

/// Calls `leaf(path, kind, value)` for each leaf of a payload that has passed verify(). Parts of the path are separated
/// by `separator`; elements of a sequence are named by their field "name" if they have one, else by their number.
template <typename F> class Leaves {
 public:
  Leaves(bus::Bytes payload, char separator, F& leaf) : in_(payload), separator_(separator), leaf_(leaf) {}

  /// The first `fields` fields of a structure; only those with a key where `keys`.
  void structure(const bus::Type& type, std::size_t fields, bool keys) {
    for (std::size_t k = 0; k < type.fields.size() && k < fields; ++k) {
      const auto& field = type.fields[k];
      const std::size_t before = enter(field.name);
      const bool quiet = quiet_;
      quiet_ = quiet_ || (keys && !field.key);
      value(*field.type);
      quiet_ = quiet;
      path_.resize(before);
    }
  }

 private:
  std::size_t enter(std::string_view part) {
    const std::size_t before = path_.size();
    if (before) path_ += separator_;
    path_ += part;
    return before;
  }
  void emit(bus::Kind kind, const Leaf& leaf) {
    if (quiet_ || ++emitted_ > most_leaves) return;
    leaf_(std::string_view(path_), kind, leaf);
  }
  void value(const bus::Type& type) {
    using bus::Kind;
    switch (type.kind) {
      case Kind::boolean: return emit(type.kind, in_.get_bool());
      case Kind::octet:
      case Kind::uint8:
      case Kind::char8: return emit(type.kind, std::uint64_t{in_.get<std::uint8_t>()});
      case Kind::uint16: return emit(type.kind, std::uint64_t{in_.get<std::uint16_t>()});
      case Kind::uint32: return emit(type.kind, std::uint64_t{in_.get<std::uint32_t>()});
      case Kind::uint64: return emit(type.kind, in_.get<std::uint64_t>());
      case Kind::int8: return emit(type.kind, std::int64_t{in_.get<std::int8_t>()});
      case Kind::int16: return emit(type.kind, std::int64_t{in_.get<std::int16_t>()});
      case Kind::int32: return emit(type.kind, std::int64_t{in_.get<std::int32_t>()});
      case Kind::int64: return emit(type.kind, in_.get<std::int64_t>());
      case Kind::float32: return emit(type.kind, static_cast<double>(in_.get<float>()));
      case Kind::float64: return emit(type.kind, in_.get<double>());
      case Kind::string: return emit(type.kind, in_.get_string(type.bound));
      case Kind::enumeration: {
        const auto number = in_.get<std::int32_t>();
        for (const auto& e : type.enumerators)
          if (e.value == number) return emit(type.kind, std::string_view(e.name));
        return;
      }
      case Kind::sequence:
      case Kind::array: {
        const std::uint32_t n = type.kind == Kind::array ? type.bound : in_.get_length(type.bound, 1);
        const bool named = type.element->kind == Kind::structure && !type.element->fields.empty() &&
                           type.element->fields[0].name == "name" && type.element->fields[0].type->kind == Kind::string;
        for (std::uint32_t k = 0; k < n && in_.ok(); ++k) {
          std::size_t before = 0;
          if (named) {
            bus::CdrReader ahead = in_;
            before = enter(ahead.get_string(type.element->fields[0].type->bound));
          } else {
            before = enter(std::to_string(k));
          }
          value(*type.element);
          path_.resize(before);
        }
        return;
      }
      case Kind::structure: return structure(type, SIZE_MAX, false);
    }
  }

  bus::CdrReader in_;
  char separator_;
  F& leaf_;
  std::string path_;
  std::size_t emitted_ = 0;
  bool quiet_ = false;
};

template <typename F> void for_each_leaf(const bus::Type& type, bus::Bytes payload, char separator, F leaf) {
  Leaves<F>(payload, separator, leaf).structure(type, SIZE_MAX, false);
}

/// The same for the key fields, reading no further than the last of them.
template <typename F> void for_each_key(const bus::Type& type, bus::Bytes payload, F leaf) {
  std::size_t fields = 0;
  for (std::size_t k = 0; k < type.fields.size(); ++k)
    if (type.fields[k].key) fields = k + 1;
  Leaves<F>(payload, '_', leaf).structure(type, fields, true);
}

}  // namespace sonde::power::bridge
