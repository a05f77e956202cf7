#include <doctest/doctest.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "noise/keeper.hpp"
#include "noise/process_tree.hpp"
#include "noise/roll.hpp"
#include "noise/scrape.hpp"

using namespace sonde;
using namespace sonde::noise;

namespace {

// All that a test starts carries its mark, so that what stays behind is found wherever it went.
struct Marked {
  Marked() {
    static int count = 0;
    entry = std::to_string(::getpid()) + "-" + std::to_string(++count);
    ::setenv("SONDE_TEST_KEEPER", entry.c_str(), 1);
    entry = "SONDE_TEST_KEEPER=" + entry;
  }
  std::vector<pid_t> left() const {
    std::vector<pid_t> out;
    for (const pid_t pid : carriers(entry))
      if (read_process(pid).state != 'Z') out.push_back(pid);
    return out;
  }
  std::string entry;
};

bool soon(const std::function<bool()>& true_now) {
  for (const double until = now_s() + 20; now_s() < until; sleep_until(now_s() + 0.005))
    if (true_now()) return true;
  return false;
}

AgentSpec spec_of(const std::string& command) {
  AgentSpec spec;
  spec.command = command;
  spec.ready = "for:0.05";
  spec.grace_s = 2;
  return spec;
}

/// A shell that runs `at_term` on SIGTERM. It counts as ready when its trap is set.
AgentSpec trapping(const std::string& at_term, const std::string& command) {
  AgentSpec spec = spec_of("trap '" + at_term + "' TERM; : >$SONDE_AGENT_DIR/up; " + command);
  spec.ready = "file:{dir}/up";
  return spec;
}

bool all_stopped(const std::vector<pid_t>& pids) {
  return !pids.empty() && std::all_of(pids.begin(), pids.end(), [](pid_t pid) { return busiest_state(pid) == 'T'; });
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

bool is_there(const std::string& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0;
}

// Forks a child each few ms, each with a child of its own.
const char* const forker = "while :; do (sleep 0.003 & wait); done";
// Twice forked, in a session of its own, its first process gone: what daemon(3) does.
const char* const daemoniser =
    "(setsid sh -c 'echo $$ > $SONDE_AGENT_DIR/pid; while :; do sleep 0.01; done' & ) ; exit 0";

}  // namespace

TEST_CASE("an agent is started, paused, resumed and stopped, and nothing of it stays") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  REQUIRE(keeper->start(spec_of("while :; do :; done & sleep 1000 & exec sleep 1000")));
  CHECK(soon([&] { return mark.left().size() == 3; }));
  auto usage = keeper->usage();
  REQUIRE(usage);
  CHECK(usage->alive);
  CHECK(usage->processes == 3);
  CHECK(usage->threads == 3);
  CHECK(usage->rss_bytes > 100'000);
  CHECK(usage->keeper_cpu_s > 0);
  const std::string folder = usage->folder;
  CHECK(is_there(folder));

  REQUIRE(keeper->pause());
  CHECK(all_stopped(usage->pids));
  REQUIRE(keeper->pause());  // a second one changes nothing
  auto paused = keeper->usage();
  CHECK(paused->paused);
  CHECK(paused->cpu_s >= usage->cpu_s);
  sleep_until(now_s() + 0.05);
  auto later = keeper->usage();
  CHECK(later->cpu_s == paused->cpu_s);  // the busy loop did not get on
  CHECK(later->paused_cpu_s == 0);

  REQUIRE(keeper->resume());
  REQUIRE(keeper->resume());
  CHECK(soon([&] { return keeper->usage()->cpu_s > later->cpu_s + 0.01; }));
  CHECK(keeper->usage()->wakeups >= later->wakeups);

  REQUIRE(keeper->stop());
  CHECK(mark.left().empty());
  CHECK_FALSE(is_there(folder));
  REQUIRE(keeper->stop());
  auto after = keeper->usage();
  CHECK_FALSE(after->alive);
  CHECK(after->processes == 0);
  CHECK(after->cpu_s > later->cpu_s);  // what has ended still counts
  CHECK(after->death.empty());
}

TEST_CASE("a process that others started is paused though it forks all the time") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  REQUIRE(keeper->start(spec_of(forker)));
  for (int round = 0; round < 5; ++round) {
    REQUIRE(keeper->pause());
    auto usage = keeper->usage();
    CHECK(all_stopped(usage->pids));
    const auto held = mark.left();
    sleep_until(now_s() + 0.03);
    CHECK(mark.left() == held);  // nobody was forked, nobody ended
    CHECK(keeper->usage()->paused_cpu_s == 0);
    REQUIRE(keeper->resume());
  }
  keeper->dismiss();
  CHECK(mark.left().empty());
}

TEST_CASE("what daemonises stays below the keeper: it is paused and ended, and counts as alive") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  auto spec = spec_of(daemoniser);
  spec.ready = "file:{dir}/pid";
  REQUIRE(keeper->start(spec));
  auto usage = keeper->usage();
  CHECK(usage->alive);
  pid_t daemon = 0;
  REQUIRE(soon([&] { return bool(std::ifstream(usage->folder + "/pid") >> daemon); }));
  CHECK(std::count(usage->pids.begin(), usage->pids.end(), daemon) == 1);
  CHECK(soon([&] { return read_process(daemon).parent == keeper->pid(); }));
  REQUIRE(keeper->pause());
  CHECK(busiest_state(daemon) == 'T');
  REQUIRE(keeper->resume());
  REQUIRE(keeper->stop());
  CHECK(mark.left().empty());
}

TEST_CASE("what ignores SIGTERM is killed after its grace; what heeds it may tidy up") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  auto spec = trapping("", "while :; do sleep 1; done");
  spec.grace_s = 0.1;
  REQUIRE(keeper->start(spec));
  REQUIRE(keeper->pause());
  REQUIRE(keeper->stop());  // stopped while it is paused
  CHECK(mark.left().empty());

  const std::string note = "/tmp/sonde-test-tidied-" + std::to_string(::getpid());
  ::unlink(note.c_str());
  spec = trapping("echo tidied > " + note + "; exit 0", "while :; do sleep 0.01; done");
  spec.grace_s = 20;  // a busy machine may take its time
  REQUIRE(keeper->start(spec));
  REQUIRE(keeper->pause());
  REQUIRE(keeper->stop());
  CHECK(is_there(note));
  ::unlink(note.c_str());
}

TEST_CASE("the stop command comes before SIGTERM, and one that hangs does not hold up the end") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  const std::string note = "/tmp/sonde-test-asked-" + std::to_string(::getpid());
  auto spec = spec_of("trap 'echo term >> " + note +
                      "; exit 0' TERM; while [ ! -e $SONDE_AGENT_DIR/end ]; do sleep 0.01; done; "
                      "echo asked >> " +
                      note);
  spec.stop_command = "touch $SONDE_AGENT_DIR/end";
  ::unlink(note.c_str());
  REQUIRE(keeper->start(spec));
  REQUIRE(keeper->stop());
  std::string how;
  std::ifstream(note) >> how;
  CHECK(how == "asked");
  ::unlink(note.c_str());

  spec = spec_of("exec sleep 1000");
  spec.stop_command = "sleep 1000";
  spec.grace_s = 0.1;
  REQUIRE(keeper->start(spec));
  REQUIRE(keeper->stop());
  CHECK(mark.left().empty());
}

TEST_CASE("an agent that ends at once is told with its status and its last words") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  const auto ends = [](const std::string& command) {
    AgentSpec spec = spec_of(command);
    spec.ready = "for:10";  // longer than a busy machine takes to begin it
    return spec;
  };
  const auto done = keeper->start(ends("echo cannot read its config >&2; sleep 1000 & exit 3"));
  REQUIRE_FALSE(done);
  CHECK(done.error().code == "noise.agent_ended");
  CHECK(done.error().what.find("exit status 3") != std::string::npos);
  CHECK(done.error().hint.find("cannot read its config") != std::string::npos);
  CHECK(mark.left().empty());  // nor what it left

  const auto well = keeper->start(ends("true"));
  REQUIRE_FALSE(well);
  CHECK(well.error().what.find("exit status 0") != std::string::npos);
  const auto missing = keeper->start(ends("exec /proc/nonexistent/agent"));
  REQUIRE_FALSE(missing);
  CHECK(missing.error().hint.find("PATH") != std::string::npos);
  CHECK(missing.error().hint.find("/proc/nonexistent/agent") != std::string::npos);
  REQUIRE(keeper->start(spec_of("exec sleep 1000")));  // and the keeper serves on
}

TEST_CASE("an agent that is never ready is ended, and the error says what was waited for") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  auto spec = spec_of("echo still loading; exec sleep 1000");
  spec.ready_deadline_s = 0.2;
  spec.ready = "file:{dir}/never";
  const auto done = keeper->start(spec);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == "noise.agent_not_ready");
  CHECK(done.error().what.find("file:{dir}/never") != std::string::npos);
  CHECK(done.error().what.find("0.2 s") != std::string::npos);
  CHECK(done.error().hint.find("still loading") != std::string::npos);
  CHECK(mark.left().empty());
}

TEST_CASE("a file that was there before does not make an agent ready; one it writes does") {
  const std::string path = "/tmp/sonde-test-ready-" + std::to_string(::getpid());
  std::ofstream(path) << "old\n";
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  auto spec = spec_of("exec sleep 1000");
  spec.ready = "file:" + path;
  spec.ready_deadline_s = 0.2;
  CHECK(keeper->start(spec).error().code == "noise.agent_not_ready");
  spec.command = "echo new > " + path + "; exec sleep 1000";
  spec.ready_deadline_s = 20;
  CHECK(keeper->start(spec));
  ::unlink(path.c_str());
}

TEST_CASE("an agent that dies later is noticed by usage, by pause and by resume") {
  const Marked mark;
  for (const char* how : {"usage", "pause", "resume"}) {
    CAPTURE(how);
    auto keeper = Keeper::fork();
    REQUIRE(keeper);
    REQUIRE(keeper->start(spec_of("echo last words; sleep 1000 & exec sleep 1001")));
    REQUIRE(soon([&] { return keeper->usage()->pids.size() == 2; }));
    if (std::string(how) == "resume") REQUIRE(keeper->pause());
    const auto pids = keeper->usage()->pids;
    REQUIRE(pids.size() == 2);
    ::kill(pids[0], SIGKILL);
    REQUIRE(soon([&] { return read_process(pids[0]).pid == 0; }));
    if (std::string(how) == "usage") {
      auto usage = keeper->usage();
      CHECK_FALSE(usage->alive);
      CHECK(usage->death == "signal 9 (SIGKILL)");
    } else {
      const auto done = std::string(how) == "pause" ? keeper->pause() : keeper->resume();
      REQUIRE_FALSE(done);
      CHECK(done.error().code == "noise.agent_died");
      CHECK(done.error().what.find("signal 9") != std::string::npos);
      CHECK(done.error().hint.find("last words") != std::string::npos);
    }
    CHECK(mark.left().empty());
    CHECK(keeper->pause().error().code == "noise.agent_died");
    REQUIRE(keeper->stop());
  }
}

TEST_CASE("start-stop: a pause ends the agent, a resume starts it anew in an empty folder") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  auto spec = spec_of(
      "[ ! -e $SONDE_AGENT_DIR/sub ] || exit 4; mkdir $SONDE_AGENT_DIR/sub; touch $SONDE_AGENT_DIR/up; exec sleep "
      "1000");
  spec.pause = AgentSpec::start_stop;
  spec.ready = "file:{dir}/up";
  REQUIRE(keeper->start(spec));
  auto first = keeper->usage();
  REQUIRE(keeper->pause());
  CHECK(mark.left().empty());
  CHECK(keeper->usage()->alive);  // as far as is known
  REQUIRE(keeper->resume());
  CHECK(soon([&] { return keeper->usage()->processes == 1; }));  // touch goes after its file is there
  auto second = keeper->usage();
  CHECK(second->pids != first->pids);
  CHECK(second->folder == first->folder);
  CHECK(second->cpu_s > first->cpu_s);
  REQUIRE(keeper->pause());
  REQUIRE(keeper->stop());
  CHECK(mark.left().empty());
}

TEST_CASE("a command drives the agent while it is on, never while it is paused; its cost is the keeper's") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  auto spec = spec_of("exec sleep 1000");
  spec.drive = "sh:echo x >> {dir}/drives";
  spec.drive_period_s = 0.02;
  REQUIRE(keeper->start(spec));
  std::uint64_t done = 0;
  std::size_t listed = 0;
  CHECK(soon([&] {
    auto usage = keeper->usage();
    done = usage->drives_done;
    listed += usage->drives.size();
    return done >= 3;
  }));
  CHECK(listed >= 3);
  REQUIRE(keeper->pause());
  auto paused = keeper->usage();
  sleep_until(now_s() + 0.1);
  auto later = keeper->usage();
  CHECK(later->drives_done == paused->drives_done);
  CHECK(later->drives_failed == 0);
  CHECK(later->processes == 1);
  CHECK(later->drive_s > 0);
  CHECK(later->drive_min_s <= later->drive_max_s);
  std::ifstream file(later->folder + "/drives");
  CHECK(std::count(std::istreambuf_iterator<char>(file), {}, 'x') == static_cast<long>(later->drives_done));
  REQUIRE(keeper->resume());
  CHECK(soon([&] { return keeper->usage()->drives_done > later->drives_done; }));
}

TEST_CASE("a drive that fails is counted and told, and one in progress is cut by the pause after its time") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  auto spec = spec_of("exec sleep 1000");
  spec.drive = "sh:exit 7";
  spec.drive_period_s = 0.02;
  REQUIRE(keeper->start(spec));
  CHECK(soon([&] { return keeper->usage()->drives_failed > 0; }));
  CHECK(keeper->usage()->drive_failure == "its command ended with exit status 7");
  REQUIRE(keeper->stop());

  spec.drive = "sh:sleep 900 & sleep 901";
  REQUIRE(keeper->start(spec));
  REQUIRE(soon([&] { return mark.left().size() >= 3; }));
  CHECK(keeper->usage()->processes == 1);  // a drive is not the agent
  REQUIRE(keeper->pause());
  CHECK(soon([&] { return mark.left().size() == 1; }));
  CHECK(keeper->usage()->drive_failure == "cut by a pause");
  REQUIRE(keeper->stop());

  spec.drive = "http://127.0.0.1:{port}/metrics";  // a port that the agent never writes
  REQUIRE(keeper->start(spec));
  CHECK(soon([&] { return keeper->usage()->drive_failure.find("/port") != std::string::npos; }));
}

TEST_CASE("placement holds for all threads, for what is forked later, and for the keeper") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  cpu_set_t all, set;
  REQUIRE(keeper->start(spec_of("sleep 1000 & exec sleep 1000")));
  ::sched_getaffinity(keeper->pid(), sizeof all, &all);
  int core = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &all)) core = cpu;
  REQUIRE(core >= 0);
  REQUIRE(keeper->place({core}));
  auto pids = keeper->usage()->pids;
  pids.push_back(keeper->pid());
  for (const pid_t pid : pids) {
    ::sched_getaffinity(pid, sizeof set, &set);
    CHECK(CPU_COUNT(&set) == 1);
    CHECK(CPU_ISSET(core, &set));
  }
  REQUIRE(keeper->stop());
  REQUIRE(keeper->start(spec_of("exec sleep 1000")));  // placement outlives the agent
  ::sched_getaffinity(keeper->usage()->pids[0], sizeof set, &set);
  CHECK(CPU_COUNT(&set) == 1);
  REQUIRE(keeper->place({}));
  ::sched_getaffinity(keeper->usage()->pids[0], sizeof set, &set);
  CHECK(CPU_EQUAL(&set, &all));
  const auto wrong = keeper->place({60000});
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == "noise.agent_bad_cpus");
  CHECK(wrong.error().what.find("core 60000") != std::string::npos);
}

TEST_CASE("a keeper that a rank bound to one core forked is free again") {
  cpu_set_t before, one, got;
  ::sched_getaffinity(0, sizeof before, &before);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  ::sched_setaffinity(0, sizeof one, &one);
  auto keeper = Keeper::fork();
  ::sched_setaffinity(0, sizeof before, &before);
  REQUIRE(keeper);
  CHECK(keeper->usage());
  ::sched_getaffinity(keeper->pid(), sizeof got, &got);
  CHECK(CPU_COUNT(&got) >= CPU_COUNT(&before));
}

TEST_CASE("a keeper with nothing to do does not wake up") {
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  REQUIRE(keeper->start(spec_of("exec sleep 1000")));
  REQUIRE(soon([&] { return busiest_state(keeper->pid()) == 'S'; }));
  const std::uint64_t before = wakeups_of(keeper->pid(), keeper->pid());
  sleep_until(now_s() + 0.3);
  CHECK(wakeups_of(keeper->pid(), keeper->pid()) == before);
}

TEST_CASE("CPU of children that the agent waits for, and of threads that ended, is not lost") {
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  // Each subshell counts for some 10 ms and is waited for by the agent, which itself does next to nothing.
  REQUIRE(keeper->start(
      spec_of("n=0; while [ $n -lt 8 ]; do (k=0; while [ $k -lt 40000 ]; do k=$((k+1)); done); n=$((n+1)); done; "
              "touch $SONDE_AGENT_DIR/over; exec sleep 1000")));
  const std::string folder = keeper->usage()->folder;
  REQUIRE(soon([&] { return is_there(folder + "/over"); }));
  const double alive_s = keeper->usage()->cpu_s;
  REQUIRE(keeper->stop());
  const double all_s = keeper->usage()->cpu_s;
  CHECK(all_s >= alive_s);
  CHECK(alive_s > all_s - 0.03);  // two clock ticks, user and system
  CHECK(all_s > 0.01);
  CHECK(keeper->usage()->wakeups >= 9);
}

TEST_CASE("a keeper holds none of its parent's descriptors") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  CHECK(keeper->usage());
  ::close(ends[1]);
  char byte;
  CHECK(::read(ends[0], &byte, 1) == 0);  // end of file: nobody else has the other end
  ::close(ends[0]);
}

TEST_CASE("kill -9 of the keeper: the caller learns of it, and has ended what was left") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  REQUIRE(keeper->start(spec_of("echo all is well; (setsid sleep 1000 &); sleep 1000 & exec sleep 1000")));
  const std::string folder = keeper->usage()->folder;
  CHECK(soon([&] { return mark.left().size() == 3; }));
  ::kill(keeper->pid(), SIGKILL);
  auto usage = keeper->usage();
  REQUIRE_FALSE(usage);
  CHECK(usage.error().code == "noise.agent_keeper_died");
  CHECK(holds(usage.error().what, "died, with signal 9 (SIGKILL)"));
  CHECK(holds(usage.error().hint, "short of memory"));
  CHECK(holds(usage.error().hint, "the agent's log ends with\n    all is well"));
  CHECK(mark.left().empty());
  CHECK_FALSE(is_there(folder));
  CHECK(keeper->pause().error().code == "noise.agent_keeper_died");
  CHECK(keeper->stop());
}

TEST_CASE("kill -9 of the keeper: a daemon that shed its environment is ended, too, with what it started since") {
  const Marked mark;
  const std::string told = "/tmp/sonde-test-shed-" + std::to_string(::getpid());
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  auto spec =
      spec_of("env -i setsid /bin/sh -c 'echo $$ > " + told + "; while :; do /bin/sleep 0.05; done' & exec sleep 1000");
  spec.ready = "file:" + told;
  REQUIRE(keeper->start(spec));
  pid_t daemon = 0;
  CHECK(soon([&] { return bool(std::ifstream(told) >> daemon); }));
  ::unlink(told.c_str());
  CHECK(soon([&] { return mark.left().size() == 1; }));
  REQUIRE(read_process(daemon).pid == daemon);
  ::kill(keeper->pid(), SIGKILL);
  CHECK_FALSE(keeper->usage());
  CHECK(mark.left().empty());
  CHECK(soon([&] { return read_process(daemon).pid == 0 || read_process(daemon).state == 'Z'; }));
  CHECK(descendants(daemon).empty());
}

TEST_CASE("a roll tells who of it is there, and all below them") {
  Roll roll;
  CHECK(roll.there().empty());
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const pid_t below = ::fork();
    if (below == 0)
      while (true) ::pause();
    if (::write(ends[1], &below, sizeof below) != sizeof below) ::_exit(1);
    while (true) ::pause();
  }
  pid_t below = 0;
  REQUIRE(::read(ends[0], &below, sizeof below) == sizeof below);
  ::close(ends[0]);
  ::close(ends[1]);
  Process another = read_process(::getpid());
  ++another.started_ticks;  // had the number before
  roll.write({another, read_process(pid)});
  const auto there = roll.there();
  REQUIRE(there.size() == 2);
  CHECK(there[0].pid == pid);
  CHECK(there[1].pid == below);
  for (const auto& process : there) CHECK(send_signal(process, SIGKILL));
  ::waitpid(pid, nullptr, 0);
  CHECK(soon([&] { return read_process(below).pid == 0 || read_process(below).state == 'Z'; }));
  CHECK(roll.there().empty());
  roll.write(std::vector<Process>(Roll::most + 1, another));  // more than it holds
  CHECK(roll.there().empty());
}

TEST_CASE("a keeper that is told to end says by whom, also in the middle of a request") {
  const Marked mark;
  for (const bool asked : {false, true}) {
    CAPTURE(asked);
    auto keeper = Keeper::fork();
    REQUIRE(keeper);
    auto spec = spec_of(asked ? "kill -TERM $PPID; sleep 1000" : "sleep 1000");
    if (asked) spec.ready = "file:{dir}/never";
    const std::string who =
        "the agent's supervisor (process " + std::to_string(keeper->pid()) + ") was ended by signal 15 (SIGTERM) from ";
    auto done = keeper->start(spec);
    if (!asked) {
      REQUIRE(done);
      const pid_t pid = keeper->pid();
      ::kill(pid, SIGTERM);
      CHECK(soon([&] { return read_process(pid).state == 'Z'; }));
      done = keeper->pause();
    }
    REQUIRE_FALSE(done);
    CHECK(done.error().code == "noise.agent_keeper_died");
    CHECK(holds(
        done.error().what,
        who + (asked ? "sh (" : read_process(::getpid()).command + " (process " + std::to_string(::getpid()) + ")")));
    CHECK(keeper->pid() == -1);
    CHECK(mark.left().empty());
  }
}

TEST_CASE("what a failing keeper wrote to its stderr is told") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  auto spec = spec_of("echo 'free(): invalid pointer' > /proc/$PPID/fd/2; kill -KILL $PPID; sleep 1000");
  spec.ready = "file:{dir}/never";
  const auto done = keeper->start(spec);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == "noise.agent_keeper_died");
  CHECK(holds(done.error().hint, "its error output is\n    free(): invalid pointer"));
  CHECK(mark.left().empty());
}

TEST_CASE("a keeper that does not answer is ended with its agent, and in which state it was is told") {
  const Marked mark;
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  auto spec = spec_of("(setsid sleep 1000 &); sleep 1000");
  spec.grace_s = 0;
  spec.ready_deadline_s = 0.5;
  REQUIRE(keeper->start(spec));
  ::kill(keeper->pid(), SIGSTOP);
  const auto done = keeper->usage(0.2);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == "noise.agent_keeper_silent");
  CHECK(holds(done.error().what, "did not answer in time (state T) and was ended"));
  CHECK(mark.left().empty());
}

TEST_CASE("a signal is for one process, not for the next that gets its number") {
  const pid_t pid = ::fork();
  if (pid == 0)
    while (true) ::pause();
  Process process = read_process(pid);
  ++process.started_ticks;
  errno = 0;
  CHECK_FALSE(send_signal(process, SIGKILL));
  CHECK(errno == ESRCH);
  CHECK(read_process(pid).state != 'Z');
  --process.started_ticks;
  CHECK(send_signal(process, SIGKILL));
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(status_text(status) == "signal 9 (SIGKILL)");
  CHECK_FALSE(send_signal(process, SIGKILL));
  CHECK(errno == ESRCH);
}

TEST_CASE("kill -9 of the caller: the keeper ends the agent, paused or not, and itself") {
  const Marked mark;
  for (const bool paused : {false, true}) {
    CAPTURE(paused);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t rank = ::fork();
    if (rank == 0) {
      auto keeper = Keeper::fork();
      // Paused only with all of its processes there: on a busy machine it is ready before it has begun them.
      const bool good =
          keeper && keeper->start(spec_of("trap 'exit 0' TERM; (setsid sleep 1000 &); while :; do sleep 0.1; done")) &&
          soon([&] { return mark.left().size() >= 3; }) && (!paused || keeper->pause());
      const pid_t pid = good ? keeper->pid() : -1;
      if (::write(ends[1], &pid, sizeof pid) != sizeof pid) ::_exit(1);
      while (true) ::pause();
    }
    pid_t keeper = -1;
    REQUIRE(::read(ends[0], &keeper, sizeof keeper) == sizeof keeper);
    ::close(ends[0]);
    ::close(ends[1]);
    REQUIRE(keeper > 0);
    CHECK(soon([&] { return mark.left().size() >= 3; }));
    ::kill(rank, SIGKILL);
    ::waitpid(rank, nullptr, 0);
    CHECK(soon([&] { return mark.left().empty(); }));
    CHECK(soon([&] { return read_process(keeper).pid == 0 || read_process(keeper).state == 'Z'; }));
  }
}

TEST_CASE("a folder that a killed keeper and a killed rank left is removed by the next one; a held one is not") {
  const std::string above = "/tmp/sonde-test-above-" + std::to_string(::getpid());
  ::mkdir(above.c_str(), 0700);
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", above.c_str(), 1);
  auto first = Keeper::fork(), second = Keeper::fork();
  REQUIRE(first);
  REQUIRE(second);
  REQUIRE(first->start(spec_of("exec sleep 1000")));
  const std::string held = first->usage()->folder, left = above + "/sonde-agent-abcdef",
                    young = above + "/sonde-agent-123456";
  const timespec old[2] = {{::time(nullptr) - 3600, 0}, {::time(nullptr) - 3600, 0}};
  for (const auto& path : {left, young}) ::mkdir(path.c_str(), 0700);
  for (const auto& path : {left, held}) ::utimensat(AT_FDCWD, path.c_str(), old, 0);
  REQUIRE(second->start(spec_of("exec sleep 1000")));
  CHECK_FALSE(is_there(left));
  CHECK(is_there(held));
  CHECK(is_there(young));  // its keeper may be about to lock it
  first->dismiss();
  second->dismiss();
  ::rmdir(young.c_str());
  CHECK(::rmdir(above.c_str()) == 0);  // which fails while anything is in it
  kept.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", kept.c_str(), 1);
}

TEST_CASE("calls out of order say what to do first") {
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  CHECK(keeper->pause().error().code == "noise.agent_not_started");
  CHECK(keeper->resume().error().code == "noise.agent_not_started");
  CHECK(keeper->stop());
  CHECK_FALSE(keeper->usage()->alive);
  REQUIRE(keeper->start(spec_of("exec sleep 1000")));
  CHECK(keeper->start(spec_of("exec sleep 1000")).error().code == "noise.agent_running");
  keeper->dismiss();
  keeper->dismiss();
  CHECK(keeper->pid() == -1);
  CHECK(keeper->usage().error().code == "noise.agent_keeper_died");
}

TEST_CASE("no scratch folder and no log are errors that name the path") {
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  auto spec = spec_of("exec sleep 1000");
  spec.log_path = "/proc/nonexistent/agent.log";
  auto done = keeper->start(spec);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == "noise.agent_no_log");
  CHECK(done.error().what.find("/proc/nonexistent/agent.log") != std::string::npos);
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before ? before : "";
  ::setenv("TMPDIR", "/proc/nonexistent", 1);
  done = keeper->start(spec_of("exec sleep 1000"));
  kept.empty() ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", kept.c_str(), 1);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == "noise.agent_no_folder");
}

TEST_CASE("what a spec may not be") {
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  const std::vector<std::function<void(AgentSpec&)>> wrong{
      [](AgentSpec& s) { s.command = ""; },
      [](AgentSpec& s) { s.command = std::string(200'000, 'x'); },
      [](AgentSpec& s) { s.ready = "port"; },
      [](AgentSpec& s) { s.ready = "port:0"; },
      [](AgentSpec& s) { s.ready = "port:65536"; },
      [](AgentSpec& s) { s.ready = "port:9100x"; },
      [](AgentSpec& s) { s.ready = "file:"; },
      [](AgentSpec& s) { s.ready = "file:relative"; },
      [](AgentSpec& s) { s.ready = "for:-1"; },
      [](AgentSpec& s) { s.ready = "soon"; },
      [](AgentSpec& s) { s.drive = "https://127.0.0.1/"; },
      [](AgentSpec& s) { s.drive = "http://example.org/"; },
      [](AgentSpec& s) { s.drive = "http://127.0.0.1:/"; },
      [](AgentSpec& s) { s.drive = "http://127.0.0.1:99999/"; },
      [](AgentSpec& s) { s.drive = "http://127.0.0.1/a b"; },
      [](AgentSpec& s) { s.drive = "curl x"; },
      [](AgentSpec& s) { s.drive = "sh:true", s.drive_period_s = 0; },
      [](AgentSpec& s) { s.drive_phase = 1.5; },
  };
  for (std::size_t k = 0; k < wrong.size(); ++k) {
    CAPTURE(k);
    auto spec = spec_of("exec sleep 1000");
    wrong[k](spec);
    const auto done = keeper->start(spec);
    REQUIRE_FALSE(done);
    CHECK(done.error().code == "noise.agent_bad_option");
  }
}

TEST_CASE("flags and lists of cores") {
  AgentSpec spec;
  CHECK(*read_agent_flag(spec, "pause", "start-stop"));
  CHECK(spec.pause == AgentSpec::start_stop);
  CHECK(*read_agent_flag(spec, "grace-s", "1.5"));
  CHECK(spec.grace_s == 1.5);
  CHECK_FALSE(*read_agent_flag(spec, "colour", "red"));
  CHECK(read_agent_flag(spec, "pause", "maybe").error().code == "noise.agent_bad_option");
  CHECK(read_agent_flag(spec, "grace-s", "-1").error().code == "noise.agent_bad_option");
  CHECK(read_agent_flag(spec, "grace-s", "nan").error().code == "noise.agent_bad_option");
  CHECK(*parse_cpus("") == std::vector<int>{});
  CHECK(*parse_cpus("0,2-4") == std::vector<int>{0, 2, 3, 4});
  for (const char* text : {",", "1,", "a", "3-1", "-1", "1-", "99999999999", "1-70000", "0-65535,0-65535,0"})
    CHECK_FALSE(parse_cpus(text));
}

TEST_CASE("an address of the loopback taken apart") {
  CHECK(parse_target("http://127.0.0.1:9100/metrics")->port == 9100);
  CHECK(parse_target("http://127.0.0.1:9100/metrics")->path == "/metrics");
  CHECK(parse_target("http://localhost")->port == 80);
  CHECK(parse_target("http://localhost")->path == "/");
  CHECK(parse_target("http://[::1]:19999/api?x=1")->six);
  CHECK(parse_target("http://[::1]:19999/api?x=1")->port == 19999);
  CHECK_FALSE(parse_target("http://[::1]19999/"));
  CHECK_FALSE(parse_target("http://10.0.0.1/"));
}

namespace {

// Maps a name in /dev/shm, and leaves it there.
std::string mapper(const std::string& name) {
  return "exec python3 -c \"import mmap, os, pathlib, time\n"
         "f = open('/dev/shm/" +
         name +
         "', 'a+b')\n"
         "f.truncate(4096)\n"
         "m = mmap.mmap(f.fileno(), 4096)\n"
         "pathlib.Path(os.environ['SONDE_AGENT_DIR'], 'mapped').touch()\n"
         "time.sleep(1000)\"";
}

AgentSpec mapping(const std::string& name) {
  AgentSpec spec = spec_of(mapper(name));
  spec.ready = "file:{dir}/mapped";
  return spec;
}

}  // namespace

TEST_CASE("names in /dev/shm that an agent made and left go with it") {
  const Marked mark;
  const std::string name = "sonde-test-" + std::to_string(::getpid());
  auto keeper = Keeper::fork();
  REQUIRE(keeper);
  REQUIRE(keeper->start(mapping(name)));
  CHECK(is_there("/dev/shm/" + name));
  REQUIRE(keeper->stop());
  CHECK(!is_there("/dev/shm/" + name));
}

TEST_CASE("names in /dev/shm that were there before, or that others use, stay") {
  const Marked mark;
  const std::string before = "sonde-test-before-" + std::to_string(::getpid()),
                    shared = "sonde-test-shared-" + std::to_string(::getpid());
  std::ofstream("/dev/shm/" + before).put('x');
  auto one = Keeper::fork(), other = Keeper::fork();
  REQUIRE(one);
  REQUIRE(other);
  REQUIRE(one->start(mapping(before)));
  REQUIRE(one->stop());
  CHECK(is_there("/dev/shm/" + before));
  REQUIRE(one->start(mapping(shared)));
  REQUIRE(other->start(mapping(shared)));
  REQUIRE(one->stop());
  CHECK(is_there("/dev/shm/" + shared));
  REQUIRE(other->stop());
  ::unlink(("/dev/shm/" + before).c_str());
  ::unlink(("/dev/shm/" + shared).c_str());
}
