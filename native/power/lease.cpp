#include "power/lease.hpp"

#include <cmath>

namespace sonde::power {

const char* name_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::none: return "none";
    case Refusal::stale_epoch: return "stale_epoch";
    case Refusal::stale_sequence: return "stale_sequence";
    case Refusal::void_ticket: return "void_ticket";
    case Refusal::expired: return "expired";
    case Refusal::bad_lease: return "bad_lease";
    case Refusal::out_of_range: return "out_of_range";
  }
  return "unknown";
}

Refusal LeaseKeeper::fence(const Fence& fence) {
  if (fence < seen_ || fence.epoch == 0) return Refusal::stale_epoch;
  if (fence > seen_) {
    seen_ = fence;
    sequence_ = 0;
  }
  return Refusal::none;
}

Refusal LeaseKeeper::offer(const Grant& grant, std::int64_t now_ns) {
  if (grant.fence < seen_ || grant.fence.epoch == 0) return Refusal::stale_epoch;
  if (grant.fence == seen_ && grant.sequence <= sequence_) return Refusal::stale_sequence;
  // Nothing of what follows may raise the fence: a grant that is refused has changed nothing.
  if (grant.ticket.instance != instance_ || grant.ticket.at_ns > now_ns) return Refusal::void_ticket;
  if (!(grant.lease_s > 0 && grant.lease_s <= limits_.most_lease_s)) return Refusal::bad_lease;
  const std::int64_t until = grant.ticket.at_ns + static_cast<std::int64_t>(grant.lease_s * 1e9);
  if (until <= now_ns) return Refusal::expired;
  // Except for rounding. The hardware would raise a cap below its lowest, above what was lent.
  if (!std::isfinite(grant.cap_w) || grant.cap_w < limits_.min_w - 1e-6 || grant.cap_w > limits_.max_w + 1e-6)
    return Refusal::out_of_range;
  seen_ = grant.fence;
  sequence_ = grant.sequence;
  cap_w_ = grant.cap_w;
  until_ns_ = until;
  return Refusal::none;
}

}  // namespace sonde::power
