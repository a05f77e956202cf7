#include "bus/module/cyclonedds/config.hpp"

#include <dds/dds.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <tuple>

#include "bus/module/cyclonedds/confinement.hpp"
#include "bus/network.hpp"

namespace sonde::bus::cyclonedds {

namespace {

/// The ports of DDSI-RTPS 2.2, 9.6.1, for the participant with index k in a domain.
constexpr unsigned port_base = 7400, domain_gain = 250, participant_gain = 2, discovery_offset = 10, data_offset = 11;
constexpr unsigned indices =
    120;  ///< how many processes of one host may be in a domain, where peers have to find their ports
constexpr unsigned peer_participants = 1;  ///< ports tried for a peer without a number

/// Cyclone's limit for resent messages; room for headers before a fragment; the smallest and the largest fragment that
/// Cyclone accepts. Fragments are whole words: Cyclone rounds the last one up to a word, and would otherwise send
/// memory after the sample.
constexpr std::uint32_t rexmit_bytes = 1456, header_bytes = 256, word_bytes = 4, least_fragment_bytes = 1028,
                        most_fragment_bytes = 65000;

unsigned discovery_port(std::uint32_t domain, unsigned index) {
  return port_base + domain_gain * domain + discovery_offset + participant_gain * index;
}

/// The last index whose ports exist: less than `indices` in the last domains.
unsigned last_index(std::uint32_t domain) {
  const unsigned first = port_base + domain_gain * domain + data_offset;
  return std::min(indices, (65535 - first) / participant_gain);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string element(const char* name, const std::string& value) {
  return std::string("<") + name + ">" + escaped(value) + "</" + name + ">";
}

std::string ms(double seconds) { return std::to_string(std::llround(std::max(seconds, 0.001) * 1e3)) + " ms"; }

std::string buffer(const char* name, std::uint64_t bytes) {
  // With "default" as the minimum, a size that the system does not grant gives a smaller buffer, not an error.
  return std::string("<") + name + " min=\"default\" max=\"" + std::to_string(bytes) + " B\"/>";
}

/// The folder of the security plug-ins: next to the library or, in Debian, in a folder named after it, which the loader
/// does not search.
std::string plugin_folder() {
  Dl_info library{};
  if (!::dladdr(reinterpret_cast<const void*>(&::dds_create_participant), &library) || !library.dli_fname) return {};
  std::error_code failed;
  const std::filesystem::path beside = std::filesystem::weakly_canonical(library.dli_fname, failed).parent_path();
  const auto is_here = [](const std::filesystem::path& folder) {
    std::error_code none;
    return std::filesystem::exists(folder / "libdds_security_auth.so", none);
  };
  if (is_here(beside)) return beside.string();
  for (auto at = std::filesystem::directory_iterator(beside, failed);
       !failed && at != std::filesystem::directory_iterator(); at.increment(failed))
    if (at->path().filename().string().starts_with("libddsc") && is_here(at->path())) return at->path().string();
  return {};
}

std::string bracketed(const std::string& address, bool v6) { return v6 ? "[" + address + "]" : address; }

}  // namespace

Result<DomainPlan> plan_domain(const Profile& profile) {
  const Transport& transport = profile.transport;
  const Discovery& discovery = profile.discovery;
  const bool v6 = transport.kind == TransportKind::udp6;
  const bool simple = discovery.kind == DiscoveryKind::simple;
  const auto machine = machine_addresses();
  if (!machine) return machine.error();
  const auto addresses = chosen_addresses(transport, *machine);
  if (!addresses) return addresses.error();
  const bool loopback = only_loopback(*addresses);
  const bool groups = !(v6 && loopback);

  std::string general = element("Transport", v6 ? "udp6" : "udp");
  std::string interfaces;
  for (const Address& address : *addresses) {
    interfaces +=
        "<NetworkInterface name=\"" + escaped(address.interface) + "\" address=\"" + escaped(address.address) + "\"";
    // Linux' loopback supports IPv4 groups, although its flags do not show it. Cyclone uses the flags unless this is
    // configured.
    if (address.loopback) interfaces += groups ? " multicast=\"true\"" : " multicast=\"false\"";
    interfaces += "/>";
  }
  general += "<Interfaces>" + interfaces + "</Interfaces>";
  const bool announced = simple && groups && transport.multicast != Multicast::none;
  const bool samples = groups && transport.multicast == Multicast::all;
  general += element("AllowMulticast", samples ? (announced ? "true" : "asm") : announced ? "spdp" : "false");
  if (transport.max_message_bytes) {
    const std::uint32_t most = transport.max_message_bytes;
    const std::uint32_t fragment = std::clamp(most - header_bytes, least_fragment_bytes, most_fragment_bytes);
    general += element("MaxMessageSize", std::to_string(most) + " B") +
               element("MaxRexmitMessageSize", std::to_string(std::min(most, rexmit_bytes)) + " B") +
               element("FragmentSize", std::to_string(fragment / word_bytes * word_bytes) + " B");
  }

  std::string found;
  const unsigned last = last_index(profile.domain);
  if (announced) {
    found += element("ParticipantIndex", "none");
  } else {
    found += element("ParticipantIndex", "auto") + element("MaxAutoParticipantIndex", std::to_string(last));
    std::string peers;
    const auto add = [&](const std::string& host, bool is_v6, unsigned count) {
      for (unsigned k = 0; k < std::min(count, last + 1); ++k)
        peers += "<Peer Address=\"" + escaped(bracketed(host, is_v6)) + ":" +
                 std::to_string(discovery_port(profile.domain, k)) + "\"/>";
    };
    // Without groups, for example on loopback with IPv6, simple discovery asks every port of this machine.
    if (simple)
      for (const Address& address : *addresses) add(address.scoped(), address.v6, last + 1);
    for (const std::string& word : discovery.peers) {
      auto peer = parse_peer(word);
      if (!peer) return peer.error();
      const auto host = address_of(*peer, v6);
      if (!host) return host.error();
      add(*host, v6, peer->number ? peer->number : peer_participants);
    }
    if (!peers.empty()) found += "<Peers>" + peers + "</Peers>";
  }
  if (discovery.announce_s > 0) found += element("SPDPInterval", ms(discovery.announce_s));
  found += element("LeaseDuration", ms(discovery.lease_s));

  // Without it, disposals reach no reader of Fast DDS, which identifies instances by their hash.
  std::string internal = element("GenerateKeyhash", "true");
  if (transport.receive_buffer_bytes) internal += buffer("SocketReceiveBufferSize", transport.receive_buffer_bytes);
  if (transport.send_buffer_bytes) internal += buffer("SocketSendBufferSize", transport.send_buffer_bytes);
  if (loopback) general += element("MulticastTimeToLive", "0");

  return DomainPlan{.config = "<CycloneDDS><Domain Id=\"any\"><General>" + general + "</General><Discovery>" + found +
                              "</Discovery>" + "<Internal>" + internal + "</Internal>" +
                              "<Tracing><OutputFile>stderr</OutputFile></Tracing></Domain></CycloneDDS>",
                    .filter = datagram_filter(*addresses, *machine),
                    .must_be_confined = !profile.security && !profile.unprotected,
                    .secured = profile.security.has_value()};
}

Result<std::vector<std::pair<std::string, std::string>>> security_properties(const Security& security) {
  std::vector<std::pair<std::string, std::string>> out;
  const std::pair<const char*, const std::string*> files[] = {
      {"dds.sec.auth.identity_ca", &security.identity_ca}, {"dds.sec.auth.identity_certificate", &security.certificate},
      {"dds.sec.auth.private_key", &security.private_key}, {"dds.sec.access.permissions_ca", &security.permissions_ca},
      {"dds.sec.access.governance", &security.governance}, {"dds.sec.access.permissions", &security.permissions},
  };
  for (const auto& [name, path] : files) {
    if (::access(path->c_str(), R_OK) != 0)
      return Error{"bus.open", "the security file '" + *path + "' (" + name + ") cannot be read",
                   "'sonde bus keys add' makes all six files"};
    out.emplace_back(name, "file:" + *path);
  }
  const std::string folder = plugin_folder();
  if (folder.empty())
    return Error{"bus.open",
                 "this Cyclone DDS has no security: libdds_security_auth.so lies neither beside libddsc.so nor in a "
                 "folder libddsc* there",
                 "install a build of Cyclone DDS with security"};
  for (const auto& [part, name, symbol] :
       {std::tuple{"auth", "auth", "authentication"}, std::tuple{"access", "ac", "access_control"},
        std::tuple{"crypto", "crypto", "crypto"}}) {
    const std::string prefix = std::string("dds.sec.") + part + ".library.";
    out.emplace_back(prefix + "path", folder + "/libdds_security_" + name + ".so");
    out.emplace_back(prefix + "init", std::string("init_") + symbol);
    out.emplace_back(prefix + "finalize", std::string("finalize_") + symbol);
  }
  return out;
}

}  // namespace sonde::bus::cyclonedds
