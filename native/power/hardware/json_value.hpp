#pragma once
/// JSON from services, read into a tree. Strict (RFC 8259), with limited depth. A missing member is null, so that paths
/// can be followed without checking each step. Any-thread, once created.

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace sonde::power {

class JsonValue {
 public:
  using List = std::vector<JsonValue>;
  using Object = std::map<std::string, JsonValue, std::less<>>;

  /// Errors: power.bad_json (the byte, the fault).
  static Result<JsonValue> parse(std::string_view text);

  bool is_null() const { return kind_ == Kind::null; }
  /// Whether it is the word false; null is not.
  bool is_false() const { return kind_ == Kind::truth && number_ == 0; }
  /// A member of an object; null if no member has this name, or if this is not an object.
  const JsonValue& operator[](std::string_view key) const;
  /// Element of a list.
  const JsonValue& operator[](std::size_t index) const;
  std::size_t size() const { return list() ? list()->size() : 0; }
  /// NaN: it is not a number. Numbers in quotes are not numbers.
  double number() const;
  /// Empty: it is not a text.
  const std::string& text() const;
  const List* list() const { return kind_ == Kind::list ? &list_ : nullptr; }
  const Object* object() const { return kind_ == Kind::object ? &object_ : nullptr; }

 private:
  friend class JsonReader;
  enum class Kind : unsigned char { null, truth, number, text, list, object };
  Kind kind_ = Kind::null;
  double number_ = 0;  // of a truth 0 or 1
  std::string text_;
  List list_;
  Object object_;
};

}  // namespace sonde::power
