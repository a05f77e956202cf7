#pragma once
/// A profile in Cyclone's own words: the XML that its domain is made of, and the properties of a participant. Any-thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bus/profile.hpp"

namespace sonde::bus::cyclonedds {

/// All that belongs to the sockets and to discovery, and nothing that differs between two participants of one process: equal texts can share
/// a domain.
struct DomainConfig {
  std::string text;                       ///< where `ports` are several, with the mark `port_mark` for the one that is taken
  std::vector<std::uint16_t> ports;       ///< to listen at by TCP, the first that is free; none: not by TCP
  std::vector<std::string> own_peers;     ///< parts of the text that would connect it to itself, each but for the port behind it and peer_end
};
inline constexpr std::string_view port_mark = "@port@", peer_end = "\"/>";

/// Words are resolved on this machine and at once (network.hpp); errors are its, and bus.unsupported.
Result<DomainConfig> domain_config(const Profile& profile);

/// Names and values, "dds.sec.auth.identity_ca" …, of the participant's QoS. Error: bus.open where a file is missing.
Result<std::vector<std::pair<std::string, std::string>>> security_properties(const Security& security);

}  // namespace sonde::bus::cyclonedds
