#include "core/rules/rule_base.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

namespace sonde {

std::string_view decision_name(Decision decision) {
  switch (decision) {
    case Decision::proceed: return "proceed";
    case Decision::converged: return "converged";
    case Decision::cap: return "cap";
    case Decision::drift: return "drift";
  }
  return "";
}

namespace rules {

Decision RuleBase::add(std::span<const double> epoch) {
  if (decision_ != Decision::proceed) return decision_;
  const std::uint64_t room = context_.cap - std::min(context_.cap, used_);
  if (epoch.size() > room) epoch = epoch.first(room);
  before_ = used_;
  used_ += epoch.size();

  offset_.clear();
  std::span<const double> valid = epoch;
  if (!std::all_of(epoch.begin(), epoch.end(), [](double x) { return std::isfinite(x); })) {
    clean_.clear();
    for (std::size_t i = 0; i < epoch.size(); ++i) {
      if (!std::isfinite(epoch[i])) continue;
      clean_.push_back(epoch[i]);
      offset_.push_back(i);
    }
    valid = clean_;
  }

  Decision answer = valid.empty() ? Decision::proceed : consider(valid);
  if (answer != Decision::proceed && used_ < context_.min_samples) answer = Decision::proceed;
  if (answer == Decision::proceed && used_ >= context_.cap) {
    answer = at_cap();
    if (answer == Decision::proceed || (answer == Decision::converged && used_ < context_.min_samples))
      answer = Decision::cap;
    if (answer == Decision::cap) {
      why_ = "cap of " + std::to_string(context_.cap) + " samples reached: " + why_;
    }
  }
  return decision_ = answer;
}

std::size_t RuleBase::state_bytes() const {
  return sizeof(RuleBase) + clean_.capacity() * sizeof(double) + offset_.capacity() * sizeof(std::size_t) +
         why_.capacity() + held_bytes();
}

void PeekGrid::advance(std::uint64_t count) {
  last_ = count;
  while (next_ <= count) {
    next_ = std::max<std::uint64_t>(next_ + 1, static_cast<std::uint64_t>(std::llround(growth_ * double(next_))));
  }
}

std::string number(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string percent(double share) { return number(100 * share, 2) + " %"; }

}  // namespace rules
}  // namespace sonde
