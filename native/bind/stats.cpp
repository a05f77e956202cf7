// sonde._core: statistics. Arrays come in without a copy and are checked once, here: the functions below can rely on
// finite samples and equal lengths. sonde.core.stats checks the other arguments.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/raise.hpp"
#include "core/stats/change.hpp"
#include "core/stats/dependence.hpp"
#include "core/stats/interval.hpp"
#include "core/stats/lognormal.hpp"
#include "core/stats/pooled.hpp"
#include "core/stats/special.hpp"
#include "core/stats/spectrum.hpp"
#include "core/stats/summary.hpp"

namespace nb = nanobind;
using namespace nb::literals;
namespace stats = sonde::stats;

namespace {

using Samples = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Numbers = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Pair = std::tuple<double, double>;
using Fit = std::tuple<double, double, double, double, double, std::uint64_t, bool>;
using Change = std::tuple<std::size_t, double, double>;

template <typename Counts> void check_finite(std::span<const double> x, Counts counts) {
  const auto is_bad = [&](std::size_t i) { return !std::isfinite(x[i]) && counts(i); };
  std::size_t first = 0;
  while (first < x.size() && !is_bad(first)) ++first;
  if (first == x.size()) return;
  std::size_t bad = 0;
  for (std::size_t i = first; i < x.size(); ++i) bad += is_bad(i);
  sonde::py::raise({"core.not_finite",
                    "sample " + std::to_string(first) + " is " + (std::isnan(x[first]) ? "nan" : "infinite") + "; " +
                        std::to_string(bad) + " of " + std::to_string(x.size()) + " samples are not finite numbers",
                    "leave them out: x[numpy.isfinite(x)]"});
}

std::span<const double> finite(const Samples& x) {
  const std::span<const double> span(x.data(), x.shape(0));
  check_finite(span, [](std::size_t) { return true; });
  return span;
}

/// Samples with their epochs. Samples without an epoch may have any value, because datasets pad with NaN.
struct InEpochs {
  std::span<const double> x;
  std::span<const std::int32_t> epoch;

  InEpochs(const Samples& samples, const Numbers& numbers)
      : x(samples.data(), samples.shape(0)), epoch(numbers.data(), numbers.shape(0)) {
    if (x.size() != epoch.size())
      sonde::py::raise({"core.unequal_lengths",
                        std::to_string(x.size()) + " samples have " + std::to_string(epoch.size()) + " epoch numbers",
                        "give one epoch number for every sample"});
    check_finite(x, [&](std::size_t i) { return epoch[i] >= 0; });
  }
};

/// Computes without the interpreter's lock.
template <typename Compute> auto unlocked(Compute compute) {
  const nb::gil_scoped_release release;
  return compute();
}

/// Passes a vector to numpy.
nb::object array(std::vector<double>&& values) {
  auto* held = new std::vector<double>(std::move(values));
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<double>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, double, nb::ndim<1>>(held->data(), {held->size()}, owner));
}

Pair pair(stats::Interval i) { return {i.low, i.high}; }
Change change(const stats::ChangePoint& c) { return {c.index, c.statistic, c.p}; }
std::vector<Change> changes(const std::vector<stats::ChangePoint>& found) {
  std::vector<Change> out;
  for (const auto& c : found) out.push_back(change(c));
  return out;
}
stats::Lognormal3 fit_of(const Fit& f) {
  return {std::get<0>(f), std::get<1>(f), std::get<2>(f), std::get<3>(f),
          std::get<4>(f), std::get<5>(f), std::get<6>(f)};
}

void bind_summary(nb::module_& m) {
  m.def(
      "summarise",
      [](const Samples& x) {
        const auto span = finite(x);
        const stats::Summary s = unlocked([&] { return stats::summarise(span); });
        return nb::make_tuple(s.n, s.mean, s.sd, s.min, s.max, s.median, s.mad, s.q05, s.q25, s.q75, s.q95, s.q99);
      },
      "x"_a);
  m.def("quantile", [](const Samples& x, double p) { return stats::quantile(finite(x), p); }, "x"_a, "p"_a);
  m.def("median", [](const Samples& x) { return stats::median(finite(x)); }, "x"_a);
  m.def(
      "epoch_medians",
      [](const Samples& x, const Numbers& epoch) {
        const InEpochs in(x, epoch);
        return array(stats::epoch_medians(in.x, in.epoch));
      },
      "x"_a, "epoch"_a);
  m.def(
      "epoch_means",
      [](const Samples& x, const Numbers& epoch) {
        const InEpochs in(x, epoch);
        return array(stats::epoch_means(in.x, in.epoch));
      },
      "x"_a, "epoch"_a);
  m.def(
      "block_medians",
      [](const Samples& x, std::size_t block) { return array(stats::block_medians(finite(x), block)); }, "x"_a,
      "block"_a);
}

void bind_interval(nb::module_& m) {
  m.def(
      "quantile_ranks",
      [](std::uint64_t n, double p, double level) {
        const stats::Ranks r = stats::quantile_ranks(n, p, level);
        return std::tuple(r.low, r.high, r.level);
      },
      "n"_a, "p"_a, "level"_a);
  m.def(
      "quantile_ci",
      [](const Samples& x, double p, double level) { return pair(stats::quantile_ci(finite(x), p, level)); }, "x"_a,
      "p"_a, "level"_a);
  m.def(
      "median_ci", [](const Samples& x, double level) { return pair(stats::median_ci(finite(x), level)); }, "x"_a,
      "level"_a);
  m.def(
      "mean_ci", [](const Samples& x, double level) { return pair(stats::mean_ci(finite(x), level)); }, "x"_a,
      "level"_a);
  m.def(
      "epoch_quantile_ci",
      [](const Samples& x, const Numbers& epoch, double p, double level) {
        const InEpochs in(x, epoch);
        return pair(unlocked([&] { return stats::epoch_quantile_ci(in.x, in.epoch, p, level); }));
      },
      "x"_a, "epoch"_a, "p"_a, "level"_a);
  m.def(
      "steady_median",
      [](const Samples& x, const Numbers& epoch, double level) {
        const InEpochs in(x, epoch);
        const auto found = unlocked([&] { return stats::steady_median(stats::Epochs(in.x, in.epoch), level); });
        return std::tuple(found.median, found.low, found.high, found.skipped, found.steady, found.dependence);
      },
      "x"_a, "epoch"_a, "level"_a);
  m.def(
      "epoch_median_ci",
      [](const Samples& x, const Numbers& epoch, double level) {
        const InEpochs in(x, epoch);
        return pair(stats::epoch_median_ci(in.x, in.epoch, level));
      },
      "x"_a, "epoch"_a, "level"_a);
  m.def(
      "epoch_median_ci",
      [](const Samples& medians, double level) { return pair(stats::epoch_median_ci(finite(medians), level)); },
      "medians"_a, "level"_a);
}

void bind_dependence(nb::module_& m) {
  m.def(
      "autocorrelation", [](const Samples& x, std::size_t lag) { return stats::autocorrelation(finite(x), lag); },
      "x"_a, "lag"_a);
  m.def(
      "effective_samples",
      [](const Samples& x) {
        const auto span = finite(x);
        return unlocked([&] { return stats::effective_samples(span); });
      },
      "x"_a);
  m.def(
      "effective_samples",
      [](const Samples& x, const Numbers& epoch) {
        const InEpochs in(x, epoch);
        return unlocked([&] { return stats::effective_samples(in.x, in.epoch); });
      },
      "x"_a, "epoch"_a);
}

void bind_lognormal(nb::module_& m) {
  m.def(
      "fit_lognormal3",
      [](const Samples& x) {
        const auto span = finite(x);
        const stats::Lognormal3 f = unlocked([&] { return stats::fit_lognormal3(span); });
        return Fit{f.shift, f.mu, f.sigma, f.ks, f.loglik, f.n, f.converged};
      },
      "x"_a);
  m.def(
      "lognormal3_cdf",
      [](const Samples& x, const Fit& fit) {
        const auto span = finite(x);
        const stats::Lognormal3 f = fit_of(fit);
        std::vector<double> out(span.size());
        std::transform(span.begin(), span.end(), out.begin(), [&](double v) { return stats::lognormal3_cdf(v, f); });
        return array(std::move(out));
      },
      "x"_a, "fit"_a);
  m.def(
      "lognormal3_quantile",
      [](const Samples& p, const Fit& fit) {
        const auto span = finite(p);
        const stats::Lognormal3 f = fit_of(fit);
        std::vector<double> out(span.size());
        std::transform(span.begin(), span.end(), out.begin(),
                       [&](double v) { return stats::lognormal3_quantile(v, f); });
        return array(std::move(out));
      },
      "p"_a, "fit"_a);
  m.def(
      "ks_distance", [](const Samples& x, const Fit& fit) { return stats::ks_distance(finite(x), fit_of(fit)); }, "x"_a,
      "fit"_a);
  m.def(
      "ks_p",
      [](const Samples& x, const Fit& fit, std::size_t replicates, std::uint64_t seed, std::size_t max_samples) {
        const auto span = finite(x);
        return unlocked([&] { return stats::ks_p(span, fit_of(fit), replicates, seed, max_samples); });
      },
      "x"_a, "fit"_a, "replicates"_a, "seed"_a, "max_samples"_a);
}

void bind_spectrum(nb::module_& m) {
  m.def(
      "periodogram",
      [](const Samples& x) {
        const auto span = finite(x);
        return array(unlocked([&] { return stats::periodogram(span); }));
      },
      "x"_a);
  m.def(
      "welch",
      [](const Samples& x, std::size_t window, std::size_t overlap) {
        const auto span = finite(x);
        return array(unlocked([&] { return stats::welch(span, window, overlap); }));
      },
      "x"_a, "window"_a, "overlap"_a);
  m.def(
      "welch",
      [](const Samples& x, const Numbers& epoch, std::size_t window, std::size_t overlap) {
        const InEpochs in(x, epoch);
        return array(unlocked([&] { return stats::welch(in.x, in.epoch, window, overlap); }));
      },
      "x"_a, "epoch"_a, "window"_a, "overlap"_a);
  m.def(
      "sliding_amplitude",
      [](const Samples& x, std::size_t window) {
        const auto span = finite(x);
        const bool any = window > 0 && window <= span.size();
        const std::size_t rows = any ? span.size() - window + 1 : 0, columns = window / 2 + 1;
        // Not a vector: it would be filled with zeros first, and these arrays are large.
        double* const out = new double[std::max<std::size_t>(rows * columns, 1)];
        const nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<double*>(p); });
        unlocked([&] { stats::sliding_amplitude(span, window, {out, rows * columns}); });
        return nb::cast(nb::ndarray<nb::numpy, double, nb::ndim<2>>(out, {rows, columns}, owner));
      },
      "x"_a, "window"_a);
  m.def(
      "cumulative_spectrum", [](const Samples& power) { return array(stats::cumulative_spectrum(finite(power))); },
      "power"_a);
}

void bind_change(nb::module_& m) {
  m.def("pettitt", [](const Samples& x) { return change(stats::pettitt(finite(x))); }, "x"_a);
  m.def(
      "change_points",
      [](const Samples& x, double alpha, std::size_t min_segment) {
        const auto span = finite(x);
        return changes(unlocked([&] { return stats::change_points(span, alpha, min_segment); }));
      },
      "x"_a, "alpha"_a, "min_segment"_a);
  m.def(
      "change_points",
      [](const Samples& x, const Numbers& epoch, double alpha, std::size_t min_segment) {
        const InEpochs in(x, epoch);
        return changes(unlocked([&] { return stats::change_points(in.x, in.epoch, alpha, min_segment); }));
      },
      "x"_a, "epoch"_a, "alpha"_a, "min_segment"_a);
}

void bind_special(nb::module_& m) {
  m.def("normal_cdf", &stats::normal_cdf, "z"_a);
  m.def("normal_quantile", &stats::normal_quantile, "p"_a);
  m.def("incomplete_beta", &stats::incomplete_beta, "a"_a, "b"_a, "x"_a);
  m.def("student_cdf", &stats::student_cdf, "t"_a, "dof"_a);
  m.def("student_quantile", &stats::student_quantile, "p"_a, "dof"_a);
  m.def("binomial_pmf", &stats::binomial_pmf, "k"_a, "n"_a, "p"_a);
  m.def("binomial_cdf", &stats::binomial_cdf, "k"_a, "n"_a, "p"_a);
}

}  // namespace

void bind_stats(nb::module_& m) {
  bind_summary(m);
  bind_interval(m);
  bind_dependence(m);
  bind_lognormal(m);
  bind_spectrum(m);
  bind_change(m);
  bind_special(m);
}
