#pragma once
/// The role mqtt-bridge: one thread takes samples from the bus, one communicates with the broker; two queues connect
/// them.
/// docs/howto/power-mqtt.md is its manual.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bus/bus.hpp"
#include "power/config.hpp"
#include "power/powerd/bridge/link.hpp"
#include "power/powerd/bridge/outbox.hpp"
#include "power/powerd/bridge/requests.hpp"
#include "power/powerd/bridge/sparkplug.hpp"
#include "power/powerd/bridge/store.hpp"

namespace sonde::power::bridge {

/// All counters except those of Outbox, Store and Requests. Any-thread.
struct Counters {
  std::atomic<std::uint64_t> from_bus = 0, to_mqtt = 0, from_mqtt = 0, to_bus = 0;
  std::atomic<std::uint64_t> loops_bus = 0, loops_mqtt = 0, duplicates = 0, control_lost = 0, not_taken = 0,
                             bus_failed = 0, acknowledged = 0;
};

class Bridge {
 public:
  /// Errors: those of the bus, bridge.unknown_topic, bridge.no_topics, bridge.bad_prefix, bridge.plain_password,
  /// bridge.bad_unprotected, bridge.open_password, bridge.no_file, bridge.state, bridge.bad_tls.
  static Result<std::unique_ptr<Bridge>> open(const Config& config, const std::string& name);
  ~Bridge();
  void start();
  /// Sends what is in the queues, for `s` at most; then disconnects.
  void stop(double s);
  std::string ready() const;  ///< the event
  std::string counts(const char* event) const;
  std::string metrics() const;

 private:
  struct Topic {
    std::string name, mqtt;  ///< mqtt: PREFIX/NAME
    bus::TypePtr type;
    bool control = false, keyed = false, to_mqtt = false, from_mqtt = false;
    bool kept =
        false;  ///< outgoing messages stay on disk until the broker has them; else control is carried like telemetry
    std::unique_ptr<bus::Reader> reader;
    std::unique_ptr<bus::Writer> writer;
    bool holds_back = false,
         held_back = false;  ///< holds_back: its writer packs the samples of one turn; held_back: some are in the pack
  };
  struct WriterState {
    bool bridge = false;
    std::int64_t last_ns = 0;
    std::uint32_t tie = 0;
  };

  Bridge() : telemetry_(32u << 20, true), control_(8u << 20, false) {}
  Result<void> topics(const Config& config);
  void run_bus();
  void run_mqtt();
  void wake();
  WriterState& writer(const bus::Guid& guid);
  void connected();
  void not_subscribed(const std::string& filter, const Error& error);
  void subscribed(bool session_present);
  bool forward(const Entry& entry, bus::Bytes payload);
  void publish(const std::string& topic, std::string_view payload, int qos, bool retain, const std::string* origin,
               std::uint64_t stored);
  void publish_stored(std::uint64_t number);
  void alive(const Topic& topic, const std::string& where, bool yes);
  std::string status(bool online) const;
  double until_attempt_s() const;
  void received(const Received& message);
  struct Held;
  bool write(const Held& message, bool last_try);
  bool write_held();
  void give_up_held();
  void trouble(const Error& error, std::string_view about);
  Sparkplug::Send sparkplug_send();
  bool drain(std::vector<std::byte>& batch, std::size_t& head, Outbox& outbox, std::size_t most);

  BridgeConfig config_;
  std::string cluster_, name_, status_topic_;
  enum class Naming { sonde, examon, sparkplug } naming_ = Naming::sonde;
  std::shared_ptr<bus::Bus> bus_;
  std::vector<Topic> topics_;
  std::map<std::string, std::size_t, std::less<>> by_mqtt_;
  std::unique_ptr<bus::Waiter> waiter_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Seen> seen_;
  std::unique_ptr<Requests> requests_;
  std::unique_ptr<Sparkplug> sparkplug_;
  Outbox telemetry_, control_;
  Counters counters_;

  // The bus thread's.
  std::map<bus::Guid, WriterState> writers_;
  // The MQTT thread's.
  std::vector<std::byte> telemetry_batch_, control_batch_;
  std::size_t telemetry_head_ = 0, control_head_ = 0;
  std::unordered_map<int, std::uint64_t> stored_;  ///< number at the broker -> in the store
  std::set<std::uint64_t> sent_;  ///< from the store, sent by this process: libmosquitto resends those itself
  std::unordered_set<std::string> alive_;
  std::vector<std::string> not_subscribed_;  ///< filters that the broker refused on this connection
  struct Held {
    std::size_t topic = 0;
    std::int64_t until_ns = 0;
    std::string origin, under;  ///< identify the message when it comes again
    std::vector<std::byte> payload;
  };
  /// Messages from MQTT for which the bus has no room yet. libmosquitto acknowledges them after its turn anyway: it has
  /// no call to do so later.
  std::deque<Held> held_;
  Held incoming_;
  std::string topic_text_, json_text_, origin_text_, key_text_;
  std::uint64_t bd_seq_ = 0, published_ = 0;  ///< published_: the part of the store that is published
  std::int64_t last_rebirth_ns_ = 0;

  struct Told {
    std::uint64_t count = 0;
    std::int64_t last_ns = 0;
  };
  mutable std::mutex troubles_mutex_;
  std::map<std::string, Told> troubles_;
  std::atomic<bool> stopping_{false}, draining_{false}, online_{false}, sleeping_{false};
  std::atomic<std::uint64_t> reconnects_{0}, waiting_{0}, store_bytes_{0}, unread_{0};
  std::atomic<std::int64_t> next_attempt_ns_{0};  ///< of the next attempt to connect, while there is no connection
  std::int64_t drain_until_ns_ = 0;
  int wake_fd_ = -1;
  std::thread bus_thread_, mqtt_thread_;
  std::vector<Error> open_troubles_;
};

}  // namespace sonde::power::bridge
