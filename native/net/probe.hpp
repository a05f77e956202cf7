#pragma once
/// The net probe: which rank does what in which step. Owner-thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/clocksync.hpp"
#include "core/runner.hpp"
#include "mpi/forward.hpp"
#include "mpi/team.hpp"
#include "mpi/topology.hpp"
#include "net/mode.hpp"

namespace sonde::net {

enum class Pairing { automatic, parallel, serial };

struct Options {
  std::string dir;
  std::vector<std::string> modes;
  std::vector<std::size_t> sizes;          ///< B
  std::vector<std::pair<int, int>> pairs;  ///< unordered; empty: all
  std::string rule = "ci:1%";
  std::optional<Value> value;  ///< of the ping-pong modes; not given: rtt_half
  Pairing pairing = Pairing::automatic;
  std::uint64_t seed = 1, cap = 20000, cap_bytes = 0;
  std::uint32_t epochs = 100000, epoch_length = 50, warmup = 2, least = 0;
  double budget_s = 0, burst_s = 0.02, gap_s = 0;
  std::size_t noise_bytes = 65536;
  int noise_ranks = 2;
  bool forward = false;  ///< treat every other rank as one that does not see rank 0's folder
  std::vector<std::pair<int, std::pair<double, double>>> inject_clock;  ///< rank, s ahead, s/s fast
  std::vector<std::pair<std::pair<int, int>, double>> inject_slow;      ///< (src, dst), s added to each sample
};

/// How pairs of one round disturb each other: latency in parallel over latency alone.
struct Interference {
  bool checked = false, passed = false;
  double median_ratio = 1, worst_ratio = 1;
  int pairs = 0;
};

class NetProbe final : public Probe {
 public:
  /// Allocates the message buffers. Errors: net.unknown_mode, net.out_of_memory.
  static Result<std::unique_ptr<NetProbe>> make(const Options& options, MpiTeam& team, Forwarding& forwarding);
  ~NetProbe() override;
  NetProbe(const NetProbe&) = delete;

  /// Opens the modes, synchronises clocks, checks interference, lays out the steps. Collective.
  void open();
  void close();

  std::uint32_t steps() const override { return static_cast<std::uint32_t>(plan_.size()); }
  std::uint32_t cells() const override { return static_cast<std::uint32_t>(cells_.size()); }
  void cells_of(std::uint32_t step, std::vector<std::uint32_t>& out) const override;
  Result<void> measure(const Step& step, std::span<const Decision> decided, std::vector<Burst>& out) override;
  void record(const Step& step, const Burst& burst, Decision decision, void* out) const override;
  Result<void> between_epochs(RecordWriter& writer) override;

  RecordSchema schema(const Place& place) const;
  const Interference& interference() const { return interference_; }
  bool parallel() const { return parallel_; }
  bool by_receiver(std::size_t mode) const;
  Value value_of(std::size_t mode) const;

 private:
  struct Cell {
    std::uint32_t mode, size;
    int peer;
    double sample_s;  ///< what one sample took last time; 0: not yet measured
  };
  struct Plan {
    std::uint32_t mode, size;
    int a, b;  ///< pairs and one_pair: the two ranks, or a = round and b = -1; rooted: a = root
  };

  NetProbe(const Options& options, MpiTeam& team, Forwarding& forwarding);
  bool wanted(int a, int b) const;
  int cell_of(std::uint32_t mode, std::uint32_t size, int peer) const;
  std::uint32_t burst_length(int cell) const;
  void keep(int cell, std::size_t slot, double scale, std::vector<Burst>& out);
  void measure_pair(const Plan& plan, const Step& step, int peer, std::span<const Decision> decided,
                    std::vector<Burst>& out);
  void measure_all(const Plan& plan, std::vector<Burst>& out);
  void lay_out();
  void check_interference();
  void synchronise_clocks();

  const Options& options_;
  MpiTeam& team_;
  Forwarding& forwarding_;
  Context ctx_;
  std::vector<std::unique_ptr<Mode>> modes_;
  std::vector<Cell> cells_;
  std::vector<std::int32_t> cell_index_;  ///< (mode, size, peer) -> cell, -1 for none
  std::vector<Plan> plan_;
  std::vector<std::vector<std::uint8_t>> wanted_;  ///< empty: all
  std::vector<Samples> samples_;                   ///< reused burst after burst
  ClockModel clock_;
  double began_s_ = 0;
  bool parallel_ = false, needs_clock_ = false;
  Interference interference_;
  std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
};

}  // namespace sonde::net
