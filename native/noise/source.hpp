#pragma once
/// The noise source: a model of a monitoring agent. Once in each period it sums an array of 64-bit words until it has
/// used `level` of the period as CPU time, and sleeps for the rest.
///
/// Bursts begin on a grid: multiples of the period of CLOCK_REALTIME, plus a phase. Sources on hosts with synchronised
/// clocks therefore burst at the same time without communication. A source that wakes up late, because it was stopped
/// or did not get the core, skips to the next point of the grid. It never makes up for skipped points, so a grid point
/// has at most one burst.
///
/// The level includes all CPU time that the source used since the burst before, also the wake-up and its own
/// bookkeeping: at 100 µs of work in a second, they are a tenth of the level. A burst begins in the array where the
/// burst before stopped, so that short bursts also touch the whole footprint over time.
///
/// Owner-thread.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/block.hpp"
#include "core/error.hpp"

namespace sonde::noise {

/// Shortest work of a burst in s: below it, waking up takes most of the time of a burst (5 to 10 µs in total).
inline constexpr double shortest_work_s = 20e-6;
inline constexpr double shortest_period_s = 100e-6, longest_period_s = 86400;

struct SourceOptions {
  double level = 0;  ///< share of each period, 0 to 1, both excluded
  double period_s = 1;
  std::uint64_t words = 250'000;  ///< 64-bit words in the array
  int core = -1;                  ///< CPU to which it is pinned; -1: not pinned
  double phase_s = 0;             ///< phase of the grid, modulo the period
  bool unsynchronised = false;    ///< one random phase, from seed, host and process id
  std::uint64_t seed = 0;
  std::string record;  ///< block file; "": no record
  std::uint64_t cap_bytes = 256u << 20;
  double duration_s = 0;   ///< 0: until it is ended
  bool until_eof = false;  ///< `stop` or end of file on standard input ends it
  bool orphan = false;     ///< may outlive its parent
  bool check = false;      ///< only check whether all this is possible
  std::string host;        ///< name of this host in records; "": its own name
};

/// Options from the command line of sonde-agent. Errors: noise.bad_option, and those of check_source.
Result<SourceOptions> parse_source_options(const std::vector<std::string>& args);

/// Checks whether a source can do this. Errors: noise.bad_level, noise.bad_period, noise.bad_words,
/// noise.level_too_low; each states the possible values.
Result<void> check_source(const SourceOptions& options);

/// The points in time, in ns of CLOCK_REALTIME, at which bursts begin: phase + k * period.
class Grid {
 public:
  /// period_ns > 0; the phase is used modulo the period.
  Grid(std::int64_t period_ns, std::int64_t phase_ns);
  std::int64_t period_ns() const { return period_ns_; }
  /// The first point that is not before `time_ns`.
  std::int64_t at_or_after(std::int64_t time_ns) const;

 private:
  std::int64_t period_ns_, phase_ns_;
};

/// The number of words to sum before the clock is read again: most of the rest, in pieces of at most 50 µs, estimated
/// from the times of earlier pieces. The last pieces of a burst are short, so it ends within a few hundred ns of its
/// target.
class Pieces {
 public:
  /// ns_per_word > 0: a first guess.
  explicit Pieces(double ns_per_word) : ns_per_word_(ns_per_word) {}
  /// Words of the next piece, when `left_ns` of CPU time are left; never 0.
  std::size_t next(std::int64_t left_ns) const;
  /// Learns that a piece of `words` took `ns` of CPU time. A piece too short for the clock is ignored.
  void took(std::size_t words, std::int64_t ns);
  double ns_per_word() const { return ns_per_word_; }

 private:
  double ns_per_word_;
};

/// An array of 64-bit words, in which word k is k, and a position in it that wraps around.
class Footprint {
 public:
  /// Memory is allocated and touched at once, and locked if that is allowed. Error: noise.no_memory.
  static Result<Footprint> make(std::uint64_t words);
  Footprint(Footprint&& other) noexcept;
  Footprint& operator=(Footprint&&) = delete;
  ~Footprint();
  /// The sum, modulo 2^64, of the next `n` words.
  std::uint64_t sum(std::size_t n);
  std::size_t words() const { return words_; }
  std::size_t position() const { return at_; }
  bool locked() const { return locked_; }

 private:
  Footprint(std::uint64_t* data, std::size_t words, bool locked) : data_(data), words_(words), locked_(locked) {}
  std::uint64_t* data_;
  std::size_t words_, at_ = 0;
  bool locked_;
};

enum class Woke { due, clock_set, stop };

/// The clocks of a source, and its sleep; tests have their own implementation.
struct SourceClock {
  virtual ~SourceClock() = default;
  virtual std::int64_t real_ns() = 0;
  virtual std::int64_t monotonic_ns() = 0;
  /// The CPU time of the calling thread.
  virtual std::int64_t cpu_ns() = 0;
  /// Sleeps until real_ns() reaches `real_ns`; returns at once when that is past. clock_set: the clock was set.
  virtual Woke wait_until(std::int64_t real_ns) = 0;
  /// Whether to end; called between pieces.
  virtual bool stopping() = 0;
  /// The CPU of this thread, and its number of involuntary context switches since it began.
  virtual int cpu() { return -1; }
  virtual std::uint32_t preemptions() { return 0; }
};

/// The record of one burst. Times in s; planned and begin are of CLOCK_MONOTONIC.
struct Burst {
  double planned = 0;  ///< the point of the grid
  double begin = 0;
  double wall = 0;      ///< time from begin until the work was done
  double cpu = 0;       ///< CPU time of this burst: all since the end of the burst before
  double overhead = 0;  ///< the part of it before begin: waking up, bookkeeping
  std::uint64_t words = 0, sum = 0;
  std::int32_t on_cpu = -1;
  std::uint32_t skipped = 0;    ///< points of the grid left out before this one
  std::uint32_t truncated = 0;  ///< 1: the period, or the source, ended before the work was done
  std::uint32_t preempted = 0;  ///< involuntary context switches during the burst
};
static_assert(sizeof(Burst) == 72, "records have no hidden padding");

/// The "fields" of a Burst for the header of a block file.
std::string burst_fields();

/// Works until `cpu_target_ns` of CPU time after `cpu_before_ns`, at least one piece, and at most until real time
/// `end_ns`. `planned_ns`: the point of the grid.
Burst work(SourceClock& clock, Footprint& footprint, Pieces& pieces, std::int64_t planned_ns, std::int64_t end_ns,
           std::int64_t cpu_target_ns, std::int64_t cpu_before_ns);

struct SourceTotals {
  std::uint64_t bursts = 0, skipped = 0, truncated = 0;
  double elapsed_s = 0;  ///< time since the first point of the grid, whole periods
  double cpu_s = 0;      ///< CPU time since the source began to wait for its first burst
  double wall_s = 0;     ///< wall time of all bursts
  double duty_cpu() const { return elapsed_s > 0 ? cpu_s / elapsed_s : 0; }
  double duty_wall() const { return elapsed_s > 0 ? wall_s / elapsed_s : 0; }
};

/// Waits and works until the clock's stop. Calls `told` after each burst. A burst may begin up to a quarter of a period
/// late; if it would begin later, its point is skipped.
SourceTotals run_source(const SourceOptions& options, const Grid& grid, SourceClock& clock, Footprint& footprint,
                        Pieces& pieces, const std::function<void(const Burst&, const SourceTotals&)>& told);

/// The phase, in [0, period_s), of an unsynchronised source.
double random_phase(double period_s, std::uint64_t seed, const std::string& host, std::int64_t pid);

}  // namespace sonde::noise
