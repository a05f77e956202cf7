#pragma once
/// Translates a profile for Cyclone: the XML that configures its domain, and the properties of a participant.
/// Any-thread.

#include <linux/filter.h>

#include <string>
#include <utility>
#include <vector>

#include "bus/profile.hpp"

namespace sonde::bus::cyclonedds {

/// The configuration of a domain.
struct DomainPlan {
  std::string config;               ///< Cyclone's XML
  std::vector<sock_filter> filter;  ///< the filter of its sockets: confinement.hpp
  /// Participants prove no identity, and the profile does not allow that: then no socket may be opened without the
  /// filter.
  bool must_be_confined = false;
  /// Participants have keys. Cyclone has one set of security plug-ins for a domain of a process: next to a participant
  /// with keys, 0.10.2 refuses one without keys, and crashes at the next one when the first has left.
  bool secured = false;
};

/// The domain's part: everything about sockets and discovery, and nothing that differs between two participants of one
/// process, because participants with equal texts can share a domain. Names are resolved here and now (network.hpp),
/// with the errors of network.hpp.
Result<DomainPlan> plan_domain(const Profile& profile);

/// Names and values, "dds.sec.auth.identity_ca" …, of the participant's QoS. Error: bus.open if a file is missing.
Result<std::vector<std::pair<std::string, std::string>>> security_properties(const Security& security);

}  // namespace sonde::bus::cyclonedds
