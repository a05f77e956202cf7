#include "noise/keeper.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/clock.hpp"
#include "core/number.hpp"
#include "core/text.hpp"
#include "noise/keeper_process.hpp"
#include "noise/process_tree.hpp"
#include "noise/scrape.hpp"

namespace sonde::noise {

namespace {

constexpr std::size_t most_cores_listed = 1u << 17;  // a list may repeat ranges
constexpr double death_s = 2;                        // from the end of its socket to the end of the process

bool read_number(std::string_view text, double& out) { return number(text, out) && std::isfinite(out); }

Error bad_option(const std::string& what, const std::string& hint = "") {
  return {"noise.agent_bad_option", what, hint};
}

}  // namespace

Result<bool> read_agent_flag(AgentSpec& spec, std::string_view name, const std::string& value) {
  auto seconds = [&](double& into, double most) -> Result<bool> {
    if (!read_number(value, into) || into < 0 || into > most)
      return bad_option("agent " + std::string(name) + " is '" + value + "'; allowed: 0 to " +
                        std::to_string(static_cast<long>(most)));
    return true;
  };
  if (name == "command") spec.command = value;
  else if (name == "log") spec.log_path = value;
  else if (name == "ready") spec.ready = value;
  else if (name == "drive") spec.drive = value;
  else if (name == "stop") spec.stop_command = value;
  else if (name == "ready-deadline-s") return seconds(spec.ready_deadline_s, 3600);
  else if (name == "drive-period-s") return seconds(spec.drive_period_s, 86400);
  else if (name == "drive-phase") return seconds(spec.drive_phase, 1);
  else if (name == "grace-s") return seconds(spec.grace_s, 600);
  else if (name == "pause") {
    if (value != "stop-cont" && value != "start-stop")
      return bad_option("agent pause is '" + value + "'; allowed: stop-cont, start-stop");
    spec.pause = value == "stop-cont" ? AgentSpec::stop_cont : AgentSpec::start_stop;
  } else return false;
  return true;
}

Result<std::vector<int>> parse_cpus(std::string_view text) {
  const Error bad{"noise.agent_bad_cpus", "'" + std::string(text) + "' is not a list of cores; allowed: 0,2-5", ""};
  std::vector<int> out;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    int first = 0, last = 0;
    const char* const stop = std::to_address(item.end());
    auto [at, err] = std::from_chars(std::to_address(item.begin()), stop, first);
    if (err != std::errc{}) return bad;
    last = first;
    if (at != stop) {
      if (*at != '-') return bad;
      const auto rest = std::from_chars(at + 1, stop, last);
      if (rest.ec != std::errc{} || rest.ptr != stop) return bad;
    }
    if (first < 0 || last < first || last > 65535) return bad;
    if (out.size() + static_cast<std::size_t>(last - first) >= most_cores_listed) return bad;
    for (int cpu = first; cpu <= last; ++cpu) out.push_back(cpu);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) return bad;
  }
  return out;
}

Result<void> check_spec(const AgentSpec& spec) {
  if (spec.command.empty()) return bad_option("the agent has no command", "name a recipe or a shell command");
  for (const auto& [name, text] :
       {std::pair{"command", &spec.command}, {"drive", &spec.drive}, {"stop command", &spec.stop_command}})
    if (text->size() > command_bytes || text->find('\0') != std::string::npos)
      return bad_option("the agent's " + std::string(name) + " has " + std::to_string(text->size()) +
                            " B; allowed: up to 100000 B of text",
                        "put it into a script, and give the name of the script");
  if (spec.command.size() + spec.drive.size() + spec.stop_command.size() + spec.ready.size() > packet_bytes - 16384)
    return bad_option("the agent's commands are too long in total; allowed: up to 140 KiB", "put them into scripts");
  if (!spec.ready.empty()) {
    const std::size_t colon = spec.ready.find(':');
    const std::string kind = spec.ready.substr(0, colon);
    const std::string value = colon == std::string::npos ? "" : spec.ready.substr(colon + 1);
    double number = 0;
    const bool good = kind == "port"   ? value == "{port}" || (read_number(value, number) && number >= 1 &&
                                                             number <= 65535 && number == std::floor(number))
                      : kind == "for"  ? read_number(value, number) && number >= 0 && number <= 3600
                      : kind == "file" ? !value.empty() && (value[0] == '/' || value.rfind("{dir}/", 0) == 0)
                                       : false;
    if (!good)
      return bad_option("agent ready is '" + spec.ready +
                        "'; allowed: port:9100, port:{port}, file:/PATH, file:{dir}/NAME, for:0.5");
  }
  if (spec.drive.rfind("sh:", 0) != 0 && !spec.drive.empty())
    if (const auto target = parse_target(replaced(spec.drive, "{port}", "1")); !target) return target.error();
  if (!spec.drive.empty() && !(spec.drive_period_s >= 0.001))
    return bad_option("a drive each " + std::to_string(spec.drive_period_s) +
                      " s is too often; allowed: 0.001 s and above");
  if (!(spec.drive_phase >= 0 && spec.drive_phase <= 1)) return bad_option("agent drive-phase must be 0 to 1");
  return {};
}

void remove_folder(const std::string& folder) {
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
}

Result<Keeper> Keeper::fork() {
  int ends[2];
  auto failed = [](const char* what) {
    return Error{
        "noise.agent_no_keeper",
        std::string("cannot ") + what + " for the agent's supervisor: " + std::generic_category().message(errno),
        "check ulimit -u and ulimit -n"};
  };
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return failed("make a socket");
  const int words = ::memfd_create("sonde-keeper's stderr", MFD_CLOEXEC);  // without it, failures have no message
  Roll roll;
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    const int why = errno;
    for (const int fd : {ends[0], ends[1], words})
      if (fd >= 0) ::close(fd);
    errno = why;
    return failed("fork");
  }
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(0);
    ::close(ends[0]);
    keep(ends[1], words, roll);
  }
  ::close(ends[1]);
  return Keeper(child, ends[0], words, std::move(roll));
}

Keeper::Keeper(Keeper&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      words_(std::exchange(other.words_, -1)),
      grace_s_(other.grace_s_),
      ready_deadline_s_(other.ready_deadline_s_),
      log_path_(std::exchange(other.log_path_, {})),
      log_start_(other.log_start_),
      roll_(std::move(other.roll_)),
      folder_(std::exchange(other.folder_, {})) {}

Keeper& Keeper::operator=(Keeper&& other) noexcept {
  if (this != &other) {
    dismiss();
    pid_ = std::exchange(other.pid_, -1);
    socket_ = std::exchange(other.socket_, -1);
    words_ = std::exchange(other.words_, -1);
    grace_s_ = other.grace_s_;
    ready_deadline_s_ = other.ready_deadline_s_;
    log_path_ = std::exchange(other.log_path_, {});
    log_start_ = other.log_start_;
    roll_ = std::move(other.roll_);
    folder_ = std::exchange(other.folder_, {});
  }
  return *this;
}

Keeper::~Keeper() { dismiss(); }

Result<void> Keeper::start(const AgentSpec& spec) {
  if (auto good = check_spec(spec); !good) return good.error();
  if (!folder_.empty())
    return Error{"noise.agent_running", "an agent already runs; a supervisor has one agent at a time", "stop it first"};
  const char* named = std::getenv("TMPDIR");
  std::string folder = std::string(named && *named ? named : "/tmp") + "/" + folder_prefix + "XXXXXX";
  if (!::mkdtemp(folder.data()))
    return Error{"noise.agent_no_folder",
                 "cannot make a scratch folder " + folder + " for the agent: " + std::generic_category().message(errno),
                 "set TMPDIR to a folder that is writable on every node"};
  folder_ = folder;
  grace_s_ = spec.grace_s;
  ready_deadline_s_ = spec.ready_deadline_s;
  log_path_ = spec.log_path.empty() ? folder + "/agent.log" : spec.log_path;
  std::error_code none;
  const auto size = std::filesystem::file_size(log_path_, none);
  log_start_ = none ? 0 : static_cast<std::int64_t>(size);
  Packer request;
  request.put(Request::start)
      .put(folder)
      .put(spec.command)
      .put(spec.log_path)
      .put(spec.pause)
      .put(spec.ready)
      .put(spec.ready_deadline_s)
      .put(spec.drive)
      .put(spec.drive_period_s)
      .put(spec.drive_phase)
      .put(spec.stop_command)
      .put(spec.grace_s);
  auto answer = ask(request.text(), ready_deadline_s_ + 2 * grace_s_ + kill_deadline_s + 10);
  if (!answer) {
    remove_folder(folder_);
    folder_.clear();
    return answer.error();
  }
  return {};
}

Result<void> Keeper::pause() {
  auto answer = ask(Packer().put(Request::pause).text(), 2 * grace_s_ + pause_deadline_s + kill_deadline_s + 10);
  return answer ? Result<void>() : answer.error();
}

Result<void> Keeper::resume() {
  auto answer = ask(Packer().put(Request::resume).text(), ready_deadline_s_ + 2 * grace_s_ + kill_deadline_s + 10);
  return answer ? Result<void>() : answer.error();
}

Result<void> Keeper::stop() {
  if (socket_ < 0) return {};
  auto answer = ask(Packer().put(Request::stop).text(), 2 * grace_s_ + kill_deadline_s + 10);
  if (!answer) return answer.error();
  folder_.clear();
  return {};
}

Result<void> Keeper::place(const std::vector<int>& cpus) {
  Packer request;
  request.put(Request::place).put(static_cast<std::uint32_t>(cpus.size()));
  for (const int cpu : cpus) request.put(cpu);
  auto answer = ask(request.text(), 15);
  return answer ? Result<void>() : answer.error();
}

Result<Usage> Keeper::usage(double deadline_s) {
  auto answer = ask(Packer().put(Request::usage).text(), deadline_s);
  if (!answer) return answer.error();
  Usage u;
  std::uint32_t drives = 0, pids = 0;
  Unpacker in(*answer);
  in.get(u.alive)
      .get(u.paused)
      .get(u.death)
      .get(u.cpu_s)
      .get(u.paused_cpu_s)
      .get(u.wakeups)
      .get(u.processes)
      .get(u.threads)
      .get(u.rss_bytes)
      .get(u.drives_done)
      .get(u.drives_failed)
      .get(u.drive_bytes)
      .get(u.drive_s)
      .get(u.drive_min_s)
      .get(u.drive_max_s)
      .get(u.drive_failure)
      .get(u.keeper_cpu_s)
      .get(u.folder)
      .get(drives);
  u.drives.resize(std::min<std::size_t>(drives, drives_kept));
  for (auto& drive : u.drives) in.get(drive);
  in.get(pids);
  u.pids.resize(std::min<std::size_t>(pids, pids_told));
  for (auto& pid : u.pids) in.get(pid);
  return u;
}

void Keeper::dismiss() {
  (void)bury((folder_.empty() ? 0 : 2 * grace_s_) + kill_deadline_s + 5);
  (void)last_words();
  sweep();
}

/// Closes the socket, which makes the supervisor end, and waits. After `patience_s` it kills the supervisor. Returns
/// how the supervisor ended, "" when that is unknown.
std::string Keeper::bury(double patience_s) {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  std::string how;
  const double until = now_s() + patience_s;
  for (bool killed = false; pid_ > 0;) {
    int status = 0;
    const pid_t gone = ::waitpid(pid_, &status, WNOHANG);
    if (gone == pid_ && !killed) how = status_text(status);
    if (gone == pid_ || (gone < 0 && errno != EINTR)) break;
    if (now_s() > until && !killed) {
      ::kill(pid_, SIGKILL);  // not reaped yet, so its pid cannot have been reused
      killed = true;
    }
    sleep_until(now_s() + 1e-3);
  }
  pid_ = -1;
  return how;
}

// When a library or a sanitizer aborts, the reason is at the beginning of stderr.
std::string Keeper::last_words() {
  char text[2048];
  const ssize_t size = words_ < 0 ? 0 : ::pread(words_, text, sizeof text, 0);
  if (words_ >= 0) ::close(words_);
  words_ = -1;
  std::string out;
  std::string_view left(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  for (int lines = 0; lines < 8 && !left.empty(); ++lines) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    if (end > 0) out += "\n    " + std::string(left.substr(0, std::min<std::size_t>(end, 200)));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return out;
}

/// The error for a supervisor that has ended or fails (`trouble`). Ends all processes that it started. silent: it
/// exists but does not answer.
Error Keeper::lost(const std::string& trouble, bool silent) {
  const std::string who = "the agent's supervisor (process " + std::to_string(pid_) + ") ";
  const std::string how = bury(silent ? 0 : death_s);
  const std::string said = last_words();
  const std::string tail = folder_.empty() ? "" : log_tail(log_path_, log_start_);  // it may be in the folder
  sweep();
  std::string hint = how == signal_text(SIGKILL)
                         ? "check whether the node was short of memory (dmesg), and run it again"
                         : "run it again; if it fails again, report it with this message";
  if (!said.empty()) hint += "; its error output is" + said;
  if (!tail.empty()) hint += std::string(said.empty() ? "; " : "\n    ") + "the agent's log ends with" + tail;
  return {how.empty() && silent ? "noise.agent_keeper_silent" : keeper_died,
          who + (how.empty() ? trouble : "died, with " + how) + "; the rest of its agent has been ended", hint};
}

void Keeper::sweep() {
  if (folder_.empty()) return;
  const std::string entry = "SONDE_AGENT_DIR=" + folder_;
  const double until = now_s() + kill_deadline_s;
  while (now_s() < until) {
    int left = kill_carriers(entry);
    for (const auto& process : roll_.there()) left += send_signal(process, SIGKILL) ? 1 : 0;
    if (left == 0) break;
    sleep_until(now_s() + 5e-3);
  }
  remove_folder(folder_);
  folder_.clear();
}

Result<std::string> Keeper::ask(const std::string& request, double deadline_s) {
  if (socket_ < 0) return Error{keeper_died, "the agent's supervisor was dismissed or has died", "start the run again"};
  // A supervisor that has ended may have sent the reason, which can still be read.
  if (::send(socket_, request.data(), request.size(), MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
    return lost("did not accept a request: " + std::generic_category().message(errno), false);
  const double until = now_s() + deadline_s;
  while (true) {
    pollfd ready{socket_, POLLIN, 0};
    const double left = until - now_s();
    const int n = left <= 0 ? 0 : ::poll(&ready, 1, static_cast<int>(left * 1e3) + 1);
    if (n > 0) break;
    if (left <= 0 || (n < 0 && errno != EINTR))
      return lost(std::string("did not answer in time (state ") + read_process(pid_).state + ") and was ended", true);
  }
  std::string answer(packet_bytes, '\0');
  ssize_t size = 0;
  // There is one ECONNRESET when the supervisor ended without reading this request.
  while ((size = ::recv(socket_, answer.data(), answer.size(), 0)) < 0 && (errno == EINTR || errno == ECONNRESET)) {}
  if (size <= 0) return lost("closed its socket and was ended", false);
  answer.resize(static_cast<std::size_t>(size));
  if (answer[0] == '+') return answer.substr(1);
  Error error;
  Unpacker(std::string_view(answer).substr(1)).get(error.code).get(error.what).get(error.hint);
  if (error.code != keeper_died) return error;
  return Error{error.code, error.what, lost("left", false).hint};
}

}  // namespace sonde::noise
