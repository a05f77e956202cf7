#pragma once
/// The configuration of a power stack: one TOML file for all roles, so that all of them have the same budget and nodes.
/// docs/reference/power-config.md is its manual. An unknown key is an error that names its line and the nearest known
/// key. Any-thread.
///
///   cluster = "demo"
///   [bus]            profile = "/etc/sonde/bus.xml"
///   [budget]         power_limit = "1.2kW"  policy = "fair"  lease = "15s"  period = "2s"
///   [[nodes]]        hosts = "n[001-004]"  min = "100W"  max = "400W"  safe = "150W"  rack = "r1"  cores = 64  memory
///       = "256GiB"
///   [racks.r1]       power_limit = "20kW"  cooling = "15kW"
///   [node-manager]   telemetry = "30s"  state = "/var/lib/sonde/power-node"
///     [[node-manager.hardware]]  kind = "powercap"
///   [system-manager] audit = "/var/log/sonde/power-audit.jsonl"  takeover = "6s"
///   [job-scheduler]  [resource-manager]  [job-manager]  [workflow-engine]  [users]  [monitor]  [mqtt-bridge]

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "power/hardware/node.hpp"
#include "power/ledger.hpp"

namespace sonde::power {

struct NodeConfig {
  Member member;
  std::string rack;
  std::uint32_t cores = 0, disks = 0, nics = 0;
  std::uint64_t memory_bytes = 0;
};

struct RackConfig {
  double power_limit_w = unknown, cooling_w = unknown;
};

struct BudgetConfig {
  double power_limit_w = unknown;
  std::string policy = "uniform";
  double lease_s = 15, renew_s = 5, period_s = 2, clock_error = 1e-3;
  double soft_w = unknown;  ///< from this power on, jobs that can use less are asked to, before caps are lowered
  bool observe = false, without_quorum = false;
};

struct NodeManagerConfig {
  std::string name;  ///< empty: this host's name, as [[nodes]] has it
  double telemetry_s = 30;
  bool in_step = true;  ///< looks and reports at multiples of their intervals by the time of day
  std::string state = "/var/lib/sonde/power-node";
  double base_w = 0;
  bool restore = false;  ///< at an orderly end: restore the state before the first cap, instead of the safe cap
  std::vector<HardwareSpec> hardware;
};

struct SystemManagerConfig {
  std::string name;  ///< empty: this host's name
  std::string state = "/var/lib/sonde/power";
  std::string audit = "/var/log/sonde/power-audit.jsonl";
  std::uint64_t audit_bytes = 64u << 20;  ///< then a new file is begun, and the one before the last is removed
  double takeover_s = 6;                  ///< without a message of the leader
  std::uint32_t priority = 0;             ///< of standbys: each waits this number of periods longer
  std::string metrics;                    ///< HOST:PORT of OpenMetrics; empty: none
  std::string metrics_token_file;
};

struct QueueConfig {
  std::string name;
  std::int32_t priority = 0;
  bool is_default = false;
  std::vector<std::string> users, groups;     ///< allowed users; both empty: all
  double default_time_s = 0, max_time_s = 0;  ///< 0: max_time_s; any
  std::uint32_t max_nodes = 0;                ///< of one job; 0: any
  double max_power_w = unknown;               ///< guaranteed to one job, all its nodes together
};

struct ShareConfig {
  std::string user;
  double share = 1;
};

struct SchedulerConfig {
  std::string kind = "auto";  ///< slurm, built-in; auto: Slurm where it answers
  std::string state = "/var/lib/sonde/power-jobs";
  double period_s = 1;
  double fairness = 1;  ///< steps of priority between a user who had nothing and one who had everything
  double fairness_half_life_s = 7 * 86400;
  double age_s = 86400;       ///< this waiting time counts one step of priority
  double keep_s = 7 * 86400;  ///< jobs that are over
  std::uint32_t max_waiting = 10000, max_waiting_user = 2500;
  std::vector<QueueConfig> queues;
  std::vector<ShareConfig> shares;
};

struct ResourceManagerConfig {
  std::string state = "/var/lib/sonde/power-resources";
};

struct JobManagerConfig {
  std::string state = "/var/lib/sonde/power-runs";  ///< with a folder for each job
  std::vector<std::string> launcher;  ///< words before a job's command, {host} for the node; none: this host starts it
  double grace_s = 10;                ///< from TERM to KILL, if the job sets none
  double report_s = 10;               ///< between two reports of a job
  double keep_s = 7 * 86400.0;        ///< a job's folder is removed this time after its end
  std::vector<std::string> users;  ///< whose jobs are started; none: the daemon's own user's, of root: all but root's
  std::string pam_service = "login";   ///< PAM service whose account stack is asked; none: no check
  std::int64_t max_tasks = 10000;      ///< of a job, and of its user on a node; 0: any
  std::uint64_t max_memory_bytes = 0;  ///< of a job on the manager's host; 0: any
};

struct WorkflowEngineConfig {
  std::string state = "/var/lib/sonde/power-workflows";
  double look_s = 2;  ///< between two looks at the jobs of a workflow
};

/// How the sender of an order about jobs and workflows is identified.
struct UsersConfig {
  std::string proof = "none";  ///< none: the sender's statement counts; munge: a credential of MUNGE
  std::vector<std::string> may_speak_for_others{"sonde-workflow-engine", "sonde-job-scheduler"};
  ///< besides root and the role's own user
};

struct MonitorConfig {
  std::string listen = "127.0.0.1:9440";
  std::string token_file, tls_certificate, tls_key;
  std::string history = "/var/lib/sonde/power-monitor/history.sqlite";
  double keep_s = 30 * 86400.0;
};

struct BridgeConfig {
  std::string name;  ///< empty: this host's name
  std::string broker = "127.0.0.1:1883";
  std::string user, password_file, ca, certificate, key;
  bool unprotected =
      false;  ///< a broker on this machine without proof of identity gets the password and may give orders
  std::string naming = "sonde";  ///< sonde, examon, sparkplug
  std::string prefix = "sonde";
  std::vector<std::string> to_mqtt, from_mqtt;  ///< topics of the bus, with * and ?
  int qos = 1;
  bool requests = false;                            ///< whether requests may come by MQTT at all
  std::string state = "/var/lib/sonde/power-mqtt";  ///< its own folder: it needs none of the rights of the others
  std::uint64_t store_bytes = 64u << 20;            ///< control messages that wait for the broker, on disk
  std::string metrics;                              ///< HOST:PORT of OpenMetrics; empty: none
  std::string metrics_token_file;
};

struct Config {
  std::string path;
  std::string cluster = "cluster";
  std::string bus_profile, bus_name;  ///< file and name in it; an empty file: loopback, domain 0
  BudgetConfig budget;
  std::vector<NodeConfig> nodes;
  std::map<std::string, RackConfig> racks;
  NodeManagerConfig node_manager;
  SystemManagerConfig system_manager;
  SchedulerConfig scheduler;
  ResourceManagerConfig resource_manager;
  JobManagerConfig job_manager;
  WorkflowEngineConfig workflow_engine;
  UsersConfig users;
  MonitorConfig monitor;
  BridgeConfig bridge;
};

/// Errors: power.no_file, power.bad_toml (line, column, what), power.unknown_key (line, the nearest), power.bad_value
/// (key, value, what is allowed), power.bad_node (a host named twice, min above max, safe outside),
/// power.safe_above_budget (both sums), power.unknown_policy.
Result<Config> load_config(const std::string& path);
Result<Config> parse_config(std::string_view toml, const std::string& path = "");

/// Every key with its type, default and meaning: for the manual, error messages, and Python.
struct ConfigKey {
  std::string section, key, type, default_value, what;
};
const std::vector<ConfigKey>& config_keys();
/// The configuration as JSON, with defaults filled in: what other languages read.
std::string to_json(const Config& config);

}  // namespace sonde::power
