#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/nearest.hpp"
#include "core/rules/rule_base.hpp"
#include "core/text.hpp"

namespace sonde {
namespace {

using rules::Entry;

// One line a rule, in the order help shows them.
constexpr std::array entries{
    Entry{&rules::fixed_info, rules::make_fixed},
    Entry{&rules::ci_info, rules::make_ci},
    Entry{&rules::spectral_info, rules::make_spectral},
    Entry{&rules::lognormal_info, rules::make_lognormal},
    Entry{&rules::entropy_info, rules::make_entropy},
    Entry{&rules::clustbench_fft_info, rules::make_clustbench_fft},
    Entry{&rules::clustbench_modified_info, rules::make_clustbench_modified},
};

Error bad_rule(std::string what, std::string hint) { return {"core.bad_rule", std::move(what), std::move(hint)}; }

std::string shown(const rules::Options::mapped_type value, const RuleOption& option) {
  return option.type == "share" ? rules::number(100 * value, 6) + "%" : rules::number(value, 12);
}

std::string usage(const RuleInfo& info) {
  std::string out = info.name;
  char separator = ':';
  for (const RuleOption& option : info.options) {
    out += separator + option.name + "=" + shown(option.fallback, option);
    separator = ',';
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Result<double> parse_value(const RuleInfo& info, const RuleOption& option, std::string_view text) {
  const std::string given = info.name + ":" + option.name + "=" + std::string(text);
  std::string_view digits = text;
  const bool hundredth = !digits.empty() && digits.back() == '%';
  if (hundredth) digits = trimmed(digits.substr(0, digits.size() - 1));
  double value = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool number = code == std::errc() && end == digits.data() + digits.size() && std::isfinite(value);
  if (!number || (hundredth && option.type != "share")) {
    return bad_rule("rule " + given + ": not " +
                        (option.type == "share" ? "a share such as 1% or 0.01"
                         : option.type == "int" ? "a whole number"
                                                : "a number"),
                    "for example " + usage(info));
  }
  if (hundredth) value /= 100;
  if (option.type == "int" && value != std::floor(value)) {
    return bad_rule("rule " + given + ": not a whole number", "for example " + usage(info));
  }
  if (value < option.least || value > option.most) {
    return bad_rule("rule " + given + ": " + option.name + " must be from " + shown(option.least, option) + " to " +
                        shown(option.most, option),
                    "for example " + usage(info));
  }
  return value;
}

}  // namespace

std::span<const RuleInfo> rule_list() {
  static const std::vector<RuleInfo> infos = [] {
    std::vector<RuleInfo> out;
    for (const Entry& entry : entries) out.push_back(*entry.info);
    return out;
  }();
  return infos;
}

Result<std::unique_ptr<Rule>> make_rule(std::string_view spec, const RuleContext& context) {
  const std::size_t colon = spec.find(':');
  const std::string_view name = trimmed(spec.substr(0, colon));
  const auto entry = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.info->name == name; });
  if (entry == entries.end()) {
    std::vector<std::string> names;
    for (const RuleInfo& info : rule_list()) names.push_back(info.name);
    return bad_rule("no stopping rule is called '" + std::string(name) + "'" + nearest(name, names) + "; there are " +
                        joined(names),
                    "for example --rule ci:1%");
  }

  const RuleInfo& info = *entry->info;
  rules::Options options;
  std::vector<std::string> names;
  for (const RuleOption& option : info.options) {
    options[option.name] = option.fallback;
    names.push_back(option.name);
  }

  std::string_view rest = colon == spec.npos ? std::string_view{} : spec.substr(colon + 1);
  std::vector<std::string> given;
  for (bool first = true; colon != spec.npos; first = false) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = trimmed(rest.substr(0, comma));
    const std::size_t equals = item.find('=');
    std::string key;
    if (equals != item.npos) {
      key = std::string(trimmed(item.substr(0, equals)));
    } else if (first && !info.options.empty()) {
      key = info.options.front().name;
    } else {
      return bad_rule("rule " + std::string(spec) + ": '" + std::string(item) + "' is not of the form option=value; " +
                          info.name + " takes " + joined(names),
                      "for example " + usage(info));
    }
    const auto option =
        std::find_if(info.options.begin(), info.options.end(), [&](const RuleOption& o) { return o.name == key; });
    if (option == info.options.end()) {
      return bad_rule(
          "rule " + info.name + " has no option '" + key + "'" + nearest(key, names) + "; it has " + joined(names),
          "for example " + usage(info));
    }
    if (std::find(given.begin(), given.end(), key) != given.end()) {
      return bad_rule("rule " + std::string(spec) + ": " + key + " is given twice", "for example " + usage(info));
    }
    given.push_back(key);
    const auto value = parse_value(info, *option, trimmed(equals == item.npos ? item : item.substr(equals + 1)));
    if (!value) return value.error();
    options[key] = *value;
    if (comma == rest.npos) break;
    rest = rest.substr(comma + 1);
  }
  if (context.cap == 0)
    return bad_rule("rule " + std::string(spec) + ": a cap of 0 samples", "give a cap of at least 1");
  return entry->make(options, context);
}

}  // namespace sonde
