#pragma once
/// The environment of a case: participants, samples, other processes, and messages about expectations. Owner-thread,
/// unless stated otherwise.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bus/bus.hpp"
#include "bus/conformance/suite.hpp"
#include "core/clock.hpp"

namespace sonde::bus::conformance {

/// Ends a case; never leaves the suite.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The time limit for events that should happen soon: Settings::patience_s.
inline double patience_s = 30;

inline void expect(bool good, const std::string& what) {
  if (!good) throw Failed(what);
}
template <typename T> T need(Result<T> result, const std::string& what) {
  if (!result) throw Failed(what + ": " + result.error().code + ": " + result.error().what);
  return std::move(*result);
}
inline void need(const Result<void>& result, const std::string& what) {
  if (!result) throw Failed(what + ": " + result.error().code + ": " + result.error().what);
}
/// Any-thread.
template <typename Done> bool until(const Done& done, double limit_s = patience_s) {
  const Deadline deadline = Deadline::in_s(limit_s);
  while (!done()) {
    if (deadline.passed()) return false;
    sleep_until(now_s() + 2e-3);
  }
  return true;
}
/// A UDP port of loopback that is free now.
std::uint16_t free_port();
inline void pause(double s) { sleep_until(now_s() + s); }

/// A sample of plain_type(): a number, the writer, and bytes that depend on both. Any-thread.
TypePtr plain_type();
std::vector<std::byte> plain(std::uint32_t number, std::uint32_t writer = 0, std::size_t bytes = 0);
/// A sample of keyed_type(): the key is a name.
TypePtr keyed_type();
std::vector<std::byte> keyed(const std::string& name, std::uint32_t number);

struct Seen {
  SampleInfo info;
  std::uint32_t number = 0, writer = 0;
  std::size_t bytes = 0;
  bool whole = false;  ///< the bytes are the written ones
  std::string name;    ///< the key of keyed samples
};
/// Takes the samples that have arrived. Any-thread, one thread for each reader.
std::vector<Seen> take(Reader& reader);
/// Waits for `n` samples; returns fewer when the time is over.
std::vector<Seen> take(Reader& reader, std::size_t n, double limit_s = patience_s);

/// Another process of the same program, which is killed when this one ends. It writes "ready" when its participant
/// exists.
class Process {
 public:
  Process(const std::string& program, const std::vector<std::string>& words, const std::string& input);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  /// The next line that it writes; empty: none in time.
  std::string line(double limit_s);
  void kill();  ///< SIGKILL, and waits for its end
  pid_t pid() const { return pid_; }
  int descriptor() const { return out_; }
  /// Its wait status if it has ended within this time; else -1.
  int ended(double limit_s);
  void close_input();

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, status_ = -1;
  std::string pending_;
};

class Scene {
 public:
  Scene(std::string implementation, Profile profile, const Caps& caps, std::string program,
        std::vector<std::string> modules, std::string tag);
  const Caps& caps() const { return caps_; }
  const Profile& profile() const { return profile_; }
  const ImplementationEntry& entry() const { return *entry_; }
  /// Opens a participant. `change`, if given, can change the profile before.
  std::shared_ptr<Bus> open(const std::function<void(Profile&)>& change = {});
  /// A name that no other case, run or variant has.
  std::string topic(const std::string& word) const { return "conformance_" + tag_ + "_" + word; }
  /// The name of a peer's participant, unique to this run.
  std::string peer_name(const std::string& role) const { return "conformance " + role + " " + tag_; }
  std::unique_ptr<Process> peer(const std::string& role, const std::string& topic,
                                const std::function<void(Profile&)>& change = {});
  /// Notes the present step, as a hint if the case does not end. Any-thread.
  void at(const std::string& what) const;

  static std::unique_ptr<Writer> writer(const std::shared_ptr<Bus>& bus, const std::string& topic, const Qos& qos = {},
                                        const TypePtr& type = plain_type());
  static std::unique_ptr<Reader> reader(const std::shared_ptr<Bus>& bus, const std::string& topic, const Qos& qos = {},
                                        const TypePtr& type = plain_type());
  static void matched(Writer& writer, std::size_t readers = 1);
  static void matched(Reader& reader, std::size_t writers = 1);

 private:
  std::string implementation_;
  Profile profile_;
  Caps caps_;
  std::string program_;
  std::vector<std::string> modules_;
  std::string tag_;
  const ImplementationEntry* entry_ = nullptr;
  std::shared_ptr<Bus> server_;  ///< if discovery uses a server
};

/// One case of the suite.
struct Entry {
  const char* name;
  bool everywhere;  ///< false: on whole variants only
  bool slow;
  double limit_s;
  std::string (*lacks)(const Caps& caps);  ///< the missing feature that this case needs; null or empty: none
  void (*run)(Scene& scene);
};
std::vector<Entry> sample_cases();
std::vector<Entry> process_cases();
std::vector<Entry> request_cases();

/// A peer's work in its own process: "echo", "keyed", "serve". Returns its exit code.
int play(const std::string& role, const std::string& topic, const std::shared_ptr<Bus>& bus);

}  // namespace sonde::bus::conformance
