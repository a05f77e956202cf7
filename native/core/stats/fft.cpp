#include "core/stats/fft.hpp"

#include <bit>
#include <numbers>
#include <utility>

namespace sonde::stats {

namespace {

using Complex = std::complex<double>;

/// exp(-2 pi i j / n), 0 <= j < n.
Complex unit_root(std::size_t j, std::size_t n) {
  return std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(j) / static_cast<double>(n));
}

/// The plain product: std::complex's own checks for infinities cost a call.
Complex times(Complex a, Complex b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

}  // namespace

Fft::Fft(std::size_t n) : n_(n), padded_(std::has_single_bit(n) ? n : std::bit_ceil(2 * n)) {
  if (n == 0) return;
  root_.resize(padded_ / 2);
  for (std::size_t j = 0; j < root_.size(); ++j) root_[j] = unit_root(j, padded_);
  if (padded_ == n) return;
  chirp_.resize(n);
  kernel_.assign(padded_, 0);
  std::size_t square = 0;  // j^2 mod 2n, small, so that the angle stays precise
  for (std::size_t j = 0; j < n; ++j) {
    chirp_[j] = unit_root(square, 2 * n);
    kernel_[j] = std::conj(chirp_[j]);
    if (j > 0) kernel_[padded_ - j] = kernel_[j];
    square = (square + 2 * j + 1) % (2 * n);
  }
  radix2(kernel_);
}

void Fft::radix2(std::span<Complex> x) const {
  const std::size_t n = x.size();
  for (std::size_t i = 1, j = 0; i < n; ++i) {
    std::size_t bit = n / 2;
    for (; j & bit; bit /= 2) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(x[i], x[j]);
  }
  for (std::size_t half = 1; half < n; half *= 2) {
    const std::size_t stride = n / (2 * half);
    for (std::size_t start = 0; start < n; start += 2 * half) {
      for (std::size_t k = 0; k < half; ++k) {
        const Complex odd = times(root_[k * stride], x[start + half + k]), even = x[start + k];
        x[start + k] = even + odd;
        x[start + half + k] = even - odd;
      }
    }
  }
}

void Fft::forward(std::span<Complex> x) const {
  if (n_ < 2) return;
  if (padded_ == n_) return radix2(x);
  std::vector<Complex> work(padded_, 0);
  for (std::size_t j = 0; j < n_; ++j) work[j] = times(x[j], chirp_[j]);
  radix2(work);
  // The inverse as the conjugate of the forward transform of the conjugate
  for (std::size_t j = 0; j < padded_; ++j) work[j] = std::conj(times(work[j], kernel_[j]));
  radix2(work);
  const double scale = 1 / static_cast<double>(padded_);
  for (std::size_t j = 0; j < n_; ++j) x[j] = times(std::conj(work[j]) * scale, chirp_[j]);
}

}  // namespace sonde::stats
