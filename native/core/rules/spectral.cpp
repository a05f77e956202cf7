#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "core/rules/rule_base.hpp"
#include "core/stats/fft.hpp"
#include "core/stats/spectrum.hpp"
#include "core/stats/warm_up.hpp"

namespace sonde::rules {

const RuleInfo spectral_info{
    "spectral",
    "stops when the averaged spectrum of log delays and, apart from it, their level differ between halves of the "
    "epochs "
    "by no more than asked, with chance allowed for",
    "Welch, IEEE Trans. Audio Electroacoustics 15, 1967, 70-73; the distance is Bartlett's (1955) between normalised "
    "cumulative spectra; docs/explain/stopping-rules.md",
    {{"distance", "share", "largest difference of the cumulative spectra that is still alike", 0.1, 1e-4, 1},
     {"level", "share", "largest relative difference of the levels of two halves", 0.1, 1e-6, 1},
     {"window", "int", "samples in a segment; epochs shorter than two segments are compared by level alone", 16, 4,
      4096},
     {"first", "int", "epochs before the first peek", 12, 8, 100000},
     {"growth", "float", "epochs at a peek over epochs at the last", 1.25, 1.01, 10},
     {"hold", "int", "peeks in a row that must find them alike", 2, 1, 100},
     {"alarm", "share", "chance of a false alarm of the test that holds convergence back", 0.01, 1e-4, 0.5},
     {"patience", "int", "peeks in a row that must find halves different before that is final", 5, 1, 100}},
};

namespace {

constexpr std::size_t most_batches = 64;
constexpr int permutations = 199;

/// Why averaged: the ordinates of one periodogram scatter as much at a million samples as at a hundred, so that
/// comparing raw periodograms never settles. Why the level apart: it is larger than all the rest together and would
/// hide it. Why permuting: how far two halves of *these* epochs differ by chance needs no law of the delays.
///
/// Why 10 % each: on the series of tests/data/series halves of 10,000 samples differ in level by 3 to 10 %, so that 5 %
/// meets the cap there in most cells, and on delays of one law a distance of 20 % stops at the first peek it may.
///
/// State: sums of spectra for at most 64 batches of consecutive epochs, merged in pairs when full: 64 x (window / 2
/// + 2) numbers, 5 KiB at the default. A peek costs 199 x 64 x window / 2 additions.
class Spectral final : public RuleBase {
 public:
  Spectral(const Options& options, const RuleContext& context)
      : RuleBase(context),
        distance_(options.find("distance")->second),
        level_(options.find("level")->second),
        alarm_(options.find("alarm")->second),
        window_(static_cast<std::size_t>(options.find("window")->second)),
        hold_(static_cast<unsigned>(options.find("hold")->second)),
        patience_(static_cast<unsigned>(options.find("patience")->second)),
        grid_(static_cast<std::uint64_t>(options.find("first")->second), options.find("growth")->second),
        fft_(window_),
        seed_(context.seed) {}

 private:
  struct Batch {
    std::uint64_t epochs = 0;
    double level = 0;           // sum over epochs of the mean log delay
    double shapes = 0;          // epochs with a spectrum
    std::vector<double> power;  // sum over those of the averaged spectrum over its total, without the mean
  };
  struct Difference {
    double spectrum, level;
  };

  Decision consider(std::span<const double> epoch) override {
    take(epoch);
    if (!grid_.due(epochs_)) {
      if (epochs_ == 1) say("too few epochs to say");
      return Decision::proceed;
    }
    return peek();
  }

  /// The samples since the last peek are tested, too, and two tests in a row that differ are drift.
  Decision at_cap() override {
    const Decision last = grid_.unseen(epochs_) ? peek() : Decision::proceed;
    return last == Decision::proceed && apart_ >= 2 ? Decision::drift : last;
  }

  /// The logarithm of what is not small, but finite at 0 and below: a clock need not advance, and those of two hosts
  /// may differ by more than a short delay. Small is what is below a tenth of the first epoch.
  double log_like(double x) const { return scale_ > 0 ? std::asinh(x / scale_) : 0; }

  void find_scale(std::span<const double> epoch) {
    std::vector<double> sizes;
    for (const double x : epoch) sizes.push_back(std::abs(x));
    const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
    std::nth_element(sizes.begin(), middle, sizes.end());
    scale_ = (*middle > 0 ? *middle : *std::max_element(sizes.begin(), sizes.end())) / 10;
  }

  void take(std::span<const double> epoch) {
    Batch batch;
    batch.epochs = 1;
    batch.power.assign(window_ / 2, 0.0);
    if (!(scale_ > 0)) find_scale(epoch);
    std::vector<double> logs(epoch.size());
    std::transform(epoch.begin(), epoch.end(), logs.begin(), [&](double x) { return log_like(x); });
    batch.level = std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(logs.size());
    std::vector<std::complex<double>> segment(window_);
    if (logs.size() >= 2 * window_) {
      for (std::size_t begin = 0; begin + window_ <= logs.size(); begin += window_) {
        const double mean = std::accumulate(logs.begin() + static_cast<std::ptrdiff_t>(begin),
                                            logs.begin() + static_cast<std::ptrdiff_t>(begin + window_), 0.0) /
                            static_cast<double>(window_);
        for (std::size_t k = 0; k < window_; ++k) segment[k] = logs[begin + k] - mean;
        fft_.forward(segment);
        for (std::size_t k = 0; k < window_ / 2; ++k) batch.power[k] += std::norm(segment[k + 1]);
      }
      // One outlier has more power than all the rest of a run: each epoch counts by the shape of its spectrum alone.
      const double total = std::accumulate(batch.power.begin(), batch.power.end(), 0.0);
      if (total > 0) {
        for (double& p : batch.power) p /= total;
        batch.shapes = 1;
      }
    }
    ++epochs_;
    if (!batches_.empty() && batches_.back().epochs < span_) {
      join(batches_.back(), batch);
    } else {
      if (batches_.size() == most_batches) {
        for (std::size_t k = 0; k < most_batches / 2; ++k) {
          join(batches_[2 * k], batches_[2 * k + 1]);
          if (k > 0) batches_[k] = std::move(batches_[2 * k]);
        }
        batches_.resize(most_batches / 2);
        span_ *= 2;
      }
      batches_.push_back(std::move(batch));
    }
  }

  static void join(Batch& a, const Batch& b) {
    a.epochs += b.epochs;
    a.level += b.level;
    a.shapes += b.shapes;
    for (std::size_t k = 0; k < a.power.size(); ++k) a.power[k] += b.power[k];
  }

  // Between the batches whose place in `order` is below half and the others.
  Difference difference(const std::vector<std::size_t>& order) const {
    std::vector<double> power[2] = {std::vector<double>(window_ / 2), std::vector<double>(window_ / 2)};
    double level[2] = {0, 0}, epochs[2] = {0, 0}, shapes[2] = {0, 0};
    for (std::size_t k = 0; k < order.size(); ++k) {
      const Batch& batch = batches_[order[k]];
      const int half = k < order.size() / 2 ? 0 : 1;
      level[half] += batch.level;
      epochs[half] += static_cast<double>(batch.epochs);
      shapes[half] += batch.shapes;
      for (std::size_t j = 0; j < batch.power.size(); ++j) power[half][j] += batch.power[j];
    }
    double apart = 0;
    if (shapes[0] > 0 && shapes[1] > 0) {
      const auto a = stats::cumulative_spectrum(power[0]), b = stats::cumulative_spectrum(power[1]);
      for (std::size_t k = 0; k < a.size(); ++k)
        if (std::isfinite(a[k]) && std::isfinite(b[k])) apart = std::max(apart, std::abs(a[k] - b[k]));
    }
    return {apart, std::abs(std::expm1(level[0] / epochs[0] - level[1] / epochs[1]))};
  }

  Decision peek() {
    grid_.advance(epochs_);
    const std::string after = " after " + std::to_string(epochs_) + " epochs";
    std::vector<double> means;
    for (const Batch& batch : batches_) means.push_back(batch.level / static_cast<double>(batch.epochs));
    // Ranks stand for shares: one high mean would widen the spread it is judged against.
    std::vector<double> ranks;
    for (const double m : means)
      ranks.push_back(static_cast<double>(std::count_if(means.begin(), means.end(), [m](double o) { return o < m; })));
    const stats::WarmUp warm_up = stats::find_warm_up(means, ranks, stats::false_alarm);
    const std::size_t skipped = warm_up.over ? warm_up.leave_out : 0;
    if (batches_.size() < skipped + 8) {
      alike_ = 0;
      say("too few epochs to say" + after);
      return Decision::proceed;
    }
    std::vector<std::size_t> order(batches_.size() - skipped);
    std::iota(order.begin(), order.end(), skipped);
    const Difference seen = difference(order);  // first half in time against second

    Random random(seed_ ^ epochs_);
    std::vector<double> spectra, levels;
    int spectrum_above = 0, level_above = 0;
    for (int r = 0; r < permutations; ++r) {
      for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[random.below(k)]);
      const Difference chance = difference(order);
      spectra.push_back(chance.spectrum);
      levels.push_back(chance.level);
      spectrum_above += chance.spectrum >= seen.spectrum;
      level_above += chance.level >= seen.level;
    }
    const double p_spectrum = (1.0 + spectrum_above) / (permutations + 1);
    const double p_level = (1.0 + level_above) / (permutations + 1);
    if (std::min(p_spectrum, p_level) <= alarm_ / 2) {  // two tests share the alarm
      alike_ = 0;
      say(std::string(p_level <= p_spectrum ? "level" : "spectrum") +
          " differs between the first and the second half, p " + number(std::min(p_spectrum, p_level), 2) + after);
      return ++apart_ >= patience_ ? Decision::drift : Decision::proceed;
    }
    apart_ = 0;
    // The differences of halves by chance are the precision of either half.
    std::sort(spectra.begin(), spectra.end());
    std::sort(levels.begin(), levels.end());
    const std::size_t at = static_cast<std::size_t>(0.95 * permutations);
    say("spectra of halves within " + number(spectra[at], 2) + ", levels within " + percent(levels[at]) + after);
    const bool alike = spectra[at] <= distance_ && levels[at] <= level_;
    alike_ = alike ? alike_ + 1 : 0;
    return alike_ >= hold_ ? Decision::converged : Decision::proceed;
  }

  std::size_t held_bytes() const override {
    return sizeof(Spectral) - sizeof(RuleBase) + batches_.capacity() * (sizeof(Batch) + window_ / 2 * sizeof(double));
  }

  double distance_, level_, alarm_, scale_ = 0;
  std::size_t window_;
  unsigned hold_, patience_, alike_ = 0, apart_ = 0;
  PeekGrid grid_;
  stats::Fft fft_;
  std::uint64_t seed_, epochs_ = 0, span_ = 1;
  std::vector<Batch> batches_;
};

}  // namespace

std::unique_ptr<Rule> make_spectral(const Options& options, const RuleContext& context) {
  return std::make_unique<Spectral>(options, context);
}

}  // namespace sonde::rules
