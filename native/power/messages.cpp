#include "power/messages.hpp"

namespace sonde::power {

LeaseState LeaseState::of(const Report& report) {
  return {report.ticket.instance, report.ticket.at_ns, report.seen.epoch, report.seen.manager, report.sequence,
          report.leased,          report.left_s,       report.lease_w,    report.cap_w};
}

Report LeaseState::report() const {
  return {{instance, ticket_ns}, {seen_epoch, seen_manager}, sequence, leased, left_s, lease_w, cap_w};
}

NodeCommand NodeCommand::of(const Grant& grant) {
  return {NodeOrder::SET_POWER_NODE, grant.fence.epoch,  grant.fence.manager, grant.sequence,
          grant.ticket.instance,     grant.ticket.at_ns, grant.lease_s,       grant.cap_w};
}

Grant NodeCommand::grant() const { return {{epoch, manager}, sequence, {instance, ticket_ns}, lease_s, cap_w}; }

}  // namespace sonde::power
