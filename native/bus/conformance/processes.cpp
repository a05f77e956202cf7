// Cases with other processes, which are also killed.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bus/conformance/scene.hpp"
#include "bus/request.hpp"

namespace sonde::bus::conformance {

namespace {

Qos lasting(const Caps& caps) {
  Qos qos;
  qos.history = History::keep_all;
  qos.max_blocking_s = patience_s;
  if (caps.durability) qos.durability = Durability::transient_local;
  return qos;
}

void say(const std::string& word) {
  const std::string line = word + "\n";
  if (::write(3, line.data(), line.size()) < 0) _exit(4);
}

/// One round with a peer that echoes.
void round_trips(Scene& scene, const std::shared_ptr<Bus>& bus, const std::string& topic, std::uint32_t rounds) {
  auto writer = Scene::writer(bus, topic, lasting(scene.caps()));
  auto reader = Scene::reader(bus, topic + "_back", lasting(scene.caps()));
  Scene::matched(*writer);
  Scene::matched(*reader);
  for (std::uint32_t k = 0; k < rounds; ++k) {
    const std::size_t bytes = std::size_t{k} * k * 7;
    scene.at("round " + std::to_string(k) + " of " + std::to_string(bytes) + " B");
    need(writer->write(plain(k, 5, bytes)), "write");
    const auto got = take(*reader, 1);
    expect(got.size() == 1, "sample " + std::to_string(k) + " of " + std::to_string(bytes) +
                                " B did not come back from another process");
    expect(got[0].number == k && got[0].bytes == bytes && got[0].whole,
           "sample " + std::to_string(k) + " came back as another");
  }
}

void across(Scene& scene) {
  const std::string topic = scene.topic("across");
  const auto peer = scene.peer("echo", topic);
  const auto bus = scene.open();
  round_trips(scene, bus, topic, 100);
  Participant other;
  expect(until([&] {
           for (const Participant& p : bus->peers())
             if (p.pid == peer->pid() || p.name == scene.peer_name("echo")) {
               other = p;
               return true;
             }
           return false;
         }),
         "peers() has not the participant of another process");
  expect(other.pid == -1 || other.pid == peer->pid(),
         "its pid is reported as " + std::to_string(other.pid) + " instead of " + std::to_string(peer->pid()));
}

void many(Scene& scene) {
  const std::string topic = scene.topic("many");
  constexpr std::uint32_t processes = 4;
  std::vector<std::unique_ptr<Process>> peers;
  for (std::uint32_t k = 0; k < processes; ++k) peers.push_back(scene.peer("echo", topic));
  const auto bus = scene.open();
  auto writer = Scene::writer(bus, topic, lasting(scene.caps()));
  auto reader = Scene::reader(bus, topic + "_back", lasting(scene.caps()));
  Scene::matched(*writer, processes);
  Scene::matched(*reader, processes);
  constexpr std::uint32_t n = 200;
  for (std::uint32_t k = 0; k < n; ++k) need(writer->write(plain(k, 1, 100)), "write");
  std::map<Guid, std::uint32_t> next;
  std::size_t got = 0;
  expect(until([&] {
           for (const Seen& seen : take(*reader)) {
             ++got;
             expect(seen.number == next[seen.info.writer]++,
                    "sample " + std::to_string(seen.number) + " of a process is out of order");
           }
           return got == n * processes;
         }),
         std::to_string(got) + " of " + std::to_string(n * processes) + " samples came back");
  expect(next.size() == processes, "samples are reported to be of " + std::to_string(next.size()) +
                                       " writers instead of " + std::to_string(processes));
}

void flood(Scene& scene) {
  const std::string topic = scene.topic("flood");
  const auto peer = scene.peer("echo", topic);
  const auto bus = scene.open();
  auto writer = Scene::writer(bus, topic, lasting(scene.caps()));
  auto reader = Scene::reader(bus, topic + "_back", lasting(scene.caps()));
  Scene::matched(*writer);
  Scene::matched(*reader);
  constexpr std::uint32_t n = 10000;
  std::string failed;
  std::atomic<bool> over{false};
  std::thread writes([&] {
    for (std::uint32_t k = 0; k < n && failed.empty() && !over; ++k)
      if (auto ok = writer->write(plain(k, 3, k % 2000)); !ok)
        failed = "write " + std::to_string(k) + ": " + ok.error().what;
  });
  std::uint32_t next = 0;
  std::string wrong;
  until(
      [&] {
        for (const Seen& seen : take(*reader)) {
          if (wrong.empty() && (seen.number != next || !seen.whole || seen.bytes != next % 2000))
            wrong = "sample " + std::to_string(seen.number) + " came back instead of " + std::to_string(next);
          ++next;
        }
        return next >= n || !wrong.empty();
      },
      90);
  over = true;
  writes.join();
  expect(failed.empty(), failed);
  expect(wrong.empty(), wrong);
  expect(next == n, std::to_string(next) + " of " + std::to_string(n) + " samples came back from another process");
}

void killed(Scene& scene) {
  const auto brief = [](Profile& profile) {
    profile.discovery.lease_s = 2;
    profile.discovery.announce_s = 0.5;
  };
  const std::string topic = scene.topic("killed");
  const auto peer = scene.peer("echo", topic, brief);
  const auto bus = scene.open(brief);
  round_trips(scene, bus, topic, 3);
  auto writer = Scene::writer(bus, topic, lasting(scene.caps()));
  auto reader = Scene::reader(bus, topic + "_back", lasting(scene.caps()));
  Scene::matched(*writer);
  Scene::matched(*reader);
  peer->kill();
  // Ten leases: a shared machine may be late.
  expect(until([&] { return writer->status().matched == 0 && reader->status().matched == 0; }, 20),
         "20 s after a process with a lease of 2 s was killed its endpoints are still matched");
  expect(until([&] {
           for (const Participant& p : bus->peers())
             if (p.name == scene.peer_name("echo") || (p.pid > 0 && p.pid == peer->pid())) return false;
           return true;
         }),
         "peers() still has a process that was killed");
  need(writer->write(plain(1)), "write after a peer was killed");
  const auto again = scene.peer("echo", topic, brief);
  Scene::matched(*writer);
  Scene::matched(*reader);
  need(writer->write(plain(99)), "write");
  expect(until([&] {
           for (const Seen& seen : take(*reader))
             if (seen.number == 99) return true;
           return false;
         }),
         "a process that was started again is not heard");
}

void orphaned(Scene& scene) {
  const auto brief = [](Profile& profile) {
    profile.discovery.lease_s = 2;
    profile.discovery.announce_s = 0.5;
  };
  const auto bus = scene.open(brief);
  for (const bool kills : {false, true}) {
    const std::string word = kills ? "killed" : "ended";
    const std::string topic = scene.topic("orphaned_" + word);
    auto reader = Scene::reader(bus, topic, lasting(scene.caps()), keyed_type());
    const auto peer = scene.peer("keyed", topic, brief);
    const auto got = take(*reader, 2);
    expect(got.size() == 2 && got[0].info.has_data && got[1].info.has_data,
           "2 instances of another process did not come");
    if (kills) {
      peer->kill();
    } else {
      peer->close_input();
      expect(peer->ended(patience_s) == 0, "a process did not end in order");
    }
    // Ten leases: a shared machine may be late.
    const auto ends = take(*reader, 2, 20);
    expect(ends.size() == 2, std::to_string(ends.size()) +
                                 " of 2 instances were reported to have no writers within 20 s " +
                                 "after their process was " + word + ", with a lease of 2 s");
    expect(std::set{ends[0].name, ends[1].name} == std::set{got[0].name, got[1].name},
           "other instances are reported than those whose process was " + word);
    for (const Seen& seen : ends)
      expect(!seen.info.has_data && seen.info.state == InstanceState::no_writers,
             "'" + seen.name + "' is not reported to have no writers after its process was " + word);
    expect(take(*reader).empty(), "ends of instances are reported more than once");
  }
}

std::set<std::string> shared_files() {
  std::set<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none)) names.insert(entry.path());
  return names;
}
/// The shared files that one process has mapped or open.
std::set<std::string> shared_files_of(const std::filesystem::path& process) {
  constexpr std::string_view folder = "/dev/shm/";
  std::set<std::string> names;
  std::error_code none;
  std::ifstream maps(process / "maps");
  for (std::string line; std::getline(maps, line);)
    if (const auto at = line.find(folder); at != line.npos) names.insert(line.substr(at, line.find(' ', at) - at));
  for (const auto& fd : std::filesystem::directory_iterator(process / "fd", none))
    if (const std::string path = std::filesystem::read_symlink(fd.path(), none); path.starts_with(folder))
      names.insert(path.substr(0, path.find(' ')));
  return names;
}
/// Whether a process has the file mapped or open, so that it is in use. A named mutex (sem.NAME_mutex) belongs to the
/// file that it guards.
bool in_use(std::string path) {
  if (const auto at = path.find("/sem."); at != std::string::npos && path.ends_with("_mutex"))
    path = path.substr(0, at + 1) + path.substr(at + 5, path.size() - at - 5 - 6);
  std::error_code none;
  for (const auto& process : std::filesystem::directory_iterator("/proc", none)) {
    const std::string name = process.path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos && shared_files_of(process.path()).contains(path))
      return true;
  }
  return false;
}

void leftovers(Scene& scene) {
  const std::string topic = scene.topic("left");
  const auto before = shared_files();
  const auto stays = scene.peer("echo", scene.topic("stays"));
  std::set<std::string> made;
  for (int k = 0; k < 3; ++k) {
    const auto peer = scene.peer("echo", topic + std::to_string(k));
    {
      const auto bus = scene.open();
      round_trips(scene, bus, topic + std::to_string(k), 3);
    }
    // Other programs on this machine create such files too: only this process's files count, and those named after
    // them.
    const auto own = shared_files_of("/proc/" + std::to_string(peer->pid()));
    for (const auto& path : shared_files())
      if (!before.contains(path) && std::any_of(own.begin(), own.end(), [&](const std::string& its) {
            return path.find(its.substr(its.rfind('/') + 1)) != path.npos;
          }))
        made.insert(path);
    peer->kill();
  }
  if (scene.entry().clean) scene.entry().clean();
  std::string left;
  const bool gone = until(
      [&] {
        left.clear();
        const auto now = shared_files();
        for (const auto& path : made)
          if (now.contains(path) && !in_use(path)) left += (left.empty() ? "" : ", ") + path;
        return left.empty();
      },
      5);
  expect(gone, "killed processes left " + left + " after clean()");
  const auto bus = scene.open();
  round_trips(scene, bus, scene.topic("stays"), 5);  // clean() removed nothing of living processes
}

void interrupted(Scene& scene) {
  const std::string topic = scene.topic("stopped");
  const auto peer = scene.peer("echo", topic);
  const auto bus = scene.open();
  round_trips(scene, bus, topic, 3);
  peer->close_input();
  const int status = peer->ended(patience_s);
  expect(status == 0, status < 0 ? "a process did not end in order"
                                 : "a process ended in order with status " + std::to_string(status));
}

std::string one_process(const Caps& caps) { return caps.across_processes ? "" : "other processes"; }

}  // namespace

std::vector<Entry> process_cases() {
  return {
      {"processes: samples to another and back, 0 B to 70 kB", true, false, 180, one_process, across},
      {"processes: four at once, each heard in order", true, false, 180, one_process, many},
      {"processes: 10,000 samples to another and back, all and in order", true, false, 180, one_process, flood},
      {"processes: one that ends closes what it opened", false, false, 120, one_process, interrupted},
      {"processes: a killed one is noticed, and its successor found", true, false, 240, one_process, killed},
      {"processes: instances of one that ended or was killed have no writers", true, false, 240, one_process, orphaned},
      {"processes: what killed ones left is cleaned, and nothing else", false, false, 240, one_process, leftovers},
  };
}

int play(const std::string& role, const std::string& topic, const std::shared_ptr<Bus>& bus) {
  std::atomic<bool> over{false};
  auto waiter = need(bus->waiter(), "no waiter");
  // The end of input means that the parent has ended.
  std::thread watch([&] {
    char c;
    while (::read(0, &c, 1) > 0) {}
    over = true;
    waiter->wake();
  });
  std::string failed;
  if (role == "echo") {
    auto reader = Scene::reader(bus, topic, lasting(bus->caps()));
    auto writer = Scene::writer(bus, topic + "_back", lasting(bus->caps()));
    need(waiter->attach(*reader, 1), "attach");
    say("ready");
    while (!over) {
      waiter->wait(Deadline{});
      for (const Seen& seen : take(*reader))
        if (auto ok = writer->write(plain(seen.number, seen.writer, seen.bytes)); !ok) failed = ok.error().what;
    }
  } else if (role == "keyed") {
    auto writer = Scene::writer(bus, topic, lasting(bus->caps()), keyed_type());
    say("ready");
    writer->wait_matched(1, Deadline::in_s(patience_s));
    for (const char* name : {"n001", "a name that is longer than sixteen bytes"})
      if (auto ok = writer->write(keyed(name, 1)); !ok) failed = ok.error().what;
    while (!over) waiter->wait(Deadline{});
  } else if (role == "serve") {
    auto server = need(Server::open(bus, topic, {},
                                    [](const Incoming& in) {
                                      Answer answer;
                                      answer.body.assign(in.body.begin(), in.body.end());
                                      return answer;
                                    },
                                    {"served", 2}),
                       "no server");
    say("ready");
    while (!over) waiter->wait(Deadline{});
  }
  watch.join();
  if (!failed.empty()) say("failed " + failed);
  return failed.empty() ? 0 : 1;
}

}  // namespace sonde::bus::conformance
