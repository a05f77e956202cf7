#pragma once
/// A transport between programs: endpoints of the bus, or of a raw transport. Measurements use only this interface.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bus/bus.hpp"
#include "bus/probe/message.hpp"
#include "bus/probe/options.hpp"

namespace sonde::bus::probe {

/// Owner-thread, like Receiver except for wake().
class Sender {
 public:
  virtual ~Sender() = default;
  /// Connects to receivers by their addresses. Error: bus.failed.
  virtual Result<void> connect(const std::vector<std::string>&) { return {}; }
  virtual Result<void> write(Message& message) = 0;
  virtual void flush() {}
  virtual bool wait_matched(std::size_t, Deadline) { return true; }
  virtual std::int64_t matched() { return -1; }
};

class Receiver {
 public:
  virtual ~Receiver() = default;
  using Taker = std::function<void(Bytes body)>;
  /// Sleeps until messages arrive, and hands all of them on. 0: the deadline has passed, or wake().
  virtual std::size_t receive(const Taker& taker, Deadline deadline) = 0;
  /// The same without waiting.
  virtual std::size_t look(const Taker& taker) = 0;
  /// Ends a waiting receive(), or the next one.
  virtual void wake() = 0;
  /// The address for senders; empty: not needed.
  virtual std::string address() const { return ""; }
  virtual bool wait_matched(std::size_t, Deadline) { return true; }
  virtual std::int64_t matched() { return -1; }
};

struct EndOptions {
  std::string topic;
  bool best_effort = false;
  bool keep_all = false;  ///< else the last 64, the default of the library
  std::vector<std::string> partitions;
};

/// A place for endpoints: a participant.
class Place {
 public:
  virtual ~Place() = default;
  virtual Result<std::unique_ptr<Sender>> sender(const EndOptions& options) = 0;
  virtual Result<std::unique_ptr<Receiver>> receiver(const EndOptions& options) = 0;
  virtual std::shared_ptr<Bus> bus() { return nullptr; }  ///< null for a raw transport
};

struct PlaceOptions {
  std::uint32_t domain = 0;  ///< unless the variant's profile names one
  std::string participant;
  std::vector<std::string> peers, servers;
  bool serve = false;
  /// Used if neither the variant nor its profile names any: IPv4 addresses, and interfaces for IPv6; empty: loopback.
  std::vector<std::string> addresses = {}, interfaces = {};
};

/// The profile of a variant in a place. Errors: as load_profile(), check().
Result<Profile> profile_of(const Variant& variant, const PlaceOptions& options);
/// Errors: as Bus::open(); bus.failed.
Result<std::unique_ptr<Place>> open_place(const Variant& variant, const PlaceOptions& options);
std::unique_ptr<Place> open_raw(const Variant& variant, const PlaceOptions& options);

}  // namespace sonde::bus::probe
