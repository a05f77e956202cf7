#include "bus/null.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <deque>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bus/bell.hpp"
#include "bus/cdr.hpp"
#include "bus/pattern.hpp"
#include "core/clock.hpp"

namespace sonde::bus {

namespace {

constexpr std::size_t most_held = 65536;

using SteadyTime = std::chrono::steady_clock::time_point;
SteadyTime at(std::int64_t ns) { return SteadyTime(std::chrono::nanoseconds(ns)); }

std::int64_t real_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
/// 0: never.
std::int64_t period_ns(double s) {
  return s >= 1e9 ? 0 : std::max<std::int64_t>(1, static_cast<std::int64_t>(s * 1e9));
}

Guid guid_of(std::uint32_t participant, std::uint32_t entity) {
  static const std::uint64_t process = [] {
    std::uint64_t value = 0;
    if (getrandom(&value, sizeof value, 0) != sizeof value)
      value = static_cast<std::uint64_t>(real_ns()) ^ static_cast<std::uint64_t>(getpid()) << 40;
    return value;
  }();
  Guid guid;
  std::memcpy(guid.bytes.data(), &process, sizeof process);
  for (std::size_t k = 0; k < 4; ++k)
    guid.bytes[8 + k] = std::byte(participant >> (24 - 8 * k)), guid.bytes[12 + k] = std::byte(entity >> (24 - 8 * k));
  return guid;
}

bool share_partition(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  static const std::vector<std::string> standard{""};
  for (const auto& x : a.empty() ? standard : a)
    for (const auto& y : b.empty() ? standard : b) {
      const bool wild_x = is_pattern(x), wild_y = is_pattern(y);
      if (wild_x && wild_y) continue;
      if (wild_x ? fits(x, y) : wild_y ? fits(y, x) : x == y) return true;
    }
  return false;
}

/// The policy in which an offer does not satisfy a request; null: it satisfies all (OMG DDS 1.4, 2.2.3).
const char* conflict(const Qos& offered, const Qos& asked) {
  if (offered.reliability < asked.reliability) return "reliability";
  if (offered.durability < asked.durability) return "durability";
  if (offered.deadline_s > asked.deadline_s) return "deadline";
  if (offered.liveliness < asked.liveliness || offered.lease_s > asked.lease_s) return "liveliness";
  if (offered.ownership != asked.ownership) return "ownership";
  if (!offered.order_by_source && asked.order_by_source) return "order";
  return nullptr;
}

struct Sample {
  SampleInfo info;
  std::shared_ptr<std::byte[]> payload;
  std::size_t bytes = 0;
  std::string key;
  std::int64_t expires_ns = 0;  ///< by now_ns(); 0: never
};

/// The listener for matches, called by threads that make or end them.
struct MatchBell {
  std::mutex mutex;
  std::function<void()> tell;

  void hang(std::function<void()> wanted) {
    const std::lock_guard lock(mutex);
    tell = std::move(wanted);
  }
  void ring() {
    const std::lock_guard lock(mutex);
    if (tell) tell();
  }
};

struct ParticipantCore {
  Participant about;
  std::uint32_t number = 0, domain = 0;
  double spin_s = -1;
  std::atomic<std::uint32_t> entities{0};
  std::atomic<std::int64_t> asserted_ns{0};  ///< manual_by_participant
};

struct ReaderCore;

/// Locks are taken in this order: Domain, WriterCore, ReaderCore, MatchBell, Bell.
struct WriterCore {
  Guid guid;
  std::shared_ptr<ParticipantCore> participant;
  std::string topic;
  TypePtr type;
  Qos qos;
  std::int64_t lease_ns = 0, deadline_ns = 0, lifespan_ns = 0;

  struct Match {
    std::shared_ptr<ReaderCore> reader;
    bool may_wait = false;  ///< a writer waits if the queue is full, instead of a rejection
  };
  std::mutex mutex;
  std::vector<Match> matches;
  std::list<Sample> past;  ///< for transient_local
  std::unordered_map<std::string, std::deque<std::list<Sample>::iterator>> past_of;
  struct Instance {
    std::int64_t written_ns = 0;
  };
  std::unordered_map<std::string, Instance> instances;  ///< only with a deadline
  Status status;

  std::atomic<std::int64_t> asserted_ns{0}, lapses{0};

  std::atomic<std::int64_t>& asserted() {
    return qos.liveliness == Liveliness::manual_by_participant ? participant->asserted_ns : asserted_ns;
  }
  void assert_now(std::int64_t now) {
    if (qos.liveliness == Liveliness::automatic) return;
    const std::int64_t before = asserted().exchange(now);
    if (lease_ns && now - before > lease_ns) ++lapses;
  }
  bool lapsed(std::int64_t now) {
    return qos.liveliness != Liveliness::automatic && lease_ns && now - asserted().load() > lease_ns;
  }
  /// How often its lease expired, including now. Computed on request, so that no thread is needed.
  std::int64_t lapses_by(std::int64_t now) { return lapses.load() + (lapsed(now) ? 1 : 0); }

  void forget(const std::string& key) {
    const auto of = past_of.find(key);
    if (of == past_of.end()) return;
    for (const auto which : of->second) past.erase(which);
    past_of.erase(of);
  }
  void remember(const Sample& sample) {
    past.push_back(sample);
    auto& mine = past_of[sample.key];
    mine.push_back(std::prev(past.end()));
    const std::size_t most = qos.history == History::keep_last ? std::max(1u, qos.depth) : SIZE_MAX;
    if (mine.size() > most) {
      past.erase(mine.front());
      mine.pop_front();
    } else if (past.size() > (qos.max_samples ? qos.max_samples : most_held)) {
      const std::string key = past.front().key;
      const auto of = past_of.find(key);
      of->second.pop_front();
      if (of->second.empty()) past_of.erase(of);
      past.pop_front();
    }
  }
};

struct ReaderCore {
  Guid guid;
  std::shared_ptr<ParticipantCore> participant;
  std::string topic;
  TypePtr type;
  Qos qos;
  std::size_t most = SIZE_MAX;
  std::int64_t deadline_ns = 0;

  struct Instance {
    std::deque<std::list<Sample>::iterator> queued;
    std::size_t data = 0;  ///< of `queued`
    std::vector<Guid> writers;
    Guid owner;
    std::int32_t strength = 0;
    bool owned = false, disposed = false;
    std::int64_t heard_ns = 0;  ///< with a deadline
  };
  struct Match {
    std::shared_ptr<WriterCore> writer;
    std::int64_t lapses_before = 0;
  };
  std::mutex mutex;
  std::condition_variable space;
  std::list<Sample> queue, spare;  ///< spare: nodes to use again
  std::size_t data = 0, reserved = 0;
  std::unordered_map<std::string, Instance> instances;
  std::vector<Match> matches;
  Status status;
  std::int64_t lapses_of_gone = 0;
  bool closed = false;
  std::vector<std::shared_ptr<Bell>> bells;
  MatchBell match_bell;
  std::atomic<std::size_t> queued{0};  ///< for waiting threads: read without the lock

  bool full() const { return qos.history == History::keep_all && data + reserved >= most; }

  void erase(std::list<Sample>::iterator which) {
    if (which->info.has_data) --data;
    which->payload.reset();
    if (spare.size() < 64) spare.splice(spare.end(), queue, which);
    else queue.erase(which);
  }

  /// Whether the sample was accepted. With the lock held.
  bool push(const Sample& sample, WriterCore& writer, bool has_place) {
    const std::int64_t now = deadline_ns || qos.ownership == Ownership::exclusive ? now_ns() : 0;
    Instance& of = instances[sample.key];
    if (std::find(of.writers.begin(), of.writers.end(), sample.info.writer) == of.writers.end())
      of.writers.push_back(sample.info.writer);
    if (qos.ownership == Ownership::exclusive) {
      if (of.owned && of.owner != sample.info.writer &&
          (writer.qos.strength < of.strength || (writer.qos.strength == of.strength && of.owner < sample.info.writer)))
        if (auto* owner = writer_of(of.owner); owner && !owner->lapsed(now)) return true;
      of.owned = true, of.owner = sample.info.writer, of.strength = writer.qos.strength;
    }
    if (deadline_ns) {
      if (of.heard_ns) status.deadline_missed += (now - of.heard_ns) / deadline_ns;
      of.heard_ns = sample.info.has_data ? now : 0;
    }
    if (!sample.info.has_data) {
      of.owned = false, of.disposed = true;
      std::erase(of.writers, sample.info.writer);
      return enqueue(sample, of);
    }
    of.disposed = false;
    if (!has_place && full()) {
      ++status.rejected, ++status.lost;
      return false;
    }
    if (qos.history == History::keep_last)
      while (of.data >= std::max(1u, qos.depth)) {
        const auto oldest = of.queued.front();
        of.queued.pop_front();
        if (oldest->info.has_data) --of.data;
        erase(oldest);
      }
    return enqueue(sample, of);
  }
  WriterCore* writer_of(const Guid& which) {
    for (const Match& m : matches)
      if (m.writer->guid == which) return m.writer.get();
    return nullptr;
  }
  bool enqueue(const Sample& sample, Instance& of) {
    auto where = queue.end();
    if (qos.order_by_source)
      while (where != queue.begin() && std::prev(where)->info.source_ns > sample.info.source_ns) --where;
    std::list<Sample>::iterator node;
    if (spare.empty()) {
      node = queue.insert(where, sample);
    } else {
      node = spare.begin();
      *node = sample;
      queue.splice(where, spare, node);
    }
    of.queued.push_back(node);
    if (sample.info.has_data) ++data, ++of.data;
    queued.store(queue.size());
    for (const auto& bell : bells) bell->ring();
    return true;
  }
  /// The writer has ended: instances without another writer now have no writers. With the lock held.
  void leave(const WriterCore& writer) {
    for (auto it = instances.begin(); it != instances.end();) {
      const auto next = std::next(it);
      Instance& of = it->second;
      const bool wrote = std::erase(of.writers, writer.guid) > 0;
      if (of.owned && of.owner == writer.guid) of.owned = false;
      if (wrote && of.writers.empty()) {
        of.heard_ns = 0;
        if (!it->first.empty() && !of.disposed) {
          Sample last;
          const auto payload =
              payload_of_key(*type, Bytes(reinterpret_cast<const std::byte*>(it->first.data()), it->first.size()));
          last.payload = std::make_shared_for_overwrite<std::byte[]>(payload.size());
          std::copy(payload.begin(), payload.end(), last.payload.get());
          last.bytes = payload.size();
          last.key = it->first;
          last.info = {writer.guid, real_ns(), real_ns(), InstanceState::no_writers, false};
          enqueue(last, of);
        } else if (of.queued.empty()) {
          instances.erase(it);
        }
      }
      it = next;
    }
  }
};

struct Domain {
  std::mutex mutex;
  std::vector<std::shared_ptr<ParticipantCore>> participants;
  std::unordered_map<std::string,
                     std::pair<std::vector<std::shared_ptr<WriterCore>>, std::vector<std::shared_ptr<ReaderCore>>>>
      topics;

  template <typename Core> void leave(const std::shared_ptr<Core>& core) {
    const auto topic = topics.find(core->topic);
    if constexpr (std::is_same_v<Core, WriterCore>) std::erase(topic->second.first, core);
    else std::erase(topic->second.second, core);
    if (topic->second.first.empty() && topic->second.second.empty()) topics.erase(topic);
  }
};

/// Lives as long as the process: participants may outlast static objects.
Domain& domain_of(std::uint32_t number) {
  static auto* mutex = new std::mutex;
  static auto* domains = new std::map<std::uint32_t, Domain>;
  const std::lock_guard lock(*mutex);
  return (*domains)[number];
}

/// With the domain's lock held.
void meet(const std::shared_ptr<WriterCore>& writer, const std::shared_ptr<ReaderCore>& reader) {
  if (writer->type->name != reader->type->name || !share_partition(writer->qos.partitions, reader->qos.partitions))
    return;
  const std::lock_guard writer_lock(writer->mutex);
  const std::lock_guard reader_lock(reader->mutex);
  if (const char* policy = conflict(writer->qos, reader->qos)) {
    ++writer->status.incompatible, ++reader->status.incompatible;
    writer->status.incompatible_policy = reader->status.incompatible_policy = policy;
    return;
  }
  ++writer->status.matched_ever, ++reader->status.matched_ever;
  const bool reliable = reader->qos.reliability == Reliability::reliable;
  writer->matches.push_back({reader, reliable && writer->qos.reliability == Reliability::reliable &&
                                         writer->qos.history == History::keep_all &&
                                         reader->qos.history == History::keep_all});
  reader->matches.push_back({writer, writer->lapses.load()});
  reader->match_bell.ring();
  if (reader->qos.durability == Durability::transient_local)
    for (const Sample& sample : writer->past)
      if (!sample.expires_ns || sample.expires_ns > now_ns()) {
        Sample again = sample;
        again.info.received_ns = real_ns();
        reader->push(again, *writer, false);
      }
}

class NullWriter final : public WriterPort {
 public:
  NullWriter(std::shared_ptr<WriterCore> core, Domain& domain) : core_(std::move(core)), domain_(domain) {}
  ~NullWriter() override {
    const std::lock_guard lock(domain_.mutex);
    domain_.leave(core_);
    std::vector<WriterCore::Match> matches;
    {
      const std::lock_guard writer_lock(core_->mutex);
      matches.swap(core_->matches);
    }
    const std::int64_t now = now_ns();
    for (const auto& match : matches) {
      ReaderCore& reader = *match.reader;
      const std::lock_guard reader_lock(reader.mutex);
      for (const auto& of : reader.matches)
        if (of.writer == core_) reader.lapses_of_gone += core_->lapses_by(now) - of.lapses_before;
      std::erase_if(reader.matches, [&](const auto& of) { return of.writer == core_; });
      reader.leave(*core_);
      reader.match_bell.ring();
    }
  }
  Guid guid() const override { return core_->guid; }
  Result<void> write(Bytes payload, Bytes key) override { return send(payload, key, true); }
  Result<void> dispose(Bytes payload, Bytes key) override { return send(payload, key, false); }
  /// Readers have it when write() returns.
  bool wait_acknowledged(Deadline) override { return true; }
  void assert_liveliness() override { core_->assert_now(now_ns()); }
  Status status() override {
    const std::int64_t now = now_ns();
    const std::lock_guard lock(core_->mutex);
    Status status = core_->status;
    status.matched = static_cast<std::int64_t>(core_->matches.size());
    status.liveliness_lost = core_->lapses_by(now);
    status.alive = core_->lapsed(now) ? 0 : 1;
    if (core_->deadline_ns)
      for (const auto& [key, of] : core_->instances)
        if (of.written_ns) status.deadline_missed += (now - of.written_ns) / core_->deadline_ns;
    return status;
  }
  std::vector<Guid> matched() override {
    const std::lock_guard lock(core_->mutex);
    std::vector<Guid> guids;
    for (const auto& match : core_->matches) guids.push_back(match.reader->guid);
    return guids;
  }

 private:
  Result<void> send(Bytes payload, Bytes key, bool has_data) {
    WriterCore& core = *core_;
    Sample sample;
    sample.payload = std::make_shared_for_overwrite<std::byte[]>(payload.size());
    if (!payload.empty()) std::memcpy(sample.payload.get(), payload.data(), payload.size());
    sample.bytes = payload.size();
    sample.key.assign(reinterpret_cast<const char*>(key.data()), key.size());
    sample.info.writer = core.guid;
    sample.info.source_ns = sample.info.received_ns = real_ns();
    sample.info.has_data = has_data;
    sample.info.state = has_data ? InstanceState::alive : InstanceState::disposed;
    if (core.lifespan_ns && has_data) sample.expires_ns = now_ns() + core.lifespan_ns;
    if (core.qos.liveliness != Liveliness::automatic) core.assert_now(now_ns());
    std::int64_t give_up_ns = -1;
    for (;;) {
      std::unique_lock lock(core.mutex);
      const std::shared_ptr<ReaderCore> full = has_data ? reserve() : nullptr;
      if (!full) {
        deliver(sample);
        return {};
      }
      lock.unlock();
      if (give_up_ns < 0) {
        const std::int64_t wait_ns = period_ns(core.qos.max_blocking_s);
        give_up_ns = core.qos.max_blocking_s <= 0 ? 1 : wait_ns ? now_ns() + wait_ns : 0;
      }
      std::unique_lock reader_lock(full->mutex);
      while (full->full() && !full->closed) {
        if (!give_up_ns) full->space.wait(reader_lock);
        else if (full->space.wait_until(reader_lock, at(give_up_ns)) == std::cv_status::timeout) break;
      }
      if (full->full() && !full->closed)
        return Error{"bus.timed_out",
                     "a reader of " + core.topic + " holds " + std::to_string(full->data) +
                         " samples and was not read for " + std::to_string(core.qos.max_blocking_s) + " s",
                     "let the reader take, or raise max_samples or max_blocking_s"};
    }
  }

  /// Reserves space in every reader that a writer waits for; otherwise reserves nothing and returns the first full
  /// reader. With the writer's lock held.
  std::shared_ptr<ReaderCore> reserve() {
    for (std::size_t k = 0; k < core_->matches.size(); ++k) {
      if (!core_->matches[k].may_wait) continue;
      ReaderCore& reader = *core_->matches[k].reader;
      std::unique_lock lock(reader.mutex);
      if (!reader.full()) {
        ++reader.reserved;
        continue;
      }
      lock.unlock();
      for (std::size_t other = 0; other < k; ++other)
        if (core_->matches[other].may_wait) release(*core_->matches[other].reader);
      return core_->matches[k].reader;
    }
    return nullptr;
  }
  static void release(ReaderCore& reader) {
    const std::lock_guard lock(reader.mutex);
    --reader.reserved;
    reader.space.notify_all();
  }

  /// With the writer's lock held: one order for all readers, and a late one gets each sample once.
  void deliver(const Sample& sample) {
    WriterCore& core = *core_;
    if (core.deadline_ns) {
      const std::int64_t now = now_ns();
      auto& of = core.instances[sample.key];
      if (of.written_ns) core.status.deadline_missed += (now - of.written_ns) / core.deadline_ns;
      of.written_ns = sample.info.has_data ? now : 0;
    }
    if (core.qos.durability == Durability::transient_local)
      sample.info.has_data ? core.remember(sample) : core.forget(sample.key);
    for (const auto& match : core.matches) {
      ReaderCore& reader = *match.reader;
      const std::lock_guard lock(reader.mutex);
      const bool reserved = match.may_wait && sample.info.has_data;
      if (reserved) --reader.reserved;
      reader.push(sample, core, reserved);
    }
  }

  std::shared_ptr<WriterCore> core_;
  Domain& domain_;
};

class NullReader final : public ReaderPort {
 public:
  NullReader(std::shared_ptr<ReaderCore> core, Domain& domain) : core_(std::move(core)), domain_(domain) {}
  ~NullReader() override {
    const std::lock_guard lock(domain_.mutex);
    domain_.leave(core_);
    std::vector<ReaderCore::Match> matches;
    {
      const std::lock_guard reader_lock(core_->mutex);
      matches.swap(core_->matches);
      core_->closed = true;
      core_->space.notify_all();
    }
    for (const auto& match : matches) {
      const std::lock_guard writer_lock(match.writer->mutex);
      std::erase_if(match.writer->matches, [&](const auto& of) { return of.reader == core_; });
    }
  }
  Guid guid() const override { return core_->guid; }
  std::size_t take(std::size_t most, const Taker& taker) override {
    std::list<Sample> taken;
    {
      ReaderCore& core = *core_;
      const std::lock_guard lock(core.mutex);
      std::int64_t now = 0;
      std::size_t n = 0;
      while (!core.queue.empty() && n < most) {
        const auto first = core.queue.begin();
        // Samples of one instance have the order of `queued`, unless the order is by source time.
        const auto found = core.instances.find(first->key);
        auto& mine = found->second.queued;
        mine.erase(mine.front() == first ? mine.begin() : std::find(mine.begin(), mine.end(), first));
        if (first->info.has_data) --found->second.data, --core.data;
        if (mine.empty() && found->second.writers.empty()) core.instances.erase(found);
        if (first->expires_ns && !now) now = now_ns();
        if (first->expires_ns && first->expires_ns <= now) {
          core.queue.erase(first);
          continue;
        }
        taken.splice(taken.end(), core.queue, first);
        ++n;
      }
      core.queued.store(core.queue.size());
      if (core.qos.history == History::keep_all) core.space.notify_all();
    }
    for (const Sample& sample : taken) taker(sample.info, Bytes(sample.payload.get(), sample.bytes));
    const std::size_t n = taken.size();
    for (Sample& sample : taken) sample.payload.reset();
    const std::lock_guard lock(core_->mutex);
    while (!taken.empty() && core_->spare.size() < 64) core_->spare.splice(core_->spare.end(), taken, taken.begin());
    return n;
  }
  Status status() override {
    const std::int64_t now = now_ns();
    const std::lock_guard lock(core_->mutex);
    Status status = core_->status;
    status.matched = static_cast<std::int64_t>(core_->matches.size());
    status.liveliness_lost = core_->lapses_of_gone;
    for (const auto& match : core_->matches) {
      status.liveliness_lost += match.writer->lapses_by(now) - match.lapses_before;
      status.alive += match.writer->lapsed(now) ? 0 : 1;
    }
    if (core_->deadline_ns)
      for (const auto& [key, of] : core_->instances)
        if (of.heard_ns) status.deadline_missed += (now - of.heard_ns) / core_->deadline_ns;
    return status;
  }
  std::vector<Guid> matched() override {
    const std::lock_guard lock(core_->mutex);
    std::vector<Guid> guids;
    for (const auto& match : core_->matches) guids.push_back(match.writer->guid);
    return guids;
  }

  bool on_match(std::function<void()> tell) override {
    core_->match_bell.hang(std::move(tell));
    return true;
  }

  const std::shared_ptr<ReaderCore>& core() const { return core_; }

 private:
  std::shared_ptr<ReaderCore> core_;
  Domain& domain_;
};

class NullWaiter final : public WaiterPort {
 public:
  explicit NullWaiter(std::shared_ptr<ParticipantCore> participant) : participant_(std::move(participant)) {}
  ~NullWaiter() override {
    for (const auto& [core, tag] : readers_) unhook(*core);
  }
  Result<void> attach(ReaderPort& reader, std::uint64_t tag) override {
    auto* mine = dynamic_cast<NullReader*>(&reader);
    if (!mine || mine->core()->participant != participant_)
      return Error{"bus.open", "a waiter waits only for readers of its own participant",
                   "create the waiter with the bus of the reader"};
    {
      const std::lock_guard lock(mine->core()->mutex);
      mine->core()->bells.push_back(bell_);
    }
    const std::lock_guard lock(mutex_);
    readers_.emplace_back(mine->core(), tag);
    bell_->ring();  // a sleeping thread must check this reader as well
    return {};
  }
  void detach(ReaderPort& reader) override {
    const auto* mine = dynamic_cast<NullReader*>(&reader);
    if (!mine) return;
    unhook(*mine->core());
    const std::lock_guard lock(mutex_);
    std::erase_if(readers_, [&](const auto& of) { return of.first == mine->core(); });
  }
  std::vector<std::uint64_t> wait(Deadline deadline) override {
    std::vector<std::uint64_t> tags;
    for (;;) {
      bell_->silence();
      {
        const std::lock_guard lock(mutex_);
        for (const auto& [core, tag] : readers_)
          if (core->queued.load()) tags.push_back(tag);
      }
      if (bell_->woken() || !tags.empty() || !bell_->wait(deadline)) return tags;
    }
  }
  void wake() override { bell_->wake(); }

 private:
  void unhook(ReaderCore& core) {
    const std::lock_guard lock(core.mutex);
    std::erase(core.bells, bell_);
  }

  std::shared_ptr<ParticipantCore> participant_;
  std::shared_ptr<Bell> bell_ = std::make_shared<Bell>(participant_->spin_s);
  std::mutex mutex_;  ///< of readers_
  std::vector<std::pair<std::shared_ptr<ReaderCore>, std::uint64_t>> readers_;
};

class NullParticipant final : public ParticipantPort {
 public:
  NullParticipant(std::shared_ptr<ParticipantCore> core, Domain& domain) : core_(std::move(core)), domain_(domain) {
    const std::lock_guard lock(domain_.mutex);
    domain_.participants.push_back(core_);
  }
  ~NullParticipant() override {
    const std::lock_guard lock(domain_.mutex);
    std::erase(domain_.participants, core_);
  }
  Guid guid() const override { return core_->about.guid; }
  Result<std::unique_ptr<WriterPort>> writer(const std::string& topic, const TypePtr& type, const Qos& qos) override {
    auto core = std::make_shared<WriterCore>();
    core->guid = guid_of(core_->number, ++core_->entities);
    core->participant = core_;
    core->topic = topic;
    core->type = type;
    core->qos = qos;
    core->lease_ns = period_ns(qos.lease_s);
    core->deadline_ns = period_ns(qos.deadline_s);
    core->lifespan_ns = period_ns(qos.lifespan_s);
    core->asserted_ns = now_ns();
    if (qos.liveliness == Liveliness::manual_by_participant) core_->asserted_ns = now_ns();
    const std::lock_guard lock(domain_.mutex);
    auto& [writers, readers] = domain_.topics[topic];
    for (const auto& reader : readers) meet(core, reader);
    writers.push_back(core);
    return std::unique_ptr<WriterPort>(std::make_unique<NullWriter>(core, domain_));
  }
  Result<std::unique_ptr<ReaderPort>> reader(const std::string& topic, const TypePtr& type, const Qos& qos) override {
    auto core = std::make_shared<ReaderCore>();
    core->guid = guid_of(core_->number, ++core_->entities);
    core->participant = core_;
    core->topic = topic;
    core->type = type;
    core->qos = qos;
    core->most = qos.max_samples ? qos.max_samples : most_held;
    core->deadline_ns = period_ns(qos.deadline_s);
    const std::lock_guard lock(domain_.mutex);
    auto& [writers, readers] = domain_.topics[topic];
    for (const auto& writer : writers) meet(writer, core);
    readers.push_back(core);
    return std::unique_ptr<ReaderPort>(std::make_unique<NullReader>(core, domain_));
  }
  Result<std::unique_ptr<WaiterPort>> waiter() override {
    return std::unique_ptr<WaiterPort>(std::make_unique<NullWaiter>(core_));
  }
  std::vector<Participant> peers() override {
    const std::lock_guard lock(domain_.mutex);
    std::vector<Participant> found;
    for (const auto& other : domain_.participants)
      if (other != core_) found.push_back(other->about);
    return found;
  }
  std::vector<Endpoint> endpoints() override {
    const std::lock_guard lock(domain_.mutex);
    std::vector<Endpoint> found;
    const auto add = [&](const auto& core, bool writes) {
      if (core->participant != core_)
        found.push_back({core->guid, core->participant->about.guid, writes, core->topic, core->type->name,
                         core->qos.partitions, core->qos.reliability, core->qos.durability, core->qos.user_data});
    };
    for (const auto& [name, topic] : domain_.topics) {
      for (const auto& writer : topic.first) add(writer, true);
      for (const auto& reader : topic.second) add(reader, false);
    }
    return found;
  }

 private:
  std::shared_ptr<ParticipantCore> core_;
  Domain& domain_;
};

Result<std::unique_ptr<ParticipantPort>> open_null(const Profile& profile) {
  static std::atomic<std::uint32_t> participants{0};
  auto core = std::make_shared<ParticipantCore>();
  core->number = ++participants;
  core->domain = profile.domain;
  core->spin_s = profile.spin_s;
  core->about.guid = guid_of(core->number, 0);
  core->about.name = profile.participant.empty()
                         ? std::string(program_invocation_short_name) + ' ' + std::to_string(getpid())
                         : profile.participant;
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) core->about.host = host;
  core->about.pid = getpid();
  return std::unique_ptr<ParticipantPort>(
      std::make_unique<NullParticipant>(std::move(core), domain_of(profile.domain)));
}

Caps caps_of_null() {
  Caps caps;
  caps.partitions = caps.partition_wildcards = true;
  caps.durability = caps.liveliness = caps.deadline = caps.lifespan = caps.ownership = caps.ownership_best_effort =
      caps.order_by_source = true;
  return caps;
}

}  // namespace

const ImplementationEntry& null_implementation() {
  static const ImplementationEntry entry{"null", [] { return SONDE_VERSION; }, caps_of_null, open_null,
                                         []() -> std::size_t { return 0; }};
  return entry;
}

}  // namespace sonde::bus
