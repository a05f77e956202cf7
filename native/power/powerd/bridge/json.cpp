#include "power/powerd/bridge/json.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "bus/cdr.hpp"
#include "bus/value.hpp"
#include "core/nearest.hpp"
#include "core/printable.hpp"
#include "core/text.hpp"

namespace sonde::power::bridge {

namespace {

using bus::Kind;
using bus::Type;
using bus::Value;

bool is_blob(const Type& element) {
  return element.kind == Kind::octet || element.kind == Kind::char8 || element.kind == Kind::uint8;
}
bool is_float(Kind kind) { return kind == Kind::float32 || kind == Kind::float64; }

/// Length of the UTF-8 character (RFC 3629) that begins at `at`; 0: no character begins there.
std::size_t character(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t k) -> unsigned {
    return at + k < text.size() ? static_cast<unsigned char>(text[at + k]) : 0;
  };
  const auto tails = [&](std::size_t n) {
    for (std::size_t k = 1; k <= n; ++k)
      if ((byte(k) & 0xc0) != 0x80) return false;
    return true;
  };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  if (first < 0xe0) return tails(1) ? 2 : 0;
  if (first < 0xf0) {
    const bool overlong = first == 0xe0 && second < 0xa0, surrogate = first == 0xed && second > 0x9f;
    return tails(2) && !overlong && !surrogate ? 3 : 0;
  }
  return tails(3) && !(first == 0xf0 && second < 0x90) && !(first == 0xf4 && second > 0x8f) ? 4 : 0;
}

template <typename T> void number(T value, std::string& out) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  out.append(text.data(), end);
}

constexpr std::string_view digits64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64(bus::Bytes bytes, std::string& out) {
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < n ? std::to_integer<std::uint32_t>(bytes[at + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) out += k > n ? '=' : digits64[group >> (18 - 6 * k) & 63];
  }
}

bool from_base64(std::string_view text, bus::Blob& out) {
  static const auto values = [] {
    std::array<int, 256> table;
    table.fill(-1);
    for (std::size_t k = 0; k < digits64.size(); ++k)
      table[static_cast<unsigned char>(digits64[k])] = static_cast<int>(k);
    return table;
  }();
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  if (text.size() % 4 == 1) return false;
  std::uint32_t group = 0;
  int bits = 0;
  out.reserve(text.size() * 3 / 4);
  for (const char c : text) {
    const int value = values[static_cast<unsigned char>(c)];
    if (value < 0) return false;
    group = group << 6 | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<std::byte>(group >> bits & 0xff));
    }
  }
  return true;
}

void write(const Type& type, bus::CdrReader& in, std::string& out) {
  switch (type.kind) {
    case Kind::boolean: out += in.get_bool() ? "true" : "false"; return;
    case Kind::octet:
    case Kind::uint8: return number(unsigned{in.get<std::uint8_t>()}, out);
    case Kind::uint16: return number(in.get<std::uint16_t>(), out);
    case Kind::uint32: return number(in.get<std::uint32_t>(), out);
    case Kind::uint64: return number(in.get<std::uint64_t>(), out);
    case Kind::int8: return number(int{in.get<std::int8_t>()}, out);
    case Kind::int16: return number(in.get<std::int16_t>(), out);
    case Kind::int32: return number(in.get<std::int32_t>(), out);
    case Kind::int64: return number(in.get<std::int64_t>(), out);
    case Kind::float32:
    case Kind::float64: {
      const double value = type.kind == Kind::float32 ? static_cast<double>(in.get<float>()) : in.get<double>();
      if (std::isfinite(value)) return number(value, out);
      out += "null";
      return;
    }
    case Kind::char8: {
      const auto code = in.get<std::uint8_t>();
      if (code < 0x80) return append_text(std::string_view(reinterpret_cast<const char*>(&code), 1), out);
      const char two[] = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
      return append_text({two, 2}, out);
    }
    case Kind::string: return append_text(in.get_string(type.bound), out);
    case Kind::enumeration: {
      const auto value = in.get<std::int32_t>();
      for (const auto& e : type.enumerators)
        if (e.value == value) return append_text(e.name, out);
      out += "null";
      return;
    }
    case Kind::sequence:
    case Kind::array: {
      const std::uint32_t n = type.kind == Kind::array ? type.bound : in.get_length(type.bound, 1);
      if (is_blob(*type.element)) {
        out += "\"base64:";
        base64(in.get_bytes(n), out);
        out += '"';
        return;
      }
      out += '[';
      for (std::uint32_t k = 0; k < n && in.ok(); ++k) {
        if (k) out += ',';
        write(*type.element, in, out);
      }
      out += ']';
      return;
    }
    case Kind::structure: {
      out += '{';
      for (std::size_t k = 0; k < type.fields.size(); ++k) {
        out += k ? ",\"" : "\"";
        out += type.fields[k].name;  // a name of IDL: letters, digits, '_'
        out += "\":";
        write(*type.fields[k].type, in, out);
      }
      out += '}';
      return;
    }
  }
}

/// Reads only fields that the type declares, so that undeclared content needs no memory.
class Parser {
 public:
  Parser(std::string_view text) : text_(text) {}

  bool whole(const Type& type, Value& into) {
    if (!value(type, into, 0)) return false;
    blanks();
    return at_ == text_.size() || bad("something follows the value");
  }
  Error error(const Type& type) const {
    const std::string place = " (byte " + std::to_string(at_) + " of " + std::to_string(text_.size()) + ")";
    if (wrong_) return {"bridge.wrong_type", type.name + path_ + " " + what_ + place, hint_};
    return {"bridge.bad_json", what_ + place,
            "a message is one JSON object (RFC 8259) with the fields of " + type.name};
  }

 private:
  bool bad(std::string what) {
    what_ = std::move(what);
    return false;
  }
  bool wrong(std::string what, std::string hint) {
    wrong_ = true;
    hint_ = std::move(hint);
    return bad(std::move(what));
  }
  bool within(std::string_view step, const char* before, const char* after = "") {
    if (wrong_) path_.insert(0, std::string(before).append(step).append(after));
    return false;
  }
  void blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  char next() { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool eat(char c) {
    blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view w) {
    if (text_.substr(at_, w.size()) != w) return bad("a word that does not exist in JSON");
    at_ += w.size();
    return true;
  }

  static std::string_view sort(char c) {
    switch (c) {
      case '{': return "an object";
      case '[': return "a list";
      case '"': return "a text";
      case 't':
      case 'f': return "a boolean";
      case 'n': return "null";
      default: return c == '-' || (c >= '0' && c <= '9') ? "a number" : "";
    }
  }
  bool other(std::string_view allowed) {
    const auto is = sort(next());
    if (is.empty())
      return bad(at_ < text_.size() ? "a character that cannot begin a value"
                                    : "the message ends where a value is expected");
    return wrong("is " + std::string(is), std::string(allowed) + " is allowed");
  }

  bool value(const Type& type, Value& into, int depth) {
    blanks();
    if (depth > most_json_depth) return bad("more than " + std::to_string(most_json_depth) + " nested values");
    const char c = next();
    if (c == 'n') {
      if (!word("null")) return false;
      if (is_float(type.kind)) into.is = std::numeric_limits<double>::quiet_NaN();
      return true;  // the field counts as missing
    }
    switch (type.kind) {
      case Kind::boolean:
        if (c != 't' && c != 'f') return other("true or false");
        into.is = c == 't';
        return word(c == 't' ? "true" : "false");
      case Kind::string:
      case Kind::enumeration:
      case Kind::char8: {
        if (c != '"') return other("a text");
        std::string text;
        if (!string(text)) return false;
        into.is = std::move(text);
        return true;
      }
      case Kind::sequence:
      case Kind::array: return elements(type, into, depth);
      case Kind::structure: return structure(type, into, depth);
      default:
        if (c != '-' && !(c >= '0' && c <= '9'))
          return other(is_float(type.kind) ? "a number or null" : "a whole number");
        return digits(type, into);
    }
  }

  bool digits(const Type& type, Value& into) {
    const std::size_t begin = at_;
    const auto run = [&] {
      const std::size_t from = at_;
      while (next() >= '0' && next() <= '9') ++at_;
      return at_ > from;
    };
    bool whole = true;
    if (next() == '-') ++at_;
    const bool zero = next() == '0';
    const std::size_t first = at_;
    if (!run() || (zero && at_ - first > 1)) return bad("a number that is invalid in JSON");
    if (next() == '.') {
      whole = false;
      ++at_;
      if (!run()) return bad("a number that is invalid in JSON");
    }
    if (next() == 'e' || next() == 'E') {
      whole = false;
      ++at_;
      if (next() == '+' || next() == '-') ++at_;
      if (!run()) return bad("a number that is invalid in JSON");
    }
    const char* from = text_.data() + begin;
    const char* to = text_.data() + at_;
    if (is_float(type.kind)) {
      double number = 0;
      if (std::from_chars(from, to, number).ec != std::errc{} || !std::isfinite(number))
        return wrong("is " + shown(text_.substr(begin, at_ - begin)), "a number of 64 bits is allowed");
      into.is = number;
      return true;
    }
    if (!whole) return wrong("is " + shown(text_.substr(begin, at_ - begin)), "a whole number is allowed");
    if (*from == '-') {
      std::int64_t number = 0;
      if (std::from_chars(from, to, number).ec != std::errc{})
        return wrong("is " + shown(text_.substr(begin, at_ - begin)), "a whole number of 64 bits is allowed");
      into.is = number;
    } else {
      std::uint64_t number = 0;
      if (std::from_chars(from, to, number).ec != std::errc{})
        return wrong("is " + shown(text_.substr(begin, at_ - begin)), "a whole number of 64 bits is allowed");
      into.is = number;
    }
    return true;
  }

  bool elements(const Type& type, Value& into, int depth) {
    const Type& element = *type.element;
    if (next() == '"' && is_blob(element)) {
      std::string text;
      if (!string(text)) return false;
      if (!text.starts_with("base64:")) {
        if (element.kind != Kind::char8) return wrong("is a text", "\"base64:…\" or a list of numbers is allowed");
        into.is = std::move(text);
        return true;
      }
      bus::Blob blob;
      if (!from_base64(std::string_view(text).substr(7), blob))
        return wrong("is not base64 (RFC 4648)", "\"base64:…\" is allowed");
      into.is = std::move(blob);
      return true;
    }
    if (next() != '[') return other("a list");
    ++at_;
    bus::List list;
    blanks();
    if (next() == ']') {
      ++at_;
    } else {
      const std::size_t most = type.bound ? type.bound : most_message_bytes;
      do {
        if (list.size() >= most)
          return wrong("has more than " + std::to_string(most) + " elements", std::to_string(most) + " are allowed");
        list.emplace_back();
        if (!value(element, list.back(), depth + 1)) return within(std::to_string(list.size() - 1), "[", "]");
      } while (eat(','));
      if (!eat(']')) return bad("a list without an end");
    }
    into.is = std::move(list);
    return true;
  }

  bool structure(const Type& type, Value& into, int depth) {
    if (next() != '{') return other("an object");
    ++at_;
    bus::Struct all;
    all.reserve(type.fields.size());
    blanks();
    if (next() == '}') {
      ++at_;
    } else {
      std::string name;
      std::size_t expected = 0;  // fields are mostly in order
      do {
        blanks();
        if (next() != '"') return bad("a field without a name");
        name.clear();
        if (!string(name)) return false;
        if (!eat(':')) return bad("a field without ':'");
        const bus::Field* field =
            expected < type.fields.size() && type.fields[expected].name == name ? &type.fields[expected] : nullptr;
        for (std::size_t k = 0; !field && k < type.fields.size(); ++k)
          if (type.fields[k].name == name) field = &type.fields[k], expected = k;
        if (!field) {
          std::vector<std::string> names;
          for (const auto& f : type.fields) names.push_back(f.name);
          return wrong("has no field " + shown(name) + nearest(name, names),
                       type.name + " has " + shown(joined(names), 200));
        }
        ++expected;
        for (const auto& before : all)
          if (before.name == name) return wrong("has its field '" + name + "' twice", "once is allowed");
        all.emplace_back(name, Value{});
        if (!value(*field->type, all.back().value, depth + 1)) return within(name, ".");
      } while (eat(','));
      if (!eat('}')) return bad("an object without an end");
    }
    into.is = std::move(all);
    return true;
  }

  bool hex4(unsigned& out) {
    if (text_.size() - at_ < 4) return bad("a \\u without four digits");
    const auto [end, why] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, out, 16);
    if (why != std::errc{} || end != text_.data() + at_ + 4) return bad("a \\u without four digits");
    at_ += 4;
    return true;
  }

  bool string(std::string& out) {
    ++at_;  // the opening quote
    for (;;) {
      const std::size_t from = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20)
        ++at_;
      out.append(text_.substr(from, at_ - from));
      if (at_ >= text_.size()) return bad("a text without an end");
      const char c = text_[at_++];
      if (c == '"') return true;
      if (c != '\\') return bad("a control character in a text");
      const char e = next();
      ++at_;
      switch (e) {
        case '"':
        case '\\':
        case '/': out += e; break;
        case 'b': out += '\b'; break;
        case 'f': out += '\f'; break;
        case 'n': out += '\n'; break;
        case 'r': out += '\r'; break;
        case 't': out += '\t'; break;
        case 'u': {
          unsigned code = 0;
          if (!hex4(code)) return false;
          if (code >= 0xdc00 && code < 0xe000) return bad("half a surrogate pair");
          if (code >= 0xd800 && code < 0xdc00) {
            unsigned low = 0;
            if (text_.substr(at_, 2) != "\\u") return bad("half a surrogate pair");
            at_ += 2;
            if (!hex4(low)) return false;
            if (low < 0xdc00 || low >= 0xe000) return bad("half a surrogate pair");
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
          }
          if (code < 0x80) out += static_cast<char>(code);
          else if (code < 0x800) out += {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
          else if (code < 0x10000)
            out += {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
                    static_cast<char>(0x80 | (code & 0x3f))};
          else
            out += {static_cast<char>(0xf0 | code >> 18), static_cast<char>(0x80 | (code >> 12 & 0x3f)),
                    static_cast<char>(0x80 | (code >> 6 & 0x3f)), static_cast<char>(0x80 | (code & 0x3f))};
          break;
        }
        default: return bad("an escape that does not exist in JSON");
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string what_, hint_, path_;
  bool wrong_ = false;
};

}  // namespace

std::size_t first_bad_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    // Eight bytes of ASCII at once.
    std::uint64_t eight = 0;
    if (text.size() - at >= 8) {
      std::memcpy(&eight, text.data() + at, 8);
      if (!(eight & 0x8080808080808080u)) {
        at += 8;
        continue;
      }
    }
    const std::size_t n = character(text, at);
    if (!n) return at;
    at += n;
  }
  return std::string_view::npos;
}

void append_utf8(std::string_view text, std::string& out) {
  for (std::size_t bad; (bad = first_bad_utf8(text)) != text.npos; text.remove_prefix(bad + 1))
    out.append(text.substr(0, bad)).append("\xef\xbf\xbd");
  out += text;
}

void append_text(std::string_view text, std::string& out) {
  out += '"';
  std::size_t from = 0, at = 0;
  const auto flush = [&] { out.append(text.substr(from, at - from)); };
  while (at < text.size()) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
      ++at;
      continue;
    }
    const std::size_t n = c < 0x80 ? 0 : character(text, at);
    std::uint32_t code = 0;
    if (n) utf8_front(text.substr(at), code);
    if (n && !unprintable(code)) {
      at += n;
      continue;
    }
    flush();
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (n || c < 0x80) {
      out += json_escape(n ? code : c);
    } else {
      out += "\xef\xbf\xbd";
    }
    at += n ? n : 1;
    from = at;
  }
  flush();
  out += '"';
}

void append_json(const bus::Type& type, bus::Bytes payload, std::string& out) {
  bus::CdrReader in(payload);
  write(type, in, out);
}

Result<void> payload_of_json(const bus::Type& type, std::string_view text, std::vector<std::byte>& payload) {
  if (text.size() > most_message_bytes)
    return Error{"bridge.too_large", "the message has " + std::to_string(text.size()) + " bytes",
                 std::to_string(most_message_bytes) + " are allowed"};
  if (const std::size_t at = first_bad_utf8(text); at != text.npos)
    return Error{"bridge.bad_utf8", "byte " + std::to_string(at) + " belongs to no character",
                 "messages must be JSON in UTF-8"};
  Value value;
  Parser parser(text);
  if (!parser.whole(type, value)) return parser.error(type);
  if (auto fine = bus::encode(type, value, payload); !fine)
    return Error{"bridge.wrong_type", fine.error().what, fine.error().hint};
  return {};
}

}  // namespace sonde::power::bridge
