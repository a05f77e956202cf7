#include "power/namesakes.hpp"

#include <algorithm>
#include <cmath>

namespace sonde::power {

namespace {

constexpr std::size_t max_instances = 16;  ///< a node manager that restarts again and again must not fill the memory

std::int64_t ns(double s) { return static_cast<std::int64_t>(s * 1e9); }

bool at_once(const Namesakes::One& a, const Namesakes::One& b) {
  return std::min(a.alive_ns, b.alive_ns) >= std::max(a.first_ns, b.first_ns);
}

}  // namespace

void Namesakes::heard(const Report& report, double power_w, const Member& member, std::int64_t asked_ns,
                      std::int64_t now_ns, double flight_s) {
  auto one = std::find_if(all_.begin(), all_.end(), [&](const One& o) { return o.instance == report.ticket.instance; });
  if (one == all_.end()) {
    if (all_.size() == max_instances)
      all_.erase(std::min_element(all_.begin(), all_.end(),
                                  [](const One& a, const One& b) { return a.heard_ns < b.heard_ns; }));
    all_.push_back({report.ticket.instance, report.ticket.at_ns, now_ns});
    one = all_.end() - 1;
  } else if (report.ticket.at_ns <= one->ticket_ns) {
    // An answer that telemetry overtook still proves that it ran.
    if (asked_ns) one->alive_ns = std::max(one->alive_ns, asked_ns);
    return;
  }
  one->ticket_ns = report.ticket.at_ns;
  one->heard_ns = now_ns;
  one->alive_ns = std::max(one->alive_ns, asked_ns ? asked_ns : now_ns - ns(flight_s));
  one->cap_w = report.cap_w;
  one->at_w = std::max(member.safe_w, std::isfinite(report.cap_w) ? report.cap_w : member.max_w);
  if (report.leased) one->at_w = std::fmax(one->at_w, report.lease_w);
  if (std::isfinite(power_w) && power_w >= 0) one->power_w = power_w;
}

std::vector<Namesakes::One> Namesakes::running(std::int64_t now_ns, double silence_s) const {
  std::vector<One> near, out;
  for (const auto& one : all_)
    if (now_ns - one.heard_ns <= ns(silence_s)) near.push_back(one);
  for (const auto& one : near)
    if (std::any_of(near.begin(), near.end(), [&](const One& other) { return &other != &one && at_once(one, other); }))
      out.push_back(one);
  return out;
}

}  // namespace sonde::power
