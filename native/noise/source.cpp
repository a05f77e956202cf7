#include "noise/source.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "core/number.hpp"
#include "core/random.hpp"
#include "core/units.hpp"

namespace sonde::noise {

namespace {

constexpr double longest_piece_ns = 50e3;
constexpr std::size_t shortest_piece = 64;  // words: 8 cache lines, about 20 ns
constexpr std::int64_t tellable_ns = 2000;  // in a shorter piece, the clock takes most of the time

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %%", 100 * share);
  return text;
}

const char* const usage =
    "sonde-agent --level SHARE [--period-s S] [--words N] [--core N | --free] [--phase-s S | --unsync] [--seed N] "
    "[--record FILE] [--cap-bytes N] [--duration-s S] [--until-eof] [--orphan] [--check] [--host NAME]";

}  // namespace

Result<SourceOptions> parse_source_options(const std::vector<std::string>& args) {
  SourceOptions o;
  using Take = std::function<bool(const std::string&)>;
  auto into = [](auto& target) { return Take([&target](const std::string& v) { return number(v, target); }); };
  bool phase_given = false, free_given = false;
  const std::map<std::string, Take> valued{
      {"--level", into(o.level)},
      {"--period-s", into(o.period_s)},
      {"--words", into(o.words)},
      {"--core", [&](const std::string& v) { return number(v, o.core) && o.core >= 0; }},
      {"--phase-s",
       [&](const std::string& v) {
         phase_given = true;
         return number(v, o.phase_s) && std::isfinite(o.phase_s);
       }},
      {"--seed", into(o.seed)},
      {"--record",
       [&](const std::string& v) {
         o.record = v;
         return !v.empty();
       }},
      {"--cap-bytes", into(o.cap_bytes)},
      {"--duration-s", [&](const std::string& v) { return number(v, o.duration_s) && o.duration_s >= 0; }},
      {"--host",
       [&](const std::string& v) {
         o.host = v;
         return !v.empty();
       }},
  };
  const std::map<std::string, bool*> flags{{"--unsync", &o.unsynchronised},
                                           {"--until-eof", &o.until_eof},
                                           {"--orphan", &o.orphan},
                                           {"--check", &o.check},
                                           {"--free", &free_given}};
  for (std::size_t k = 0; k < args.size(); ++k) {
    if (const auto flag = flags.find(args[k]); flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    const auto it = valued.find(args[k]);
    const bool has_value = k + 1 < args.size();
    if (it == valued.end() || !has_value || !it->second(args[k + 1]))
      return Error{"noise.bad_option",
                   "sonde-agent does not understand '" + args[k] +
                       (it != valued.end() && has_value ? " " + args[k + 1] : "") + "'",
                   usage};
    ++k;
  }
  if (phase_given && o.unsynchronised)
    return Error{"noise.bad_option", "--phase-s sets the phase, but --unsync draws one", "give one of the two"};
  if (free_given && o.core >= 0)
    return Error{"noise.bad_option", "--core pins the source, but --free does not", "give one of the two"};
  if (auto fine = check_source(o); !fine) return fine.error();
  return o;
}

Result<void> check_source(const SourceOptions& o) {
  if (!(o.level > 0 && o.level < 1))
    return Error{"noise.bad_level",
                 "a level of " + percent(o.level) + " is not allowed; allowed: above 0 % and below 100 %",
                 "write --level 0.01 for 1 %; to have no noise, start no source"};
  if (!(o.period_s >= shortest_period_s && o.period_s <= longest_period_s))
    return Error{"noise.bad_period",
                 "a period of " + format_duration(o.period_s) + " is not allowed; allowed: " +
                     format_duration(shortest_period_s) + " to " + format_duration(longest_period_s),
                 "agents wake up every 1 s to 60 s; write --period-s 1"};
  const double room = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (o.words < 1 || static_cast<double>(o.words) * 8 > room)
    return Error{"noise.bad_words",
                 "an array of " + std::to_string(o.words) + " words is not allowed; allowed: 1 to " +
                     std::to_string(static_cast<std::uint64_t>(room / 8)) + ", the memory of this machine",
                 "the default is 250000 words, 2 MB"};
  const double work_s = o.level * o.period_s;
  if (work_s < shortest_work_s)
    return Error{"noise.level_too_low",
                 percent(o.level) + " of " + format_duration(o.period_s) + " is " + format_duration(work_s) +
                     " of work; a burst takes at least " + format_duration(shortest_work_s) +
                     ", because waking up is part of it",
                 o.period_s * 0.5 > shortest_work_s
                     ? "the lowest level at this period is " + percent(shortest_work_s / o.period_s) +
                           "; or use a period of " + format_duration(shortest_work_s / o.level) + " or more"
                     : "use a period of " + format_duration(shortest_work_s / o.level) + " or more"};
  return {};
}

Grid::Grid(std::int64_t period_ns, std::int64_t phase_ns)
    : period_ns_(period_ns), phase_ns_((phase_ns % period_ns + period_ns) % period_ns) {}

std::int64_t Grid::at_or_after(std::int64_t time_ns) const {
  const std::int64_t since = time_ns - phase_ns_;
  const std::int64_t behind = (since % period_ns_ + period_ns_) % period_ns_;
  return behind == 0 ? time_ns : time_ns - behind + period_ns_;
}

std::size_t Pieces::next(std::int64_t left_ns) const {
  // 0.7: a piece that takes a third longer than estimated (the array left the cache) still ends before the target.
  const double aim_ns = std::min(longest_piece_ns, 0.7 * static_cast<double>(std::max<std::int64_t>(left_ns, 0)));
  return std::max(shortest_piece, static_cast<std::size_t>(aim_ns / ns_per_word_));
}

void Pieces::took(std::size_t words, std::int64_t ns) {
  if (ns < tellable_ns || words == 0) return;
  // The mean of old and new: an array evicted between bursts is slow in the first pieces and fast in the later ones.
  ns_per_word_ = 0.5 * ns_per_word_ + 0.5 * static_cast<double>(ns) / static_cast<double>(words);
}

Result<Footprint> Footprint::make(std::uint64_t words) {
  const std::size_t bytes = static_cast<std::size_t>(words) * 8;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return Error{"noise.no_memory",
                 "there is no memory for an array of " + std::to_string(words) + " words (" + format_size(bytes) + ")",
                 "use fewer words with --words"};
  auto* data = static_cast<std::uint64_t*>(memory);
  for (std::size_t k = 0; k < words; ++k) data[k] = k;
  const bool locked = ::mlock(memory, bytes) == 0;
  return Footprint(data, static_cast<std::size_t>(words), locked);
}

Footprint::Footprint(Footprint&& other) noexcept
    : data_(other.data_), words_(other.words_), at_(other.at_), locked_(other.locked_) {
  other.data_ = nullptr;
}

Footprint::~Footprint() {
  if (data_ != nullptr) ::munmap(data_, words_ * 8);
}

std::uint64_t Footprint::sum(std::size_t n) {
  std::uint64_t total = 0;
  while (n > 0) {
    const std::size_t run = std::min(n, words_ - at_);
    const std::uint64_t* p = data_ + at_;
    for (std::size_t k = 0; k < run; ++k) total += p[k];
    n -= run;
    at_ += run;
    if (at_ == words_) at_ = 0;
  }
  return total;
}

std::string burst_fields() {
  return R"([["planned","<f8",[]],["begin","<f8",[]],["wall","<f8",[]],["cpu","<f8",[]],["overhead","<f8",[]],)"
         R"(["words","<u8",[]],["sum","<u8",[]],["on_cpu","<i4",[]],["skipped","<u4",[]],["truncated","<u4",[]],)"
         R"(["preempted","<u4",[]]])";
}

Burst work(SourceClock& clock, Footprint& footprint, Pieces& pieces, std::int64_t planned_ns, std::int64_t end_ns,
           std::int64_t cpu_target_ns, std::int64_t cpu_before_ns) {
  Burst burst;
  const std::int64_t begin_ns = clock.monotonic_ns();
  const std::int64_t real_ahead_ns = clock.real_ns() - begin_ns;
  burst.planned = static_cast<double>(planned_ns - real_ahead_ns) * 1e-9;
  burst.begin = static_cast<double>(begin_ns) * 1e-9;
  const std::uint32_t preempted = clock.preemptions();
  std::int64_t cpu_ns = clock.cpu_ns();
  burst.overhead = static_cast<double>(cpu_ns - cpu_before_ns) * 1e-9;
  std::int64_t now_ns = begin_ns;
  do {
    const std::size_t n = pieces.next(cpu_target_ns - (cpu_ns - cpu_before_ns));
    burst.sum += footprint.sum(n);
    burst.words += n;
    const std::int64_t after_ns = clock.cpu_ns();
    pieces.took(n, after_ns - cpu_ns);
    cpu_ns = after_ns;
    now_ns = clock.monotonic_ns();
  } while (cpu_ns - cpu_before_ns < cpu_target_ns && now_ns + real_ahead_ns < end_ns && !clock.stopping());
  burst.wall = static_cast<double>(now_ns - begin_ns) * 1e-9;
  burst.cpu = static_cast<double>(cpu_ns - cpu_before_ns) * 1e-9;
  burst.truncated = cpu_ns - cpu_before_ns < cpu_target_ns;
  burst.preempted = clock.preemptions() - preempted;
  burst.on_cpu = clock.cpu();
  return burst;
}

SourceTotals run_source(const SourceOptions& options, const Grid& grid, SourceClock& clock, Footprint& footprint,
                        Pieces& pieces, const std::function<void(const Burst&, const SourceTotals&)>& told) {
  const std::int64_t period_ns = grid.period_ns(), late_ns = period_ns / 4;
  const auto target_ns = static_cast<std::int64_t>(std::ceil(options.level * static_cast<double>(period_ns)));
  SourceTotals totals;
  const std::int64_t cpu_first_ns = clock.cpu_ns();
  std::int64_t cpu_before_ns = cpu_first_ns;
  std::int64_t planned_ns = grid.at_or_after(clock.real_ns());
  std::uint64_t points = 0, skipped = 0;
  for (;;) {
    const Woke woke = clock.wait_until(planned_ns);
    if (woke == Woke::stop) break;
    if (woke == Woke::clock_set) {
      planned_ns = grid.at_or_after(clock.real_ns());
      continue;
    }
    const std::int64_t now_ns = clock.real_ns();
    if (now_ns - planned_ns > late_ns) {
      const std::int64_t next_ns = grid.at_or_after(now_ns);
      const auto missed = static_cast<std::uint64_t>((next_ns - planned_ns) / period_ns);
      skipped += missed;
      points += missed;
      planned_ns = next_ns;
      continue;
    }
    Burst burst = work(clock, footprint, pieces, planned_ns, planned_ns + period_ns, target_ns, cpu_before_ns);
    burst.skipped = static_cast<std::uint32_t>(std::min<std::uint64_t>(skipped, 0xffffffffu));
    cpu_before_ns += std::llround(burst.cpu * 1e9);
    ++points;
    ++totals.bursts;
    totals.skipped += skipped;
    totals.truncated += burst.truncated;
    totals.wall_s += burst.wall;
    totals.cpu_s = static_cast<double>(cpu_before_ns - cpu_first_ns) * 1e-9;
    totals.elapsed_s = static_cast<double>(points) * static_cast<double>(period_ns) * 1e-9;
    skipped = 0;
    told(burst, totals);
    planned_ns += period_ns;
  }
  totals.skipped += skipped;
  totals.elapsed_s = static_cast<double>(points) * static_cast<double>(period_ns) * 1e-9;
  return totals;
}

double random_phase(double period_s, std::uint64_t seed, const std::string& host, std::int64_t pid) {
  std::uint64_t mixed = seed;
  for (const char ch : host) mixed = Random(mixed ^ static_cast<unsigned char>(ch)).next();
  return Random(mixed ^ static_cast<std::uint64_t>(pid)).uniform() * period_s;
}

}  // namespace sonde::noise
