#include "power/fuzz/hostile.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <set>
#include <span>

#include "bus/fuzz/hostile.hpp"
#include "bus/idl.hpp"
#include "bus/typed.hpp"
#include "bus/value.hpp"
#include "power/config.hpp"
#include "power/messages.hpp"
#include "power/powerd/bridge/json.hpp"
#include "power/powerd/bridge/naming.hpp"
#include "power/powerd/bridge/sparkplug.hpp"

namespace sonde::power::fuzz {

namespace {

constexpr std::string_view replaced = "\xef\xbf\xbd";
constexpr const char* all_kinds = R"(
enum Colour { RED, @value(7) BLUE };
struct Part { string<8> name; sequence<float, 4> numbers; };
struct All {
  @key string<16> who; @key short which; boolean yes; octet raw; char letter; int8 a; uint8 b; unsigned short c; long d; unsigned long e; long long f;
  unsigned long long g; float h; double i; Colour colour; sequence<octet> blob; sequence<char, 12> letters; uint8 three[3]; sequence<Part, 6> parts;
  sequence<string, 3> words; sequence<boolean> flags; Part pair[2]; sequence<sequence<Colour, 3>, 3> grid;
};)";

// A request for a rebirth: Payload.metrics with a name and a boolean value.
constexpr std::string_view rebirth{"\x12\x18\x0a\x14Node Control/Rebirth\x70\x01", 26};

std::string carried(std::string_view topic, std::string_view text) {
  if (topic.empty() || topic.size() > 65535 || topic.find_first_of(std::string_view("+#\0", 3)) != topic.npos ||
      bridge::first_bad_utf8(topic) != topic.npos)
    return "a topic that MQTT does not carry: '" + std::string(topic) + "'";
  return bridge::first_bad_utf8(text) == text.npos ? "" : "what is no UTF-8 in " + std::string(topic);
}

/// A varint of protobuf; false: there is none.
bool varint(std::string_view& in, std::uint64_t& out) {
  out = 0;
  for (int shift = 0; shift < 70 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    if (shift < 64) out |= std::uint64_t{byte & 0x7fu} << shift;
    if (!(byte & 0x80)) return true;
  }
  return false;
}

/// Whether this is a whole message of Sparkplug whose texts are UTF-8, as protobuf wants strings.
bool sparkplug(std::string_view in, bool metric) {
  while (!in.empty()) {
    std::uint64_t tag, n;
    if (!varint(in, tag)) return false;
    const std::uint64_t field = tag >> 3, kind = tag & 7;
    if (field == 0 || field > 0x1fffffff) return false;  // protobuf has no such field
    if (kind == 0) {
      if (!varint(in, n)) return false;
      continue;
    }
    if (kind == 2 ? !varint(in, n) : (n = kind == 1 ? 8 : 4, kind != 1 && kind != 5)) return false;
    if (n > in.size()) return false;
    const auto part = in.substr(0, n);
    in.remove_prefix(n);
    if (kind != 2) continue;
    if (metric ? (field == 1 || field == 15) && bridge::first_bad_utf8(part) != part.npos
               : field == 2 && !sparkplug(part, true))
      return false;
  }
  return true;
}

void spoil_text(std::mt19937_64& random, std::string& text, std::span<const std::string_view> words) {
  for (std::size_t times = 1 + random() % 3; times--;) {
    if (text.empty()) text = "x";
    const std::size_t at = random() % text.size(), n = 1 + random() % 24;
    switch (random() % 5) {
      case 0: text.erase(at, random() % 2 ? 1 : n); break;
      case 1: text.insert(at, words[random() % words.size()]); break;
      case 2: text.insert(random() % text.size(), text.substr(at, n)); break;
      case 3: text[at] = static_cast<char>(random() % 4 ? 32 + random() % 96 : random()); break;
      case 4: {
        const std::string_view word = words[random() % words.size()];
        text.replace(at, std::min(text.size() - at, word.size()), word);
        break;
      }
    }
  }
}

}  // namespace

const std::vector<bus::TypePtr>& types() {
  static const std::vector<bus::TypePtr> all = [] {
    std::vector<bus::TypePtr> out{
        bus::type_of<NodeQuery>(),     bus::type_of<NodeCommand>(),   bus::type_of<NodeAnswer>(),
        bus::type_of<NodeTelemetry>(), bus::type_of<JobTelemetry>(),  bus::type_of<ClusterTelemetry>(),
        bus::type_of<SystemQuery>(),   bus::type_of<SystemCommand>(), bus::type_of<SystemAnswer>()};
    const auto parsed = bus::parse_idl(all_kinds);
    if (parsed) out.push_back((*parsed).at("All"));
    return out;
  }();
  return all;
}

std::string judge_config(std::string_view toml) {
  const auto parsed = parse_config(toml, "/etc/power.toml");
  if (!parsed) {
    const Error& e = parsed.error();
    if (!e.code.starts_with("power.") || !e.what.starts_with("/etc/power.toml:") || e.hint.empty())
      return "an error without code, place or hint: " + e.code + " " + e.what;
    return "";
  }
  const Config& c = *parsed;
  double safe = 0;
  std::set<std::string> names;
  for (const auto& node : c.nodes) {
    const Member& m = node.member;
    if (!(m.min_w >= 0 && m.min_w <= m.safe_w && m.safe_w <= m.max_w && m.max_w > 0 && m.max_w <= 1e9))
      return "a node's range is none: " + m.name;
    if (m.name.empty() || m.name.size() > 64 || !names.insert(m.name).second) return "a node's name is none: " + m.name;
    safe += m.safe_w;
  }
  const auto within = [](double value, double low, double high) { return value >= low && value <= high; };
  const auto maybe = [&](double value) { return std::isnan(value) || within(value, 0, 1e9); };
  if (!maybe(c.budget.power_limit_w) || safe > c.budget.power_limit_w) return "the budget does not hold the safe caps";
  if (!maybe(c.budget.soft_w) || !within(c.node_manager.base_w, 0, 1e9)) return "a power out of its bounds";
  for (const auto& [name, rack] : c.racks)
    if (!maybe(rack.power_limit_w) || !maybe(rack.cooling_w)) return "a rack's power out of its bounds";
  for (const auto& h : c.node_manager.hardware)
    if (h.kind == Source::none || !maybe(h.min_w) || !maybe(h.max_w) || !maybe(h.idle_w) || !maybe(h.busy_w) ||
        !maybe(h.noise_w) || !within(h.timeout_s, 0.05, 600) || !within(h.lag_s, 0, 3600) || !within(h.load, 0, 1))
      return "hardware out of its bounds";
  if (!within(c.budget.lease_s, 0.1, 600) || !(c.budget.renew_s < c.budget.lease_s) ||
      !within(c.budget.renew_s, 0.05, 600) || !within(c.budget.period_s, 0.05, 600) ||
      !within(c.budget.clock_error, 0, 0.5) || !within(c.node_manager.telemetry_s, 0.1, 86400) ||
      !within(c.system_manager.takeover_s, 0.2, 3600))
    return "a duration out of its bounds";
  if (c.cluster.empty() || c.cluster.size() > 64 || c.bridge.qos < 0 || c.bridge.qos > 1 ||
      c.bridge.store_bytes < 1u << 16)
    return "a value out of its bounds";
  const std::string json = to_json(c);
  if (bridge::first_bad_utf8(json) != json.npos || json.find('\n') != json.npos) return "to_json() is no line of UTF-8";
  return "";
}

std::string judge_json(const bus::TypePtr& type, std::string_view text) {
  std::vector<std::byte> once, twice;
  const auto read = bridge::payload_of_json(*type, text, once);
  if (!read) {
    const Error& e = read.error();
    if ((e.code != "bridge.bad_json" && e.code != "bridge.wrong_type" && e.code != "bridge.bad_utf8" &&
         e.code != "bridge.too_large") ||
        e.what.empty() || bridge::first_bad_utf8(e.what + e.hint) != std::string::npos)
      return "an error without a name, or in words that are no UTF-8: " + e.code + " " + e.what;
    return "";
  }
  if (std::string why; !bus::verify(*type, once, &why)) return "JSON became what is no sample: " + why;
  std::string told, again;
  bridge::append_json(*type, once, told);
  if (told.size() > bridge::most_message_bytes) return "";
  if (auto back = bridge::payload_of_json(*type, told, twice); !back)
    return "what the bridge writes it refuses: " + back.error().what + "\n" + told;
  bridge::append_json(*type, twice, again);
  return again == told ? "" : "a sample changes on its way there and back:\n" + told + "\n" + again;
}

std::string judge_sample(const bus::TypePtr& type, bus::Bytes payload) {
  if (!bus::verify(*type, payload)) return "";
  const auto value = bus::decode(*type, payload);
  if (!value) return "";  // too large; the bus's own fuzzer judges the rest
  std::string told, wrong;
  bridge::append_json(*type, payload, told);
  if (told != bus::to_json(*value)) return "the bridge's JSON is not the bus's:\n" + told + "\n" + bus::to_json(*value);
  if (bridge::first_bad_utf8(told) != told.npos) return "JSON that is no UTF-8";
  if (told.size() <= bridge::most_message_bytes &&
      told.find(replaced) == told.npos) {  // U+FFFD is longer than what it stands for: a bound may not hold it
    std::vector<std::byte> back;
    std::string again;
    if (auto read = bridge::payload_of_json(*type, told, back); !read)
      return "what the bridge writes it refuses: " + read.error().what + "\n" + told;
    bridge::append_json(*type, back, again);
    if (again != told) return "a sample changes on its way there and back:\n" + told + "\n" + again;
  }
  std::string key;
  bridge::append_key(*type, payload, key);
  if (key.empty() == bus::has_key(*type)) return "a key is there that is none, or not there";
  wrong = carried("sonde/TOPIC/" + key, told);
  bridge::examon(*type, payload, 0, "org", "c", [&](std::string_view topic, std::string_view text) {
    if (wrong.empty()) wrong = carried(topic, text);
  });
  bridge::Sparkplug node("g", "n");
  const auto send = [&](bridge::Sparkplug::Kind, std::string_view topic, std::string_view message) {
    if (wrong.empty()) wrong = carried(topic, "");
    if (wrong.empty() && !sparkplug(message, false))
      wrong = "Sparkplug's message is none, or has a text that is no UTF-8: " + std::string(topic);
  };
  node.birth(1, 1, send);
  for (int twice = 0; twice < 2; ++twice) node.data("T", *type, payload, 2, send);
  return wrong;
}

std::string judge_command(std::string_view protobuf) {
  const bridge::Sparkplug node("g", "n");
  const bool asks = node.asks_rebirth(protobuf);
  if (node.asks_rebirth(protobuf) != asks) return "the same command is judged differently";
  if (!node.asks_rebirth(std::string(rebirth).append(protobuf))) return "what follows a request for a rebirth hides it";
  if (sparkplug(protobuf, false) && !node.asks_rebirth(std::string(protobuf).append(rebirth)))
    return "what precedes a request for a rebirth hides it";
  return "";
}

std::string judge_level(std::string_view level) {
  std::string text, written, back;
  bridge::append_level(level, written);
  if (auto wrong = carried(written, ""); !wrong.empty()) return wrong;
  if (written.find('/') != written.npos) return "one level became two";
  if (!bridge::level_text(written, back) || back != level) return "a level changes on its way there and back";
  if (!bridge::level_text(level, text)) return "";
  written.clear();
  bridge::append_level(text, written);
  return bridge::level_text(written, back) && back == text ? "" : "a level's text changes on its way there and back";
}

std::string judge(std::string_view input) {
  if (input.size() < 2) return "";
  const auto what = static_cast<What>(static_cast<unsigned char>(input[0]) % 5);
  const bus::TypePtr& type = types()[static_cast<unsigned char>(input[1]) % types().size()];
  input.remove_prefix(2);
  switch (what) {
    case What::config: return judge_config(input);
    case What::json: return judge_json(type, input);
    case What::sample: return judge_sample(type, std::as_bytes(std::span(input)));
    case What::command: return judge_command(input);
    case What::level: return judge_level(input);
  }
  return "";
}

std::string input_of(const Input& input) {
  return std::string{static_cast<char>(input.what), static_cast<char>(input.type)} + input.text;
}

std::vector<Input> seeds() {
  std::vector<Input> out;
  std::string toml, section;
  for (const auto& key : config_keys()) {
    if (key.section != section) {
      section = key.section;
      const bool table = section == "nodes" || section == "node-manager.hardware" || section == "job-scheduler.queues";
      toml += (table ? "[[" : "[") + (section == "racks.NAME" ? "racks.r1" : section) + (table ? "]]\n" : "]\n");
    }
    std::string value = key.default_value;
    const bool plain = key.type == "integer" || key.type == "number" || key.type == "true or false";
    if (key.key == "hosts") value = "n[1-3]";
    else if (key.key == "min") value = "50W";
    else if (key.key == "max") value = "0.4kW";
    else if (key.key == "kind" && section == "node-manager.hardware") value = "simulated";
    else if (key.key == "rack") value = "r1";
    else if (section == "job-scheduler.queues" && key.key == "name") value = "fast";
    else if (key.type == "power") value = value.empty() ? "1 kW" : value;
    if (key.key == "safe") value = "60";
    if (key.type == "list of texts") toml += key.key + " = [\"a*\", '!b']\n";
    else if (!value.empty()) toml += key.key + " = " + (plain ? value : "\"" + value + "\"") + "\n";
  }
  // Not both of a pair of which one is without default.
  out.push_back({What::config, 0, toml});
  out.push_back({What::config, 0,
                 "cluster = 'x'\nbudget = { power_limit = 5e3, lease = 15 }\nnodes = [ { hosts = 'a,b[01-02]', min = "
                 "1_0, max = 0x64 } ]\n"
                 "[[node-manager.hardware]] # c\nkind = \"\"\"powercap\"\"\"\nroot = \"/sys\\u0041\"\n[racks]\n\"r "
                 "1\".cooling = inf\n"});
  for (std::uint8_t k = 0; k < types().size(); ++k) {
    const bus::Type& type = *types()[k];
    std::vector<std::byte> payload;
    std::string text;
    if (!bus::encode(type, {}, payload)) continue;
    // Elements in every list: one each, as they are when nothing is said.
    bridge::append_json(type, payload, text);
    for (const auto& field : type.fields) {
      const std::string empty = "\"" + field.name + "\":[]";
      if (const auto at = text.find(empty); at != text.npos && field.type->element) {
        const bus::Kind kind = field.type->element->kind;
        const char* one = kind == bus::Kind::structure ? "[{},{}]"
                          : kind == bus::Kind::string  ? "[\"a\",\"\xc3\xa9\\n\"]"
                          : kind == bus::Kind::boolean ? "[true,false]"
                          : kind == bus::Kind::float64 ? "[1.5,null]"
                                                       : "[[],[]]";
        text.replace(at + empty.size() - 2, 2, one);
      }
    }
    if (!bridge::payload_of_json(type, text, payload)) continue;
    text.clear();
    bridge::append_json(type, payload, text);
    out.push_back({What::json, k, text});
    out.push_back({What::sample, k, std::string(reinterpret_cast<const char*>(payload.data()), payload.size())});
  }
  out.push_back({What::command, 0, std::string(rebirth)});
  out.push_back({What::command, 0, std::string("\x08\x05\x12\x02\x10\x00\x18\x01", 8) + std::string(rebirth)});
  out.push_back({What::level, 0, "r1%2Fn\xc3\xa9"});
  return out;
}

Tally attack(std::uint64_t mutations, std::uint64_t random_seed) {
  static constexpr std::array<std::string_view, 44> json_words{"{",
                                                               "}",
                                                               "[",
                                                               "]",
                                                               ",",
                                                               ":",
                                                               "\"",
                                                               "null",
                                                               "true",
                                                               "false",
                                                               "0",
                                                               "-0",
                                                               "-1",
                                                               "1e999",
                                                               "1e-999",
                                                               "18446744073709551615",
                                                               "18446744073709551616",
                                                               "-9223372036854775808",
                                                               "0.5",
                                                               "1.",
                                                               "01",
                                                               "\"base64:",
                                                               "AA==",
                                                               "=",
                                                               "\\u0000",
                                                               "\\ud83d\\ude00",
                                                               "\\ud800",
                                                               "\\udc00",
                                                               "\\",
                                                               "\\n",
                                                               "\xc3\xa9",
                                                               "\xff",
                                                               "\xf4\x8f\xbf\xbf",
                                                               "\xed\xa0\x80",
                                                               "\"name\":",
                                                               "\"ask\":",
                                                               "\"cap_w\":",
                                                               "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
                                                               " ",
                                                               "\n",
                                                               "\"RED\"",
                                                               "\"SHED\"",
                                                               "{\"name\":\"\"}",
                                                               "\t"};
  static constexpr std::array<std::string_view, 44> toml_words{"[",
                                                               "]",
                                                               "[[",
                                                               "]]",
                                                               "=",
                                                               "\"",
                                                               "'",
                                                               "\"\"\"",
                                                               "'''",
                                                               "{",
                                                               "}",
                                                               ",",
                                                               ".",
                                                               "\n",
                                                               "#",
                                                               "0x",
                                                               "1e9",
                                                               "inf",
                                                               "nan",
                                                               "-",
                                                               "9223372036854775807",
                                                               "9007199254740993",
                                                               "-9223372036854775808",
                                                               "1979-05-27T07:32:00Z",
                                                               "07:32:00",
                                                               "true",
                                                               "\\u0000",
                                                               "\\U0010FFFF",
                                                               "\xff",
                                                               "\r\n",
                                                               "nodes",
                                                               "hosts",
                                                               "[budget]",
                                                               "[[nodes]]",
                                                               "n[1-65536]",
                                                               "n[1-999999999999]",
                                                               "kW",
                                                               "1e400",
                                                               "_",
                                                               "[[[",
                                                               "\xef\xbb\xbf",
                                                               "racks.",
                                                               "power_limit = 1",
                                                               "\t"};
  static constexpr std::array<std::string_view, 8> level_words{"%", "%2F", "%ff", "%FF", "/", "+", "#", "\xff"};
  const auto from = seeds();
  std::mt19937_64 random(random_seed);
  Tally tally;
  for (std::uint64_t k = 0; k < mutations && tally.wrong.empty(); ++k) {
    Input input = from[random() % from.size()];
    const bool bytes = input.what == What::sample || input.what == What::command;
    if (bytes) {
      std::vector<std::byte> payload(input.text.size());
      std::memcpy(payload.data(), input.text.data(), payload.size());
      bus::fuzz::spoil(random, payload);
      input.text.assign(reinterpret_cast<const char*>(payload.data()), payload.size());
    } else {
      spoil_text(random, input.text,
                 input.what == What::json     ? std::span<const std::string_view>(json_words)
                 : input.what == What::config ? std::span<const std::string_view>(toml_words)
                                              : std::span<const std::string_view>(level_words));
    }
    if (random() % 16 == 0) input.type = static_cast<std::uint8_t>(random() % types().size());
    tally.input = input_of(input);
    tally.wrong = judge(tally.input);
    ++tally.inputs;
    std::vector<std::byte> payload;
    tally.sound +=
        input.what == What::config ? bool(parse_config(input.text))
        : input.what == What::json
            ? bool(bridge::payload_of_json(*types()[input.type], input.text, payload))
            : input.what == What::sample && bus::verify(*types()[input.type], std::as_bytes(std::span(input.text)));
  }
  if (tally.wrong.empty()) tally.input.clear();
  return tally;
}

}  // namespace sonde::power::fuzz
