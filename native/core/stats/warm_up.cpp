#include "core/stats/warm_up.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/stats/special.hpp"
#include "core/stats/summary.hpp"

namespace sonde::stats {
namespace {

constexpr std::size_t fewest = 8;    // batches to judge from
constexpr std::size_t shortest = 3;  // batches on either side of a change

double mean(std::span<const double> x) {
  double sum = 0;
  for (double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

struct Excursion {
  std::size_t at;  // batches before the change
  double largest;  // |running sum of deviations from the mean|
};

Excursion excursion(std::span<const double> shares) {
  const double m = mean(shares);
  Excursion out{shares.size() / 2, 0};
  double sum = 0;
  for (std::size_t k = 0; k + shortest < shares.size(); ++k) {
    sum += shares[k] - m;
    if (k + 1 >= shortest && std::fabs(sum) > out.largest) out = {k + 1, std::fabs(sum)};
  }
  return out;
}

}  // namespace

double kolmogorov_tail(double x) {
  if (std::isnan(x)) return x;
  if (x < 0.2) return 1;  // below: 1 - 1e-12
  double sum = 0;
  for (int j = 1; j <= 100; ++j) {
    const double term = std::exp(-2.0 * j * j * x * x);
    sum += (j % 2 ? 2 : -2) * term;
    if (term < 1e-17) break;
  }
  return std::clamp(sum, 0.0, 1.0);
}

WarmUp find_warm_up(std::span<const double> medians, std::span<const double> shares, double alarm) {
  if (medians.size() < fewest) return {0, true};
  const std::size_t half = medians.size() / 2;
  const auto rest = medians.subspan(half);
  const double n = static_cast<double>(rest.size()), centre = mean(rest);
  double squares = 0;
  for (double v : rest) squares += (v - centre) * (v - centre);
  const double bound = student_quantile(0.9995, n - 1) * std::sqrt(squares / (n - 1) * (1 + 1 / n));

  const double side = medians[0] > centre ? 1 : -1;
  const auto stands_out = [&](double median) { return side * (median - centre) > bound; };
  std::size_t head = 0;
  while (head < half && stands_out(medians[head])) ++head;
  // A level that comes again later is a regime, not a warm-up.
  const auto after = medians.subspan(std::min(2 * head, half));
  if (std::any_of(after.begin(), after.end(), stands_out)) head = 0;
  if (drift_p(shares.subspan(head)) < alarm && drift_p(shares.subspan(half)) >= alarm) {
    while (head < half && drift_p(shares.subspan(head)) < 0.05) ++head;
  }
  return {std::min(2 * head, half), 2 * head <= half};
}

WarmUp find_warm_up(const Batches& batches, double alarm) {
  if (batches.size() < fewest) return {0, true};
  std::vector<double> medians;
  for (const auto& batch : batches.batches) medians.push_back(batch.median);
  Batches late = batches;
  late.drop_front(batches.size() / 2);
  const double level = pooled_median(late, 0.95).median;
  return find_warm_up(medians, batches.shares_below(level), alarm);
}

std::size_t drift_at(std::span<const double> shares) { return excursion(shares).at; }

double drift_p(std::span<const double> shares) {
  if (shares.size() < fewest) return 1;
  const Excursion e = excursion(shares);
  if (e.largest <= 1e-12 * static_cast<double>(shares.size())) return 1;
  const double before = mean(shares.first(e.at)), after = mean(shares.subspan(e.at));
  double squares = 0, products = 0, last = 0;
  for (std::size_t b = 0; b < shares.size(); ++b) {
    const double residual = shares[b] - (b < e.at ? before : after);
    squares += residual * residual;
    products += residual * last;
    last = residual;
  }
  if (squares <= 0) return 0;
  const double n = static_cast<double>(shares.size());
  // Two means were fitted, so the leading bias of the correlation is twice 1/n.
  const double r = std::clamp(products / squares + 2 / n, 0.0, 0.9);
  const double variance = squares / (n - 2) * (1 + r) / (1 - r);
  return kolmogorov_tail(e.largest / std::sqrt(n * variance));
}

}  // namespace sonde::stats
