#pragma once
/// The implementation without a DDS: participants of one process give samples to each other under a lock, in the
/// writer's thread. What is measured over it is what this library itself costs; programs are tested with it without a
/// network.
///
/// It keeps what implementation.hpp promises, and of DDS's QoS all but the latency budget. Transports and discovery
/// have no meaning within a process and are not looked at. A keep_all reader or a keep_all writer's past that states no
/// max_samples holds 65536 samples: a full reader lets a reliable keep_all writer wait, and rejects the samples of any
/// other; of a past the oldest go.

#include "bus/implementation.hpp"

namespace sonde::bus {

const ImplementationEntry& null_implementation();

}  // namespace sonde::bus
