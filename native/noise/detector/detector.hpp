#pragma once
/// The timed loop. It repeats one operation for the length of a block and stores the time of every iteration in memory
/// that was allocated and touched before: one counter read and one 4-byte store in each iteration. If that costs more
/// than 1 % of the loop (a counter read takes 16 ns on a virtual machine), one rank that waits for the others anyway
/// stores every iteration, and the others store the time of every sixteen iterations. Owner-thread.
///
/// An iteration longer than the stall threshold is recorded with its time, and with the time in which the kernel kept
/// this rank from running (run_delay of schedstat). This shows which rank was late, because a rank that only waited for
/// another has no run_delay. If the detector polls, the longest gap between two polls is recorded, too. It also shows
/// causes that the scheduler does not count: interrupts, the hypervisor, firmware.

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "mpi/team.hpp"
#include "noise/detector/operation.hpp"
#include "noise/histogram.hpp"

namespace sonde::noise {

struct DetectorOptions {
  std::string op = "alltoall";
  std::size_t bytes = 1024;
  bool poll = false;  ///< non-blocking form and polling, which shows late ranks better and costs more
  double longest_block_s = 1;
  std::uint32_t every = 0;  ///< iterations that share one reading: 1, 2, 4, 8 or 16; 0: see choose_readers
  double stall_s = 0;       ///< threshold; 0: found by calibrate
  std::size_t memory_bytes = std::size_t{512} << 20;  ///< for the iterations of one block
};

struct Stall {
  float t_s;       ///< begin, since the block's begin
  float length_s;  ///< length of the whole iteration
  float delay_s;   ///< time not running, by the kernel, since its last stall or the block's begin; NaN: unknown
  float gap_s;     ///< longest gap between two polls; NaN without polling
};
static_assert(sizeof(Stall) == 16);

struct Block {
  std::int64_t begin_ns = 0;  ///< now_ns()
  double length_s = 0;        ///< from the first iteration's begin to the last one's end
  double excluded_s = 0;      ///< the part of it for agreeing to go on and for recording stalls
  std::uint64_t iterations = 0;
  double run_delay_s = 0, cpu_s = 0;
  std::uint64_t involuntary = 0;     ///< context switches
  std::vector<std::uint32_t> count;  ///< Histogram::classes
  std::vector<Stall> stalls;
  std::uint64_t stalls_lost = 0;
};

/// The results of the calibration before the first block.
struct Calibration {
  double tick_s = 0;
  bool steady = false;                       ///< whether the processor's counter is used
  double iteration_s = 0;                    ///< median time of a single iteration
  double stall_s = 0;                        ///< this rank's threshold
  double stamp_s = 0;                        ///< cost of one counter read and store, measured alone
  double keeping_share = 0;                  ///< (storing - bare) / bare loop, interleaved; median of pairs
  double keeping_low = 0, keeping_high = 0;  ///< 95 % interval of that median
  std::uint32_t every = 1;                   ///< this rank's iterations that share one counter reading
  std::uint32_t chunk = 0;                   ///< iterations between two agreements to go on
  std::uint64_t room = 0;                    ///< iterations that a block has memory for
};

class Detector {
 public:
  /// Errors: noise.unknown_op, noise.out_of_memory.
  static Result<Detector> make(const DetectorOptions& options, MpiTeam& team);
  Detector(Detector&& other) noexcept;
  Detector& operator=(Detector&&) = delete;
  ~Detector();

  /// Warms up, finds the threshold and measures the cost of storing iterations. Takes about 1 s. Collective.
  Result<Calibration> calibrate();
  const Calibration& calibration() const { return found_; }

  /// Repeats the operation without storing anything for `for_s`, by the clock of rank 0. Collective.
  void idle(double for_s);

  /// One block. Collective; all ranks run the same number of iterations. Rank 0 calls `cut` between iterations, about
  /// 20 times a second; true ends the block early, and then all ranks return false.
  bool measure(double length_s, Block& out, const std::function<bool()>& cut = {});

  /// The last block's iterations, in ticks; at most 2^32 - 1.
  std::vector<std::uint32_t> const& iterations() const { return kept_; }
  std::uint64_t iterations_kept() const { return kept_count_; }

 private:
  Detector(Operation operation, const DetectorOptions& options, MpiTeam& team);
  template <bool keep> void chunk(std::uint32_t count);
  void set_chunk(double iteration_s);
  void make_room(double length_s, double iteration_s);
  void choose_readers(double iteration_s);
  void measure_keeping(double iteration_s, int pairs);
  void step();
  double polled_step();
  int go_on(int wanted);  ///< returns rank 0's `wanted` on all ranks
  void note(std::int64_t end, std::uint64_t length, double gap_s);
  double run_delay_s();

  Operation operation_;
  DetectorOptions options_;
  MpiTeam& team_;
  Calibration found_;
  bool yields_;
  int schedstat_ = -1;
  std::uint64_t k_ = 0;  ///< iterations since the start, for rotating roots
  std::vector<std::uint32_t> kept_;
  std::uint64_t kept_count_ = 0;
  std::uint64_t threshold_ = ~std::uint64_t{0};  ///< ticks
  std::int64_t begin_ticks_ = 0, last_ = 0;
  double last_delay_s_ = 0;
  std::int64_t excluded_ = 0;  ///< ticks
  Block* block_ = nullptr;
};

}  // namespace sonde::noise
