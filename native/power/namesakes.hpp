#pragma once
/// Node managers of one name, as on a cloned host: which of those that were heard run at the same time. Pure: the time
/// is an argument.
///
/// One that was replaced is no namesake, and its last messages may come late. Two run at once where each is known to
/// have run when both had been heard: it answered a question that was sent after that, or reported later than any
/// message travels.

#include <cstdint>
#include <vector>

#include "power/ledger.hpp"

namespace sonde::power {

class Namesakes {
 public:
  struct One {
    std::uint64_t instance = 0;
    std::int64_t ticket_ns = 0;
    std::int64_t first_ns = 0;   ///< when it was heard first: it ran by then
    std::int64_t alive_ns = -1;  ///< it still ran then
    std::int64_t heard_ns = 0;
    double cap_w = 0;    ///< of its hardware, by its own word; NaN: not known
    double at_w = 0;     ///< what it may be at, at most, by its own word
    double power_w = 0;  ///< NaN: not known
  };

  /// `asked_ns`: when the question was sent that it answers; 0: it was not asked. `flight_s`: no message travels
  /// longer.
  void heard(const Report& report, double power_w, const Member& member, std::int64_t asked_ns, std::int64_t now_ns,
             double flight_s);
  /// Those that run at once, of those that were heard within `silence_s`; empty: it is one, or none.
  std::vector<One> running(std::int64_t now_ns, double silence_s) const;

 private:
  std::vector<One> all_;
};

}  // namespace sonde::power
