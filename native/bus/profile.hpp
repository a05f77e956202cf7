#pragma once
/// Everything that a program should not fix at compile time: domain, transports, discovery, security, types,
/// topics and their QoS. There is one XML schema, translated for each implementation; docs/reference/bus-profile.md is
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
/// SONDE_BUS_IDENTITY in the environment replaces `identity`, so that programs with separate keys can share a profile.

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
/// The data sent to multicast groups: nothing, the announcements of simple discovery, or also samples for several
/// readers.
enum class Multicast : std::uint8_t { none, discovery, all };

struct Transport {
  TransportKind kind = TransportKind::udp4;
  Multicast multicast = Multicast::discovery;
  std::vector<std::string> interfaces;  ///< names ("eth0"), addresses or networks ("10.1.0.0/16"); empty: only loopback
  std::uint64_t receive_buffer_bytes = 0, send_buffer_bytes = 0;  ///< of sockets; 0: default
  std::uint32_t max_message_bytes = 0;                            ///< largest datagram; 0: default
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
  double announce_s = 0;  ///< between announcements; 0: the implementation's default
  double lease_s = 10;    ///< a participant is gone after this time without a sign of life

  bool operator==(const Discovery&) const = default;
};

/// Files with the names of DDS Security 1.1; `sonde bus keys` creates them.
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
  std::string participant;     ///< name of this participant for others; empty: program and pid
  Transport transport;
  Discovery discovery;
  std::optional<Security> security;
  double spin_s = -1;  ///< how long a waiting thread polls before it sleeps; 0: it does not poll, below 0: adaptive
                       ///< (core/spin.hpp)
  bool unprotected = false;  ///< allows interfaces other than loopback without `security`
  std::map<std::string, TypePtr> types;
  std::map<std::string, TopicProfile> topics;
};

/// One profile of a file ("" : the only one, or the one named "default"). An unknown element, attribute or value is an
/// error that names it, its line and the nearest known one. Files that it names are searched in its folder. Errors:
/// bus.bad_profile, bus.unknown_key, bus.no_file, bus.bad_idl, bus.no_profile.
Result<Profile> load_profile(const std::string& path, std::string_view name = "");
/// The same from text; `folder`: the folder of files that it names.
Result<Profile> parse_profile(std::string_view xml, std::string_view name = "", const std::string& folder = ".",
                              const std::string& file = "");
/// XML from which parse_profile() creates an equal profile, with types as IDL.
std::string to_xml(const Profile& profile);
/// The elements of the schema, for the manual and for completion.
struct ProfileElement {
  struct Attribute {
    std::string name;
    std::vector<std::string> values;  ///< the allowed words, if they are a fixed set
    bool required = false;
  };
  std::string name;
  std::vector<Attribute> attributes;
  std::vector<std::string> children;
};
std::vector<ProfileElement> profile_elements();
/// Checks a profile without an implementation: domain, bounds, kinds that exclude each other. load_profile() calls it.
/// Error: bus.bad_profile.
Result<void> check(const Profile& profile);
/// The same for the QoS of a writer or reader: bounds, portable partitions, size of the user data. Error:
/// bus.bad_qos.
Result<void> check(const Qos& qos);
/// 1 … 255 letters, digits, '_', '/', ':'. Error: bus.bad_name.
Result<void> check_topic_name(std::string_view name);

}  // namespace sonde::bus
