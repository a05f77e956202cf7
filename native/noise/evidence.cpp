#include "noise/evidence.hpp"

#include <algorithm>
#include <utility>

namespace sonde::noise {

Stalls merge(std::span<const Stalls> ranks) {
  std::vector<std::pair<double, double>> all;
  for (const auto& rank : ranks)
    for (std::size_t k = 0; k < rank.t_s.size(); ++k) all.emplace_back(rank.t_s[k], rank.length_s[k]);
  std::sort(all.begin(), all.end());
  Stalls out;
  double end = 0;
  for (const auto& [t, length] : all) {
    if (!out.t_s.empty() && t < end) {
      out.length_s.back() = std::max(out.length_s.back(), length);
    } else {
      out.t_s.push_back(t);
      out.length_s.push_back(length);
    }
    end = std::max(end, t + length);
  }
  return out;
}

}  // namespace sonde::noise
