#pragma once
/// The bus of the power stack: one place that says which topics there are, of which types, with which QoS, so that no
/// two roles differ. Any-thread.

#include <memory>
#include <string>
#include <vector>

#include "bus/bus.hpp"
#include "power/config.hpp"

namespace sonde::power {

/// All types of messages.hpp that are samples, requests or replies.
std::vector<bus::TypePtr> message_types();
/// Those and what they need, as IDL: what src/sonde/power/stack/power.idl is.
std::string idl();

/// The profile of the configuration's file, or loopback and domain 0 where it names none, with the stack's types and
/// topics added where it does not declare them itself. `participant`: what others see it called. `past`: its readers
/// get each node's last reports, too, when they join; not for managers, to whom what a node had counts from when
/// they heard it. Errors: those of bus::load_profile().
Result<bus::Profile> bus_profile(const Config& config, const std::string& participant, bool past = false);
/// Errors besides: those of bus::Bus::open().
Result<std::shared_ptr<bus::Bus>> open_bus(const Config& config, const std::string& participant);

/// `asked` (an option) or `configured`, else this host's name up to the first dot.
std::string own_name(const std::string& asked, const std::string& configured);

}  // namespace sonde::power
