#pragma once
/// A participant over Fast DDS.

#include <memory>

#include "bus/implementation.hpp"

namespace sonde::bus::fastdds {

Result<std::unique_ptr<ParticipantPort>> open_participant(const Profile& profile);

}  // namespace sonde::bus::fastdds
