#pragma once
/// The implementation without a DDS: participants of one process exchange samples under a lock, in the writer's thread.
/// Measurements on it show the cost of this library itself. It also allows tests of programs without a network.
///
/// It fulfils implementation.hpp and supports all QoS of DDS except the latency budget. Transports and discovery have
/// no meaning within a process and are ignored. A keep_all reader, or the history of a keep_all writer, holds 65536
/// samples unless max_samples is set. A full reader makes a reliable keep_all writer wait, and rejects the samples of
/// all other writers. A full history drops the oldest samples.

#include "bus/implementation.hpp"

namespace sonde::bus {

const ImplementationEntry& null_implementation();

}  // namespace sonde::bus
