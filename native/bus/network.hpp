#pragma once
/// From the words of a profile to addresses of this machine: interfaces ("eth0", "10.1.2.3", "10.1.0.0/16", "fd00::/8")
/// and peers ("n001", "10.1.2.3:4", "[fd00::1]:2"). What the modules give their DDS. Any-thread.

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
  bool link_local = false;  ///< has to be written with its scope: scoped()
  unsigned index = 0;       ///< the interface's
  unsigned prefix = 0;      ///< bits of its network

  std::string scoped() const { return link_local && v6 ? address + "%" + interface : address; }
  bool operator==(const Address&) const = default;
};

/// All of this machine, by index of their interface, IPv4 first. Error: bus.network.
Result<std::vector<Address>> machine_addresses();

/// Those of `addresses` that the transport's words mean, each once, in the order of the words; none said: loopback's.
/// Of IPv6 an interface's name and a network leave link-local addresses out where it has others. shared_memory: none.
/// Errors: bus.unknown_interface (the word, what there is), bus.bad_profile (a word that is no name, address or
/// network).
Result<std::vector<Address>> chosen_addresses(const Transport& transport, const std::vector<Address>& addresses);
/// The same of this machine's.
Result<std::vector<Address>> chosen_addresses(const Transport& transport);

/// Whether nothing that is sent from them leaves the machine.
bool only_loopback(const std::vector<Address>& addresses);

/// A word of Discovery::peers or ::servers.
struct Peer {
  std::string host;         ///< a name or an address without brackets
  unsigned number = 0;      ///< after the colon: most participants, or the port; 0: not said
  bool is_address = false;  ///< and no name
  bool v6 = false;          ///< an address of IPv6

  bool operator==(const Peer&) const = default;
};

/// Whether it is written as one; nobody is asked whether there is such a host. Error: bus.bad_profile.
Result<Peer> parse_peer(std::string_view word);
/// Its address of the kind, as the system's resolver says; addresses are given back. Error: bus.unknown_host. May wait
/// for a name server.
Result<std::string> address_of(const Peer& peer, bool v6);
/// Whether the host is written as a loopback address, or is "localhost".
bool is_loopback(const Peer& peer);

/// Whether a profile may be on these addresses, which its transport chose: others than loopback only with security or
/// `unprotected`; from loopback alone no peer elsewhere is reached, and without groups simple discovery finds nobody
/// elsewhere; no DDS would say so.
/// Errors: bus.unprotected, bus.bad_profile.
Result<void> check_exposure(const Profile& profile, const std::vector<Address>& addresses);

}  // namespace sonde::bus
