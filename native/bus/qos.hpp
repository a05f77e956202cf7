#pragma once
/// Quality of service of a writer or reader, in the words of the DDS standard (OMG DDS 1.4, section 2.2.3). Times are
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
  double max_blocking_s = 1;  ///< how long write() waits for place before it says bus.timed_out
  Durability durability = Durability::volatile_;
  History history = History::keep_last;
  std::uint32_t depth =
      64;  ///< samples of each instance, of keep_last. Large, since a late reader is what loses samples
  std::uint32_t max_samples = 0;  ///< of keep_all: how many a writer or reader holds, 0: as the implementation
  double deadline_s = forever;    ///< each instance is written at least so often
  double lifespan_s = forever;    ///< older samples are not delivered (needs the hosts' clocks to agree)
  double latency_budget_s = 0;    ///< a writer may hold samples back so long to send them together
  Liveliness liveliness = Liveliness::automatic;
  double lease_s = forever;  ///< of liveliness
  Ownership ownership = Ownership::shared;
  std::int32_t strength = 0;
  bool order_by_source = false;  ///< destination order by source time instead of arrival
  std::vector<std::string>
      partitions;         ///< of its publisher or subscriber; none: the default partition. '*' and '?' on one side only
  std::string user_data;  ///< announced with it: most_user_data (bus.hpp) bytes at most; Sonde's own goes before it

  bool operator==(const Qos&) const = default;
};

}  // namespace sonde::bus
