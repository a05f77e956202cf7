#pragma once
/// The messages of the power stack on the bus. Topics and request names are those of the REGALE library. This file adds
/// what the library left open: units, times, addressees, errors, and which manager's orders count.
/// src/sonde/power/stack/power.idl is the same as IDL (a test compares them).
///
///   NodeManager_get, NodeManager_set                      requests to a node: the target of a call is the node's name
///   SystemPowerManager_get, SystemPowerManager_set        requests to the system manager: target "active", or a
///                                                         manager's name
///   Monitor_report_node_telemetry, …_job_…, …_cluster_…   samples, keyed by node, job, cluster
///
/// All times are ns of CLOCK_REALTIME where they are called `at_ns` in telemetry; a Ticket's are the node's own. Power
/// W, energy J, frequency Hz.
/// NaN: not known. Errors travel as the reply's code (bus::ReplyCode, or PowerCode) and message.

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "bus/typed.hpp"
#include "power/ledger.hpp"
#include "power/policy.hpp"
#include "power/source.hpp"

namespace sonde::power {

namespace topic {
inline constexpr const char* node_get = "NodeManager_get";
inline constexpr const char* node_set = "NodeManager_set";
inline constexpr const char* system_get = "SystemPowerManager_get";
inline constexpr const char* system_set = "SystemPowerManager_set";
inline constexpr const char* node_telemetry = "Monitor_report_node_telemetry";
inline constexpr const char* job_telemetry = "Monitor_report_job_telemetry";
inline constexpr const char* cluster_telemetry = "Monitor_report_cluster_telemetry";
}  // namespace topic

/// The leading system manager answers to this name in addition to its own.
inline constexpr const char* active_manager = "active";

/// Codes of replies in addition to bus::ReplyCode's.
enum class PowerCode : std::uint32_t {
  stale_epoch = 1000,
  stale_sequence = 1001,
  void_ticket = 1002,
  lease_expired = 1003,
  bad_lease = 1004,
  out_of_range = 1005,
  read_only = 1006,         ///< the node's hardware takes no cap
  hardware_failed = 1007,   ///< it received the cap, and does not follow
  not_active = 1008,        ///< a standby: ask the leader
  budget_too_small = 1009,  ///< below the sum of safe caps
};

enum class NodeAsk : std::uint8_t { GET_INFO_NODE, GET_POWER_NODE, GET_POWERCAP_NODE, GET_FREQ_NODE };
enum class NodeOrder : std::uint8_t { SET_POWER_NODE, FENCE_NODE };
enum class SystemAsk : std::uint8_t { GET_INFO, GET_POWER };
/// Orders go to the leading manager, and are accepted only while more than half of the nodes obey it (not_active
/// otherwise): only then is its budget the cluster's. A changed budget is on its disk, and was sent to the standbys,
/// before the answer. If the standbys did not all confirm, the reply's message is not empty, although its code is ok.
enum class SystemOrder : std::uint8_t {
  SET_POWER,  ///< the cluster's budget is `budget_w`; ends a SHED
  SHED,       ///< the budget without its `share` (0.2: 80 % are left), for `for_s`; then it is by itself what it was.
              ///< Another one takes its place
  SET_JOB,    ///< what a job's nodes are to have, until `for_s` is over or it is said anew; no `nodes`: those that it
              ///< has. Not known to who takes over
  END_JOB
};

/// A Report (ledger.hpp) as a message.
struct LeaseState {
  std::uint64_t instance = 0;
  std::int64_t ticket_ns = 0;
  std::uint64_t seen_epoch = 0;
  std::string seen_manager;
  std::uint64_t sequence = 0;
  bool leased = false;
  double left_s = 0, lease_w = 0, cap_w = unknown;

  static LeaseState of(const Report& report);
  Report report() const;
};

/// A part with power of its own: a package, a GPU, a whole node.
struct DomainState {
  std::string name;  ///< "package-0", "gpu-1", "node"
  Source source = Source::none;
  double power_w = unknown, energy_j = unknown, cap_w = unknown, min_w = unknown, max_w = unknown;
  bool settable = false;
};

struct FrequencyState {
  std::string name;                                                 ///< "policy0"
  double current_hz = unknown, min_hz = unknown, max_hz = unknown;  ///< the limits that are set
  double least_hz = unknown, most_hz = unknown;                     ///< the limits of the hardware
  std::string governor;
};

struct SensorState {
  std::string name;
  SensorKind kind = SensorKind::power;
  double value = unknown;  ///< W, J, degC, V, rpm, share
};

struct NodeQuery {
  NodeAsk ask = NodeAsk::GET_INFO_NODE;
};

struct NodeCommand {
  NodeOrder order = NodeOrder::SET_POWER_NODE;
  std::uint64_t epoch = 0;
  std::string manager;
  std::uint64_t sequence = 0, instance = 0;
  std::int64_t ticket_ns = 0;
  double lease_s = 0, cap_w = 0;

  static NodeCommand of(const Grant& grant);
  Grant grant() const;
};

/// Fields that were not requested are empty.
struct NodeAnswer {
  std::string node;
  std::int64_t at_ns = 0;
  LeaseState lease;                            ///< always
  std::string version, model, implementation;  ///< GET_INFO_NODE
  double min_w = unknown, max_w = unknown, safe_w = unknown, power_w = unknown, energy_j = unknown;
  std::vector<DomainState> domains;
  std::vector<FrequencyState> frequencies;
};

struct NodeTelemetry {
  std::string node;
  std::int64_t at_ns = 0;
  double period_s = 0;
  Source source = Source::none;                  ///< of power_w
  double power_w = unknown, energy_j = unknown;  ///< energy since the node manager began; it never falls
  LeaseState lease;
  std::vector<DomainState> domains;
  std::vector<FrequencyState> frequencies;
  std::vector<SensorState> sensors;
  std::string trouble;  ///< a code and a sentence about a fault of the hardware; empty: none
  std::int64_t cap_since_ns =
      0;  ///< CLOCK_REALTIME: since when the hardware has lease.cap_w; where that is more than before, since it may
          ///< have it. 0: not known. A change is reported at once, besides the reports of each period_s
};

struct JobTelemetry {
  std::string job, user, name;
  std::int64_t at_ns = 0;
  std::vector<std::string> nodes;
  double power_w = unknown, energy_j = unknown, iteration_s = unknown, progress = unknown;  ///< progress: 0 … 1
  std::string state;                     ///< waiting, running, ended, failed, cancelled
  std::vector<double> node_iteration_s;  ///< how long each node's own part of an iteration took of late, without its
                                         ///< waiting for others, in the order of `nodes`: what policy `slack` levels.
                                         ///< Empty: not told; NaN: not of this node
};

struct ClusterTelemetry {
  std::string cluster, manager;
  std::int64_t at_ns = 0;
  std::uint64_t epoch = 0,
                budget_version = 0;  ///< the version grows with each change of the budget, and with a new leader
  std::string state;                 ///< active, observing, stepping-back; in answers also standby
  std::string policy;
  double period_s = 0, lease_s = 0, budget_w = 0,
         safe_w = 0;             ///< safe: the sum when no manager leads
  double committed_w = unknown;  ///< the most that they may draw; `unknown_nodes` count at their safe caps
  double power_w = unknown;      ///< of the nodes that were heard
  std::uint32_t nodes = 0, heard = 0, leased = 0;
  double restored_w = unknown;  ///< while a part of the budget is shed: the budget after shed_left_s
  double shed_left_s = 0;
  std::uint32_t unknown_nodes = 0;  ///< after a takeover: nodes whose earlier leases are not known yet
  double unknown_w = 0;             ///< the most that these may draw beyond `committed_w`: nothing of it is lent
};

struct SystemQuery {
  SystemAsk ask = SystemAsk::GET_INFO;
};

struct SystemCommand {
  SystemOrder order = SystemOrder::SET_POWER;
  double budget_w = unknown, share = unknown, for_s = 0;
  std::string job, user, reason;
  std::vector<std::string> nodes;
  double guaranteed_w = unknown, demand_w = unknown, weight = 1;  ///< of SET_JOB, each node; 0: not said
  double wait_s = 0;  ///< SET_POWER, SHED: the answer may wait so long, within the call's deadline, until the nodes
                      ///< hold to the new budget
};

struct NodeShare {
  std::string node;
  bool heard = false, leased = false;
  /// committed_w: the most that it may draw; NaN: not known yet, or its manager does not lead.
  double power_w = unknown, cap_w = unknown, committed_w = unknown, wanted_w = unknown, min_w = unknown,
         max_w = unknown, safe_w = unknown;
  double age_s = unknown;  ///< since it was last heard
  std::string job, trouble;
};

struct SystemAnswer {
  ClusterTelemetry cluster;
  std::vector<std::string> services;  ///< GET_INFO: the requests that are served
  std::vector<NodeShare> nodes;       ///< GET_POWER
  double comply_s = unknown;  ///< SET_POWER, SHED: how long it took until no more was committed than the new budget;
                              ///< NaN: not yet (see wait_s)
};

}  // namespace sonde::power

namespace sonde::bus {
template <> struct Described<power::NodeAsk> {
  static constexpr auto name = "sonde::power::NodeAsk";
  static constexpr auto enumerators = std::array{enumerator("GET_INFO_NODE", power::NodeAsk::GET_INFO_NODE),
                                                 enumerator("GET_POWER_NODE", power::NodeAsk::GET_POWER_NODE),
                                                 enumerator("GET_POWERCAP_NODE", power::NodeAsk::GET_POWERCAP_NODE),
                                                 enumerator("GET_FREQ_NODE", power::NodeAsk::GET_FREQ_NODE)};
};
template <> struct Described<power::NodeOrder> {
  static constexpr auto name = "sonde::power::NodeOrder";
  static constexpr auto enumerators = std::array{enumerator("SET_POWER_NODE", power::NodeOrder::SET_POWER_NODE),
                                                 enumerator("FENCE_NODE", power::NodeOrder::FENCE_NODE)};
};
template <> struct Described<power::SystemAsk> {
  static constexpr auto name = "sonde::power::SystemAsk";
  static constexpr auto enumerators = std::array{enumerator("GET_INFO", power::SystemAsk::GET_INFO),
                                                 enumerator("GET_POWER", power::SystemAsk::GET_POWER)};
};
template <> struct Described<power::SystemOrder> {
  static constexpr auto name = "sonde::power::SystemOrder";
  static constexpr auto enumerators = std::array{
      enumerator("SET_POWER", power::SystemOrder::SET_POWER), enumerator("SHED", power::SystemOrder::SHED),
      enumerator("SET_JOB", power::SystemOrder::SET_JOB), enumerator("END_JOB", power::SystemOrder::END_JOB)};
};
template <> struct Described<power::Source> {
  static constexpr auto name = "sonde::power::Source";
  static constexpr auto enumerators = std::array{
      enumerator("SOURCE_NONE", power::Source::none),          enumerator("SOURCE_POWERCAP", power::Source::powercap),
      enumerator("SOURCE_CPUFREQ", power::Source::cpufreq),    enumerator("SOURCE_NVML", power::Source::nvml),
      enumerator("SOURCE_REDFISH", power::Source::redfish),    enumerator("SOURCE_IPMI", power::Source::ipmi),
      enumerator("SOURCE_SIMULATED", power::Source::simulated)};
};
template <> struct Described<power::SensorKind> {
  static constexpr auto name = "sonde::power::SensorKind";
  static constexpr auto enumerators = std::array{enumerator("SENSOR_POWER", power::SensorKind::power),
                                                 enumerator("SENSOR_ENERGY", power::SensorKind::energy),
                                                 enumerator("SENSOR_TEMPERATURE", power::SensorKind::temperature),
                                                 enumerator("SENSOR_VOLTAGE", power::SensorKind::voltage),
                                                 enumerator("SENSOR_FAN", power::SensorKind::fan),
                                                 enumerator("SENSOR_UTILISATION", power::SensorKind::utilisation)};
};
template <> struct Described<power::LeaseState> {
  static constexpr auto name = "sonde::power::LeaseState";
  static constexpr auto fields = std::tuple{field("instance", &power::LeaseState::instance),
                                            field("ticket_ns", &power::LeaseState::ticket_ns, "ns"),
                                            field("seen_epoch", &power::LeaseState::seen_epoch),
                                            field("seen_manager", &power::LeaseState::seen_manager).at_most(64),
                                            field("sequence", &power::LeaseState::sequence),
                                            field("leased", &power::LeaseState::leased),
                                            field("left_s", &power::LeaseState::left_s, "s"),
                                            field("lease_w", &power::LeaseState::lease_w, "W"),
                                            field("cap_w", &power::LeaseState::cap_w, "W")};
};
template <> struct Described<power::DomainState> {
  static constexpr auto name = "sonde::power::DomainState";
  static constexpr auto fields = std::tuple{
      field("name", &power::DomainState::name).at_most(256), field("source", &power::DomainState::source),
      field("power_w", &power::DomainState::power_w, "W"),   field("energy_j", &power::DomainState::energy_j, "J"),
      field("cap_w", &power::DomainState::cap_w, "W"),       field("min_w", &power::DomainState::min_w, "W"),
      field("max_w", &power::DomainState::max_w, "W"),       field("settable", &power::DomainState::settable)};
};
template <> struct Described<power::FrequencyState> {
  static constexpr auto name = "sonde::power::FrequencyState";
  static constexpr auto fields = std::tuple{field("name", &power::FrequencyState::name).at_most(256),
                                            field("current_hz", &power::FrequencyState::current_hz, "Hz"),
                                            field("min_hz", &power::FrequencyState::min_hz, "Hz"),
                                            field("max_hz", &power::FrequencyState::max_hz, "Hz"),
                                            field("least_hz", &power::FrequencyState::least_hz, "Hz"),
                                            field("most_hz", &power::FrequencyState::most_hz, "Hz"),
                                            field("governor", &power::FrequencyState::governor).at_most(32)};
};
template <> struct Described<power::SensorState> {
  static constexpr auto name = "sonde::power::SensorState";
  static constexpr auto fields =
      std::tuple{field("name", &power::SensorState::name).at_most(256), field("kind", &power::SensorState::kind),
                 field("value", &power::SensorState::value)};
};
template <> struct Described<power::NodeQuery> {
  static constexpr auto name = "sonde::power::NodeQuery";
  static constexpr auto fields = std::tuple{field("ask", &power::NodeQuery::ask)};
};
template <> struct Described<power::NodeCommand> {
  static constexpr auto name = "sonde::power::NodeCommand";
  static constexpr auto fields = std::tuple{field("order", &power::NodeCommand::order),
                                            field("epoch", &power::NodeCommand::epoch),
                                            field("manager", &power::NodeCommand::manager).at_most(64),
                                            field("sequence", &power::NodeCommand::sequence),
                                            field("instance", &power::NodeCommand::instance),
                                            field("ticket_ns", &power::NodeCommand::ticket_ns, "ns"),
                                            field("lease_s", &power::NodeCommand::lease_s, "s"),
                                            field("cap_w", &power::NodeCommand::cap_w, "W")};
};
template <> struct Described<power::NodeAnswer> {
  static constexpr auto name = "sonde::power::NodeAnswer";
  static constexpr auto fields = std::tuple{field("node", &power::NodeAnswer::node).at_most(64),
                                            field("at_ns", &power::NodeAnswer::at_ns, "ns"),
                                            field("lease", &power::NodeAnswer::lease),
                                            field("version", &power::NodeAnswer::version).at_most(32),
                                            field("model", &power::NodeAnswer::model).at_most(256),
                                            field("implementation", &power::NodeAnswer::implementation).at_most(32),
                                            field("min_w", &power::NodeAnswer::min_w, "W"),
                                            field("max_w", &power::NodeAnswer::max_w, "W"),
                                            field("safe_w", &power::NodeAnswer::safe_w, "W"),
                                            field("power_w", &power::NodeAnswer::power_w, "W"),
                                            field("energy_j", &power::NodeAnswer::energy_j, "J"),
                                            field("domains", &power::NodeAnswer::domains).at_most(64),
                                            field("frequencies", &power::NodeAnswer::frequencies).at_most(1024)};
};
template <> struct Described<power::NodeTelemetry> {
  static constexpr auto name = "sonde::power::NodeTelemetry";
  static constexpr auto fields = std::tuple{key("node", &power::NodeTelemetry::node).at_most(64),
                                            field("at_ns", &power::NodeTelemetry::at_ns, "ns"),
                                            field("period_s", &power::NodeTelemetry::period_s, "s"),
                                            field("source", &power::NodeTelemetry::source),
                                            field("power_w", &power::NodeTelemetry::power_w, "W"),
                                            field("energy_j", &power::NodeTelemetry::energy_j, "J"),
                                            field("lease", &power::NodeTelemetry::lease),
                                            field("domains", &power::NodeTelemetry::domains).at_most(64),
                                            field("frequencies", &power::NodeTelemetry::frequencies).at_most(1024),
                                            field("sensors", &power::NodeTelemetry::sensors).at_most(1024),
                                            field("trouble", &power::NodeTelemetry::trouble).at_most(256),
                                            field("cap_since_ns", &power::NodeTelemetry::cap_since_ns, "ns")};
};
template <> struct Described<power::JobTelemetry> {
  static constexpr auto name = "sonde::power::JobTelemetry";
  static constexpr auto fields =
      std::tuple{key("job", &power::JobTelemetry::job).at_most(64),
                 field("user", &power::JobTelemetry::user).at_most(64),
                 field("name", &power::JobTelemetry::name).at_most(256),
                 field("at_ns", &power::JobTelemetry::at_ns, "ns"),
                 field("nodes", &power::JobTelemetry::nodes).at_most(100000),
                 field("power_w", &power::JobTelemetry::power_w, "W"),
                 field("energy_j", &power::JobTelemetry::energy_j, "J"),
                 field("iteration_s", &power::JobTelemetry::iteration_s, "s"),
                 field("progress", &power::JobTelemetry::progress),
                 field("state", &power::JobTelemetry::state).at_most(32),
                 field("node_iteration_s", &power::JobTelemetry::node_iteration_s, "s").at_most(100000)};
};
template <> struct Described<power::ClusterTelemetry> {
  static constexpr auto name = "sonde::power::ClusterTelemetry";
  static constexpr auto fields = std::tuple{key("cluster", &power::ClusterTelemetry::cluster).at_most(64),
                                            field("manager", &power::ClusterTelemetry::manager).at_most(64),
                                            field("at_ns", &power::ClusterTelemetry::at_ns, "ns"),
                                            field("epoch", &power::ClusterTelemetry::epoch),
                                            field("budget_version", &power::ClusterTelemetry::budget_version),
                                            field("state", &power::ClusterTelemetry::state).at_most(32),
                                            field("policy", &power::ClusterTelemetry::policy).at_most(32),
                                            field("period_s", &power::ClusterTelemetry::period_s, "s"),
                                            field("lease_s", &power::ClusterTelemetry::lease_s, "s"),
                                            field("budget_w", &power::ClusterTelemetry::budget_w, "W"),
                                            field("safe_w", &power::ClusterTelemetry::safe_w, "W"),
                                            field("committed_w", &power::ClusterTelemetry::committed_w, "W"),
                                            field("power_w", &power::ClusterTelemetry::power_w, "W"),
                                            field("nodes", &power::ClusterTelemetry::nodes),
                                            field("heard", &power::ClusterTelemetry::heard),
                                            field("leased", &power::ClusterTelemetry::leased),
                                            field("restored_w", &power::ClusterTelemetry::restored_w, "W"),
                                            field("shed_left_s", &power::ClusterTelemetry::shed_left_s, "s"),
                                            field("unknown_nodes", &power::ClusterTelemetry::unknown_nodes),
                                            field("unknown_w", &power::ClusterTelemetry::unknown_w, "W")};
};
template <> struct Described<power::SystemQuery> {
  static constexpr auto name = "sonde::power::SystemQuery";
  static constexpr auto fields = std::tuple{field("ask", &power::SystemQuery::ask)};
};
template <> struct Described<power::SystemCommand> {
  static constexpr auto name = "sonde::power::SystemCommand";
  static constexpr auto fields = std::tuple{field("order", &power::SystemCommand::order),
                                            field("budget_w", &power::SystemCommand::budget_w, "W"),
                                            field("share", &power::SystemCommand::share),
                                            field("for_s", &power::SystemCommand::for_s, "s"),
                                            field("job", &power::SystemCommand::job).at_most(64),
                                            field("user", &power::SystemCommand::user).at_most(64),
                                            field("reason", &power::SystemCommand::reason).at_most(256),
                                            field("nodes", &power::SystemCommand::nodes).at_most(100000),
                                            field("guaranteed_w", &power::SystemCommand::guaranteed_w, "W"),
                                            field("demand_w", &power::SystemCommand::demand_w, "W"),
                                            field("weight", &power::SystemCommand::weight),
                                            field("wait_s", &power::SystemCommand::wait_s, "s")};
};
template <> struct Described<power::NodeShare> {
  static constexpr auto name = "sonde::power::NodeShare";
  static constexpr auto fields = std::tuple{field("node", &power::NodeShare::node).at_most(64),
                                            field("heard", &power::NodeShare::heard),
                                            field("leased", &power::NodeShare::leased),
                                            field("power_w", &power::NodeShare::power_w, "W"),
                                            field("cap_w", &power::NodeShare::cap_w, "W"),
                                            field("committed_w", &power::NodeShare::committed_w, "W"),
                                            field("wanted_w", &power::NodeShare::wanted_w, "W"),
                                            field("min_w", &power::NodeShare::min_w, "W"),
                                            field("max_w", &power::NodeShare::max_w, "W"),
                                            field("safe_w", &power::NodeShare::safe_w, "W"),
                                            field("age_s", &power::NodeShare::age_s, "s"),
                                            field("job", &power::NodeShare::job).at_most(64),
                                            field("trouble", &power::NodeShare::trouble).at_most(256)};
};
template <> struct Described<power::SystemAnswer> {
  static constexpr auto name = "sonde::power::SystemAnswer";
  static constexpr auto fields = std::tuple{field("cluster", &power::SystemAnswer::cluster),
                                            field("services", &power::SystemAnswer::services).at_most(64),
                                            field("nodes", &power::SystemAnswer::nodes).at_most(100000),
                                            field("comply_s", &power::SystemAnswer::comply_s, "s")};
};

}  // namespace sonde::bus
