#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/stats/change.hpp"
#include "core/stats/dependence.hpp"
#include "core/stats/interval.hpp"
#include "core/stats/lognormal.hpp"
#include "core/stats/special.hpp"
#include "core/stats/spectrum.hpp"
#include "core/stats/summary.hpp"

using namespace sonde::stats;

namespace {

using Vector = std::vector<double>;

struct Call {
  std::vector<Vector> series;
  std::vector<std::vector<std::int32_t>> epochs;
  Vector argument;

  const Vector& x() const { return series.at(0); }
  const std::vector<std::int32_t>& epoch() const { return epochs.at(0); }
  double a(std::size_t k) const { return argument.at(k); }
  std::size_t n(std::size_t k) const { return static_cast<std::size_t>(argument.at(k)); }
  Lognormal3 law(std::size_t k) const { return {a(k), a(k + 1), a(k + 2), 0, 0, 1, true}; }
};

Vector pair(Interval i) { return {i.low, i.high}; }

Vector row_of_sliding(const Call& c) {
  const std::size_t columns = c.n(0) / 2 + 1, rows = c.x().size() - c.n(0) + 1;
  Vector out(rows * columns);
  sliding_amplitude(c.x(), c.n(0), out);
  const auto row = out.begin() + static_cast<std::ptrdiff_t>(c.n(1) * columns);
  return {row, row + static_cast<std::ptrdiff_t>(columns)};
}

Vector field_of_summary(const Call& c, double Summary::* field) { return {summarise(c.x()).*field}; }

const std::map<std::string, std::function<Vector(const Call&)>> functions{
    {"normal_cdf", [](const Call& c) { return Vector{normal_cdf(c.a(0))}; }},
    {"normal_quantile", [](const Call& c) { return Vector{normal_quantile(c.a(0))}; }},
    {"incomplete_beta", [](const Call& c) { return Vector{incomplete_beta(c.a(0), c.a(1), c.a(2))}; }},
    {"student_cdf", [](const Call& c) { return Vector{student_cdf(c.a(0), c.a(1))}; }},
    {"student_quantile", [](const Call& c) { return Vector{student_quantile(c.a(0), c.a(1))}; }},
    {"binomial_pmf", [](const Call& c) { return Vector{binomial_pmf(c.n(0), c.n(1), c.a(2))}; }},
    {"binomial_cdf", [](const Call& c) { return Vector{binomial_cdf(c.n(0), c.n(1), c.a(2))}; }},
    {"summarise.n", [](const Call& c) { return Vector{static_cast<double>(summarise(c.x()).n)}; }},
    {"summarise.mean", [](const Call& c) { return field_of_summary(c, &Summary::mean); }},
    {"summarise.sd", [](const Call& c) { return field_of_summary(c, &Summary::sd); }},
    {"summarise.min", [](const Call& c) { return field_of_summary(c, &Summary::min); }},
    {"summarise.max", [](const Call& c) { return field_of_summary(c, &Summary::max); }},
    {"summarise.median", [](const Call& c) { return field_of_summary(c, &Summary::median); }},
    {"summarise.mad", [](const Call& c) { return field_of_summary(c, &Summary::mad); }},
    {"summarise.q05", [](const Call& c) { return field_of_summary(c, &Summary::q05); }},
    {"summarise.q25", [](const Call& c) { return field_of_summary(c, &Summary::q25); }},
    {"summarise.q75", [](const Call& c) { return field_of_summary(c, &Summary::q75); }},
    {"summarise.q95", [](const Call& c) { return field_of_summary(c, &Summary::q95); }},
    {"summarise.q99", [](const Call& c) { return field_of_summary(c, &Summary::q99); }},
    {"quantile", [](const Call& c) { return Vector{quantile(c.x(), c.a(0))}; }},
    {"mean_ci", [](const Call& c) { return pair(mean_ci(c.x(), c.a(0))); }},
    {"quantile_ranks",
     [](const Call& c) {
       const Ranks r = quantile_ranks(c.n(0), c.a(1), c.a(2));
       return Vector{static_cast<double>(r.low), static_cast<double>(r.high), r.level};
     }},
    {"epoch_median_ci.medians", [](const Call& c) { return pair(epoch_median_ci(c.x(), c.a(0))); }},
    {"epoch_medians", [](const Call& c) { return epoch_medians(c.x(), c.epoch()); }},
    {"epoch_means", [](const Call& c) { return epoch_means(c.x(), c.epoch()); }},
    {"effective_samples.epoch", [](const Call& c) { return Vector{effective_samples(c.x(), c.epoch())}; }},
    {"epoch_quantile_ci", [](const Call& c) { return pair(epoch_quantile_ci(c.x(), c.epoch(), c.a(0), c.a(1))); }},
    {"autocorrelation", [](const Call& c) { return Vector{autocorrelation(c.x(), c.n(0))}; }},
    {"effective_samples", [](const Call& c) { return Vector{effective_samples(c.x())}; }},
    {"periodogram", [](const Call& c) { return periodogram(c.x()); }},
    {"welch", [](const Call& c) { return welch(c.x(), c.n(0), c.n(1)); }},
    {"welch.epoch", [](const Call& c) { return welch(c.x(), c.epoch(), c.n(0), c.n(1)); }},
    {"sliding_amplitude", row_of_sliding},
    {"lognormal3_cdf", [](const Call& c) { return Vector{lognormal3_cdf(c.a(0), c.law(1))}; }},
    {"lognormal3_quantile", [](const Call& c) { return Vector{lognormal3_quantile(c.a(0), c.law(1))}; }},
    {"ks_distance", [](const Call& c) { return Vector{ks_distance(c.x(), c.law(0))}; }},
    {"fit_lognormal3",
     [](const Call& c) {
       const Lognormal3 f = fit_lognormal3(c.x());
       return Vector{f.shift, f.mu, f.sigma};
     }},
    {"pettitt",
     [](const Call& c) {
       const ChangePoint p = pettitt(c.x());
       return Vector{static_cast<double>(p.index), p.statistic, p.p};
     }},
};

}  // namespace

TEST_CASE("statistics agree with scipy, numpy and definitions written out, on every line of golden.txt") {
  std::ifstream file(SONDE_TEST_DATA "/stats/golden.txt");
  REQUIRE(file);
  std::map<std::string, Vector> series;
  std::map<std::string, std::vector<std::int32_t>> epochs;
  std::map<std::string, int> seen;

  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string kind, name, word;
    words >> kind >> name;
    if (kind == "series") {
      while (words >> word) series[name].push_back(std::stod(word));
    } else if (kind == "epochs") {
      while (words >> word) epochs[name].push_back(std::stoi(word));
    } else {
      REQUIRE(kind == "expect");
      const auto function = functions.find(name);
      REQUIRE_MESSAGE(function != functions.end(), name);
      Call call;
      while (words >> word && word != ":") {
        if (series.contains(word)) call.series.push_back(series[word]);
        else call.epochs.push_back(epochs.at(word));
      }
      while (words >> word && word != "=") call.argument.push_back(std::stod(word));
      Vector expected;
      while (words >> word && word != "~") expected.push_back(std::stod(word));
      double tolerance = -1;
      words >> tolerance;
      REQUIRE(tolerance > 0);

      const Vector got = function->second(call);
      REQUIRE_MESSAGE(got.size() == expected.size(), line.substr(0, 120));
      double scale = 0;
      for (const double v : expected)
        if (!std::isnan(v)) scale = std::max(scale, std::abs(v));
      for (std::size_t k = 0; k < got.size(); ++k) {
        const double error = std::abs(got[k] - expected[k]);
        const bool same = std::isnan(expected[k]) ? std::isnan(got[k]) : error <= tolerance * scale;
        CHECK_MESSAGE(same, line.substr(0, 120), " value ", k, ": got ", got[k], ", expected ", expected[k]);
      }
      ++seen[name];
    }
  }
  for (const auto& [name, function] : functions) CHECK_MESSAGE(seen[name] > 0, name, " is not in golden.txt");
}
