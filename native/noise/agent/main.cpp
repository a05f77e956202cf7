// sonde-agent: the noise source, a model of a monitoring agent.
//
// Publishes: events on stdout, a block file with a record for each burst (--record). Consumes: only signals; with
// --until-eof also `stop` on stdin. SIGTERM, SIGINT and, with --until-eof, the end of stdin end it normally, with exit
// code 0. When its parent dies, it dies, too (not with --orphan). A kill -9 loses the bursts since the last flush: half
// a second of bursts, or one burst.

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/control.hpp"
#include "core/json.hpp"
#include "noise/source.hpp"

namespace {

using namespace sonde;
using namespace sonde::noise;

// Each event wakes up its reader, and that is noise, too: 100 µs in a second are as much as a level of the source.
constexpr double flush_s = 0.5, told_s = 2;

volatile std::sig_atomic_t asked_to_end = 0;

extern "C" void on_end(int) { asked_to_end = 1; }

std::int64_t read_clock(clockid_t which) {
  timespec t;
  clock_gettime(which, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// Whether the events have a reader. With 100 µs of work in a second, formatting events would take a tenth of it.
bool heard() {
  struct stat out{}, nowhere{};
  return ::fstat(STDOUT_FILENO, &out) == 0 &&
         !(::stat("/dev/null", &nowhere) == 0 && S_ISCHR(out.st_mode) && out.st_rdev == nowhere.st_rdev);
}

void emit(const JsonLine& line) {
  std::puts(line.text().c_str());
  std::fflush(stdout);
}

int fail(const Error& error, int code) {
  emit(JsonLine().add("event", "error").add("code", error.code).add("what", error.what).add("hint", error.hint));
  std::fprintf(stderr, "sonde-agent: %s\n  %s\n", error.what.c_str(), error.hint.c_str());
  return code;
}

class MachineClock final : public SourceClock {
 public:
  MachineClock(int timer, Control& control, double duration_s, bool listen)
      : timer_(timer),
        control_(&control),
        listen_(listen),
        end_ns_(duration_s > 0 ? now_ns() + std::llround(duration_s * 1e9) : 0) {
    sigemptyset(&ending_);
    sigaddset(&ending_, SIGTERM);
    sigaddset(&ending_, SIGINT);
  }

  std::int64_t real_ns() override { return read_clock(CLOCK_REALTIME); }
  std::int64_t monotonic_ns() override { return now_ns(); }
  std::int64_t cpu_ns() override { return read_clock(CLOCK_THREAD_CPUTIME_ID); }
  bool stopping() override { return asked_to_end != 0 || over(); }
  bool over() { return end_ns_ > 0 && now_ns() >= end_ns_; }
  int cpu() override { return sched_getcpu(); }
  std::uint32_t preemptions() override {
    rusage use{};
    getrusage(RUSAGE_THREAD, &use);
    return static_cast<std::uint32_t>(use.ru_nivcsw);
  }

  Woke wait_until(std::int64_t real_ns) override {
    itimerspec at{};
    at.it_value.tv_sec = real_ns / 1'000'000'000;
    at.it_value.tv_nsec = real_ns % 1'000'000'000;
    timerfd_settime(timer_, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &at, nullptr);
    // Signals arrive only during ppoll. Otherwise a signal after the test of the flag would not end the sleep.
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &ending_, &before);
    const Woke woke = wait(before);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return woke;
  }

 private:
  Woke wait(const sigset_t& open) {
    for (;;) {
      if (stopping()) return Woke::stop;
      timespec left{};
      if (end_ns_ > 0) {
        const std::int64_t ns = std::max<std::int64_t>(0, end_ns_ - now_ns());
        left = {ns / 1'000'000'000, ns % 1'000'000'000};
      }
      pollfd fds[2] = {{timer_, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
      const int ready = ::ppoll(fds, listen_ ? 2 : 1, end_ns_ > 0 ? &left : nullptr, &open);
      if (ready < 0) continue;  // a signal, or SIGCONT
      if (listen_ && fds[1].revents != 0 && control_->stop_requested()) return Woke::stop;
      if (fds[0].revents == 0) continue;
      std::uint64_t fired;
      if (::read(timer_, &fired, sizeof fired) < 0) {
        if (errno == ECANCELED) return Woke::clock_set;
        continue;
      }
      return stopping() ? Woke::stop : Woke::due;
    }
  }

  int timer_;
  Control* control_;
  bool listen_;
  std::int64_t end_ns_;
  sigset_t ending_;
};

std::string list_of(const cpu_set_t& set) {
  std::string out;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    int last = cpu;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) ++last;
    out += (out.empty() ? "" : ",") + std::to_string(cpu) + (last > cpu ? "-" + std::to_string(last) : "");
    cpu = last;
  }
  return out;
}

Result<void> pin(int core) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  if (core < CPU_SETSIZE) CPU_SET(core, &wanted);
  if (core >= CPU_SETSIZE || !CPU_ISSET(core, &allowed) || sched_setaffinity(0, sizeof wanted, &wanted) != 0)
    return Error{"noise.no_such_core",
                 "core " + std::to_string(core) + " cannot be used; this process may use: " + list_of(allowed),
                 "choose one of these with --core, or omit it"};
  return {};
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

/// The time of one reading of the thread's CPU time, ns.
double cpu_clock_cost_ns(SourceClock& clock) {
  const std::int64_t begin = clock.monotonic_ns();
  for (int k = 0; k < 200; ++k) (void)clock.cpu_ns();
  return static_cast<double>(clock.monotonic_ns() - begin) / 200;
}

RecordSchema record_schema(const SourceOptions& o, double phase_s, const Footprint& array, SourceClock& clock) {
  const std::int64_t monotonic = clock.monotonic_ns(), real = clock.real_ns();
  JsonLine line;
  line.raw("fields", burst_fields()).add("schema", "noise/1").add("kind", "source").add_name("host", o.host);
  line.add("level", o.level).add("period_s", o.period_s).add("words", o.words).add("core", o.core);
  char phase[40], ahead[40];
  std::snprintf(phase, sizeof phase, "%.17g", phase_s);
  std::snprintf(ahead, sizeof ahead, "%.9f", static_cast<double>(real - monotonic) * 1e-9);
  line.raw("phase_s", phase)
      .add("unsynchronised", o.unsynchronised)
      .add("seed", o.seed)
      .add("pid", std::int64_t{getpid()});
  line.add("memory_locked", array.locked()).raw("realtime_ahead_s", ahead);
  line.add("clock_cost_s", clock_cost_s(5)).add("cpu_clock_cost_s", cpu_clock_cost_ns(clock) * 1e-9);
  return {line.text(), sizeof(Burst)};
}

int run(SourceOptions o) {
  if (!o.orphan) {
    // A stopped process does not react to SIGTERM, and its parent may have stopped it, so it uses SIGKILL. With
    // --until-eof the end of stdin also shows the parent's death, and there is time to write.
    prctl(PR_SET_PDEATHSIG, o.until_eof ? SIGTERM : SIGKILL);
  }
  struct sigaction ending{};
  ending.sa_handler = on_end;
  sigaction(SIGTERM, &ending, nullptr);
  sigaction(SIGINT, &ending, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // the reader of the events may end before the source
  prctl(PR_SET_TIMERSLACK, 1);    // 50 µs by default

  if (o.host.empty()) o.host = host_name();
  if (o.core >= 0)
    if (auto pinned = pin(o.core); !pinned) return fail(pinned.error(), 3);
  if (o.check) return 0;
  auto array = Footprint::make(o.words);
  if (!array) return fail(array.error(), 3);
  const int timer = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC);
  if (timer < 0)
    return fail({"noise.no_timer", std::string("cannot create a timer: ") + std::strerror(errno), "see ulimit -n"}, 3);

  Control control(0, o.until_eof);
  MachineClock clock(timer, control, o.duration_s, o.until_eof);
  const double phase_s = o.unsynchronised ? random_phase(o.period_s, o.seed, o.host, getpid()) : o.phase_s;
  const Grid grid(std::llround(o.period_s * 1e9), std::llround(std::fmod(phase_s, o.period_s) * 1e9));
  const std::int64_t pass_begin = clock.cpu_ns();
  volatile std::uint64_t kept = array->sum(array->words());  // prevents the compiler from omitting the sums
  Pieces pieces(std::max(0.05, static_cast<double>(clock.cpu_ns() - pass_begin) / static_cast<double>(o.words)));

  std::optional<FileSink> sink;
  std::optional<RecordWriter> writer;
  if (!o.record.empty()) {
    auto opened = FileSink::create(o.record);
    if (!opened) return fail(opened.error(), 3);
    sink.emplace(std::move(*opened));
    const std::size_t buffer = 64 + static_cast<std::size_t>(std::min(2e5, 8 * flush_s / o.period_s));
    auto made = RecordWriter::open(*sink, record_schema(o, phase_s, *array, clock), buffer, o.cap_bytes);
    if (!made) return fail(made.error(), 3);
    writer.emplace(std::move(*made));
  }

  emit(JsonLine()
           .add("event", "start")
           .add("ranks", 1)
           .add("mpi", "none")
           .add("mpi_version", "none")
           .add("oversubscribed", false)
           .add("host", o.host)
           .add("pid", std::int64_t{getpid()})
           .add("level", o.level)
           .add("period_s", o.period_s)
           .add("words", o.words)
           .add("core", o.core)
           .add("phase_s", phase_s)
           .add("memory_locked", array->locked())
           .add("ns_per_word", pieces.ns_per_word()));

  const double began_s = now_s();
  double flushed_s = began_s, last_told_s = began_s;
  const bool tell = heard();
  bool complained = false;
  auto flush = [&] {
    if (!writer) return;
    if (auto done = writer->flush(); !done && !complained) {
      // The noise goes on, because its effect is being measured. Lost records are counted.
      complained = true;
      emit(JsonLine()
               .add("event", "warning")
               .add("code", done.error().code)
               .add("evidence", done.error().what)
               .add("hint", done.error().hint));
    }
    flushed_s = now_s();
  };
  const SourceTotals totals =
      run_source(o, grid, clock, *array, pieces, [&](const Burst& burst, const SourceTotals& t) {
        kept = kept + burst.sum;
        if (writer)
          if (void* room = writer->reserve()) {
            std::memcpy(room, &burst, sizeof burst);
            writer->commit();
          }
        const double now = now_s();
        if (now - flushed_s >= flush_s) flush();
        if (tell && now - last_told_s >= told_s) {
          last_told_s = now;
          emit(JsonLine()
                   .add("event", "progress")
                   .add("done", t.bursts)
                   .add("active", 1)
                   .add("cells", 0)
                   .add("epoch", 0)
                   .add("samples", t.bursts)
                   .add("elapsed_s", now - began_s)
                   .add("skipped", t.skipped)
                   .add("duty_cpu", t.duty_cpu())
                   .add("duty_wall", t.duty_wall())
                   .add("host", o.host));
        }
      });
  flush();
  if (sink) (void)sink->sync();
  emit(JsonLine()
           .add("event", "end")
           .add("stop_reason", clock.over() ? "budget" : "interrupted")
           .add("samples", totals.bursts)
           .add("elapsed_s", now_s() - began_s)
           .add("dropped", writer ? writer->dropped() : std::uint64_t{0})
           .add("skipped", totals.skipped)
           .add("truncated", totals.truncated)
           .add("duty_cpu", totals.duty_cpu())
           .add("duty_wall", totals.duty_wall())
           .add("host", o.host));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "--version") {
    std::printf("{\"sonde\":\"%s\"}\n", SONDE_VERSION);
    return 0;
  }
  auto options = parse_source_options(args);
  if (!options) return fail(options.error(), 2);
  return run(std::move(*options));
}
