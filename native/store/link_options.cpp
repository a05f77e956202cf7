#include "store/link_options.hpp"

#include <charconv>
#include <cstdint>
#include <cstdio>

#include "core/units.hpp"

namespace sonde::store {

namespace {

struct Switch {
  std::string_view name;
  bool LinkOptions::* value;
};
constexpr Switch switches[] = {{"nodelay", &LinkOptions::nodelay},
                               {"cork", &LinkOptions::cork},
                               {"gather", &LinkOptions::gather},
                               {"await", &LinkOptions::await}};

}  // namespace

bool set_link_option(LinkOptions& options, std::string_view name, std::string_view value) {
  for (const Switch& s : switches)
    if (name == s.name) {
      if (value != "yes" && value != "no") return false;
      options.*s.value = value == "yes";
      return true;
    }
  if (value.empty()) return false;
  if (name == "provider") {
    options.provider = value;
    return true;
  }
  if (name == "rma") {
    std::int64_t bytes = 0;
    const auto [end, why] = std::from_chars(value.data(), value.data() + value.size(), bytes);
    if (why != std::errc{} || end != value.data() + value.size() || bytes < 0) return false;
    options.rma_from = bytes;
    return true;
  }
  if (name == "spin") {
    const auto s = parse_duration(value);
    if (!s) return false;
    options.spin_s = *s;
    return true;
  }
  return false;
}

std::string link_option_words(const LinkOptions& options, char end) {
  const LinkOptions usual;
  std::string text;
  const auto add = [&](std::string_view name, std::string_view value) {
    text.append(name).append(1, '=').append(value).append(1, end);
  };
  if (!options.provider.empty()) add("provider", options.provider);
  for (const Switch& s : switches)
    if (options.*s.value != usual.*s.value) add(s.name, options.*s.value ? "yes" : "no");
  if (options.rma_from >= 0) add("rma", std::to_string(options.rma_from));
  if (options.spin_s >= 0) {
    char s[32];
    std::snprintf(s, sizeof s, "%.9fs", options.spin_s);
    add("spin", s);
  }
  return text;
}

}  // namespace sonde::store
