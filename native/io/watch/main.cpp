// sonde-io-watch: writes calls that only the kernel sees (system calls and functions under uprobes) to block files like
// those of the tracer.
//
// Publishes: events on stdout, a block file for each thread. Consumes: the specification in the file named by its only
// argument (spec.hpp), and `stop` on stdin. `sonde io` starts it, and creates and removes the kernel's events.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/block.hpp"
#include "core/control.hpp"
#include "core/json.hpp"
#include "core/ticks.hpp"
#include "io/watch/calls.hpp"
#include "io/watch/known_calls.hpp"
#include "io/watch/ring.hpp"
#include "io/watch/spec.hpp"

namespace {

using namespace sonde;
using namespace sonde::io;

constexpr std::size_t page_bytes = 65536;  // a sub-buffer may be larger than a page of memory
constexpr std::size_t buffered_records = 4096;
constexpr unsigned pause_us = 20'000;

void emit(const JsonLine& line) { std::cout << line.text() << '\n' << std::flush; }

int fail(const Error& error, int code) {
  emit(JsonLine().add("event", "error").add("code", error.code).add("what", error.what).add("hint", error.hint));
  return code;
}

std::string whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The data of a process in /proc; little if the process is gone.
struct Facts {
  std::int32_t parent = 0, rank = -1;
  std::string program;
};

Facts facts_of(std::int32_t process) {
  Facts found;
  const std::string folder = "/proc/" + std::to_string(process);
  std::istringstream status(whole(folder + "/status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("PPid:")) found.parent = std::atoi(line.c_str() + 5);
  char program[PATH_MAX];
  const ssize_t got = ::readlink((folder + "/exe").c_str(), program, sizeof program);
  if (got > 0) found.program.assign(program, static_cast<std::size_t>(got));
  const std::string environment = whole(folder + "/environ");
  for (const char* name : {"OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "PMI_RANK=", "SLURM_PROCID=", "PALS_RANKID="}) {
    const std::size_t length = std::strlen(name);
    for (std::size_t at = 0; at < environment.size() && found.rank < 0;
         at = std::min(environment.find('\0', at), environment.size() - 1) + 1)
      if (environment.compare(at, length, name) == 0) found.rank = std::atoi(environment.c_str() + at + length);
  }
  return found;
}

/// An event of a process, in order of time with its calls: a thread or child began, or it became another program.
struct Change {
  std::uint64_t time;
  std::int32_t thread;           ///< the thread that caused it
  std::int32_t child = 0;        ///< the new thread or child; 0: none
  bool of_same_process = false;  ///< the child is a thread of the same process
  std::string program;           ///< the new program
};

/// A program that a process became: its position among the process's programs, and the time.
struct Image {
  unsigned number = 0;
  std::uint64_t since = 0;  ///< ticks
};

/// The file of a thread, created with its first call.
struct Thread {
  std::unique_ptr<FileSink> sink;
  std::unique_ptr<RecordWriter> writer;
};

class Watch {
 public:
  explicit Watch(const Spec& spec)
      : spec_(spec),
        calls_([this](std::int32_t thread, const Record& record, std::uint64_t handle, const std::string& path) {
          keep(thread, record, handle, path);
        }) {
    const auto [ns, at] = both_clocks(ticks);
    began_ns_ = ns;
    began_ticks_ = at;
    process_ = spec.threads;
    program_ = spec.attached;
    for (const auto& [process, program] : spec.attached) attached_.insert(process);
  }

  Result<void> open() {
    std::error_code failed;
    for (const auto& entry : std::filesystem::directory_iterator(spec_.tracing + "/per_cpu", failed)) {
      const std::string path = entry.path().string() + "/trace_pipe_raw";
      const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
      if (fd < 0)
        return Error{"io.cannot_watch", "cannot read " + path + ": " + std::strerror(errno),
                     "run it as root: watching needs root"};
      cpus_.push_back(fd);
    }
    if (cpus_.empty())
      return Error{"io.cannot_watch", spec_.tracing + "/per_cpu is empty", "check that tracefs is mounted there"};
    return {};
  }

  /// Reads all present events. Events that arrive meanwhile wait, because another processor's page may hold earlier
  /// ones.
  void drain() {
    const auto until = static_cast<std::uint64_t>(ticks());
    for (const int fd : cpus_)
      for (ssize_t got; (got = ::read(fd, page_.data(), page_.size())) > 0;)
        take_page(std::span(page_).first(static_cast<std::size_t>(got)));
    settle(until);
  }

  void end() {
    settle(~std::uint64_t{0});
    calls_.end();
    for (auto& [id, thread] : threads_)
      if (thread.writer && !thread.writer->flush()) ++failed_;
  }

  JsonLine told() const {
    return JsonLine()
        .add("event", "end")
        .add("stop_reason", "ended")
        .add("calls", kept_)
        .add("threads", files_)
        .add("lost", lost_)
        .add("dropped", dropped_)
        .add("lost_unknown", lost_unknown_)
        .add("failed", failed_)
        .add("entries", entries_)
        .add("left", calls_.left());
  }

 private:
  void take_page(std::span<const std::byte> page) {
    const Lost lost =
        each_event(page, [this](std::uint64_t time, std::span<const std::byte> data) { take_event(time, data); });
    lost_ += lost.events;
    lost_unknown_ |= lost.unknown;
  }

  template <typename T> static T at(std::span<const std::byte> data, std::size_t offset, T otherwise) {
    if (offset + sizeof(T) > data.size()) return otherwise;
    T value;
    std::memcpy(&value, data.data() + offset, sizeof value);
    return value;
  }

  void take_event(std::uint64_t time, std::span<const std::byte> data) {
    const std::uint32_t type = at<std::uint16_t>(data, 0, 0);
    const auto thread = at<std::int32_t>(data, 4, 0);
    if (type == spec_.enter || type == spec_.exit) {
      const auto call = spec_.calls.find(at<std::int64_t>(data, 8, -1));
      if (call == spec_.calls.end()) return;
      if (type == spec_.enter) {
        enter(time, thread, call->second, data);
      } else {
        leave(time, thread, call->second, at<std::uint64_t>(data, 16, 0));
      }
    } else if (type == spec_.task) {
      constexpr std::uint64_t clone_thread = 0x10000;
      changes_.push_back({time,
                          thread,
                          at<std::int32_t>(data, spec_.task_pid, 0),
                          (at<std::uint64_t>(data, spec_.task_flags, 0) & clone_thread) != 0,
                          {}});
    } else if (type == spec_.exec) {
      if (std::string program = text(data, spec_.exec_name); !program.empty())
        changes_.push_back({time, thread, 0, false, std::move(program)});
    } else if (const auto entry = spec_.entries.find(type); entry != spec_.entries.end()) {
      if (const Watched* probe = probe_at(data, entry->second)) enter(time, thread, *probe, data);
    } else if (const auto exit = spec_.exits.find(type); exit != spec_.exits.end()) {
      if (const Watched* probe = probe_at(data, exit->second))
        leave(time, thread, *probe, part(data, probe->result), at<std::uint64_t>(data, probe->exit_stack, 0));
    }
  }

  const Watched* probe_at(std::span<const std::byte> data, std::uint32_t place) const {
    const auto found = spec_.probes.find(at<std::uint32_t>(data, place, ~std::uint32_t{0}));
    return found == spec_.probes.end() ? nullptr : &found->second;
  }

  static std::uint64_t part(std::span<const std::byte> data, const Part& part) {
    if (part.from != Part::entry) return unknown;
    if (part.width == Width::i64) return at<std::uint64_t>(data, part.at, unknown);
    return widened(at<std::uint32_t>(data, part.at, ~std::uint32_t{0}), part.width);
  }

  /// The text of an event: the low half of a word is its position, the high half its length with the NUL.
  static std::string text(std::span<const std::byte> data, std::uint32_t place) {
    const auto where = at<std::uint32_t>(data, place, 0);
    const std::size_t from = where & 0xffff, length = where >> 16;
    if (length == 0 || from + length > data.size()) return {};
    return {reinterpret_cast<const char*>(data.data()) + from, length - 1};
  }

  void enter(std::uint64_t time, std::int32_t thread, const Watched& watched, std::span<const std::byte> data) {
    std::string path = watched.path == 0 ? std::string() : text(data, watched.path);
    if (path == "(fault)") path.clear();  // the kernel's text for an invalid pointer
    waiting_.push_back({time, thread, &watched, false,
                        watched.entry_stack == 0 ? 0 : at<std::uint64_t>(data, watched.entry_stack, 0),
                        part(data, watched.size.part), part(data, watched.size.factor), part(data, watched.offset),
                        part(data, watched.file), std::move(path)});
  }

  void leave(std::uint64_t time, std::int32_t thread, const Watched& watched, std::uint64_t result,
             std::uint64_t stack = 0) {
    waiting_.push_back({time, thread, &watched, true, stack, result, unknown, unknown, unknown, {}});
  }

  void settle(std::uint64_t until) {
    const auto by_time = [](const auto& one, const auto& other) { return one.time < other.time; };
    std::stable_sort(waiting_.begin(), waiting_.end(), by_time);
    std::stable_sort(changes_.begin(), changes_.end(), by_time);
    std::size_t done = 0, changed = 0;
    const auto change_until = [&](std::uint64_t time) {
      while (changed < changes_.size() && changes_[changed].time <= time) apply(changes_[changed++]);
    };
    for (; done < waiting_.size() && waiting_[done].time <= until; ++done) {
      change_until(waiting_[done].time);
      take(waiting_[done]);
    }
    change_until(until);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(done));
    changes_.erase(changes_.begin(), changes_.begin() + static_cast<std::ptrdiff_t>(changed));
  }

  void take(const Event& event) {
    const std::int32_t process = process_of(event.thread);
    if (!event.exit && event.what->entry_stack != 0 && !left_out(process)) ++entries_;
    // In programs that run under the tracer, the tracer records exported functions.
    if (!event.what->attached_only || attached_.contains(process)) calls_.take(event);
  }

  std::int32_t process_of(std::int32_t thread) const {
    const auto found = process_.find(thread);
    return found == process_.end() ? thread : found->second;
  }

  void apply(const Change& change) {
    const std::int32_t process = process_of(change.thread);
    if (change.child == 0) {
      program_[process] = change.program;
      // The calls of the former program are over, and those of the loader for the next program belong to neither.
      Image& image = images_[process];
      image = {image.number + 1, change.time};
      if (const auto known = threads_.find(change.thread); known != threads_.end()) {
        if (known->second.writer && !known->second.writer->flush()) ++failed_;
        threads_.erase(known);
      }
    } else if (change.of_same_process) {
      process_[change.child] = process;
    } else {
      process_[change.child] = change.child;
      if (const auto known = program_.find(process); known != program_.end()) program_[change.child] = known->second;
      if (attached_.contains(process)) {
        attached_.insert(change.child);
      } else {
        attached_.erase(change.child);
      }
    }
  }

  /// A child that has not become another program is still recorded; some programs only start others.
  bool left_out(std::int32_t process) const {
    if (spec_.attached.contains(process)) return false;
    const auto known = program_.find(process);
    return known == program_.end() ||
           spec_.skipped.contains(std::string_view(known->second).substr(known->second.rfind('/') + 1));
  }

  void keep(std::int32_t id, const Record& record, std::uint64_t handle, const std::string& path) {
    if (left_out(process_of(id))) return;
    Thread& thread = threads_[id];
    if (!thread.writer && !begin(id, thread)) {
      ++failed_;
      return;
    }
    // A file's name is stored before the call that opened it, in the same block.
    std::size_t slots = path.empty() ? 0 : 1 + (path.size() + sizeof(Record) - 1) / sizeof(Record);
    if (thread.writer->room() < slots + 1) flush(thread);
    if (thread.writer->room() < slots + 1) slots = 0;
    if (slots != 0) {
      const Note note{record.begin, handle, path.size(), 0, record.file, note_function, record.depth, 0};
      put(*thread.writer, reinterpret_cast<const std::byte*>(&note), sizeof note);
      for (std::size_t done = 0; done < path.size(); done += sizeof(Record))
        put(*thread.writer, reinterpret_cast<const std::byte*>(path.data()) + done,
            std::min(sizeof(Record), path.size() - done));
    }
    ++(put(*thread.writer, reinterpret_cast<const std::byte*>(&record), sizeof record) ? kept_ : dropped_);
  }

  static bool put(RecordWriter& writer, const std::byte* from, std::size_t bytes) {
    auto* to = static_cast<std::byte*>(writer.reserve());
    if (to == nullptr) return false;
    std::memset(to, 0, sizeof(Record));
    std::memcpy(to, from, bytes);
    writer.commit();
    return true;
  }

  /// Beyond the limit nothing is flushed; records without room are counted in the thread's last block.
  void flush(Thread& thread) {
    const std::size_t bytes = thread.writer->buffered() * sizeof(Record);
    if (spec_.most_bytes != 0 && written_ + bytes > spec_.most_bytes) return;
    written_ += bytes;
    if (!thread.writer->flush()) ++failed_;
  }

  bool begin(std::int32_t id, Thread& thread) {
    const std::int32_t process = process_of(id);
    Facts facts = facts_of(process);
    if (facts.program.empty()) facts.program = program_[process];
    std::ostringstream path;
    const Image image = images_[process];
    path << spec_.folder << "/" << spec_.host << "-" << process << "-watch";
    if (image.number != 0) path << image.number;
    path << "-" << id << ".blk";
    auto sink = FileSink::create(path.str());
    if (!sink) return false;
    thread.sink = std::make_unique<FileSink>(std::move(*sink));
    std::ostringstream header;
    header << "{\"fields\":[[\"begin\",\"<u8\",[]],[\"end\",\"<u8\",[]],[\"size\",\"<u8\",[]],[\"offset\",\"<u8\",[]],["
              "\"file\",\"<u4\",[]],"
           << "[\"function\",\"<u2\",[]],[\"depth\",\"|u1\",[]],[\"flags\",\"|u1\",[]]],\"schema\":\"io/1\",\"host\":"
           << json_name(spec_.host) << ",\"pid\":" << process << ",\"parent\":" << facts.parent
           << ",\"rank\":" << facts.rank << ",\"program\":" << json_name(facts.program) << ",\"ticks\":\""
           << to_string(tick_kind) << "\",\"began_ticks\":" << began_ticks_ << ",\"began_ns\":" << began_ns_
           << ",\"began_utc_ns\":" << utc_ns() << ",\"image_ticks\":" << image.since
           << ",\"inherits\":\"\",\"inherited\":0,\"number\":" << id << ",\"watched\":1}";
    auto writer = RecordWriter::open(*thread.sink, {header.str(), sizeof(Record)}, buffered_records, 0);
    if (!writer) return false;
    thread.writer = std::make_unique<RecordWriter>(std::move(*writer));
    ++files_;
    const Record first{static_cast<std::uint64_t>(began_ticks_),
                       static_cast<std::uint64_t>(began_ns_),
                       static_cast<std::uint64_t>(id),
                       0,
                       0,
                       thread_function,
                       0,
                       0};
    std::memcpy(thread.writer->reserve(), &first, sizeof first);
    thread.writer->commit();
    return true;
  }

  std::int64_t utc_ns() const {
    timespec wall;
    ::clock_gettime(CLOCK_REALTIME, &wall);
    return std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec - now_ns() + began_ns_;
  }

  const Spec& spec_;
  std::vector<int> cpus_;
  std::vector<std::byte> page_ = std::vector<std::byte>(page_bytes);
  std::vector<Event> waiting_;
  Calls<std::function<void(std::int32_t, const Record&, std::uint64_t, const std::string&)>> calls_;
  std::vector<Change> changes_;
  std::map<std::int32_t, std::int32_t> process_;  // of threads that began while watching, or that were attached to
  std::map<std::int32_t, std::string> program_;   // of processes
  std::map<std::int32_t, Image> images_;          // of processes that became another
  std::set<std::int32_t> attached_;
  std::map<std::int32_t, Thread> threads_;
  std::int64_t began_ns_ = 0, began_ticks_ = 0;
  std::uint64_t kept_ = 0, lost_ = 0, dropped_ = 0, written_ = 0, failed_ = 0, files_ = 0, entries_ = 0;
  bool lost_unknown_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return fail({"io.bad_spec", "exactly one specification is needed", "sonde io run starts it"}, 2);
  if (std::string_view(argv[1]) == "--version") {
    std::cout << SONDE_VERSION << "\n";
    return 0;
  }
  if (std::string_view(argv[1]) == "--calls") {
    for (const auto& [name, number] : known_calls) std::cout << name << " " << number << "\n";
    return 0;
  }
  // A terminal's Ctrl-C is meant for the program that is watched. When Sonde is killed, standard input ends.
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  auto spec = parse_spec(whole(argv[1]));
  if (!spec) return fail(spec.error(), 2);
  Watch watch(*spec);
  rlimit files;
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;  // a file for each thread
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  if (auto opened = watch.open(); !opened) return fail(opened.error(), 3);
  emit(JsonLine().add("event", "start").add("ticks", to_string(tick_kind)));
  Control control(0, true);
  while (!control.stop_requested()) {
    ::usleep(pause_us);
    watch.drain();
  }
  // Sonde may have been killed; an active probe would slow down every program that passes it.
  std::ofstream(spec->tracing + "/events/enable") << "0\n";
  watch.drain();
  watch.end();
  emit(watch.told());
  return 0;
}
