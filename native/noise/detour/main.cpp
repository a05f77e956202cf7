// sonde-detour: the interruptions of a core, measured in user space. One pinned thread for each CPU.
//
// Publishes: events on stdout; block files in --dir, for each CPU window-NNNNN.blk and, by method, detour-NNNNN.blk and
// fwq-NNNNN.blk. Consumes: `stop` on stdin. When the parent goes silent (end of file on stdin), it ends its windows,
// writes its records, and exits. It does the same on SIGTERM and SIGINT. A kill -9 loses at most half a second.

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/block.hpp"
#include "core/clock.hpp"
#include "core/control.hpp"
#include "core/json.hpp"
#include "noise/detour.hpp"

namespace {

using namespace sonde;
using namespace sonde::noise;

// Each event wakes up its reader, perhaps on a core that is being measured. So events are rare.
constexpr double flush_s = 0.5, told_s = 2;
std::atomic<bool> ending{false};
extern "C" void on_end(int) { ending = true; }

void emit(const JsonLine& line) {
  std::puts(line.text().c_str());
  std::fflush(stdout);
}

int fail(const Error& error, int code) {
  emit(JsonLine().add("event", "error").add("code", error.code).add("what", error.what).add("hint", error.hint));
  return code;
}

/// A file of /proc that stays open, because opening it costs more than reading it.
class ProcFile {
 public:
  explicit ProcFile(const char* path) : fd_(::open(path, O_RDONLY | O_CLOEXEC)) {}
  ~ProcFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  ProcFile(const ProcFile&) = delete;
  ProcFile& operator=(const ProcFile&) = delete;
  std::string_view read() {
    std::size_t used = 0;
    while (fd_ >= 0) {
      if (text_.size() < used + 4096) text_.resize(std::max<std::size_t>(65536, 2 * text_.size()));
      const ssize_t n = ::pread(fd_, text_.data() + used, text_.size() - used, static_cast<off_t>(used));
      if (n <= 0) break;
      used += static_cast<std::size_t>(n);
    }
    return std::string_view(text_).substr(0, used);
  }

 private:
  int fd_;
  std::string text_;
};

struct Seen {
  double begin = 0, length = 0;
};

struct Window {
  double begin = 0, end = 0, lost = 0, run_delay = 0, steal = 0, gap = 0;
  std::uint64_t loops = 0;
  std::uint32_t gaps = 0, kind = 0, involuntary = 0, voluntary = 0;
};
static_assert(sizeof(Window) == 72);

/// The kernel's counters for one CPU and for the calling thread.
class Counters {
 public:
  explicit Counters(int cpu)
      : cpu_(cpu),
        interrupts_("/proc/interrupts"),
        softirqs_("/proc/softirqs"),
        stat_("/proc/stat"),
        schedstat_("/proc/thread-self/schedstat") {
    take();
    names_.reserve(now_.size());
    for (const auto& [name, value] : now_) names_.push_back(name);
    first_devices_ = devices_;
  }
  const std::vector<std::string>& names() const { return names_; }
  bool knows_run_delay() const { return run_delay_ >= 0; }

  void take() {
    now_.clear();
    Counts hard = parse_counts(interrupts_.read(), cpu_);
    for (const auto& [name, value] : hard.rows) now_[name] = value;
    for (const auto& [name, value] : parse_counts(softirqs_.read(), cpu_).rows) now_["soft " + name] = value;
    devices_ = std::move(hard.devices);
    steal_ = parse_steal(stat_.read(), cpu_);
    rusage use{};
    getrusage(RUSAGE_THREAD, &use);
    involuntary_ = use.ru_nivcsw;
    voluntary_ = use.ru_nvcsw;
    run_delay_ = parse_run_delay(schedstat_.read());
  }

  /// Reads all counters again, and stores their growth since the last time in the window and in `deltas`.
  void take(Window& window, std::uint32_t* deltas) {
    const auto before = now_;
    const std::uint64_t steal = steal_;
    const long involuntary = involuntary_, voluntary = voluntary_;
    const std::int64_t run_delay = run_delay_;
    take();
    for (std::size_t k = 0; k < names_.size(); ++k) {
      const auto old = before.find(names_[k]);
      const auto now = now_.find(names_[k]);
      deltas[k] = old == before.end() || now == now_.cend() ? 0 : static_cast<std::uint32_t>(now->second - old->second);
    }
    window.steal = static_cast<double>(steal_ - steal) / static_cast<double>(sysconf(_SC_CLK_TCK));
    window.involuntary = static_cast<std::uint32_t>(involuntary_ - involuntary);
    window.voluntary = static_cast<std::uint32_t>(voluntary_ - voluntary);
    window.run_delay = run_delay_ < 0 ? std::nan("") : static_cast<double>(run_delay_ - run_delay) * 1e-9;
  }

  /// Device interrupts since the begin: (name, count), the most frequent first.
  std::vector<std::pair<std::string, std::uint64_t>> devices() const {
    std::vector<std::pair<std::string, std::uint64_t>> out;
    for (const auto& [name, count] : devices_) {
      const auto old = first_devices_.find(name);
      const std::uint64_t grew = count - (old == first_devices_.end() ? 0 : old->second);
      if (grew > 0) out.emplace_back(name, grew);
    }
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return out;
  }

 private:
  int cpu_;
  ProcFile interrupts_, softirqs_, stat_, schedstat_;
  std::map<std::string, std::uint64_t> now_, devices_, first_devices_;
  std::vector<std::string> names_;
  std::uint64_t steal_ = 0;
  long involuntary_ = 0, voluntary_ = 0;
  std::int64_t run_delay_ = -1;
};

/// One block file: its sink and its writer.
struct Book {
  std::unique_ptr<FileSink> sink;
  std::unique_ptr<RecordWriter> writer;

  Result<void> open(const std::string& path, const std::string& header, std::size_t record_bytes, std::size_t buffer,
                    std::uint64_t cap) {
    auto file = FileSink::create(path);
    if (!file) return file.error();
    sink = std::make_unique<FileSink>(std::move(*file));
    auto made = RecordWriter::open(*sink, {header, record_bytes}, buffer, cap);
    if (!made) return made.error();
    writer = std::make_unique<RecordWriter>(std::move(*made));
    return {};
  }
  void put(const Seen& seen) {
    if (void* room = writer->reserve()) {
      std::memcpy(room, &seen, sizeof seen);
      writer->commit();
    }
  }
};

/// The thread of one CPU, and its results for the events.
struct Watcher {
  int cpu = -1;
  const DetourOptions* options = nullptr;
  Book detours, quanta, windows;
  std::atomic<std::uint64_t> samples{0}, windows_done{0};
  double least_step_s = 0, threshold_s = 0, quantum_s = 0, seconds_per_tick = 0;
  std::vector<std::pair<std::string, std::uint64_t>> devices;
  std::optional<Error> error;  // why it could not begin
  std::optional<Error> lost;   // why it could not write all records
  std::thread thread;
  std::uint64_t dropped() const {
    std::uint64_t n = 0;
    for (const Book* book : {&detours, &quanta, &windows})
      if (book->writer) n += book->writer->dropped();
    return n;
  }

  void flush() {
    for (Book* book : {&detours, &quanta, &windows})
      if (book->writer)
        if (auto done = book->writer->flush(); !done && !lost) lost = done.error();
  }

  template <TickKind kind> void measure(std::atomic<int>& ready, const std::atomic<bool>& go);
};

template <TickKind kind> void Watcher::measure(std::atomic<int>& ready, const std::atomic<bool>& go) {
  const DetourOptions& o = *options;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  if (pthread_setaffinity_np(pthread_self(), sizeof one, &one) != 0) {
    error = Error{"noise.no_such_core", "CPU " + std::to_string(cpu) + " cannot be used", "leave it out of --cpus"};
    ++ready;
    return;
  }
  const auto ticks = [] { return read_ticks<kind>(); };
  seconds_per_tick = kind == TickKind::clock ? 1e-9 : seconds_of_tick(ticks, 0.05);
  const double per_tick = seconds_per_tick;
  const std::uint64_t least = least_step(ticks, 200'000);
  least_step_s = static_cast<double>(least) * per_tick;
  threshold_s = o.threshold_s > 0 ? o.threshold_s : std::max(least_threshold_s, 9 * least_step_s);
  const auto threshold = static_cast<std::uint64_t>(threshold_s / per_tick);

  std::uint64_t steps = 100'000;
  volatile std::uint64_t kept = 0;
  if (o.fwq) {
    double best = 1e9;
    for (int k = 0; k < 20; ++k) {
      const std::uint64_t a = ticks();
      kept = kept + quantum(steps, kept);
      best = std::min(best, static_cast<double>(ticks() - a) * per_tick);
    }
    steps = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(steps) * o.quantum_s / best));
    quantum_s = o.quantum_s;
  }

  Counters counters(cpu);
  std::string names = "[";
  for (const auto& name : counters.names()) names += (names.size() > 1 ? "," : "") + json_quote(name);
  names += "]";
  JsonLine head;
  head.add("schema", "noise/1")
      .add("kind", "host")
      .add_name("host", o.host)
      .add("cpu", cpu)
      .add("ticks", to_string(kind));
  char number[40];
  std::snprintf(number, sizeof number, "%.17g", per_tick);
  head.raw("seconds_per_tick", number).add("least_step_s", least_step_s).add("threshold_s", threshold_s);
  head.add("window_s", o.window_s).add("quantum_s", quantum_s).add("quantum_steps", o.fwq ? steps : 0);
  head.add("run_delay_known", counters.knows_run_delay()).raw("counters", names);
  const std::string seen_fields = R"([["begin","<f8",[]],["length","<f8",[]]])";
  const std::string window_fields =
      R"([["begin","<f8",[]],["end","<f8",[]],["lost","<f8",[]],["run_delay","<f8",[]],["steal","<f8",[]],["gap","<f8",[]],)"
      R"(["loops","<u8",[]],["gaps","<u4",[]],["method","<u4",[]],["involuntary","<u4",[]],["voluntary","<u4",[]],)"
      R"(["counters","<u4",[)" +
      std::to_string(std::max<std::size_t>(1, counters.names().size())) + "]]]";
  const std::size_t counted = std::max<std::size_t>(1, counters.names().size());
  char name[32];
  auto path = [&](const char* what) {
    std::snprintf(name, sizeof name, "/%s-%05d.blk", what, cpu);
    return o.dir + name;
  };
  auto header = [&](const char* what, const std::string& fields) {
    JsonLine line = head;
    return line.add("what", what).raw("fields", fields).text();
  };
  Result<void> opened;
  if (o.detour)
    opened = detours.open(path("detour"), header("detour", seen_fields), sizeof(Seen), 1 << 17, o.cap_bytes);
  if (opened && o.fwq)
    opened = quanta.open(path("fwq"), header("fwq", seen_fields), sizeof(Seen), 1 << 16, o.cap_bytes);
  if (opened)
    opened =
        windows.open(path("window"), header("window", window_fields), sizeof(Window) + 4 * counted, 4096, o.cap_bytes);
  if (!opened) {
    error = opened.error();
    ++ready;
    return;
  }
  ++ready;
  while (!go) std::this_thread::yield();

  const double began = now_s();
  double flushed = began, last_end = 0;
  std::vector<std::uint32_t> deltas(counted);
  counters.take();
  for (std::uint64_t k = 0; !ending; ++k) {
    const double left = began + o.duration_s - now_s();
    if (left <= 0) break;
    const double span = std::min(o.window_s, left);
    const bool by_quantum = o.fwq && (!o.detour || k % 2 == 1);
    Window window;
    window.kind = by_quantum ? 1 : 0;
    // Each window has a new time base, so that errors of the calibration do not add up.
    const std::uint64_t base = ticks();
    const double base_s = now_s();
    auto time_of = [&](std::uint64_t t) { return base_s + static_cast<double>(t - base) * per_tick; };
    window.begin = base_s;
    window.gap = last_end > 0 ? base_s - last_end : 0;
    if (by_quantum) {
      do {
        const std::uint64_t a = ticks();
        kept = kept + quantum(steps, kept);
        const std::uint64_t length = ticks() - a;
        quanta.put({time_of(a), static_cast<double>(length) * per_tick});
        ++window.loops;
      } while (now_s() - base_s < span && !ending);
      window.end = now_s();
    } else {
      const LoopSeen seen = watch_ticks(ticks, base + static_cast<std::uint64_t>(span / per_tick), threshold,
                                        [&](std::uint64_t begin, std::uint64_t length) {
                                          detours.put({time_of(begin), static_cast<double>(length) * per_tick});
                                        });
      window.end = time_of(seen.end);
      window.loops = seen.loops;
      window.gaps = static_cast<std::uint32_t>(std::min<std::uint64_t>(seen.gaps, 0xffffffffu));
      window.lost = static_cast<double>(seen.lost) * per_tick;
    }
    last_end = window.end;
    counters.take(window, deltas.data());
    if (void* room = windows.writer->reserve()) {
      std::memcpy(room, &window, sizeof window);
      std::memcpy(static_cast<std::byte*>(room) + sizeof window, deltas.data(), 4 * counted);
      windows.writer->commit();
    }
    samples += by_quantum ? window.loops : window.gaps;
    ++windows_done;
    if (now_s() - flushed >= flush_s) {
      flush();
      flushed = now_s();
    }
  }
  flush();
  for (Book* book : {&detours, &quanta, &windows})
    if (book->sink) (void)book->sink->sync();
  devices = counters.devices();
}

std::string list_of(const cpu_set_t& set) {
  std::string out;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) out += (out.empty() ? "" : ",") + std::to_string(cpu);
  return out;
}

int run(DetourOptions o) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  if (o.cpus.empty())
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &allowed)) o.cpus.push_back(cpu);
  for (const int cpu : o.cpus)
    if (cpu >= CPU_SETSIZE || !CPU_ISSET(cpu, &allowed))
      return fail({"noise.no_such_core",
                   "CPU " + std::to_string(cpu) + " cannot be used; this process may use: " + list_of(allowed),
                   "choose some of these with --cpus, or omit it for all"},
                  3);
  if (o.check) return 0;
  if (o.host.empty()) {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    o.host = name;
  }
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  struct sigaction end{};
  end.sa_handler = on_end;
  sigaction(SIGTERM, &end, nullptr);
  sigaction(SIGINT, &end, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  const TickKind kind = best_ticks(false);  // each core has its own pinned thread
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::unique_ptr<Watcher>> team;
  // Only the main thread gets signals: they end its poll, and do not disturb the measuring threads.
  sigset_t ending_signals, before;
  sigemptyset(&ending_signals);
  sigaddset(&ending_signals, SIGTERM);
  sigaddset(&ending_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ending_signals, &before);
  for (const int cpu : o.cpus) {
    auto& w = *team.emplace_back(std::make_unique<Watcher>());
    w.cpu = cpu;
    w.options = &o;
    w.thread = std::thread([&w, kind, &ready, &go] {
      if (kind == TickKind::tsc) w.measure<TickKind::tsc>(ready, go);
      else if (kind == TickKind::cntvct) w.measure<TickKind::cntvct>(ready, go);
      else w.measure<TickKind::clock>(ready, go);
    });
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  while (ready < static_cast<int>(team.size())) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const Error* error = nullptr;
  for (const auto& w : team)
    if (const auto& own = w->error) error = &*own;
  if (error != nullptr) ending = true;
  const double began = now_s();
  if (error == nullptr) {
    double least = 1e9, threshold = 0;
    for (const auto& w : team)
      least = std::min(least, w->least_step_s), threshold = std::max(threshold, w->threshold_s);
    emit(JsonLine()
             .add("event", "start")
             .add("ranks", team.size())
             .add("mpi", "none")
             .add("mpi_version", "none")
             .add("oversubscribed", false)
             .add("cpus", o.cpus)
             .add("ticks", to_string(kind))
             .add("least_step_s", least)
             .add("threshold_s", threshold));
  }
  go = true;
  Control control(0, true);
  auto total = [&](auto member) {
    std::uint64_t sum = 0;
    for (const auto& w : team) sum += ((*w).*member).load();
    return sum;
  };
  const auto expected = static_cast<std::uint64_t>(std::ceil(o.duration_s / o.window_s)) * team.size();
  bool asked = false;
  while (error == nullptr && !ending) {
    if (now_s() - began > o.duration_s) break;
    pollfd in{STDIN_FILENO, POLLIN, 0};
    const double wait_s = std::min(told_s, std::max(0.0, began + o.duration_s - now_s()) + 0.001);
    (void)::poll(&in, 1, static_cast<int>(wait_s * 1e3) + 1);
    if (control.stop_requested()) asked = true, ending = true;
    const std::uint64_t done = total(&Watcher::windows_done);
    emit(JsonLine()
             .add("event", "progress")
             .add("done", done)
             .add("active", team.size())
             .add("cells", expected)
             .add("epoch", done / team.size())
             .add("samples", total(&Watcher::samples))
             .add("elapsed_s", now_s() - began));
  }
  const bool interrupted = ending || asked;
  for (auto& w : team) w->thread.join();
  if (error != nullptr) return fail(*error, 3);
  std::uint64_t dropped = 0;
  for (const auto& w : team) {
    dropped += w->dropped();
    if (const auto& lost = w->lost)
      emit(JsonLine()
               .add("event", "warning")
               .add("code", lost->code)
               .add("evidence", "CPU " + std::to_string(w->cpu) + ": " + lost->what)
               .add("hint", lost->hint));
    std::vector<std::string> names;
    std::vector<std::uint64_t> counts;
    for (std::size_t k = 0; k < w->devices.size() && k < 16; ++k) {
      names.push_back(w->devices[k].first);
      counts.push_back(w->devices[k].second);
    }
    emit(JsonLine().add("event", "devices").add("cpu", w->cpu).add("names", names).add("counts", counts));
  }
  emit(JsonLine()
           .add("event", "end")
           .add("stop_reason", interrupted ? "interrupted" : "budget")
           .add("samples", total(&Watcher::samples))
           .add("elapsed_s", now_s() - began)
           .add("dropped", dropped));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "--version") {
    std::printf("{\"sonde\":\"%s\"}\n", SONDE_VERSION);
    return 0;
  }
  auto options = parse_detour_options(args);
  if (!options) return fail(options.error(), 2);
  return run(std::move(*options));
}
