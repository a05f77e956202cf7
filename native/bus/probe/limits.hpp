#pragma once
/// Sizes of what is measured: what probe and Python both have to know (sonde._core tells them there). Any-thread.

#include <cstddef>

namespace sonde::bus::probe {

inline constexpr std::size_t least_sample_bytes = 32;  ///< the head of a message (message.hpp), and no data
inline constexpr std::size_t most_sample_bytes = 32u << 20;
inline constexpr std::size_t most_datagram_bytes = 65507;  ///< one UDP datagram of IPv4: bare UDP splits none

}  // namespace sonde::bus::probe
