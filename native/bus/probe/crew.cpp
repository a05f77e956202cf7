#include "bus/probe/crew.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sonde::bus::probe {

namespace {

constexpr double end_within_s = 6;  ///< a program itself takes at most 5
constexpr int look_ms = 50;         ///< interval of checks whether to stop
constexpr double say_every_s = 10;

std::size_t killed_programs = 0;

Error interrupted() { return {"bus.interrupted", "it was asked to stop", ""}; }

}  // namespace

Result<std::unique_ptr<Program>> Program::start(const ProgramOptions& options) {
  const auto failed = [](const std::string& what) {
    return Error{"bus.failed", what + ": " + std::strerror(errno), "see ulimit -n and ulimit -u"};
  };
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return failed("no socket to another program could be opened");
  char self[4096];
  const ssize_t n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = 0;
  std::vector<std::string> words;
  if (options.host) words = options.host->start;
  // A launcher does not pass the environment to other hosts.
  const bool elsewhere = !words.empty();
  if (elsewhere && options.bind_now) words.insert(words.end(), {"env", "LD_BIND_NOW=1"});
  words.push_back(self);
  words.push_back("peer");
  if (!options.name_space.empty()) words.insert(words.end(), {"--namespace", options.name_space});
  std::vector<char*> args;
  for (auto& w : words) args.push_back(w.data());
  args.push_back(nullptr);

  const pid_t parent = ::getpid(), pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(0);
    ::signal(SIGTERM, SIG_DFL);
    ::signal(SIGINT, SIG_IGN);
    ::dup2(ends[1], STDIN_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    if (options.bind_now && !elsewhere) ::setenv("LD_BIND_NOW", "1", 1);
    ::execvp(args[0], args.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  if (pid < 0) {
    const auto why = failed("no other program could be started");
    ::close(ends[0]);
    return why;
  }
  return std::unique_ptr<Program>(new Program(pid, ends[0], options.host));
}

void Program::dismiss() {
  if (std::exchange(dismissed_, true)) return;
  if (fd_ >= 0) ::shutdown(fd_, SHUT_WR);
  if (!host_ && unanswered_ > 0 && !ended()) ::kill(pid_, SIGTERM);
}

bool Program::ended() {
  if (!reaped_) {
    int status = 0;
    const pid_t gone = ::waitpid(pid_, &status, WNOHANG);
    reaped_ = gone == pid_ || (gone < 0 && errno == ECHILD);
    if (gone == pid_ && WIFSIGNALED(status)) ++killed_programs;
  }
  return reaped_;
}

std::size_t Program::killed() { return killed_programs; }

Program::~Program() {
  dismiss();
  const Deadline deadline = Deadline::in_s(end_within_s);
  while (!ended() && !deadline.passed()) sleep_until(now_s() + 2e-3);
  if (!reaped_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ++killed_programs;
  }
  if (fd_ >= 0) ::close(fd_);
}

void end_all(Programs& programs) {
  for (auto& p : programs) p->dismiss();
  const Deadline deadline = Deadline::in_s(end_within_s);
  const auto running = [&] {
    return std::any_of(programs.begin(), programs.end(), [](auto& p) { return !p->ended(); });
  };
  while (running() && !deadline.passed()) sleep_until(now_s() + 2e-3);
  for (auto& p : programs)
    if (!p->ended()) ::kill(p->pid(), SIGKILL);
  programs.clear();
}

bool Program::tell(const Talk& what) {
  ++unanswered_;
  return write_line(fd_, what.line());
}

std::string Program::how_it_ended() {
  int status = 0;
  for (int k = 0; k < 100 && !reaped_; ++k) {
    reaped_ = ::waitpid(pid_, &status, WNOHANG) == pid_;
    if (!reaped_) sleep_until(now_s() + 10e-3);
  }
  if (!reaped_) return "closed its output";
  if (WIFSIGNALED(status)) return std::string("was ended by a signal, ") + strsignal(WTERMSIG(status));
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

Result<std::optional<Talk>> Program::hear(int wait_ms) {
  std::string line;
  switch (reader_.next(line, wait_ms)) {
    case LineReader::Got::later: return std::optional<Talk>{};
    case LineReader::Got::end:
      return Error{"bus.program_lost", "a program of the measurement " + how_it_ended(), "see its messages in the log"};
    case LineReader::Got::line: break;
  }
  if (unanswered_ > 0) --unanswered_;
  auto talk = Talk::parse(line);
  if (!talk)
    return Error{"bus.program_lost", "a program of the measurement sent an invalid answer: " + line.substr(0, 80),
                 "check whether its launcher prints other text"};
  return std::optional<Talk>(std::move(*talk));
}

bool Foreman::over() {
  if (say_ && now_s() - said_s_ > say_every_s) {
    said_s_ = now_s();
    say_();
  }
  return control_.stop_requested() || last_.passed();
}

Result<std::vector<std::optional<Talk>>> Foreman::ask_some(const std::vector<Order>& orders, double within_s) {
  for (const auto& order : orders)
    if (!order.to->tell(order.what)) {
      auto why = order.to->hear(100);
      return why ? Error{"bus.program_lost", "a program of the measurement has closed its input",
                         "see its messages in the log"}
                 : why.error();
    }
  const Deadline deadline = Deadline::in_s(within_s);
  std::vector<std::optional<Talk>> answers;
  std::optional<Error> first;
  for (const auto& order : orders)
    for (;;) {
      auto heard = order.to->hear(deadline.passed() ? 0 : look_ms);
      if (!heard) return heard.error();
      if (*heard) {
        if (auto e = (**heard).error(); e && !first) first = e;
        answers.push_back(std::move(*heard));
        break;
      }
      if (over()) return interrupted();
      if (deadline.passed()) {
        answers.push_back(std::nullopt);
        break;
      }
    }
  if (first) return *first;
  return answers;
}

Result<std::vector<Talk>> Foreman::ask(const std::vector<Order>& orders, double within_s) {
  auto some = ask_some(orders, within_s);
  if (!some) return some.error();
  std::vector<Talk> answers;
  for (std::size_t k = 0; k < some->size(); ++k) {
    auto& one = (*some)[k];
    if (!one)
      return Error{"bus.timed_out",
                   "a program with the command '" + orders[k].what.verb() + "' did not answer within " +
                       std::to_string(static_cast<int>(within_s)) + " s",
                   "see its messages in the log"};
    answers.push_back(std::move(*one));
  }
  return answers;
}

Result<Talk> Foreman::ask(Program& program, const Talk& what, double within_s) {
  auto answers = ask({{&program, what}}, within_s);
  if (!answers) return answers.error();
  return std::move((*answers)[0]);
}

Result<void> Foreman::pause(double s) {
  for (const Deadline deadline = Deadline::in_s(s); !deadline.passed();) {
    if (over()) return interrupted();
    sleep_until(std::min(now_s() + look_ms * 1e-3, static_cast<double>(deadline.at_ns) * 1e-9));
  }
  return {};
}

}  // namespace sonde::bus::probe
