#include "power/powerd/bridge/naming.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdio>
#include <type_traits>
#include <variant>

#include "bus/pattern.hpp"
#include "power/powerd/bridge/json.hpp"
#include "power/powerd/bridge/walk.hpp"

namespace sonde::power::bridge {

namespace {

constexpr char hex[] = "0123456789ABCDEF";

int digit(char c) {
  for (int k = 0; k < 16; ++k)
    if (hex[k] == c) return k;
  return -1;
}

std::string text_of(const Leaf& leaf) {
  return std::visit(
      [](const auto& is) -> std::string {
        using T = std::remove_cvref_t<decltype(is)>;
        if constexpr (std::same_as<T, std::string_view>) return std::string(is);
        else if constexpr (std::same_as<T, bool>) return is ? "true" : "false";
        else {
          std::array<char, 32> text;
          return {text.data(), std::to_chars(text.data(), text.data() + text.size(), is).ptr};
        }
      },
      leaf);
}

/// Appends whole nanoseconds as seconds, with as many digits as needed.
void append_seconds(std::int64_t ns, std::string& out) {
  ns = std::max<std::int64_t>(ns, 0);  // a time before 1970 is not from a real clock
  std::array<char, 48> text;
  const int n = std::snprintf(text.data(), text.size(), "%lld.%06lld", static_cast<long long>(ns / 1'000'000'000),
                              static_cast<long long>(ns % 1'000'000'000 / 1000));
  out.append(text.data(), static_cast<std::size_t>(n));
}

}  // namespace

bool chosen(const std::vector<std::string>& patterns, std::string_view topic) {
  bool yes = false;
  for (const std::string& pattern : patterns) {
    if (pattern.starts_with('!')) {
      if (bus::fits(std::string_view(pattern).substr(1), topic)) return false;
    } else {
      yes = yes || bus::fits(pattern, topic);
    }
  }
  return yes;
}

void append_level(std::string_view text, std::string& out) {
  if (text.empty()) out += '%';
  std::size_t bad = first_bad_utf8(text);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    // If the text is not UTF-8, all bytes that are not ASCII are escaped, not only the invalid ones.
    if (c < 0x20 || c == 0x7f || c == '%' || c == '/' || c == '+' || c == '#' || (c >= 0x80 && bad != text.npos)) {
      out += '%';
      out += hex[c >> 4];
      out += hex[c & 15];
    } else {
      out += static_cast<char>(c);
    }
  }
}

bool level_text(std::string_view level, std::string& out) {
  out.clear();
  if (level == "%") return true;
  if (level.empty()) return false;
  for (std::size_t at = 0; at < level.size(); ++at) {
    if (level[at] != '%') {
      out += level[at];
      continue;
    }
    if (level.size() - at < 3) return false;
    const int high = digit(level[at + 1]), low = digit(level[at + 2]);
    if (high < 0 || low < 0) return false;
    out += static_cast<char>(high << 4 | low);
    at += 2;
  }
  return true;
}

void append_key(const bus::Type& type, bus::Bytes payload, std::string& out) {
  bool first = true;
  for_each_key(type, payload, [&](std::string_view, bus::Kind, const Leaf& leaf) {
    if (!first) out += '/';
    first = false;
    if (const auto* text = std::get_if<std::string_view>(&leaf)) append_level(*text, out);
    else append_level(text_of(leaf), out);
  });
}

void append_tag(std::string_view text, std::string& out) {
  if (text.empty()) out += '_';
  const bool bad = first_bad_utf8(text) != text.npos;
  for (const char ch : text) {
    const auto c = static_cast<unsigned char>(ch);
    out += c <= 0x20 || c == 0x7f || c == '+' || c == '#' || c == '/' || (bad && c >= 0x80) ? '_' : ch;
  }
}

std::size_t examon(const bus::Type& type, bus::Bytes payload, std::int64_t source_ns, std::string_view org,
                   std::string_view cluster,
                   const std::function<void(std::string_view topic, std::string_view payload)>& message) {
  std::string topic = "org/", when;
  append_tag(org, topic);
  topic += "/cluster/";
  append_tag(cluster, topic);
  for_each_key(type, payload, [&](std::string_view path, bus::Kind, const Leaf& leaf) {
    if (path == "cluster") return;  // it is already a tag
    topic += '/';
    append_tag(path, topic);
    topic += '/';
    append_tag(text_of(leaf), topic);
  });
  topic += "/plugin/sonde/chnl/data/";
  for (const auto& field : type.fields) {
    if (field.name != "at_ns" || field.type->kind != bus::Kind::int64) continue;
    for_each_leaf(type, payload, '_', [&](std::string_view path, bus::Kind, const Leaf& leaf) {
      if (path == "at_ns") source_ns = std::get<std::int64_t>(leaf);
    });
    break;
  }
  append_seconds(source_ns, when);
  const std::size_t before = topic.size();
  std::size_t told = 0;
  std::string body;
  for_each_leaf(type, payload, '_', [&](std::string_view path, bus::Kind kind, const Leaf& leaf) {
    if (path == "at_ns" || kind == bus::Kind::enumeration || kind == bus::Kind::string || kind == bus::Kind::char8)
      return;
    if (const auto* number = std::get_if<double>(&leaf); number && !std::isfinite(*number)) return;
    topic.resize(before);
    append_tag(path, topic);
    body.clear();
    if (const auto* flag = std::get_if<bool>(&leaf)) body += *flag ? '1' : '0';
    else body += text_of(leaf);
    body += ';';
    body += when;
    message(topic, body);
    ++told;
  });
  return told;
}

}  // namespace sonde::power::bridge
