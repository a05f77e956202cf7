#pragma once
/// What a DDS has to supply to stand behind the bus, and the door through which it comes: a shared object with one
/// symbol.
///
///   extern "C" const sonde::bus::Module* sonde_bus_module();
///
/// Samples cross this line as payloads (cdr.hpp); types, checking, names, request and reply stay above it. Adding one
/// in five steps: docs/howto/bus-module.md. The suite that it has to pass: `sonde bus conformance`. Nothing here
/// throws; objects are destroyed before what made them.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bus/profile.hpp"
#include "core/deadline.hpp"
#include "core/error.hpp"

namespace sonde::bus {

/// Of a participant, writer or reader: as the implementation and DDSI-RTPS know it. An endpoint's first 12 bytes are
/// its participant's.
struct Guid {
  std::array<std::byte, 16> bytes{};
  auto operator<=>(const Guid&) const = default;
  std::string text() const;  ///< 32 digits in hexadecimal
};

/// What an implementation can do. What it cannot is refused with bus.unsupported when it is asked for, never silently
/// done otherwise.
struct Caps {
  bool udp4 = false, udp6 = false, tcp4 = false, shared_memory = false;
  bool multicast_samples = false;  ///< Multicast::all
  bool peers = false, server = false, server_backup = false;
  bool security = false;
  bool partitions = false, partition_wildcards = false;
  bool across_processes = false;
  bool durability = false;  ///< transient_local
  bool liveliness = false, deadline = false, lifespan = false, latency_budget = false;
  bool ownership = false, ownership_best_effort = false;  ///< exclusive; of best-effort writers and readers too
  bool order_by_source = false;
};

enum class InstanceState : std::uint8_t { alive, disposed, no_writers };

struct SampleInfo {
  Guid writer;
  std::int64_t source_ns = 0;    ///< CLOCK_REALTIME of the writer's host, ns since 1970; 0: not told
  std::int64_t received_ns = 0;  ///< the same of this host, when the implementation had it; 0: not told
  InstanceState state = InstanceState::alive;
  bool has_data = true;  ///< false: only the key fields of the payload mean something
};

/// Cumulative since the endpoint was made, but for matched, alive. What an implementation does not count is -1.
struct Status {
  std::int64_t matched = 0, matched_ever = 0;
  std::int64_t incompatible =
      0;  ///< how often a peer of the same topic was met whose QoS excludes a match; a DDS may meet one twice
  std::string incompatible_policy;  ///< which policy the last one was about: "reliability"
  std::int64_t lost = 0;            ///< reader: samples that were sent and never will be here
  std::int64_t rejected = 0;        ///< reader: samples without place
  std::int64_t deadline_missed = 0;
  std::int64_t liveliness_lost = 0, alive = 0;
};

struct Participant {
  Guid guid;
  std::string name, host;  ///< as announced; empty: not told
  std::int64_t pid = -1;
};

struct Endpoint {
  Guid guid, participant;
  bool writes = false;
  std::string topic, type;
  std::vector<std::string> partitions;
  Reliability reliability = Reliability::reliable;
  Durability durability = Durability::volatile_;
  std::string user_data;
};

/// Thread rules: any thread may call any object; one reader is taken from by one thread at a time.
class WriterPort {
 public:
  virtual ~WriterPort() = default;
  virtual Guid guid() const = 0;
  /// `key`: serialised_key() of the payload, empty for types without. Blocks at most Qos::max_blocking_s (reliable):
  /// bus.timed_out.
  virtual Result<void> write(Bytes payload, Bytes key) = 0;
  virtual Result<void> dispose(Bytes payload, Bytes key) = 0;
  /// Sends what a latency budget holds back.
  virtual void flush() {}
  /// Until all matched reliable readers have all; false: not by then.
  virtual bool wait_acknowledged(Deadline deadline) = 0;
  virtual void assert_liveliness() = 0;
  virtual Status status() = 0;
  virtual std::vector<Guid> matched() = 0;
};

class ReaderPort {
 public:
  virtual ~ReaderPort() = default;
  virtual Guid guid() const = 0;
  using Taker = std::function<void(const SampleInfo&, Bytes payload)>;
  /// At most `most` samples, oldest first; the payload is valid during the call. Returns how many.
  virtual std::size_t take(std::size_t most, const Taker& taker) = 0;
  virtual Status status() = 0;
  virtual std::vector<Guid> matched() = 0;
  /// `tell` is called from now on whenever a writer is matched or goes, by a thread of the implementation's: it rings
  /// something, and calls nothing here. Empty: no more, and none is under way when this returns. False: it cannot tell,
  /// whoever wants to know asks matched().
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overrides keep the function
  virtual bool on_match(std::function<void()> tell) { return !tell; }
  /// What each writer that is matched now has announced as user data; nothing: ask endpoints(). Asked before the first
  /// sample of each writer is handed on, by the thread that takes: what it costs comes on top of every first message.
  virtual std::optional<std::vector<std::pair<Guid, std::string>>> announcements() { return {}; }
};

/// One thread waits, others may wake it.
class WaiterPort {
 public:
  virtual ~WaiterPort() = default;
  /// The reader has to be of the same participant; `tag` comes back from wait(). Detached before the reader goes.
  virtual Result<void> attach(ReaderPort& reader, std::uint64_t tag) = 0;
  virtual void detach(ReaderPort& reader) = 0;
  /// Tags of readers that have samples now; empty: deadline or wake(). Never returns before either. A wake() that came
  /// before counts.
  virtual std::vector<std::uint64_t> wait(Deadline deadline) = 0;
  virtual void wake() = 0;
};

class ParticipantPort {
 public:
  virtual ~ParticipantPort() = default;
  virtual Guid guid() const = 0;
  /// The type's name, fields and key come from `type`; announced user data is `qos.user_data` as it is.
  virtual Result<std::unique_ptr<WriterPort>> writer(const std::string& topic, const TypePtr& type, const Qos& qos) = 0;
  virtual Result<std::unique_ptr<ReaderPort>> reader(const std::string& topic, const TypePtr& type, const Qos& qos) = 0;
  virtual Result<std::unique_ptr<WaiterPort>> waiter() = 0;
  /// Others that are known now, without this one.
  virtual std::vector<Participant> peers() = 0;
  /// All endpoints of others that are known now, matched or not; the implementation's own, built-in ones are left out.
  virtual std::vector<Endpoint> endpoints() = 0;
  /// The port that others reach it at by tcp or as a server, where it is listening; 0: none.
  virtual std::uint16_t port() const { return 0; }
};

struct ImplementationEntry {
  const char* name = "";               ///< "cyclonedds"
  const char* (*version)() = nullptr;  ///< of the DDS itself: "0.10.2"
  Caps (*caps)() = nullptr;
  /// The profile has passed check() and caps: what is left to fail is the machine. Errors: bus.open (what, and what the
  /// DDS said).
  Result<std::unique_ptr<ParticipantPort>> (*open)(const Profile& profile) = nullptr;
  /// Removes what killed participants of it left on this machine (shared memory, lock files), and only theirs. How
  /// many.
  std::size_t (*clean)() = nullptr;
};

inline constexpr unsigned module_abi = 3;
struct Module {
  unsigned abi = module_abi;
  std::span<const ImplementationEntry> implementations;
};

/// Names that open by name, sorted; modules are loaded from `bus/` beside libsonde-bus.so and the folders in
/// SONDE_BUS_MODULES.
std::vector<std::string> implementation_names();
/// Errors: bus.unknown_implementation (it, what there is, what to install), bus.bad_module.
Result<const ImplementationEntry*> find_implementation(std::string_view name);
/// Loads a module that is in no folder where they are looked for, and gives the names that it brings. Error:
/// bus.bad_module.
Result<std::vector<std::string>> load_module(const std::string& path);
/// What could not be loaded, with the reason.
std::vector<Error> broken_modules();
/// What a profile or QoS asks for that the implementation cannot do: bus.unsupported (it, what was asked, which
/// implementation can). Transports and discovery are not asked about where nothing leaves the process.
Result<void> check(const Profile& profile, std::string_view name, const Caps& caps);
Result<void> check(const Qos& qos, std::string_view name, const Caps& caps);

}  // namespace sonde::bus
