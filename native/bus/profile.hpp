#pragma once
/// Everything that a program does not want to know at compile time: domain, transports, discovery, security, types,
/// topics and their QoS. One XML schema of ours, translated for each implementation; docs/reference/bus-profile.md is
/// its manual. Any-thread.
///
///   <sonde-bus version="1">
///     <profile name="node" domain="0">
///       <transport kind="udp4" multicast="discovery" interfaces="10.1.0.0/16" receive-buffer="1MiB"/>
///       <discovery kind="peers" peers="n001 n002"/>
///       <security folder="/etc/sonde/bus/keys" identity="node-manager"/>
///       <types idl="power.idl"/>
///       <topic name="Monitor_report_node_telemetry" type="regale::NodeTelemetry" reliability="best-effort" depth="1"/>
///     </profile>
///   </sonde-bus>
///
/// SONDE_BUS_IDENTITY in the environment counts instead of `identity`: programs with keys of their own share one
/// profile.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bus/qos.hpp"
#include "bus/types.hpp"

namespace sonde::bus {

enum class TransportKind : std::uint8_t { udp4, udp6, tcp4, shared_memory };
/// What is sent to groups instead of to each: nothing, the announcements of simple discovery, or samples for several
/// readers too.
enum class Multicast : std::uint8_t { none, discovery, all };

struct Transport {
  TransportKind kind = TransportKind::udp4;
  Multicast multicast = Multicast::discovery;
  std::vector<std::string> interfaces;  ///< names ("eth0"), addresses or networks ("10.1.0.0/16"); none: loopback alone
  std::uint64_t receive_buffer_bytes = 0, send_buffer_bytes = 0;  ///< of sockets; 0: the implementation's
  std::uint32_t max_message_bytes = 0;                            ///< a datagram at most; 0: the implementation's
  std::uint16_t port = 0;  ///< tcp4: to listen at; 0: the implementation's choice

  bool operator==(const Transport&) const = default;
};

enum class DiscoveryKind : std::uint8_t { simple, peers, server };
struct Discovery {
  DiscoveryKind kind = DiscoveryKind::simple;
  std::vector<std::string>
      peers;  ///< of peers: hosts or addresses, ":participants" after each where more than 1 may run there
  std::vector<std::string> servers;  ///< of server: "address:port"; the first that answers serves
  bool serve = false;     ///< of server: this participant is the (first of the) servers, listening at servers[0]
  std::string backup;     ///< of a server: folder from which it goes on after a crash; empty: none
  double announce_s = 0;  ///< between announcements; 0: the implementation's
  double lease_s = 10;    ///< a participant that was not heard of for so long is gone

  bool operator==(const Discovery&) const = default;
};

/// Files as DDS Security 1.1 names them; `sonde bus keys` makes them.
struct Security {
  std::string identity_ca, certificate, private_key, permissions_ca, governance, permissions;

  bool operator==(const Security&) const = default;
};

struct TopicProfile {
  std::string name, type;  ///< type: scoped name of one of Profile::types
  Qos writer, reader;
};

struct Profile {
  std::string name = "default";
  std::string implementation;  ///< empty: SONDE_BUS, else cyclonedds
  std::uint32_t domain = 0;    ///< 0 … 232
  std::string participant;     ///< what others see this participant called; empty: program and pid
  Transport transport;
  Discovery discovery;
  std::optional<Security> security;
  double spin_s = -1;  ///< looked for so long for what is awaited before a thread sleeps; 0: never, below 0: as it pays
                       ///< (core/spin.hpp)
  bool unprotected = false;  ///< other interfaces than loopback without `security`: refused unless this is said
  std::map<std::string, TypePtr> types;
  std::map<std::string, TopicProfile> topics;
};

/// One profile of a file ("" : the only one, or the one named "default"). An unknown element, attribute or value is an
/// error that names it, its line and the nearest known one. Files that it names are looked for beside it. Errors:
/// bus.bad_profile, bus.unknown_key, bus.no_file, bus.bad_idl, bus.no_profile.
Result<Profile> load_profile(const std::string& path, std::string_view name = "");
/// The same from text; `folder`: where files that it names are.
Result<Profile> parse_profile(std::string_view xml, std::string_view name = "", const std::string& folder = ".",
                              const std::string& file = "");
/// XML that parse_profile() makes an equal profile of, types as IDL within it.
std::string to_xml(const Profile& profile);
/// What the schema knows, element by element: of the manual and of whoever completes words.
struct ProfileElement {
  struct Attribute {
    std::string name;
    std::vector<std::string> values;  ///< where it takes one of a few words
    bool required = false;
  };
  std::string name;
  std::vector<Attribute> attributes;
  std::vector<std::string> children;
};
std::vector<ProfileElement> profile_elements();
/// What can be said of a profile without an implementation: domain, bounds, kinds that exclude each other.
/// load_profile() has done it.
/// Error: bus.bad_profile.
Result<void> check(const Profile& profile);
/// The same of a writer's or reader's QoS: bounds, partitions that every DDS reads alike, room for user data. Error:
/// bus.bad_qos.
Result<void> check(const Qos& qos);
/// 1 … 255 letters, digits, '_', '/', ':'. Error: bus.bad_name.
Result<void> check_topic_name(std::string_view name);

}  // namespace sonde::bus
