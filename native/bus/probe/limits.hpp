#pragma once
/// Sizes of samples that the probe and Python share (sonde._core exports them to Python). Any-thread.

#include <cstddef>

namespace sonde::bus::probe {

inline constexpr std::size_t least_sample_bytes = 32;  ///< the header of a message (message.hpp) without data
inline constexpr std::size_t most_sample_bytes = 32u << 20;
inline constexpr std::size_t most_datagram_bytes =
    65507;  ///< one UDP datagram of IPv4: bare UDP does not split messages

}  // namespace sonde::bus::probe
