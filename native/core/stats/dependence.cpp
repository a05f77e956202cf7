#include "core/stats/dependence.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <vector>

#include "core/stats/epochs.hpp"
#include "core/stats/fft.hpp"
#include "core/stats/moments.hpp"

namespace sonde::stats {

namespace {

/// Autocovariances at all lags times n, through the power spectrum of the series padded with zeros.
std::vector<double> autocovariances(std::span<const double> x) {
  const double centre = mean(x);
  const std::size_t padded = std::bit_ceil(2 * x.size());
  std::vector<std::complex<double>> work(padded, 0);
  for (std::size_t i = 0; i < x.size(); ++i) work[i] = x[i] - centre;
  const Fft fft(padded);
  fft.forward(work);
  for (auto& w : work) w = std::norm(w);
  fft.forward(work);  // real and even: forward and inverse differ only by the scale
  std::vector<double> out(x.size());
  for (std::size_t k = 0; k < out.size(); ++k) out[k] = work[k].real() / static_cast<double>(padded);
  return out;
}

}  // namespace

double autocorrelation(std::span<const double> x, std::size_t lag) {
  if (x.empty() || has_nan(x)) return nan;
  if (lag == 0) return 1;
  if (lag >= x.size()) return 0;
  const double centre = mean(x), total = variance_about(x, centre) * static_cast<double>(x.size());
  if (total == 0) return 0;
  double sum = 0;
  for (std::size_t i = 0; i + lag < x.size(); ++i) sum += (x[i] - centre) * (x[i + lag] - centre);
  return sum / total;
}

double effective_samples(std::span<const double> x) {
  const double n = static_cast<double>(x.size());
  if (has_nan(x)) return nan;
  if (x.size() < 4 || variance_about(x, mean(x)) == 0) return n;
  const std::vector<double> gamma = autocovariances(x);
  // Sums of neighbours are positive and falling for a reversible chain; the first that is not, is noise.
  double sum = 0, least = gamma[0] + gamma[1];
  for (std::size_t k = 0; k + 1 < gamma.size(); k += 2) {
    const double pair = gamma[k] + gamma[k + 1];
    if (!(pair > 0)) break;
    least = std::min(least, pair);
    sum += least;
  }
  const double spread = 2 * sum - gamma[0];
  return spread > 0 ? std::clamp(n * gamma[0] / spread, 1.0, n) : n;
}

double effective_samples(std::span<const double> x, std::span<const std::int32_t> epoch) {
  const Epochs epochs(x, epoch);
  const auto samples = epochs.samples();
  if (epochs.size() < 2) return effective_samples(samples);
  if (has_nan(samples)) return nan;
  const double n = static_cast<double>(samples.size()), count = static_cast<double>(epochs.size());
  const double centre = mean(samples), variance = variance_about(samples, centre) * n / (n - 1);
  if (variance == 0) return n;
  // The mean is a ratio of sums over epochs, so its variance comes from the epochs' shares of the deviation
  // (Cochran, Sampling Techniques, 1977, ch. 6); epochs may differ in length.
  double between = 0;
  for (std::size_t k = 0; k < epochs.size(); ++k) {
    const double share = static_cast<double>(epochs[k].size()) / n * (mean(epochs[k]) - centre);
    between += share * share;
  }
  between *= count / (count - 1);
  return between > 0 ? std::clamp(variance / between, 1.0, n) : n;
}

}  // namespace sonde::stats
