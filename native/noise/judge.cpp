#include "noise/judge.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "core/random.hpp"
#include "noise/schedule.hpp"

namespace sonde::noise {

namespace {

// The coarse fold detects long bursts earliest; only the fine fold detects short bursts. Each has half of the fold's
// alpha, so that the many cells of one do not weaken the other.
struct Fold {
  std::uint32_t cells;
  std::size_t thresholds;
  bool bands;
};
constexpr Fold coarse{80, 5, false}, fine{640, 7, true};
constexpr double fold_stalls_a_slot[] = {0.5, 1, 2, 4, 8, 16, 32};
constexpr double ranked_stalls_a_second[ranked_thresholds] = {0.5, 2, 8, 32, 128, 512, 2048};
constexpr double bin_s = 0.1;
constexpr double power_stalls_a_second = 128;  // in simulated runs
// A cell whose count hardly varies has a deviation near 0. Without this minimum, one stray slot would look large.
constexpr double least_variance = 1;
constexpr std::uint32_t permutations_a_piece = 8;  // each takes some ms in a long run

/// Segments as ranges of block numbers, and the number of blocks in each that are on.
struct Segments {
  std::vector<std::vector<std::uint32_t>> members;
  std::vector<std::uint32_t> on;
  bool comparable = false;

  explicit Segments(std::span<const Evidence> blocks) {
    std::map<std::uint32_t, std::size_t> at;
    for (std::uint32_t b = 0; b < blocks.size(); ++b) {
      const auto [it, fresh] = at.try_emplace(blocks[b].segment, members.size());
      if (fresh) {
        members.emplace_back();
        on.push_back(0);
      }
      members[it->second].push_back(b);
      on[it->second] += blocks[b].on;
    }
    for (std::size_t s = 0; s < members.size(); ++s) comparable |= on[s] > 0 && on[s] < members[s].size();
  }

  /// Draws labels, +1 for on and -1 for off; the numbers of both in each segment do not change.
  void draw(Random& random, std::vector<float>& sign) const {
    for (std::size_t s = 0; s < members.size(); ++s) {
      std::uint32_t wanted = on[s], left = static_cast<std::uint32_t>(members[s].size());
      for (const std::uint32_t b : members[s]) {
        const bool chosen = random.below(left) < wanted;
        sign[b] = chosen ? 1.0f : -1.0f;
        wanted -= chosen;
        --left;
      }
    }
  }

  /// Mean and variance of sum(sign * x) when labels are drawn. x: (block, value); other blocks have 0.
  template <typename Entries> std::pair<double, double> moments(const Entries& x) const {
    double mean = 0, variance = 0;
    // There are few segments, so one pass over the entries for each segment is cheap.
    for (std::size_t s = 0; s < members.size(); ++s) {
      const double m = static_cast<double>(members[s].size()), k = on[s];
      if (m < 2) continue;
      const std::uint32_t first = members[s].front(), last = members[s].back();
      double sum = 0, squares = 0;
      for (const auto& [b, value] : x)
        if (b >= first && b <= last) {
          sum += value;
          squares += static_cast<double>(value) * value;
        }
      mean += sum * (2 * k - m) / m;
      // Finite population: k of m without replacement; each sign is 2 * (indicator - k / m) plus a constant.
      variance += 4 * k * (m - k) / (m * (m - 1)) * (squares - sum * sum / m);
    }
    return {mean, variance};
  }
};

using Entry = std::pair<std::uint32_t, float>;  // block, value

/// One candidate of a max statistic: sparse over blocks.
struct Column {
  std::vector<Entry> entries;
  double mean = 0, scale = 0;  ///< z = (sum - mean) * scale
  double period_s = 0, phase_s = 0;
  bool from_resume = false;
  std::uint32_t feature = 0;

  double z(const std::vector<float>& sign) const {
    float sum = 0;
    for (const auto& [b, value] : entries) sum += sign[b] * value;
    return (static_cast<double>(sum) - mean) * scale;
  }
};

/// The lengths of all stalls of all blocks, the longest first.
class Lengths {
 public:
  explicit Lengths(std::span<const Evidence> blocks) {
    for (const auto& block : blocks) {
      all_.insert(all_.end(), block.stalls.length_s.begin(), block.stalls.length_s.end());
      seconds_ += block.length_s;
    }
    std::sort(all_.begin(), all_.end(), std::greater<>());
  }
  double seconds() const { return seconds_; }
  /// The length that `rate` stalls a second reach; nullopt when there are fewer stalls.
  std::optional<double> at_rate(double rate) const {
    const auto k = static_cast<std::size_t>(std::max(1.0, std::round(rate * seconds_)));
    if (k > all_.size()) return std::nullopt;
    return all_[k - 1];
  }
  bool any() const { return !all_.empty(); }
  double shortest() const { return all_.back(); }

 private:
  std::vector<double> all_;
  double seconds_ = 0;
};

void add_fold(std::span<const Evidence> blocks, const Segments& segments, const Lengths& lengths, double period_s,
              const Fold& fold, std::vector<Column>& out) {
  std::vector<double> thresholds;
  for (const double rate : std::span(fold_stalls_a_slot).first(fold.thresholds))
    if (const auto length = lengths.at_rate(rate / period_s);
        length && (thresholds.empty() || *length < thresholds.back()))
      thresholds.push_back(*length);
  if (thresholds.empty() && lengths.any()) thresholds.push_back(lengths.shortest());
  // All stalls from a length on; and stalls of similar length, because an agent that does the same work each time makes
  // such stalls.
  std::vector<std::pair<double, double>> bands;
  for (std::size_t j = 0; j < thresholds.size(); ++j) {
    bands.emplace_back(thresholds[j], std::numeric_limits<double>::infinity());
    if (j > 0 && fold.bands) bands.emplace_back(thresholds[j], thresholds[j - 1]);
  }
  std::vector<std::vector<Entry>> table;
  std::vector<std::pair<std::uint32_t, std::int64_t>> seen;  // cell, slot of this block
  const std::uint32_t cells = fold.cells;
  for (const auto& [least, below] : bands)
    for (const bool from_resume : {false, true})
      for (const double offset : {0.0, 0.5}) {
        table.assign(cells, {});
        for (std::uint32_t b = 0; b < blocks.size(); ++b) {
          const auto& block = blocks[b];
          const double origin = from_resume ? block.resumed_s : block.begin_s;
          seen.clear();
          for (std::size_t k = 0; k < block.stalls.t_s.size(); ++k) {
            if (block.stalls.length_s[k] < least || block.stalls.length_s[k] >= below) continue;
            const double at = (origin + block.stalls.t_s[k]) / period_s - offset / cells;
            const double slot = std::floor(at);
            const auto cell = std::min<std::uint32_t>(cells - 1, static_cast<std::uint32_t>((at - slot) * cells));
            seen.emplace_back(cell, static_cast<std::int64_t>(slot));
          }
          std::sort(seen.begin(), seen.end());
          seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
          for (std::size_t k = 0; k < seen.size();) {
            std::size_t end = k;
            while (end < seen.size() && seen[end].first == seen[k].first) ++end;
            table[seen[k].first].emplace_back(b, static_cast<float>(end - k));
            k = end;
          }
        }
        for (std::uint32_t c = 0; c < cells; ++c) {
          if (table[c].size() < 2) continue;  // a single block proves nothing
          const auto [mean, variance] = segments.moments(table[c]);
          if (variance <= 0) continue;
          Column column;
          column.entries = table[c];
          column.mean = mean;
          column.scale = 1 / std::sqrt(std::max(variance, least_variance));
          column.period_s = period_s;
          column.phase_s = std::fmod((c + 0.5 + offset) * period_s / cells, period_s);
          column.from_resume = from_resume;
          out.push_back(std::move(column));
        }
      }
}

/// Ranks within each segment; equal values share a rank, and the middle rank is 0.
std::vector<Entry> ranked(const std::vector<double>& x, const Segments& segments) {
  std::vector<Entry> out;
  for (const auto& members : segments.members) {
    std::vector<std::uint32_t> order(members);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return x[a] < x[b]; });
    for (std::size_t k = 0; k < order.size();) {
      std::size_t end = k;
      while (end < order.size() && x[order[end]] == x[order[k]]) ++end;
      const double rank = 0.5 * static_cast<double>(k + end - 1) - 0.5 * static_cast<double>(order.size() - 1);
      // Relative to the length of the segment, so that long segments do not dominate short ones.
      const double share = rank / static_cast<double>(order.size());
      for (; k < end; ++k) out.emplace_back(order[k], static_cast<float>(share));
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

void add_ranked(std::span<const Evidence> blocks, const Segments& segments, const Lengths& lengths,
                std::vector<Column>& out) {
  auto add = [&](const std::vector<double>& x, std::uint32_t feature) {
    Column column;
    column.entries = ranked(x, segments);
    const auto [mean, variance] = segments.moments(column.entries);
    if (variance <= 1e-12) return;
    column.mean = mean;
    column.scale = 1 / std::sqrt(variance);
    column.feature = feature;
    out.push_back(std::move(column));
  };
  const std::size_t n = blocks.size();
  std::vector<double> count(n), bins(n), lost(n);
  for (std::uint32_t j = 0; j < ranked_thresholds; ++j) {
    const auto threshold = lengths.at_rate(ranked_stalls_a_second[j]);
    if (!threshold) break;
    for (std::size_t b = 0; b < n; ++b) {
      const auto& stalls = blocks[b].stalls;
      double last_bin = -1;
      count[b] = bins[b] = lost[b] = 0;
      for (std::size_t k = 0; k < stalls.t_s.size(); ++k) {
        if (stalls.length_s[k] < *threshold) continue;
        ++count[b];
        lost[b] += stalls.length_s[k];
        const double bin = std::floor(stalls.t_s[k] / bin_s);
        bins[b] += bin != last_bin;
        last_bin = bin;
      }
      // All blocks have nearly the same length; noise makes a block a few ms longer.
      for (auto* x : {&count, &bins, &lost}) (*x)[b] /= std::max(blocks[b].length_s, 1e-9);
    }
    add(count, 3 * j);
    add(bins, 3 * j + 1);
    add(lost, 3 * j + 2);
  }
  const std::size_t levels = n > 0 ? blocks[0].levels.size() : 0;
  for (std::size_t k = 0; k < levels; ++k) {
    for (std::size_t b = 0; b < n; ++b) count[b] = blocks[b].levels[k];
    add(count, 3 * ranked_thresholds + static_cast<std::uint32_t>(k));
  }
}

const Column* largest(const std::vector<Column>& columns, const std::vector<float>& sign, double& z) {
  const Column* best = nullptr;
  for (const auto& column : columns)
    if (const double here = column.z(sign); best == nullptr || here > z) {
      z = here;
      best = &column;
    }
  return best;
}

}  // namespace

TestResult test(std::span<const Evidence> blocks, const TestOptions& options, const Proceed& proceed) {
  TestResult result;
  const Segments segments(blocks);
  if (!segments.comparable) return result;
  const Lengths lengths(blocks);
  const double fold_weight = options.periods_s.empty() ? 0 : options.fold_weight;

  struct Family {
    double share;  ///< of alpha
    std::vector<Column> columns = {};
    const Column* best = nullptr;
    double z = 0;
    std::vector<double> drawn = {};  ///< the largest z of each permutation
    std::uint32_t reached = 0;       ///< the number of these that are at least z

    bool counts() const { return best != nullptr && share > 0; }
  };
  Family families[] = {{fold_weight / 2}, {fold_weight / 2}, {1 - fold_weight}};
  auto& [rough, close, rank] = families;
  for (const double period : options.periods_s) {
    add_fold(blocks, segments, lengths, period, coarse, rough.columns);
    add_fold(blocks, segments, lengths, period, fine, close.columns);
  }
  add_ranked(blocks, segments, lengths, rank.columns);

  std::vector<float> sign(blocks.size());
  for (std::size_t b = 0; b < blocks.size(); ++b) sign[b] = blocks[b].on ? 1.0f : -1.0f;
  for (auto& family : families) family.best = largest(family.columns, sign, family.z);

  // Sums of floats differ in their last digits with the order of terms; equal statistics must count as equal.
  constexpr double tie = 1e-6;
  Random random(options.seed);
  double all = options.permutations + 1.0;
  auto p_of = [&](const Family& family) { return family.counts() ? (1 + family.reached) / all : 1.0; };
  // The joint p is never below the least p of the families.
  auto open = [&](const Family& family) { return family.counts() && p_of(family) <= options.exact_below; };
  bool given_up = false;
  std::uint32_t done = 0;
  for (; done < options.permutations && !given_up; ++done) {
    if (proceed && done > 0 && done % permutations_a_piece == 0 && !proceed()) break;
    segments.draw(random, sign);
    for (auto& family : families) {
      if (!family.counts()) continue;
      double z = 0;
      largest(family.columns, sign, z);
      family.drawn.push_back(z);
      family.reached += z >= family.z - tie;
    }
    given_up = options.exact_below < 1 && std::none_of(std::begin(families), std::end(families), open);
  }
  result.permutations = done;
  if (!given_up) all = done + 1.0;
  const Family& folded = p_of(close) < p_of(rough) ? close : rough;
  result.p_fold = std::min(1.0, 2 * p_of(folded));
  result.p_ranked = p_of(rank);
  if (folded.best != nullptr) {
    result.z_fold = folded.z;
    result.period_s = folded.best->period_s;
    result.phase_s = folded.best->phase_s;
    result.from_resume = folded.best->from_resume;
  }
  if (rank.best != nullptr) {
    result.z_ranked = rank.z;
    result.feature = rank.best->feature;
  }
  result.p = 1;
  if (given_up) return result;

  // The least p over families, each divided by its share, is compared with the permutations again. The result is exact,
  // and never above the bound from the sum of the families' shares.
  double least = std::numeric_limits<double>::infinity();
  std::vector<double> drawn_least(done, std::numeric_limits<double>::infinity());
  for (auto& family : families) {
    if (!family.counts()) continue;
    least = std::min(least, p_of(family) / family.share);
    std::vector<double> sorted(family.drawn);
    std::sort(sorted.begin(), sorted.end());
    for (std::uint32_t k = 0; k < done; ++k) {
      const auto above = sorted.end() - std::lower_bound(sorted.begin(), sorted.end(), family.drawn[k] - tie);
      // The permutation itself is among them; the data take its place.
      const double p = (static_cast<double>(above) + (family.z >= family.drawn[k] - tie)) / all;
      drawn_least[k] = std::min(drawn_least[k], p / family.share);
    }
  }
  if (std::isinf(least)) return result;
  const auto reached =
      std::count_if(drawn_least.begin(), drawn_least.end(), [&](double p) { return p <= least * (1 + 1e-12); });
  result.p = (1 + static_cast<double>(reached)) / all;
  return result;
}

TestResult Sequential::look(std::span<const Evidence> blocks, const Proceed& proceed) {
  TestOptions options = options_;
  options.seed = Random(options_.seed + looks_).next();  // looks must not share their permutations
  const TestResult result = test(blocks, options, proceed);
  if (looks_ < spend_.size() && spend_[looks_] > 0) p_ = std::min(p_, result.p / spend_[looks_]);
  ++looks_;
  return result;
}

void inject(Evidence& block, double period_s, double phase_s, double burst_s, double shortest_s) {
  if (burst_s < shortest_s) return;
  Stalls bursts;
  const double first = std::ceil((block.begin_s - phase_s) / period_s) * period_s + phase_s - block.begin_s;
  for (double t = first; t < block.length_s; t += period_s) {
    bursts.t_s.push_back(t);
    bursts.length_s.push_back(burst_s);
  }
  const Stalls both[] = {block.stalls, bursts};
  block.stalls = merge(both);
}

namespace {

void drop_below(Stalls& stalls, double least_s) {
  std::size_t kept = 0;
  for (std::size_t k = 0; k < stalls.t_s.size(); ++k)
    if (stalls.length_s[k] >= least_s) {
      stalls.t_s[kept] = stalls.t_s[k];
      stalls.length_s[kept++] = stalls.length_s[k];
    }
  stalls.t_s.resize(kept);
  stalls.length_s.resize(kept);
}

/// Rotates the stalls of a block by by_s, as if the block were repeated endlessly.
void turn(Stalls& stalls, double length_s, double by_s) {
  std::vector<std::pair<double, double>> turned;
  for (std::size_t k = 0; k < stalls.t_s.size(); ++k) {
    const double t = stalls.t_s[k] + by_s;
    turned.emplace_back(t < length_s ? t : t - length_s, stalls.length_s[k]);
  }
  std::sort(turned.begin(), turned.end());
  for (std::size_t k = 0; k < turned.size(); ++k) std::tie(stalls.t_s[k], stalls.length_s[k]) = turned[k];
}

/// Simulates runs of a design one after the other. Calls `next` for each with the number of blocks at the detection of
/// the bursts, 0 without a detection. It ends when `next` returns false.
template <typename Next>
void simulate(std::span<const Evidence> clean, const Design& design, double period_s, double burst_s, double shortest_s,
              const TestOptions& options, std::uint32_t runs, Next next) {
  if (clean.empty() || design.spend.empty()) return;
  const double pitch_s = clean.size() > 1
                             ? (clean.back().begin_s - clean.front().begin_s) / static_cast<double>(clean.size() - 1)
                             : clean[0].length_s;
  const std::uint32_t shares[] = {1, 1};
  // Short, frequent stalls take much time and contribute little, so they are dropped. Bursts this short count as
  // invisible, which is on the safe side.
  std::vector<Evidence> kept(clean.begin(), clean.end());
  if (const auto least = Lengths(clean).at_rate(power_stalls_a_second)) {
    shortest_s = std::max(shortest_s, *least);
    for (auto& block : kept) drop_below(block.stalls, *least);
  }
  Random random(options.seed ^ 0x9e3779b97f4a7c15ull);
  for (std::uint32_t run = 0; run < runs; ++run) {
    const auto plan = plan_blocks(shares, design.rounds, random.next());
    const double phase_s = random.uniform() * period_s;
    std::vector<Evidence> blocks;
    blocks.reserve(plan.size());
    for (std::size_t b = 0; b < plan.size(); ++b) {
      Evidence block = kept[random.below(kept.size())];
      turn(block.stalls, block.length_s, random.uniform() * block.length_s);
      block.begin_s = static_cast<double>(b) * pitch_s;
      block.segment = plan[b].segment;
      block.on = plan[b].variant == 1;
      block.resumed_s = 0;
      if (block.on && burst_s > 0) inject(block, period_s, phase_s, burst_s, shortest_s);
      blocks.push_back(std::move(block));
    }
    TestOptions own = options;
    own.seed = random.next();
    own.exact_below = design.alpha * *std::max_element(design.spend.begin(), design.spend.end());
    Sequential looks(design.spend, own);
    std::size_t end = 0;
    std::uint32_t needed = 0;
    for (std::uint32_t segment = 0; segment < design.rounds.size() && needed == 0; ++segment) {
      end += std::size_t{2} * design.rounds[segment];
      looks.look(std::span(blocks).first(end));
      if (looks.detected(design.alpha)) needed = static_cast<std::uint32_t>(end);
    }
    if (!next(needed)) return;
  }
}

}  // namespace

double power(std::span<const Evidence> clean, const Design& design, double period_s, double burst_s, double shortest_s,
             const TestOptions& options, std::uint32_t runs, std::vector<std::uint32_t>* blocks_needed) {
  if (runs == 0) return 0;
  std::uint32_t found = 0;
  simulate(clean, design, period_s, burst_s, shortest_s, options, runs, [&](std::uint32_t needed) {
    found += needed > 0;
    if (blocks_needed != nullptr) blocks_needed->push_back(needed);
    return true;
  });
  return static_cast<double>(found) / runs;
}

Search detectable_burst(std::span<const Evidence> clean, const Design& design, double period_s, double shortest_s,
                        const TestOptions& options, double wanted, std::uint32_t runs, const Proceed& proceed) {
  constexpr double precision = 0.1;  // of the logarithm
  Search search;
  double low = std::log(shortest_s), high = std::log(0.5 * period_s);
  if (low >= high || runs == 0) return search;
  // Whether bursts of this length are detected often enough; nullopt if it ended before this was known.
  auto enough = [&](double burst_s) -> std::optional<bool> {
    if (proceed && !proceed()) return std::nullopt;
    auto reaches = [&](std::uint32_t found) { return static_cast<double>(found) / runs >= wanted; };
    std::uint32_t found = 0, done = 0;
    bool ended = false;
    simulate(clean, design, period_s, burst_s, shortest_s, options, runs, [&](std::uint32_t needed) {
      found += needed > 0;
      ++done;
      if (reaches(found) || !reaches(found + runs - done)) return false;
      ended = proceed && !proceed();
      return !ended;
    });
    if (ended) return std::nullopt;
    return reaches(found);
  };
  search.steps = 1;
  for (double range = high - low; range > precision; range *= 0.5) ++search.steps;
  for (double attempt = high; search.done < search.steps;) {
    const auto answer = enough(std::exp(attempt));
    if (!answer) return search;
    ++search.done;
    if (*answer) {
      high = attempt;
      search.burst_s = std::exp(high);
    } else if (search.done == 1) {
      search.done = search.steps;  // the longest burst is not detected, so the search is over
    } else {
      low = attempt;
    }
    attempt = 0.5 * (low + high);
  }
  return search;
}

}  // namespace sonde::noise
