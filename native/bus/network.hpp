#pragma once
/// Resolves the interfaces and peers of a profile to addresses: interfaces ("eth0", "10.1.2.3", "10.1.0.0/16",
/// "fd00::/8") and peers ("n001", "10.1.2.3:4", "[fd00::1]:2"). The modules pass the result to their DDS. Any-thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bus/profile.hpp"
#include "core/error.hpp"

namespace sonde::bus {

/// An address of an interface that is up.
struct Address {
  std::string interface;  ///< "eth0"
  std::string address;    ///< "10.1.2.3", "fe80::1": without the scope
  bool v6 = false;
  bool loopback = false;
  bool link_local = false;  ///< needs a scope when written: scoped()
  unsigned index = 0;       ///< of the interface
  unsigned prefix = 0;      ///< bits of its network

  std::string scoped() const { return link_local && v6 ? address + "%" + interface : address; }
  bool operator==(const Address&) const = default;
};

/// All addresses of this machine, by index of their interface, IPv4 first. Error: bus.network.
Result<std::vector<Address>> machine_addresses();

/// The addresses that the words of a transport select from `addresses`, each once, in the order of the words; without
/// words: loopback. For IPv6, the name of an interface and a network exclude link-local addresses if there are others.
/// shared_memory: no addresses. Errors: bus.unknown_interface (the word, available interfaces), bus.bad_profile (a word
/// that is not a name, address or network).
Result<std::vector<Address>> chosen_addresses(const Transport& transport, const std::vector<Address>& addresses);
/// The same for the addresses of this machine.
Result<std::vector<Address>> chosen_addresses(const Transport& transport);

/// Whether all are loopback addresses, so that nothing leaves the machine.
bool only_loopback(const std::vector<Address>& addresses);

/// A parsed word of Discovery::peers or ::servers.
struct Peer {
  std::string host;         ///< a name or an address without brackets
  unsigned number = 0;      ///< after the colon: largest number of participants, or the port; 0: not given
  bool is_address = false;  ///< not a name
  bool v6 = false;          ///< an IPv6 address

  bool operator==(const Peer&) const = default;
};

/// Checks only the syntax, without a name server. Error: bus.bad_profile.
Result<Peer> parse_peer(std::string_view word);
/// Its address of the given kind, from the system's resolver; an address is returned as it is. Error: bus.unknown_host.
/// May wait for a name server.
Result<std::string> address_of(const Peer& peer, bool v6);
/// Whether the host is written as a loopback address, or is "localhost".
bool is_loopback(const Peer& peer);

/// Checks a profile against the addresses of its transport. Addresses other than loopback need security or
/// `unprotected`. Loopback cannot reach peers on other machines, and without groups simple discovery finds no
/// participant on other machines. No DDS reports these errors.
/// Errors: bus.unprotected, bus.bad_profile.
Result<void> check_exposure(const Profile& profile, const std::vector<Address>& addresses);

}  // namespace sonde::bus
