#include "power/hardware/json_value.hpp"

#include <charconv>
#include <cstdint>
#include <limits>

namespace sonde::power {

namespace {
const JsonValue nothing{};
constexpr int deepest = 64;
}  // namespace

const JsonValue& JsonValue::operator[](std::string_view key) const {
  const auto* all = object();
  if (!all) return nothing;
  const auto found = all->find(key);
  return found == all->end() ? nothing : found->second;
}

const JsonValue& JsonValue::operator[](std::size_t index) const {
  return list() && index < list()->size() ? (*list())[index] : nothing;
}

double JsonValue::number() const { return kind_ == Kind::number ? number_ : std::numeric_limits<double>::quiet_NaN(); }

const std::string& JsonValue::text() const { return text_; }

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Result<JsonValue> whole() {
    JsonValue out;
    if (!value(out, 0)) return wrong();
    blanks();
    if (at_ != text_.size()) {
      why_ = "something follows the value";
      return wrong();
    }
    return out;
  }

 private:
  Error wrong() const { return {"power.bad_json", "not valid JSON at byte " + std::to_string(at_) + ": " + why_, ""}; }
  bool no(const char* why) {
    why_ = why;
    return false;
  }
  void blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r'))
      ++at_;
  }
  bool take(char c) {
    if (at_ < text_.size() && text_[at_] == c) return ++at_, true;
    return false;
  }
  bool word(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return no("an unknown word");
    at_ += expected.size();
    return true;
  }

  bool value(JsonValue& out, int depth) {
    if (depth > deepest) return no("it is nested too deeply");
    blanks();
    if (at_ == text_.size()) return no("it ends too early");
    switch (text_[at_]) {
      case '{': out.kind_ = JsonValue::Kind::object; return object(out.object_, depth);
      case '[': out.kind_ = JsonValue::Kind::list; return list(out.list_, depth);
      case '"': out.kind_ = JsonValue::Kind::text; return string(out.text_);
      case 't':
        out.kind_ = JsonValue::Kind::truth;
        out.number_ = 1;
        return word("true");
      case 'f': out.kind_ = JsonValue::Kind::truth; return word("false");
      case 'n': return word("null");
      default: return number(out);
    }
  }
  bool object(JsonValue::Object& out, int depth) {
    ++at_;
    blanks();
    if (take('}')) return true;
    do {
      blanks();
      std::string key;
      if (at_ == text_.size() || text_[at_] != '"' || !string(key)) return no("a name in quotes is missing");
      blanks();
      if (!take(':')) return no("':' is missing");
      if (!value(out[key] = JsonValue{}, depth + 1)) return false;
      blanks();
    } while (take(','));
    return take('}') || no("'}' is missing");
  }
  bool list(JsonValue::List& out, int depth) {
    ++at_;
    blanks();
    if (take(']')) return true;
    do {
      if (!value(out.emplace_back(), depth + 1)) return false;
      blanks();
    } while (take(','));
    return take(']') || no("']' is missing");
  }
  bool number(JsonValue& out) {
    const std::size_t begin = at_;
    (void)take('-');
    const std::size_t digits = at_;
    while (at_ < text_.size() &&
           ((text_[at_] >= '0' && text_[at_] <= '9') ||
            (at_ > digits && std::string_view(".eE+-").find(text_[at_]) != std::string_view::npos)))
      ++at_;
    const std::string_view told = text_.substr(begin, at_ - begin);
    const bool zeros = at_ - digits > 1 && text_[digits] == '0' && text_[digits + 1] >= '0' && text_[digits + 1] <= '9';
    const auto dot = told.find('.');
    const bool bare =
        dot != std::string_view::npos && (dot + 1 == told.size() || told[dot + 1] < '0' || told[dot + 1] > '9');
    double parsed = 0;
    const auto [end, why] = std::from_chars(told.data(), told.data() + told.size(), parsed);
    if (at_ == digits || zeros || bare || why != std::errc{} || end != told.data() + told.size()) {
      at_ = begin;
      return no("a number that is invalid or too large");
    }
    out.kind_ = JsonValue::Kind::number;
    out.number_ = parsed;
    return true;
  }
  bool hex(std::uint32_t& out) {
    if (text_.size() - at_ < 4) return false;
    const auto [end, why] = std::from_chars(text_.data() + at_, text_.data() + at_ + 4, out, 16);
    if (why != std::errc{} || end != text_.data() + at_ + 4) return false;
    at_ += 4;
    return true;
  }
  static void put(std::string& out, std::uint32_t code) {
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else if (code < 0x800) {
      out += static_cast<char>(0xc0 | (code >> 6));
      out += static_cast<char>(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      out += static_cast<char>(0xe0 | (code >> 12));
      out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
      out += static_cast<char>(0x80 | (code & 0x3f));
    } else {
      out += static_cast<char>(0xf0 | (code >> 18));
      out += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
      out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
      out += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  bool string(std::string& out) {
    ++at_;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return no("a control byte in a text");
      if (c != '\\') {
        out += c;
        continue;
      }
      if (at_ == text_.size()) break;
      const char kind = text_[at_++];
      constexpr std::string_view written = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
      if (const auto k = written.find(kind); k != std::string_view::npos) {
        out += meant[k];
        continue;
      }
      std::uint32_t code = 0, second = 0;
      if (kind != 'u' || !hex(code)) return no("an unknown escape");
      if (code >= 0xd800 && code < 0xdc00) {
        if (!take('\\') || !take('u') || !hex(second) || second < 0xdc00 || second > 0xdfff)
          return no("half of a surrogate pair");
        code = 0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00);
      } else if (code >= 0xdc00 && code < 0xe000) {
        return no("half of a surrogate pair");
      }
      put(out, code);
    }
    return no("a text without an end");
  }

  std::string_view text_;
  std::size_t at_ = 0;
  const char* why_ = "";
};

Result<JsonValue> JsonValue::parse(std::string_view text) { return JsonReader(text).whole(); }

}  // namespace sonde::power
