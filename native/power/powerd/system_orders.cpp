// Manager: orders, which are stored before they take effect.
#include "power/powerd/system.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core/nearest.hpp"
#include "core/units.hpp"
#include "power/powerd/system_parts.hpp"

namespace sonde::power {

namespace {

constexpr std::size_t most_orders = 256;  ///< most orders that wait
constexpr double answer_before_s = 0.25;  ///< an order is answered this long before the caller's deadline

}  // namespace

void Manager::order(std::uint64_t number, const SystemCommand& command, const Caller& who, std::int64_t deadline_ns,
                    std::int64_t now_ns) {
  ++counts_.orders;
  Order made;
  made.number = number, made.command = command, made.who = who, made.begun_ns = now_ns, made.deadline_ns = deadline_ns;
  made.from_w = made.to_w = budget_w();
  if (orders_.size() >= most_orders) {
    finish(made, code(bus::ReplyCode::busy), std::to_string(orders_.size()) + " orders are already waiting", unknown,
           now_ns);
    return;
  }
  orders_.push_back(std::move(made));
  run_orders(now_ns);
}

void Manager::run_orders(std::int64_t now_ns) {
  while (!orders_.empty() && !pending_.number) {
    Order& front = orders_.front();
    if (front.step == Step::replicates) {
      if (now_ns < front.until_ns) return;
      front.message =
          "no standby confirmed it in time: if this manager is lost now, another may lead with the former "
          "budget";
      Order next = std::move(front);
      orders_.pop_front();
      goes_on(std::move(next), now_ns);
      continue;
    }
    if (front.step != Step::waits) return;
    begin(front, now_ns);
    if (orders_.front().step == Step::waits) orders_.pop_front();  // it was answered at once
  }
}

/// Its step changes if it is not answered at once.
void Manager::begin(Order& order, std::int64_t now_ns) {
  const SystemCommand& c = order.command;
  const auto refuse = [&](auto why, const std::string& message) { finish(order, code(why), message, unknown, now_ns); };
  if (order.deadline_ns && now_ns >= order.deadline_ns)
    return refuse(bus::ReplyCode::expired, "its turn came after the call's deadline");
  if (state_ == State::observing)
    return refuse(bus::ReplyCode::unsupported, settings_.name + " only observes: it changes nothing");
  if (state_ != State::leading)
    return refuse(PowerCode::not_active, settings_.name + " stands by" +
                                             (leader_.empty() ? "; no leader is known" : "; " + leader_ + " leads") +
                                             ": send the request to the target \"active\"");
  if (c.order == SystemOrder::SET_JOB) return set_job(order, now_ns);
  if (c.order == SystemOrder::END_JOB) {
    for (std::size_t j = 0; j < jobs_.size(); ++j) {
      if (!jobs_[j].ends_ns || jobs_[j].name != c.job) continue;
      Line l = line("END_JOB");
      l.json.raw("who", who_text(order.who, c.user)).add("job", c.job).add("reason", c.reason).add("result", "ok");
      out_.audit.push_back(std::move(l));
      end_job(j, "END_JOB");
      next_period_ns_ = now_ns;
      return finish(order, code(bus::ReplyCode::ok), "", unknown, now_ns);
    }
    std::vector<std::string> names;
    for (const auto& job : jobs_)
      if (job.ends_ns) names.push_back(job.name);
    return refuse(bus::ReplyCode::not_found, "no job is called '" + c.job + "'" + nearest(c.job, names));
  }
  double safe = 0;
  for (const auto& node : settings_.nodes) safe += node.member.safe_w;
  Kept next = as_of(kept_, now_ns);
  if (c.order == SystemOrder::SET_POWER) {
    order.to_w = c.budget_w;
    if (!(c.budget_w > 0 && c.budget_w <= most_power_w))
      return refuse(PowerCode::out_of_range, "the budget is " + format_power(c.budget_w) + "; allowed: " +
                                                 format_power(safe) + " to " + format_power(most_power_w));
    next.budget_w = c.budget_w, next.shed_w = unknown, next.shed_left_s = 0;
  } else {
    if (!(c.share > 0 && c.share < 1))
      return refuse(PowerCode::out_of_range,
                    "the share to shed is " + std::to_string(c.share) + "; allowed: above 0, below 1");
    if (!(c.for_s > 0 && c.for_s <= most_shed_s))
      return refuse(PowerCode::out_of_range, "the requested time is " + format_duration(c.for_s) +
                                                 "; allowed: above 0, up to " + format_duration(most_shed_s));
    order.to_w = kept_.budget_w * (1 - c.share);
    next.shed_w = order.to_w, next.shed_left_s = c.for_s;
  }
  if (order.to_w < safe)
    return refuse(PowerCode::budget_too_small, "a budget of " + format_power(order.to_w) + " is below " +
                                                   format_power(safe) + ", the sum of the safe caps of " +
                                                   std::to_string(settings_.nodes.size()) +
                                                   " nodes: without a leading manager the nodes would exceed it");
  if (!ledger_->quorum(now_ns))
    return refuse(PowerCode::not_active, "at most half of the nodes obey " + settings_.name +
                                             ": it may not lead, and the nodes are at their safe caps or go there; try "
                                             "again, or see [budget] without_quorum");
  const bool raises = order.to_w > budget_w();
  if (raises && !audit_works_)
    return refuse(bus::ReplyCode::failed,
                  "the budget is not raised while the audit log cannot be written: " + audit_trouble_);
  next.budget_version = next_version();
  Line log = line(name_of(c.order));
  log.json.raw("who", who_text(order.who, c.user))
      .add("from_w", budget_w())
      .add("to_w", order.to_w)
      .add("budget_version", next.budget_version);
  if (c.order == SystemOrder::SHED) log.json.add("share", c.share).add("for_s", c.for_s);
  log.json.add("reason", c.reason).add("result", "ok");
  log.sync = true;
  order.from_w = budget_w();
  order.step = Step::commits;
  Pending pending;
  pending.order = order.number;
  commit(next, pending, std::move(log), raises, now_ns);
}

void Manager::set_job(Order& order, std::int64_t now_ns) {
  const SystemCommand& c = order.command;
  const auto refuse = [&](auto why, const std::string& message) { finish(order, code(why), message, unknown, now_ns); };
  if (c.job.empty()) return refuse(bus::ReplyCode::bad_request, "the job has no name");
  if (!(c.for_s > 0 && c.for_s <= most_shed_s))
    return refuse(PowerCode::out_of_range, "the requested time of the job is " + format_duration(c.for_s) +
                                               "; allowed: above 0, up to " + format_duration(most_shed_s));
  const double weight = c.weight == 0 ? 1 : c.weight;
  if (!(weight > 0 && weight <= 1e6))
    return refuse(PowerCode::out_of_range,
                  "its weight is " + std::to_string(c.weight) + "; allowed: above 0, up to 1000000");
  if (c.guaranteed_w < 0 || c.guaranteed_w > most_power_w)
    return refuse(PowerCode::out_of_range, "the guaranteed power is " + format_power(c.guaranteed_w) +
                                               "; allowed: 0 W or more, or NaN for none");
  if (c.demand_w < 0 || c.demand_w > most_power_w)
    return refuse(PowerCode::out_of_range,
                  "its demand is " + format_power(c.demand_w) + "; allowed: 0 W or more, or NaN for unknown");
  std::vector<std::size_t> nodes;
  std::vector<std::string> names;
  for (const auto& node : settings_.nodes) names.push_back(node.member.name);
  for (const auto& name : c.nodes) {
    const auto at = index_.find(name);
    if (at == index_.end())
      return refuse(bus::ReplyCode::not_found, "no node is called '" + name + "'" + nearest(name, names));
    nodes.push_back(at->second);
  }
  std::size_t job = jobs_.size();
  for (std::size_t j = 0; j < jobs_.size(); ++j)
    if (jobs_[j].ends_ns && jobs_[j].name == c.job) job = j;
  const bool is_new = job == jobs_.size();
  if (is_new && nodes.empty())
    return refuse(bus::ReplyCode::bad_request,
                  "the job '" + c.job + "' is not known yet, and the order names no nodes");
  if (is_new) {
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (!jobs_[j].ends_ns) job = j;
    if (job == jobs_.size()) jobs_.emplace_back();
    for (auto& st : states_)
      if (st.iteration_job == job + 1) st.iteration_ns = -1;  // of another one that had this place
  }
  Job& to = jobs_[job];
  to = {c.job,
        c.user,
        std::isnan(c.guaranteed_w) ? 0 : c.guaranteed_w,
        c.demand_w > 0 ? c.demand_w : unknown,
        weight,
        now_ns + ns(c.for_s)};
  if (!nodes.empty()) {
    for (auto& st : states_)
      if (st.job == job + 1) st.job = 0;
    for (const auto k : nodes) states_[k].job = job + 1;
    // A job that lost its last node to this one ends.
    std::vector<bool> has(jobs_.size());
    for (const auto& st : states_)
      if (st.job) has[st.job - 1] = true;
    for (std::size_t j = 0; j < jobs_.size(); ++j)
      if (jobs_[j].ends_ns && !has[j]) end_job(j, "another job has its nodes");
  }
  if (is_new || !nodes.empty()) {
    Line l = line("SET_JOB");
    l.json.raw("who", who_text(order.who, c.user))
        .add("job", c.job)
        .add("nodes", c.nodes)
        .add("guaranteed_w", c.guaranteed_w)
        .add("demand_w", c.demand_w)
        .add("weight", weight)
        .add("for_s", c.for_s)
        .add("result", "ok");
    l.sync = true;
    out_.audit.push_back(std::move(l));
  }
  next_period_ns_ = now_ns;
  finish(order, code(bus::ReplyCode::ok), "", unknown, now_ns);
}

void Manager::end_job(std::size_t job, const char* why) {
  for (auto& st : states_)
    if (st.job == job + 1) st.job = 0;
  Line l = line("job_ends");
  l.json.add("job", jobs_[job].name).add("why", why);
  out_.audit.push_back(std::move(l));
  jobs_[job].ends_ns = 0;
}

void Manager::finish(Order& order, std::uint32_t reply, const std::string& message, double comply_s,
                     std::int64_t now_ns) {
  if (order.answered) return;
  order.answered = true;
  Done done;
  done.order = order.number;
  done.answer.code = static_cast<bus::ReplyCode>(reply);
  done.answer.message = message;
  done.answer.server = settings_.name;
  done.answer.body.cluster = telemetry(now_ns);
  done.answer.body.comply_s = comply_s;
  out_.done.push_back(std::move(done));
  if (reply == code(bus::ReplyCode::ok)) return;
  ++counts_.orders_refused;
  Line l = line(name_of(order.command.order));
  l.json.raw("who", who_text(order.who, order.command.user)).add("from_w", order.from_w).add("to_w", order.to_w);
  if (!order.command.job.empty()) l.json.add("job", order.command.job);
  l.json.add("reason", order.command.reason).add("result", "refused").add("code", reply).add("why", message);
  out_.audit.push_back(std::move(l));
}

/// The standbys have stored the budget, or their time is over.
void Manager::goes_on(Order order, std::int64_t now_ns) {
  order.step = Step::complies;
  double until = order.command.wait_s > 0 ? order.command.wait_s : 0;
  order.until_ns = order.begun_ns + ns(std::min(until, 86400.0));
  if (order.deadline_ns) order.until_ns = std::min(order.until_ns, order.deadline_ns - ns(answer_before_s));
  std::erase_if(complying_, [&](Order& o) {
    // The later of two budgets applies to the nodes.
    if (!o.answered)
      finish(o, code(bus::ReplyCode::ok), "another order came before the nodes complied", unknown, now_ns);
    return true;
  });
  complying_.push_back(std::move(order));
  comply(now_ns);
}

void Manager::comply(std::int64_t now_ns) {
  std::erase_if(complying_, [&](Order& order) {
    // A manager that was replaced without knowing it would report this for an order that its successor never received:
    // so more than half of the nodes must have been asked after the order was stored.
    const bool complied =
        ledger_ && ledger_->committed_w(now_ns) <= order.to_w + 1e-6 && ledger_->quorum_since(order.kept_ns);
    const double after_s = seconds(now_ns - order.begun_ns);
    if (complied) {
      finish(order, code(bus::ReplyCode::ok), order.message, after_s, now_ns);
      out_.events.push_back(event("complied").add("budget_w", order.to_w).add("comply_s", after_s));
      Line l = line("complied");
      l.json.add("order", name_of(order.command.order)).add("budget_w", order.to_w).add("comply_s", after_s);
      out_.audit.push_back(std::move(l));
    } else if (now_ns >= order.until_ns) {
      finish(order, code(bus::ReplyCode::ok), order.message, unknown, now_ns);
    }
    return complied;
  });
}

void Manager::shed_over(std::int64_t now_ns) {
  Line l = line("shed_over");
  l.json.add("from_w", kept_.shed_w).add("to_w", kept_.budget_w);
  l.sync = true;
  out_.events.push_back(event("shed_over").add("from_w", kept_.shed_w).add("to_w", kept_.budget_w));
  Kept next = kept_;
  next.shed_w = unknown, next.shed_left_s = 0;
  next.budget_version = next_version();
  commit(next, {}, std::move(l), false, now_ns);
}

}  // namespace sonde::power
