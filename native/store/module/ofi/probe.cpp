// Tries a provider in a separate process, which may hang or crash without harm.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "store/conformance/pair.hpp"
#include "store/module/ofi/transport.hpp"

extern char** environ;

namespace sonde::store::ofi {

namespace {

constexpr double limit_s = 6;
constexpr std::int64_t doubt_ns =
    60'000'000'000;  ///< a failed provider is tried again after this time: the machine may have been overloaded
constexpr int warm_up = 20;
constexpr std::size_t round_trips = 200;
/// On a busy machine each round trip waits for a core twice. Fewer round trips also show that the provider works.
constexpr int warm_up_least = 2;
constexpr std::size_t round_trips_least = 5;
constexpr std::int64_t enough_ns = 1'500'000'000;
constexpr std::size_t large_bytes = 600'000;

std::string probe_program() {
  // A test sets another program here to simulate a provider that hangs.
  if (const char* program = std::getenv("SONDE_OFI_PROBE"); program && *program) return program;
  Dl_info info;
  if (!::dladdr(reinterpret_cast<const void*>(&probed), &info)) return {};
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + "sonde-ofi-probe";
}

/// The output of `program arguments…`. At the deadline the program and all that it started are killed. Never waits
/// longer.
struct Ran {
  std::string output, why;
};

Ran run(const std::string& program, std::vector<std::string> arguments, Deadline deadline) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {"", std::strerror(errno)};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, usual;
  sigemptyset(&none);
  sigfillset(&usual);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (auto& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  Ran ran;
  if (error != 0) {
    ::close(ends[0]);
    return {"", program + ": " + std::strerror(error)};
  }
  bool late = false;
  while (true) {
    pollfd wait{ends[0], POLLIN, 0};
    const int ready = ::poll(&wait, 1, deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      late = true;
      break;
    }
    char text[512];
    const ssize_t n = ::read(ends[0], text, sizeof text);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    ran.output.append(text, static_cast<std::size_t>(n));
    if (ran.output.find('\n') != std::string::npos) break;
  }
  ::close(ends[0]);
  // The group is certainly gone before its leader is waited for.
  ::kill(-pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (ran.output.empty()) ran.why = late ? "no answer within the deadline: it hangs" : "its trial ended without output";
  return ran;
}

class ProbeSink final : public Sink {
 public:
  explicit ProbeSink(bool echo) : echo_(echo) {}
  void frame(Link& link, const wire::Header& header, Bytes, Bytes data, bool) override {
    ++frames;
    sum = wire::crc32c(data, 0);
    if (!echo_) return;
    Outgoing answer;
    answer.head.resize(wire::header_bytes);
    answer.segments.clear();
    if (!data.empty()) {
      auto copy = std::make_shared<std::vector<std::byte>>(data.begin(), data.end());
      answer.segments.push_back(*copy);
      answer.keep = copy;
    }
    wire::encode(header, answer.head.data());
    link.send(std::move(answer));
    link.flush();
  }
  void closed(Link&, const Error* error) override {
    ended = true;
    if (error) why = error->what;
  }
  int frames = 0;
  std::uint32_t sum = 0;
  bool ended = false;
  std::string why;

 private:
  bool echo_;
};

Outgoing probe_frame(Bytes data) {
  wire::Header header;
  header.kind = wire::Kind::hello;
  header.data_bytes = static_cast<std::uint32_t>(data.size());
  Outgoing out;
  out.head.resize(wire::header_bytes);
  wire::encode(header, out.head.data());
  if (!data.empty()) out.segments.push_back(data);
  return out;
}

int say(const std::string& line) {
  // One write: the parent reads one line.
  const std::string text = line + '\n';
  return ::write(1, text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1;
}

LinkOptions probe_options(const Candidate& candidate) {
  LinkOptions options;
  options.provider = candidate.provider;
  options.more["ofi.trust"] = "1";
  options.rma_from = 65536;
  return options;
}

}  // namespace

int probe_here(Flavour flavour, const Candidate& candidate) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::alarm(static_cast<unsigned>(limit_s) + 2);
  const Deadline deadline = Deadline::in_s(limit_s);
  const auto [mine, other] = PairControl::make_pair();
  if (mine < 0) return say("no socket pair");
  const pid_t child = ::fork();  // before anything of libfabric runs
  if (child < 0) return say("no second process");
  const auto transport = make_transport(flavour);
  const LinkOptions options = probe_options(candidate);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(static_cast<unsigned>(limit_s) + 2);
    ::close(mine);
    PairControl control(other);
    ProbeSink sink(true);
    (void)list_providers(candidate.style,
                         false);  // libfabric's start takes longest: it runs in both processes at once
    auto first = control.receive(deadline);
    if (!first) ::_exit(1);
    {
      auto link = transport->accept(control, *first, options, sink, deadline);
      if (!link) ::_exit(1);
      while (!sink.ended && !deadline.passed()) {
        if ((*link)->progress() == 0 && !sink.ended) (*link)->wait(deadline);
      }
    }
    ::_exit(0);
  }
  ::close(other);
  std::string result;
  {
    PairControl control(mine);
    ProbeSink sink(false);
    auto link = transport->connect(control, options, sink, deadline);
    if (!link) {
      result = "no " + (*link.error().what.c_str() ? link.error().what : link.error().code);
    } else {
      const auto exchange = [&](Bytes data) {
        const int before = sink.frames;
        (*link)->send(probe_frame(data));
        (*link)->flush();
        while (sink.frames == before && !sink.ended && !deadline.passed())
          if ((*link)->progress() == 0) (*link)->wait(deadline);
        return sink.frames > before;
      };
      std::vector<std::byte> large(large_bytes);
      for (std::size_t k = 0; k < large.size(); ++k) large[k] = static_cast<std::byte>(k * 2654435761u >> 13);
      std::vector<std::int64_t> taken;
      bool fine = true;
      const std::int64_t first = now_ns();
      for (int k = 0; taken.size() < round_trips && fine; ++k) {
        const std::int64_t begin = now_ns();
        const bool busy = begin - first > enough_ns;
        if (busy && taken.size() >= round_trips_least) break;
        fine = exchange({});
        if (k >= (busy ? warm_up_least : warm_up)) taken.push_back(now_ns() - begin);
      }
      fine = fine && exchange(large) && sink.sum == wire::crc32c(large, 0);
      if (fine) {
        const auto middle = taken.begin() + static_cast<std::ptrdiff_t>(taken.size() / 2);
        std::nth_element(taken.begin(), middle, taken.end());
        char text[64];
        std::snprintf(text, sizeof text, "ok %.9f ", static_cast<double>(*middle) * 0.5e-9);
        result = text + (*link)->info().detail;
      } else {
        result = "no " + (sink.ended          ? sink.why
                          : deadline.passed() ? "frames did not come back in time"
                                              : "a frame came back changed");
      }
    }
  }
  std::replace(result.begin(), result.end(), '\n', ' ');
  const int code = say(result);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  sweep_shared_memory();
  return code;
}

Found probed(Flavour flavour, const Candidate& candidate, Deadline deadline) {
  struct Entry {
    std::mutex mutex;
    bool done = false;
    std::int64_t at_ns = 0;
    Found found;
  };
  static std::mutex mutex;
  static std::map<std::string, Entry> cache;
  Entry* entry;
  {
    const std::lock_guard lock(mutex);
    entry = &cache[std::string(name_of(flavour)) + ' ' + candidate.provider];
  }
  const std::lock_guard lock(entry->mutex);
  if (entry->done && (entry->found.works || now_ns() - entry->at_ns < doubt_ns)) return entry->found;
  Found found;
  found.provider = candidate.provider;
  if (deadline.passed()) {
    found.why = "not tried: no time left";
    return found;
  }
  Deadline limit = Deadline::in_s(limit_s + 0.5);
  const bool cut_short = deadline.at_ns && deadline.at_ns < limit.at_ns;
  if (cut_short) limit = deadline;
  const Ran ran = run(probe_program(),
                      {name_of(flavour), candidate.provider, candidate.style == Style::msg ? "msg" : "rdm"}, limit);
  // Its processes are dead now, and so are the names that they created.
  sweep_shared_memory();
  const std::string line = ran.output.substr(0, ran.output.find('\n'));
  if (line.starts_with("ok ")) {
    found.works = true;
    char* end = nullptr;
    found.half_round_trip_s = std::strtod(line.c_str() + 3, &end);
    found.why = end && *end == ' ' ? end + 1 : "";
  } else {
    found.why = line.starts_with("no ") ? line.substr(3) : ran.why.empty() ? line : ran.why;
  }
  // A trial with too little time shows nothing about the provider.
  if (found.works || !cut_short) {
    entry->done = true;
    entry->at_ns = now_ns();
    entry->found = found;
  }
  return found;
}

}  // namespace sonde::store::ofi

/// The entry point for the probe program: `sonde-ofi-probe TRANSPORT PROVIDER msg|rdm`.
extern "C" int sonde_ofi_probe(int argc, char** argv) {
  using namespace sonde::store::ofi;
  if (argc != 4) return 2;
  return probe_here(flavour_of(argv[1]), {argv[2], std::strcmp(argv[3], "msg") == 0 ? Style::msg : Style::rdm});
}
