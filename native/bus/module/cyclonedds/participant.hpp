#pragma once
/// The ports of implementation.hpp on Cyclone's entities.

#include <memory>

#include "bus/implementation.hpp"

namespace sonde::bus::cyclonedds {

Result<std::unique_ptr<ParticipantPort>> open_participant(const Profile& profile);

}  // namespace sonde::bus::cyclonedds
