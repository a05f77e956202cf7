#pragma once
/// A way from program to program: an endpoint of the bus, or of a limit of the machine. What is measured is written
/// against this alone.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bus/bus.hpp"
#include "bus/probe/message.hpp"
#include "bus/probe/options.hpp"

namespace sonde::bus::probe {

/// Owner-thread, as Receiver but for wake().
class Sender {
 public:
  virtual ~Sender() = default;
  /// Of receivers that tell an address. Error: bus.failed.
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
  /// Sleeps until there is something, and hands on all that is there. 0: the deadline has passed, or wake().
  virtual std::size_t receive(const Taker& taker, Deadline deadline) = 0;
  /// The same without any wait.
  virtual std::size_t look(const Taker& taker) = 0;
  /// Ends a receive() that waits, or the next one.
  virtual void wake() = 0;
  /// What a sender needs to know; empty: nothing.
  virtual std::string address() const { return ""; }
  virtual bool wait_matched(std::size_t, Deadline) { return true; }
  virtual std::int64_t matched() { return -1; }
};

struct EndOptions {
  std::string topic;
  bool best_effort = false;
  bool keep_all = false;  ///< else the last 64, as the library's default
  std::vector<std::string> partitions;
};

/// What endpoints are made in: a participant.
class Place {
 public:
  virtual ~Place() = default;
  virtual Result<std::unique_ptr<Sender>> sender(const EndOptions& options) = 0;
  virtual Result<std::unique_ptr<Receiver>> receiver(const EndOptions& options) = 0;
  virtual std::shared_ptr<Bus> bus() { return nullptr; }  ///< null: of a limit of the machine
};

struct PlaceOptions {
  std::uint32_t domain = 0;  ///< where the variant's profile says none
  std::string participant;
  std::vector<std::string> peers, servers;
  bool serve = false;
  /// Where neither the variant nor its profile says: addresses of IPv4, and what to take of IPv6; none: loopback.
  std::vector<std::string> addresses = {}, interfaces = {};
};

/// The profile that a variant means there. Errors: as load_profile(), check().
Result<Profile> profile_of(const Variant& variant, const PlaceOptions& options);
/// Errors: as Bus::open(); bus.failed.
Result<std::unique_ptr<Place>> open_place(const Variant& variant, const PlaceOptions& options);
std::unique_ptr<Place> open_raw(const Variant& variant, const PlaceOptions& options);

}  // namespace sonde::bus::probe
