#include "power/ledger.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/units.hpp"

namespace sonde::power {

namespace {

constexpr double longest_lease_s = 600;  ///< longest lease that a node obeys (LeaseKeeper::Limits)
/// Changes of caps below this are not worth a message.
constexpr double step_w = 0.5;

Result<double> safe_sum(const std::vector<Member>& members, double budget_w) {
  double sum = 0;
  for (const auto& m : members) sum += m.safe_w;
  if (!(std::isfinite(budget_w) && budget_w >= sum))
    return Error{"power.safe_above_budget",
                 "the safe caps of " + std::to_string(members.size()) + " nodes add up to " + format_power(sum) +
                     ", which is above the budget of " + format_power(budget_w) +
                     ": without a leading manager the nodes would exceed it",
                 "raise the budget, lower safe caps, or remove nodes"};
  return sum;
}

}  // namespace

Result<Ledger> Ledger::open(const Settings& settings, std::vector<Member> members, Fence own) {
  for (std::size_t k = 0; k < members.size(); ++k) {
    const auto& m = members[k];
    const std::string who = "node " + m.name;
    if (m.name.empty()) return Error{"power.bad_node", "a node has no name", "give it the name of its node manager"};
    for (std::size_t i = 0; i < k; ++i)
      if (members[i].name == m.name) return Error{"power.bad_node", who + " is named twice", "name each once"};
    if (!(std::isfinite(m.min_w) && std::isfinite(m.max_w) && m.min_w >= 0 && m.max_w >= m.min_w &&
          m.safe_w >= m.min_w && m.safe_w <= m.max_w))
      return Error{"power.bad_node",
                   who + " has caps of " + format_power(m.min_w) + " … " + format_power(m.max_w) +
                       " and the safe cap " + format_power(m.safe_w),
                   "the safe cap must be between the lowest and the highest cap, and all three must be finite"};
  }
  if (!(settings.lease_s > 0 && settings.renew_s > 0 && settings.renew_s < settings.lease_s && settings.resend_s > 0 &&
        settings.clock_error >= 0))
    return Error{
        "power.bad_lease",
        "a lease of " + format_duration(settings.lease_s) + " renewed after " + format_duration(settings.renew_s),
        "both times must be above 0, and the lease must be renewed before it ends"};
  if (auto sum = safe_sum(members, settings.budget_w); !sum) return sum.error();
  return Ledger(settings, std::move(members), std::move(own));
}

Ledger::Ledger(const Settings& settings, std::vector<Member> members, Fence own)
    : settings_(settings), members_(std::move(members)), fence_(own), higher_(std::move(own)), books_(members_.size()) {
  for (std::size_t k = 0; k < members_.size(); ++k) index_[members_[k].name] = k;
}

std::size_t Ledger::find(const std::string& node) const {
  const auto at = index_.find(node);
  return at == index_.end() ? members_.size() : at->second;
}

/// How long a lease can take by the manager's clock.
std::int64_t Ledger::longest(double lease_s) const {
  return static_cast<std::int64_t>(lease_s * (1 + settings_.clock_error) * 1e9) + 1;
}

bool Ledger::heard(std::size_t node, const Report& report, std::int64_t asked_ns, std::int64_t now_ns) {
  Book& book = books_[node];
  const Member& member = members_[node];
  if (report.seen > higher_) higher_ = report.seen;
  if (book.heard && report.ticket.instance != book.ticket.instance) {
    // If there are two node managers, the later one answers requests that were sent after the other was heard; any
    // other message may have been delayed.
    if (asked_ns <= book.heard_ns) return book.known;
    // It does not obey the grants to the other one, which may still obey them on another machine.
    std::erase_if(book.earlier, [&](const auto& e) { return e.second.highest_w(now_ns) <= 0; });
    book.earlier[book.ticket.instance] = book;
    Lent& own = book;
    own = {};
    if (const auto again = book.earlier.find(report.ticket.instance); again != book.earlier.end()) {
      own = std::move(again->second);
      book.earlier.erase(again);
    }
  } else if (book.heard && report.ticket.at_ns <= book.ticket.at_ns) {
    // Its telemetry overtook its answer, which proves that it obeyed when it was asked.
    if (book.known && asked_ns && report.seen == fence_) book.asked_ns = std::max(book.asked_ns, asked_ns);
    return book.known;
  }
  book.heard = true;
  book.ticket = report.ticket;
  book.heard_ns = now_ns;
  book.told_w = std::isfinite(report.cap_w) ? report.cap_w : member.max_w;
  if (report.seen != fence_) return book.known = false;

  book.known = true;
  if (asked_ns) book.asked_ns = std::max(book.asked_ns, asked_ns);
  const auto confirmed =
      std::find_if(book.sent.begin(), book.sent.end(), [&](const Sent& s) { return s.sequence == report.sequence; });
  if (!report.leased) {
    book.lent_w = 0, book.lent_ends_ns = 0;
  } else if (confirmed != book.sent.end()) {
    book.lent_w = confirmed->cap_w, book.lent_ends_ns = confirmed->ends_ns;
  } else if (!(book.lent_ends_ns > now_ns)) {
    // Lent by an earlier manager: the node's report counts, for as long as it states.
    book.lent_w = std::isfinite(report.lease_w) ? std::clamp(report.lease_w, member.min_w, member.max_w) : member.max_w;
    book.lent_ends_ns =
        now_ns + longest(report.left_s >= 0 && report.left_s <= longest_lease_s ? report.left_s : longest_lease_s);
  }
  std::erase_if(book.sent, [&](const Sent& s) { return s.sequence <= report.sequence; });
  const double should = report.leased ? book.lent_w : member.safe_w;
  book.stuck = book.told_w > should + step_w;
  if (!majority_ns_ && quorum(now_ns)) majority_ns_ = now_ns;
  return true;
}

bool Ledger::quorum(std::int64_t now_ns) const {
  return quorum_since(now_ns - static_cast<std::int64_t>(settings_.lease_s * 1e9));
}

bool Ledger::quorum_since(std::int64_t since_ns) const {
  if (settings_.without_quorum) return true;
  std::size_t with_us = 0;
  for (const auto& book : books_) with_us += book.known && book.asked_ns && book.asked_ns >= since_ns;
  return 2 * with_us > books_.size();
}

bool Ledger::settled(std::int64_t now_ns) const {
  if (std::all_of(books_.begin(), books_.end(), [](const Book& b) { return b.known; })) return true;
  return alone(now_ns);
}

bool Ledger::alone(std::int64_t now_ns) const {
  if (!majority_ns_) return false;
  // Another manager may have lent until one lease length of its own after our majority, and that lease runs as long
  // again.
  const double lease_s = std::max(settings_.lease_s, settings_.others_lease_s);
  return now_ns > majority_ns_ + static_cast<std::int64_t>(lease_s * 1e9) + longest(lease_s);
}

double Ledger::Lent::highest_w(std::int64_t now_ns) const {
  double most = lent_ends_ns > now_ns ? lent_w : 0;
  for (const auto& s : sent)
    if (s.ends_ns > now_ns) most = std::max(most, s.cap_w);
  return most;
}

void Ledger::beside(std::size_t node, std::vector<std::pair<std::uint64_t, double>> others) {
  books_[node].beside = std::move(others);
}

double Ledger::own_w(std::size_t node, std::int64_t now_ns) const {
  const Book& book = books_[node];
  const Member& member = members_[node];
  double most = member.safe_w;
  if (!book.known && !settled(now_ns)) most = member.max_w;
  most = std::max(most, book.highest_w(now_ns));
  if (book.stuck) most = std::max(most, book.told_w);
  return most;
}

double Ledger::committed_w(std::size_t node, std::int64_t now_ns) const {
  const Book& book = books_[node];
  double sum = own_w(node, now_ns);
  std::map<std::uint64_t, double> others;
  for (const auto& [instance, lent] : book.earlier) others[instance] = lent.highest_w(now_ns);
  for (const auto& [instance, at_w] : book.beside)
    if (!book.heard || instance != book.ticket.instance) others[instance] = std::max(others[instance], at_w);
  for (const auto& [instance, at_w] : others) sum += at_w;
  return sum;
}

double Ledger::committed_w(std::int64_t now_ns) const {
  double sum = 0;
  for (std::size_t k = 0; k < books_.size(); ++k) sum += committed_w(k, now_ns);
  return sum;
}

double Ledger::confirmed_w(std::size_t node, std::int64_t now_ns) const {
  const Book& book = books_[node];
  if (book.stuck) return book.told_w;
  return book.lent_ends_ns > now_ns ? book.lent_w : members_[node].safe_w;
}

Result<void> Ledger::set_budget(double budget_w) {
  if (auto sum = safe_sum(members_, budget_w); !sum) return sum.error();
  settings_.budget_w = budget_w;
  return {};
}

std::vector<std::pair<std::size_t, Grant>> Ledger::due(const std::vector<double>& caps_w, std::int64_t now_ns) {
  std::vector<std::pair<std::size_t, Grant>> out;
  for (auto& book : books_) std::erase_if(book.sent, [&](const Sent& s) { return s.ends_ns <= now_ns; });
  if (higher_ > fence_ || !quorum(now_ns)) return out;
  const bool is_settled = settled(now_ns);
  const auto renew = static_cast<std::int64_t>(settings_.renew_s * 1e9),
             resend = static_cast<std::int64_t>(settings_.resend_s * 1e9);

  struct Wish {
    std::size_t node;
    double cap_w, last_w;
    std::int64_t ends_ns;
    bool due;
  };
  std::vector<Wish> down, up;
  for (std::size_t k = 0; k < books_.size(); ++k) {
    const Book& book = books_[k];
    const Member& member = members_[k];
    if (!book.known || std::isnan(caps_w[k])) continue;
    const std::int64_t ends = book.heard_ns + longest(settings_.lease_s);
    if (ends - now_ns < renew) continue;  // its last report is old: a lease from then would hardly begin
    const double cap = std::clamp(caps_w[k], member.min_w, member.max_w);
    // The node's cap if no message gets lost.
    const bool leased = book.lent_ends_ns > now_ns;
    double last = leased ? book.lent_w : member.safe_w;
    std::int64_t last_ends = leased ? book.lent_ends_ns : 0, last_sent = 0;
    if (!book.sent.empty())
      last = book.sent.back().cap_w, last_ends = book.sent.back().ends_ns, last_sent = book.sent.back().sent_ns;
    const bool changed = std::abs(cap - last) >= step_w,
               ending = last_ends - now_ns < longest(settings_.lease_s) - renew,
               unheard = last_sent && now_ns - last_sent >= resend;
    const bool waits = last_sent && now_ns - last_sent < resend;  // an answer is pending: only a lower cap is sent
    if (!(changed || ending || unheard) || (waits && cap >= last - step_w)) continue;
    (cap <= own_w(k, now_ns) ? down : up).push_back({k, cap, last, ends, ending || unheard});
  }
  const auto grant = [&](const Wish& wish, double cap) {
    Book& book = books_[wish.node];
    Grant g;
    g.fence = fence_;
    g.sequence = ++sequence_;
    g.ticket = book.ticket;
    g.lease_s = settings_.lease_s;
    g.cap_w = cap;
    book.sent.push_back({g.sequence, cap, wish.ends_ns, now_ns});
    out.emplace_back(wish.node, std::move(g));
  };
  double committed = committed_w(now_ns);
  for (const auto& wish : down) {
    // Before all nodes are known, an earlier manager may count this node at its safe cap as soon as its own lease is
    // over, and lend the rest.
    if (!is_settled && wish.cap_w > members_[wish.node].safe_w && committed > settings_.budget_w) continue;
    grant(wish, wish.cap_w);
  }
  double room = settings_.budget_w - committed;
  for (const auto& wish : up) {
    const double now_w = own_w(wish.node, now_ns), cap = std::min(wish.cap_w, now_w + std::max(room, 0.0));
    if (!wish.due && std::abs(cap - wish.last_w) < step_w) continue;
    if (!is_settled && cap > members_[wish.node].safe_w && room < 0) continue;
    room -= std::max(0.0, cap - now_w);
    grant(wish, cap);
  }
  return out;
}

}  // namespace sonde::power
