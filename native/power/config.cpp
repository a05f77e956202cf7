// One table of keys for each section, so that the parser, config_keys() and to_json() always agree.
// Long because: one table of keys for each section, from which parsing, checks and output come.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
// One of 3.3's assertions fails on "[[[", although the code after it reports the error properly. Without NDEBUG it
// would abort; with NDEBUG the compiler may assume it to be true.
#undef NDEBUG
#define TOML_ASSERT(expression) static_cast<void>(0)
#include "power/config.hpp"

#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <type_traits>
#include <utility>

#include "core/hostlist.hpp"
#include "core/json.hpp"
#include "core/nearest.hpp"
#include "core/number.hpp"
#include "core/units.hpp"
#include "power/policy.hpp"

namespace sonde::power {

namespace {

constexpr std::size_t most_bytes = 4u << 20;
constexpr double most_power_w = 1e9, year_s = 366 * 86400.0;

struct Context {
  std::string file;              ///< for error messages
  std::filesystem::path folder;  ///< the file's folder, to which its paths are relative

  std::string at(const toml::source_region& region) const {
    return (file.empty() ? std::string("power.toml") : file) + ":" + std::to_string(region.begin.line) + ": ";
  }
};

/// The fault of a value, without place and key.
using Read = std::optional<std::string>;

std::string exact(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}

/// "15s", "7d", "500ms": exact, in the form that people write.
std::string short_duration(double s) {
  for (const auto& [unit, name] : {std::pair{86400.0, "d"}, {3600.0, "h"}, {60.0, "min"}})
    if (s >= unit && std::fmod(s, unit) == 0) return exact(s / unit) + name;
  return s > 0 && s < 1 ? exact(s * 1e3) + "ms" : exact(s) + "s";
}

std::string list_of(const std::vector<std::string>& words, const char* between = ", ") {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

std::string shown(const toml::node& node) {
  if (const auto s = node.value<std::string>(); s && node.is_string()) return std::string("'").append(*s).append("'");
  if (const auto b = node.value<bool>(); b && node.is_boolean()) return *b ? "true" : "false";
  if (const auto i = node.value<std::int64_t>(); i && node.is_integer()) return std::to_string(*i);
  if (const auto d = node.value<double>(); d && node.is_number()) return exact(*d);
  return node.is_array() ? "a list" : node.is_table() ? "a table" : "a date or time";
}

template <typename S> struct Key {
  std::string name, field, type, what;
  std::function<Read(S&, const toml::node&, const Context&)> read;
  std::function<std::string(const S&)> text, json;
};

std::string plain(double value) { return std::isfinite(value) ? exact(value) : ""; }

/// A quantity with a unit: a plain number is in SI units.
template <typename S, typename M>
Key<S> quantity(const char* name, const char* field, const char* type, M member, double low, double high,
                Result<double> (*parse)(std::string_view), std::string (*format)(double), const char* unit,
                const char* what) {
  const auto wrong = [=](const toml::node& node) {
    return "is " + shown(node) + "; allowed: a number of " + unit + " or a text like \"" +
           (std::string_view(unit) == "W" ? "1.2kW" : "15s") + "\", from " + format(low) + " to " + format(high);
  };
  return {name,
          field,
          type,
          what,
          [=](S& s, const toml::node& node, const Context&) -> Read {
            double value = 0;
            if (node.is_string()) {
              const auto parsed = parse(*node.value<std::string_view>());
              if (!parsed) return wrong(node);
              value = *parsed;
            } else if (const auto bare = node.is_number() ? node.value<double>()
                                                          : std::nullopt) {  // no default for integers above 2^53
              value = *bare;
            } else {
              return wrong(node);
            }
            if (!(value >= low && value <= high)) return wrong(node);
            std::invoke(member, s) = value;
            return {};
          },
          [=](const S& s) {
            return std::isfinite(std::invoke(member, s)) ? format(std::invoke(member, s)) : std::string();
          },
          [=](const S& s) { return exact(std::invoke(member, s)); }};
}

template <typename S, typename M>
Key<S> power(const char* name, const char* field, M member, const char* what, double low = 0,
             double high = most_power_w) {
  return quantity<S>(name, field, "power", member, low, high, parse_power, format_power, "W", what);
}

template <typename S, typename M>
Key<S> duration(const char* name, const char* field, M member, const char* what, double low, double high) {
  return quantity<S>(name, field, "duration", member, low, high, parse_duration, short_duration, "s", what);
}

template <typename S, typename M>
Key<S> number(const char* name, const char* field, M member, const char* what, double low, double high) {
  return {name,
          field,
          "number",
          what,
          [=](S& s, const toml::node& node, const Context&) -> Read {
            const auto value = node.is_number() ? node.value<double>() : std::nullopt;
            if (!value || !(*value >= low && *value <= high))
              return "is " + shown(node) + "; allowed: a number from " + exact(low) + " to " + exact(high);
            std::invoke(member, s) = *value;
            return {};
          },
          [=](const S& s) { return plain(std::invoke(member, s)); },
          [=](const S& s) { return exact(std::invoke(member, s)); }};
}

template <typename S, typename M>
Key<S> integer(const char* name, const char* field, M member, const char* what, std::int64_t low, std::int64_t high) {
  return {name,
          field,
          "integer",
          what,
          [=](S& s, const toml::node& node, const Context&) -> Read {
            const auto value = node.is_integer() ? node.value<std::int64_t>() : std::nullopt;
            if (!value || *value < low || *value > high)
              return "is " + shown(node) + "; allowed: a whole number from " + std::to_string(low) + " to " +
                     std::to_string(high);
            auto& to = std::invoke(member, s);
            to = static_cast<std::remove_reference_t<decltype(to)>>(*value);
            return {};
          },
          [=](const S& s) { return std::to_string(std::invoke(member, s)); },
          [=](const S& s) { return std::to_string(std::invoke(member, s)); }};
}

template <typename S, typename M>
Key<S> size(const char* name, const char* field, M member, const char* what, std::uint64_t low) {
  const auto wrong = [=](const toml::node& node) {
    return "is " + shown(node) + "; allowed: a number of bytes or a text like \"64MiB\", from " +
           format_size(low, true) + " on";
  };
  return {name,
          field,
          "size",
          what,
          [=](S& s, const toml::node& node, const Context&) -> Read {
            std::uint64_t value = 0;
            if (node.is_string()) {
              const auto parsed = parse_size(*node.value<std::string_view>());
              if (!parsed) return wrong(node);
              value = *parsed;
            } else if (node.is_integer() && *node.value<std::int64_t>() >= 0) {
              value = static_cast<std::uint64_t>(*node.value<std::int64_t>());
            } else {
              return wrong(node);
            }
            if (value < low) return wrong(node);
            std::invoke(member, s) = value;
            return {};
          },
          [=](const S& s) { return format_size(std::invoke(member, s), true); },
          [=](const S& s) { return std::to_string(std::invoke(member, s)); }};
}

template <typename S, typename M> Key<S> flag(const char* name, const char* field, M member, const char* what) {
  return {name,
          field,
          "true or false",
          what,
          [=](S& s, const toml::node& node, const Context&) -> Read {
            if (!node.is_boolean()) return "is " + shown(node) + "; allowed: true, false";
            std::invoke(member, s) = *node.value<bool>();
            return {};
          },
          [=](const S& s) { return std::string(std::invoke(member, s) ? "true" : "false"); },
          [=](const S& s) { return std::string(std::invoke(member, s) ? "true" : "false"); }};
}

/// A text of at most `most` characters, without control characters. Names travel as fields of samples, which have such
/// bounds.
template <typename S, typename M>
Key<S> text(const char* name, const char* field, M member, const char* what, std::size_t most = 1024) {
  return {name,
          field,
          "text",
          what,
          [=](S& s, const toml::node& node, const Context&) -> Read {
            const auto value = node.is_string() ? node.value<std::string>() : std::nullopt;
            if (!value || value->size() > most ||
                std::any_of(value->begin(), value->end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
              return "is " +
                     (value && value->size() > 80 ? "a text of " + std::to_string(value->size()) + " characters"
                                                  : shown(node)) +
                     "; allowed: a text of at most " + std::to_string(most) +
                     " characters, none of them a control character";
            std::invoke(member, s) = *value;
            return {};
          },
          [=](const S& s) { return std::invoke(member, s); },
          [=](const S& s) { return json_quote(std::invoke(member, s)); }};
}

/// A file or folder; a relative path is relative to the configuration's folder.
template <typename S, typename M> Key<S> path(const char* name, const char* field, M member, const char* what) {
  Key<S> key = text<S>(name, field, member, what, 4095);
  key.type = "path";
  key.read = [member, read = key.read](S& s, const toml::node& node, const Context& context) -> Read {
    if (auto wrong = read(s, node, context)) return wrong;
    auto& value = std::invoke(member, s);
    if (!value.empty() && std::filesystem::path(value).is_relative() && !context.folder.empty())
      value = (context.folder / value).lexically_normal().string();
    return {};
  };
  return key;
}

template <typename S, typename M>
Key<S> word(const char* name, const char* field, M member, const char* what, const std::vector<std::string>& words) {
  return {name,
          field,
          list_of(words),
          what,
          [member, words](S& s, const toml::node& node, const Context&) -> Read {
            const auto value = node.is_string() ? node.value<std::string>() : std::nullopt;
            if (!value || std::find(words.begin(), words.end(), *value) == words.end())
              return "is " + shown(node) + (value ? nearest(*value, words) : "") + "; allowed: " + list_of(words);
            std::invoke(member, s) = *value;
            return {};
          },
          [=](const S& s) { return std::invoke(member, s); },
          [=](const S& s) { return json_quote(std::invoke(member, s)); }};
}

std::string json_list(const std::vector<std::string>& words) {
  std::string out = "[";
  for (const auto& one : words) {
    if (out.size() > 1) out += ',';
    out += json_quote(one);
  }
  return out += ']';
}

template <typename S, typename M> Key<S> texts(const char* name, const char* field, M member, const char* what) {
  return {name,
          field,
          "list of texts",
          what,
          [=](S& s, const toml::node& node, const Context&) -> Read {
            const auto* all = node.as_array();
            if (!all) return "is " + shown(node) + "; allowed: a list of texts";
            std::vector<std::string> out;
            for (const auto& one : *all) {
              if (!one.is_string()) return "has " + shown(one) + " in it; allowed: a list of texts";
              out.push_back(*one.template value<std::string>());
            }
            std::invoke(member, s) = std::move(out);
            return {};
          },
          [=](const S& s) { return list_of(std::invoke(member, s)); },
          [=](const S& s) { return json_list(std::invoke(member, s)); }};
}

/// [[nodes]]: hosts with the same properties.
struct Hosts {
  std::string hosts;
  NodeConfig node;

  Hosts() { node.member.min_w = node.member.max_w = node.member.safe_w = unknown; }
  Hosts(std::string these, const NodeConfig& as) : hosts(std::move(these)), node(as) {}
};

std::vector<std::string> kinds() {
  std::vector<std::string> out;
  for (std::size_t k = 1; k <= static_cast<std::size_t>(Source::simulated); ++k)
    out.push_back(name_of(static_cast<Source>(k)));
  return out;
}

Key<HardwareSpec> kind_key() {
  return {"kind",
          "kind",
          list_of(kinds()),
          "the kind of hardware; required. Only `simulated` is simulated",
          [](HardwareSpec& s, const toml::node& node, const Context&) -> Read {
            const auto value = node.is_string() ? node.value<std::string>() : std::nullopt;
            const auto source = value ? source_named(*value) : std::nullopt;
            if (!source || *source == Source::none)
              return "is " + shown(node) + (value ? nearest(*value, kinds()) : "") + "; allowed: " + list_of(kinds());
            s.kind = *source;
            return {};
          },
          [](const HardwareSpec& s) { return std::string(s.kind == Source::none ? "" : name_of(s.kind)); },
          [](const HardwareSpec& s) { return json_quote(name_of(s.kind)); }};
}

std::vector<std::string> policy_names() {
  std::vector<std::string> out;
  for (const auto& policy : policies()) out.push_back(policy.name);
  return out;
}

// The sections. This is the only place that defines the meaning of each key.

const std::vector<Key<Config>>& top_keys() {
  static const std::vector<Key<Config>> keys{
      text<Config>("cluster", "cluster", &Config::cluster, "the name of the cluster, in telemetry and metrics", 64)};
  return keys;
}

const std::vector<Key<Config>>& bus_keys() {
  static const std::vector<Key<Config>> keys{
      path<Config>("profile", "profile", &Config::bus_profile,
                   "a file with profiles of the bus (bus-profile.md); without it: this machine's loopback, domain 0"),
      text<Config>("name", "name", &Config::bus_name,
                   "the name of the profile in that file; required if the file has several", 255)};
  return keys;
}

const std::vector<Key<BudgetConfig>>& budget_keys() {
  using B = BudgetConfig;
  static const std::vector<Key<B>> keys{
      power<B>("power_limit", "power_limit_w", &B::power_limit_w,
               "the power that all nodes together may draw; at least the sum of the safe caps. The system manager does "
               "not start without it. `SET_POWER` changes it, and that value stays after a restart"),
      word<B>("policy", "policy", &B::policy, "how the budget is shared: see below", policy_names()),
      duration<B>("lease", "lease_s", &B::lease_s,
                  "how long a node keeps a cap without hearing from the system manager", 0.1, 600),
      duration<B>("renew", "renew_s", &B::renew_s, "the age at which a lease is renewed; below `lease`", 0.05, 600),
      duration<B>("period", "period_s", &B::period_s, "the time between two decisions", 0.05, 600),
      number<B>("clock_error", "clock_error", &B::clock_error,
                "how much slower a node's clock may run than the system manager's, as a share", 0, 0.5),
      power<B>("soft", "soft_w", &B::soft_w,
               "when the cluster draws this power, jobs that can draw less are asked to do so before caps are lowered"),
      flag<B>("observe", "observe", &B::observe,
              "report what would be set, and set nothing: the system manager lends no power, and node managers do not "
              "change their hardware"),
      flag<B>("without_quorum", "without_quorum", &B::without_quorum,
              "lend power even if less than half of the nodes answer: only for a system manager without a standby")};
  return keys;
}

const std::vector<Key<Hosts>>& nodes_keys() {
  using H = Hosts;
  static const std::vector<Key<H>> keys{
      text<H>("hosts", "hosts", &H::hosts, "the names of these nodes as a host list: \"n[001-004]\"; required", 65536),
      power<H>(
          "min", "min_w", [](auto& h) -> auto& { return h.node.member.min_w; }, "the lowest cap; required"),
      power<H>(
          "max", "max_w", [](auto& h) -> auto& { return h.node.member.max_w; }, "the highest cap; required"),
      power<H>(
          "safe", "safe_w", [](auto& h) -> auto& { return h.node.member.safe_w; },
          "the cap of a node without a manager; without it: `min`"),
      text<H>(
          "rack", "rack", [](auto& h) -> auto& { return h.node.rack; }, "the rack that holds these nodes", 64),
      integer<H>(
          "cores", "cores", [](auto& h) -> auto& { return h.node.cores; },
          "the cores of each node, for the resource manager", 0, 1 << 20),
      size<H>(
          "memory", "memory_bytes", [](auto& h) -> auto& { return h.node.memory_bytes; }, "of each", 0),
      integer<H>(
          "disks", "disks", [](auto& h) -> auto& { return h.node.disks; }, "of each", 0, 65536),
      integer<H>("nics", "nics", [](auto& h) -> auto& { return h.node.nics; }, "of each", 0, 65536)};
  return keys;
}

const std::vector<Key<RackConfig>>& rack_keys() {
  using R = RackConfig;
  static const std::vector<Key<R>> keys{
      power<R>("power_limit", "power_limit_w", &R::power_limit_w,
               "the most power that the rack's supply can deliver; without it: no limit for the rack"),
      power<R>("cooling", "cooling_w", &R::cooling_w,
               "the most heat that the rack's cooling can remove; without it: no limit for the rack")};
  return keys;
}

const std::vector<Key<NodeManagerConfig>>& node_manager_keys() {
  using N = NodeManagerConfig;
  static const std::vector<Key<N>> keys{
      text<N>("name", "name", &N::name, "the node's name in [[nodes]]; without it: the host's name", 64),
      duration<N>("telemetry", "telemetry_s", &N::telemetry_s, "between two reports", 0.1, 86400),
      flag<N>("in_step", "in_step", &N::in_step,
              "the hardware is read and reports are sent at full intervals by the time of day, on all nodes at once: "
              "this disturbs jobs on many nodes least. false: at intervals from the start of the node manager"),
      path<N>("state", "state", &N::state,
              "the folder for data that must survive a crash: the hardware's original settings, the fence"),
      power<N>("base", "base_w", &N::base_w,
               "the power of the parts that cannot be capped (fans, boards, memory); it is part of the node's cap"),
      flag<N>("restore", "restore", &N::restore,
              "on an orderly end, restore the hardware's settings from before the first cap; otherwise the safe cap "
              "stays, as the budget assumes")};
  return keys;
}

const std::vector<Key<HardwareSpec>>& hardware_keys() {
  using H = HardwareSpec;
  static const std::vector<Key<H>> keys{
      kind_key(),
      path<H>("root", "root", &H::root, "powercap, cpufreq: the folder of sysfs"),
      text<H>("url", "url", &H::url,
              "redfish: \"https://bmc17\"; ipmi: the BMC's host; without it: the BMC of this machine"),
      text<H>("user", "user", &H::user, "redfish, ipmi: the user's name for the login"),
      path<H>("password_file", "password_file", &H::password_file,
              "redfish, ipmi: a file with the password, which only its owner can read"),
      path<H>(
          "ca", "ca", &H::ca,
          "redfish: a file with the authority that signed the BMC's certificate; without it: the system's authorities"),
      text<H>("domains", "domains", &H::domains,
              "the domains to use, as a pattern with * and ?; without it: all packages, GPUs, or the node"),
      duration<H>(
          "timeout", "timeout_s", &H::timeout_s,
          "the longest time of one exchange with a BMC; all exchanges of an order together get two to four times this",
          0.05, 600),
      power<H>("min", "min_w", &H::min_w,
               "the lowest cap, if it is above that of the hardware; required if the hardware does not report one"),
      power<H>("max", "max_w", &H::max_w, "the highest cap, if it is below that of the hardware"),
      flag<H>("read_only", "read_only", &H::read_only, "never change a setting"),
      power<H>("idle", "idle_w", &H::idle_w, "simulated: the power without load"),
      power<H>("busy", "busy_w", &H::busy_w, "simulated: the power under full load"),
      power<H>("noise", "noise_w", &H::noise_w, "simulated: the standard deviation of the power"),
      duration<H>("lag", "lag_s", &H::lag_s, "simulated: the time until the power follows a change", 0, 3600),
      number<H>("load", "load", &H::load, "simulated: the load, from 0 to 1", 0, 1),
      path<H>("load_file", "load_file", &H::load_file, "simulated: a file with the load, which is read at each step"),
      integer<H>("seed", "seed", &H::seed, "simulated: the seed of the noise", 0,
                 std::numeric_limits<std::int64_t>::max())};
  return keys;
}

const std::vector<Key<SystemManagerConfig>>& system_manager_keys() {
  using S = SystemManagerConfig;
  static const std::vector<Key<S>> keys{
      text<S>("name", "name", &S::name,
              "the name of this manager; without it: the host's name. Each manager needs a different one", 64),
      path<S>("state", "state", &S::state, "the folder for data that must survive a crash: the epoch, the budget"),
      path<S>("audit", "audit", &S::audit, "the file in which decisions are recorded, one JSON object a line"),
      size<S>("audit_size", "audit_bytes", &S::audit_bytes,
              "the size at which a new file is started; the previous one stays, older ones are removed", 4096),
      duration<S>("takeover", "takeover_s", &S::takeover_s,
                  "a standby takes over when it has heard nothing from the leader for this time", 0.2, 3600),
      integer<S>("priority", "priority", &S::priority,
                 "the number of additional periods that this standby waits before it takes over", 0, 1000),
      text<S>("metrics", "metrics", &S::metrics, "HOST:PORT of the OpenMetrics page; without it: no page"),
      path<S>("metrics_token_file", "metrics_token_file", &S::metrics_token_file,
              "a file with the token that scrapers must send; required if other hosts can reach the address")};
  return keys;
}

const std::vector<Key<SchedulerConfig>>& scheduler_keys() {
  using S = SchedulerConfig;
  static const std::vector<Key<S>> keys{
      word<S>("kind", "kind", &S::kind, "auto: Slurm where it answers, else the built-in one",
              {"auto", "slurm", "built-in"}),
      path<S>("state", "state", &S::state, "the folder for the queue and for the past use of each user"),
      duration<S>("period", "period_s", &S::period_s,
                  "the time between two checks of the running and waiting jobs; a new job is checked at once", 0.05,
                  60),
      number<S>("fairness", "fairness", &S::fairness,
                "the steps of priority between a user without past use and a user who used everything; 0: past use "
                "does not count",
                0, 1000000),
      duration<S>("fairness_half_life", "fairness_half_life_s", &S::fairness_half_life_s,
                  "the time after which past use counts half", 60, year_s),
      duration<S>("age", "age_s", &S::age_s, "the waiting time that raises the priority of a job by one step", 1,
                  year_s),
      duration<S>("keep", "keep_s", &S::keep_s,
                  "how long ended jobs stay known; the same submission, sent again later, is a new job", 60, year_s),
      integer<S>("max_waiting", "max_waiting", &S::max_waiting, "the most waiting jobs", 1, 100000),
      integer<S>("max_waiting_user", "max_waiting_user", &S::max_waiting_user,
                 "the most waiting jobs of one user; `max_waiting` also applies", 1, 100000)};
  return keys;
}

const std::vector<Key<QueueConfig>>& queue_keys() {
  using Q = QueueConfig;
  static const std::vector<Key<Q>> keys{
      text<Q>("name", "name", &Q::name, "the name of the queue; required", 64),
      integer<Q>("priority", "priority", &Q::priority, "jobs of a queue with a higher priority start first", -1000000,
                 1000000),
      flag<Q>("default", "is_default", &Q::is_default,
              "jobs without a queue's name go to this queue; at most one queue has it. If none has: the first queue"),
      texts<Q>("users", "users", &Q::users, "the users who may use it, besides `groups`; without both: all users"),
      texts<Q>("groups", "groups", &Q::groups, "groups of the scheduler's host whose members may use it"),
      duration<Q>("default_time", "default_time_s", &Q::default_time_s,
                  "the time of a job that asks for none; 0: `max_time`", 0, year_s),
      duration<Q>("max_time", "max_time_s", &Q::max_time_s, "the longest time that a job may ask for; 0: no limit", 0,
                  year_s),
      integer<Q>("max_nodes", "max_nodes", &Q::max_nodes, "the most nodes that a job may ask for; 0: no limit", 0,
                 100000),
      power<Q>("max_power", "max_power_w", &Q::max_power_w,
               "the most power that can be guaranteed to a job, for all its nodes together")};
  return keys;
}

const std::vector<Key<ShareConfig>>& share_keys() {
  using H = ShareConfig;
  static const std::vector<Key<H>> keys{
      text<H>("user", "user", &H::user, "the name of the user; required", 64),
      number<H>("share", "share", &H::share,
                "the user's share of the cluster, relative to other users; a user without an entry has 1", 1e-6, 1e6)};
  return keys;
}

const std::vector<Key<ResourceManagerConfig>>& resource_manager_keys() {
  using R = ResourceManagerConfig;
  static const std::vector<Key<R>> keys{path<R>("state", "state", &R::state, "the folder for the allocations")};
  return keys;
}

const std::vector<Key<JobManagerConfig>>& job_manager_keys() {
  using J = JobManagerConfig;
  static const std::vector<Key<J>> keys{
      path<J>("state", "state", &J::state,
              "the folder that holds a folder for each job, with its output and the way it ended"),
      texts<J>("launcher", "launcher", &J::launcher,
               "the command line that starts a command on a node, with {host} for the node: [\"ssh\", \"{host}\", "
               "\"--\"]; without it: all nodes are this host"),
      duration<J>("grace", "grace_s", &J::grace_s,
                  "the time after which a job that was asked to end is killed, unless the job sets its own", 0.1, 3600),
      duration<J>("report", "report_s", &J::report_s,
                  "the time between two reports of a job, and between two checks of its target", 0.1, 3600),
      duration<J>("keep", "keep_s", &J::keep_s, "the time after a job's end at which its folder is removed", 0, year_s),
      texts<J>("users", "users", &J::users,
               "the users whose jobs are started; without it: the daemon's user, and if that is root all users with a "
               "uid of 1000 or more"),
      text<J>("pam_service", "pam_service", &J::pam_service,
              "the PAM service whose account stack is asked before a job of another user starts, if PAM is available; "
              "an empty text: PAM is not asked",
              64),
      integer<J>("max_tasks", "max_tasks", &J::max_tasks,
                 "the most processes and threads of a job, and of its user on this host; 0: no limit", 0, 4194304),
      size<J>("max_memory", "max_memory_bytes", &J::max_memory_bytes,
              "the most memory of a job on this host, if cgroups can limit it there; 0: no limit", 0)};
  return keys;
}

const std::vector<Key<WorkflowEngineConfig>>& workflow_engine_keys() {
  using W = WorkflowEngineConfig;
  static const std::vector<Key<W>> keys{
      path<W>("state", "state", &W::state,
              "the folder that holds a file for each workflow, with its definition and its progress"),
      duration<W>("look", "look_s", &W::look_s, "the time between two checks of the jobs of a workflow", 0.05, 3600)};
  return keys;
}

const std::vector<Key<UsersConfig>>& users_keys() {
  using U = UsersConfig;
  static const std::vector<Key<U>> keys{
      word<U>("proof", "proof", &U::proof,
              "none: the sender's statement of the user is trusted; munge: each order carries a MUNGE credential",
              {"none", "munge"}),
      texts<U>(
          "may_speak_for_others", "may_speak_for_others", &U::may_speak_for_others,
          "users who may send orders in any user's name, and orders of the scheduler, besides root and the user of the "
          "role itself. A list of your own must also contain the users of the workflow engine and the scheduler")};
  return keys;
}

const std::vector<Key<MonitorConfig>>& monitor_keys() {
  using M = MonitorConfig;
  static const std::vector<Key<M>> keys{
      text<M>("listen", "listen", &M::listen, "HOST:PORT of the monitor's page and of the OpenMetrics page"),
      path<M>("token_file", "token_file", &M::token_file,
              "a file with the token that browsers must send; required if other hosts can reach the address"),
      path<M>("tls_certificate", "tls_certificate", &M::tls_certificate,
              "the certificate with which the page is served over TLS; `tls_key` is needed too"),
      path<M>("tls_key", "tls_key", &M::tls_key, "the certificate's private key"),
      path<M>("history", "history", &M::history,
              "the database of the received telemetry; a lock file next to it allows only one monitor to use it "
              "(`power.already_running`)"),
      duration<M>("keep", "keep_s", &M::keep_s, "older history is removed", 60, 100 * year_s)};
  return keys;
}

const std::vector<Key<BridgeConfig>>& bridge_keys() {
  using B = BridgeConfig;
  static const std::vector<Key<B>> keys{
      text<B>("name", "name", &B::name, "the name of the bridge; without it: this host's name", 64),
      text<B>("broker", "broker", &B::broker, "HOST:PORT of the MQTT broker"),
      text<B>("user", "user", &B::user, "the user's name for the login at the broker"),
      path<B>("password_file", "password_file", &B::password_file,
              "a file with the password, which only its owner can read"),
      path<B>("ca", "ca", &B::ca,
              "a file with the authority that signed the broker's certificate; with it the bridge uses TLS"),
      path<B>("certificate", "certificate", &B::certificate, "the bridge's certificate, if the broker asks for one"),
      path<B>("key", "key", &B::key, "the private key of the bridge's certificate"),
      flag<B>("unprotected", "unprotected", &B::unprotected,
              "whether a broker on this machine gets the password and may send orders without TLS; then any program "
              "that listens at that address can do the same"),
      word<B>("naming", "naming", &B::naming, "the form of topics and payloads in MQTT",
              {"sonde", "examon", "sparkplug"}),
      text<B>("prefix", "prefix", &B::prefix, "the first part of MQTT topics", 255),
      texts<B>("to_mqtt", "to_mqtt", &B::to_mqtt, "topics of the bus that are sent to MQTT, as patterns with * and ?"),
      texts<B>("from_mqtt", "from_mqtt", &B::from_mqtt,
               "topics of the bus that are received from MQTT, as patterns with * and ?"),
      integer<B>("qos", "qos", &B::qos,
                 "the QoS of telemetry in MQTT, and with `naming` examon or sparkplug of all messages; control "
                 "messages of `sonde` have 1",
                 0, 1),
      flag<B>("requests", "requests", &B::requests, "whether requests are accepted from MQTT"),
      path<B>("state", "state", &B::state, "the folder for data that must survive a restart of the bridge"),
      size<B>("store", "store_bytes", &B::store_bytes,
              "the most disk space for control messages that wait for the broker", 1u << 16),
      text<B>("metrics", "metrics", &B::metrics, "HOST:PORT of its OpenMetrics page; without it: no page"),
      path<B>("metrics_token_file", "metrics_token_file", &B::metrics_token_file,
              "a file with the token that scrapers must send; required if other hosts can reach its address")};
  return keys;
}

template <typename S> std::vector<std::string> names_of(const std::vector<Key<S>>& keys) {
  std::vector<std::string> out;
  for (const auto& key : keys) out.push_back(key.name);
  return out;
}

Error unknown_key(const Context& context, const toml::source_region& where, const std::string& key,
                  const std::string& section, const std::vector<std::string>& known) {
  return {"power.unknown_key",
          context.at(where) + "unknown key '" + key + "' " + (section.empty() ? "at the top" : "in [" + section + "]") +
              nearest(key, known),
          known.empty() ? "[" + section + "] has no keys" : "known there: " + list_of(known)};
}

Error bad_value(const Context& context, const toml::source_region& where, const std::string& section,
                const std::string& key, const std::string& what) {
  return {"power.bad_value", context.at(where) + (section.empty() ? "" : "[" + section + "] ") + key + " " + what,
          "docs/reference/power-config.md has every key"};
}

/// Read keys of `table` into `into`; `others`: tables within it that other code reads.
template <typename S>
Result<void> read_keys(const toml::table& table, const std::string& section, const std::vector<Key<S>>& keys, S& into,
                       const Context& context, const std::vector<std::string>& others = {}) {
  for (const auto& [name, node] : table) {
    const std::string key(name.str());
    if (std::find(others.begin(), others.end(), key) != others.end()) continue;
    const auto found = std::find_if(keys.begin(), keys.end(), [&](const auto& k) { return k.name == key; });
    if (found == keys.end()) {
      auto known = names_of(keys);
      known.insert(known.end(), others.begin(), others.end());
      return unknown_key(context, name.source(), key, section, known);
    }
    if (const auto wrong = found->read(into, node, context))
      return bad_value(context, name.source(), section, key, *wrong);
  }
  return {};
}

template <typename S>
Result<void> read_section(const toml::table& top, const std::string& section, const std::vector<Key<S>>& keys, S& into,
                          const Context& context, const std::vector<std::string>& others = {}) {
  const auto* node = top.get(section);
  if (!node) return {};
  if (!node->is_table())
    return bad_value(context, node->source(), "", section,
                     "is " + shown(*node) + "; allowed: a table, [" + section + "]");
  return read_keys(*node->as_table(), section, keys, into, context, others);
}

/// [[section]]: `each` is called with every table.
Result<void> read_tables(const toml::node* node, const std::string& section, const Context& context,
                         const std::function<Result<void>(const toml::table&)>& each) {
  if (!node) return {};
  const auto wrong = [&](const toml::node& what) {
    return bad_value(context, what.source(), "", section,
                     "is " + shown(what) + "; allowed: tables, [[" + section + "]]");
  };
  if (!node->is_array()) return wrong(*node);
  for (const auto& one : *node->as_array()) {
    if (!one.is_table()) return wrong(one);
    if (auto fine = each(*one.as_table()); !fine) return fine;
  }
  return {};
}

Result<void> needed(const toml::table& table, const std::string& section, const std::vector<std::string>& keys,
                    const Context& context) {
  for (const auto& key : keys)
    if (!table.contains(key))
      return Error{"power.bad_value",
                   context.at(table.source()) + "[[" + section + "]] has no '" + key + "', which is required",
                   "docs/reference/power-config.md has every key"};
  return {};
}

Result<void> read_nodes(const toml::table& table, Config& config, std::map<std::string, std::uint32_t>& lines,
                        const Context& context) {
  Hosts hosts;
  if (auto fine = read_keys(table, "nodes", nodes_keys(), hosts, context); !fine) return fine;
  if (auto fine = needed(table, "nodes", {"hosts", "min", "max"}, context); !fine) return fine;
  const auto bad = [&](const std::string& what, const std::string& hint) {
    return Error{"power.bad_node", context.at(table.source()) + what, hint};
  };
  auto names = hostlist_expand(hosts.hosts);
  if (!names)
    return bad_value(context, table.get("hosts")->source(), "nodes", "hosts",
                     "is not a host list: " + names.error().what);
  Member& member = hosts.node.member;
  if (!std::isfinite(member.safe_w)) member.safe_w = member.min_w;
  const std::string who = "nodes '" + hosts.hosts + "': ";
  if (!(member.min_w <= member.max_w))
    return bad(who + "min (" + format_power(member.min_w) + ") is above max (" + format_power(member.max_w) + ")",
               "min is the lowest cap, max the highest");
  if (!(member.min_w <= member.safe_w && member.safe_w <= member.max_w))
    return bad(who + "safe (" + format_power(member.safe_w) + ") is outside of min and max (" +
                   format_power(member.min_w) + " to " + format_power(member.max_w) + ")",
               "choose a safe cap between them");
  if (!(member.max_w > 0)) return bad(who + "max is 0 W", "set the highest cap that the node may have");
  for (const auto& name : *names) {
    if (name.size() > 64)
      return bad(who + "the name '" + name + "' has " + std::to_string(name.size()) + " characters; 64 are allowed",
                 "each sample carries the name, so choose a shorter one");
    if (const auto [before, is_new] = lines.emplace(name, table.source().begin.line); !is_new)
      return bad("the node " + name + " is named twice, first in line " + std::to_string(before->second),
                 "name it once, because a node has one range of caps");
    NodeConfig node = hosts.node;
    node.member.name = name;
    config.nodes.push_back(std::move(node));
  }
  if (config.nodes.size() > hostlist_limit)
    return bad("there are more than " + std::to_string(hostlist_limit) + " nodes", "manage them as several clusters");
  return {};
}

/// Checks that involve several keys.
Result<void> check(const Config& config, const toml::table& top, const Context& context) {
  const auto section = [&](const char* name) { return top.get(name) ? top.get(name)->source() : top.source(); };
  if (config.cluster.empty())
    return bad_value(context, top.get("cluster")->source(), "", "cluster", "is empty; allowed: 1 to 64 characters");
  const BudgetConfig& budget = config.budget;
  if (!(budget.renew_s < budget.lease_s))
    return bad_value(context, section("budget"), "budget", "renew",
                     "is " + format_duration(budget.renew_s) + ", which is not below lease (" +
                         format_duration(budget.lease_s) + ")");
  if (!std::isnan(budget.power_limit_w) && !config.nodes.empty()) {
    double safe = 0;
    for (const auto& node : config.nodes) safe += node.member.safe_w;
    if (safe > budget.power_limit_w)
      return Error{"power.safe_above_budget",
                   context.at(section("budget")) + "the safe caps of " + std::to_string(config.nodes.size()) +
                       " nodes add up to " + format_power(safe) + ", above the budget of " +
                       format_power(budget.power_limit_w),
                   "nodes without a manager go to their safe caps: lower `safe` of [[nodes]], or raise power_limit"};
  }
  std::vector<std::string> racks;
  for (const auto& [name, rack] : config.racks) racks.push_back(name);
  if (!racks.empty())
    for (const auto& node : config.nodes)
      if (!node.rack.empty() && !config.racks.contains(node.rack))
        return bad_value(context, section("nodes"), "nodes", "rack",
                         "of " + node.member.name + " is '" + node.rack + "'" + nearest(node.rack, racks) +
                             "; there are: " + list_of(racks));
  if (config.monitor.tls_certificate.empty() != config.monitor.tls_key.empty())
    return bad_value(context, section("monitor"), "monitor",
                     config.monitor.tls_key.empty() ? "tls_key" : "tls_certificate",
                     "is missing: TLS needs a certificate and its key");
  if (config.bridge.certificate.empty() != config.bridge.key.empty())
    return bad_value(context, section("mqtt-bridge"), "mqtt-bridge", config.bridge.key.empty() ? "key" : "certificate",
                     "is missing: a certificate needs its key");
  if (!config.bridge.certificate.empty() && config.bridge.ca.empty())
    return bad_value(context, section("mqtt-bridge"), "mqtt-bridge", "ca",
                     "is missing: without it the bridge does not use TLS, nor the certificate and key");
  struct Address {
    const char *section, *key;
    const std::string& is;
    bool needed;
  };
  for (const Address& address : {Address{"monitor", "listen", config.monitor.listen, true},
                                 Address{"mqtt-bridge", "broker", config.bridge.broker, true},
                                 Address{"system-manager", "metrics", config.system_manager.metrics, false},
                                 Address{"mqtt-bridge", "metrics", config.bridge.metrics, false}}) {
    if (!address.needed && address.is.empty()) continue;
    const auto colon = address.is.rfind(':');
    std::uint16_t port = 0;
    if (colon == std::string::npos || colon == 0 ||
        !sonde::number(std::string_view(address.is).substr(colon + 1), port))
      return bad_value(context, section(address.section), address.section, address.key,
                       "is '" + address.is + "'; allowed: HOST:PORT");
  }
  return {};
}

const std::vector<std::string> sections{"bus",          "budget",          "nodes",         "racks",
                                        "node-manager", "system-manager",  "job-scheduler", "resource-manager",
                                        "job-manager",  "workflow-engine", "users",         "monitor",
                                        "mqtt-bridge"};

Result<void> fill(const toml::table& top, Config& config, const Context& context) {
  if (auto fine = read_keys(top, "", top_keys(), config, context, sections); !fine) return fine;
  if (auto fine = read_section(top, "bus", bus_keys(), config, context); !fine) return fine;
  if (const auto* budget = top.get_as<toml::table>("budget"))
    if (const auto* policy = budget->get_as<std::string>("policy"))
      if (auto made = make_policy(policy->get()); !made)
        return Error{made.error().code, context.at(policy->source()) + made.error().what, made.error().hint};
  if (auto fine = read_section(top, "budget", budget_keys(), config.budget, context); !fine) return fine;
  std::map<std::string, std::uint32_t> lines;
  if (auto fine = read_tables(top.get("nodes"), "nodes", context,
                              [&](const toml::table& table) { return read_nodes(table, config, lines, context); });
      !fine)
    return fine;
  if (const auto* racks = top.get("racks")) {
    if (!racks->is_table())
      return bad_value(context, racks->source(), "", "racks",
                       "is " + shown(*racks) + "; allowed: tables, [racks.NAME]");
    for (const auto& [name, node] : *racks->as_table()) {
      const std::string section = "racks." + std::string(name.str());
      if (!node.is_table())
        return bad_value(context, name.source(), "", section,
                         "is " + shown(node) + "; allowed: a table, [" + section + "]");
      if (auto fine = read_keys(*node.as_table(), section, rack_keys(), config.racks[std::string(name.str())], context);
          !fine)
        return fine;
    }
  }
  if (auto fine = read_section(top, "node-manager", node_manager_keys(), config.node_manager, context, {"hardware"});
      !fine)
    return fine;
  if (const auto* node_manager = top.get_as<toml::table>("node-manager")) {
    const auto fine = read_tables(
        node_manager->get("hardware"), "node-manager.hardware", context, [&](const toml::table& table) -> Result<void> {
          HardwareSpec spec;
          if (auto fine = read_keys(table, "node-manager.hardware", hardware_keys(), spec, context); !fine) return fine;
          if (auto fine = needed(table, "node-manager.hardware", {"kind"}, context); !fine) return fine;
          config.node_manager.hardware.push_back(std::move(spec));
          return {};
        });
    if (!fine) return fine;
  }
  if (auto fine = read_section(top, "system-manager", system_manager_keys(), config.system_manager, context); !fine)
    return fine;
  if (auto fine = read_section(top, "job-scheduler", scheduler_keys(), config.scheduler, context, {"queues", "shares"});
      !fine)
    return fine;
  if (const auto* scheduler = top.get_as<toml::table>("job-scheduler")) {
    auto fine = read_tables(
        scheduler->get("queues"), "job-scheduler.queues", context, [&](const toml::table& table) -> Result<void> {
          QueueConfig queue;
          if (auto fine = read_keys(table, "job-scheduler.queues", queue_keys(), queue, context); !fine) return fine;
          if (auto fine = needed(table, "job-scheduler.queues", {"name"}, context); !fine) return fine;
          for (const auto& other : config.scheduler.queues)
            if (other.name == queue.name)
              return bad_value(context, table.source(), "job-scheduler.queues", "name",
                               "'" + queue.name + "' is given twice");
          if (queue.name.empty())
            return bad_value(context, table.source(), "job-scheduler.queues", "name",
                             "is empty; allowed: 1 to 64 characters");
          for (const auto& other : config.scheduler.queues)
            if (other.is_default && queue.is_default)
              return bad_value(context, table.source(), "job-scheduler.queues", "default",
                               "is set for '" + queue.name + "' and for '" + other.name + "'; allowed: one queue");
          if (queue.max_time_s > 0 && queue.default_time_s > queue.max_time_s)
            return bad_value(context, table.source(), "job-scheduler.queues", "default_time",
                             "of '" + queue.name + "' is " + format_duration(queue.default_time_s) +
                                 ", above its max_time (" + format_duration(queue.max_time_s) + ")");
          config.scheduler.queues.push_back(std::move(queue));
          return {};
        });
    if (!fine) return fine;
    const auto read = read_tables(
        scheduler->get("shares"), "job-scheduler.shares", context, [&](const toml::table& table) -> Result<void> {
          ShareConfig share;
          if (auto fine = read_keys(table, "job-scheduler.shares", share_keys(), share, context); !fine) return fine;
          if (auto fine = needed(table, "job-scheduler.shares", {"user"}, context); !fine) return fine;
          for (const auto& other : config.scheduler.shares)
            if (other.user == share.user)
              return bad_value(context, table.source(), "job-scheduler.shares", "user",
                               "'" + share.user + "' is given twice");
          config.scheduler.shares.push_back(std::move(share));
          return {};
        });
    if (!read) return read;
  }
  if (auto fine = read_section(top, "resource-manager", resource_manager_keys(), config.resource_manager, context);
      !fine)
    return fine;
  if (auto fine = read_section(top, "job-manager", job_manager_keys(), config.job_manager, context); !fine) return fine;
  if (auto fine = read_section(top, "workflow-engine", workflow_engine_keys(), config.workflow_engine, context); !fine)
    return fine;
  if (auto fine = read_section(top, "users", users_keys(), config.users, context); !fine) return fine;
  if (auto fine = read_section(top, "monitor", monitor_keys(), config.monitor, context); !fine) return fine;
  if (auto fine = read_section(top, "mqtt-bridge", bridge_keys(), config.bridge, context); !fine) return fine;
  return check(config, top, context);
}

template <typename S>
void tell(std::vector<ConfigKey>& out, const std::string& section, const std::vector<Key<S>>& keys) {
  const auto defaults = std::make_unique<S>();
  for (const auto& key : keys) out.push_back({section, key.name, key.type, key.text(*defaults), key.what});
}

template <typename S> JsonLine json(const std::vector<Key<S>>& keys, const S& from) {
  JsonLine out;
  for (const auto& key : keys) out.raw(key.field, key.json(from));
  return out;
}

template <typename Each, typename List> std::string json_of(const List& list, Each each) {
  std::string out = "[";
  for (const auto& one : list) {
    if (out.size() > 1) out += ',';
    out += each(one);
  }
  return out += ']';
}

}  // namespace

Result<Config> parse_config(std::string_view text, const std::string& path) {
  const Context context{path, path.empty() ? std::filesystem::path()
                                           : std::filesystem::absolute(std::filesystem::path(path)).parent_path()};
  Config config;
  config.path = path;
  auto parsed = toml::parse(text, path.empty() ? std::string("power.toml") : path);
  if (!parsed) {
    const auto& error = parsed.error();
    return Error{"power.bad_toml",
                 context.at(error.source()) + "column " + std::to_string(error.source().begin.column) + ": " +
                     std::string(error.description()),
                 "the file must be TOML (https://toml.io): [sections], key = value, texts in quotes"};
  }
  if (auto fine = fill(parsed.table(), config, context); !fine) return fine.error();
  return config;
}

Result<Config> load_config(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const auto no_file = [&](const std::string& why) {
    return Error{"power.no_file", path + ": " + why,
                 "give the configuration with --config FILE; docs/reference/power-config.md describes it"};
  };
  std::error_code wrong;
  if (!file || std::filesystem::is_directory(path, wrong))
    return no_file(wrong                                        ? wrong.message()
                   : std::filesystem::is_directory(path, wrong) ? "is a folder"
                                                                : std::strerror(errno));
  std::string text(most_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return no_file("cannot be read");
  if (text.size() > most_bytes) return no_file("has more than " + format_size(most_bytes));
  return parse_config(text, path);
}

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> all = [] {
    std::vector<ConfigKey> out;
    tell(out, "", top_keys());
    tell(out, "bus", bus_keys());
    tell(out, "budget", budget_keys());
    tell(out, "nodes", nodes_keys());
    tell(out, "racks.NAME", rack_keys());
    tell(out, "node-manager", node_manager_keys());
    tell(out, "node-manager.hardware", hardware_keys());
    tell(out, "system-manager", system_manager_keys());
    tell(out, "job-scheduler", scheduler_keys());
    tell(out, "job-scheduler.queues", queue_keys());
    tell(out, "job-scheduler.shares", share_keys());
    tell(out, "resource-manager", resource_manager_keys());
    tell(out, "job-manager", job_manager_keys());
    tell(out, "workflow-engine", workflow_engine_keys());
    tell(out, "users", users_keys());
    tell(out, "monitor", monitor_keys());
    tell(out, "mqtt-bridge", bridge_keys());
    return out;
  }();
  return all;
}

std::string to_json(const Config& config) {
  JsonLine out = json(top_keys(), config);
  out.add("path", config.path);
  out.raw("bus", json(bus_keys(), config).text());
  out.raw("budget", json(budget_keys(), config.budget).text());
  out.raw("nodes", json_of(config.nodes, [](const NodeConfig& node) {
            JsonLine line;
            line.add("name", node.member.name);
            for (const auto& key : nodes_keys())
              if (key.name != "hosts") line.raw(key.field, key.json(Hosts("", node)));
            return line.text();
          }));
  JsonLine racks;
  for (const auto& [name, rack] : config.racks) racks.raw(name, json(rack_keys(), rack).text());
  out.raw("racks", racks.text());
  JsonLine node_manager = json(node_manager_keys(), config.node_manager);
  node_manager.raw("hardware", json_of(config.node_manager.hardware,
                                       [](const HardwareSpec& spec) { return json(hardware_keys(), spec).text(); }));
  out.raw("node_manager", node_manager.text());
  out.raw("system_manager", json(system_manager_keys(), config.system_manager).text());
  JsonLine scheduler = json(scheduler_keys(), config.scheduler);
  scheduler.raw("queues", json_of(config.scheduler.queues,
                                  [](const QueueConfig& queue) { return json(queue_keys(), queue).text(); }));
  scheduler.raw("shares", json_of(config.scheduler.shares,
                                  [](const ShareConfig& share) { return json(share_keys(), share).text(); }));
  out.raw("scheduler", scheduler.text());
  out.raw("resource_manager", json(resource_manager_keys(), config.resource_manager).text());
  out.raw("job_manager", json(job_manager_keys(), config.job_manager).text());
  out.raw("workflow_engine", json(workflow_engine_keys(), config.workflow_engine).text());
  out.raw("users", json(users_keys(), config.users).text());
  out.raw("monitor", json(monitor_keys(), config.monitor).text());
  out.raw("bridge", json(bridge_keys(), config.bridge).text());
  return out.text();
}

}  // namespace sonde::power
