#pragma once
/// The few distribution functions that intervals and tests need; they are here so that probes link nothing else.
/// Arguments outside the domain, and NaN, give NaN. Any-thread.

#include <cstdint>

namespace sonde::stats {

/// Standard normal.
double normal_cdf(double z);

/// Its inverse; p = 0 and 1 give the infinities. Start: Abramowitz and Stegun 26.2.23; then Halley's steps.
double normal_quantile(double p);

/// Regularised incomplete beta function I_x(a, b), a, b > 0, x in [0, 1]. Continued fraction, DLMF 8.17.22.
double incomplete_beta(double a, double b, double x);

/// Student's t with `dof` > 0 degrees of freedom; ten digits up to a million of them.
double student_cdf(double t, double dof);

double student_quantile(double p, double dof);

/// P(B = k) of n trials. Loader's saddle-point form, exact to rounding for any n.
double binomial_pmf(std::uint64_t k, std::uint64_t n, double p);

/// P(B <= k).
double binomial_cdf(std::uint64_t k, std::uint64_t n, double p);

}  // namespace sonde::stats
