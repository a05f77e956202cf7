// sonde._core: the judge of noise runs. Blocks come as arrays with one value a block. Their stalls are flat, with the
// number of their block. sonde.noise.detector.judge checks the arguments and is the only caller.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "noise/histogram.hpp"
#include "noise/judge.hpp"
#include "noise/schedule.hpp"

namespace nb = nanobind;
using namespace nb::literals;
namespace noise = sonde::noise;

namespace {

using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Indices = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

struct Blocks {
  std::vector<noise::Evidence> blocks;

  Blocks(const Indices& segment, const Indices& on, const Numbers& begin, const Numbers& length, const Numbers& resumed,
         const Table& levels, const Indices& stall_block, const Numbers& stall_t, const Numbers& stall_length) {
    blocks.resize(segment.shape(0));
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      auto& it = blocks[b];
      it.segment = static_cast<std::uint32_t>(segment(b));
      it.on = on(b) != 0;
      it.begin_s = begin(b);
      it.length_s = length(b);
      it.resumed_s = resumed(b);
      for (std::size_t k = 0; k < levels.shape(1); ++k) it.levels.push_back(levels(b, k));
    }
    for (std::size_t k = 0; k < stall_block.shape(0); ++k) {
      auto& stalls = blocks.at(static_cast<std::size_t>(stall_block(k))).stalls;
      stalls.t_s.push_back(stall_t(k));
      stalls.length_s.push_back(stall_length(k));
    }
    for (auto& block : blocks) {  // stalls of several ranks come one rank after the other
      const noise::Stalls all[] = {std::move(block.stalls)};
      block.stalls = noise::merge(all);
    }
  }
};

nb::dict told(const noise::TestResult& r) {
  nb::dict out;
  out["p"] = r.p;
  out["p_fold"] = r.p_fold;
  out["p_ranked"] = r.p_ranked;
  out["z_fold"] = r.z_fold;
  out["z_ranked"] = r.z_ranked;
  out["period_s"] = r.period_s;
  out["phase_s"] = r.phase_s;
  out["from_resume"] = r.from_resume;
  out["feature"] = r.feature;
  out["permutations"] = r.permutations;
  return out;
}

noise::TestOptions options_of(std::vector<double> periods, double fold_weight, std::uint32_t permutations,
                              std::uint64_t seed) {
  return {std::move(periods), fold_weight, permutations, seed};
}

/// The caller's function that decides whether to continue; None: run to the end. It is asked while the interpreter's
/// lock is free.
noise::Proceed proceed_of(const nb::object& asked) {
  if (asked.is_none()) return {};
  return [&asked] {
    const nb::gil_scoped_acquire held;
    return nb::cast<bool>(asked());
  };
}

}  // namespace

void bind_noise(nb::module_& m) {
  nb::class_<Blocks>(m, "NoiseBlocks", "Blocks with and without an agent, as the judge sees them.")
      .def(nb::init<Indices, Indices, Numbers, Numbers, Numbers, Table, Indices, Numbers, Numbers>(), "segment"_a,
           "on"_a, "begin_s"_a, "length_s"_a, "resumed_s"_a, "levels"_a, "stall_block"_a, "stall_t_s"_a,
           "stall_length_s"_a)
      .def("__len__", [](const Blocks& b) { return b.blocks.size(); })
      .def(
          "test",
          [](const Blocks& b, std::vector<double> periods, double weight, std::uint32_t permutations,
             std::uint64_t seed) {
            const auto options = options_of(std::move(periods), weight, permutations, seed);
            noise::TestResult result;
            {
              const nb::gil_scoped_release release;
              result = noise::test(b.blocks, options);
            }
            return told(result);
          },
          "periods_s"_a, "fold_weight"_a, "permutations"_a, "seed"_a, "The permutation test on all blocks.")
      .def(
          "looks",
          [](const Blocks& b, const std::vector<std::uint32_t>& ends, std::vector<double> spend,
             std::vector<double> periods, double weight, std::uint32_t permutations, std::uint64_t seed,
             const nb::object& proceed, std::uint32_t before, double p_before) {
            const noise::Proceed go_on = proceed_of(proceed);
            std::vector<std::pair<noise::TestResult, double>> seen;
            {
              const nb::gil_scoped_release release;
              noise::Sequential sequential(std::move(spend), options_of(std::move(periods), weight, permutations, seed),
                                           before, p_before);
              for (const auto end : ends) {
                const auto result =
                    sequential.look(std::span(b.blocks).first(std::min<std::size_t>(end, b.blocks.size())), go_on);
                seen.emplace_back(result, sequential.p());
              }
            }
            nb::list out;
            for (const auto& [result, p] : seen) {
              nb::dict row = told(result);
              row["p_so_far"] = p;
              out.append(row);
            }
            return out;
          },
          "ends"_a, "spend"_a, "periods_s"_a, "fold_weight"_a, "permutations"_a, "seed"_a, "proceed"_a = nb::none(),
          "before"_a = 0, "p_before"_a = 1.0,
          "One test after each of `ends` blocks, after the earlier ones; p_so_far is the p value that the run may "
          "claim.")
      .def(
          "power",
          [](const Blocks& b, std::vector<std::uint32_t> rounds, std::vector<double> spend, double alpha,
             double period_s, double burst_s, double shortest_s, std::vector<double> periods, double weight,
             std::uint32_t permutations, std::uint64_t seed, std::uint32_t runs) {
            std::vector<std::uint32_t> needed;
            double share = 0;
            {
              const nb::gil_scoped_release release;
              share =
                  noise::power(b.blocks, {std::move(rounds), std::move(spend), alpha}, period_s, burst_s, shortest_s,
                               options_of(std::move(periods), weight, permutations, seed), runs, &needed);
            }
            return std::pair(share, needed);
          },
          "rounds"_a, "spend"_a, "alpha"_a, "period_s"_a, "burst_s"_a, "shortest_s"_a, "periods_s"_a, "fold_weight"_a,
          "permutations"_a, "seed"_a, "runs"_a,
          "The power: the share of simulated runs that detect bursts added to these blocks; and the blocks needed.")
      .def(
          "detectable_burst",
          [](const Blocks& b, std::vector<std::uint32_t> rounds, std::vector<double> spend, double alpha,
             double period_s, double shortest_s, std::vector<double> periods, double weight, std::uint32_t permutations,
             std::uint64_t seed, double wanted, std::uint32_t runs, const nb::object& proceed) {
            const noise::Proceed go_on = proceed_of(proceed);
            noise::Search search;
            {
              const nb::gil_scoped_release release;
              search = noise::detectable_burst(b.blocks, {std::move(rounds), std::move(spend), alpha}, period_s,
                                               shortest_s, options_of(std::move(periods), weight, permutations, seed),
                                               wanted, runs, go_on);
            }
            return std::tuple(search.burst_s, search.done, search.steps);
          },
          "rounds"_a, "spend"_a, "alpha"_a, "period_s"_a, "shortest_s"_a, "periods_s"_a, "fold_weight"_a,
          "permutations"_a, "seed"_a, "wanted"_a, "runs"_a, "proceed"_a = nb::none(),
          "The shortest burst in each period that is detected with the requested power, or None; completed steps of "
          "the search, and "
          "all.");
  m.def(
      "noise_plan",
      [](std::vector<std::uint32_t> shares, std::vector<std::uint32_t> rounds, std::uint64_t seed) {
        std::vector<std::pair<std::uint32_t, std::uint32_t>> out;
        for (const auto& block : noise::plan_blocks(shares, rounds, seed))
          out.emplace_back(block.segment, block.variant);
        return out;
      },
      "shares"_a, "rounds"_a, "seed"_a, "Order of blocks: (segment, variant) each.");
  m.def(
      "noise_edges",
      [] {
        std::vector<std::uint64_t> out;
        for (std::size_t k = 0; k <= noise::Histogram::classes; ++k) out.push_back(noise::Histogram::edge(k));
        return out;
      },
      "Edges of the detector's classes of durations, in ticks: one more than the number of classes.");
}
