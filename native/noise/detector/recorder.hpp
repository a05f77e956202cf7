#pragma once
/// Writes blocks as records, which all have the same layout: a head, and 4096 bytes whose meaning depends on the kind.
/// Owner-thread.
///
/// kind 0  block        payload: count u4[864] of histogram classes
///      1  stalls       payload: n times (t_s f4, length_s f4, delay_s f4, gap_s f4)
///      2  iterations   payload: n times u4, ticks
///      3  agent        payload: n f8: the use of the node's agent in the block, in the order of AgentUse
///      4  calibration  payload: n f8: in the order of Calibration
///      5  look         payload: n f8: number, blocks seen, elapsed_s, p, p_fold, p_ranked, z_fold, z_ranked,
///                      period_s, phase_s, from_resume, feature, p so far, s that the test took,
///                      permutations

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/block.hpp"
#include "mpi/topology.hpp"
#include "noise/detector/detector.hpp"
#include "noise/detector/options.hpp"

namespace sonde::noise {

enum class Kind : std::uint32_t { block = 0, stalls, iterations, agent, calibration, look };

struct RecordHead {
  std::uint32_t kind, block, segment, variant, n, part, complete, pad;
  std::uint64_t iterations, stalls_lost, involuntary;
  double t_begin, length, excluded, run_delay, cpu, resumed;
};
static_assert(sizeof(RecordHead) == 104);

constexpr std::size_t payload_bytes = 4096;

RecordSchema schema_of(const Options& options, const MpiTeam& team, const Place& place, double began_s);

class Recorder {
 public:
  Recorder(RecordWriter& writer, double began_s) : writer_(&writer), began_s_(began_s) {}

  /// A block and its stalls; resumed_s: now_s() at which its agent was resumed, or would have been.
  Result<void> block(std::uint32_t number, std::uint32_t segment, std::uint32_t variant, const Block& block,
                     double resumed_s);
  /// Every iteration of a block.
  Result<void> iterations(std::uint32_t number, std::span<const std::uint32_t> ticks);
  /// Numbers of one kind.
  Result<void> values(Kind kind, std::uint32_t block, std::uint32_t segment, std::uint32_t variant,
                      std::span<const double> values);
  Result<void> flush() { return writer_->flush(); }

 private:
  Result<void> put(const RecordHead& head, std::span<const std::byte> payload);
  RecordWriter* writer_;
  double began_s_;
};

}  // namespace sonde::noise
