// An implementation of the bus from outside: participants of one process, under one lock. What matters is its shape; it
// can nothing that an implementation may leave out.
//
//   g++ -shared -fPIC room.cpp $(sonde bus conformance --flags) -o sonde-bus-room.so
//   sonde bus conformance ./sonde-bus-room.so
//   SONDE_BUS_MODULES=. SONDE_BUS=room ./program
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bus/cdr.hpp"
#include "bus/implementation.hpp"

namespace {

using namespace sonde;
using namespace sonde::bus;

struct Sample {
  SampleInfo info;
  std::vector<std::byte> payload, key;
};

/// A writer or a reader.
struct End {
  Guid guid, participant;
  std::uint32_t domain = 0;
  bool writes = false;
  std::string topic;
  TypePtr type;
  Qos qos;
  std::deque<Sample> queue;                                // of a reader
  std::map<std::string, std::set<const End*>> written_by;  // of a reader: instances, by their keys
  std::vector<End*> matched;
  Status status;

  bool is_full() const {
    return qos.history == History::keep_all && queue.size() >= (qos.max_samples ? qos.max_samples : 10000);
  }
};

struct Room {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<End*> ends;
  std::vector<std::pair<std::uint32_t, Participant>> participants;  // by domain
  std::uint32_t last = 0;
};
Room& room() {
  static auto* one = new Room;  // lives on when static objects go: participants may outlast them
  return *one;
}

/// The first 12 bytes are the participant's.
Guid guid_of(std::uint32_t participant, std::uint32_t entity) {
  Guid guid;
  for (std::size_t k = 0; k < 4; ++k)
    guid.bytes[8 + k] = std::byte(participant >> 8 * k), guid.bytes[12 + k] = std::byte(entity >> 8 * k);
  return guid;
}

/// Waits for `done` until `at_ns` of now_ns(), 0: for ever. Deadlines are of the monotonic clock: whoever sets the
/// clock moves none.
template <typename Done> bool wait_for(std::unique_lock<std::mutex>& lock, std::int64_t at_ns, const Done& done) {
  if (!at_ns) return room().changed.wait(lock, done), true;
  return room().changed.wait_until(lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(at_ns)), done);
}

// 1. Who hears whom: the same domain, topic and type's name; the reader asks for no more than the writer offers.
void meet(End& writer, End& reader) {
  if (writer.domain != reader.domain || writer.topic != reader.topic || writer.type->name != reader.type->name) return;
  if (writer.qos.reliability < reader.qos.reliability) {
    for (End* end : {&writer, &reader}) ++end->status.incompatible, end->status.incompatible_policy = "reliability";
    return;
  }
  writer.matched.push_back(&reader);
  reader.matched.push_back(&writer);
  for (End* end : {&writer, &reader}) ++end->status.matched_ever;
}

struct EndPort {
  End end;

  void enter() {
    const std::lock_guard lock(room().mutex);
    for (End* other : room().ends)
      if (other->writes != end.writes) end.writes ? meet(end, *other) : meet(*other, end);
    room().ends.push_back(&end);
  }
  ~EndPort() {
    const std::lock_guard lock(room().mutex);
    std::erase(room().ends, &end);
    for (End* other : end.matched) {
      std::erase(other->matched, &end);
      if (end.writes) orphan(*other);
    }
    room().changed.notify_all();  // a writer may wait for this reader
  }
  /// Instances that nobody else writes have no writers any more.
  void orphan(End& reader) const {
    for (auto at = reader.written_by.begin(); at != reader.written_by.end();) {
      const auto next = std::next(at);
      if (at->second.erase(&end) && at->second.empty()) {
        const auto* key = reinterpret_cast<const std::byte*>(at->first.data());
        Sample over{{end.guid, 0, 0, InstanceState::no_writers, false}, {}, {key, key + at->first.size()}};
        over.payload = payload_of_key(*reader.type, over.key);
        reader.queue.push_back(std::move(over));
        reader.written_by.erase(at);
      }
      at = next;
    }
  }
  Status status_now() {
    const std::lock_guard lock(room().mutex);
    end.status.matched = static_cast<std::int64_t>(end.matched.size());
    return end.status;
  }
  std::vector<Guid> guids() {
    const std::lock_guard lock(room().mutex);
    std::vector<Guid> all;
    for (const End* other : end.matched) all.push_back(other->guid);
    return all;
  }
};

// 2. A writer: the payload is the caller's, and copied. Reliable and keep_all, it waits for readers without place.
struct RoomWriter final : EndPort, WriterPort {
  Guid guid() const override { return end.guid; }
  Result<void> write(Bytes payload, Bytes key) override { return send(payload, key, true); }
  Result<void> dispose(Bytes payload, Bytes key) override { return send(payload, key, false); }
  bool wait_acknowledged(Deadline) override { return true; }  // readers have it when write() returns
  void assert_liveliness() override {}
  Status status() override { return status_now(); }
  std::vector<Guid> matched() override { return guids(); }

  Result<void> send(Bytes payload, Bytes key, bool has_data) {
    Sample sample;
    sample.info.writer = end.guid;
    sample.info.has_data = has_data;
    sample.info.state = has_data ? InstanceState::alive : InstanceState::disposed;
    sample.payload.assign(payload.begin(), payload.end());
    sample.key.assign(key.begin(), key.end());
    std::unique_lock lock(room().mutex);
    const bool waits = end.qos.reliability == Reliability::reliable && end.qos.history == History::keep_all;
    const auto has_place = [&] {
      return std::none_of(end.matched.begin(), end.matched.end(), [](const End* reader) {
        return reader->qos.reliability == Reliability::reliable && reader->is_full();
      });
    };
    const std::int64_t give_up_ns =
        end.qos.max_blocking_s < 1e9 ? now_ns() + static_cast<std::int64_t>(end.qos.max_blocking_s * 1e9) : 0;
    if (waits && !wait_for(lock, give_up_ns, has_place))
      return Error{"bus.timed_out", "a reader of " + end.topic + " has no place", "let it take, or raise max_blocking"};
    for (End* reader : end.matched) {
      if (reader->is_full()) {
        ++reader->status.rejected, ++reader->status.lost;
        continue;
      }
      if (reader->qos.history == History::keep_last) {
        const auto same = [&](const Sample& other) { return other.key == sample.key; };
        if (std::count_if(reader->queue.begin(), reader->queue.end(), same) >= std::int64_t{reader->qos.depth})
          reader->queue.erase(std::find_if(reader->queue.begin(), reader->queue.end(), same));
      }
      reader->queue.push_back(sample);
      const std::string instance(reinterpret_cast<const char*>(key.data()), key.size());
      if (has_data && !key.empty()) reader->written_by[instance].insert(&end);
      else reader->written_by.erase(instance);
    }
    room().changed.notify_all();
    return {};
  }
};

// 3. A reader: the taker is called without the lock, since it may write.
struct RoomReader final : EndPort, ReaderPort {
  Guid guid() const override { return end.guid; }
  std::size_t take(std::size_t most, const Taker& taker) override {
    std::deque<Sample> taken;
    {
      const std::lock_guard lock(room().mutex);
      while (!end.queue.empty() && taken.size() < most) {
        taken.push_back(std::move(end.queue.front()));
        end.queue.pop_front();
      }
      room().changed.notify_all();
    }
    for (const Sample& sample : taken) taker(sample.info, sample.payload);
    return taken.size();
  }
  Status status() override { return status_now(); }
  std::vector<Guid> matched() override { return guids(); }
};

// 4. A waiter: it looks before it sleeps, so that neither a sample nor a wake() that came before is missed.
struct RoomWaiter final : WaiterPort {
  std::vector<std::pair<End*, std::uint64_t>> attached;
  bool woken = false;

  Result<void> attach(ReaderPort& reader, std::uint64_t tag) override {
    const std::lock_guard lock(room().mutex);
    attached.emplace_back(&static_cast<RoomReader&>(reader).end, tag);
    room().changed.notify_all();
    return {};
  }
  void detach(ReaderPort& reader) override {
    const std::lock_guard lock(room().mutex);
    std::erase_if(attached, [&](const auto& one) { return one.first == &static_cast<RoomReader&>(reader).end; });
  }
  std::vector<std::uint64_t> wait(Deadline deadline) override {
    std::unique_lock lock(room().mutex);
    std::vector<std::uint64_t> tags;
    wait_for(lock, deadline.at_ns, [&] {
      for (const auto& [end, tag] : attached)
        if (!end->queue.empty()) tags.push_back(tag);
      return woken || !tags.empty();
    });
    woken = false;
    return tags;
  }
  void wake() override {
    const std::lock_guard lock(room().mutex);
    woken = true;
    room().changed.notify_all();
  }
};

// 5. A participant, and the door through which all of it comes.
struct RoomParticipant final : ParticipantPort {
  Participant about;
  std::uint32_t domain, number, entities = 0;

  explicit RoomParticipant(const Profile& profile) : domain(profile.domain) {
    const std::lock_guard lock(room().mutex);
    number = ++room().last;
    about.guid = guid_of(number, 0);
    about.name = profile.participant;
    room().participants.emplace_back(domain, about);
  }
  ~RoomParticipant() override {
    const std::lock_guard lock(room().mutex);
    std::erase_if(room().participants, [&](const auto& one) { return one.second.guid == about.guid; });
  }
  template <typename Port> std::unique_ptr<Port> make(const std::string& topic, const TypePtr& type, const Qos& qos) {
    auto port = std::make_unique<Port>();
    {
      const std::lock_guard lock(room().mutex);
      port->end.guid = guid_of(number, ++entities);
    }
    port->end.participant = about.guid;
    port->end.domain = domain;
    port->end.writes = std::is_same_v<Port, RoomWriter>;
    port->end.topic = topic;
    port->end.type = type;
    port->end.qos = qos;
    port->enter();
    return port;
  }
  Guid guid() const override { return about.guid; }
  Result<std::unique_ptr<WriterPort>> writer(const std::string& topic, const TypePtr& type, const Qos& qos) override {
    return std::unique_ptr<WriterPort>(make<RoomWriter>(topic, type, qos));
  }
  Result<std::unique_ptr<ReaderPort>> reader(const std::string& topic, const TypePtr& type, const Qos& qos) override {
    return std::unique_ptr<ReaderPort>(make<RoomReader>(topic, type, qos));
  }
  Result<std::unique_ptr<WaiterPort>> waiter() override {
    return std::unique_ptr<WaiterPort>(std::make_unique<RoomWaiter>());
  }
  std::vector<Participant> peers() override {
    const std::lock_guard lock(room().mutex);
    std::vector<Participant> others;
    for (const auto& [of, other] : room().participants)
      if (of == domain && other.guid != about.guid) others.push_back(other);
    return others;
  }
  std::vector<Endpoint> endpoints() override {
    const std::lock_guard lock(room().mutex);
    std::vector<Endpoint> others;
    for (const End* end : room().ends)
      if (end->domain == domain && end->participant != about.guid)
        others.push_back({end->guid,
                          end->participant,
                          end->writes,
                          end->topic,
                          end->type->name,
                          {},
                          end->qos.reliability,
                          end->qos.durability,
                          end->qos.user_data});
    return others;
  }
};

const ImplementationEntry entry{
    "room",
    [] { return "1"; },
    [] { return Caps{}; },  // what is false here is refused before it comes here
    [](const Profile& profile) -> Result<std::unique_ptr<ParticipantPort>> {
      return std::unique_ptr<ParticipantPort>(std::make_unique<RoomParticipant>(profile));
    },
    [] { return std::size_t{0}; },
};
const Module module{module_abi, {&entry, 1}};

}  // namespace

extern "C" const Module* sonde_bus_module() { return &module; }
