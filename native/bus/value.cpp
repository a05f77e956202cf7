#include "bus/value.hpp"

#include <charconv>
#include <cmath>
#include <concepts>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <type_traits>

#include "bus/cdr.hpp"
#include "core/json.hpp"
#include "core/nearest.hpp"

namespace sonde::bus {

namespace {

/// Kinds of one byte, whose sequences are Blobs.
bool byte_kind(Kind kind) { return kind == Kind::octet || kind == Kind::char8 || kind == Kind::uint8; }

/// A value, as errors show it.
std::string shown(const Value& value) {
  std::string out = to_json(value);
  if (out.size() > 40) {
    out.resize(36);
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xc0) out.pop_back();
    out += " …";
  }
  return out;
}

std::string_view sort_of(const Value& value) {
  static constexpr std::string_view names[] = {"nothing", "a boolean", "a whole number", "a whole number", "a number",
                                               "a text",  "bytes",     "a list",         "a structure"};
  return names[value.is.index()];
}

class Encoding {
 public:
  explicit Encoding(std::vector<std::byte>& payload) : out_(payload) {}

  bool put(const Type& type, const Value& value) {
    if (std::holds_alternative<std::monostate>(value.is)) return nothing(type);
    switch (type.kind) {
      case Kind::boolean:
        if (const auto* flag = std::get_if<bool>(&value.is)) return done(*flag);
        return not_a("a boolean", value);
      case Kind::octet:
      case Kind::uint8: return whole<std::uint8_t>(value);
      case Kind::int8: return whole<std::int8_t>(value);
      case Kind::int16: return whole<std::int16_t>(value);
      case Kind::uint16: return whole<std::uint16_t>(value);
      case Kind::int32: return whole<std::int32_t>(value);
      case Kind::uint32: return whole<std::uint32_t>(value);
      case Kind::int64: return whole<std::int64_t>(value);
      case Kind::uint64: return whole<std::uint64_t>(value);
      case Kind::float32:
      case Kind::float64: return real(type.kind, value);
      case Kind::char8: return character(value);
      case Kind::string: return text(type, value);
      case Kind::enumeration: return enumerator(type, value);
      case Kind::sequence:
      case Kind::array: return elements(type, value);
      case Kind::structure: return structure(type, value);
    }
    return wrong("is of a kind that does not exist", "");
  }

  Error error(const Type& type) { return {"bus.bad_value", type.name + path_ + " " + what_, std::move(hint_)}; }

 private:
  template <typename T> bool done(T value) {
    out_.put(value);
    return true;
  }

  template <typename T> bool whole(const Value& value) {
    const auto fits = [&](auto n) {
      if (std::in_range<T>(n)) return done(static_cast<T>(n));
      return wrong("is " + std::to_string(n), std::to_string(std::numeric_limits<T>::min()) + " to " +
                                                  std::to_string(std::numeric_limits<T>::max()) + " are allowed");
    };
    if (const auto* n = std::get_if<std::int64_t>(&value.is)) return fits(*n);
    if (const auto* n = std::get_if<std::uint64_t>(&value.is)) return fits(*n);
    return not_a("a whole number", value);
  }

  bool real(Kind kind, const Value& value) {
    double number;
    if (const auto* x = std::get_if<double>(&value.is)) number = *x;
    else if (const auto* n = std::get_if<std::int64_t>(&value.is)) number = static_cast<double>(*n);
    else if (const auto* m = std::get_if<std::uint64_t>(&value.is)) number = static_cast<double>(*m);
    else return not_a("a number", value);
    if (kind == Kind::float64) return done(number);
    if (std::isfinite(number) && std::abs(number) > std::numeric_limits<float>::max())
      return wrong("is " + shown(value) + ", too large for a float of 32 bits",
                   "±3.4028235e38 at most, or declare a double");
    return done(static_cast<float>(number));
  }

  bool character(const Value& value) {
    const auto* text = std::get_if<std::string>(&value.is);
    if (!text) return not_a("a text of one character", value);
    const auto byte = [&](std::size_t k) { return static_cast<unsigned char>((*text)[k]); };
    if (text->size() == 1 && byte(0) < 0x80) return done(byte(0));
    if (text->size() == 2 && (byte(0) == 0xc2 || byte(0) == 0xc3) && (byte(1) & 0xc0) == 0x80)
      return done(static_cast<std::uint8_t>((byte(0) & 3) << 6 | (byte(1) & 0x3f)));
    return wrong("is " + shown(value), "a text of one character up to U+00FF is allowed");
  }

  bool text(const Type& type, const Value& value) {
    const auto* text = std::get_if<std::string>(&value.is);
    if (!text) return not_a("a text", value);
    if (type.bound && text->size() > type.bound)
      return wrong("has " + std::to_string(text->size()) + " bytes: " + shown(value),
                   std::to_string(type.bound) + " are allowed");
    if (text->size() > limit::sample_bytes)
      return wrong("has " + std::to_string(text->size()) + " bytes",
                   std::to_string(limit::sample_bytes) + " are allowed in a sample");
    if (text->find('\0') != std::string::npos)
      return wrong("has a NUL in it", "strings of IDL cannot hold one; sequence<octet> can");
    return done(std::string_view(*text));
  }

  bool enumerator(const Type& type, const Value& value) {
    if (const auto* name = std::get_if<std::string>(&value.is)) {
      for (const Enumerator& e : type.enumerators)
        if (e.name == *name) return done(e.value);
      return wrong("is " + shown(value) + nearest(*name, names(type)), allowed(type));
    }
    std::optional<std::int64_t> number;
    if (const auto* n = std::get_if<std::int64_t>(&value.is)) number = *n;
    else if (const auto* m = std::get_if<std::uint64_t>(&value.is); m && *m <= INT32_MAX)
      number = static_cast<std::int64_t>(*m);
    for (const Enumerator& e : type.enumerators)
      if (number == e.value) return done(e.value);
    return wrong("is " + shown(value), allowed(type));
  }
  static std::vector<std::string> names(const Type& type) {
    std::vector<std::string> out;
    for (const Enumerator& e : type.enumerators) out.push_back(e.name);
    return out;
  }
  static std::string allowed(const Type& type) {
    std::string out;
    for (std::size_t k = 0; k < type.enumerators.size() && k < 20; ++k)
      out += (k ? ", " : "") + type.enumerators[k].name;
    return out + (type.enumerators.size() > 20 ? ", … are allowed" : " are allowed");
  }

  bool elements(const Type& type, const Value& value) {
    const Type& element = *type.element;
    const auto* blob = std::get_if<Blob>(&value.is);
    const auto* text = std::get_if<std::string>(&value.is);
    const auto* list = std::get_if<List>(&value.is);
    if (blob && !byte_kind(element.kind)) return not_a("a list", value);
    if (text && element.kind != Kind::char8) return not_a("a list", value);
    if (!blob && !text && !list) return not_a(byte_kind(element.kind) ? "bytes or a list" : "a list", value);
    const std::size_t n = blob ? blob->size() : text ? text->size() : list->size();
    if (type.kind == Kind::array) {
      if (n != type.bound)
        return wrong("has " + std::to_string(n) + " elements", "it is an array of " + std::to_string(type.bound));
    } else {
      if (type.bound && n > type.bound)
        return wrong("has " + std::to_string(n) + " elements", std::to_string(type.bound) + " are allowed");
      if (n > limit::sample_bytes)
        return wrong("has " + std::to_string(n) + " elements",
                     std::to_string(limit::sample_bytes) + " bytes are allowed in a sample");
      out_.put(static_cast<std::uint32_t>(n));
    }
    if (blob) out_.put_bytes(*blob);
    if (text) out_.put_bytes(std::as_bytes(std::span(*text)));
    if (list)
      for (std::size_t k = 0; k < n; ++k)
        if (!put(element, (*list)[k])) return within(std::string(1, '[').append(std::to_string(k)).append("]"));
    return true;
  }

  bool structure(const Type& type, const Value& value) {
    const auto* given = std::get_if<Struct>(&value.is);
    if (!given) return not_a("a structure", value);
    std::set<std::string_view> seen;
    for (const auto& [name, part] : *given) {
      std::vector<std::string> names;
      if (!seen.insert(name).second) return wrong("has its field '" + name + "' twice", "");
      bool known = false;
      for (const Field& field : type.fields) known = known || field.name == name;
      if (known) continue;
      for (const Field& field : type.fields) names.push_back(field.name);
      std::string hint;
      for (std::size_t k = 0; k < names.size() && k < 20; ++k) hint += (k ? ", " : "") + names[k];
      return wrong("has no field '" + name + "'" + nearest(name, names),
                   type.name + " has " + hint + (names.size() > 20 ? ", …" : ""));
    }
    std::size_t next = 0;
    for (const Field& field : type.fields) {
      // Mostly the fields are in order.
      const Value* part = next < given->size() && (*given)[next].name == field.name ? &(*given)[next++].value : nullptr;
      if (!part)
        for (const auto& [name, other] : *given)
          if (name == field.name) part = &other;
      if (part ? !put(*field.type, *part) : !nothing(*field.type))
        return within(std::string(1, '.').append(field.name));
    }
    return true;
  }

  bool nothing(const Type& type) {
    put_default(type, out_);
    return true;
  }

  bool not_a(std::string_view wanted, const Value& value) {
    return wrong("is " + std::string(sort_of(value)) + ": " + shown(value), std::string(wanted) + " is allowed");
  }
  bool wrong(std::string what, std::string hint) {
    what_ = std::move(what);
    hint_ = std::move(hint);
    return false;
  }
  bool within(const std::string& step) {
    path_.insert(0, step);
    return false;
  }

  CdrWriter out_;
  std::string what_, hint_, path_;
};

/// Decodes a payload that has passed verify().
class Decoding {
 public:
  explicit Decoding(Bytes payload) : in_(payload) {}

  bool get(const Type& type, Value& into) {
    if (++made_ > limit::values) return false;
    switch (type.kind) {
      case Kind::boolean: into.is = in_.get_bool(); break;
      case Kind::octet:
      case Kind::uint8: into.is = std::uint64_t{in_.get<std::uint8_t>()}; break;
      case Kind::uint16: into.is = std::uint64_t{in_.get<std::uint16_t>()}; break;
      case Kind::uint32: into.is = std::uint64_t{in_.get<std::uint32_t>()}; break;
      case Kind::uint64: into.is = in_.get<std::uint64_t>(); break;
      case Kind::int8: into.is = std::int64_t{in_.get<std::int8_t>()}; break;
      case Kind::int16: into.is = std::int64_t{in_.get<std::int16_t>()}; break;
      case Kind::int32: into.is = std::int64_t{in_.get<std::int32_t>()}; break;
      case Kind::int64: into.is = in_.get<std::int64_t>(); break;
      case Kind::float32: into.is = static_cast<double>(in_.get<float>()); break;
      case Kind::float64: into.is = in_.get<double>(); break;
      case Kind::char8: {
        const auto code = in_.get<std::uint8_t>();
        std::string text;
        if (code < 0x80) text = static_cast<char>(code);
        else text = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
        into.is = std::move(text);
        break;
      }
      case Kind::string: into.is = std::string(in_.get_string(type.bound)); break;
      case Kind::enumeration: {
        const auto number = in_.get<std::int32_t>();
        for (const Enumerator& e : type.enumerators)
          if (e.value == number) into.is = e.name;
        break;
      }
      case Kind::sequence:
      case Kind::array: {
        const std::uint32_t n = type.kind == Kind::array ? type.bound : in_.get_length(type.bound, 1);
        if (byte_kind(type.element->kind)) {
          const Bytes raw = in_.get_bytes(n);
          into.is = Blob(raw.begin(), raw.end());
          break;
        }
        if (n > limit::values - made_) return false;
        List list(n);
        for (Value& one : list)
          if (!get(*type.element, one)) return false;
        into.is = std::move(list);
        break;
      }
      case Kind::structure: {
        Struct all;
        all.reserve(type.fields.size());
        for (const Field& field : type.fields) {
          all.emplace_back(field.name, Value{});
          if (!get(*field.type, all.back().value)) return false;
        }
        into.is = std::move(all);
        break;
      }
    }
    return true;
  }

 private:
  CdrReader in_;
  std::size_t made_ = 0;
};

/// The size in bytes of the UTF-8 character that begins at `at`; 0: no character begins there (RFC 3629: neither
/// overlong nor a surrogate).
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t k) -> unsigned {
    return at + k < text.size() ? static_cast<unsigned char>(text[at + k]) : 0;
  };
  const auto tail = [&](std::size_t k) { return (byte(k) & 0xc0) == 0x80; };
  const unsigned b = byte(0);
  if (b < 0x80) return 1;
  if (b >= 0xc2 && b <= 0xdf && tail(1)) return 2;
  if (b >= 0xe0 && b <= 0xef && tail(1) && tail(2) && !(b == 0xe0 && byte(1) < 0xa0) && !(b == 0xed && byte(1) > 0x9f))
    return 3;
  if (b >= 0xf0 && b <= 0xf4 && tail(1) && tail(2) && tail(3) && !(b == 0xf0 && byte(1) < 0x90) &&
      !(b == 0xf4 && byte(1) > 0x8f))
    return 4;
  return 0;
}

std::string json_text(std::string_view text) {
  std::string clean;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = utf8_length(text, at);
    if (n) clean += text.substr(at, n);
    else clean += "\xef\xbf\xbd";
    at += n ? n : 1;
  }
  return json_quote(clean);
}

void base64(const Blob& blob, std::string& out) {
  static constexpr char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t at = 0; at < blob.size(); at += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (at + k < blob.size() ? static_cast<std::uint32_t>(blob[at + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) out += at + k > blob.size() ? '=' : digits[group >> (18 - 6 * k) & 63];
  }
}

void json(const Value& value, std::string& out) {
  const auto put = [&](const auto& is) {
    using T = std::remove_cvref_t<decltype(is)>;
    if constexpr (std::same_as<T, std::monostate>) {
      out += "null";
    } else if constexpr (std::same_as<T, bool>) {
      out += is ? "true" : "false";
    } else if constexpr (std::same_as<T, double>) {
      char text[32];
      if (std::isfinite(is)) out.append(text, std::to_chars(text, text + sizeof text, is).ptr);
      else out += "null";
    } else if constexpr (std::integral<T>) {
      out += std::to_string(is);
    } else if constexpr (std::same_as<T, std::string>) {
      out += json_text(is);
    } else if constexpr (std::same_as<T, Blob>) {
      out += "\"base64:";
      base64(is, out);
      out += '"';
    } else if constexpr (std::same_as<T, List>) {
      out += '[';
      for (std::size_t k = 0; k < is.size(); ++k) {
        if (k) out += ',';
        json(is[k], out);
      }
      out += ']';
    } else {
      out += '{';
      for (std::size_t k = 0; k < is.size(); ++k) {
        if (k) out += ',';
        out += json_text(is[k].name);
        out += ':';
        json(is[k].value, out);
      }
      out += '}';
    }
  };
  std::visit(put, value.is);
}

}  // namespace

Result<void> encode(const Type& type, const Value& value, std::vector<std::byte>& payload) {
  Encoding encoding(payload);
  if (encoding.put(type, value)) return {};
  return encoding.error(type);
}

Result<Value> decode(const Type& type, Bytes payload) {
  std::string why;
  if (!verify(type, payload, &why))
    return Error{"bus.malformed", std::move(why), "the writer has to send what " + type.name + " declares"};
  Value out;
  if (Decoding(payload).get(type, out)) return out;
  return Error{"bus.too_large",
               "a sample of " + type.name + " has more than " + std::to_string(limit::values) + " values",
               "programs in C++ read such samples by typed.hpp"};
}

std::string to_json(const Value& value) {
  std::string out;
  json(value, out);
  return out;
}

}  // namespace sonde::bus
