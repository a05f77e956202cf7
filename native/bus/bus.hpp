#pragma once
/// A data-distribution bus: participants publish typed samples under topics, and subscribers receive them. There is no
/// broker, and one interface for several DDS. SONDE_BUS=cyclonedds|fastdds|null chooses at run time.
///
///   auto bus = Bus::open(*load_profile("bus.xml"));
///   auto writer = (*bus)->writer("Monitor_report_node_telemetry");
///   (*writer)->write(payload);                               // or Publisher<T>, typed.hpp
///
/// Requests and replies: request.hpp. An example of 30 lines: docs/howto/bus-cpp.md. Objects keep the bus that
/// created them alive. Any-thread; one thread at a time takes from a Reader, and one thread waits in a Waiter.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bus/implementation.hpp"

namespace sonde::bus {

class Bus;

/// Counts of the samples of one endpoint, in addition to the implementation's Status.
struct Counts {
  std::uint64_t samples = 0, bytes = 0;  ///< written, or handed to the taker
  std::uint64_t malformed = 0;           ///< reader: do not match their type; not handed on
  std::uint64_t other_type = 0;  ///< reader: of writers with another structure of the same type name; not handed on
  std::uint64_t too_large = 0;   ///< reader: above limit::sample_bytes
  std::string last_error;        ///< about the last of these samples
};

/// The announced user data of an endpoint: Sonde's own part, "sonde1 fp=" and the type's fingerprint, a blank, and the
/// text of the user.
struct Announcement {
  std::string fingerprint;  ///< empty: a foreign endpoint, all of its data is `user_data`
  std::string user_data;
};
std::string announcement(const Type& type, std::string_view user_data);
Announcement read_announcement(std::string_view announced);
inline constexpr std::size_t most_user_data = 255 - 43;

class Writer {
 public:
  ~Writer();
  /// Writes a payload (cdr.hpp). Errors: bus.malformed (it does not match the type), bus.timed_out (no space within
  /// max_blocking_s), bus.full (no space for another instance, if the implementation has a limit), bus.too_large,
  /// bus.closed.
  Result<void> write(Bytes payload);
  Result<void> dispose(Bytes payload);
  void flush();
  /// False: fewer than n readers matched in time.
  bool wait_matched(std::size_t n, Deadline deadline);
  bool wait_acknowledged(Deadline deadline);
  void assert_liveliness();
  Status status() const;
  Counts counts() const;
  std::vector<Guid> matched() const;
  const Guid& guid() const;
  const std::string& topic() const;
  const TypePtr& type() const;

 private:
  friend class Bus;
  struct Body;
  explicit Writer(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

class Reader {
 public:
  ~Reader();
  using Taker = ReaderPort::Taker;
  /// Takes the samples that have arrived, oldest first, at most `most`; never waits. Payloads have passed verify() and
  /// are valid during the call. Returns the number of samples handed on. An exception of the taker is passed on; the
  /// samples of the same batch are lost.
  std::size_t take(const Taker& taker, std::size_t most = SIZE_MAX);
  bool wait_matched(std::size_t n, Deadline deadline);
  /// Like that of ReaderPort: `tell` is called when a writer matches or ends; false: the implementation does not
  /// support it.
  bool on_match(std::function<void()> tell);
  Status status() const;
  Counts counts() const;
  std::vector<Guid> matched() const;
  const Guid& guid() const;
  const std::string& topic() const;
  const TypePtr& type() const;

 private:
  friend class Bus;
  friend class Waiter;
  struct Body;
  explicit Reader(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

/// Waits for samples of several readers. Never answer from threads of a DDS: reliable writers can wait for readers that
/// wait for them.
class Waiter {
 public:
  ~Waiter();
  Result<void> attach(Reader& reader, std::uint64_t tag);
  void detach(Reader& reader);
  /// The tags of readers with samples; empty: the deadline passed, or wake().
  std::vector<std::uint64_t> wait(Deadline deadline);
  void wake();

 private:
  friend class Bus;
  friend class Reader;
  struct Listening;
  Waiter(std::shared_ptr<Bus> bus, std::unique_ptr<WaiterPort> port);
  std::shared_ptr<Bus> bus_;
  std::shared_ptr<Listening> listening_;  // readers hold a weak reference: a reader that ends first detaches itself
};

class Bus : public std::enable_shared_from_this<Bus> {
 public:
  /// `implementation` (else the profile's, else SONDE_BUS, else cyclonedds) must support everything in the profile.
  /// Errors: bus.unknown_implementation, bus.bad_profile, bus.unsupported, bus.unknown_interface, bus.unprotected
  /// (other interfaces than loopback without security), bus.open.
  static Result<std::shared_ptr<Bus>> open(const Profile& profile, std::string_view implementation = {});
  ~Bus();

  /// Opens a topic of the profile. Errors: bus.unknown_topic (with the nearest name), bus.unsupported, bus.open.
  Result<std::unique_ptr<Writer>> writer(const std::string& topic);
  Result<std::unique_ptr<Reader>> reader(const std::string& topic);
  /// Opens any topic. Further errors: bus.bad_type, bus.bad_name, bus.bad_qos.
  Result<std::unique_ptr<Writer>> writer(const std::string& topic, const TypePtr& type, const Qos& qos = {});
  Result<std::unique_ptr<Reader>> reader(const std::string& topic, const TypePtr& type, const Qos& qos = {});
  Result<std::unique_ptr<Waiter>> waiter();

  const Profile& profile() const { return profile_; }
  const std::string& implementation() const { return implementation_; }
  std::string version() const;
  const Caps& caps() const { return caps_; }
  Guid guid() const;
  std::vector<Participant> peers() const;
  std::vector<Endpoint> endpoints() const;
  std::uint16_t port() const;

 private:
  friend class Writer;
  friend class Reader;
  Bus() = default;
  Profile profile_;
  std::string implementation_;
  const ImplementationEntry* entry_ = nullptr;
  Caps caps_;
  std::unique_ptr<ParticipantPort> port_;
  mutable std::mutex mutex_;
  std::map<Guid, std::string> own_writers_;  // fingerprints: endpoints() of a port only lists those of others
};

}  // namespace sonde::bus
