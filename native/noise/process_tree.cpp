#include "noise/process_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <set>

// Headers of kernels before 5.3 lack these; the numbers are the same on every architecture except alpha.
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

namespace sonde::noise {

namespace {

std::vector<pid_t> numbers_in(const std::string& folder) {
  std::vector<pid_t> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(folder.c_str()), &::closedir);
  if (!dir) return out;
  while (const dirent* entry = ::readdir(dir.get())) {
    pid_t number = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    if (const auto [at, err] = std::from_chars(entry->d_name, end, number); err == std::errc{} && at == end)
      out.push_back(number);
  }
  return out;
}

std::string place_of(pid_t pid) { return "/proc/" + std::to_string(pid); }
std::string place_of(pid_t pid, pid_t thread) { return place_of(pid) + "/task/" + std::to_string(thread); }

// proc(5): "pid (command) state ppid …"; the command may contain blanks and brackets, so the last ')' ends it.
bool parse_stat(const std::string& text, Process& out) {
  const std::size_t open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close + 2 >= text.size()) return false;
  out.command = text.substr(open + 1, close - open - 1);
  out.state = text[close + 2];
  static const double tick_s = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  static const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const char* at = text.c_str() + close + 3;
  for (int field = 4; field <= 24; ++field) {
    char* end = nullptr;
    const long long value = std::strtoll(at, &end, 10);
    if (end == at) return false;
    at = end;
    if (field == 4) out.parent = static_cast<pid_t>(value);
    if (field == 16 || field == 17) out.children_s += static_cast<double>(value) * tick_s;
    if (field == 22) out.started_ticks = static_cast<std::uint64_t>(value);
    if (field == 24) out.rss_bytes = static_cast<std::uint64_t>(value) * page;
  }
  return true;
}

// The CPU time of all threads of a process, including ended ones. The clock id is the kernel's MAKE_PROCESS_CPUCLOCK.
std::optional<double> process_clock_s(pid_t pid) {
  clockid_t clock;
  timespec t;
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &t) != 0) return std::nullopt;
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace

std::optional<std::string> read_text(const std::string& path, std::size_t limit) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text;
  std::size_t have = 0;
  while (have < limit) {
    if (have == text.size()) text.resize(std::min(limit, std::max<std::size_t>(2 * have, 4096)));
    const ssize_t n = ::read(fd, text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      ::close(fd);
      return std::nullopt;
    }
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
  }
  ::close(fd);
  text.resize(have);
  return text;
}

Process read_process(pid_t pid) {
  Process out;
  const auto text = read_text(place_of(pid) + "/stat");
  if (text && parse_stat(*text, out)) out.pid = pid;
  return out;
}

std::vector<Process> descendants(pid_t root, const std::vector<pid_t>& except) {
  std::multimap<pid_t, Process> by_parent;
  for (const pid_t pid : numbers_in("/proc"))
    if (Process process = read_process(pid); process.pid != 0) by_parent.emplace(process.parent, std::move(process));
  std::vector<Process> out;
  std::vector<pid_t> parents{root};
  for (std::size_t next = 0; next < parents.size(); ++next) {
    const auto [begin, end] = by_parent.equal_range(parents[next]);
    for (auto it = begin; it != end; ++it) {
      if (std::find(except.begin(), except.end(), it->second.pid) != except.end()) continue;
      parents.push_back(it->second.pid);
      out.push_back(it->second);
    }
  }
  return out;
}

bool send_signal(const Process& process, int number) {
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0U));
  if (fd < 0 && errno == ESRCH) return false;
  // Read the process after the pidfd is open, so that both are surely the same process.
  const Process now = read_process(process.pid);
  int why = ESRCH;
  if (now.pid != 0 && now.started_ticks == process.started_ticks) {
    const bool sent =
        fd >= 0 ? ::syscall(SYS_pidfd_send_signal, fd, number, nullptr, 0U) == 0 : ::kill(process.pid, number) == 0;
    why = sent ? 0 : errno;
  }
  if (fd >= 0) ::close(fd);
  errno = why;
  return why == 0;
}

int kill_carriers(std::string_view entry) {
  int sent = 0;
  for (const pid_t pid : carriers(entry)) {
    const Process process = read_process(pid);
    if (process.pid == 0 || process.state == 'Z' || pid == ::getpid() || !carries(pid, entry)) continue;
    sent += send_signal(process, SIGKILL) ? 1 : 0;  // EPERM: it has changed its user, so we cannot end it
  }
  return sent;
}

std::string signal_text(int number) {
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 32)
  if (const char* name = ::sigabbrev_np(number)) return "signal " + std::to_string(number) + " (SIG" + name + ")";
#endif
#endif
  const char* words = ::strsignal(number);
  return "signal " + std::to_string(number) + (words ? " (" + std::string(words) + ")" : "");
}

std::string status_text(int status) {
  return WIFSIGNALED(status) ? signal_text(WTERMSIG(status)) : "exit status " + std::to_string(WEXITSTATUS(status));
}

std::vector<pid_t> threads_of(pid_t pid) { return numbers_in(place_of(pid) + "/task"); }

char busiest_state(pid_t pid) {
  const auto threads = threads_of(pid);
  bool stopped = false;
  for (const pid_t thread : threads) {
    const auto text = read_text(place_of(pid, thread) + "/stat");
    Process state;
    if (!text || !parse_stat(*text, state)) continue;
    if (state.state == 'T') stopped = true;
    else if (state.state != 'Z' && state.state != 'X') return state.state;
  }
  return stopped ? 'T' : 'X';
}

bool carries(pid_t pid, std::string_view entry) {
  const auto text = read_text(place_of(pid) + "/environ", std::size_t{1} << 20);
  if (!text) return false;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\0', begin), text->size());
    if (std::string_view(*text).substr(begin, end - begin) == entry) return true;
    begin = end + 1;
  }
  return false;
}

std::vector<pid_t> carriers(std::string_view entry) {
  std::vector<pid_t> out;
  for (const pid_t pid : numbers_in("/proc"))
    if (carries(pid, entry)) out.push_back(pid);
  return out;
}

std::uint64_t wakeups_of(pid_t pid, pid_t thread) {
  if (const auto text = read_text(place_of(pid, thread) + "/schedstat")) {
    unsigned long long run = 0, wait = 0, slices = 0;
    if (std::sscanf(text->c_str(), "%llu %llu %llu", &run, &wait, &slices) == 3) return slices;
  }
  std::uint64_t sum = 0;
  if (const auto text = read_text(place_of(pid, thread) + "/status"))
    for (const char* name : {"\nvoluntary_ctxt_switches:", "\nnonvoluntary_ctxt_switches:"})
      if (const std::size_t at = text->find(name); at != std::string::npos)
        sum += std::strtoull(text->c_str() + at + std::strlen(name), nullptr, 10);
  return sum;
}

std::uint64_t Ledger::Known::wakeups() const {
  std::uint64_t sum = ended;
  for (const auto& [thread, wakeups] : threads) sum += wakeups;
  return sum;
}

void Ledger::look(const std::vector<Process>& processes) {
  double live_s = 0;
  threads_ = 0;
  std::set<Name> seen;
  for (const auto& process : processes) {
    live_s += process.children_s;
    // The clock of a zombie has stopped but can be read; its threads cannot.
    live_s += process_clock_s(process.pid).value_or(0);
    const Name name{process.pid, process.started_ticks};
    seen.insert(name);
    if (process.state == 'Z' || process.state == 'X') continue;
    Known& known = known_[name];
    std::map<pid_t, std::uint64_t> now;
    for (const pid_t thread : threads_of(process.pid)) now[thread] = wakeups_of(process.pid, thread);
    threads_ += static_cast<int>(now.size());
    for (const auto& [thread, wakeups] : known.threads)
      if (const auto it = now.find(thread); it == now.end() || it->second < wakeups) known.ended += wakeups;
    known.threads = std::move(now);
  }
  for (auto it = known_.begin(); it != known_.end();) {
    if (seen.count(it->first)) {
      ++it;
    } else {  // its own parent reaped it, and its CPU time is in the parent's children_s
      ended_wakeups_ += it->second.wakeups();
      it = known_.erase(it);
    }
  }
  // The exact time of a child becomes whole ticks of its parent. This must not make the sum smaller.
  total_cpu_s_ = std::max(total_cpu_s_, reaped_cpu_s_ + live_s);
}

void Ledger::reaped(pid_t pid, double cpu_s, std::uint64_t switches) {
  reaped_cpu_s_ += cpu_s;
  total_cpu_s_ = std::max(total_cpu_s_, reaped_cpu_s_);
  const auto it = known_.lower_bound({pid, 0});
  if (it != known_.end() && it->first.first == pid) {
    ended_wakeups_ += std::max(it->second.wakeups(), switches);
    known_.erase(it);
  } else {
    ended_wakeups_ += switches;
  }
}

std::uint64_t Ledger::wakeups() const {
  std::uint64_t sum = ended_wakeups_;
  for (const auto& [name, known] : known_) sum += known.wakeups();
  return sum;
}

}  // namespace sonde::noise
