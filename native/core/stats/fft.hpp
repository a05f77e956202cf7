#pragma once
/// Discrete Fourier transform of any length. Any-thread once made.

#include <complex>
#include <cstddef>
#include <span>
#include <vector>

namespace sonde::stats {

/// Powers of two by the radix-2 form, other lengths as a convolution of powers of two (Bluestein, IEEE Trans. Audio
/// Electroacoust. 18, 1970, 451-455). n log n for any n; the tables are made once.
class Fft {
 public:
  explicit Fft(std::size_t n);

  std::size_t size() const { return n_; }
  /// In place, X_k = sum x_j exp(-2 pi i j k / n), not scaled. x has n values.
  void forward(std::span<std::complex<double>> x) const;

 private:
  void radix2(std::span<std::complex<double>> x) const;
  std::size_t n_, padded_;
  std::vector<std::complex<double>> root_;    // exp(-2 pi i j / padded), j < padded / 2
  std::vector<std::complex<double>> chirp_;   // Bluestein: exp(-pi i j^2 / n)
  std::vector<std::complex<double>> kernel_;  // its transformed conjugate
};

}  // namespace sonde::stats
