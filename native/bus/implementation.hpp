#pragma once
/// The interface that a DDS must implement for the bus, and its entry point: a shared object with one symbol.
///
///   extern "C" const sonde::bus::Module* sonde_bus_module();
///
/// Samples cross this interface as payloads (cdr.hpp). Types, checks, names, requests and replies are above it. How to
/// add an implementation: docs/howto/bus-module.md. It must pass `sonde bus conformance`. No function here throws;
/// objects are destroyed before the object that created them.

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

/// The GUID of a participant, writer or reader in the implementation and in DDSI-RTPS. The first 12 bytes of an
/// endpoint are those of its participant.
struct Guid {
  std::array<std::byte, 16> bytes{};
  auto operator<=>(const Guid&) const = default;
  std::string text() const;  ///< 32 hexadecimal digits
};

/// The features of an implementation. A request for another feature fails with bus.unsupported; it is never ignored.
struct Caps {
  bool udp4 = false, udp6 = false, tcp4 = false, shared_memory = false;
  bool multicast_samples = false;  ///< Multicast::all
  bool peers = false, server = false, server_backup = false;
  bool security = false;
  bool partitions = false, partition_wildcards = false;
  bool across_processes = false;
  bool durability = false;  ///< transient_local
  bool liveliness = false, deadline = false, lifespan = false, latency_budget = false;
  bool ownership = false, ownership_best_effort = false;  ///< exclusive; also for best-effort writers and readers
  bool order_by_source = false;
};

enum class InstanceState : std::uint8_t { alive, disposed, no_writers };

struct SampleInfo {
  Guid writer;
  std::int64_t source_ns = 0;    ///< CLOCK_REALTIME of the writer's host, ns since 1970; 0: unknown
  std::int64_t received_ns = 0;  ///< the same on this host, at the arrival in the implementation; 0: unknown
  InstanceState state = InstanceState::alive;
  bool has_data = true;  ///< false: only the key fields of the payload are valid
};

/// Totals since the creation of the endpoint, except for matched and alive. -1: the implementation does not count it.
struct Status {
  std::int64_t matched = 0, matched_ever = 0;
  std::int64_t incompatible =
      0;  ///< number of peers of the same topic whose QoS excludes a match; a DDS may count one twice
  std::string incompatible_policy;  ///< the policy of the last one: "reliability"
  std::int64_t lost = 0;            ///< reader: samples that were sent and will not arrive
  std::int64_t rejected = 0;        ///< reader: samples rejected because the queue was full
  std::int64_t deadline_missed = 0;
  std::int64_t liveliness_lost = 0, alive = 0;
};

struct Participant {
  Guid guid;
  std::string name, host;  ///< as announced; empty: unknown
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

/// Thread rules: any thread may call any object; one thread at a time takes from a reader.
class WriterPort {
 public:
  virtual ~WriterPort() = default;
  virtual Guid guid() const = 0;
  /// `key`: serialised_key() of the payload, empty for types without key. Blocks at most Qos::max_blocking_s
  /// (reliable): bus.timed_out.
  virtual Result<void> write(Bytes payload, Bytes key) = 0;
  virtual Result<void> dispose(Bytes payload, Bytes key) = 0;
  /// Sends the samples that a latency budget delays.
  virtual void flush() {}
  /// Waits until all matched reliable readers have all samples; false: not in time.
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
  /// Takes at most `most` samples, oldest first; the payload is valid during the call. Returns their number.
  virtual std::size_t take(std::size_t most, const Taker& taker) = 0;
  virtual Status status() = 0;
  virtual std::vector<Guid> matched() = 0;
  /// From now on a thread of the implementation calls `tell` whenever a writer matches or ends. `tell` only wakes a
  /// thread, and calls no function here. Empty: no further calls, and no call is active when this returns. False: not
  /// supported; callers use matched().
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overrides keep the function
  virtual bool on_match(std::function<void()> tell) { return !tell; }
  /// The announced user data of each matched writer; nullopt: use endpoints(). The taking thread calls it before it
  /// delivers the first sample of each writer, so its cost adds to each first message.
  virtual std::optional<std::vector<std::pair<Guid, std::string>>> announcements() { return {}; }
};

/// One thread waits; others may wake it.
class WaiterPort {
 public:
  virtual ~WaiterPort() = default;
  /// The reader must be of the same participant; wait() returns `tag`. Detached before the reader ends.
  virtual Result<void> attach(ReaderPort& reader, std::uint64_t tag) = 0;
  virtual void detach(ReaderPort& reader) = 0;
  /// The tags of readers with samples; empty: deadline or wake(). Does not return before one of these. An earlier
  /// wake() counts.
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
  /// The other participants known now, without this one.
  virtual std::vector<Participant> peers() = 0;
  /// All known endpoints of other participants, matched or not, without the built-in ones of the implementation.
  virtual std::vector<Endpoint> endpoints() = 0;
  /// The port where it listens for tcp or as a server; 0: it does not listen.
  virtual std::uint16_t port() const { return 0; }
};

struct ImplementationEntry {
  const char* name = "";               ///< "cyclonedds"
  const char* (*version)() = nullptr;  ///< of the DDS itself: "0.10.2"
  Caps (*caps)() = nullptr;
  /// The profile has passed check() and caps, so only the machine can cause a failure. Errors: bus.open (with the
  /// message of the DDS).
  Result<std::unique_ptr<ParticipantPort>> (*open)(const Profile& profile) = nullptr;
  /// Removes the files that its killed participants left on this machine (shared memory, lock files), and no others.
  /// Returns their number.
  std::size_t (*clean)() = nullptr;
};

inline constexpr unsigned module_abi = 3;
struct Module {
  unsigned abi = module_abi;
  std::span<const ImplementationEntry> implementations;
};

/// The names of implementations, sorted; modules are loaded from `bus/` beside libsonde-bus.so and the folders in
/// SONDE_BUS_MODULES.
std::vector<std::string> implementation_names();
/// Errors: bus.unknown_implementation (its name, available names, package to install), bus.bad_module.
Result<const ImplementationEntry*> find_implementation(std::string_view name);
/// Loads a module from outside the module folders, and returns the names of its implementations. Error: bus.bad_module.
Result<std::vector<std::string>> load_module(const std::string& path);
/// The modules that could not be loaded, with the reasons.
std::vector<Error> broken_modules();
/// Checks a profile or QoS against the features of the implementation: bus.unsupported (its name, the feature,
/// implementations with the feature). Transports and discovery are not checked if nothing leaves the process.
Result<void> check(const Profile& profile, std::string_view name, const Caps& caps);
Result<void> check(const Qos& qos, std::string_view name, const Caps& caps);

}  // namespace sonde::bus
