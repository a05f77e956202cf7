#pragma once
/// The three-parameter lognormal: log(x - shift) is normal with mean mu and standard deviation sigma.
///
/// Its likelihood has no maximum: it grows without bound as shift nears the smallest sample (Hill 1963). The fit
/// therefore maximises the probability of the cells that the samples fall in, which is bounded, and exact for
/// samples rounded by a clock (Giesbrecht and Kempthorne, J. R. Statist. Soc. B 38, 1976, 257-264). Any-thread.

#include <cstddef>
#include <cstdint>
#include <span>

namespace sonde::stats {

struct Lognormal3 {
  double shift, mu, sigma;  ///< unit of x; log of that unit; none
  double ks;                ///< largest distance between the samples' distribution and the fitted one
  double loglik;            ///< sum of log densities, nats
  std::uint64_t n;
  bool converged;  ///< false: fewer than 3 distinct values, NaN, or no tail to the right to separate shift from mu
};

/// Fits. x: unsorted, ties allowed. When not converged the parameters are the best found, or NaN if none were found.
Lognormal3 fit_lognormal3(std::span<const double> x);

double lognormal3_cdf(double x, const Lognormal3& fit);

/// p outside [0, 1]: NaN; 0: shift; 1: infinity.
double lognormal3_quantile(double p, const Lognormal3& fit);

/// Kolmogorov-Smirnov distance of the samples from the fit. Empty or NaN: NaN.
double ks_distance(std::span<const double> x, const Lognormal3& fit);

/// Probability of a distance at least as large as observed if the law is lognormal: the parameters were estimated, so
/// Kolmogorov's own table does not hold, and the fit is repeated on `replicates` simulated sets instead (Stute,
/// Gonzalez Manteiga and Presedo Quindimil, Metrika 40, 1993, 243-256). fit: of x. Simulated samples are rounded like
/// the samples. If x has more than max_samples samples, at most max_samples evenly spaced ones are used and fitted
/// again: with very many samples any law is rejected, and spacing thins dependence. The answer is a multiple of 1 /
/// (replicates + 1). NaN if the fit has no parameters, with fewer than 3 distinct values, or with replicates = 0.
double ks_p(std::span<const double> x, const Lognormal3& fit, std::size_t replicates, std::uint64_t seed,
            std::size_t max_samples = 500);

}  // namespace sonde::stats
