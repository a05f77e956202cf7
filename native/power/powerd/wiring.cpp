#include "power/powerd/wiring.hpp"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>

#include "power/messages.hpp"

namespace sonde::power {

namespace {

/// Telemetry is worth nothing once there is newer; a few samples are kept for readers that are late for one.
bus::Qos telemetry_qos(std::uint32_t depth = 8) {
  bus::Qos qos;
  qos.depth = depth;
  qos.max_blocking_s = 0.1;  // who writes has leases to look after
  return qos;
}

}  // namespace

std::vector<bus::TypePtr> message_types() {
  using bus::type_of;
  return {type_of<NodeQuery>(),     type_of<NodeCommand>(),   type_of<NodeAnswer>(),
          type_of<NodeTelemetry>(), type_of<JobTelemetry>(),  type_of<ClusterTelemetry>(),
          type_of<SystemQuery>(),   type_of<SystemCommand>(), type_of<SystemAnswer>()};
}

std::string idl() {
  // One structure that needs all of them gives each once; then it goes.
  std::vector<bus::Field> fields;
  for (const auto& type : message_types())
    fields.push_back({std::string("f").append(std::to_string(fields.size())), type, false, ""});
  std::string text = bus::to_idl(*bus::structure("sonde::power::Everything", std::move(fields)));
  const auto begin = text.rfind("struct Everything");
  const auto line = begin == std::string::npos ? begin : text.rfind('\n', begin);
  const auto end = begin == std::string::npos ? begin : text.find("};", begin);
  if (line != std::string::npos && end != std::string::npos) text.erase(line, end + 2 - line);
  return text;
}

Result<bus::Profile> bus_profile(const Config& config, const std::string& participant, bool past) {
  bus::Profile profile;
  if (!config.bus_profile.empty()) {
    auto loaded = bus::load_profile(config.bus_profile, config.bus_name);
    if (!loaded) return loaded.error();
    profile = std::move(*loaded);
  }
  if (profile.participant.empty()) profile.participant = participant;
  for (const auto& type : message_types()) profile.types.emplace(type->name, type);
  const auto add = [&, qos = telemetry_qos()](const char* name, const bus::TypePtr& type) {
    profile.topics.emplace(name, bus::TopicProfile{name, type->name, qos, qos});
  };
  // A new reader must not wait for each node's turn, which may be minutes away: the last reports are stored for readers
  // that ask for the past.
  bus::Qos kept = telemetry_qos(2), reader = telemetry_qos();
  kept.durability = bus::Durability::transient_local;
  if (past) reader.durability = bus::Durability::transient_local;
  profile.topics.emplace(topic::node_telemetry,
                         bus::TopicProfile{topic::node_telemetry, bus::type_of<NodeTelemetry>()->name, kept, reader});
  add(topic::job_telemetry, bus::type_of<JobTelemetry>());
  add(topic::cluster_telemetry, bus::type_of<ClusterTelemetry>());
  return profile;
}

Result<std::shared_ptr<bus::Bus>> open_bus(const Config& config, const std::string& participant) {
  auto profile = bus_profile(config, participant);
  if (!profile) return profile.error();
  return bus::Bus::open(*profile);
}

std::string own_name(const std::string& asked, const std::string& configured) {
  if (!asked.empty()) return asked;
  if (!configured.empty()) return configured;
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string name(host.data());
  return name.substr(0, name.find('.'));
}

}  // namespace sonde::power
