#pragma once
/// Whether a series is still warming up, and whether its level drifts, judged from batches of epochs. Any-thread.

#include <cstddef>
#include <span>

#include "core/stats/pooled.hpp"

namespace sonde::stats {

struct WarmUp {
  std::size_t leave_out;  ///< batches at the beginning that belong to the warm-up
  bool over;              ///< false: it is longer than a quarter, so its end is not certain
};

/// Finds a warm-up in two ways and uses the longer result. The first finds a short and high one: leading batches, all
/// to one side, where none of the second half would be (Student's prediction bound, two-sided 0.001 each), and none
/// after them; levels that come again are regimes. The second finds a long and low one: if drift_p of all batches is
/// below `alarm` but that of the second half is not, it is the shortest head without which drift_p is above 5 %. In
/// both cases the same number of batches is left out again: a decay that no longer stands out still has a tail, and
/// twice the length leaves the square of the remaining part.
/// medians, shares: of the batches, in order of time; shares are below the median of the second half. With fewer than 8
/// batches nothing is found.
WarmUp find_warm_up(std::span<const double> medians, std::span<const double> shares, double alarm);

/// The same for batches in their given form.
WarmUp find_warm_up(const Batches& batches, double alarm);

/// Default chance of a false alarm of drift_p.
constexpr double false_alarm = 0.002;

/// Probability of level changes at least as large if there were none: Kolmogorov's law for the largest excursion of the
/// running sum of the batches' shares below the common median. The shares are tested, so delays may have any law. Their
/// variance and dependence are computed after the best single change is removed, because otherwise a change would hide
/// itself. shares: in order of time; fewer than 8: 1.
///
/// Sources: quantile indicators: Busetti and Harvey, J. Time Series Analysis 31, 2010, 113-126. Largest
/// excursion: Ploberger and Kraemer, Econometrica 60, 1992, 271-285.
double drift_p(std::span<const double> shares);

/// The position of that single change: the first batch of the new level.
std::size_t drift_at(std::span<const double> shares);

/// P(K > x) of Kolmogorov's limiting law.
double kolmogorov_tail(double x);

}  // namespace sonde::stats
