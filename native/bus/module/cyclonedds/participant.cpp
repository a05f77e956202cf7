// Long because: a writer, a reader, a waiter and their participant hold each other, and no other file needs them.
#include "bus/module/cyclonedds/participant.hpp"

#include <dds/dds.h>
#include <dds/ddsi/q_protocol.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bus/bell.hpp"
#include "bus/cdr.hpp"
#include "bus/module/cyclonedds/config.hpp"
#include "bus/module/cyclonedds/domain.hpp"
#include "bus/module/cyclonedds/sample.hpp"
#include "core/clock.hpp"

namespace sonde::bus::cyclonedds {

namespace {

constexpr std::int32_t takes_at_once = 64;
constexpr std::size_t most_writers_known = 4096;

struct DeleteQos {
  void operator()(dds_qos_t* qos) const { dds_delete_qos(qos); }
};
using QosPtr = std::unique_ptr<dds_qos_t, DeleteQos>;

/// Deletes its entity, and with it all entities created inside.
class Entity {
 public:
  explicit Entity(dds_entity_t number = 0) : number_(number) {}
  Entity(Entity&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
  Entity& operator=(Entity&& other) noexcept {
    const Entity before(std::exchange(number_, std::exchange(other.number_, 0)));
    return *this;
  }
  ~Entity() {
    if (number_ > 0) dds_delete(number_);
  }
  dds_entity_t operator*() const { return number_; }
  explicit operator bool() const { return number_ > 0; }

 private:
  dds_entity_t number_;
};

struct UnrefType {
  void operator()(SampleType* type) const { ddsi_sertype_unref(type); }
};
using TypeRef = std::unique_ptr<SampleType, UnrefType>;

Guid guid_from(const dds_guid_t& from) {
  Guid guid;
  std::memcpy(guid.bytes.data(), from.v, sizeof from.v);
  return guid;
}

Guid guid_of(dds_entity_t entity) {
  dds_guid_t guid{};
  dds_get_guid(entity, &guid);
  return guid_from(guid);
}

dds_duration_t duration(double seconds) {
  if (!(seconds < 1e9)) return DDS_INFINITY;
  return std::llround(std::max(seconds, 0.0) * 1e9);
}

std::int32_t count_or_all(std::uint32_t n) {
  return n == 0 || n > static_cast<std::uint32_t>(INT32_MAX) ? DDS_LENGTH_UNLIMITED : static_cast<std::int32_t>(n);
}

/// The policy's name in qos.hpp.
std::string policy_name(std::uint32_t id) {
  switch (id) {
    case DDS_DURABILITY_QOS_POLICY_ID: return "durability";
    case DDS_PRESENTATION_QOS_POLICY_ID: return "presentation";
    case DDS_DEADLINE_QOS_POLICY_ID: return "deadline";
    case DDS_LATENCYBUDGET_QOS_POLICY_ID: return "latency_budget";
    case DDS_OWNERSHIP_QOS_POLICY_ID: return "ownership";
    case DDS_LIVELINESS_QOS_POLICY_ID: return "liveliness";
    case DDS_PARTITION_QOS_POLICY_ID: return "partition";
    case DDS_RELIABILITY_QOS_POLICY_ID: return "reliability";
    case DDS_DESTINATIONORDER_QOS_POLICY_ID: return "order";
    case DDS_TYPE_CONSISTENCY_ENFORCEMENT_QOS_POLICY_ID: return "type";
    case DDS_DATA_REPRESENTATION_QOS_POLICY_ID: return "representation";
    default: return "policy " + std::to_string(id);
  }
}

/// The QoS that writers, readers and their topic share.
QosPtr common_qos(const Qos& qos) {
  QosPtr out(dds_create_qos());
  dds_qset_reliability(
      out.get(), qos.reliability == Reliability::reliable ? DDS_RELIABILITY_RELIABLE : DDS_RELIABILITY_BEST_EFFORT,
      duration(qos.max_blocking_s));
  dds_qset_durability(out.get(), qos.durability == Durability::transient_local ? DDS_DURABILITY_TRANSIENT_LOCAL
                                                                               : DDS_DURABILITY_VOLATILE);
  const bool all = qos.history == History::keep_all;
  const auto kind = all ? DDS_HISTORY_KEEP_ALL : DDS_HISTORY_KEEP_LAST;
  const std::int32_t depth = static_cast<std::int32_t>(std::clamp<std::uint32_t>(qos.depth, 1, INT32_MAX));
  const std::int32_t most = all ? count_or_all(qos.max_samples) : DDS_LENGTH_UNLIMITED;
  dds_qset_history(out.get(), kind, depth);
  dds_qset_resource_limits(out.get(), most, DDS_LENGTH_UNLIMITED, DDS_LENGTH_UNLIMITED);
  // This policy sets the samples for late readers; its default is one sample.
  if (qos.durability == Durability::transient_local)
    dds_qset_durability_service(out.get(), 0, kind, depth, most, DDS_LENGTH_UNLIMITED, DDS_LENGTH_UNLIMITED);
  dds_qset_deadline(out.get(), duration(qos.deadline_s));
  // The latency budget is not announced: it concerns only the writer, and an announced budget would exclude readers
  // without one.
  dds_qset_liveliness(out.get(),
                      qos.liveliness == Liveliness::automatic               ? DDS_LIVELINESS_AUTOMATIC
                      : qos.liveliness == Liveliness::manual_by_participant ? DDS_LIVELINESS_MANUAL_BY_PARTICIPANT
                                                                            : DDS_LIVELINESS_MANUAL_BY_TOPIC,
                      duration(qos.lease_s));
  dds_qset_ownership(out.get(), qos.ownership == Ownership::exclusive ? DDS_OWNERSHIP_EXCLUSIVE : DDS_OWNERSHIP_SHARED);
  dds_qset_destination_order(out.get(), qos.order_by_source ? DDS_DESTINATIONORDER_BY_SOURCE_TIMESTAMP
                                                            : DDS_DESTINATIONORDER_BY_RECEPTION_TIMESTAMP);
  if (!qos.user_data.empty()) dds_qset_userdata(out.get(), qos.user_data.data(), qos.user_data.size());
  return out;
}

QosPtr partition_qos(const Qos& qos) {
  QosPtr out(dds_create_qos());
  std::vector<const char*> names;
  for (const std::string& name : qos.partitions) names.push_back(name.c_str());
  if (!names.empty()) dds_qset_partition(out.get(), static_cast<std::uint32_t>(names.size()), names.data());
  return out;
}

/// A built-in topic, as far as this domain knows it. Its reader is created at the first request and then stays:
/// deleting it would wait until no thread of this process is inside a write, and a writer that waits for room in a
/// reader here may need the requesting thread. Any-thread.
class Known {
 public:
  explicit Known(dds_entity_t topic) : topic_(topic) {}
  /// Calls `with(data)` for each present entry.
  template <typename T, typename With> void for_each(dds_entity_t participant, const With& with) {
    const std::lock_guard lock(mutex_);
    if (!reader_) reader_ = Entity(dds_create_reader(participant, topic_, nullptr, nullptr));
    if (!reader_) return;
    forget();
    for (;; room_ *= 2) {
      const Loan loan = borrow(dds_read_mask, DDS_ALIVE_INSTANCE_STATE);
      if (loan.samples.size() == room_) continue;  // there may be more
      for (std::size_t k = 0; k < loan.samples.size(); ++k)
        if (loan.infos[k].valid_data) with(*static_cast<const T*>(loan.samples[k]));
      return;
    }
  }

 private:
  /// Samples that Cyclone stores, borrowed until this object ends.
  struct Loan {
    Loan(decltype(&dds_read_mask) call, dds_entity_t from, std::uint32_t room, std::uint32_t mask)
        : reader(from), samples(room), infos(room) {
      const dds_return_t n = call(from, samples.data(), infos.data(), room, room, mask);
      samples.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    ~Loan() {
      if (!samples.empty()) dds_return_loan(reader, samples.data(), static_cast<std::int32_t>(samples.size()));
    }
    dds_entity_t reader;
    std::vector<void*> samples;
    std::vector<dds_sample_info_t> infos;
  };
  /// Borrows as many samples as fit. A reader keeps its largest loan, and later returns the addresses of all its
  /// samples for any requested number (Cyclone 0.10.2, dds_read.c). A smaller request than an earlier one would write
  /// past the end of the array, so the array never shrinks.
  Loan borrow(decltype(&dds_read_mask) call, std::uint32_t instances) {
    return Loan(call, *reader_, room_, DDS_ANY_SAMPLE_STATE | DDS_ANY_VIEW_STATE | instances);
  }
  /// Those that have gone.
  void forget() {
    while (borrow(dds_take_mask, DDS_NOT_ALIVE_DISPOSED_INSTANCE_STATE | DDS_NOT_ALIVE_NO_WRITERS_INSTANCE_STATE)
               .samples.size() == room_) {}
  }

  dds_entity_t topic_;
  std::mutex mutex_;
  Entity reader_;
  std::uint32_t room_ = takes_at_once;
};

/// A string that Cyclone allocated.
template <typename Get> std::string text_from(const Get& get) {
  char* text = nullptr;
  if (!get(&text) || !text) return {};
  std::string out = text;
  dds_free(text);
  return out;
}

Endpoint endpoint_from(const dds_builtintopic_endpoint_t& data, bool writes) {
  Endpoint out;
  out.guid = guid_from(data.key);
  out.participant = guid_from(data.participant_key);
  out.writes = writes;
  out.topic = data.topic_name ? data.topic_name : "";
  out.type = data.type_name ? data.type_name : "";
  if (!data.qos) return out;
  std::uint32_t n = 0;
  char** names = nullptr;
  if (dds_qget_partition(data.qos, &n, &names)) {
    for (std::uint32_t k = 0; k < n; ++k) {
      // Some announce the default partition as one with an empty name.
      if (n > 1 || *names[k]) out.partitions.emplace_back(names[k]);
      dds_free(names[k]);
    }
    dds_free(static_cast<void*>(names));
  }
  dds_reliability_kind_t reliability{};
  dds_duration_t blocking = 0;
  if (dds_qget_reliability(data.qos, &reliability, &blocking))
    out.reliability = reliability == DDS_RELIABILITY_RELIABLE ? Reliability::reliable : Reliability::best_effort;
  dds_durability_kind_t durability{};
  if (dds_qget_durability(data.qos, &durability))
    out.durability = durability == DDS_DURABILITY_VOLATILE ? Durability::volatile_ : Durability::transient_local;
  void* user = nullptr;
  std::size_t bytes = 0;
  if (dds_qget_userdata(data.qos, &user, &bytes) && user) {
    out.user_data.assign(static_cast<const char*>(user), bytes);
    dds_free(user);
  }
  return out;
}

template <typename List> std::vector<dds_instance_handle_t> handles_of(dds_entity_t entity, const List& list) {
  std::vector<dds_instance_handle_t> handles(16);
  for (;;) {
    const dds_return_t n = list(entity, handles.data(), handles.size());
    if (n < 0) return {};
    const auto found = static_cast<std::size_t>(n);
    if (found <= handles.size()) {
      handles.resize(found);
      return handles;
    }
    handles.resize(found + 8);
  }
}

/// The peers of an endpoint, by their handles.
template <typename List, typename Data>
std::vector<Guid> matched_of(dds_entity_t entity, const List& list, const Data& data) {
  std::vector<Guid> out;
  for (const dds_instance_handle_t handle : handles_of(entity, list))
    if (dds_builtintopic_endpoint_t* endpoint = data(entity, handle)) {
      out.push_back(guid_from(endpoint->key));
      dds_builtintopic_free_endpoint(endpoint);
    }
  return out;
}

class Writer;

/// The manual writers of a participant: each assertion of one asserts all. Any-thread.
class ManualWriters {
 public:
  void add(Writer* writer) {
    const std::lock_guard lock(mutex_);
    writers_.push_back(writer);
  }
  /// Afterwards nothing of it is touched any more.
  void remove(Writer* writer) {
    std::unique_lock lock(mutex_);
    std::erase(writers_, writer);
    changed_.wait(lock, [&] { return std::find(revived_.begin(), revived_.end(), writer) == revived_.end(); });
  }
  void revive();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Writer*> writers_;
  std::vector<Writer*>
      revived_;  ///< being asserted now, without the mutex: each may take as long as a writer may block
};

/// Sends the samples that writers with a latency budget delay, before the budget ends. Its thread starts with the first
/// such writer. A writer that continues to write does not wake it, and sends by itself on request: otherwise both would
/// compete for Cyclone's lock of the writer.
class Flusher {
 public:
  ~Flusher() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  void add(Writer* writer) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });  // first, as it may throw
    writers_.push_back(writer);
  }
  /// Afterwards nothing of it is touched any more.
  void remove(Writer* writer) {
    std::unique_lock lock(mutex_);
    std::erase(writers_, writer);
    std::erase(due_, writer);
    changed_.wait(lock, [&] { return flushed_ != writer; });
  }
  /// A writer has begun to delay a sample, and must be checked at this time of now_ns().
  void look(std::int64_t at_ns) {
    if (const std::int64_t next = next_ns_.load(); next && next <= at_ns) return;
    {
      const std::lock_guard lock(mutex_);
      looks_ = true;
    }
    changed_.notify_all();
  }

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Writer*> writers_, due_;
  Writer* flushed_ = nullptr;  ///< in progress, without the mutex: sending may take as long as a writer may block
  std::thread thread_;
  std::atomic<std::int64_t> next_ns_{0};  ///< the time of the thread's next check; 0: it is checking, or there is none
  bool ends_ = false, looks_ = false;
};

class Writer final : public WriterPort {
 public:
  Writer(Entity publisher, Entity writer, TypeRef type, dds_entity_t participant, const std::string& topic,
         const Qos& qos, Flusher* flusher, ManualWriters* manual)
      : publisher_(std::move(publisher)),
        writer_(std::move(writer)),
        type_(std::move(type)),
        guid_(guid_of(*writer_)),
        participant_(participant),
        topic_(topic),
        max_blocking_s_(qos.max_blocking_s),
        liveliness_(qos.liveliness),
        budget_ns_(static_cast<std::int64_t>(std::min(qos.latency_budget_s, 1e6) * 1e9)),
        flusher_(flusher),
        manual_(manual) {
    if (liveliness_ != Liveliness::automatic) {
      // Cyclone's own count of lapses needs the lock that a write holds while it waits for readers.
      dds_listener_t* listener = dds_create_listener(this);
      dds_lset_liveliness_lost(listener, [](dds_entity_t, const dds_liveliness_lost_status_t, void* self) {
        static_cast<Writer*>(self)->lapses_.fetch_add(1);
      });
      dds_set_listener(*writer_, listener);
      dds_delete_listener(listener);
      dds_liveliness_lost_status_t before{};
      if (dds_get_liveliness_lost_status(*writer_, &before) == DDS_RETCODE_OK && before.total_count)
        lapses_.fetch_add(1);
    }
    if (flusher_) flusher_->add(this);
    if (liveliness_ != Liveliness::manual_by_participant) return;
    try {
      manual_->add(this);
    } catch (...) {
      if (flusher_) flusher_->remove(this);
      throw;
    }
  }
  ~Writer() override {
    manual_->remove(this);
    if (flusher_) {
      flusher_->remove(this);
      dds_write_flush(*writer_);
    }
    writer_ = Entity();  // calls the listener, which uses the other members
  }

  Guid guid() const override { return guid_; }

  Result<void> write(Bytes payload, Bytes key) override {
    Sample* sample = make_sample(*type_, SDK_DATA, guid_, payload, key);
    if (!sample) return no_memory(payload.size());
    const Writing writing(*this);
    return sent(dds_writecdr(*writer_, sample), "written");
  }

  Result<void> dispose(Bytes, Bytes key) override {
    Sample* sample = make_sample(*type_, SDK_KEY, guid_, {}, key);
    if (!sample) return no_memory(key.size());
    sample->statusinfo = NN_STATUSINFO_DISPOSE;
    sample->timestamp.v = dds_time();
    const Writing writing(*this);
    return sent(dds_forwardcdr(*writer_, sample), "disposed of");
  }

  void flush() override {
    if (!flusher_) return;
    hurries_.store(false, std::memory_order_relaxed);
    held_since_ns_.store(0);
    dds_write_flush(*writer_);
  }

  bool wait_acknowledged(Deadline deadline) override {
    flush();
    // In short waits, because Cyclone uses the time of day, which may be changed.
    for (;;) {
      const int left = deadline.left_ms();
      const dds_return_t rc = dds_wait_for_acks(*writer_, left < 0 ? DDS_MSECS(500) : DDS_MSECS(std::min(left, 500)));
      if (rc == DDS_RETCODE_OK) return true;
      if (rc != DDS_RETCODE_TIMEOUT || left == 0) return false;
    }
  }

  void assert_liveliness() override {
    if (liveliness_ == Liveliness::manual_by_participant) {
      dds_assert_liveliness(participant_);
      manual_->revive();
    } else {
      dds_assert_liveliness(*writer_);
      if (lapsed()) revive();
    }
  }

  /// Whether it must be revived: Cyclone 0.10 treats a writer whose lease ran out as dead until it writes, whatever it
  /// asserts. A writer inside a write is left out: it was revived at the beginning, or will be the next time.
  bool lapsed() const { return lapses_.load() != revived_.load() && !writes(); }
  void revive() {
    const std::uint32_t lapses = lapses_.load();
    if (revived_.exchange(lapses) == lapses) return;
    Sample* sample = make_sign_of_life(*type_, guid_);
    if (!sample) return;
    sample->statusinfo = NN_STATUSINFO_UNREGISTER;
    sample->timestamp.v = dds_time();
    if (dds_forwardcdr(*writer_, sample) == DDS_RETCODE_OK) flush();
  }

  Status status() override {
    Status out;
    dds_publication_matched_status_t matched{};
    if (dds_get_publication_matched_status(*writer_, &matched) == DDS_RETCODE_OK) {
      out.matched = matched.current_count;
      out.matched_ever = matched.total_count;
    }
    dds_offered_incompatible_qos_status_t incompatible{};
    if (dds_get_offered_incompatible_qos_status(*writer_, &incompatible) == DDS_RETCODE_OK &&
        incompatible.total_count) {
      out.incompatible = incompatible.total_count;
      out.incompatible_policy = policy_name(incompatible.last_policy_id);
    }
    dds_offered_deadline_missed_status_t missed{};
    if (dds_get_offered_deadline_missed_status(*writer_, &missed) == DDS_RETCODE_OK)
      out.deadline_missed = missed.total_count;
    dds_liveliness_lost_status_t lost{};
    if (dds_get_liveliness_lost_status(*writer_, &lost) == DDS_RETCODE_OK) out.liveliness_lost = lost.total_count;
    out.lost = out.rejected = out.alive = -1;
    return out;
  }

  std::vector<Guid> matched() override {
    return matched_of(*writer_, dds_get_matched_subscriptions, dds_get_matched_subscription_data);
  }

  /// The time of now_ns() at which delayed samples must be sent; 0: none is delayed.
  std::int64_t due_ns() const {
    const std::int64_t since = held_since_ns_.load();
    return since ? since + budget_ns_ : 0;
  }
  std::int64_t budget_ns() const { return budget_ns_; }
  /// How long before that time the writer gets the request.
  std::int64_t notice_ns() const { return budget_ns_ / 8; }
  /// The next write sends the delayed samples.
  void hurry() { hurries_.store(true, std::memory_order_relaxed); }
  bool writes() const { return writing_.load(std::memory_order_relaxed) > 0; }

 private:
  Error no_memory(std::size_t bytes) const {
    return {"bus.no_memory", "topic " + topic_ + ": no memory for a sample of " + std::to_string(bytes) + " B", {}};
  }

  /// Marks a thread inside Cyclone's write, which holds its lock of the writer while it waits for readers.
  class Writing {
   public:
    explicit Writing(Writer& writer) : of_(writer) {
      of_.writing_.fetch_add(1, std::memory_order_relaxed);
      // Cyclone revives a writer before it waits for readers.
      if (const std::uint32_t lapses = of_.lapses_.load(std::memory_order_relaxed);
          lapses != of_.revived_.load(std::memory_order_relaxed))
        of_.revived_.store(lapses);
    }
    ~Writing() { of_.writing_.fetch_sub(1, std::memory_order_relaxed); }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

   private:
    Writer& of_;
  };

  Result<void> sent(dds_return_t rc, const char* what) {
    // A sample for which one reader had no room may still be delayed for others.
    if (flusher_ && (rc == DDS_RETCODE_OK || rc == DDS_RETCODE_TIMEOUT)) {
      if (!held_since_ns_.load(std::memory_order_relaxed)) {
        const std::int64_t now = now_ns();
        if (std::int64_t none = 0; held_since_ns_.compare_exchange_strong(none, now))
          flusher_->look(now + budget_ns_ - notice_ns());
      }
      if (hurries_.load(std::memory_order_relaxed) && hurries_.exchange(false)) flush();
    }
    if (rc == DDS_RETCODE_OK) return {};
    if (rc == DDS_RETCODE_TIMEOUT)
      return Error{
          "bus.timed_out",
          "topic " + topic_ + ": a reader had no place for a sample within " + std::to_string(max_blocking_s_) + " s",
          "take samples faster, allow more of them (max-samples), or write with reliability=\"best-effort\""};
    const std::string said = last_words();
    return Error{"bus.closed",
                 "topic " + topic_ + ": a sample could not be " + what + ": Cyclone DDS says " + dds_strretcode(rc) +
                     (said.empty() ? "" : " (" + said + ")"),
                 {}};
  }

  Entity publisher_, writer_;
  TypeRef type_;
  Guid guid_;
  dds_entity_t participant_;
  std::string topic_;
  double max_blocking_s_;
  Liveliness liveliness_;
  std::int64_t budget_ns_;
  Flusher* flusher_;
  ManualWriters* manual_;
  std::atomic<std::uint32_t> lapses_{0},
      revived_{0};  ///< number of lapses of its lease, and of those after which it was revived
  std::atomic<std::int64_t> held_since_ns_{0};
  std::atomic<bool> hurries_{false};
  std::atomic<int> writing_{0};
};

void ManualWriters::revive() {
  std::unique_lock lock(mutex_);
  std::vector<Writer*> lapsed;
  for (Writer* writer : writers_)
    if (writer->lapsed()) lapsed.push_back(writer);
  while (!lapsed.empty()) {
    Writer* const writer = lapsed.back();
    lapsed.pop_back();
    // The writer may be gone, or have begun to write, while another one was revived.
    if (std::find(writers_.begin(), writers_.end(), writer) == writers_.end() || !writer->lapsed()) continue;
    revived_.push_back(writer);
    lock.unlock();
    writer->revive();
    lock.lock();
    revived_.erase(std::find(revived_.begin(), revived_.end(), writer));
    changed_.notify_all();
  }
}

void Flusher::run() {
  constexpr std::int64_t least_wait_ns = 50'000;
  std::unique_lock lock(mutex_);
  while (!ends_) {
    looks_ = false;
    // A writer that delays a sample before this point is seen here. A later one calls, or reads the time of the next
    // check. One of the two happens, because all of these loads and stores have one order.
    next_ns_.store(0);
    std::int64_t next = 0;
    const auto by = [&next](std::int64_t at) { next = next ? std::min(next, at) : at; };
    const std::int64_t now = now_ns();
    due_.clear();
    for (Writer* writer : writers_) {
      const std::int64_t at = writer->due_ns();
      if (!at) continue;
      const std::int64_t notice = writer->notice_ns(), tells = at - notice, sends = at - notice / 2;
      if (tells > now) {
        by(tells);
        continue;
      }
      writer->hurry();
      if (sends > now) {
        by(sends);
      } else if (writer->writes()) {
        by(now + std::max(notice, least_wait_ns));
      } else {
        by(now + writer->budget_ns());
        due_.push_back(writer);
      }
    }
    next_ns_.store(next);
    while (!due_.empty()) {
      Writer* const writer = due_.back();
      due_.pop_back();
      if (writer->writes()) {  // it began after the check, while another writer was flushed
        by(now_ns() + std::max(writer->notice_ns(), least_wait_ns));
        next_ns_.store(next);
        continue;
      }
      flushed_ = writer;
      lock.unlock();
      flushed_->flush();
      lock.lock();
      flushed_ = nullptr;
      changed_.notify_all();
    }
    const auto called = [this] { return ends_ || looks_; };
    if (next) changed_.wait_for(lock, std::chrono::nanoseconds(next - now_ns()), called);
    else changed_.wait(lock, called);
  }
}

class Waiter;

class Reader final : public ReaderPort {
 public:
  Reader(Entity subscriber, Entity reader, TypeRef type, const Qos& qos)
      : bounded_(qos.history == History::keep_all && qos.max_samples),
        subscriber_(std::move(subscriber)),
        reader_(std::move(reader)),
        has_some_(dds_create_readcondition(*reader_, DDS_ANY_STATE)),
        type_(std::move(type)),
        guid_(guid_of(*reader_)) {
    dds_listener_t* listener = dds_create_listener(this);
    dds_lset_data_available(listener, [](dds_entity_t, void* self) { static_cast<Reader*>(self)->on_data(); });
    dds_lset_liveliness_changed(listener, [](dds_entity_t, const dds_liveliness_changed_status_t status, void* self) {
      if (status.not_alive_count_change > 0)
        static_cast<Reader*>(self)->lapses_.fetch_add(status.not_alive_count_change);
    });
    dds_lset_subscription_matched(listener, [](dds_entity_t, const dds_subscription_matched_status_t, void* self) {
      static_cast<Reader*>(self)->on_matched();
    });
    dds_set_listener(*reader_, listener);
    dds_delete_listener(listener);
  }
  /// First ends everything that calls the listener, because it uses the other members.
  ~Reader() override {
    has_some_ = Entity();
    if (bounded_) end_bounded();
    reader_ = Entity();
  }

  /// Cyclone's receiving thread waits for room in the middle of a message, and the end of a reader waits for that
  /// thread. So the blocking samples are taken while the domain receives nothing. Data that other readers miss in these
  /// milliseconds is sent again, or was best effort. If the thread waits for another full reader, whose owner takes
  /// nothing, it continues when the writer's lease is over: a late end.
  void end_bounded() {
    dds_subscription_matched_status_t matched{};
    if (dds_get_subscription_matched_status(*reader_, &matched) == DDS_RETCODE_OK && !matched.total_count)
      return;  // it never had a writer
    // One at a time, because the whole domain receives nothing. No duration is given, because it would continue after
    // the call that ends it.
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    dds_domain_set_deafmute(*subscriber_, true, false, DDS_INFINITY);
    const std::int64_t end =
        now_ns() +
        100'000'000;  // another full reader of the topic causes the same samples to be delivered here again and again
    for (std::int64_t now = now_ns(), last = now; now - last < 5'000'000 && now < end; now = now_ns()) {
      ddsi_serdata* samples[takes_at_once];
      dds_sample_info_t infos[takes_at_once];
      const dds_return_t n = dds_takecdr(*reader_, samples, takes_at_once, infos, DDS_ANY_STATE);
      for (dds_return_t k = 0; k < n; ++k) SampleRef(static_cast<Sample*>(samples[k]));
      if (n > 0) last = now;
      else std::this_thread::sleep_for(std::chrono::microseconds(500));  // it checks again every millisecond
    }
    reader_ = Entity();
    dds_domain_set_deafmute(*subscriber_, false, false, DDS_INFINITY);
  }

  Guid guid() const override { return guid_; }

  std::size_t take(std::size_t most, const Taker& taker) override {
    pending_.store(false);
    std::size_t taken = hand_on_endings(most, taker);
    std::vector<Taken> batch = std::move(batch_);  // a taker may throw
    batch.clear();
    while (taken < most) {
      ddsi_serdata* samples[takes_at_once];
      dds_sample_info_t infos[takes_at_once];
      // An ending that the previous take delayed comes before later samples, so a slot is reserved for it.
      const bool first = cut_.handle && batch.empty() && most - taken > 1;
      const auto want = static_cast<std::uint32_t>(std::min<std::size_t>(takes_at_once, most - taken - first));
      const dds_return_t n = dds_takecdr(*reader_, samples, want, infos, DDS_ANY_STATE);
      SampleRef held[takes_at_once];  // a taker may throw
      for (dds_return_t k = 0; k < n; ++k) held[k].reset(static_cast<Sample*>(samples[k]));
      if (auto ending = settle_cut(n > 0 ? infos[0].instance_handle : 0)) {
        if (first) taker(ending->info, ending->payload), ++taken;
        else endings_.push_back(std::move(*ending));
      }
      const bool full = n == static_cast<dds_return_t>(want);
      for (dds_return_t k = 0; k < n; ++k) {
        Taken one{std::move(held[k]), infos[k]};
        if (ends_instance(one.info)) {
          if (full && k == n - 1) cut_ = {one.info.instance_handle, ending_of(one)};
          else endings_.push_back(ending_of(one));
        }
        if (!one.info.valid_data) continue;
        ++taken;
        if (type_->key_type) batch.push_back(std::move(one));
        else hand_on(one, taker);
      }
      if (!full) break;
    }
    if (taken >= most) on_data();  // there may be more
    // Cyclone returns samples instance by instance.
    std::sort(batch.begin(), batch.end(),
              [](const Taken& a, const Taken& b) { return a.sample->order < b.sample->order; });
    for (const Taken& one : batch) hand_on(one, taker);
    batch.clear();
    batch_ = std::move(batch);
    return taken + hand_on_endings(most - taken, taker);
  }

  Status status() override {
    Status out;
    dds_subscription_matched_status_t matched{};
    if (dds_get_subscription_matched_status(*reader_, &matched) == DDS_RETCODE_OK) {
      out.matched = matched.current_count;
      out.matched_ever = matched.total_count;
    }
    dds_requested_incompatible_qos_status_t incompatible{};
    if (dds_get_requested_incompatible_qos_status(*reader_, &incompatible) == DDS_RETCODE_OK &&
        incompatible.total_count) {
      out.incompatible = incompatible.total_count;
      out.incompatible_policy = policy_name(incompatible.last_policy_id);
    }
    dds_sample_lost_status_t lost{};
    out.lost = static_cast<std::int64_t>(missing_.load(std::memory_order_relaxed));
    if (dds_get_sample_lost_status(*reader_, &lost) == DDS_RETCODE_OK) out.lost += lost.total_count;
    dds_sample_rejected_status_t rejected{};
    if (dds_get_sample_rejected_status(*reader_, &rejected) == DDS_RETCODE_OK) out.rejected = rejected.total_count;
    dds_requested_deadline_missed_status_t missed{};
    if (dds_get_requested_deadline_missed_status(*reader_, &missed) == DDS_RETCODE_OK)
      out.deadline_missed = missed.total_count;
    dds_liveliness_changed_status_t liveliness{};
    if (dds_get_liveliness_changed_status(*reader_, &liveliness) == DDS_RETCODE_OK) out.alive = liveliness.alive_count;
    out.liveliness_lost = lapses_.load();
    return out;
  }

  std::vector<Guid> matched() override {
    return matched_of(*reader_, dds_get_matched_publications, dds_get_matched_publication_data);
  }

  bool on_match(std::function<void()> tell) override {
    const std::lock_guard lock(match_mutex_);
    tell_match_ = std::move(tell);
    return true;
  }

  /// Without the readers of built-in topics of endpoints(), whose creation takes milliseconds.
  std::optional<std::vector<std::pair<Guid, std::string>>> announcements() override {
    std::vector<std::pair<Guid, std::string>> out;
    const auto handles = handles_of(*reader_, dds_get_matched_publications);
    if (handles.size() < announced_.size() / 2) announced_.clear();  // most have gone
    for (const dds_instance_handle_t handle : handles) {
      auto at = announced_.find(handle);
      if (at == announced_.end()) {
        dds_builtintopic_endpoint_t* endpoint = dds_get_matched_publication_data(*reader_, handle);
        if (!endpoint) continue;
        Endpoint told = endpoint_from(*endpoint, true);
        dds_builtintopic_free_endpoint(endpoint);
        at = announced_.emplace(handle, std::pair{told.guid, std::move(told.user_data)}).first;
      }
      out.push_back(at->second);
    }
    return out;
  }

  /// Whether there are samples now.
  bool has_some() {
    if (!pending_.exchange(false)) return false;
    if (!has_endings_.load() && dds_triggered(*has_some_) <= 0) return false;
    if (shared_.load()) on_data();  // another waiter may have checked meanwhile
    else pending_.store(true);
    return true;
  }

  void add(Waiter* waiter) {
    const std::lock_guard lock(mutex_);
    waiters_.push_back(waiter);
    shared_.store(waiters_.size() > 1);
  }
  void remove(Waiter* waiter) {
    const std::lock_guard lock(mutex_);
    std::erase(waiters_, waiter);
    shared_.store(waiters_.size() > 1);
  }

 private:
  void on_data();
  void on_matched() {
    const std::lock_guard lock(match_mutex_);
    if (tell_match_) tell_match_();
  }

  struct Unref {
    void operator()(Sample* sample) const { ddsi_serdata_unref(sample); }
  };
  using SampleRef = std::unique_ptr<Sample, Unref>;
  struct Taken {
    SampleRef sample;
    dds_sample_info_t info;
  };
  /// The end of an instance. Cyclone merges it into the last sample of the instance if that still exists; here it
  /// follows the samples.
  struct Ending {
    SampleInfo info;
    std::vector<std::byte> payload;
  };

  void hand_on(const Taken& one, const Taker& taker) {
    SampleInfo info;
    info.writer = known(one.info.publication_handle, one.sample->writer_known ? one.sample.get() : nullptr).guid;
    info.source_ns = one.info.source_timestamp;
    info.received_ns = one.sample->received_ns;
    taker(info, one.sample->payload());
  }

  /// For a type without key only disposals are reported; matched() shows that no writer is left.
  bool ends_instance(const dds_sample_info_t& info) const {
    if (info.sample_rank != 0) return false;
    return info.instance_state == DDS_IST_NOT_ALIVE_DISPOSED ||
           (info.instance_state == DDS_IST_NOT_ALIVE_NO_WRITERS && type_->key_type);
  }

  Ending ending_of(const Taken& one) {
    Ending ending;
    const bool told = one.info.valid_data && one.sample->writer_known;
    ending.info.writer = known(one.info.publication_handle, told ? one.sample.get() : nullptr).guid;
    ending.info.source_ns = one.info.source_timestamp;
    ending.info.state =
        one.info.instance_state == DDS_IST_NOT_ALIVE_DISPOSED ? InstanceState::disposed : InstanceState::no_writers;
    ending.info.has_data = false;
    ending.payload = payload_of_key(*type_->type, one.sample->key());
    return ending;
  }

  /// Cyclone continues with the instance that the previous take left incomplete, and reports the ending again with the
  /// remaining samples.
  std::optional<Ending> settle_cut(dds_instance_handle_t goes_on_with) {
    std::optional<Ending> ending;
    if (cut_.handle && goes_on_with != cut_.handle) ending = std::move(cut_.ending);
    cut_ = {};
    return ending;
  }

  std::size_t hand_on_endings(std::size_t most, const Taker& taker) {
    std::size_t n = 0;
    for (; n < most && !endings_.empty(); ++n) {
      const Ending ending = std::move(endings_.front());
      endings_.pop_front();
      taker(ending.info, ending.payload);
    }
    const bool left = !endings_.empty() || cut_.handle;
    has_endings_.store(left);
    if (left) on_data();
    return n;
  }

  struct Known {
    Guid guid;
    std::uint64_t missing = 0;
    bool wrote = false;
  };

  /// `sample` is null if it does not contain its writer, for example at the end of an instance: that writer may be
  /// gone, and is then known only from its samples.
  Known& known(dds_instance_handle_t handle, const Sample* sample) {
    if (handle != last_handle_ || !last_writer_) {
      if (writers_.size() > most_writers_known) writers_.clear();
      const auto [at, first] = writers_.try_emplace(handle);
      last_handle_ = handle;
      last_writer_ = &at->second;
      if (first && !sample)
        if (dds_builtintopic_endpoint_t* endpoint = dds_get_matched_publication_data(*reader_, handle)) {
          at->second.guid = guid_from(endpoint->key);
          dds_builtintopic_free_endpoint(endpoint);
        }
    }
    Known& writer = *last_writer_;
    if (sample) {
      writer.guid = sample->writer;
      if (writer.wrote && sample->missing > writer.missing)
        missing_.fetch_add(sample->missing - writer.missing, std::memory_order_relaxed);
      writer.missing = writer.wrote ? std::max(writer.missing, sample->missing) : sample->missing;
      writer.wrote = true;
    }
    return writer;
  }

  const bool bounded_;  ///< it can be full, so that its writers wait
  Entity subscriber_, reader_, has_some_;
  TypeRef type_;
  Guid guid_;
  std::atomic<bool> pending_{true};  ///< waiters were notified, and none has checked since
  std::atomic<bool> shared_{false};  ///< used by several waiters
  std::map<dds_instance_handle_t, std::pair<Guid, std::string>>
      announced_;  ///< used by the taking thread, like the following members
  std::map<dds_instance_handle_t, Known> writers_;
  std::vector<Taken> batch_;  ///< empty: memory that take() uses again
  dds_instance_handle_t last_handle_ = 0;
  Known* last_writer_ = nullptr;
  std::deque<Ending> endings_;
  /// The ending of the instance of a full take's last sample: there may be more samples of it. Handle 0: none.
  struct {
    dds_instance_handle_t handle = 0;
    Ending ending;
  } cut_;
  std::atomic<bool> has_endings_{false};
  std::atomic<std::uint64_t> missing_{0};
  std::atomic<std::int64_t> lapses_{0};
  std::mutex match_mutex_;
  std::function<void()> tell_match_;
  std::mutex mutex_;
  std::vector<Waiter*> waiters_;
};

/// Waits on a monotonic clock; Cyclone's own waitset uses the time of day.
class Waiter final : public WaiterPort {
 public:
  explicit Waiter(double spin_s) : bell_(spin_s) {}
  ~Waiter() override {
    for (const auto& [reader, tag] : attached_) reader->remove(this);
  }

  Result<void> attach(ReaderPort& reader, std::uint64_t tag) override {
    auto& mine = static_cast<Reader&>(reader);
    const std::lock_guard lock(attached_mutex_);
    attached_.emplace_back(&mine, tag);
    mine.add(this);
    notify();
    return {};
  }

  void detach(ReaderPort& reader) override {
    auto& mine = static_cast<Reader&>(reader);
    const std::lock_guard lock(attached_mutex_);
    mine.remove(this);
    std::erase_if(attached_, [&mine](const auto& one) { return one.first == &mine; });
  }

  std::vector<std::uint64_t> wait(Deadline deadline) override {
    std::vector<std::uint64_t> tags;
    for (;;) {
      bell_.silence();
      {
        const std::lock_guard lock(attached_mutex_);
        for (const auto& [reader, tag] : attached_)
          if (reader->has_some()) tags.push_back(tag);
      }
      if (bell_.woken() || !tags.empty()) return tags;
      if (!bell_.wait(deadline)) return tags;
    }
  }

  void wake() override { bell_.wake(); }

  void notify() { bell_.ring(); }

 private:
  std::mutex attached_mutex_;
  std::vector<std::pair<Reader*, std::uint64_t>> attached_;
  Bell bell_;  ///< rung by Cyclone's threads
};

void Reader::on_data() {
  if (pending_.exchange(true)) return;
  const std::lock_guard lock(mutex_);
  for (Waiter* waiter : waiters_) waiter->notify();
}

class ParticipantOf final : public ParticipantPort {
 public:
  ParticipantOf(std::unique_ptr<Domain> domain, Entity participant, double spin_s)
      : domain_(std::move(domain)),
        participant_(std::move(participant)),
        guid_(guid_of(*participant_)),
        spin_s_(spin_s) {}

  Guid guid() const override { return guid_; }

  Result<std::unique_ptr<WriterPort>> writer(const std::string& topic, const TypePtr& type, const Qos& qos) override {
    TypeRef made;
    auto topic_entity = topic_of(topic, type, made);
    if (!topic_entity) return topic_entity.error();
    Entity publisher(dds_create_publisher(*participant_, partition_qos(qos).get(), nullptr));
    if (!publisher) return failed("a publisher for topic " + topic + " could not be made", *publisher);
    const QosPtr wanted = common_qos(qos);
    dds_qset_lifespan(wanted.get(), duration(qos.lifespan_s));
    dds_qset_ownership_strength(wanted.get(), qos.strength);
    dds_qset_writer_data_lifecycle(wanted.get(), false);
    const bool holds_back = qos.latency_budget_s > 0;
    Entity writer;
    {
      // While a writer is created, a setting of the process decides whether it packs samples.
      static std::mutex mutex;
      const std::lock_guard lock(mutex);
      if (holds_back) dds_write_set_batch(true);
      writer = Entity(dds_create_writer(*publisher, **topic_entity, wanted.get(), nullptr));
      if (holds_back) dds_write_set_batch(false);
    }
    if (!writer) return failed("a writer of topic " + topic + " could not be made", *writer, denied_hint(*writer));
    return std::unique_ptr<WriterPort>(new Writer(std::move(publisher), std::move(writer), std::move(made),
                                                  *participant_, topic, qos, holds_back ? &flusher_ : nullptr,
                                                  &manual_));
  }

  Result<std::unique_ptr<ReaderPort>> reader(const std::string& topic, const TypePtr& type, const Qos& qos) override {
    TypeRef made;
    auto topic_entity = topic_of(topic, type, made);
    if (!topic_entity) return topic_entity.error();
    Entity subscriber(dds_create_subscriber(*participant_, partition_qos(qos).get(), nullptr));
    if (!subscriber) return failed("a subscriber for topic " + topic + " could not be made", *subscriber);
    Entity reader(dds_create_reader(*subscriber, **topic_entity, common_qos(qos).get(), nullptr));
    if (!reader) return failed("a reader of topic " + topic + " could not be made", *reader, denied_hint(*reader));
    return std::unique_ptr<ReaderPort>(new Reader(std::move(subscriber), std::move(reader), std::move(made), qos));
  }

  Result<std::unique_ptr<WaiterPort>> waiter() override { return std::unique_ptr<WaiterPort>(new Waiter(spin_s_)); }

  std::vector<Participant> peers() override {
    std::vector<Participant> out;
    participants_.for_each<dds_builtintopic_participant_t>(
        *participant_, [&](const dds_builtintopic_participant_t& data) {
          Participant one;
          one.guid = guid_from(data.key);
          if (one.guid == guid_) return;
          if (data.qos) {
            one.name = text_from([&](char** text) { return dds_qget_entity_name(data.qos, text); });
            one.host = text_from([&](char** text) { return dds_qget_prop(data.qos, "__Hostname", text); });
            const std::string pid = text_from([&](char** text) { return dds_qget_prop(data.qos, "__Pid", text); });
            if (!pid.empty()) one.pid = std::strtoll(pid.c_str(), nullptr, 10);
            if (one.name.empty())
              one.name = text_from([&](char** text) { return dds_qget_prop(data.qos, "__ProcessName", text); });
          }
          out.push_back(std::move(one));
        });
    return out;
  }

  std::vector<Endpoint> endpoints() override {
    std::vector<Endpoint> out;
    for (const bool writes : {true, false})
      (writes ? writers_ : readers_)
          .for_each<dds_builtintopic_endpoint_t>(*participant_, [&](const dds_builtintopic_endpoint_t& data) {
            if (guid_from(data.participant_key) != guid_) out.push_back(endpoint_from(data, writes));
          });
    return out;
  }

 private:
  static std::string denied_hint(dds_return_t rc) {
    return rc == DDS_RETCODE_NOT_ALLOWED_BY_SECURITY ? "the permissions of this participant's subject do not allow it: "
                                                       "'sonde bus keys show' says what they do"
                                                     : "";
  }

  /// `made`: the type that the topic uses, which may come from an earlier topic.
  Result<Entity> topic_of(const std::string& name, const TypePtr& type, TypeRef& made) {
    last_words();
    ddsi_sertype* sertype = make_sample_type(type);
    const dds_entity_t topic =
        dds_create_topic_sertype(*participant_, name.c_str(), &sertype, nullptr, nullptr, nullptr);
    if (topic < 0) {
      ddsi_sertype_unref(sertype);
      return failed("topic " + name + " of type " + type->name + " could not be made", topic, denied_hint(topic));
    }
    made.reset(static_cast<SampleType*>(ddsi_sertype_ref(sertype)));
    return Entity(topic);
  }

  std::unique_ptr<Domain> domain_;
  Entity participant_;
  Guid guid_;
  const double spin_s_;
  Known participants_{DDS_BUILTIN_TOPIC_DCPSPARTICIPANT}, writers_{DDS_BUILTIN_TOPIC_DCPSPUBLICATION},
      readers_{DDS_BUILTIN_TOPIC_DCPSSUBSCRIPTION};
  ManualWriters manual_;
  Flusher flusher_;
};

}  // namespace

Result<std::unique_ptr<ParticipantPort>> open_participant(const Profile& profile) {
  const auto plan = plan_domain(profile);
  if (!plan) return plan.error();
  const QosPtr qos(dds_create_qos());
  if (!profile.participant.empty()) dds_qset_entity_name(qos.get(), profile.participant.c_str());
  if (profile.security) {
    const auto properties = security_properties(*profile.security);
    if (!properties) return properties.error();
    for (const auto& [name, value] : *properties) dds_qset_prop(qos.get(), name.c_str(), value.c_str());
  }
  auto domain = Domain::get(profile.domain, *plan);
  if (!domain) return domain.error();
  last_words();
  Entity participant(dds_create_participant(profile.domain, qos.get(), nullptr));
  if (!participant)
    return failed("a participant of domain " + std::to_string(profile.domain) + " could not be made", *participant,
                  profile.security ? "look at the files of <security>: 'sonde bus keys add' makes them" : "");
  return std::unique_ptr<ParticipantPort>(
      new ParticipantOf(std::move(*domain), std::move(participant), profile.spin_s));
}

}  // namespace sonde::bus::cyclonedds
