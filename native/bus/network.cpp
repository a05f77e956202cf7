#include "bus/network.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "core/nearest.hpp"
#include "core/number.hpp"
#include "core/text.hpp"

namespace sonde::bus {
namespace {

using Bits = std::array<std::uint8_t, 16>;

struct Parsed {
  Bits bits{};
  bool v6 = false;
};

std::optional<Parsed> parse_address(std::string_view text) {
  const std::string copy(text);
  Parsed parsed;
  if (inet_pton(AF_INET, copy.c_str(), parsed.bits.data()) == 1) return parsed;
  parsed.v6 = true;
  if (inet_pton(AF_INET6, copy.c_str(), parsed.bits.data()) == 1) return parsed;
  return std::nullopt;
}

bool within(const Bits& address, const Bits& network, unsigned prefix) {
  for (unsigned bit = 0; bit < prefix; ++bit)
    if ((address[bit / 8] ^ network[bit / 8]) >> (7 - bit % 8) & 1) return false;
  return true;
}

std::string text_of(const sockaddr* from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from->sa_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(from)->sin_addr, text, sizeof text);
  else inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(from)->sin6_addr, text, sizeof text);
  return text;
}

unsigned prefix_of(const sockaddr* mask) {
  if (!mask) return 0;
  unsigned bits = 0;
  const auto* bytes =
      mask->sa_family == AF_INET
          ? reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
          : reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr);
  for (int k = 0; k < (mask->sa_family == AF_INET ? 4 : 16); ++k)
    bits += static_cast<unsigned>(std::popcount(bytes[k]));
  return bits;
}

std::string described(const std::vector<Address>& addresses, bool v6) {
  std::vector<std::string> words;
  for (const auto& a : addresses)
    if (a.v6 == v6) words.push_back(a.interface + " (" + a.address + "/" + std::to_string(a.prefix) + ")");
  return words.empty() ? std::string("no interface that is up has an address of ") + (v6 ? "IPv6" : "IPv4")
                       : "there are: " + joined(words);
}

Error unknown(const std::string& what, const std::vector<Address>& addresses, bool v6) {
  return {"bus.unknown_interface", what, described(addresses, v6)};
}

Error bad_word(std::string_view word, const std::string& why) {
  return {"bus.bad_profile", "the interface " + shown(word) + " " + why,
          "allowed: a name (eth0), an address (10.1.2.3, fd00::1) or a network (10.1.0.0/16, fd00::/8)"};
}

/// For IPv6, the addresses without a scope if there are any.
std::vector<Address> without_link_local(std::vector<Address> found) {
  const auto needs_scope = [](const Address& a) { return a.v6 && a.link_local; };
  if (!std::all_of(found.begin(), found.end(), needs_scope)) std::erase_if(found, needs_scope);
  return found;
}

Result<std::vector<Address>> meant(std::string_view word, const std::vector<Address>& addresses, bool v6) {
  const char* family = v6 ? "IPv6" : "IPv4";
  std::string_view head = word;
  std::optional<unsigned> prefix;
  if (const std::size_t slash = word.find('/'); slash != std::string_view::npos) {
    head = word.substr(0, slash);
    unsigned bits = 0;
    const auto network = parse_address(head);
    if (!network || !number(word.substr(slash + 1), bits)) return bad_word(word, "is no network");
    if (bits > (network->v6 ? 128u : 32u))
      return bad_word(
          word, "has a prefix of " + std::to_string(bits) + " bits; allowed: up to " + (network->v6 ? "128" : "32"));
    prefix = bits;
  }
  if (const auto parsed = parse_address(head)) {
    if (parsed->v6 != v6)
      return bad_word(word, std::string("is of ") + (v6 ? "IPv4" : "IPv6") + ", the transport is of " + family);
    std::vector<Address> found;
    for (const auto& a : addresses) {
      if (a.v6 != v6) continue;
      const auto own = parse_address(a.address);
      if (own && within(own->bits, parsed->bits, prefix.value_or(v6 ? 128u : 32u))) found.push_back(a);
    }
    if (found.empty())
      return unknown("no interface of this machine that is up has " +
                         std::string(prefix ? "an address in " : "the address ") + std::string(word),
                     addresses, v6);
    return prefix ? without_link_local(std::move(found)) : found;
  }
  if (word.empty() || word.size() >= IFNAMSIZ || word.find_first_of("%:") != std::string_view::npos)
    return bad_word(word, "is no name, address or network");
  std::vector<Address> found;
  std::vector<std::string> names;
  for (const auto& a : addresses) {
    if (a.interface == word && a.v6 == v6) found.push_back(a);
    if (std::find(names.begin(), names.end(), a.interface) == names.end()) names.push_back(a.interface);
  }
  if (!found.empty()) return without_link_local(std::move(found));
  if (std::find(names.begin(), names.end(), word) != names.end())
    return unknown("the interface " + std::string(word) + " has no address of " + family, addresses, v6);
  return unknown("there is no interface " + shown(word) + " on this machine that is up" + nearest(word, names),
                 addresses, v6);
}

}  // namespace

Result<std::vector<Address>> machine_addresses() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0)
    return Error{"bus.network", std::string("cannot list this machine's interfaces: ") + std::strerror(errno),
                 "see what 'ip address' says"};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, freeifaddrs);
  std::vector<Address> addresses;
  for (const ifaddrs* at = raw; at; at = at->ifa_next) {
    if (!at->ifa_addr || !(at->ifa_flags & IFF_UP)) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Address a;
    a.interface = at->ifa_name;
    a.address = text_of(at->ifa_addr);
    a.v6 = family == AF_INET6;
    a.loopback = at->ifa_flags & IFF_LOOPBACK;
    a.link_local = a.v6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr);
    a.index = if_nametoindex(at->ifa_name);
    a.prefix = prefix_of(at->ifa_netmask);
    addresses.push_back(std::move(a));
  }
  std::stable_sort(addresses.begin(), addresses.end(),
                   [](const Address& a, const Address& b) { return a.v6 != b.v6 ? b.v6 : a.index < b.index; });
  return addresses;
}

Result<std::vector<Address>> chosen_addresses(const Transport& transport, const std::vector<Address>& addresses) {
  if (transport.kind == TransportKind::shared_memory) return std::vector<Address>{};
  const bool v6 = transport.kind == TransportKind::udp6;
  std::vector<Address> chosen;
  if (transport.interfaces.empty()) {
    for (const auto& a : addresses)
      if (a.loopback && a.v6 == v6) chosen.push_back(a);
    if (chosen.empty())
      return unknown(std::string("the loopback interface has no address of ") + (v6 ? "IPv6" : "IPv4") + ", or is down",
                     addresses, v6);
    return chosen;
  }
  for (const auto& word : transport.interfaces) {
    auto found = meant(word, addresses, v6);
    if (!found) return found.error();
    for (auto& a : *found)
      if (std::find(chosen.begin(), chosen.end(), a) == chosen.end()) chosen.push_back(std::move(a));
  }
  return chosen;
}

Result<std::vector<Address>> chosen_addresses(const Transport& transport) {
  const auto addresses = machine_addresses();
  if (!addresses) return addresses.error();
  return chosen_addresses(transport, *addresses);
}

bool only_loopback(const std::vector<Address>& addresses) {
  return std::all_of(addresses.begin(), addresses.end(), [](const Address& a) { return a.loopback; });
}

Result<Peer> parse_peer(std::string_view word) {
  const auto bad = [&](const std::string& why) {
    return Error{
        "bus.bad_profile", "the peer " + shown(word) + " " + why,
        "write a host or an address, with :number behind it where one is meant: n001, 10.1.2.3:4, [fd00::1]:4"};
  };
  Peer peer;
  std::string_view host = word, rest;
  if (word.starts_with('[')) {
    const std::size_t end = word.find(']');
    if (end == std::string_view::npos) return bad("has no ]");
    host = word.substr(1, end - 1);
    rest = word.substr(end + 1);
    const auto parsed = parse_address(host);
    if (!parsed || !parsed->v6) return bad("has no IPv6 address within its brackets");
    if (!rest.empty() && rest.front() != ':')
      return bad("has " + shown(rest) + " behind its brackets; allowed: a colon and a number");
  } else if (std::count(word.begin(), word.end(), ':') == 1) {
    host = word.substr(0, word.find(':'));
    rest = word.substr(host.size());
  }
  if (!rest.empty() && (!number(rest.substr(1), peer.number) || peer.number < 1 || peer.number > 65535))
    return bad("has no number from 1 to 65535 behind its colon");
  const auto parsed = parse_address(host);
  peer.is_address = parsed.has_value();
  peer.v6 = parsed && parsed->v6;
  if (!parsed) {
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
             c == '_';
    };
    if (host.empty() || host.size() > 253 || host.front() == '-' || !std::all_of(host.begin(), host.end(), allowed))
      return bad("is no host name and no address");
    if (host.find_first_not_of("0123456789.") == std::string_view::npos) return bad("is no address of IPv4");
  }
  peer.host = host;
  return peer;
}

Result<std::string> address_of(const Peer& peer, bool v6) {
  const auto unknown_host = [&](const std::string& why, const std::string& hint) {
    return Error{"bus.unknown_host", "the host " + shown(peer.host) + ": " + why, hint};
  };
  if (const auto parsed = parse_address(peer.host)) {
    if (parsed->v6 != v6)
      return unknown_host(std::string("is an address of ") + (parsed->v6 ? "IPv6" : "IPv4") + ", the transport is of " +
                              (v6 ? "IPv6" : "IPv4"),
                          "give one of the transport's kind");
    return peer.host;
  }
  addrinfo hints{};
  hints.ai_family = v6 ? AF_INET6 : AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* raw = nullptr;
  if (const int code = getaddrinfo(peer.host.c_str(), nullptr, &hints, &raw); code != 0)
    return unknown_host(gai_strerror(code), "correct the name, enter it in /etc/hosts, or give its address");
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(raw, freeaddrinfo);
  return text_of(raw->ai_addr);
}

bool is_loopback(const Peer& peer) {
  if (peer.host == "localhost") return true;
  const auto parsed = parse_address(peer.host);
  if (!parsed) return false;
  if (!parsed->v6) return parsed->bits[0] == 127;
  return std::all_of(parsed->bits.begin(), parsed->bits.end() - 1, [](std::uint8_t b) { return b == 0; }) &&
         parsed->bits.back() == 1;
}

Result<void> check_exposure(const Profile& profile, const std::vector<Address>& addresses) {
  const bool no_groups =
      profile.transport.kind == TransportKind::tcp4 || profile.transport.multicast == Multicast::none;
  if (no_groups && profile.discovery.kind == DiscoveryKind::simple && !only_loopback(addresses))
    return Error{"bus.bad_profile",
                 "the profile " + profile.name + " has no groups, by " +
                     (profile.transport.kind == TransportKind::tcp4 ? "kind=\"tcp4\"" : "multicast=\"none\"") +
                     ": simple discovery finds nobody on other machines",
                 "name the machines: <discovery kind=\"peers\" peers=\"n001 n002\"/>, or take kind=\"server\""};
  const auto open_to = std::find_if(addresses.begin(), addresses.end(), [](const Address& a) { return !a.loopback; });
  if (open_to != addresses.end()) {
    if (profile.security || profile.unprotected) return {};
    return Error{"bus.unprotected",
                 "the profile " + profile.name + " is on the interface " + open_to->interface + " (" +
                     open_to->address + ") without <security>: whoever reaches it may read and write all topics",
                 "add <security folder=\"…\" identity=\"…\"/> ('sonde bus keys' makes the files), leave interfaces out "
                 "for loopback alone, or say unprotected=\"yes\""};
  }
  if (addresses.empty()) return {};
  for (const auto* words : {&profile.discovery.peers, &profile.discovery.servers})
    for (const auto& word : *words) {
      auto peer = parse_peer(word);
      if (!peer) return peer.error();
      if (peer->is_address && !is_loopback(*peer))
        return Error{"bus.bad_profile",
                     "the profile " + profile.name + ": " + shown(word) +
                         " is not on this machine, and the transport is on loopback alone",
                     "name the interface that leads there: <transport interfaces=\"…\">"};
    }
  return {};
}

}  // namespace sonde::bus
