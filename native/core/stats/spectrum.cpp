#include "core/stats/spectrum.hpp"

#include <cmath>
#include <complex>
#include <numbers>
#include <utility>

#include "core/stats/epochs.hpp"
#include "core/stats/fft.hpp"
#include "core/stats/moments.hpp"

namespace sonde::stats {

namespace {

/// Folds the negative frequencies onto the positive ones and scales. `power` holds |X_k|^2, k = 0 .. window / 2.
void one_sided(std::vector<double>& power, std::size_t window, double scale) {
  for (std::size_t k = 0; k < power.size(); ++k) {
    const bool has_mirror = k > 0 && 2 * k != window;
    power[k] *= has_mirror ? 2 * scale : scale;
  }
}

/// Sums tapered periodograms of the segments it is shown.
class Welch {
 public:
  Welch(std::size_t window, std::size_t overlap)
      : step_(window - overlap), fft_(window), taper_(window, 1.0), work_(window), sum_(window / 2 + 1, 0.0) {
    if (window > 1)
      for (std::size_t j = 0; j < window; ++j)
        taper_[j] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(j) / static_cast<double>(window));
  }

  void add(std::span<const double> x) {
    const std::size_t window = taper_.size();
    for (std::size_t at = 0; at + window <= x.size(); at += step_) {
      const auto segment = x.subspan(at, window);
      const double centre = mean(segment);
      for (std::size_t j = 0; j < window; ++j) work_[j] = (segment[j] - centre) * taper_[j];
      fft_.forward(work_);
      for (std::size_t k = 0; k < sum_.size(); ++k) sum_[k] += std::norm(work_[k]);
      ++segments_;
    }
  }

  std::vector<double> average() && {
    if (segments_ == 0) return {};
    double squares = 0;
    for (const double w : taper_) squares += w * w;
    const double window = static_cast<double>(taper_.size());
    one_sided(sum_, taper_.size(), 1 / (window * squares * static_cast<double>(segments_)));
    return std::move(sum_);
  }

 private:
  std::size_t step_, segments_ = 0;
  Fft fft_;
  std::vector<double> taper_;
  std::vector<std::complex<double>> work_;
  std::vector<double> sum_;
};

/// State of the sliding transform, real and imaginary parts apart so that the compiler can vectorise.
class SlidingDft {
 public:
  explicit SlidingDft(std::size_t window)
      : fft_(window), work_(window), re_(window / 2 + 1), im_(re_), turn_re_(re_), turn_im_(re_) {
    for (std::size_t k = 0; k < re_.size(); ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(window);
      turn_re_[k] = std::cos(angle);
      turn_im_[k] = std::sin(angle);
    }
  }

  /// Transforms a window from the start. Its mean is removed and stored separately: rounding then depends on the size
  /// of the variation, not on the level.
  void restart(std::span<const double> x) {
    centre_ = mean(x);
    for (std::size_t j = 0; j < x.size(); ++j) work_[j] = x[j] - centre_;
    fft_.forward(work_);
    for (std::size_t k = 0; k < re_.size(); ++k) {
      re_[k] = work_[k].real();
      im_[k] = work_[k].imag();
    }
  }

  void slide(double leaves, double enters) {
    const double change = enters - leaves;
    double* const re = re_.data();
    double* const im = im_.data();
    const double* const cos = turn_re_.data();
    const double* const sin = turn_im_.data();
    const std::size_t n = re_.size();
    for (std::size_t k = 0; k < n; ++k) {
      const double a = re[k] + change, b = im[k];
      re[k] = a * cos[k] - b * sin[k];
      im[k] = a * sin[k] + b * cos[k];
    }
  }

  void amplitude(double* out) const {
    const double* const re = re_.data();
    const double* const im = im_.data();
    const std::size_t n = re_.size();
    for (std::size_t k = 0; k < n; ++k) out[k] = std::sqrt(re[k] * re[k] + im[k] * im[k]);
    out[0] = std::abs(re[0] + centre_ * static_cast<double>(work_.size()));
  }

 private:
  Fft fft_;
  std::vector<std::complex<double>> work_;
  std::vector<double> re_, im_, turn_re_, turn_im_;
  double centre_ = 0;
};

}  // namespace

std::vector<double> periodogram(std::span<const double> x) {
  const std::size_t n = x.size();
  if (n == 0) return {};
  const double centre = mean(x);
  std::vector<std::complex<double>> work(n);
  for (std::size_t j = 0; j < n; ++j) work[j] = x[j] - centre;
  Fft(n).forward(work);
  std::vector<double> power(n / 2 + 1);
  for (std::size_t k = 0; k < power.size(); ++k) power[k] = std::norm(work[k]);
  one_sided(power, n, 1 / (static_cast<double>(n) * static_cast<double>(n)));
  power[0] = has_nan(power) ? nan : 0;  // the mean was removed; the rest is rounding
  return power;
}

std::vector<double> welch(std::span<const double> x, std::size_t window, std::size_t overlap) {
  if (window == 0 || overlap >= window || window > x.size()) return {};
  Welch welch(window, overlap);
  welch.add(x);
  return std::move(welch).average();
}

std::vector<double> welch(std::span<const double> x, std::span<const std::int32_t> epoch, std::size_t window,
                          std::size_t overlap) {
  if (window == 0 || overlap >= window || window > x.size()) return {};
  const Epochs epochs(x, epoch);
  Welch welch(window, overlap);
  for (std::size_t k = 0; k < epochs.size(); ++k) welch.add(epochs[k]);
  return std::move(welch).average();
}

void sliding_amplitude(std::span<const double> x, std::size_t window, std::span<double> out) {
  if (window == 0 || window > x.size()) return;
  const std::size_t rows = x.size() - window + 1, columns = window / 2 + 1;
  if (out.size() != rows * columns) return;
  SlidingDft dft(window);
  for (std::size_t row = 0; row < rows; ++row) {
    if (row % window == 0) dft.restart(x.subspan(row, window));
    else dft.slide(x[row - 1], x[row + window - 1]);
    dft.amplitude(out.data() + row * columns);
  }
}

std::vector<double> cumulative_spectrum(std::span<const double> power) {
  std::vector<double> out(power.size());
  double total = 0;
  for (const double p : power) total += p;
  double sum = 0;
  for (std::size_t k = 0; k < out.size(); ++k) {
    sum += power[k];
    out[k] = total == 0 ? static_cast<double>(k + 1) / static_cast<double>(out.size()) : sum / total;
  }
  return out;
}

}  // namespace sonde::stats
