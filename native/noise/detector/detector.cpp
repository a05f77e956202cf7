#include "noise/detector/detector.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <set>
#include <utility>

#include "core/clock.hpp"
#include "core/random.hpp"
#include "core/stats/interval.hpp"
#include "core/stats/summary.hpp"
#include "core/ticks.hpp"
#include "mpi/polite.hpp"

namespace sonde::noise {

namespace {

constexpr std::size_t most_stalls = 20000;  // in a block; further stalls are counted, but not stored
constexpr double stalls_per_s = 400;        // the threshold is chosen for this rate on the machine
constexpr double shortest_stall_s = 3e-6;
constexpr double agreement_s = 0.002;  // between two agreements to go on
constexpr double warm_up_s = 0.1, look_s = 0.25;
constexpr int keeping_pairs = 48, choosing_pairs = 96;
constexpr int fewest_pairs = 8;
constexpr double keeping_s = 0.0025;     // one half of a pair
constexpr double longest_keeping_s = 2;  // if ranks wait for cores, a pair takes much longer than its iterations
constexpr std::uint32_t coarsest = 16;   // iterations that share a reading if readings are expensive
constexpr double dearest_share = 0.01;   // readings are shared if storing costs more than this
constexpr std::uint32_t longest_tick = 0xffffffffu;

}  // namespace

Detector::Detector(Operation operation, const DetectorOptions& options, MpiTeam& team)
    : operation_(std::move(operation)), options_(options), team_(team), yields_(polite::by_hand()) {
  schedstat_ = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
}

Detector::Detector(Detector&& other) noexcept
    : operation_(std::move(other.operation_)),
      options_(std::move(other.options_)),
      team_(other.team_),
      found_(other.found_),
      yields_(other.yields_),
      schedstat_(std::exchange(other.schedstat_, -1)) {}

Detector::~Detector() {
  if (schedstat_ >= 0) ::close(schedstat_);
}

Result<Detector> Detector::make(const DetectorOptions& options, MpiTeam& team) {
  auto operation = Operation::make(options.op, options.bytes, team.comm());
  if (!operation) return operation.error();
  return Detector(std::move(*operation), options, team);
}

double Detector::run_delay_s() {
  if (schedstat_ < 0) return std::nan("");
  char text[96];
  const ssize_t n = ::pread(schedstat_, text, sizeof text - 1, 0);
  if (n <= 0) return std::nan("");
  text[n] = 0;
  char* after = nullptr;
  std::strtoull(text, &after, 10);  // time on a core
  return static_cast<double>(std::strtoull(after, nullptr, 10)) * 1e-9;
}

void Detector::step() {
  if (!options_.poll && !yields_) {
    operation_.once(k_++);
    return;
  }
  operation_.begin(k_++);
  for (int done = 0; !done;) {
    MPI_Testall(operation_.pending_count(), operation_.pending(), &done, MPI_STATUSES_IGNORE);
    if (!done && yields_) sched_yield();
  }
}

// Returns the longest gap between two polls, s.
double Detector::polled_step() {
  std::int64_t before = ticks(), longest = 0;
  operation_.begin(k_++);
  for (int done = 0; !done;) {
    MPI_Testall(operation_.pending_count(), operation_.pending(), &done, MPI_STATUSES_IGNORE);
    const std::int64_t now = ticks();
    longest = std::max(longest, now - before);
    before = now;
    if (!done && yields_) {
      sched_yield();
      before = ticks();
    }
  }
  return static_cast<double>(longest) * found_.tick_s;
}

void Detector::note(std::int64_t end, std::uint64_t length, double gap_s) {
  const double delay = run_delay_s();
  if (block_ != nullptr) {
    if (block_->stalls.size() < most_stalls) {
      const double began = static_cast<double>(end - begin_ticks_ - static_cast<std::int64_t>(length)) * found_.tick_s;
      block_->stalls.push_back({static_cast<float>(began),
                                static_cast<float>(static_cast<double>(length) * found_.tick_s),
                                static_cast<float>(delay - last_delay_s_), static_cast<float>(gap_s)});
    } else {
      ++block_->stalls_lost;
    }
  }
  last_delay_s_ = delay;
  last_ = ticks();
  excluded_ += last_ - end;
}

// `count` iterations, a multiple of found_.every.
template <bool keep> void Detector::chunk(std::uint32_t count) {
  if constexpr (!keep) {
    for (std::uint32_t i = 0; i < count; ++i) step();
    return;
  }
  const std::uint32_t every = found_.every;
  std::uint32_t* out = kept_.data() + kept_count_;
  const std::uint64_t threshold = threshold_;
  last_ = ticks();
  for (std::uint32_t i = 0; i < count; i += every) {
    double gap = std::nan("");
    if (options_.poll) {
      gap = polled_step();
      for (std::uint32_t j = 1; j < every; ++j) gap = std::max(gap, polled_step());
    } else {
      for (std::uint32_t j = 0; j < every; ++j) step();
    }
    const std::int64_t now = ticks();
    const auto length = static_cast<std::uint64_t>(now - last_);
    *out++ = length < longest_tick ? static_cast<std::uint32_t>(length) : longest_tick;
    last_ = now;
    if (length > threshold) [[unlikely]]
      note(now, length, gap);
  }
  kept_count_ += count / every;
}

int Detector::go_on(int wanted) {
  if (yields_) polite::bcast(&wanted, 1, MPI_INT, 0, team_.comm());
  else MPI_Bcast(&wanted, 1, MPI_INT, 0, team_.comm());
  return wanted;
}

void Detector::idle(double for_s) {
  const double until = now_s() + for_s;
  do chunk<false>(found_.chunk);
  while (go_on(now_s() < until) != 0);
}

bool Detector::measure(double length_s, Block& out, const std::function<bool()>& cut) {
  out.stalls.clear();
  out.stalls_lost = 0;
  out.iterations = 0;
  block_ = &out;
  kept_count_ = 0;
  excluded_ = 0;
  team_.barrier();
  go_on(true);  // the barrier may sleep; this exchange spins, so that all begin within about a microsecond
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const double delay_before = last_delay_s_ = run_delay_s();
  out.begin_ns = now_ns();
  begin_ticks_ = ticks();
  const std::int64_t length = static_cast<std::int64_t>(length_s / found_.tick_s);
  std::int64_t ended = begin_ticks_;
  constexpr int stop = 0, more = 1, cut_short = 2;
  const auto between_asking = static_cast<std::int64_t>(0.05 / found_.tick_s);
  std::int64_t asked = begin_ticks_;
  int wanted = more;
  while (wanted == more) {
    if (out.iterations + found_.chunk > found_.room) break;  // the same on all ranks, as is the chunk
    chunk<true>(found_.chunk);
    out.iterations += found_.chunk;
    ended = last_;
    wanted = last_ - begin_ticks_ < length ? more : stop;
    if (cut && ended - asked > between_asking) {
      asked = ended;
      if (cut()) wanted = cut_short;
    }
    wanted = go_on(wanted);
    if (wanted == more) excluded_ += ticks() - ended;
  }
  block_ = nullptr;
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  auto cpu = [](const rusage& u) {
    return static_cast<double>(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  };
  out.length_s = static_cast<double>(ended - begin_ticks_) * found_.tick_s;
  out.excluded_s = static_cast<double>(excluded_) * found_.tick_s;
  out.run_delay_s = run_delay_s() - delay_before;
  out.cpu_s = cpu(after) - cpu(before);
  out.involuntary = static_cast<std::uint64_t>(after.ru_nivcsw - before.ru_nivcsw);
  out.count.assign(Histogram::classes, 0);
  for (std::uint64_t k = 0; k < kept_count_; ++k) ++out.count[Histogram::class_of(kept_[k])];
  return wanted != cut_short;
}

Result<Calibration> Detector::calibrate() {
  found_.steady = tick_kind != TickKind::clock;
  team_.barrier();
  found_.tick_s = tick_s();
  MPI_Bcast(&found_.tick_s, 1, MPI_DOUBLE, 0, team_.comm());
  {
    const std::int64_t begin = ticks();
    constexpr int rounds = 4096;
    std::array<std::uint32_t, 1024> sink;
    std::int64_t last = begin;
    for (int k = 0; k < rounds; ++k) {
      const std::int64_t now = ticks();
      sink[static_cast<std::size_t>(k) % sink.size()] = static_cast<std::uint32_t>(now - last);
      last = now;
    }
    asm volatile("" : : "r"(sink.data()) : "memory");
    found_.stamp_s = static_cast<double>(last - begin) * found_.tick_s / rounds;
  }

  found_.chunk = coarsest;
  found_.every = 1;
  const double began = now_s();
  idle(warm_up_s);
  double one = (now_s() - began) / static_cast<double>(std::max<std::uint64_t>(k_, 1));
  MPI_Bcast(&one, 1, MPI_DOUBLE, 0, team_.comm());
  set_chunk(one);
  make_room(look_s, one);
  choose_readers(one);

  // The threshold depends on the machine: iterations longer than it happen less often than stalls_per_s.
  Block look;
  threshold_ = ~std::uint64_t{0};
  measure(look_s, look);
  std::vector<std::uint32_t> sorted(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(kept_count_));
  std::sort(sorted.begin(), sorted.end());
  int empty = sorted.empty();
  MPI_Allreduce(MPI_IN_PLACE, &empty, 1, MPI_INT, MPI_MAX, team_.comm());
  if (empty)
    return Error{"noise.nothing_measured", "the operation did not end once while calibrating",
                 "use shorter messages with --size"};
  // The time of a chunk depends on the mean: if ranks share cores, a few iterations take most of the time.
  double mean_s = look.length_s / static_cast<double>(look.iterations);
  MPI_Allreduce(MPI_IN_PLACE, &mean_s, 1, MPI_DOUBLE, MPI_MAX, team_.comm());
  const double kept_s = sorted[sorted.size() / 2] * found_.tick_s;
  const auto rare =
      static_cast<std::size_t>(std::min(stalls_per_s * look.length_s, 0.5 * static_cast<double>(sorted.size())));
  const double at_rate = sorted[sorted.size() - 1 - std::min(rare, sorted.size() - 1)] * found_.tick_s;
  found_.stall_s = options_.stall_s > 0 ? options_.stall_s : std::max({shortest_stall_s, 2 * kept_s, at_rate});
  found_.iteration_s = kept_s / found_.every;
  MPI_Allreduce(MPI_IN_PLACE, &found_.iteration_s, 1, MPI_DOUBLE, MPI_MIN, team_.comm());
  threshold_ = static_cast<std::uint64_t>(found_.stall_s / found_.tick_s);
  set_chunk(mean_s);
  make_room(options_.longest_block_s, found_.iteration_s);
  measure_keeping(mean_s, keeping_pairs);
  return found_;
}

void Detector::set_chunk(double iteration_s) {
  const double wanted = agreement_s / iteration_s / coarsest;
  found_.chunk = coarsest * static_cast<std::uint32_t>(std::clamp(wanted, 1.0, 1e5));
}

// Room for twice as many iterations as expected, limited by the memory.
void Detector::make_room(double length_s, double iteration_s) {
  found_.room = static_cast<std::uint64_t>(2 * length_s / iteration_s) + std::uint64_t{2} * found_.chunk;
  found_.room = std::min<std::uint64_t>(found_.room, options_.memory_bytes / sizeof(std::uint32_t));
  MPI_Allreduce(MPI_IN_PLACE, &found_.room, 1, MPI_UINT64_T, MPI_MIN, team_.comm());
  kept_.assign(found_.room, 0);  // touches the memory, because a page fault in an iteration would look like noise
}

// If reading the counter on all ranks costs too much, one rank reads it in every iteration and the others once in
// `coarsest` iterations. A rank that waits for the others anyway reads it without cost.
void Detector::choose_readers(double iteration_s) {
  if (options_.every > 0) {
    found_.every = options_.every;
    return;
  }
  auto cost = [&](int pairs) {
    measure_keeping(iteration_s, pairs);
    MPI_Bcast(&found_.keeping_share, 1, MPI_DOUBLE, 0, team_.comm());
    return found_.keeping_share;
  };
  if (cost(keeping_pairs) <= dearest_share) return;
  std::set<int> candidates{0, team_.size() / 2, team_.size() - 1};
  std::pair<double, int> least{std::numeric_limits<double>::infinity(), 0};
  for (const int reader : candidates) {
    found_.every = team_.rank() == reader ? 1 : coarsest;
    least = std::min(least, {cost(choosing_pairs), reader});
  }
  found_.every = team_.rank() == least.second ? 1 : coarsest;
}

// Measures the cost of storing iterations: the loop runs with and without storing in turns, and chance decides which is
// first in a pair. There are fewer pairs if they take long.
void Detector::measure_keeping(double iteration_s, int pairs) {
  const double wanted = std::min(keeping_s / iteration_s, static_cast<double>(found_.room)) / coarsest;
  const auto count = coarsest * static_cast<std::uint32_t>(std::max(wanted, 1.0));
  Random random(1);
  std::vector<double> shares;
  block_ = nullptr;
  const double until = now_s() + longest_keeping_s;
  for (int pair = 0; pair < pairs && go_on(pair < fewest_pairs || now_s() < until) != 0; ++pair) {
    double time[2] = {0, 0};
    const bool first = random.below(2) == 1;
    for (const bool keeping : {first, !first}) {
      go_on(1);
      const std::int64_t begin = ticks();
      kept_count_ = 0;
      if (keeping) chunk<true>(count);
      else chunk<false>(count);
      time[keeping] = static_cast<double>(ticks() - begin);
    }
    shares.push_back(time[1] / time[0] - 1);
  }
  const auto interval = stats::median_ci(shares, 0.95);
  found_.keeping_share = stats::median(shares);
  found_.keeping_low = interval.low;
  found_.keeping_high = interval.high;
}

}  // namespace sonde::noise
