// sonde-keeper: the supervisor of one agent without MPI, to try a recipe and for tests.
//
// Publishes: one line on stdout with a JSON object for each command: {"ok":true, …} or {"ok":false,"code",…}.
// Consumes: `start`, `pause`, `resume`, `place 0,2-3`, `usage`, `stop` on stdin, one on each line.
// When its parent goes silent (end of file on stdin), the supervisor ends the agent and all processes that it started.

#include <cstdio>
#include <iostream>
#include <string>

#include "core/json.hpp"
#include "noise/keeper.hpp"

namespace {

using namespace sonde;
using namespace sonde::noise;

void say(const JsonLine& line) {
  std::puts(line.text().c_str());
  std::fflush(stdout);
}

void say(const std::string& word, const Error& error) {
  say(JsonLine()
          .add("ok", false)
          .add("did", word)
          .add("code", error.code)
          .add("what", error.what)
          .add("hint", error.hint));
}

void say(const std::string& word, const Result<void>& done) {
  if (!done) return say(word, done.error());
  say(JsonLine().add("ok", true).add("did", word));
}

void say(const Usage& u) {
  std::string drives = "[";
  for (const auto& drive : u.drives) {
    if (drives.size() > 1) drives += ',';
    drives += JsonLine()
                  .add("begin_s", drive.begin_s)
                  .add("took_s", drive.took_s)
                  .add("bytes", drive.bytes)
                  .add("done", drive.done)
                  .text();
  }
  say(JsonLine()
          .add("ok", true)
          .add("did", "usage")
          .add("alive", u.alive)
          .add("paused", u.paused)
          .add("death", u.death)
          .add("cpu_s", u.cpu_s)
          .add("paused_cpu_s", u.paused_cpu_s)
          .add("wakeups", u.wakeups)
          .add("processes", u.processes)
          .add("threads", u.threads)
          .add("rss_bytes", u.rss_bytes)
          .add("drives_done", u.drives_done)
          .add("drives_failed", u.drives_failed)
          .add("drive_bytes", u.drive_bytes)
          .add("drive_s", u.drive_s)
          .add("drive_min_s", u.drive_min_s)
          .add("drive_max_s", u.drive_max_s)
          .add("drive_failure", u.drive_failure)
          .add("keeper_cpu_s", u.keeper_cpu_s)
          .add("folder", u.folder)
          .add("pids", u.pids)
          .raw("drives", drives + "]"));
}

}  // namespace

int main(int argc, char** argv) {
  auto keeper = Keeper::fork();
  if (!keeper) {
    say("fork", keeper.error());
    return 3;
  }
  AgentSpec spec;
  for (int k = 1; k < argc; k += 2) {
    const std::string flag = argv[k];
    const Result<bool> read = flag.rfind("--agent-", 0) == 0 && k + 1 < argc
                                  ? read_agent_flag(spec, flag.substr(8), argv[k + 1])
                                  : Result<bool>(false);
    if (read && *read) continue;
    say("options", read ? Error{"noise.bad_option", "sonde-keeper does not understand '" + flag + "'",
                                "use `sonde noise agents --try`, which starts this program"}
                        : read.error());
    return 2;
  }
  say(JsonLine().add("ok", true).add("did", "fork").add("keeper", keeper->pid()));
  for (std::string line; std::getline(std::cin, line);) {
    const std::size_t blank = line.find(' ');
    const std::string word = line.substr(0, blank), rest = blank == std::string::npos ? "" : line.substr(blank + 1);
    if (word == "start") say(word, keeper->start(spec));
    else if (word == "pause") say(word, keeper->pause());
    else if (word == "resume") say(word, keeper->resume());
    else if (word == "stop") say(word, keeper->stop());
    else if (word == "place") {
      const auto cpus = parse_cpus(rest);
      say(word, cpus ? keeper->place(*cpus) : Result<void>(cpus.error()));
    } else if (word == "usage") {
      if (const auto usage = keeper->usage()) say(*usage);
      else say(word, usage.error());
    } else {
      say(word, Error{"noise.bad_option",
                      "'" + word + "' is not a command; allowed: start, pause, resume, place, usage, stop", ""});
    }
  }
  return 0;
}
