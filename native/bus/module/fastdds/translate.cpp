#include "bus/module/fastdds/translate.hpp"

#include <arpa/inet.h>
#include <fastdds/rtps/common/Locator.h>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastdds/rtps/transport/UDPv6TransportDescriptor.h>
#include <fastdds/rtps/transport/shared_mem/SharedMemTransportDescriptor.h>
#include <fastrtps/utils/IPLocator.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "bus/module/fastdds/shared_memory.hpp"
#include "bus/network.hpp"

namespace sonde::bus::fastdds {

namespace {

namespace transports = eprosima::fastdds::rtps;
using rtps::IPLocator;
using rtps::Locator_t;

/// The ports of DDSI-RTPS 2.2, 9.6.1.
constexpr unsigned port_base = 7400, domain_gain = 250, participant_gain = 2, discovery_offset = 10, data_offset = 11;
constexpr unsigned indices = 120;  ///< participants of one host that simple discovery without groups asks
constexpr unsigned default_server_port = 11811;
/// Receive buffer of UDP sockets without a value in the profile: the kernel's default of 208 KiB overflows when 40
/// participants announce themselves at once. If the system does not grant it, the buffer is smaller; that is no error.
/// For sending, the kernel's default is best: on loopback it blocks a writer until its reader has read, and after this
/// number of bytes a reliable writer requests an acknowledgement. With 4 MiB the writer overruns the reader instead.
constexpr std::uint32_t receive_bytes = 4u << 20;
/// Size of shared memory, which holds data that a participant has sent and no reader has read yet. Fast DDS fills it
/// with zeros immediately, so that it is allocated.
constexpr std::uint32_t segment_bytes = 2u << 20;
/// The most messages that wait at a port, and that a participant has in transfer. Messages beyond that are lost and
/// sent again: with Fast DDS's default of 512 this happens all the time to a writer of small samples, which may have
/// 5000 in transfer.
constexpr std::uint32_t queue_messages = 4096, port_bytes = queue_messages * 16 + (64u << 10);

unsigned discovery_port(std::uint32_t domain, unsigned index) {
  return port_base + domain_gain * domain + discovery_offset + participant_gain * index;
}
unsigned last_index(std::uint32_t domain) {
  return std::min(indices - 1, (65535 - (port_base + domain_gain * domain + data_offset)) / participant_gain);
}

std::uint32_t clamped(std::uint64_t bytes, std::uint32_t otherwise) {
  return bytes ? static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, 1u << 30)) : otherwise;
}

std::int32_t kind_of(TransportKind kind) {
  switch (kind) {
    case TransportKind::udp6: return LOCATOR_KIND_UDPv6;
    case TransportKind::shared_memory: return LOCATOR_KIND_SHM;
    case TransportKind::udp4:
    case TransportKind::tcp4: break;
  }
  return LOCATOR_KIND_UDPv4;
}

Locator_t locator(TransportKind kind, const std::string& address, std::uint32_t port) {
  Locator_t out(kind_of(kind), port);
  if (kind == TransportKind::udp6) IPLocator::setIPv6(out, address);
  else if (kind != TransportKind::shared_memory) IPLocator::setIPv4(out, address);
  return out;
}

/// Ports of shared memory. If a new process takes the number of a killed one, senders continue to write to the old
/// port, and the new process receives nothing. So participants do not take the first free numbers, but different ones,
/// as far as the domain has any. The group's port stays.
void scatter(std::uint32_t domain, unsigned number, rtps::PortParameters& ports) {
  const unsigned group = port_base + domain_gain * domain;
  const unsigned pairs = std::max((65535 - group - data_offset) / participant_gain, number + 2) - number - 1;
  ports.offsetd1 = static_cast<std::uint16_t>(discovery_offset + participant_gain * (std::random_device{}() % pairs));
  ports.offsetd3 = static_cast<std::uint16_t>(ports.offsetd1 + 1);
}

/// GUID prefix of a server, derived from its address, so that clients need only the address. It contains the domain,
/// because a server of Fast DDS 2 does not check it: clients that expect another prefix ignore the server.
rtps::GuidPrefix_t server_prefix(std::uint32_t domain, const std::string& address, bool v6, std::uint16_t port) {
  rtps::GuidPrefix_t prefix;
  unsigned char bytes[16] = {};
  inet_pton(v6 ? AF_INET6 : AF_INET, address.c_str(), bytes);
  if (v6)  // 16 bytes do not fit; the XOR of both halves still differs between addresses of a site
    for (unsigned k = 0; k < 8; ++k) bytes[k] = static_cast<unsigned char>(bytes[k] ^ bytes[k + 8]);
  prefix.value[0] = 0x44;
  prefix.value[1] = static_cast<unsigned char>(domain);
  std::memcpy(prefix.value + 2, bytes, 8);
  prefix.value[10] = static_cast<unsigned char>(port >> 8);
  prefix.value[11] = static_cast<unsigned char>(port & 0xff);
  return prefix;
}

/// Whether a port is free: if not, Fast DDS would use the next one, where others do not search.
bool is_free(TransportKind kind, const std::string& address, std::uint16_t port) {
  const bool v6 = kind == TransportKind::udp6;
  const int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  sockaddr_storage storage{};
  socklen_t size = 0;
  if (v6) {
    auto* at = reinterpret_cast<sockaddr_in6*>(&storage);
    at->sin6_family = AF_INET6;
    at->sin6_port = htons(port);
    inet_pton(AF_INET6, address.c_str(), &at->sin6_addr);
    size = sizeof *at;
  } else {
    auto* at = reinterpret_cast<sockaddr_in*>(&storage);
    at->sin_family = AF_INET;
    at->sin_port = htons(port);
    inet_pton(AF_INET, address.c_str(), &at->sin_addr);
    size = sizeof *at;
  }
  const bool ok = bind(fd, reinterpret_cast<sockaddr*>(&storage), size) == 0;
  close(fd);
  return ok;
}

Error taken(const std::string& address, std::uint16_t port) {
  return {"bus.open", "the port " + std::to_string(port) + " of " + address + " is taken",
          "choose another; 'ss -lnp' says who has it"};
}

/// A peer or server of the profile as an address of the transport's kind.
Result<std::string> resolved(const Peer& peer, TransportKind kind) {
  return address_of(peer, kind == TransportKind::udp6);
}

Result<void> add_transport(const Profile& profile, const std::vector<Address>& addresses, ParticipantPlan& plan) {
  const Transport& transport = profile.transport;
  std::vector<std::string> words;
  for (const Address& address : addresses) words.push_back(address.scoped());
  auto& into = plan.qos.transport();
  into.use_builtin_transports = false;
  const auto set_sockets = [&](auto& descriptor) {
    descriptor.interfaceWhiteList = words;
    descriptor.receiveBufferSize = clamped(transport.receive_buffer_bytes, receive_bytes);
    descriptor.sendBufferSize = clamped(transport.send_buffer_bytes, 0);
    if (transport.max_message_bytes) descriptor.maxMessageSize = transport.max_message_bytes;
    if (only_loopback(addresses)) descriptor.TTL = 0;
  };
  switch (transport.kind) {
    case TransportKind::udp4: {
      auto descriptor = std::make_shared<transports::UDPv4TransportDescriptor>();
      set_sockets(*descriptor);
      into.user_transports.push_back(descriptor);
      break;
    }
    case TransportKind::udp6: {
      auto descriptor = std::make_shared<transports::UDPv6TransportDescriptor>();
      set_sockets(*descriptor);
      into.user_transports.push_back(descriptor);
      break;
    }
    case TransportKind::tcp4:
      return Error{"bus.unsupported", "fastdds 2 loses samples over tcp4; asked for: tcp4", "take kind=\"udp4\""};
    case TransportKind::shared_memory: {
      auto descriptor = std::make_shared<transports::SharedMemTransportDescriptor>();
      descriptor->port_queue_capacity(queue_messages);
      descriptor->segment_size(clamped(transport.send_buffer_bytes, segment_bytes));
      if (transport.max_message_bytes) descriptor->max_message_size(transport.max_message_bytes);
      into.user_transports.push_back(descriptor);
      break;
    }
  }
  return {};
}

Result<void> add_discovery(const Profile& profile, const std::vector<Address>& addresses, unsigned number,
                           ParticipantPlan& plan) {
  const Transport& transport = profile.transport;
  const Discovery& discovery = profile.discovery;
  const TransportKind kind = transport.kind;
  const bool v6 = kind == TransportKind::udp6;
  auto& wire = plan.qos.wire_protocol();
  auto& builtin = wire.builtin;
  auto& config = builtin.discovery_config;
  config.leaseDuration = duration(discovery.lease_s);
  config.leaseDuration_announcementperiod =
      duration(discovery.announce_s > 0 ? discovery.announce_s : std::min(3.0, discovery.lease_s / 3));

  const unsigned last = last_index(profile.domain);
  // Fast DDS joins IPv6 groups by the address's scope, which ::1 does not have: it receives no group.
  const bool deaf = v6 && only_loopback(addresses);
  if (deaf && transport.multicast == Multicast::all)
    return Error{"bus.unsupported", "fastdds 2 has no groups on IPv6's loopback; asked for: multicast=\"all\"",
                 "leave multicast out, or take kind=\"udp4\""};
  const bool announced = discovery.kind == DiscoveryKind::simple && transport.multicast != Multicast::none && !deaf;
  if (kind == TransportKind::shared_memory) {
    if (discovery.kind != DiscoveryKind::simple)
      return Error{"bus.unsupported",
                   "fastdds 2 over shared memory finds its peers by simple discovery; asked for: peers or a server",
                   "leave <discovery> out, or take kind=\"udp4\""};
    scatter(profile.domain, number, wire.port);
    plan.group_port = port_base + domain_gain * profile.domain;
    const std::uint64_t needed = clamped(transport.send_buffer_bytes, segment_bytes) + 3 * port_bytes;
    if (room() < needed)
      return Error{
          "bus.open",
          "/dev/shm has " + std::to_string(room()) + " B free, and a participant needs " + std::to_string(needed),
          "give it more room, or a smaller send-buffer; what killed processes left there has been removed already"};
    return {};
  }
  if (!announced) builtin.metatrafficUnicastLocatorList.push_back(locator(kind, v6 ? "::" : "0.0.0.0", 0));
  if (transport.multicast == Multicast::all)
    wire.default_multicast_locator_list.push_back(
        locator(kind, v6 ? "ff1e::ffff:efff:1" : "239.255.0.1", port_base + domain_gain * profile.domain + 1));

  switch (discovery.kind) {
    case DiscoveryKind::simple:
      config.discoveryProtocol = rtps::DiscoveryProtocol_t::SIMPLE;
      // Without groups, simple discovery asks every port of this machine.
      if (!announced)
        for (const Address& address : addresses)
          for (unsigned k = 0; k <= last; ++k)
            builtin.initialPeersList.push_back(locator(kind, address.address, discovery_port(profile.domain, k)));
      break;
    case DiscoveryKind::peers:
      config.discoveryProtocol = rtps::DiscoveryProtocol_t::SIMPLE;
      for (const std::string& word : discovery.peers) {
        auto peer = parse_peer(word);
        if (!peer) return peer.error();
        auto address = resolved(*peer, kind);
        if (!address) return address.error();
        const unsigned count = std::min(std::max(peer->number, 1u), last + 1);
        for (unsigned k = 0; k < count; ++k)
          builtin.initialPeersList.push_back(locator(kind, *address, discovery_port(profile.domain, k)));
      }
      break;
    case DiscoveryKind::server: {
      config.discoveryProtocol = !discovery.serve           ? rtps::DiscoveryProtocol_t::CLIENT
                                 : discovery.backup.empty() ? rtps::DiscoveryProtocol_t::SERVER
                                                            : rtps::DiscoveryProtocol_t::BACKUP;
      for (std::size_t k = 0; k < discovery.servers.size(); ++k) {
        auto peer = parse_peer(discovery.servers[k]);
        if (!peer) return peer.error();
        auto address = resolved(*peer, kind);
        if (!address) return address.error();
        const auto port = static_cast<std::uint16_t>(peer->number ? peer->number : default_server_port);
        const auto at = locator(kind, *address, port);
        if (k == 0 && discovery.serve) {
          if (!is_free(kind, *address, port)) return taken(*address, port);
          wire.prefix = server_prefix(profile.domain, *address, v6, port);
          builtin.metatrafficUnicastLocatorList.clear();
          builtin.metatrafficUnicastLocatorList.push_back(at);
          plan.port = port;
          continue;
        }
        transports::RemoteServerAttributes server;
        server.guidPrefix = server_prefix(profile.domain, *address, v6, port);
        server.metatrafficUnicastLocatorList.push_back(at);
        config.m_DiscoveryServers.push_back(server);
      }
      if (discovery.serve && !discovery.backup.empty()) {
        std::error_code failed;
        plan.folder = std::filesystem::absolute(discovery.backup, failed).string();
        if (!failed) std::filesystem::create_directories(plan.folder, failed);
        if (failed)
          return Error{"bus.open", "the backup folder '" + discovery.backup + "' cannot be made: " + failed.message(),
                       "name a folder that may be written to"};
      }
      break;
    }
  }
  return {};
}

Result<void> add_security(const Security& security, dds::DomainParticipantQos& qos) {
  auto& properties = qos.properties().properties();
  properties.emplace_back("dds.sec.auth.plugin", "builtin.PKI-DH");
  properties.emplace_back("dds.sec.access.plugin", "builtin.Access-Permissions");
  properties.emplace_back("dds.sec.crypto.plugin", "builtin.AES-GCM-GMAC");
  const std::pair<const char*, const std::string*> files[] = {
      {"dds.sec.auth.builtin.PKI-DH.identity_ca", &security.identity_ca},
      {"dds.sec.auth.builtin.PKI-DH.identity_certificate", &security.certificate},
      {"dds.sec.auth.builtin.PKI-DH.private_key", &security.private_key},
      {"dds.sec.access.builtin.Access-Permissions.permissions_ca", &security.permissions_ca},
      {"dds.sec.access.builtin.Access-Permissions.governance", &security.governance},
      {"dds.sec.access.builtin.Access-Permissions.permissions", &security.permissions},
  };
  for (const auto& [name, path] : files) {
    if (access(path->c_str(), R_OK) != 0)
      return Error{"bus.open", "the security file '" + *path + "' (" + name + ") cannot be read",
                   "'sonde bus keys add' makes all six files"};
    properties.emplace_back(name, "file://" + *path);
  }
  return {};
}

void set_user_data(const std::string& text, dds::UserDataQosPolicy& into) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  into.data_vec(std::vector<unsigned char>(bytes, bytes + text.size()));
}

dds::LivelinessQosPolicyKind kind_of(Liveliness kind) {
  switch (kind) {
    case Liveliness::manual_by_participant: return dds::MANUAL_BY_PARTICIPANT_LIVELINESS_QOS;
    case Liveliness::manual_by_topic: return dds::MANUAL_BY_TOPIC_LIVELINESS_QOS;
    case Liveliness::automatic: break;
  }
  return dds::AUTOMATIC_LIVELINESS_QOS;
}

/// For topics with keys, Fast DDS needs room for max_instances times max_samples_per_instance, and sums these products
/// over a topic's endpoints in 32 bits. So with keys a bound applies to each instance, and the number of instances is
/// what 32 bits allow.
void set_history(const Qos& qos, bool keyed, dds::HistoryQosPolicy& history, dds::ResourceLimitsQosPolicy& limits) {
  constexpr std::uint32_t default_samples = 5000, allocated = 100, most_samples = 1 << 22;
  const bool all = qos.history == History::keep_all;
  const std::uint32_t bound =
      std::min(all ? (qos.max_samples ? qos.max_samples : default_samples) : std::max(qos.depth, 1u), most_samples);
  history.kind = all ? dds::KEEP_ALL_HISTORY_QOS : dds::KEEP_LAST_HISTORY_QOS;
  if (!all) history.depth = static_cast<std::int32_t>(bound);
  limits.max_samples_per_instance = static_cast<std::int32_t>(bound);
  limits.max_instances = keyed ? static_cast<std::int32_t>(most_samples / bound) : 1;
  limits.max_samples = limits.max_instances * limits.max_samples_per_instance;
  limits.allocated_samples = static_cast<std::int32_t>(std::min(allocated, bound));
}

/// Sets the policies that writers and readers share.
template <typename Into> void set_common(const Qos& qos, bool keyed, Into& into) {
  into.reliability().kind =
      qos.reliability == Reliability::reliable ? dds::RELIABLE_RELIABILITY_QOS : dds::BEST_EFFORT_RELIABILITY_QOS;
  into.durability().kind = qos.durability == Durability::transient_local ? dds::TRANSIENT_LOCAL_DURABILITY_QOS
                                                                         : dds::VOLATILE_DURABILITY_QOS;
  into.deadline().period = duration(qos.deadline_s);
  into.lifespan().duration = duration(qos.lifespan_s);
  into.liveliness().kind = kind_of(qos.liveliness);
  into.liveliness().lease_duration = duration(qos.lease_s);
  if (qos.lease_s != forever) into.liveliness().announcement_period = duration(qos.lease_s * 0.3);
  into.ownership().kind =
      qos.ownership == Ownership::exclusive ? dds::EXCLUSIVE_OWNERSHIP_QOS : dds::SHARED_OWNERSHIP_QOS;
  set_user_data(qos.user_data, into.user_data());
  set_history(qos, keyed, into.history(), into.resource_limits());
  into.data_sharing().off();
  // The two "dynamic" policies lose disposals, whose payload is empty.
  into.endpoint().history_memory_policy = rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
}

Result<void> possible(const Qos& qos) {
  if (qos.ownership == Ownership::exclusive && qos.strength < 0)
    return Error{"bus.unsupported",
                 "fastdds 2 compares strengths as numbers without a sign; asked for: " + std::to_string(qos.strength),
                 "take strengths of 0 and more"};
  return {};
}

}  // namespace

eprosima::fastrtps::Duration_t duration(double seconds) {
  if (!(seconds < 2e9)) return eprosima::fastrtps::c_TimeInfinite;
  const double whole = std::floor(std::max(seconds, 0.0));
  const double rest = std::min(std::max((std::max(seconds, 0.0) - whole) * 1e9, 0.0), 999'999'999.0);
  return {static_cast<std::int32_t>(whole), static_cast<std::uint32_t>(std::lround(rest))};
}

std::string policy_name(dds::QosPolicyId_t id) {
  switch (id) {
    case dds::DURABILITY_QOS_POLICY_ID: return "durability";
    case dds::DEADLINE_QOS_POLICY_ID: return "deadline";
    case dds::LATENCYBUDGET_QOS_POLICY_ID: return "latency_budget";
    case dds::OWNERSHIP_QOS_POLICY_ID: return "ownership";
    case dds::LIVELINESS_QOS_POLICY_ID: return "liveliness";
    case dds::RELIABILITY_QOS_POLICY_ID: return "reliability";
    case dds::DESTINATIONORDER_QOS_POLICY_ID: return "order";
    case dds::PARTITION_QOS_POLICY_ID: return "partition";
    case dds::PRESENTATION_QOS_POLICY_ID: return "presentation";
    default: return "number " + std::to_string(static_cast<int>(id)) + " of DDS";
  }
}

Result<ParticipantPlan> plan_participant(const Profile& profile, unsigned number) {
  // Fast DDS ends the process if its ports exceed 16 bits.
  if (number > last_index(profile.domain))
    return Error{"bus.open",
                 "domain " + std::to_string(profile.domain) + " has ports for " +
                     std::to_string(last_index(profile.domain) + 1) +
                     " participants of one process, and this is number " + std::to_string(number + 1) + "",
                 "close some, or take a domain below 200"};
  ParticipantPlan plan;
  plan.qos.wire_protocol().participant_id = static_cast<std::int32_t>(number);
  const auto addresses = chosen_addresses(profile.transport);
  if (!addresses) return addresses.error();
  plan.qos.name(profile.participant);
  auto& properties = plan.qos.properties().properties();
  properties.clear();  // Fast DDS's own properties announce the same in more bytes
  properties.emplace_back("__Pid", std::to_string(getpid()), true);
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) properties.emplace_back("__Hostname", host, true);
  if (profile.security)
    if (auto ok = add_security(*profile.security, plan.qos); !ok) return ok.error();
  if (auto ok = add_discovery(profile, *addresses, number, plan); !ok) return ok.error();
  if (auto ok = add_transport(profile, *addresses, plan); !ok) return ok.error();
  return plan;
}

Result<WriterPlan> plan_writer(const Qos& qos, bool keyed) {
  if (auto ok = possible(qos); !ok) return ok.error();
  WriterPlan plan;
  for (const std::string& partition : qos.partitions) plan.publisher.partition().push_back(partition.c_str());
  set_common(qos, keyed, plan.writer);
  plan.writer.reliability().max_blocking_time = duration(std::min(qos.max_blocking_s, wait_piece_s));
  plan.writer.ownership_strength().value = static_cast<std::uint32_t>(qos.strength);
  plan.writer.publish_mode().kind = dds::SYNCHRONOUS_PUBLISH_MODE;
  plan.max_blocking_s = qos.max_blocking_s;
  // With a deadline, Fast DDS would stop checking for missed deadlines when it forgets an instance; and unregistering
  // an instance also gives up its ownership.
  plan.gives_up = qos.deadline_s == forever && qos.ownership == Ownership::shared;
  plan.writer.writer_data_lifecycle().autodispose_unregistered_instances = true;
  // A lost last sample is noticed by the next heartbeat: every 3 s by default.
  plan.writer.reliable_writer_qos().times.heartbeatPeriod = duration(0.1);
  return plan;
}

Result<ReaderPlan> plan_reader(const Qos& qos, bool keyed) {
  if (auto ok = possible(qos); !ok) return ok.error();
  ReaderPlan plan;
  for (const std::string& partition : qos.partitions) plan.subscriber.partition().push_back(partition.c_str());
  set_common(qos, keyed, plan.reader);
  return plan;
}

}  // namespace sonde::bus::fastdds
