#pragma once
/// Keeps datagrams off Cyclone's sockets that do not come by the interfaces of the profile.
///
/// Cyclone binds what it receives with to all addresses of the machine, whatever interfaces it is given, and has no
/// setting for it (ddsi_udp.c, ddsi_udp_create_conn(), bind_to_any): a bus on loopback would take what other hosts send
/// to its ports. So each socket gets a filter before it is bound, in Cyclone's own call of ddsrt_bind(): a filter that
/// came later would let through what is sent while a bus opens.

#include <linux/filter.h>

#include <string>
#include <vector>

#include "bus/network.hpp"

namespace sonde::bus::cyclonedds {

/// A program of Linux' classic socket filter. It takes what this machine sends by a loopback interface, what is sent to
/// one of the addresses, and what comes to a group on one of their interfaces; of loopback addresses nothing but the
/// first, so that no route and no rewritten address leads there from outside. `machine`: all addresses.
std::vector<sock_filter> datagram_filter(const std::vector<Address>& addresses, const std::vector<Address>& machine);

/// While one lives, each socket that Cyclone binds on this thread gets the filter. Owner-thread.
class Confinement {
 public:
  explicit Confinement(std::vector<sock_filter> filter);
  ~Confinement();
  Confinement(const Confinement&) = delete;
  Confinement& operator=(const Confinement&) = delete;

  /// Whether each socket since has got it.
  bool complete() const { return sockets_ > 0 && refused_.empty(); }
  /// Why a socket has not got it, in the system's words. Empty where Cyclone's calls do not come here, because the
  /// process had loaded it before this module, or because it was linked with -Bsymbolic.
  const std::string& refused() const { return refused_; }

  /// Any-thread.
  static void before_bind(int socket);

 private:
  std::vector<sock_filter> filter_;
  unsigned sockets_ = 0;
  std::string refused_;
};

}  // namespace sonde::bus::cyclonedds
