#pragma once
/// JSON as services send it, read into a tree. Strict (RFC 8259), bounded in depth; what it lacks is null, so that paths can be asked for
/// without looking at each step. Any-thread, once made.

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/error.hpp"

namespace sonde::power {

class JsonValue {
 public:
  using List = std::vector<JsonValue>;
  using Object = std::map<std::string, JsonValue, std::less<>>;

  /// Errors: power.bad_json (at which byte, what).
  static Result<JsonValue> parse(std::string_view text);

  bool is_null() const { return value_.index() == 0; }
  /// Of an object; null where there is none of that name, or this is no object.
  const JsonValue& operator[](std::string_view key) const;
  /// Of a list.
  const JsonValue& operator[](std::size_t index) const;
  std::size_t size() const { return list() ? list()->size() : 0; }
  /// NaN: it is no number. Numbers in quotes are none.
  double number() const;
  /// Empty: it is no text.
  const std::string& text() const;
  const List* list() const { return std::get_if<List>(&value_); }
  const Object* object() const { return std::get_if<Object>(&value_); }

 private:
  friend class JsonReader;
  std::variant<std::monostate, bool, double, std::string, List, Object> value_;
};

}  // namespace sonde::power
