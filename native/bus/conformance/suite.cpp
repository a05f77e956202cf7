#include "bus/conformance/suite.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>
#include <string_view>

#include "bus/cdr.hpp"
#include "bus/conformance/scene.hpp"
#include "bus/pattern.hpp"
#include "core/thrown.hpp"

namespace sonde::bus::conformance {

namespace {

constexpr const char* case_word = "@case";
constexpr const char* peer_word = "@peer";
constexpr const char* own_profile = "conformance";
constexpr int result_descriptor = 3;  ///< not stdout, because libraries write there

std::uint64_t some_number() {
  std::uint64_t value = 0;
  if (getrandom(&value, sizeof value, 0) != sizeof value)
    value = static_cast<std::uint64_t>(now_ns()) ^ static_cast<std::uint64_t>(getpid()) << 32;
  return value;
}

std::vector<Entry> entries() {
  std::vector<Entry> all;
  for (auto& part : {sample_cases(), process_cases(), request_cases()}) all.insert(all.end(), part.begin(), part.end());
  return all;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::string with_length(const std::string& text) { return std::to_string(text.size()) + "\n" + text; }

/// Reads text in the format of with_length() from standard input.
std::string read_input() {
  std::string line;
  char c = 0;
  while (::read(0, &c, 1) == 1 && c != '\n') line += c;
  std::string text(std::strtoul(line.c_str(), nullptr, 10), '\0');
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::read(0, text.data() + at, text.size() - at);
    if (n <= 0) return {};
    at += static_cast<std::size_t>(n);
  }
  return text;
}

/// `text` in one line.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Outcome run_here(const Entry& entry, const std::string& implementation, const Profile& profile,
                 const std::string& program, const std::vector<std::string>& modules, const std::string& tag,
                 std::string& reason) {
  const auto found = find_implementation(implementation);
  if (!found) {
    reason = found.error().what;
    return Outcome::failed;
  }
  const Caps caps = (*found)->caps();
  try {
    Scene scene(implementation, profile, caps, program, modules, tag);
    entry.run(scene);
  } catch (...) {
    reason = text_of_exception();
    return Outcome::failed;
  }
  return Outcome::passed;
}

Case run_apart(const Entry& entry, const Settings& settings, const Variant& variant) {
  Case result{variant.name, entry.name, Outcome::failed, {}, 0};
  const double began = now_s();
  char tag[32];
  std::snprintf(tag, sizeof tag, "%016llx", static_cast<unsigned long long>(some_number()));
  std::vector<std::string> words{case_word, settings.implementation, entry.name, tag,
                                 std::to_string(settings.patience_s)};
  words.insert(words.end(), settings.modules.begin(), settings.modules.end());
  Process process(settings.program, words, with_length(to_xml(variant.profile)));
  const double limit_s = entry.limit_s * settings.patience_s / 30;
  const Deadline deadline = Deadline::in_s(limit_s);
  std::string where;
  for (bool over = false; !over;) {
    const std::string line = process.line(std::max(0, deadline.left_ms()) * 1e-3);
    if (line == "passed") {
      result.outcome = Outcome::passed;
      over = true;
    } else if (line.starts_with("failed ")) {
      result.reason = line.substr(7);
      over = true;
    } else if (line.starts_with("at ")) {
      where = line.substr(3);
    } else {
      over = true;
      if (deadline.passed()) {
        result.reason = "it did not end within " + std::to_string(static_cast<int>(limit_s)) + " s" +
                        (where.empty() ? "" : "; the last thing was: " + where);
        process.kill();
      } else {
        const int status = process.ended(5);
        result.reason = status >= 0 && WIFSIGNALED(status)
                            ? "its process was ended by signal " + std::to_string(WTERMSIG(status))
                            : "its process ended without a result";
        if (!where.empty()) result.reason += "; the last thing was: " + where;
      }
      result.elapsed_s = now_s() - began;
      return result;
    }
  }
  // A crash or hang while the process ends is also a fault of the implementation.
  process.close_input();
  const int status = process.ended(patience_s);
  if (result.outcome == Outcome::passed && status != 0) {
    result.outcome = Outcome::failed;
    result.reason = status < 0 ? "its process did not end when all was done"
                    : WIFSIGNALED(status)
                        ? "when all was done its process was ended by signal " + std::to_string(WTERMSIG(status))
                        : "when all was done its process ended with " + std::to_string(WEXITSTATUS(status));
  }
  if (status < 0) process.kill();
  result.elapsed_s = now_s() - began;
  return result;
}

int run_case(int argc, char** argv) {
  if (argc < 6) return 2;
  const std::string implementation = argv[2], name = argv[3], tag = argv[4];
  patience_s = std::strtod(argv[5], nullptr);
  const std::vector<std::string> modules(argv + 6, argv + argc);
  const std::string xml = read_input();
  std::string reason;
  Outcome outcome = Outcome::failed;
  auto profile = parse_profile(xml);
  if (!profile) reason = profile.error().what;
  for (const auto& path : modules)
    if (auto loaded = load_module(path); !loaded) reason = loaded.error().what;
  if (reason.empty()) {
    reason = "there is no such case";
    char self[4096];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self);
    for (const Entry& entry : entries())
      if (name == entry.name) {
        reason.clear();
        outcome = run_here(entry, implementation, *profile, std::string(self, n > 0 ? static_cast<std::size_t>(n) : 0),
                           modules, tag, reason);
      }
  }
  write_all(result_descriptor, outcome == Outcome::passed ? "passed\n" : "failed " + one_line(reason) + "\n");
  return 0;
}

int run_peer(int argc, char** argv) {
  if (argc < 5) return 2;
  auto profile = parse_profile(read_input());
  for (int k = 5; k < argc; ++k)
    if (auto loaded = load_module(argv[k]); !loaded) return 2;
  if (!profile) return 2;
  auto bus = Bus::open(*profile, argv[2]);
  if (!bus) {
    write_all(result_descriptor, "failed " + one_line(bus.error().what) + "\n");
    return 3;
  }
  try {
    return play(argv[3], argv[4], *bus);
  } catch (...) {
    write_all(result_descriptor, "failed " + one_line(text_of_exception()) + "\n");
    return 1;
  }
}

}  // namespace

// ---- processes

Process::Process(const std::string& program, const std::vector<std::string>& words, const std::string& input) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0) throw Failed(std::string("no pipe: ") + std::strerror(errno));
  if (pipe2(out, O_CLOEXEC) != 0) {
    ::close(in[0]), ::close(in[1]);
    throw Failed(std::string("no pipe: ") + std::strerror(errno));
  }
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    // Only functions that are allowed after a fork of a program with threads.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    dup2(in[0], 0);
    if (out[1] == result_descriptor) fcntl(result_descriptor, F_SETFD, 0);
    else dup2(out[1], result_descriptor);
    dup2(2, 1);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  ::close(in[0]), ::close(out[1]);
  in_ = in[1], out_ = out[0];
  if (pid_ < 0) {
    ::close(in_), ::close(out_);
    throw Failed(std::string("no process: ") + std::strerror(errno));
  }
  // A pipe has room for every profile of the suite.
  struct sigaction ignore{}, before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  write_all(in_, input);
  sigaction(SIGPIPE, &before, nullptr);
}

Process::~Process() {
  close_input();
  if (ended(10) < 0) kill();
  ::close(out_);
}

void Process::close_input() {
  if (in_ >= 0) ::close(in_);
  in_ = -1;
}

std::string Process::line(double limit_s) {
  const Deadline deadline = Deadline::in_s(limit_s);
  for (;;) {
    if (const auto end = pending_.find('\n'); end != pending_.npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    pollfd wait{out_, POLLIN, 0};
    const int ready = poll(&wait, 1, deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return {};
    char block[4096];
    const ssize_t n = ::read(out_, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return {};
    pending_.append(block, static_cast<std::size_t>(n));
  }
}

int Process::ended(double limit_s) {
  if (status_ >= 0) return status_;
  int status = 0;
  if (!until([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, limit_s)) return -1;
  return status_ = status;
}

void Process::kill() {
  if (status_ >= 0) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
  status_ = status;
}

// ---- samples

TypePtr plain_type() {
  static const TypePtr type =
      structure("sonde::conformance::Plain", {{"number", primitive(Kind::uint32), false, {}},
                                              {"writer", primitive(Kind::uint32), false, {}},
                                              {"body", sequence_of(primitive(Kind::octet)), false, {}}});
  return type;
}
TypePtr keyed_type() {
  static const TypePtr type = structure("sonde::conformance::Keyed", {{"name", string_type(64), true, {}},
                                                                      {"number", primitive(Kind::uint32), false, {}}});
  return type;
}

namespace {
std::byte pattern(std::uint32_t number, std::uint32_t writer, std::size_t k) {
  return static_cast<std::byte>(number * 31 + writer * 7 + k + k / 251);
}
}  // namespace

std::vector<std::byte> plain(std::uint32_t number, std::uint32_t writer, std::size_t bytes) {
  std::vector<std::byte> payload, body(bytes);
  for (std::size_t k = 0; k < bytes; ++k) body[k] = pattern(number, writer, k);
  CdrWriter out(payload);
  out.put(number);
  out.put(writer);
  out.put(static_cast<std::uint32_t>(bytes));
  out.put_bytes(body);
  return payload;
}
std::vector<std::byte> keyed(const std::string& name, std::uint32_t number) {
  std::vector<std::byte> payload;
  CdrWriter out(payload);
  out.put(std::string_view(name));
  out.put(number);
  return payload;
}

std::vector<Seen> take(Reader& reader) {
  std::vector<Seen> all;
  const bool is_keyed = has_key(*reader.type());
  reader.take([&](const SampleInfo& info, Bytes payload) {
    Seen seen;
    seen.info = info;
    CdrReader in(payload);
    if (is_keyed) {
      seen.name = in.get_string(64);
      seen.number = in.get<std::uint32_t>();
      seen.whole = in.ok();
    } else {
      seen.number = in.get<std::uint32_t>();
      seen.writer = in.get<std::uint32_t>();
      const Bytes body = in.get_bytes(in.get_length(0, 1));
      seen.bytes = body.size();
      seen.whole = in.ok();
      for (std::size_t k = 0; k < body.size() && seen.whole; ++k)
        seen.whole = body[k] == pattern(seen.number, seen.writer, k);
    }
    all.push_back(std::move(seen));
  });
  return all;
}
std::vector<Seen> take(Reader& reader, std::size_t n, double limit_s) {
  std::vector<Seen> all;
  until(
      [&] {
        for (auto& seen : take(reader)) all.push_back(std::move(seen));
        return all.size() >= n;
      },
      limit_s);
  return all;
}

// ---- the scene

std::uint16_t free_port() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  std::uint16_t port = 0;
  if (fd >= 0 && bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0)
    port = ntohs(address.sin_port);
  if (fd >= 0) ::close(fd);
  return port;
}

Scene::Scene(std::string implementation, Profile profile, const Caps& caps, std::string program,
             std::vector<std::string> modules, std::string tag)
    : implementation_(std::move(implementation)),
      profile_(std::move(profile)),
      caps_(caps),
      program_(std::move(program)),
      modules_(std::move(modules)),
      tag_(std::move(tag)) {
  entry_ = need(find_implementation(implementation_), "the implementation");
  if (profile_.discovery.kind != DiscoveryKind::server || profile_.discovery.serve) return;
  // With the suite's own variants, each case has its own server, at a port that was free just before.
  const bool own = profile_.name == own_profile;
  for (int attempt = 1; !server_; ++attempt) {
    if (own) profile_.discovery.servers = {"127.0.0.1:" + std::to_string(free_port())};
    Profile serving = profile_;
    serving.discovery.serve = true;
    serving.participant = "conformance server";
    auto opened = Bus::open(serving, implementation_);
    if (opened || !own || attempt == 5) server_ = need(std::move(opened), "the discovery server does not open");
  }
}

std::shared_ptr<Bus> Scene::open(const std::function<void(Profile&)>& change) {
  Profile profile = profile_;
  if (change) change(profile);
  return need(Bus::open(profile, implementation_), "the participant does not open");
}

std::unique_ptr<Process> Scene::peer(const std::string& role, const std::string& topic,
                                     const std::function<void(Profile&)>& change) {
  Profile profile = profile_;
  profile.participant = peer_name(role);
  if (change) change(profile);
  std::vector<std::string> words{peer_word, implementation_, role, topic};
  words.insert(words.end(), modules_.begin(), modules_.end());
  auto process = std::make_unique<Process>(program_, words, with_length(to_xml(profile)));
  const std::string line = process->line(patience_s);
  expect(line == "ready", "the peer " + role + " did not get ready: " + (line.empty() ? "it said nothing" : line));
  return process;
}

void Scene::at(const std::string& what) const { write_all(result_descriptor, "at " + one_line(what) + "\n"); }

std::unique_ptr<Writer> Scene::writer(const std::shared_ptr<Bus>& bus, const std::string& topic, const Qos& qos,
                                      const TypePtr& type) {
  return need(bus->writer(topic, type, qos), "no writer");
}
std::unique_ptr<Reader> Scene::reader(const std::shared_ptr<Bus>& bus, const std::string& topic, const Qos& qos,
                                      const TypePtr& type) {
  return need(bus->reader(topic, type, qos), "no reader");
}
void Scene::matched(Writer& writer, std::size_t readers) {
  expect(writer.wait_matched(readers, Deadline::in_s(patience_s)),
         "the writer of " + writer.topic() + " has " + std::to_string(writer.status().matched) +
             " matched readers instead of " + std::to_string(readers));
}
void Scene::matched(Reader& reader, std::size_t writers) {
  expect(reader.wait_matched(writers, Deadline::in_s(patience_s)),
         "the reader of " + reader.topic() + " has " + std::to_string(reader.status().matched) +
             " matched writers instead of " + std::to_string(writers));
}

// ---- the suite

std::vector<Variant> variants_of(const Caps& caps, std::uint32_t domain) {
  std::vector<Variant> all;
  Profile profile;
  profile.name = own_profile;
  profile.domain = domain;
  if (!caps.across_processes) return {{"in-process", profile, true}};
  const auto add = [&](const std::string& name, TransportKind kind, bool whole) -> Variant& {
    profile.transport = {};
    profile.transport.kind = kind;
    return all.emplace_back(Variant{name, profile, whole});
  };
  if (caps.udp4) add("udp4", TransportKind::udp4, true);
  if (caps.udp6) add("udp6", TransportKind::udp6, true);
  if (caps.tcp4) add("tcp4", TransportKind::tcp4, true);
  if (caps.shared_memory) add("shared-memory", TransportKind::shared_memory, true);
  if (!caps.udp4) return all;
  if (caps.multicast_samples)
    add("udp4 groups", TransportKind::udp4, false).profile.transport.multicast = Multicast::all;
  if (caps.peers) {
    Profile& peers = add("udp4 peers", TransportKind::udp4, false).profile;
    peers.transport.multicast = Multicast::none;
    peers.discovery.kind = DiscoveryKind::peers;
    peers.discovery.peers = {"127.0.0.1:12"};
  }
  if (caps.server) {
    Profile& server = add("udp4 server", TransportKind::udp4, false).profile;
    server.transport.multicast = Multicast::none;
    server.discovery.kind = DiscoveryKind::server;
    server.discovery.servers = {"127.0.0.1:" + std::to_string(free_port())};
  }
  return all;
}

std::vector<Name> case_names() {
  std::vector<Name> names;
  for (const Entry& entry : entries()) names.push_back({entry.name, entry.slow});
  return names;
}

Result<std::vector<Case>> check(const Settings& settings) {
  if (settings.program.empty() || access(settings.program.c_str(), X_OK) != 0)
    return Error{"bus.conformance",
                 "the program '" + settings.program + "' cannot be started: each case runs in a process of it",
                 "give the path of sonde-busconform"};
  for (const auto& path : settings.modules)
    if (auto loaded = load_module(path); !loaded) return loaded.error();
  const auto found = find_implementation(settings.implementation);
  if (!found) return found.error();
  const Caps caps = (*found)->caps();
  // If possible a domain that others do not use, and without ephemeral ports, which domains 101 to 214 have.
  const auto variants = settings.variants.empty()
                            ? variants_of(caps, static_cast<std::uint32_t>(20 + some_number() % 80))
                            : settings.variants;
  std::vector<Case> all;
  for (const Variant& variant : variants)
    for (const Entry& entry : entries()) {
      if (settings.only.empty() ? entry.slow : !fits(settings.only, entry.name)) continue;
      if (!variant.whole && !entry.everywhere && settings.only.empty()) continue;
      Case result;
      if (const std::string lacks = entry.lacks ? entry.lacks(caps) : ""; !lacks.empty()) {
        result = {variant.name, entry.name, Outcome::unsupported, lacks, 0};
      } else {
        try {
          result = run_apart(entry, settings, variant);
        } catch (...) {
          result = {variant.name, entry.name, Outcome::failed, text_of_exception(), 0};
        }
      }
      if (settings.told) settings.told(result);
      all.push_back(std::move(result));
    }
  return all;
}

int inner(int argc, char** argv) {
  if (argc < 2) return -1;
  if (std::string_view(argv[1]) == case_word) return run_case(argc, argv);
  if (std::string_view(argv[1]) == peer_word) return run_peer(argc, argv);
  return -1;
}

}  // namespace sonde::bus::conformance
