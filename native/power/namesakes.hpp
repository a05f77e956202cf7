#pragma once
/// Detects node managers of one name that run at the same time, as on a cloned host. Pure: the time is an argument.
///
/// A node manager that was replaced is no namesake, although its last messages may come late. Two run at the same time
/// if each is known to have run after both had been heard: it answered a request sent after that, or reported later
/// than any message can be delayed.

#include <cstdint>
#include <vector>

#include "power/ledger.hpp"

namespace sonde::power {

class Namesakes {
 public:
  struct One {
    std::uint64_t instance = 0;
    std::int64_t ticket_ns = 0;
    std::int64_t first_ns = 0;   ///< when it was first heard: it ran by then
    std::int64_t alive_ns = -1;  ///< the last time at which it is known to have run
    std::int64_t heard_ns = 0;
    double cap_w = 0;    ///< of its hardware, as reported; NaN: unknown
    double at_w = 0;     ///< the most that it may draw, as reported
    double power_w = 0;  ///< NaN: unknown
  };

  /// `asked_ns`: when the request was sent that it answers; 0: no request. `flight_s`: no message is delayed longer.
  void heard(const Report& report, double power_w, const Member& member, std::int64_t asked_ns, std::int64_t now_ns,
             double flight_s);
  /// Those that run at the same time, among those heard within `silence_s`; empty: at most one.
  std::vector<One> running(std::int64_t now_ns, double silence_s) const;

 private:
  std::vector<One> all_;
};

}  // namespace sonde::power
