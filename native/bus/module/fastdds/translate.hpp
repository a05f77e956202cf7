#pragma once
/// Translates profiles and QoS of Sonde to those of Fast DDS 2. Any-thread.

#include <fastdds/dds/domain/qos/DomainParticipantQos.hpp>
#include <fastdds/dds/publisher/qos/DataWriterQos.hpp>
#include <fastdds/dds/publisher/qos/PublisherQos.hpp>
#include <fastdds/dds/subscriber/qos/DataReaderQos.hpp>
#include <fastdds/dds/subscriber/qos/SubscriberQos.hpp>

#include <cstdint>
#include <string>

#include "bus/profile.hpp"
#include "core/error.hpp"

namespace sonde::bus::fastdds {

namespace dds = eprosima::fastdds::dds;
namespace rtps = eprosima::fastrtps::rtps;

struct ParticipantPlan {
  dds::DomainParticipantQos qos;
  std::uint16_t port = 0;        ///< a server's; 0: none
  std::uint32_t group_port = 0;  ///< for shared memory: the common port of the domain; 0: none
  std::string folder;            ///< where a server stores its state for a restart; empty: nowhere
};

/// `number`: the participant's, in this process. Errors: those of network.hpp, bus.open (a port that is taken,
/// a security file that cannot be read, no more ports in the domain).
Result<ParticipantPlan> plan_participant(const Profile& profile, unsigned number);

/// How long one call of Fast DDS may wait for space: it can report a timeout early, so the Writer calls it again. The
/// Writer limits the total time.
inline constexpr double wait_piece_s = 0.1;

struct WriterPlan {
  dds::PublisherQos publisher;
  dds::DataWriterQos writer;
  double max_blocking_s = 0;
  bool gives_up = false;  ///< whether disposed instances are also unregistered
};
struct ReaderPlan {
  dds::SubscriberQos subscriber;
  dds::DataReaderQos reader;
};
/// Errors: bus.unsupported (features that Fast DDS 2 lacks and Caps does not describe).
Result<WriterPlan> plan_writer(const Qos& qos, bool keyed);
Result<ReaderPlan> plan_reader(const Qos& qos, bool keyed);

eprosima::fastrtps::Duration_t duration(double seconds);
/// "reliability"
std::string policy_name(dds::QosPolicyId_t id);

}  // namespace sonde::bus::fastdds
