#include "bus/probe/options.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

#include "bus/probe/message.hpp"
#include "core/nearest.hpp"
#include "core/number.hpp"
#include "core/units.hpp"

namespace sonde::bus::probe {

namespace {

constexpr std::string_view tests[] = {"latency", "fanout", "throughput", "partitions", "discovery", "first", "calls"};
constexpr std::size_t ring_bytes = 4u << 20;  ///< a ring of raw-shm holds two of these
constexpr std::uint32_t most_processes = 8;

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  for (;;) {
    const auto at = text.find(by);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

bool among(const std::string& list, std::string_view word) {
  const auto words = split(list, '+');
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool to_time(const std::string& text, double& out) {
  const auto value = parse_duration(text);
  if (value) out = *value;
  return bool(value);
}

bool to_size(const std::string& text, std::uint64_t most, std::uint64_t& out) {
  const auto value = parse_size(text);
  if (value) out = *value;
  return value && out <= most;
}

template <typename E>
bool choose(const std::string& word, std::initializer_list<std::pair<std::string_view, E>> known, E& out) {
  for (const auto& [name, value] : known)
    if (word == name) {
      out = value;
      return true;
    }
  return false;
}

bool only_tests(const std::string& list) {
  for (const auto& word : split(list, '+'))
    if (std::find(std::begin(tests), std::end(tests), word) == std::end(tests)) return false;
  return true;
}

/// The value of an option: its parser, and the allowed values for the error message.
struct Key {
  std::function<bool(const std::string&)> take;
  std::string allowed;
};

/// Parses "key=value" words. Returns the error of the first wrong one; empty: no error.
std::string take_all(const std::vector<std::string>& words, const std::map<std::string, Key>& keys) {
  std::vector<std::string> names;
  for (const auto& [name, key] : keys) names.push_back(name);
  for (const auto& word : words) {
    const auto eq = word.find('=');
    const std::string name = word.substr(0, eq), value = eq == std::string::npos ? "" : word.substr(eq + 1);
    const auto it = keys.find(name);
    if (it == keys.end()) return "unknown key '" + name + "'" + nearest(name, names);
    if (value.empty() || !it->second.take(value))
      return "'" + word + "': allowed for " + name + ": " + it->second.allowed;
  }
  return "";
}

}  // namespace

std::string_view name_of(Test test) { return tests[static_cast<std::size_t>(test)]; }

std::string_view name_of(DiscoveryKind kind) {
  switch (kind) {
    case DiscoveryKind::simple: return "simple";
    case DiscoveryKind::peers: return "peers";
    case DiscoveryKind::server: return "server";
  }
  return "";
}

std::string Variant::transport_name() const {
  const std::string many = transport.multicast == Multicast::all ? "-multicast" : "";
  switch (transport.kind) {
    case TransportKind::udp4: return "udp4" + many;
    case TransportKind::udp6: return "udp6" + many;
    case TransportKind::tcp4: return "tcp4";
    case TransportKind::shared_memory: return "shared-memory";
  }
  return "";
}

std::string Variant::excludes(const Case& what, bool across) const {
  const std::string test(name_of(what.test));
  if (!only.empty() && !among(only, test)) return "the variant is limited to " + only;
  if (!without.empty() && among(without, test)) return "the variant excludes " + test;
  if (!profile.empty() && what.test == Test::partitions && what.has("domain")) return "the profile sets its domain";
  if (across && transport.kind == TransportKind::shared_memory) return "shared memory does not leave a host";
  if (across && what.test == Test::fanout)
    return "its subscribers use shared memory to confirm a message to the writer, so all are on one host";
  if (!raw()) return "";
  if (what.test == Test::partitions || what.test == Test::discovery || what.test == Test::calls)
    return "a raw transport has no " + test;
  if (implementation == "raw-udp" && what.size > most_datagram_bytes)
    return "a datagram has at most " + format_size(most_datagram_bytes) + ", and raw UDP does not split messages";
  if (implementation == "raw-shm" && what.size > ring_bytes) return "its ring holds " + format_size(ring_bytes);
  for (const char* word : {"warm-other-topic", "warm-same-participant-new-writer"})
    if (what.has(word)) return "a raw transport has no topics and writers";
  return "";
}

Result<Variant> Variant::parse(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    return Error{
        "bus.bad_variant", "'" + std::string(text) + "' is not a variant: " + why,
        "write NAME=IMPLEMENTATION[,KEY=VALUE]…, such as udp=cyclonedds,multicast=all; keys: sonde-busprobe --help"};
  };
  Variant v;
  v.text = text;
  const auto eq = text.find('=');
  v.name = text.substr(0, eq);
  auto words = split(eq == std::string_view::npos ? text : text.substr(eq + 1), ',');
  v.implementation = words.front();
  words.erase(words.begin());
  for (const auto& word : words) v.options += (v.options.empty() ? "" : ",") + word;
  if (v.name.empty() || v.implementation.empty()) return bad("a name and an implementation are needed");

  std::uint64_t bytes = 0;
  constexpr std::uint64_t most = 1u << 30;
  const std::map<std::string, Key> keys{
      {"transport",
       {[&](const std::string& s) {
          return choose(s,
                        {{"udp4", TransportKind::udp4},
                         {"udp6", TransportKind::udp6},
                         {"tcp4", TransportKind::tcp4},
                         {"shared-memory", TransportKind::shared_memory}},
                        v.transport.kind);
        },
        "udp4, udp6, tcp4 or shared-memory"}},
      {"multicast",
       {[&](const std::string& s) {
          return choose(s, {{"none", Multicast::none}, {"discovery", Multicast::discovery}, {"all", Multicast::all}},
                        v.transport.multicast);
        },
        "none, discovery or all"}},
      {"discovery",
       {[&](const std::string& s) {
          return choose(
              s,
              {{"simple", DiscoveryKind::simple}, {"peers", DiscoveryKind::peers}, {"server", DiscoveryKind::server}},
              v.discovery.kind);
        },
        "simple, peers or server"}},
      {"announce", {[&](const std::string& s) { return to_time(s, v.discovery.announce_s); }, "a time, such as 500ms"}},
      {"batch", {[&](const std::string& s) { return to_time(s, v.batch_s); }, "a time, such as 50us"}},
      {"spin",
       {[&](const std::string& s) {
          if (s != "auto" && s != "never") return to_time(s, v.spin_s) && v.spin_s <= 0.01;
          v.spin_s = s == "auto" ? -1 : 0;
          return true;
        },
        "auto, never, or a time up to 10ms"}},
      {"security",
       {[&](const std::string& s) {
          v.security = s;
          return true;
        },
        "a folder"}},
      {"identity",
       {[&](const std::string& s) {
          v.identity = s;
          return true;
        },
        "an identity in the folder"}},
      {"receive-buffer",
       {[&](const std::string& s) {
          return to_size(s, most, bytes) && (v.transport.receive_buffer_bytes = bytes, true);
        },
        "a size up to 1 GiB"}},
      {"send-buffer",
       {[&](const std::string& s) { return to_size(s, most, bytes) && (v.transport.send_buffer_bytes = bytes, true); },
        "a size up to 1 GiB"}},
      {"interfaces",
       {[&](const std::string& s) {
          v.transport.interfaces = split(s, '+');
          return true;
        },
        "names, addresses or networks, separated by '+'"}},
      {"unprotected",
       {[&](const std::string& s) { return choose(s, {{"yes", true}, {"no", false}}, v.unprotected); }, "yes or no"}},
      {"profile",
       {[&](const std::string& s) {
          const auto hash = s.rfind('#');
          v.profile = s.substr(0, hash);
          v.profile_name = hash == std::string::npos ? "" : s.substr(hash + 1);
          return !v.profile.empty();
        },
        "a file, or FILE#NAME"}},
      {"only",
       {[&](const std::string& s) {
          v.only = s;
          return only_tests(s);
        },
        "names of tests, separated by '+'"}},
      {"without",
       {[&](const std::string& s) {
          v.without = s;
          return only_tests(s);
        },
        "names of tests, separated by '+'"}},
  };
  if (const auto why = take_all(words, keys); !why.empty()) return bad(why);
  if (v.raw()) {
    if (!choose(v.implementation,
                {{"raw-udp", TransportKind::udp4},
                 {"raw-tcp", TransportKind::tcp4},
                 {"raw-shm", TransportKind::shared_memory}},
                v.transport.kind))
      return bad("the raw transports are raw-udp, raw-tcp and raw-shm");
    for (const auto& word : words)
      if (!word.starts_with("receive-buffer=") && !word.starts_with("send-buffer=") &&
          !word.starts_with("unprotected=") && !word.starts_with("only=") && !word.starts_with("without="))
        return bad("a limit of the machine takes receive-buffer, send-buffer, unprotected, only and without");
  }
  if (v.security.empty() &&
      std::any_of(words.begin(), words.end(), [](const auto& word) { return word.starts_with("identity="); }))
    return bad("identity needs security=, the folder that contains it");
  if (!v.profile.empty())
    for (const auto& word : words)
      if (!word.starts_with("profile=") && !word.starts_with("batch=") && !word.starts_with("only=") &&
          !word.starts_with("without="))
        return bad("with a profile, " + word.substr(0, word.find('=')) + " is the profile's to say");
  return v;
}

bool Case::has(std::string_view word) const {
  return std::find(treatment.begin(), treatment.end(), word) != treatment.end();
}

std::int64_t Case::shown_size() const { return test == Test::discovery ? -1 : static_cast<std::int64_t>(size); }
std::int64_t Case::shown_subscribers() const {
  return test == Test::fanout || test == Test::throughput ? std::int64_t{subscribers} : -1;
}
std::int64_t Case::shown_entities() const {
  switch (test) {
    case Test::discovery: return entities;
    case Test::partitions: return count;
    case Test::calls: return clients;
    default: return -1;
  }
}

std::int64_t Case::shown_processes() const {
  return test == Test::latency || test == Test::partitions || test == Test::first ? -1 : std::int64_t{processes};
}

std::string Case::shown_treatment() const {
  std::string shown;
  for (const auto& word : treatment)
    shown += (shown.empty() ? "" : "+") + word + (word == "pause" && pause != Case{}.pause ? "=" + pause : "");
  if (test == Test::latency && reliability == Reliability::best_effort) shown = "best-effort";
  if (test == Test::first && reliability == Reliability::best_effort) shown += "+best-effort";
  if (test == Test::fanout || test == Test::throughput)
    shown = reliability == Reliability::reliable ? "reliable" : "best-effort";
  return shown;
}

std::vector<Q> Case::gives() const {
  switch (test) {
    case Test::latency: return {Q::rtt, Q::publish, Q::one_way, Q::cycles, Q::instructions, Q::lost};
    case Test::fanout: return {Q::publish, Q::one_way, Q::cycles, Q::instructions, Q::first, Q::last, Q::lost};
    case Test::throughput:
      return {Q::message_rate, Q::byte_rate, Q::publish_rate, Q::lost, Q::refused, Q::overflowed, Q::cpu};
    case Test::partitions: return {Q::rtt, Q::publish, Q::one_way, Q::cycles, Q::instructions, Q::lost};
    case Test::discovery:
      return {Q::datagrams,          Q::wire_bytes, Q::cpu,         Q::time_to_match,     Q::matched,
              Q::steady_datagrams,   Q::make,       Q::make_cycles, Q::make_instructions, Q::overflowed,
              Q::datagrams_unmatched};
    case Test::first:
      if (early())
        return {Q::rtt,         Q::publish,          Q::one_way, Q::cycles, Q::instructions,
                Q::page_faults, Q::context_switches, Q::lost,    Q::early};
      return {Q::rtt, Q::publish, Q::one_way, Q::cycles, Q::instructions, Q::page_faults, Q::context_switches, Q::lost};
    case Test::calls: return {Q::rtt, Q::lost, Q::mismatched, Q::retried, Q::call_rate};
  }
  return {};
}

std::vector<Q> Case::deciding() const {
  switch (test) {
    case Test::latency:
    case Test::partitions: return {Q::rtt, Q::publish};
    case Test::fanout: return {Q::publish, Q::last};
    case Test::throughput: return {Q::message_rate};
    case Test::discovery: return {Q::datagrams, Q::time_to_match};
    case Test::first:
    case Test::calls: return {Q::rtt};
  }
  return {};
}

Result<Case> Case::parse(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    return Error{"bus.bad_case", "'" + std::string(text) + "' is not a case: " + why,
                 "write TEST[:KEY=VALUE,…], such as latency:size=1KiB; tests and keys: sonde-busprobe --help"};
  };
  Case c;
  c.text = text;
  const auto colon = text.find(':');
  const std::string name(text.substr(0, colon));
  const auto* const known = std::find(std::begin(tests), std::end(tests), name);
  if (known == std::end(tests))
    return bad("unknown test '" + name + "'" + nearest(name, {std::begin(tests), std::end(tests)}));
  c.test = static_cast<Test>(known - std::begin(tests));
  const auto rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);

  if (c.test == Test::throughput) c.size = 1024;
  if (c.test == Test::discovery) c.entities = 8;
  const auto whole = [](std::uint32_t& into, std::uint32_t least, std::uint32_t most) {
    return Key{[&into, least, most](const std::string& s) { return number(s, into) && into >= least && into <= most; },
               "a whole number from " + std::to_string(least) + " to " + std::to_string(most)};
  };
  const auto time = [](double& into, double most) {
    return Key{[&into, most](const std::string& s) { return to_time(s, into) && into <= most; },
               "a time up to " + format_duration(most)};
  };
  const Key size{[&](const std::string& s) {
                   std::uint64_t bytes = 0;
                   const bool ok = to_size(s, most_sample_bytes, bytes) && bytes >= least_sample_bytes;
                   c.size = bytes;
                   return ok;
                 },
                 "from " + format_size(least_sample_bytes) + " to " + format_size(most_sample_bytes)};
  const Key reliability{[&](const std::string& s) {
                          return choose(
                              s, {{"reliable", Reliability::reliable}, {"best-effort", Reliability::best_effort}},
                              c.reliability);
                        },
                        "reliable or best-effort"};
  const auto treatments = [&](std::vector<std::string> words) {
    std::string allowed;
    for (const auto& word : words) allowed += (allowed.empty() ? "" : ", ") + word;
    return Key{[&c, words](const std::string& s) {
                 c.treatment = split(s, '+');
                 return std::all_of(c.treatment.begin(), c.treatment.end(), [&](const auto& w) {
                   return std::find(words.begin(), words.end(), w) != words.end();
                 });
               },
               "of " + allowed};
  };

  const Key processes = whole(c.processes, 1, 256);
  std::map<std::string, Key> keys;
  if (c.test != Test::discovery) keys.emplace("size", size);
  switch (c.test) {
    case Test::latency: keys.emplace("reliability", reliability); break;
    case Test::fanout:
    case Test::throughput:
      keys.emplace("subscribers", whole(c.subscribers, 1, 256));
      keys.emplace("processes", processes);
      keys.emplace("reliability", reliability);
      break;
    case Test::partitions:
      keys.emplace("treatment", treatments({"domain", "topic", "partition", "wildcard"}));
      keys.emplace("count", whole(c.count, 1, 1024));
      break;
    case Test::discovery:
      keys.emplace("entities", whole(c.entities, 1, 256));
      keys.emplace("processes", processes);
      keys.emplace("treatment", treatments({"star", "all"}));
      keys.emplace("stagger", time(c.stagger_s, 10));
      keys.emplace("steady", time(c.steady_s, 600));
      keys.emplace("within", time(c.within_s, 600));
      break;
    case Test::first:
      keys.emplace("treatment",
                   treatments({"steady", "first-ever", "pause", "warm-other-topic", "warm-same-participant-new-writer",
                               "prefaulted", "after-lookup", "spinning-subscriber", "awake-cores"}));
      keys.emplace("pause", Key{[&c](const std::string& s) {
                                  c.pause = s;
                                  return to_time(s, c.pause_s) && c.pause_s <= 60;
                                },
                                "a time up to 60 s"});
      keys.emplace("reliability", reliability);
      break;
    case Test::calls:
      keys.emplace("clients", whole(c.clients, 1, 1000));
      keys.emplace("calls", whole(c.calls, 1, 1000000));
      keys.emplace("processes", processes);
      break;
  }
  if (!rest.empty())
    if (const auto why = take_all(split(rest, ','), keys); !why.empty()) return bad(why);

  if (c.test == Test::partitions || c.test == Test::discovery) {
    if (c.treatment.empty()) c.treatment = {c.test == Test::partitions ? "topic" : "star"};
    if (c.treatment.size() > 1) return bad("one treatment at a time");
  }
  if (c.test == Test::first) {
    static const std::vector<std::string> bases{"steady", "first-ever", "pause", "warm-other-topic",
                                                "warm-same-participant-new-writer"};
    const auto base = std::count_if(bases.begin(), bases.end(), [&](const auto& w) { return c.has(w); });
    if (base > 1)
      return bad(
          "steady, first-ever, pause, warm-other-topic and warm-same-participant-new-writer: only one at a time");
    if (c.treatment.empty()) c.treatment = {"first-ever"};
  }
  const std::uint32_t many = c.test == Test::discovery ? c.entities : c.test == Test::calls ? c.clients : c.subscribers;
  if (c.processes > many) return bad("more processes than participants or threads in them, " + std::to_string(many));
  if (c.processes == 0) c.processes = c.test == Test::discovery ? many : std::min(many, most_processes);
  return c;
}

Result<Options> Options::parse(const std::vector<std::string>& args, bool to_measure) {
  Options o;
  Error deeper;
  using Take = std::function<bool(const std::string&)>;
  const auto into = [](auto& target) { return Take([&target](const std::string& v) { return number(v, target); }); };
  const auto take = [&deeper](auto&& parsed, auto& list) {
    if (parsed) list.push_back(*parsed);
    else deeper = parsed.error();
    return bool(parsed);
  };
  const std::map<std::string, Take> known{
      {"--dir",
       [&](const std::string& v) {
         o.dir = v;
         return !v.empty();
       }},
      {"--variant", [&](const std::string& v) { return take(Variant::parse(v), o.variants); }},
      {"--case", [&](const std::string& v) { return take(Case::parse(v), o.cases); }},
      {"--rule",
       [&](const std::string& v) {
         o.rule = v;
         return !v.empty();
       }},
      {"--host",
       [&](const std::string& v) {
         const bool other = std::none_of(o.hosts.begin(), o.hosts.end(), [&](const Host& h) { return h.name == v; });
         o.hosts.push_back({v, {}});
         return !v.empty() && other;
       }},
      {"--start",
       [&](const std::string& v) {
         if (!o.hosts.empty()) o.hosts.back().start.push_back(v);
         return !o.hosts.empty();
       }},
      {"--interfaces",
       [&](const std::string& v) {
         o.interfaces = split(v, ',');
         return !v.empty();
       }},
      {"--namespace",
       [&](const std::string& v) { return choose(v, {{"auto", true}, {"no", false}}, o.own_namespace); }},
      {"--domains",
       [&](const std::string& v) {
         const auto dash = v.find('-');
         return number(v.substr(0, dash), o.domain_first) &&
                number(dash == std::string::npos ? v : v.substr(dash + 1), o.domain_last) &&
                o.domain_first <= o.domain_last && o.domain_last <= 232;
       }},
      {"--domain",
       [&](const std::string& v) {
         o.domain_last = 0;
         return number(v, o.domain_first) && (o.domain_last = o.domain_first) <= 232;
       }},
      {"--seconds", into(o.seconds)},
      {"--seed", into(o.seed)},
      {"--cap", into(o.cap)},
      {"--cap-bytes", into(o.cap_bytes)},
      {"--epochs", into(o.epochs)},
      {"--epoch-length", into(o.epoch_length)},
      {"--alive", into(o.alive)},
      {"--budget-s", into(o.budget_s)},
      {"--burst-s", into(o.burst_s)},
      {"--gap-s", into(o.gap_s)},
  };
  std::vector<std::string> names;
  for (const auto& [name, how] : known) names.push_back(name);
  for (std::size_t k = 0; k < args.size(); k += 2) {
    const auto it = known.find(args[k]);
    if (it == known.end())
      return Error{"bus.bad_option", "sonde-busprobe does not know '" + args[k] + "'" + nearest(args[k], names),
                   "sonde-busprobe --help lists its options"};
    if (k + 1 == args.size() || !it->second(args[k + 1])) {
      if (!deeper.code.empty()) return deeper;
      return Error{
          "bus.bad_option",
          "sonde-busprobe does not understand '" + args[k] + (k + 1 < args.size() ? " " + args[k + 1] : "") + "'",
          "sonde-busprobe --help lists its options"};
    }
  }
  if (to_measure && (o.dir.empty() || o.variants.empty() || o.cases.empty()))
    return Error{"bus.bad_option", "sonde-busprobe run needs --dir, --variant and --case",
                 "sonde-busprobe --help lists its options"};
  if (o.epoch_length < 1 || o.epoch_length > 100000 || !(o.burst_s > 0) || !(o.budget_s >= 0) ||
      !std::isfinite(o.budget_s) || !(o.gap_s >= 0) || !(o.seconds >= 0 && o.seconds <= 3600))
    return Error{
        "bus.bad_option",
        "epoch length is 1 to 100000 samples, burst a positive time, budget and gap times from 0 on, seconds 0 to 3600",
        ""};
  for (std::size_t k = 0; k < o.variants.size(); ++k)
    for (std::size_t j = 0; j < k; ++j)
      if (o.variants[k].name == o.variants[j].name)
        return Error{"bus.bad_variant", "two variants have the name '" + o.variants[k].name + "'",
                     "give each variant its own name"};
  for (std::size_t k = 0; k < o.cases.size(); ++k)
    for (std::size_t j = 0; j < k; ++j)
      if (o.cases[k].text == o.cases[j].text)
        return Error{"bus.bad_case", "the case '" + o.cases[k].text + "' is given twice", "leave one out"};
  return o;
}

}  // namespace sonde::bus::probe
