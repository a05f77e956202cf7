#include "power/powerd/node_core.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/units.hpp"

namespace sonde::power {

namespace {

constexpr double least_step_w = 1;   // the steps of hardware: RAPL's are 1/8 W, those of many BMCs 1 W
constexpr double told_for_s = 30;    // an overwritten cap is reported for this time
constexpr double slow_s = 3;         // hardware that takes longer than this is reported while it does
constexpr double most_early_s = 30;  // and never more than a third of the lease

std::string sentence(const Error& error) { return error.code + ": " + error.what; }

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// The limits that the configuration and the hardware allow.
LeaseKeeper::Limits limits_of(const Member& member, const Range& range) {
  LeaseKeeper::Limits limits{member.min_w, member.max_w, member.safe_w};
  if (!range.settable) return limits;
  if (std::isfinite(range.min_w)) limits.min_w = std::max(limits.min_w, range.min_w);
  if (std::isfinite(range.max_w)) limits.max_w = std::min(limits.max_w, range.max_w);
  return limits;
}

/// Cut at the beginning of a UTF-8 character: bounds of samples are in bytes.
std::string cut(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t n = most;
  while (n > 0 && (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80) --n;
  text.resize(n);
  return text;
}

/// Strings of IDL hold no NUL.
std::string sendable(std::string text, std::size_t most) {
  std::replace(text.begin(), text.end(), '\0', ' ');
  return cut(std::move(text), most);
}

std::uint32_t code_of(PowerCode code) { return static_cast<std::uint32_t>(code); }

NodeCore::Reply refused(Refusal why, const Grant& grant, const LeaseKeeper& keeper, std::int64_t now_ns) {
  const auto& limits = keeper.limits();
  const std::string fence = std::to_string(grant.fence.epoch) + " of '" + sendable(grant.fence.manager, 64) + "'";
  switch (why) {
    case Refusal::none: return {};
    case Refusal::stale_epoch:
      return {code_of(PowerCode::stale_epoch), "the fence " + fence + " is stale: this node obeys " +
                                                   std::to_string(keeper.seen().epoch) + " of '" +
                                                   keeper.seen().manager + "'"};
    case Refusal::stale_sequence:
      return {code_of(PowerCode::stale_sequence), "grant " + std::to_string(grant.sequence) + " arrived after grant " +
                                                      std::to_string(keeper.sequence()) + " of the same fence"};
    case Refusal::void_ticket:
      return {
          code_of(PowerCode::void_ticket),
          "this node manager has not issued the ticket, or has restarted since: get a new one with NodeManager_get"};
    case Refusal::expired:
      return {code_of(PowerCode::lease_expired),
              "the lease of " + format_duration(grant.lease_s) + " ended " +
                  format_duration(static_cast<double>(now_ns - grant.ticket.at_ns) * 1e-9 - grant.lease_s) +
                  " before the grant arrived"};
    case Refusal::bad_lease:
      return {code_of(PowerCode::bad_lease), "a lease of " + format_duration(grant.lease_s) +
                                                 "; allowed: more than 0 s, at most " +
                                                 format_duration(limits.most_lease_s)};
    case Refusal::out_of_range:
      return {code_of(PowerCode::out_of_range), "a cap of " + format_power(grant.cap_w) + "; allowed: " +
                                                    format_power(limits.min_w) + " to " + format_power(limits.max_w)};
  }
  return {static_cast<std::uint32_t>(bus::ReplyCode::failed), "refused"};
}

DomainState state_of(const NodeReading::Domain& domain) {
  return {sendable(domain.name, 256), domain.source,      domain.now.power_w, domain.now.energy_j,
          domain.now.cap_w,           domain.range.min_w, domain.range.max_w, domain.range.settable};
}

FrequencyState state_of(const Frequency& f) {
  return {sendable(f.name, 256), f.current_hz, f.min_hz, f.max_hz, f.least_hz, f.most_hz, sendable(f.governor, 32)};
}

template <typename To, typename From> std::vector<To> states_of(const std::vector<From>& from, std::size_t most) {
  std::vector<To> out;
  for (const auto& one : from)
    if (out.size() < most) out.push_back(state_of(one));
  return out;
}

}  // namespace

NodeCore::NodeCore(Settings settings, NodeState& state, std::unique_ptr<Node> node, const LeaseKeeper& keeper)
    : settings_(std::move(settings)),
      state_(state),
      node_(std::move(node)),
      range_(node_->range()),
      keeper_(keeper),
      model_(node_->model()) {}

Result<std::unique_ptr<NodeCore>> NodeCore::open(const Settings& settings, NodeState& state) {
  auto node = settings.open();
  if (!node) return node.error();
  auto seen = state.fence();
  if (!seen) return seen.error();
  const Member& member = settings.member;
  const Range range = (*node)->range();
  const LeaseKeeper::Limits limits = limits_of(member, range);
  if (range.settable && !(limits.min_w <= member.safe_w && member.safe_w <= limits.max_w))
    return Error{"power.bad_node",
                 "the safe cap of " + member.name + " is " + format_power(member.safe_w) +
                     ", which is outside of its hardware's range; allowed: " + format_power(range.min_w) + " to " +
                     format_power(range.max_w),
                 "correct `safe`, `min` and `max` of [[nodes]]: " + (*node)->model() + " reported this range"};
  std::unique_ptr<NodeCore> core(
      new NodeCore(settings, state, std::move(*node), LeaseKeeper(limits, settings.instance, *seen)));
  const std::lock_guard hardware(core->hardware_mutex_);
  core->keep_originals();
  // Safety first, even if the original settings could not be stored. Then they are lost with this process, and no lease
  // is accepted.
  (void)core->apply(member.safe_w, 0);
  // Create the fence's file while there is room.
  core->fence_kept_ = seen->epoch != 0;
  core->keep_fence();
  return core;
}

/// The originals that an earlier node manager stored are from before the first cap. For new hardware the present
/// settings are stored.
void NodeCore::keep_originals() {
  if (kept_ || !range_.settable) return;
  auto now = node_->originals();
  auto kept = state_.originals();
  std::string trouble;
  if (!kept) trouble = sentence(kept.error());
  else if (!now) trouble = sentence(now.error());
  if (trouble.empty()) {
    std::vector<Original> all = kept->value_or(std::vector<Original>{});
    const std::size_t before = all.size();
    for (auto& original : *now)
      if (std::none_of(all.begin(), all.end(),
                       [&](const Original& o) { return o.domain == original.domain && o.setting == original.setting; }))
        all.push_back(std::move(original));
    if (!kept->has_value() || all.size() != before)
      if (auto fine = state_.keep(all); !fine) trouble = sentence(fine.error());
  }
  kept_ = trouble.empty();
  const std::lock_guard lock(mutex_);
  originals_trouble_ = trouble;
}

void NodeCore::keep_fence() {
  if (fence_kept_) return;
  const Fence seen = [&] {
    const std::lock_guard lock(mutex_);
    return keeper_.seen();
  }();
  const auto kept = state_.keep(seen);
  fence_kept_ = static_cast<bool>(kept);
  const std::lock_guard lock(mutex_);
  fence_trouble_ = kept ? "" : sentence(kept.error());
}

namespace {

/// Marks an exchange with the hardware while it lasts.
class Exchange {
 public:
  Exchange(const NodeCore::Clock& clock, std::atomic<std::int64_t>& since_ns, std::atomic<std::int64_t>& moved_ns,
           std::atomic<double>& slowest_s)
      : clock_(clock), since_ns_(since_ns), moved_ns_(moved_ns), slowest_s_(slowest_s), began_ns_(clock()) {
    since_ns_ = moved_ns_ = began_ns_;
  }
  ~Exchange() {
    const std::int64_t now_ns = clock_();
    since_ns_ = 0, moved_ns_ = now_ns;
    // One slow exchange is forgotten after some tens of others.
    slowest_s_ = std::max(static_cast<double>(now_ns - began_ns_) * 1e-9, slowest_s_ * 0.95);
  }

 private:
  const NodeCore::Clock& clock_;
  std::atomic<std::int64_t>& since_ns_;
  std::atomic<std::int64_t>& moved_ns_;
  std::atomic<double>& slowest_s_;
  std::int64_t began_ns_;
};

}  // namespace

/// How long before the end of a lease setting the safe cap begins.
std::int64_t NodeCore::early_ns(std::int64_t lease_ns) const {
  return std::min(static_cast<std::int64_t>(std::clamp(2 * slowest_s_, settings_.early_s, most_early_s) * 1e9),
                  lease_ns / 3);
}

/// When the watchdog has to set the safe cap instead; 0: no cap is above it.
std::int64_t NodeCore::due_ns(double cap_w, std::int64_t lease_ends_ns) const {
  return cap_w > settings_.member.safe_w ? lease_ends_ns - early_ns(lease_ns_) / 2 : 0;
}

/// The caller holds hardware_mutex_.
void NodeCore::tell_watch(std::int64_t boottime_ns) {
  if (watched_ns_ == boottime_ns) return;
  watched_ns_ = boottime_ns;
  if (settings_.watch) settings_.watch(boottime_ns);
}

void NodeCore::has_cap_locked(double cap_w, std::int64_t before_ns, std::int64_t after_ns) {
  if (std::isfinite(cap_w_) == std::isfinite(cap_w) && !(std::abs(cap_w - cap_w_) > 1e-3)) return;
  cap_since_ns_ = cap_w > cap_w_ ? before_ns : after_ns;
  cap_w_ = cap_w;
  ++cap_changes_;
}

/// The caller holds hardware_mutex_. `lease_ends_ns`: of the lease that the cap belongs to.
Result<double> NodeCore::apply(double cap_w, std::int64_t lease_ends_ns) {
  // The earlier end of two leases counts until the later one's cap is in the hardware: before that the hardware may
  // have the former cap.
  const std::int64_t due = due_ns(cap_w, lease_ends_ns);
  if (due && (!watched_ns_ || due < watched_ns_)) tell_watch(due);
  const std::int64_t before_ns = settings_.realtime_ns();
  double has = unknown;
  std::string trouble;
  auto set = [&]() -> Result<double> {
    if (!range_.settable) return Error{"power.read_only", range_.why_not, ""};
    const Exchange exchange(settings_.boottime_ns, waits_ns_, moved_ns_, slowest_s_);
    auto done = node_->cap(cap_w);
    if (!done)
      if (auto read = node_->capped()) has = *read;
    return done;
  }();
  if (set) {
    has = *set;
    if (has > cap_w + std::max(least_step_w, settings_.tolerance * cap_w))
      trouble = "power.hardware_failed: the cap was set to " + format_power(cap_w) + ", but the hardware has " +
                format_power(has);
  } else if (range_.settable) {
    trouble = sentence(set.error());
  }
  (void)range_changed();
  wanted_w_ = cap_w;
  followed_w_ = has;
  follows_ = trouble.empty() && range_.settable;
  agrees_ = follows_ && std::abs(has - cap_w) <= std::max(least_step_w, settings_.tolerance * cap_w);
  if (follows_) tell_watch(due);
  const std::lock_guard lock(mutex_);
  has_cap_locked(has, before_ns, settings_.realtime_ns());
  hardware_trouble_ = std::move(trouble);
  if (!set) return set;
  if (!follows_) return Error{"power.hardware_failed", hardware_trouble_, ""};
  return has;
}

/// The caller holds hardware_mutex_. True: the watchdog process has set the safe cap, because this process did not in
/// time. The lease is then void here.
bool NodeCore::was_guarded() {
  const std::uint64_t acted = settings_.watch_acted ? settings_.watch_acted() : 0;
  if (acted == guarded_seen_) return false;
  guarded_seen_ = acted;
  follows_ = false;
  const std::int64_t now = settings_.boottime_ns();
  const std::lock_guard lock(mutex_);
  keeper_.drop();
  ++guarded_;
  guarded_ns_ = now;
  guarded_trouble_ = "power.late: the lease had run out and this process had not set the safe cap; its watchdog did (" +
                     std::to_string(guarded_) + " times so far)";
  return true;
}

/// The caller holds hardware_mutex_. Brings the hardware to the lease's present cap.
void NodeCore::settle() {
  (void)was_guarded();
  std::int64_t ends = 0;
  const double should = [&] {
    const std::int64_t now = settings_.boottime_ns();
    const std::lock_guard lock(mutex_);
    if (!keeper_.leased(now + early_locked())) keeper_.drop();
    ends = keeper_.ends_ns();
    return keeper_.cap_w(now);
  }();
  if (range_.settable && (!follows_ || should != wanted_w_)) (void)apply(should, ends);
}

void NodeCore::expire() {
  const std::lock_guard hardware(hardware_mutex_);
  settle();
}

std::int64_t NodeCore::ends_ns() const {
  const std::lock_guard lock(mutex_);
  const std::int64_t ends = keeper_.ends_ns();
  return ends ? ends - early_locked() : 0;
}

NodeCore::Reply NodeCore::obey(const NodeCommand& command) {
  const std::lock_guard hardware(hardware_mutex_);
  if (was_guarded()) settle();
  const std::int64_t now = settings_.boottime_ns();
  const Grant grant = command.grant();
  LeaseKeeper next = [&] {
    const std::lock_guard lock(mutex_);
    return keeper_;
  }();
  const Fence before = next.seen();
  const bool order = command.order == NodeOrder::SET_POWER_NODE;
  if (order && !range_.settable)
    return {code_of(PowerCode::read_only), "the hardware of this node cannot be capped: " + range_.why_not};
  if (order && !kept_) keep_originals();
  if (order && !kept_)
    return {static_cast<std::uint32_t>(bus::ReplyCode::failed),
            trouble() + "; no cap is set before the hardware's own settings are stored"};
  const Refusal why = order ? next.offer(grant, now) : next.fence(grant.fence);
  if (why != Refusal::none) return refused(why, grant, next, now);
  if (next.seen() != before) {
    // On disk before it is used or answered: a node that forgot the fence would obey a manager that was replaced.
    const auto kept = state_.keep(next.seen());
    fence_kept_ = static_cast<bool>(kept);
    const std::lock_guard lock(mutex_);
    fence_trouble_ = kept ? "" : sentence(kept.error());
    if (!kept) return {static_cast<std::uint32_t>(bus::ReplyCode::failed), fence_trouble_};
  }
  Result<double> set = 0.0;
  bool late = false;
  if (order) {
    {
      const std::lock_guard lock(mutex_);
      lease_ns_ = static_cast<std::int64_t>(grant.lease_s * 1e9);
    }
    if (follows_ && agrees_ && grant.cap_w == wanted_w_) tell_watch(due_ns(grant.cap_w, next.ends_ns()));
    else set = apply(grant.cap_w, next.ends_ns());
    // The write may have taken long, or this process stood still: the lease may be over already.
    late = set && !next.leased(settings_.boottime_ns() + early_ns(lease_ns_));
    if (!set || late) next.drop();
  }
  {
    const std::lock_guard lock(mutex_);
    keeper_ = next;
    const auto limits = limits_of(settings_.member, range_);
    keeper_.bound(limits.min_w, limits.max_w);
  }
  if (set && !late) return {};
  (void)apply(next.limits().safe_w, 0);
  const std::string instead = "; the safe cap of " + format_power(next.limits().safe_w) + " was set instead";
  if (late)
    return {code_of(PowerCode::lease_expired), "setting " + format_power(grant.cap_w) +
                                                   " took longer than the rest of the lease of " +
                                                   format_duration(grant.lease_s) + instead};
  return {code_of(PowerCode::hardware_failed), set.error().code + ": " + set.error().what + instead};
}

void NodeCore::reopen(std::int64_t now_ns) {
  if (now_ns - reopened_ns_ < static_cast<std::int64_t>(settings_.reopen_s * 1e9)) return;
  reopened_ns_ = now_ns;
  auto node = settings_.open();
  if (!node) return;
  node_ = std::move(*node);
  (void)range_changed();
  follows_ = false;
  const std::lock_guard lock(mutex_);
  model_ = node_->model();
  // Its counters restart.
  if (std::isfinite(energy_j_)) energy_before_j_ = energy_j_;
}

/// The caller holds hardware_mutex_. A domain that turned out to be another one under a second name has no part in the
/// node's range any more.
bool NodeCore::range_changed() {
  Range now = node_->range();
  const std::lock_guard lock(mutex_);
  if (now.settable == range_.settable && same(now.min_w, range_.min_w) && same(now.max_w, range_.max_w)) return false;
  range_ = std::move(now);
  const auto limits = limits_of(settings_.member, range_);
  keeper_.bound(limits.min_w, limits.max_w);
  return true;
}

void NodeCore::look() {
  const std::lock_guard hardware(hardware_mutex_);
  settle();
  keep_originals();
  keep_fence();
  const std::int64_t looked_before_ns = looked_ns_;
  NodeReading reading = [&] {
    const Exchange exchange(settings_.boottime_ns, waits_ns_, moved_ns_, slowest_s_);
    return node_->read();
  }();
  const bool regrouped = range_changed();
  if (regrouped) follows_ = false;
  // A lease may have run out while the hardware was busy: the cap that it reported is from before.
  const double wanted_before_w = wanted_w_;
  const bool followed_before = follows_;
  settle();
  const bool settled_meanwhile = regrouped || wanted_w_ != wanted_before_w || follows_ != followed_before;
  const std::int64_t now = settings_.boottime_ns();
  const bool failed = !reading.trouble.empty();
  const bool gone =
      reading.trouble.starts_with("power.hardware_gone") || reading.trouble.starts_with("power.no_hardware");
  double found = unknown;
  {
    const std::lock_guard lock(mutex_);
    found = reading.cap_w;
    looked_ns_ = settings_.realtime_ns();
    if (!settled_meanwhile && range_.settable)
      has_cap_locked(found, looked_before_ns ? looked_before_ns : looked_ns_, looked_ns_);
    if (std::isfinite(reading.energy_j)) {
      const double total = energy_before_j_ + reading.energy_j;
      energy_j_ = std::isfinite(energy_j_) ? std::max(energy_j_, total) : total;
    }
    if (std::isfinite(reading.power_w)) drawn_w_ += reading.power_w, ++looks_;
    if (!reading.trouble.empty()) hardware_trouble_ = reading.trouble;
    else if (follows_ || !range_.settable) hardware_trouble_.clear();
    if (now - guarded_ns_ > static_cast<std::int64_t>(told_for_s * 1e9)) guarded_trouble_.clear();
    if (now - overwritten_ns_ > static_cast<std::int64_t>(told_for_s * 1e9)) overwritten_trouble_.clear();
    const double above_s =
        !range_.settable || !follows_ ? 0 : obedience_.add(reading.power_w, wanted_w_, static_cast<double>(now) * 1e-9);
    if (!(above_s > 0) || !obedience_.disobeys()) {
      disobedience_.clear();
      disobeyed_s_ = 0;
    } else if (disobedience_.empty() || above_s >= 2 * disobeyed_s_) {  // a text that changes is an event
      disobedience_ = "power.disobeys: it draws " + format_power(reading.power_w) + ", above its cap of " +
                      format_power(wanted_w_) + " for " + format_duration(above_s);
      disobeyed_s_ = above_s;
    }
    reading_ = std::move(reading);
  }
  if (gone) {
    agrees_ = false;
    reopen(now);
    return settle();
  }
  if (settled_meanwhile || !range_.settable || !follows_ || !std::isfinite(followed_w_)) return;
  const double step_w = std::max(least_step_w, settings_.tolerance * wanted_w_);
  agrees_ = std::abs(found - wanted_w_) <= step_w;
  if (std::abs(found - followed_w_) <= step_w) return;
  // A missing cap without an error: it was switched off, for example by a BMC that restarted. With an error nothing is
  // known about it.
  const bool off = !std::isfinite(found);
  if (off && failed) return;
  std::int64_t lease_ends = 0;
  {
    const std::lock_guard lock(mutex_);
    lease_ends = keeper_.ends_ns();
    ++overwritten_;
    overwritten_ns_ = now;
    overwritten_trouble_ = "power.overwritten: the cap was found " +
                           (off ? "switched off" : "at " + format_power(found)) + " instead of " +
                           format_power(wanted_w_) + ", and set again (" + std::to_string(overwritten_) +
                           " times so far)";
  }
  (void)apply(wanted_w_, lease_ends);
}

Report NodeCore::report_locked(std::int64_t now_ns) const {
  Report report;
  report.ticket = keeper_.ticket(now_ns);
  report.seen = keeper_.seen();
  report.sequence = keeper_.sequence();
  report.leased = keeper_.leased(now_ns);
  report.left_s = report.leased ? static_cast<double>(keeper_.ends_ns() - now_ns) * 1e-9 : 0;
  report.lease_w = report.leased ? keeper_.cap_w(now_ns) : 0;
  report.cap_w = cap_w_;
  return report;
}

NodeAnswer NodeCore::said_locked() const {
  const auto& limits = keeper_.limits();
  NodeAnswer out;
  out.node = settings_.member.name;
  out.at_ns = settings_.realtime_ns();
  // Created after the request arrived: the manager counts leases from here.
  out.lease = LeaseState::of(report_locked(settings_.boottime_ns()));
  out.min_w = limits.min_w, out.max_w = limits.max_w, out.safe_w = limits.safe_w;
  return out;
}

NodeAnswer NodeCore::said() const {
  const std::lock_guard lock(mutex_);
  return said_locked();
}

NodeAnswer NodeCore::answer(NodeAsk ask) const {
  const std::lock_guard lock(mutex_);
  NodeAnswer out = said_locked();
  switch (ask) {
    case NodeAsk::GET_INFO_NODE:
      out.version = SONDE_VERSION;
      out.model = sendable(model_, 256);
      out.implementation = name_of(reading_.source);
      break;
    case NodeAsk::GET_POWER_NODE:
      out.power_w = reading_.power_w;
      out.energy_j = energy_j_;
      out.domains = states_of<DomainState>(reading_.domains, 64);
      break;
    case NodeAsk::GET_POWERCAP_NODE: out.domains = states_of<DomainState>(reading_.domains, 64); break;
    case NodeAsk::GET_FREQ_NODE: out.frequencies = states_of<FrequencyState>(reading_.frequencies, 1024); break;
  }
  return out;
}

NodeTelemetry NodeCore::telemetry(double period_s) {
  const std::lock_guard lock(mutex_);
  NodeTelemetry out;
  out.node = settings_.member.name;
  out.at_ns = settings_.realtime_ns();
  out.period_s = period_s;
  out.source = reading_.source;
  out.power_w = looks_ ? drawn_w_ / looks_ : reading_.power_w;
  drawn_w_ = 0, looks_ = 0;
  out.energy_j = energy_j_;
  out.lease = LeaseState::of(report_locked(settings_.boottime_ns()));
  out.domains = states_of<DomainState>(reading_.domains, 64);
  out.frequencies = states_of<FrequencyState>(reading_.frequencies, 1024);
  for (const auto& sensor : reading_.sensors)
    if (out.sensors.size() < 1024) out.sensors.push_back({sendable(sensor.name, 256), sensor.kind, sensor.value});
  out.cap_since_ns = cap_since_ns_;
  out.trouble = sendable(trouble_locked(), 256);
  return out;
}

std::string NodeCore::trouble_locked() const {
  const std::int64_t now = settings_.boottime_ns(), waits = waits_ns_;
  if (waits && now - waits > static_cast<std::int64_t>(slow_s * 1e9)) {
    const std::int64_t ends = keeper_.ends_ns();
    return "power.hardware_slow: the hardware has not answered for more than " + format_duration(slow_s) +
           (ends && ends <= now ? ", and the lease has run out meanwhile: the former cap may still be in force" : "");
  }
  for (const auto* one : {&hardware_trouble_, &originals_trouble_, &fence_trouble_, &disobedience_, &guarded_trouble_,
                          &overwritten_trouble_})
    if (!one->empty()) return *one;
  return reading_.note;
}

std::string NodeCore::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_locked();
}

NodeCore::Facts NodeCore::facts() const {
  const std::lock_guard lock(mutex_);
  const auto& limits = keeper_.limits();
  return {model_, reading_.source, limits.min_w, limits.max_w, limits.safe_w,
          cap_w_, range_.settable, overwritten_, guarded_};
}

Result<void> NodeCore::end(bool restore) {
  const std::lock_guard hardware(hardware_mutex_);
  {
    const std::lock_guard lock(mutex_);
    keeper_.drop();
  }
  if (!range_.settable) return {};
  if (restore) {
    auto kept = state_.originals();
    if (const auto originals = kept ? *kept : std::nullopt) {
      auto restored = node_->restore(*originals);
      if (restored) restored = state_.forget_originals();
      if (restored) {
        tell_watch(0);
        const std::int64_t now = settings_.realtime_ns();
        auto has = node_->capped();
        const std::lock_guard lock(mutex_);
        has_cap_locked(has ? *has : unknown, now, now);
        return {};
      }
      (void)apply(settings_.member.safe_w, 0);
      return restored.error();
    }
    if (!kept) {
      (void)apply(settings_.member.safe_w, 0);
      return kept.error();
    }
  }
  if (auto set = apply(settings_.member.safe_w, 0); !set) return set.error();
  return {};
}

}  // namespace sonde::power
