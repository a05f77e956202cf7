#pragma once
/// A profile in Cyclone's own words: the XML that its domain is made of, and the properties of a participant.
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
  std::vector<sock_filter> filter;  ///< for its sockets: confinement.hpp
  /// Nobody proves anything there, and the profile does not say that this is meant: then no socket without the filter
  /// may be opened.
  bool must_be_confined = false;
  /// With keys. Cyclone has one set of security plug-ins for a domain of a process: beside a participant with keys
  /// 0.10.2 refuses one without, and crashes at the next one when that with keys has left.
  bool secured = false;
};

/// The domain's part: all that belongs to the sockets and to discovery, and nothing that differs between two
/// participants of one process: with equal texts they can share a domain. Words are resolved on this machine and at
/// once (network.hpp); errors are its.
Result<DomainPlan> plan_domain(const Profile& profile);

/// Names and values, "dds.sec.auth.identity_ca" …, of the participant's QoS. Error: bus.open where a file is missing.
Result<std::vector<std::pair<std::string, std::string>>> security_properties(const Security& security);

}  // namespace sonde::bus::cyclonedds
