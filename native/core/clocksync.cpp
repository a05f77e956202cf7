#include "core/clocksync.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sonde {

ClockPoint best_clock_point(std::span<const ClockExchange> batch) {
  ClockPoint best{0, 0, std::numeric_limits<double>::infinity()};
  for (const auto& x : batch) {
    const double half = (x.after - x.before) / 2;
    if (half < best.error) best = {x.before + half, x.reference - (x.before + half), half};
  }
  return best;
}

void ClockModel::add(const ClockPoint& point) {
  if (!std::isfinite(point.error)) return;
  const double missed = first_ ? 0 : std::abs(to_reference(point.local) - (point.local + point.offset));
  // The first line is a guess of no drift; missing the second point by the drift is not an error of the method.
  const bool had_line = points_.size() >= 2;
  first_ = false;
  points_.push_back(point);
  if (points_.size() > keep_) points_.erase(points_.begin());

  // Weighted least squares about the last point; a point counts by 1 / error^2, and clock granularity bounds that.
  origin_ = point.local;
  double sw = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (const auto& p : points_) {
    const double e = std::max(p.error, 1e-9), w = 1 / (e * e), x = p.local - origin_;
    sw += w;
    sx += w * x;
    sy += w * (p.offset - point.offset);
    sxx += w * x * x;
    sxy += w * x * (p.offset - point.offset);
  }
  const double det = sw * sxx - sx * sx;
  const double span = points_.back().local - points_.front().local;
  drift_ = (points_.size() >= 2 && span >= 1e-3 && det > 0) ? (sw * sxy - sx * sy) / det : 0;
  offset_ = point.offset + (sy - drift_ * sx) / sw;
  error_ = point.error + (had_line ? missed : 0);
}

}  // namespace sonde
