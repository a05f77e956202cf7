#pragma once
/// Whether a series is still warming up, and whether its level drifts, judged from batches of epochs. Any-thread.

#include <cstddef>
#include <span>

namespace sonde::rules {

struct WarmUp {
  std::size_t leave_out;  ///< batches at the beginning that belong to the warm-up
  bool over;              ///< false: the level at the beginning reaches so far in that its end is not yet seen
};

/// Finds leading batches that lie, all to one side, where none of the second half of the batches would (Student's
/// prediction bound, two-sided 0.001 each). As many again are left out: a decay whose head stands out by a
/// factor still has a tail, and twice the length leaves its square. medians: of the batches, in order of time;
/// fewer than 8: nothing is found.
WarmUp find_warm_up(std::span<const double> medians);

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

}  // namespace sonde::rules
