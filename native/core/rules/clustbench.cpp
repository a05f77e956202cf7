#include <algorithm>
#include <cmath>
#include <complex>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "core/rules/rule_base.hpp"
#include "core/stats/fft.hpp"

namespace sonde::rules {
namespace {

// clustbench asks for all four on its command line (-o, -w, -r, -c) and has no defaults. Every 20 samples is what
// its own recorded files were made with.
const std::vector<RuleOption> clustbench_options{
    {"criterion", "float", "likeness of the windows above which it stops: 1 less distance over norm", 0.9, -1e6, 1},
    {"every", "int", "samples between two peeks", 20, 1, 1e9},
    {"windows", "int", "windows drawn at a peek", 10, 2, 1000},
    {"ratio", "share", "length of a window over samples so far", 0.5, 1e-3, 0.999},
    // A peek transforms windows as long as half the series: unbounded, a series that never settles costs n^2.
    {"most", "int", "samples after which it gives up, as clustbench's own -n does", 1000, 20, 1e6},
};

}  // namespace

const RuleInfo clustbench_fft_info{
    "clustbench-fft",
    "port, for comparison: stops when the spectra of windows drawn at random are alike, mean included; in effect it "
    "compares their means",
    "clustbench, SpectrumFFTAlgo (delay_measurements_amount_auto.c)",
    clustbench_options,
};

const RuleInfo clustbench_modified_info{
    "clustbench-modified",
    "port, for comparison: as clustbench-fft without the mean; compares raw periodograms, which do not settle with "
    "more samples",
    "clustbench, ModifiedSpectrumFFTAlgo (delay_measurements_amount_auto.c)",
    clustbench_options,
};

namespace {

/// Every `every` samples: `windows` windows of ratio x n consecutive samples are drawn with begin in
/// [0, n - length), their power spectra |X_k|^2 compared by Euclidean distance, and
/// 1 - (mean distance of pairs) / (mean norm) > criterion stops.
///
/// As clustbench's C code, with these differences: windows are drawn from a seeded generator instead of rand(), which
/// is never seeded; its sums start from zero; windows without samples or without a place to begin, which divide by zero
/// there, mean that it goes on; so do spectra without any power (0 / 0), because NaN > criterion is false there too.
/// Epochs are ignored, because clustbench has none. State: the whole series, 8 bytes per sample up to the cap, because
/// windows may be anywhere in it.
class Clustbench final : public RuleBase {
 public:
  Clustbench(bool keep_mean, const Options& options, const RuleContext& context)
      : RuleBase(context),
        keep_mean_(keep_mean),
        criterion_(options.find("criterion")->second),
        ratio_(options.find("ratio")->second),
        every_(static_cast<std::size_t>(options.find("every")->second)),
        most_(static_cast<std::size_t>(options.find("most")->second)),
        windows_(static_cast<std::size_t>(options.find("windows")->second)),
        random_(context.seed) {}

 private:
  Decision consider(std::span<const double> epoch) override {
    for (std::size_t i = 0; i < epoch.size(); ++i) {
      series_.push_back(epoch[i]);
      if (!may_stop_at(i)) continue;
      const std::string after = " after " + std::to_string(series_.size()) + " samples";
      if (series_.size() % every_ == 0) {
        const double likeness = compare();
        say(std::isnan(likeness) ? "windows cannot be compared" + after
                                 : "likeness of windows " + number(likeness) + after);
        if (likeness > criterion_) {
          stop_at(i);
          return Decision::converged;
        }
      }
      if (series_.size() >= most_) {
        stop_at(i);
        say("gives up" + after + ": " + why());
        return Decision::cap;
      }
    }
    return Decision::proceed;
  }

  double compare() {
    const std::size_t length = static_cast<std::size_t>(ratio_ * static_cast<double>(series_.size()));
    if (length == 0 || length >= series_.size()) return std::nan("");
    const stats::Fft fft(length);
    const std::size_t first = keep_mean_ ? 0 : 1, width = length / 2 + 1;
    std::vector<std::complex<double>> buffer(length);
    std::vector<std::vector<double>> spectra;
    double norms = 0, distances = 0;
    for (std::size_t w = 0; w < windows_; ++w) {
      const std::size_t begin = random_.below(series_.size() - length);
      std::copy_n(series_.begin() + static_cast<std::ptrdiff_t>(begin), length, buffer.begin());
      fft.forward(buffer);
      std::vector<double> power(width);
      for (std::size_t k = 0; k < width; ++k) power[k] = std::norm(buffer[k]);
      double norm = 0;
      for (std::size_t k = first; k < width; ++k) norm += power[k] * power[k];
      norms += std::sqrt(norm);
      for (const std::vector<double>& other : spectra) {
        double distance = 0;
        for (std::size_t k = first; k < width; ++k) distance += (power[k] - other[k]) * (power[k] - other[k]);
        distances += std::sqrt(distance);
      }
      spectra.push_back(std::move(power));
    }
    const double count = static_cast<double>(windows_);
    return 1 - distances / (count * (count - 1) / 2) / (norms / count);
  }

  std::size_t held_bytes() const override {
    return sizeof(Clustbench) - sizeof(RuleBase) + series_.capacity() * sizeof(double);
  }

  bool keep_mean_;
  double criterion_, ratio_;
  std::size_t every_, most_, windows_;
  Random random_;
  std::vector<double> series_;
};

}  // namespace

std::unique_ptr<Rule> make_clustbench_fft(const Options& options, const RuleContext& context) {
  return std::make_unique<Clustbench>(true, options, context);
}

std::unique_ptr<Rule> make_clustbench_modified(const Options& options, const RuleContext& context) {
  return std::make_unique<Clustbench>(false, options, context);
}

}  // namespace sonde::rules
