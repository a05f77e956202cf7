#pragma once
/// Whether a series is still warming up, and whether its level drifts, judged from batches of epochs. Any-thread.

#include <cstddef>
#include <span>

#include "core/stats/pooled.hpp"

namespace sonde::stats {

struct WarmUp {
  std::size_t leave_out;  ///< batches at the beginning that belong to the warm-up
  bool over;              ///< false: it reaches further in than a quarter, so its end is not safely seen
};

/// Finds a warm-up in two ways and keeps the longer. Leading batches that lie, all to one side, where none of the
/// second half would (Student's prediction bound, two-sided 0.001 each), and none after them, find a short and high
/// one; levels that come again are regimes. When drift_p
/// of all batches is below `alarm` but that of the second half is not, the shortest head without which it is
/// above 5 % finds a long and low one. Either way as many batches again are left out: a decay that no longer
/// stands out still has a tail, and twice the length leaves the square of what was left.
/// medians, shares: of the batches, in order of time; shares are below the median of the second half. Fewer than
/// 8 batches: nothing is found.
WarmUp find_warm_up(std::span<const double> medians, std::span<const double> shares, double alarm);

/// The same of batches as they are.
WarmUp find_warm_up(const Batches& batches, double alarm);

/// Chance of a false alarm of drift_p where nobody says another.
constexpr double false_alarm = 0.002;

/// Probability of level changes at least as large if there were none: Kolmogorov's law for the largest excursion
/// of the running sum of the batches' shares below the common median. The shares are what is tested, so delays
/// may have any law; their variance and dependence are taken after removing the best single change, or a change
/// would hide itself. shares: in order of time; fewer than 8: 1.
///
/// Sources: quantile indicators: Busetti and Harvey, J. Time Series Analysis 31, 2010, 113-126. Largest
/// excursion: Ploberger and Kraemer, Econometrica 60, 1992, 271-285.
double drift_p(std::span<const double> shares);

/// Where that single change is: the first batch of the new level.
std::size_t drift_at(std::span<const double> shares);

/// P(K > x) of Kolmogorov's limiting law.
double kolmogorov_tail(double x);

}  // namespace sonde::stats
