#pragma once
/// Quality of service of a writer or reader, with the names of the DDS standard (OMG DDS 1.4, section 2.2.3). Times are
/// s.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace sonde::bus {

enum class Reliability : std::uint8_t { best_effort, reliable };
enum class Durability : std::uint8_t { volatile_, transient_local };
enum class History : std::uint8_t { keep_last, keep_all };
enum class Liveliness : std::uint8_t { automatic, manual_by_participant, manual_by_topic };
enum class Ownership : std::uint8_t { shared, exclusive };

inline constexpr double forever = std::numeric_limits<double>::infinity();

struct Qos {
  Reliability reliability = Reliability::reliable;
  double max_blocking_s = 1;  ///< how long write() waits for space before it fails with bus.timed_out
  Durability durability = Durability::volatile_;
  History history = History::keep_last;
  std::uint32_t depth = 64;       ///< samples of each instance, for keep_last. Large, because late readers lose samples
  std::uint32_t max_samples = 0;  ///< for keep_all: samples of a writer or reader; 0: the implementation's default
  double deadline_s = forever;    ///< longest time between two writes of an instance
  double lifespan_s = forever;    ///< older samples are not delivered (needs synchronized clocks of the hosts)
  double latency_budget_s = 0;    ///< how long a writer may delay samples to send them together
  Liveliness liveliness = Liveliness::automatic;
  double lease_s = forever;  ///< of liveliness
  Ownership ownership = Ownership::shared;
  std::int32_t strength = 0;
  bool order_by_source = false;  ///< destination order by source time instead of arrival
  std::vector<std::string>
      partitions;  ///< of its publisher or subscriber; none: the default partition. '*' and '?' on one side only
  std::string
      user_data;  ///< announced with it: at most most_user_data (bus.hpp) bytes; Sonde's own data come before it

  bool operator==(const Qos&) const = default;
};

}  // namespace sonde::bus
