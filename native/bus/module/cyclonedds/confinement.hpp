#pragma once
/// Keeps datagrams that do not arrive on interfaces of the profile away from Cyclone's sockets.
///
/// Cyclone binds its receiving sockets to all addresses of the machine, whatever interfaces are configured, and no
/// setting changes that (ddsi_udp.c, ddsi_udp_create_conn(), bind_to_any): a bus on loopback would accept data from
/// other hosts. So each socket gets a filter before it is bound, inside Cyclone's call of ddsrt_bind(): a later filter
/// would let data through while a bus opens.

#include <linux/filter.h>

#include <string>
#include <vector>

#include "bus/network.hpp"

namespace sonde::bus::cyclonedds {

/// A program of Linux' classic socket filter. It accepts data that this machine sends over a loopback interface, data
/// to one of the addresses, and data to a group on one of their interfaces. For loopback addresses it accepts only the
/// first kind, so that no route or rewritten address leads there from outside. `machine`: all addresses.
std::vector<sock_filter> datagram_filter(const std::vector<Address>& addresses, const std::vector<Address>& machine);

/// While this object exists, each socket that Cyclone binds on this thread gets the filter. Owner-thread.
class Confinement {
 public:
  explicit Confinement(std::vector<sock_filter> filter);
  ~Confinement();
  Confinement(const Confinement&) = delete;
  Confinement& operator=(const Confinement&) = delete;

  /// Whether each socket since then has got the filter.
  bool complete() const { return sockets_ > 0 && refused_.empty(); }
  /// Why a socket did not get it, as the system's message. Empty if Cyclone's calls do not arrive here, because the
  /// process had loaded Cyclone before this module, or because Cyclone was linked with -Bsymbolic.
  const std::string& refused() const { return refused_; }

  /// Any-thread.
  static void before_bind(int socket);

 private:
  std::vector<sock_filter> filter_;
  unsigned sockets_ = 0;
  std::string refused_;
};

}  // namespace sonde::bus::cyclonedds
