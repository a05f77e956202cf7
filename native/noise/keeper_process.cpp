// The supervisor. Publishes: an answer to each request on its socket. Consumes: requests. When its parent goes silent
// (the socket ends, or SIGTERM comes), it ends the agent and all processes that the agent started, removes the scratch
// folder, and exits. If a signal or an exception makes it exit early, its last answer reports this.
// Long because: one process that waits in one place; each part of its class must be able to step() the others.

#include "noise/keeper_process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <fstream>
#include <functional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/owned_file.hpp"
#include "core/text.hpp"
#include "noise/process_tree.hpp"
#include "noise/scrape.hpp"
#include "noise/shared_names.hpp"

namespace sonde::noise {

namespace {

constexpr double drive_deadline_s = 5, lived_s = 0.2;
constexpr int cpus_most = 65536;

std::string why() { return std::generic_category().message(errno); }

std::string told(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

std::string named(const Process& process) { return process.command + " (process " + std::to_string(process.pid) + ")"; }

double seconds(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; }
double cpu_of(const rusage& used) { return seconds(used.ru_utime) + seconds(used.ru_stime); }

// A set of cores of any size; the kernel reduces it to the cores that this process may use.
class Cores {
 public:
  Cores() : set_(CPU_ALLOC(cpus_most)), bytes_(CPU_ALLOC_SIZE(cpus_most)) { clear(); }
  Cores(const Cores& other) : Cores() { *this = other; }
  Cores& operator=(const Cores& other) {
    if (this != &other) std::memcpy(set_, other.set_, bytes_);
    return *this;
  }
  ~Cores() { CPU_FREE(set_); }
  void clear() { CPU_ZERO_S(bytes_, set_); }
  void fill() { std::memset(set_, 0xff, bytes_); }
  void add(int cpu) { CPU_SET_S(static_cast<std::size_t>(cpu), bytes_, set_); }
  bool has(int cpu) const { return CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes_, set_); }
  bool read(pid_t thread) { return ::sched_getaffinity(thread, bytes_, set_) == 0; }
  bool give(pid_t thread) const { return ::sched_setaffinity(thread, bytes_, set_) == 0; }

 private:
  cpu_set_t* set_;
  std::size_t bytes_;
};

class KeeperProcess {
 public:
  KeeperProcess(int socket, int stderr_fd, Roll& roll) : socket_(socket), self_(::getpid()), roll_(roll) {
    settle_in(stderr_fd);
  }

  [[noreturn]] void serve() {
    try {
      serve_requests();
    } catch (const std::exception& error) {
      // Without this catch, the exception would end this process at once, and the agent would go on without it.
      leaving_ = std::string("failed: ") + error.what();
    }
    try {
      (void)stop();
    } catch (const std::exception& error) {  // the parent ends the remaining processes
      leaving_ += std::string(leaving_.empty() ? "failed" : "; then") + " while it ended the agent: " + error.what();
    }
    if (leaving_.empty()) ::_exit(0);
    const std::string answer = failure(
        {keeper_died,
         "the agent's supervisor (process " + std::to_string(self_) + ") " + leaving_ + "; the agent has been ended",
         "run it again"});
    ::send(socket_, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::_exit(1);
  }

 private:
  void serve_requests() {
    std::string packet(packet_bytes, '\0');
    while (!orphaned_) {
      if (!step(next_due_s(), Hear::requests)) continue;
      const ssize_t n = ::recv(socket_, packet.data(), packet.size(), 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) leaving_ = "could not read requests of its parent: " + why();
      if (n <= 0) return;
      const std::string answer = answer_to(std::string_view(packet).substr(0, static_cast<std::size_t>(n)));
      if (!leaving_.empty()) return;  // a signal ended it in the meantime; this matters more than the answer
      if (::send(socket_, answer.data(), answer.size(), MSG_NOSIGNAL) >= 0) continue;
      if (errno != EPIPE) leaving_ = "could not answer: " + why();
      return;
    }
  }

  static std::string failure(const Error& error) {
    return "-" + Packer().put(error.code).put(error.what).put(error.hint).text();
  }

  enum class State : std::uint8_t { none, running, paused, dead };
  enum class Hear : std::uint8_t { requests, end, nothing };  // from the parent, while waiting

  // The rank's descriptors must be closed: its launcher waits for their end, and MPICH detects the death of the rank by
  // the end of its PMI socket. The binding to a core must be undone, because the agent in production has none.
  void settle_in(int stderr_fd) {
    // A rank without standard descriptors.
    if (socket_ <= 2) socket_ = ::fcntl(socket_, F_DUPFD_CLOEXEC, 3);
    if (stderr_fd >= 0 && stderr_fd <= 2) stderr_fd = ::fcntl(stderr_fd, F_DUPFD_CLOEXEC, 3);
    ::setsid();
    ::prctl(PR_SET_NAME, "sonde-keeper");
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const int null = ::open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) ::dup2(null, fd);
    if (stderr_fd >= 0) ::dup2(stderr_fd, 2);
    close_all_but(socket_);
    sigset_t mask;
    sigfillset(&mask);
    ::sigprocmask(SIG_BLOCK, &mask, nullptr);
    for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
    struct sigaction quiet{};
    quiet.sa_handler = SIG_DFL;
    quiet.sa_flags = SA_NOCLDSTOP;  // no signal for a child that we stop
    ::sigaction(SIGCHLD, &quiet, nullptr);
    sigemptyset(&mask);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&mask, number);
    signals_ = ::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    Cores all;
    all.fill();
    all.give(0);
    allowed_.read(0);
    placed_ = allowed_;
    ::syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL);
  }

  static void close_all_but(int kept) {
    std::vector<int> open;
    if (DIR* dir = ::opendir("/proc/self/fd")) {
      while (const dirent* entry = ::readdir(dir)) {
        const int fd = std::atoi(entry->d_name);
        if (fd > 2 && fd != kept && fd != ::dirfd(dir)) open.push_back(fd);
      }
      ::closedir(dir);
    }
    for (const int fd : open) ::close(fd);
  }

  // ---- one wait, which handles everything that may happen

  /// Waits until `until_s` (0: for ever) or until something happens. True when there is a request.
  bool step(double until_s, Hear hear) {
    pollfd fds[3] = {
        {hear == Hear::nothing ? -1 : socket_, static_cast<short>(hear == Hear::requests ? POLLIN : POLLRDHUP), 0},
        {signals_, POLLIN, 0},
        {-1, 0, 0}};
    if (scrape_.under_way()) fds[2] = {scrape_.fd(), scrape_.events(), 0};
    timespec wait{}, *limit = nullptr;
    if (until_s > 0) {
      const double left = std::max(until_s - now_s(), 0.0);
      wait.tv_sec = static_cast<time_t>(left);
      wait.tv_nsec = static_cast<long>((left - static_cast<double>(wait.tv_sec)) * 1e9);
      limit = &wait;
    }
    const int n = ::ppoll(fds, 3, limit, nullptr);
    if (n > 0 && fds[1].revents) hear_signals();
    if (n > 0 && fds[2].revents && scrape_.advance()) scrape_over();
    see_to_drive();
    if (n <= 0 || fds[0].revents == 0) return false;
    if (hear == Hear::end) orphaned_ = true;
    return hear == Hear::requests;
  }

  /// Steps until the condition is true or the deadline has passed; with Hear::end also until the parent has ended.
  /// Tests the condition every `period_s`, and after each event.
  bool wait_for(double deadline_s, double period_s, Hear hear, const std::function<bool()>& true_now) {
    const double until = now_s() + deadline_s;
    while (!true_now()) {
      if ((hear == Hear::end && orphaned_) || now_s() >= until) return false;
      step(std::min(until, now_s() + period_s), hear);
    }
    return true;
  }

  void hear_signals() {
    signalfd_siginfo info;
    while (::read(signals_, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) continue;
      orphaned_ = true;
      if (!leaving_.empty()) continue;
      leaving_ = "was ended by " + signal_text(static_cast<int>(info.ssi_signo));
      if (info.ssi_pid == 0) continue;
      const Process sender = read_process(static_cast<pid_t>(info.ssi_pid));
      leaving_ += " from " + (sender.pid != 0 ? named(sender) : "process " + std::to_string(info.ssi_pid));
    }
    reap();
  }

  void reap() {
    int status = 0;
    rusage used{};
    pid_t pid = 0;
    while ((pid = ::wait4(-1, &status, WNOHANG, &used)) > 0) {
      if (pid == drive_pid_) {
        client_cpu_s_ += cpu_of(used);
        drive_pid_ = -1;
        drive_over(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : "its command ended with " + status_text(status),
                   0);
        continue;
      }
      if (pid == stop_pid_) {
        client_cpu_s_ += cpu_of(used);
        stop_pid_ = -1;
        continue;
      }
      if (pid == leader_) {
        leader_ = -1;
        leader_status_ = status;
      }
      ledger_.reaped(pid, cpu_of(used), static_cast<std::uint64_t>(used.ru_nvcsw + used.ru_nivcsw));
    }
    childless_ = pid < 0 && errno == ECHILD;  // a subreaper without children has no descendants
  }

  // ---- the agent

  std::vector<Process> tree() const {
    std::vector<pid_t> except;
    if (drive_pid_ > 0) except.push_back(drive_pid_);
    if (stop_pid_ > 0) except.push_back(stop_pid_);
    auto found = descendants(self_, except);
    roll_.write(found);
    return found;
  }

  /// Whether the agent has ended by itself. If its first process succeeds, a daemon may go on. If its first process
  /// fails, the agent has failed, even if other processes go on.
  bool ended() {
    reap();
    if (leader_ > 0) return false;
    return leader_status_ != 0 || childless_;
  }

  std::string with_tail(const std::string& hint) const {
    const std::string tail = log_tail(log_path_, log_start_);
    if (tail.empty()) return hint;
    return hint + (hint.empty() ? "" : "; ") + "its log ends with" + tail;
  }

  Result<std::string> filled(std::string text) const {
    text = replaced(std::move(text), "{dir}", folder_);
    if (text.find("{port}") == std::string::npos) return text;
    std::ifstream file(folder_ + "/port");
    int port = 0;
    if (!(file >> port) || port < 1 || port > 65535)
      return Error{"noise.agent_no_port", "the agent has not written its port to " + folder_ + "/port", ""};
    return replaced(std::move(text), "{port}", std::to_string(port));
  }

  static bool accepts(int port, const std::function<void(int)>& wait) {
    for (const bool six : {false, true}) {
      bool done = false;
      const int fd = connect_loopback(port, six, done);
      if (fd < 0) continue;
      if (!done) wait(fd);
      int error = 0;
      socklen_t size = sizeof error;
      const bool good = ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
      ::close(fd);
      if (good) return true;
    }
    return false;
  }
  static bool accepts(int port) {
    return accepts(port, [](int fd) {
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, 200);
    });
  }

  using Stamp = std::pair<std::uint64_t, std::int64_t>;
  static Stamp stamp_of(const std::string& path) {
    struct stat found{};
    if (::stat(path.c_str(), &found) != 0) return {0, 0};
    return {found.st_ino, std::int64_t{found.st_ctim.tv_sec} * 1'000'000'000 + found.st_ctim.tv_nsec};
  }

  bool ready(double began, const Stamp& before) {
    const std::size_t colon = spec_.ready.find(':');
    if (colon == std::string::npos) return now_s() >= began + lived_s;
    const std::string kind = spec_.ready.substr(0, colon);
    const auto value = filled(spec_.ready.substr(colon + 1));
    if (!value) return false;
    if (kind == "for") return now_s() >= began + std::strtod((*value).c_str(), nullptr);
    if (kind == "port") return accepts(std::atoi((*value).c_str()));
    const Stamp now = stamp_of(*value);
    return now.first != 0 && now != before;
  }

  /// Starts the agent in its folder and waits until it is ready. After a failure, its processes still exist.
  Result<void> launch() {
    const bool by_port = spec_.ready.rfind("port:", 0) == 0, by_file = spec_.ready.rfind("file:", 0) == 0;
    if (by_port && spec_.ready != "port:{port}" && accepts(std::atoi(spec_.ready.c_str() + 5)))
      return Error{"noise.agent_port_taken",
                   "port " + spec_.ready.substr(5) + ", which shows that the agent is ready, is already in use",
                   "end the program that uses it (ss -ltnp), or give the agent another port"};
    const Stamp before = by_file ? stamp_of(replaced(spec_.ready.substr(5), "{dir}", folder_)) : Stamp{};
    log_path_ = spec_.log_path.empty() ? folder_ + "/agent.log" : spec_.log_path;
    const auto opened = append_to_file(log_path_);
    if (!opened)
      return Error{"noise.agent_no_log", "cannot write the agent's log " + log_path_ + ": " + opened.error().what,
                   "choose another --output, in a folder that every node can write to"};
    const int log = *opened;
    log_start_ = ::lseek(log, 0, SEEK_END);
    leader_status_ = 0;
    childless_ = false;
    const double began = now_s();
    shared_.begin();
    const pid_t child = run(spec_.command, log);
    ::close(log);
    if (child < 0)
      return Error{"noise.agent_ended", "the agent could not be started: " + why(), "check ulimit -u on the node"};
    leader_ = child;
    bool over = false;
    const bool good =
        wait_for(spec_.ready_deadline_s, 0.01, Hear::end, [&] { return (over = ended()) || ready(began, before); });
    over = over || ended();
    if (over) {
      const std::string how = status_text(leader_status_);
      return Error{"noise.agent_ended", "the agent ended at once, with " + how,
                   with_tail(WIFEXITED(leader_status_) && WEXITSTATUS(leader_status_) == 127
                                 ? "check that the command is right and on PATH on every node"
                                 : "")};
    }
    if (!good)
      return Error{"noise.agent_not_ready",
                   "the agent was not ready (" + (spec_.ready.empty() ? std::string("alive") : spec_.ready) +
                       ") within " + told(spec_.ready_deadline_s),
                   with_tail("allow more time, or check the sign that it is ready")};
    (void)tree();  // writes the processes to the roll
    return {};
  }

  /// Starts a shell with its own session and the agent's environment; -1 when it could not be forked.
  pid_t run(const std::string& command, int output) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != self_) ::_exit(127);
    ::setsid();
    ::dup2(output, 1);
    ::dup2(output, 2);
    ::setenv("SONDE_AGENT_DIR", folder_.c_str(), 1);
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &plain, nullptr);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }

  Result<void> start(Unpacker in) {
    spec_ = {};
    in.get(folder_)
        .get(spec_.command)
        .get(spec_.log_path)
        .get(spec_.pause)
        .get(spec_.ready)
        .get(spec_.ready_deadline_s)
        .get(spec_.drive)
        .get(spec_.drive_period_s)
        .get(spec_.drive_phase)
        .get(spec_.stop_command)
        .get(spec_.grace_s);
    clear_stale_folders();
    folder_lock_ = ::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder_lock_ >= 0) ::flock(folder_lock_, LOCK_EX | LOCK_NB);
    if (auto done = launch(); !done) {
      (void)stop();
      return done;
    }
    set_running();
    return {};
  }

  void set_running() {
    state_ = State::running;
    drive_due_s_ = spec_.drive.empty() ? 0 : now_s() + spec_.drive_phase * spec_.drive_period_s;
  }

  // When a supervisor and its rank are both killed, their folder stays, and no process has it locked. A new folder
  // without a lock may belong to a supervisor that is about to lock it.
  void clear_stale_folders() const {
    const std::string above = folder_.substr(0, folder_.rfind('/'));
    DIR* dir = ::opendir(above.c_str());
    if (!dir) return;
    while (const dirent* entry = ::readdir(dir)) {
      if (std::string_view(entry->d_name).rfind(folder_prefix, 0) != 0) continue;
      const std::string path = above + "/" + entry->d_name;
      struct stat found{};
      if (path == folder_ || ::lstat(path.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
          found.st_uid != ::geteuid() || found.st_mtim.tv_sec > ::time(nullptr) - 60)
        continue;
      const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (fd < 0) continue;
      if (::flock(fd, LOCK_EX | LOCK_NB) == 0) remove_folder(path);
      ::close(fd);
    }
    ::closedir(dir);
  }

  Error died() {
    state_ = State::dead;
    drive_due_s_ = 0;
    cut_drive("the agent died");
    death_ = status_text(leader_status_);
    const std::string tail = with_tail("");
    (void)end_all(false);
    return {"noise.agent_died", "the agent died by itself, with " + death_, tail};
  }

  Error out_of_order(const char* what) const {
    if (state_ == State::dead)
      return {"noise.agent_died", "the agent has died, with " + death_ + ", and cannot be " + what, ""};
    return {"noise.agent_not_started", std::string("there is no agent to be ") + what, "start one first"};
  }

  // ---- pause and resume

  Result<void> pause() {
    if (state_ == State::paused) return {};
    if (state_ != State::running) return out_of_order("paused");
    drive_due_s_ = 0;
    wait_for(settle_s, 0.05, Hear::end, [&] { return !driving(); });
    cut_drive("cut by a pause");
    if (ended()) return died();
    if (spec_.pause == AgentSpec::start_stop) {
      if (auto done = end_all(true); !done) return done;
    } else if (auto done = stop_all(); !done) {
      go_on();
      set_running();
      return done;
    }
    if (spec_.pause == AgentSpec::stop_cont && ended()) {
      go_on();
      return died();
    }
    ledger_.look(stopped_);
    paused_mark_s_ = ledger_.cpu_s();
    state_ = State::paused;
    return {};
  }

  /// Stops parents first, so that no parent reacts to a stopped child. Repeats, because a process may fork in the
  /// meantime.
  Result<void> stop_all() {
    const double until = now_s() + pause_deadline_s;
    double let_go = now_s() + 0.02;
    Process awake;
    char state = '?';
    while (true) {
      stopped_ = tree();
      awake = {};
      for (const auto& process : stopped_) {
        if (process.state == 'Z' || process.state == 'X') continue;
        if (!send_signal(process, SIGSTOP) && errno == EPERM)
          return Error{"noise.agent_not_permitted",
                       "may not pause " + named(process) + " of the agent: it runs as another user",
                       "run Sonde as root, or let the agent keep its user"};
        // A thread that was just stopped goes on until it next leaves the kernel or is interrupted. So the state is
        // read again in the next round, and only a round in which all threads are stopped counts.
        const char busiest = busiest_state(process.pid);
        if (busiest != 'T' && busiest != 'X' && awake.pid == 0) {
          awake = process;
          state = busiest;
        }
      }
      if (awake.pid == 0) {
        std::set<pid_t> before;
        for (const auto& process : stopped_) before.insert(process.pid);
        auto now = tree();
        for (const auto& process : now)
          if (!before.count(process.pid) && process.state != 'Z') awake = process;
        if (awake.pid == 0) {
          stopped_ = std::move(now);  // includes processes that have just ended, because they used CPU time
          return {};
        }
        state = awake.state;
      }
      if (orphaned_ || now_s() > until) break;
      // After a vfork, the parent waits uninterruptibly ('D') for a child that was stopped before its exec.
      if (now_s() > let_go) {
        go_on();
        let_go = now_s() + 0.02;
      }
      step(now_s() + 1e-3, Hear::end);
    }
    return Error{"noise.agent_not_paused",
                 "the agent could not be paused: " + named(awake) + " was still in state " + state + " after " +
                     told(pause_deadline_s),
                 "pause it by ending and starting it (--pause start-stop)"};
  }

  void go_on() {
    for (auto it = stopped_.rbegin(); it != stopped_.rend(); ++it) send_signal(*it, SIGCONT);
    stopped_.clear();
  }

  Result<void> resume() {
    if (state_ == State::running) return ended() ? Result<void>(died()) : Result<void>();
    if (state_ != State::paused) return out_of_order("resumed");
    if (spec_.pause == AgentSpec::start_stop) {
      empty_folder();
      if (auto done = launch(); !done) {
        death_ = leader_ > 0 ? "no sign that it was ready after its restart" : status_text(leader_status_);
        (void)end_all(false);
        state_ = State::dead;
        return done;
      }
    } else {
      if (ended()) return died();
      paused_cpu_s_ += used_while_paused();
      go_on();
    }
    set_running();
    return {};
  }

  double used_while_paused() {
    if (spec_.pause == AgentSpec::start_stop) return 0;
    for (auto& process : stopped_)
      if (const Process now = read_process(process.pid); now.started_ticks == process.started_ticks) process = now;
    ledger_.look(stopped_);
    return std::max(ledger_.cpu_s() - paused_mark_s_, 0.0);
  }

  void empty_folder() const {
    DIR* dir = ::opendir(folder_.c_str());
    if (!dir) return;
    while (const dirent* entry = ::readdir(dir))
      if (std::string_view name = entry->d_name; name != "." && name != "..")
        remove_folder(folder_ + "/" + entry->d_name);
    ::closedir(dir);
  }

  // ---- the end

  Result<void> stop() {
    drive_due_s_ = 0;
    cut_drive("cut by the end");
    auto done = end_all(state_ == State::running || state_ == State::paused);
    if (!done) return done;
    remove_folder(folder_);
    if (folder_lock_ >= 0) ::close(folder_lock_);
    folder_lock_ = -1;
    folder_.clear();
    state_ = State::none;
    return {};
  }

  /// Runs the stop command (if `asked_nicely`), then sends SIGTERM and SIGKILL, until no process is left.
  Result<void> end_all(bool asked_nicely) {
    drive_due_s_ = 0;
    if (asked_nicely && !spec_.stop_command.empty() && !childless_) {
      go_on();
      const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
      const auto opened = append_to_file(log_path_);
      const int log = opened ? *opened : -1;
      stop_pid_ = run(spec_.stop_command, log >= 0 ? log : null);
      if (log >= 0) ::close(log);
      ::close(null);
      wait_for(spec_.grace_s, 0.05, Hear::nothing, [&] { return reap(), stop_pid_ < 0; });
      if (stop_pid_ > 0) kill_below(stop_pid_);
      wait_for(1, 0.05, Hear::nothing, [&] { return reap(), childless_; });
    }
    ledger_.look(tree());
    shared_.look(tree());
    std::set<std::pair<pid_t, std::uint64_t>> asked;
    Process denied;
    bool gone = wait_for(spec_.grace_s, 0.02, Hear::nothing, [&] {
      if (reap(), childless_) return true;
      // SIGTERM comes before SIGCONT: a stopped process then ends before it does more work.
      for (const auto& process : tree())
        if (process.state != 'Z' && asked.insert({process.pid, process.started_ticks}).second) {
          if (!send_signal(process, SIGTERM) && errno == EPERM) denied = process;
          send_signal(process, SIGCONT);
        }
      return false;
    });
    Process last;
    gone = gone || wait_for(kill_deadline_s, 0.005, Hear::nothing, [&] {
             if (reap(), childless_) return true;
             last = {};
             for (const auto& process : tree()) {
               if (process.state == 'Z') continue;
               last = process;
               if (!send_signal(process, SIGKILL) && errno == EPERM) denied = process;
             }
             return false;
           });
    stopped_.clear();
    leader_ = gone ? -1 : leader_;
    if (gone) shared_.remove();
    if (gone) return {};
    if (denied.pid != 0)
      return Error{"noise.agent_not_permitted",
                   "may not end " + named(denied) + " of the agent: it runs as another user",
                   "end it as root: kill " + std::to_string(denied.pid)};
    return Error{"noise.agent_not_ended",
                 named(last) + " of the agent still existed (state " + last.state + ") " + told(kill_deadline_s) +
                     " after SIGKILL",
                 "it waits for the kernel; its stack is in /proc/" + std::to_string(last.pid) + "/stack"};
  }

  void kill_below(pid_t root) {
    for (const auto& process : descendants(root)) send_signal(process, SIGKILL);
    ::kill(root, SIGKILL);  // our child, not reaped yet, so its pid cannot have been reused
  }

  // ---- drives

  bool driving() const { return scrape_.under_way() || drive_pid_ > 0; }

  double next_due_s() const {
    if (driving()) return drive_.begin_s + drive_deadline_s;
    return drive_due_s_;
  }

  void see_to_drive() {
    if (driving()) {
      if (now_s() >= drive_.begin_s + drive_deadline_s) cut_drive("no end within " + told(drive_deadline_s));
      return;
    }
    if (drive_due_s_ <= 0 || now_s() < drive_due_s_ || state_ != State::running) return;
    while (drive_due_s_ <= now_s()) drive_due_s_ += spec_.drive_period_s;  // missed drives are not repeated
    drive_ = {};
    drive_.begin_s = now_s();
    const auto what = filled(spec_.drive);
    if (!what) return drive_over(what.error().what, 0);
    if ((*what).rfind("sh:", 0) == 0) {
      const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
      const auto opened = append_to_file(log_path_);
      const int log = opened ? *opened : -1;
      drive_pid_ = run((*what).substr(3), log >= 0 ? log : null);
      if (log >= 0) ::close(log);
      ::close(null);
      if (drive_pid_ < 0) drive_over("its command could not be started: " + why(), 0);
      return;
    }
    const auto target = parse_target(*what);
    if (!target) return drive_over(target.error().what, 0);
    scrape_.begin(*target);
    if (!scrape_.under_way() || scrape_.advance()) scrape_over();
  }

  void scrape_over() { drive_over(scrape_.failure(), scrape_.bytes()); }

  void drive_over(const std::string& failure, std::uint64_t bytes) {
    drive_.took_s = now_s() - drive_.begin_s;
    drive_.bytes = bytes;
    drive_.done = failure.empty();
    drive_bytes_ += bytes;
    if (drive_.done) {
      drive_s_ += drive_.took_s;
      drive_min_s_ = drives_done_ == 0 ? drive_.took_s : std::min(drive_min_s_, drive_.took_s);
      drive_max_s_ = std::max(drive_max_s_, drive_.took_s);
      ++drives_done_;
    } else {
      drive_failure_ = failure;
      ++drives_failed_;
    }
    drives_.push_back(drive_);
    if (drives_.size() > drives_kept) drives_.pop_front();
  }

  void cut_drive(const std::string& because) {
    if (scrape_.under_way()) {
      const std::uint64_t bytes = scrape_.bytes();
      scrape_.close();
      drive_over(because, bytes);
    }
    if (drive_pid_ > 0) {
      kill_below(drive_pid_);
      int status = 0;
      rusage used{};
      while (::wait4(drive_pid_, &status, 0, &used) < 0 && errno == EINTR) {}
      client_cpu_s_ += cpu_of(used);
      drive_pid_ = -1;
      drive_over(because, 0);
    }
  }

  // ---- placement and usage

  Result<void> place(Unpacker in) {
    std::uint32_t count = 0;
    in.get(count);
    Cores wanted;
    for (std::uint32_t k = 0; k < count; ++k) {
      int cpu = 0;
      in.get(cpu);
      if (cpu < 0 || cpu >= cpus_most || !allowed_.has(cpu)) {
        std::string may;
        for (int first = 0; first < cpus_most; ++first) {
          if (!allowed_.has(first)) continue;
          int last = first;
          while (last + 1 < cpus_most && allowed_.has(last + 1)) ++last;
          may += (may.empty() ? "" : ",") + std::to_string(first) + (last > first ? "-" + std::to_string(last) : "");
          first = last;
        }
        return Error{"noise.agent_bad_cpus",
                     "the agent may not use core " + std::to_string(cpu) + " here; allowed: " + may, ""};
      }
      wanted.add(cpu);
    }
    placed_ = count == 0 ? allowed_ : wanted;
    placed_.give(0);
    std::set<pid_t> bound;
    // A thread that an unbound thread has started in the meantime is found in the next round.
    for (int round = 0; round < 20; ++round) {
      bool more = false;
      for (const auto& process : tree())
        for (const pid_t thread : threads_of(process.pid)) {
          if (!bound.insert(thread).second) continue;
          more = true;
          if (!placed_.give(thread) && errno == EPERM)
            return Error{"noise.agent_not_permitted",
                         "may not bind " + named(process) + " of the agent: it runs as another user",
                         "run Sonde as root, or let the agent keep its user"};
        }
      if (!more) break;
    }
    return {};
  }

  std::string usage() {
    if ((state_ == State::running || state_ == State::paused) &&
        !(state_ == State::paused && spec_.pause == AgentSpec::start_stop) && ended())
      (void)died();
    const auto now = tree();
    ledger_.look(now);
    const bool held = state_ == State::paused && spec_.pause == AgentSpec::stop_cont;
    int processes = 0;
    std::uint64_t rss = 0;
    std::vector<pid_t> pids;
    for (const auto& process : now) {
      if (process.state == 'Z') continue;
      ++processes;
      rss += process.rss_bytes;
      if (pids.size() < pids_told) pids.push_back(process.pid);
    }
    timespec own{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    Packer out;
    out.put(state_ == State::running || state_ == State::paused)
        .put(state_ == State::paused)
        .put(death_)
        .put(ledger_.cpu_s())
        .put(paused_cpu_s_ + (held ? std::max(ledger_.cpu_s() - paused_mark_s_, 0.0) : 0.0))
        .put(ledger_.wakeups())
        .put(processes)
        .put(ledger_.threads())
        .put(rss)
        .put(drives_done_)
        .put(drives_failed_)
        .put(drive_bytes_)
        .put(drive_s_)
        .put(drive_min_s_)
        .put(drive_max_s_)
        .put(drive_failure_)
        .put(static_cast<double>(own.tv_sec) + static_cast<double>(own.tv_nsec) * 1e-9 + client_cpu_s_)
        .put(folder_)
        .put(static_cast<std::uint32_t>(drives_.size()));
    for (const auto& drive : drives_) out.put(drive);
    drives_.clear();
    out.put(static_cast<std::uint32_t>(pids.size()));
    for (const pid_t pid : pids) out.put(pid);
    return "+" + out.text();
  }

  std::string answer_to(std::string_view packet) {
    Unpacker in(packet);
    Request request{};
    in.get(request);
    Result<void> done;
    switch (request) {
      case Request::usage: return usage();
      case Request::start: done = start(in); break;
      case Request::pause: done = pause(); break;
      case Request::resume: done = resume(); break;
      case Request::stop: done = stop(); break;
      case Request::place: done = place(in); break;
    }
    if (done) return "+";
    return failure(done.error());
  }

  int socket_, signals_ = -1, folder_lock_ = -1;
  pid_t self_, leader_ = -1, drive_pid_ = -1, stop_pid_ = -1;
  int leader_status_ = 0;
  Roll& roll_;
  bool orphaned_ = false, childless_ = true;
  State state_ = State::none;
  AgentSpec spec_;
  std::string folder_, log_path_, death_;
  std::string leaving_;  // why it exits although its parent still exists
  std::int64_t log_start_ = 0;
  Cores allowed_, placed_;
  std::vector<Process> stopped_;
  SharedNames shared_;
  Ledger ledger_;
  double paused_mark_s_ = 0, paused_cpu_s_ = 0;
  Scrape scrape_;
  Drive drive_;
  std::deque<Drive> drives_;
  double drive_due_s_ = 0, client_cpu_s_ = 0, drive_s_ = 0, drive_min_s_ = 0, drive_max_s_ = 0;
  std::uint64_t drives_done_ = 0, drives_failed_ = 0, drive_bytes_ = 0;
  std::string drive_failure_;
};

}  // namespace

std::string log_tail(const std::string& path, std::int64_t from) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const auto size = static_cast<std::int64_t>(file.tellg());
  if (!file || size <= from) return "";
  file.seekg(std::max(from, size - 8192));
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back(line.substr(0, 200));
    if (lines.size() > 8) lines.pop_front();
  }
  std::string text;
  for (const auto& line : lines) text += "\n    " + line;
  return text;
}

void keep(int socket, int stderr_fd, Roll& roll) {
  KeeperProcess keeper(socket, stderr_fd, roll);
  keeper.serve();
}

}  // namespace sonde::noise
