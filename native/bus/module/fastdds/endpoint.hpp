#pragma once
/// Writers, readers and waiters over Fast DDS. Listeners run in Fast DDS's threads, so they only count and ring.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/publisher/DataWriterListener.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReaderListener.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/Topic.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bus/bell.hpp"
#include "bus/implementation.hpp"
#include "bus/module/fastdds/instances.hpp"
#include "bus/module/fastdds/sample.hpp"
#include "bus/module/fastdds/translate.hpp"

namespace sonde::bus::fastdds {

Guid guid_of(const rtps::GUID_t& guid);
Guid guid_of(const rtps::InstanceHandle_t& handle);

/// The peers matched with an endpoint. Fast DDS names the last peer that came or went. Its count of changes is useless,
/// because each query of the status resets it. Any-thread.
class Matches {
 public:
  using Known = std::function<bool(const Guid&)>;
  enum class Change : std::uint8_t { none, came, went };
  Change changed(std::int32_t now, const Guid& last);
  /// The matched peers that `known` still knows.
  std::vector<Guid> list(const Known& known);
  std::int32_t count() const { return count_.load(); }

 private:
  std::mutex mutex_;
  std::vector<Guid> guids_;
  std::atomic<std::int32_t> count_{0};
};

/// Only one thread at a time uses a writer: if several find no room, an assertion of Fast DDS ends the process, or
/// memory is lost forever. Any-thread.
class Turn {
 public:
  class Mine {
   public:
    Mine(Turn& turn, Deadline deadline);  ///< false: other threads had it until the deadline
    ~Mine();
    Mine(const Mine&) = delete;
    Mine& operator=(const Mine&) = delete;
    explicit operator bool() const { return mine_; }

   private:
    Turn& turn_;
    bool mine_ = false;
  };

 private:
  std::mutex mutex_;
  std::condition_variable free_;
  int waiting_ = 0;
  bool taken_ = false;
};

class Writer final : public WriterPort, private dds::DataWriterListener {
 public:
  /// `release` gives the topic back after the writer is gone.
  static Result<std::unique_ptr<Writer>> make(dds::DomainParticipant& participant, dds::Topic& topic,
                                              const WriterPlan& plan, Matches::Known known,
                                              std::function<void()> release);
  ~Writer() override;
  Guid guid() const override;
  Result<void> write(Bytes payload, Bytes key) override;
  Result<void> dispose(Bytes payload, Bytes key) override;
  bool wait_acknowledged(Deadline deadline) override;
  void assert_liveliness() override;
  Status status() override;
  std::vector<Guid> matched() override;

 private:
  Writer(Matches::Known known, std::function<void()> release)
      : known_(std::move(known)), release_(std::move(release)) {}
  void on_publication_matched(dds::DataWriter* writer, const dds::PublicationMatchedStatus& status) override;
  template <typename Send> Result<void> send(Bytes payload, Bytes key, const Send& send);
  Result<void> sent(eprosima::fastrtps::types::ReturnCode_t code, std::size_t bytes) const;
  Error no_instance() const;

  Matches::Known known_;
  std::function<void()> release_;
  Matches matches_;
  dds::Publisher* publisher_ = nullptr;
  dds::DataWriter* writer_ = nullptr;
  std::string topic_;
  Turn turn_;
  double max_blocking_s_ = 0;
  std::int32_t most_instances_ = 0;
  bool gives_up_ = false;
};

class Reader final : public ReaderPort, private dds::DataReaderListener {
 public:
  /// `sound`: writers whose disposals identify their instance reliably (Keys::payload_of()).
  static Result<std::unique_ptr<Reader>> make(dds::DomainParticipant& participant, dds::Topic& topic,
                                              const TypePtr& type, bool hashed_keys, const ReaderPlan& plan,
                                              Matches::Known known, Matches::Known sound,
                                              std::function<void()> release);
  ~Reader() override;
  Guid guid() const override;
  std::size_t take(std::size_t most, const Taker& taker) override;
  Status status() override;
  std::vector<Guid> matched() override;
  bool on_match(std::function<void()> tell) override;

  /// A writer of another participant is gone, matched or not. Called by Fast DDS's threads.
  void writer_left(const Guid& writer);
  const dds::DomainParticipant* participant() const { return participant_; }
  /// Whether take() would find something now.
  bool has_samples();
  void hang(std::shared_ptr<Bell> bell);
  void unhang(const std::shared_ptr<Bell>& bell);

 private:
  struct Held {
    SampleInfo info;
    std::vector<std::byte> payload;
    std::int64_t sequence = 0, arrived_ns = 0;
    rtps::InstanceHandle_t handle;
    dds::InstanceStateKind now = dds::ALIVE_INSTANCE_STATE;  ///< state of the instance when it was taken
    std::int32_t disposals = 0, orphanings = 0;              ///< counts of the instance when the sample arrived
    bool ends = false;  ///< a sample without data: the instance ends for all its writers
  };
  Reader(const TypePtr& type, bool hashed_keys, bool exclusive, Matches::Known known, Matches::Known sound,
         std::function<void()> release);
  void on_data_available(dds::DataReader* reader) override;
  void on_liveliness_changed(dds::DataReader* reader, const dds::LivelinessChangedStatus& status) override;
  void on_subscription_matched(dds::DataReader* reader, const dds::SubscriptionMatchedStatus& status) override;
  /// The next sample of Fast DDS, its payload in sample_ or, of types with key, in `into`; false: no sample.
  bool next(Held& into);
  void report_ends(std::deque<Held>& all);
  void fetch();
  void ring();

  Matches::Known known_, sound_;
  std::function<void()> release_;
  Matches matches_;
  dds::DomainParticipant* participant_ = nullptr;
  dds::Subscriber* subscriber_ = nullptr;
  dds::DataReader* reader_ = nullptr;
  const bool keyed_;
  Keys keys_;
  Instances instances_;
  std::atomic<std::int32_t> lapsed_{0};  ///< writers whose liveliness is lost now
  Sample sample_;
  std::deque<Held> fetched_;          ///< of keyed topics
  std::atomic<std::size_t> left_{0};  ///< in fetched_
  std::atomic<bool> arrived_{false};  ///< Fast DDS may have samples
  std::mutex match_mutex_;
  std::function<void()> tell_match_;
  std::mutex bells_mutex_;
  std::vector<std::shared_ptr<Bell>> bells_;
};

class Waiter final : public WaiterPort {
 public:
  Waiter(const dds::DomainParticipant& participant, double spin_s)
      : participant_(&participant), bell_(std::make_shared<Bell>(spin_s)) {}
  ~Waiter() override;
  Result<void> attach(ReaderPort& reader, std::uint64_t tag) override;
  void detach(ReaderPort& reader) override;
  std::vector<std::uint64_t> wait(Deadline deadline) override;
  void wake() override;

 private:
  const dds::DomainParticipant* participant_;
  std::shared_ptr<Bell> bell_;
  std::mutex mutex_;  ///< of readers_
  std::vector<std::pair<Reader*, std::uint64_t>> readers_;
};

}  // namespace sonde::bus::fastdds
