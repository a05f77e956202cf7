#include "bus/module/fastdds/endpoint.hpp"

#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <tuple>

#include "bus/module/fastdds/words.hpp"
#include "core/thrown.hpp"

namespace sonde::bus::fastdds {

using Code = eprosima::fastrtps::types::ReturnCode_t;

namespace {

Error refused(const char* what, const std::string& topic) {
  const std::string said = last_words();
  if (said.find("not found in allow rule") != std::string::npos ||
      said.find("denied by deny rule") != std::string::npos)
    return {"bus.open",
            std::string(what) + " of the topic " + topic +
                " could not be made: Fast DDS says that no rule of the permissions allows it",
            "the permissions of this participant's subject do not allow it: 'sonde bus keys show' says what they do"};
  return {"bus.open",
          std::string(what) + " of the topic " + topic + " could not be made" + (said.empty() ? "" : ": " + said),
          "'sonde doctor' looks at the machine"};
}

/// The time left until a deadline, for calls of Fast DDS.
eprosima::fastrtps::Duration_t left(Deadline deadline) {
  if (!deadline.at_ns) return eprosima::fastrtps::c_TimeInfinite;
  return duration(static_cast<double>(std::max<std::int64_t>(deadline.at_ns - now_ns(), 0)) * 1e-9);
}

}  // namespace

Guid guid_of(const rtps::GUID_t& guid) {
  Guid out;
  std::memcpy(out.bytes.data(), guid.guidPrefix.value, 12);
  std::memcpy(out.bytes.data() + 12, guid.entityId.value, 4);
  return out;
}

Guid guid_of(const rtps::InstanceHandle_t& handle) {
  Guid out;
  for (std::size_t k = 0; k < out.bytes.size(); ++k) out.bytes[k] = std::byte{handle.value[k]};
  return out;
}

// ---- Matches

Matches::Change Matches::changed(std::int32_t now, const Guid& last) {
  const std::lock_guard lock(mutex_);
  const std::int32_t before = count_.exchange(now);
  const auto at = std::find(guids_.begin(), guids_.end(), last);
  if (now > before && at == guids_.end()) guids_.push_back(last);
  if (now < before && at != guids_.end()) guids_.erase(at);
  if (now == 0) guids_.clear();
  return now > before ? Change::came : now < before ? Change::went : Change::none;
}

std::vector<Guid> Matches::list(const Known& known) {
  const std::lock_guard lock(mutex_);
  std::erase_if(guids_, [&](const Guid& guid) { return !known(guid); });
  return guids_;
}

// ---- Turn

Turn::Mine::Mine(Turn& turn, Deadline deadline) : turn_(turn) {
  std::unique_lock lock(turn_.mutex_);
  ++turn_.waiting_;
  const auto is_free = [this] { return !turn_.taken_; };
  if (deadline.at_ns)
    mine_ = turn_.free_.wait_until(
        lock, std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.at_ns)), is_free);
  else turn_.free_.wait(lock, is_free), mine_ = true;
  --turn_.waiting_;
  if (mine_) turn_.taken_ = true;
}

Turn::Mine::~Mine() {
  if (!mine_) return;
  const std::lock_guard lock(turn_.mutex_);
  turn_.taken_ = false;
  if (turn_.waiting_) turn_.free_.notify_one();
}

// ---- Writer

Result<std::unique_ptr<Writer>> Writer::make(dds::DomainParticipant& participant, dds::Topic& topic,
                                             const WriterPlan& plan, Matches::Known known,
                                             std::function<void()> release) {
  std::unique_ptr<Writer> made(new Writer(std::move(known), std::move(release)));
  made->topic_ = topic.get_name();
  made->max_blocking_s_ = plan.max_blocking_s;
  made->most_instances_ = plan.writer.resource_limits().max_instances;
  made->gives_up_ = plan.gives_up;
  made->publisher_ = participant.create_publisher(plan.publisher, nullptr, dds::StatusMask::none());
  if (made->publisher_)
    made->writer_ =
        made->publisher_->create_datawriter(&topic, plan.writer, made.get(), dds::StatusMask::publication_matched());
  if (!made->writer_) return refused("a writer", made->topic_);
  return made;
}

Writer::~Writer() {
  try {
    if (publisher_) {
      if (writer_) {
        // Fast DDS 2 returns the samples of an ending writer to their pool while its heartbeat may still read them. It
        // then counts gaps from invalid numbers, for hours, under the lock that the writer's end needs. If the history
        // is emptied under that lock, the heartbeat reads nothing.
        std::size_t removed = 0;
        writer_->clear_history(&removed);
        publisher_->delete_datawriter(writer_);
      }
      const_cast<dds::DomainParticipant*>(publisher_->get_participant())->delete_publisher(publisher_);
    }
    release_();
  } catch (...) {
    return;
  }
}

Guid Writer::guid() const { return guid_of(writer_->guid()); }

Result<void> Writer::sent(Code code, std::size_t bytes) const {
  if (code == Code::RETCODE_OK) return {};
  if (code == Code::RETCODE_TIMEOUT)
    return Error{"bus.timed_out",
                 "topic " + topic_ + ": no place for a sample within " + std::to_string(max_blocking_s_) +
                     " s: a reliable reader does not keep up",
                 "let the reader take, or raise max_samples or max_blocking_s"};
  const std::string said = last_words();
  return Error{"bus.failed",
               "topic " + topic_ + ": Fast DDS did not take a sample of " + std::to_string(bytes) + " B (code " +
                   std::to_string(code()) + ")" + (said.empty() ? "" : ": " + said),
               "fewer instances or a smaller history need less memory"};
}

Error Writer::no_instance() const {
  return {"bus.full",
          "topic " + topic_ + ": a writer of Fast DDS has place for " + std::to_string(most_instances_) +
              " instances, and they are there",
          "dispose of those that are over; or keep fewer samples of each (depth, max_samples): then there is place for "
          "more"};
}

template <typename Send> Result<void> Writer::send(Bytes payload, Bytes key, const Send& send) {
  try {
    Sample sample;
    sample.payload = payload;
    sample.key = key;
    // Fast DDS itself waits for space, a part of max_blocking at a time. It reports a timeout too early if the last
    // acknowledgement freed so much space that it finds nothing left to remove: that is temporary. A lack of room for
    // one more instance is not temporary, and must be queried. In case of other reasons, a writer that may wait forever
    // waits with pauses.
    constexpr double first_pause_s = 1e-3, longest_pause_s = 50e-3;
    const Deadline deadline = max_blocking_s_ < 1e9 ? Deadline::in_s(max_blocking_s_) : Deadline{};
    for (double pause_s = 0;;) {
      {
        const Turn::Mine mine(turn_, deadline);
        if (!mine) return sent(Code::RETCODE_TIMEOUT, payload.size());
        const double began_s = now_s();
        const Code code = send(&sample);
        if (code != Code::RETCODE_TIMEOUT || deadline.passed()) return sent(code, payload.size());
        if (now_s() - began_s >= wait_piece_s) pause_s = first_pause_s;  // for the other writers, which come first now
        else if (!key.empty() && !writer_->register_instance(&sample).isDefined()) return no_instance();
      }
      if (pause_s > 0) sleep_until(now_s() + pause_s);
      pause_s = std::clamp(pause_s * 2, first_pause_s, longest_pause_s);
    }
  } catch (...) {
    return Error{"bus.failed", "topic " + topic_ + ": Fast DDS threw: " + text_of_exception(), {}};
  }
}

Result<void> Writer::write(Bytes payload, Bytes key) {
  return send(payload, key, [this](Sample* sample) { return writer_->write(sample, dds::HANDLE_NIL); });
}

Result<void> Writer::dispose(Bytes payload, Bytes key) {
  // Fast DDS forgets a disposed instance only if it is also unregistered; one call does both.
  const auto dispose = [this](Sample* sample) {
    return gives_up_ ? writer_->unregister_instance(sample, dds::HANDLE_NIL)
                     : writer_->dispose(sample, dds::HANDLE_NIL);
  };
  return send(payload, key, [&](Sample* sample) {
    const Code code = dispose(sample);
    if (code != Code::RETCODE_PRECONDITION_NOT_MET) return code;
    // This writer has not written the instance yet.
    return writer_->register_instance(sample).isDefined() ? dispose(sample) : Code(Code::RETCODE_TIMEOUT);
  });
}

bool Writer::wait_acknowledged(Deadline deadline) {
  try {
    return writer_->wait_for_acknowledgments(left(deadline)) == Code::RETCODE_OK;
  } catch (...) {
    return false;
  }
}

void Writer::assert_liveliness() {
  try {
    writer_->assert_liveliness();
  } catch (...) {
    return;
  }
}

Status Writer::status() {
  Status out;
  dds::PublicationMatchedStatus matched;
  if (writer_->get_publication_matched_status(matched) == Code::RETCODE_OK) {
    out.matched = matched.current_count;
    out.matched_ever = matched.total_count;
  }
  dds::OfferedIncompatibleQosStatus incompatible;
  if (writer_->get_offered_incompatible_qos_status(incompatible) == Code::RETCODE_OK && incompatible.total_count) {
    out.incompatible = static_cast<std::int64_t>(incompatible.total_count);
    out.incompatible_policy = policy_name(incompatible.last_policy_id);
  }
  dds::OfferedDeadlineMissedStatus deadline;
  if (writer_->get_offered_deadline_missed_status(deadline) == Code::RETCODE_OK)
    out.deadline_missed = deadline.total_count;
  dds::LivelinessLostStatus liveliness;
  if (writer_->get_liveliness_lost_status(liveliness) == Code::RETCODE_OK) out.liveliness_lost = liveliness.total_count;
  return out;
}

std::vector<Guid> Writer::matched() {
  // Fast DDS decreases its count before it calls the listener.
  dds::PublicationMatchedStatus matched;
  if (writer_->get_publication_matched_status(matched) == Code::RETCODE_OK && matched.current_count == 0) return {};
  return matches_.list(known_);
}

void Writer::on_publication_matched(dds::DataWriter*, const dds::PublicationMatchedStatus& status) {
  try {
    matches_.changed(status.current_count, guid_of(status.last_subscription_handle));
  } catch (const std::bad_alloc&) {
    return;
  }
}

// ---- Reader

Reader::Reader(const TypePtr& type, bool hashed_keys, bool exclusive, Matches::Known known, Matches::Known sound,
               std::function<void()> release)
    : known_(std::move(known)),
      sound_(std::move(sound)),
      release_(std::move(release)),
      keyed_(has_key(*type)),
      keys_(type, hashed_keys),
      instances_(type, exclusive) {
  sample_.holds = true;
}

Result<std::unique_ptr<Reader>> Reader::make(dds::DomainParticipant& participant, dds::Topic& topic,
                                             const TypePtr& type, bool hashed_keys, const ReaderPlan& plan,
                                             Matches::Known known, Matches::Known sound,
                                             std::function<void()> release) {
  const bool exclusive = plan.reader.ownership().kind == dds::EXCLUSIVE_OWNERSHIP_QOS;
  std::unique_ptr<Reader> made(
      new Reader(type, hashed_keys, exclusive, std::move(known), std::move(sound), std::move(release)));
  made->participant_ = &participant;
  made->subscriber_ = participant.create_subscriber(plan.subscriber, nullptr, dds::StatusMask::none());
  if (made->subscriber_) {
    const auto mask = dds::StatusMask::data_available()
                      << dds::StatusMask::subscription_matched() << dds::StatusMask::liveliness_changed();
    made->reader_ = made->subscriber_->create_datareader(&topic, plan.reader, made.get(), mask);
  }
  if (!made->reader_) return refused("a reader", topic.get_name());
  return made;
}

Reader::~Reader() {
  try {
    if (subscriber_) {
      if (reader_) subscriber_->delete_datareader(reader_);
      participant_->delete_subscriber(subscriber_);
    }
    release_();
  } catch (...) {
    return;
  }
}

Guid Reader::guid() const { return guid_of(reader_->guid()); }

bool Reader::next(Held& into) {
  dds::SampleInfo theirs;
  if (reader_->take_next_sample(&sample_, &theirs) != Code::RETCODE_OK) return false;
  into.info.writer = guid_of(theirs.sample_identity.writer_guid());
  into.info.source_ns = theirs.source_timestamp.to_ns();
  into.info.received_ns = theirs.reception_timestamp.to_ns();
  into.info.has_data = theirs.valid_data;
  into.info.state = theirs.valid_data ? InstanceState::alive : InstanceState::disposed;
  into.sequence = static_cast<std::int64_t>(theirs.sample_identity.sequence_number().to64long());
  if (!keyed_) return true;
  into.handle = theirs.instance_handle;
  into.now = theirs.instance_state;
  into.disposals = theirs.disposed_generation_count;
  into.orphanings = theirs.no_writers_generation_count;
  if (theirs.valid_data) {
    keys_.saw(theirs.instance_handle, sample_.payload);
    into.payload = std::move(sample_.held);
  }
  return true;
}

/// Converts samples of Fast DDS without data to ends of instances; not if other writers still write the instance. Fast
/// DDS reports the current state of an instance. The earlier state shows in the next sample, which counts one more
/// disposal.
void Reader::report_ends(std::deque<Held>& all) {
  const Held* next = nullptr;
  for (auto at = all.rbegin(); at != all.rend(); ++at) {
    Held& of = *at;
    if (next && next->handle != of.handle) next = nullptr;
    if (!of.info.has_data) {
      const bool ended = next && (next->disposals != of.disposals || next->orphanings != of.orphanings);
      const bool goes_on = next && next->info.has_data && !ended;
      const bool orphaned =
          ended ? next->disposals == of.disposals : of.now == dds::NOT_ALIVE_NO_WRITERS_INSTANCE_STATE;
      if (orphaned) of.info.state = InstanceState::no_writers;
      // The end of an instance without any earlier sample is irrelevant, and its key cannot be derived from its hash.
      of.ends = !goes_on && (ended || of.now != dds::ALIVE_INSTANCE_STATE);
      if (of.ends) of.payload = keys_.payload_of(of.handle, sound_(of.info.writer));
    }
    if (!next || of.info.has_data) next = &of;
  }
  for (const Held& of : all) {
    if (of.info.has_data) instances_.wrote(of.handle, of.info.writer, of.payload, of.now == dds::ALIVE_INSTANCE_STATE);
    else if (of.ends) instances_.ended(of.handle);
    else instances_.gave_up(of.handle, of.info.writer);
  }
  std::erase_if(all, [](const Held& of) { return !of.info.has_data && of.payload.empty(); });
}

/// Fast DDS returns all present samples of one instance by arrival, then those of the next instance. A sample that was
/// lost or had no room arrives after the writer's next ones, but is still returned before them.
void Reader::fetch() {
  arrived_.store(false);
  instances_.begin();
  for (Held one; next(one); one = {}) fetched_.push_back(std::move(one));
  report_ends(fetched_);
  const auto by_writer = [](const Held& of) { return std::tie(of.info.writer, of.sequence); };
  std::sort(fetched_.begin(), fetched_.end(),
            [&](const Held& a, const Held& b) { return by_writer(a) < by_writer(b); });
  const Held* before = nullptr;
  for (Held& of : fetched_) {
    of.arrived_ns = of.info.received_ns;
    if (before && before->info.writer == of.info.writer) of.arrived_ns = std::max(of.arrived_ns, before->arrived_ns);
    before = &of;
  }
  std::stable_sort(fetched_.begin(), fetched_.end(),
                   [](const Held& a, const Held& b) { return a.arrived_ns < b.arrived_ns; });
  rtps::Time_t now;
  rtps::Time_t::now(now);
  for (auto& end : instances_.ends(matches_.count(), known_)) {
    Held& held = fetched_.emplace_back();
    held.info = {end.writer, 0, now.to_ns(), InstanceState::no_writers, false};
    held.payload = std::move(end.payload);
  }
  left_.store(fetched_.size());
}

std::size_t Reader::take(std::size_t most, const Taker& taker) {
  try {
    std::size_t n = 0;
    if (!keyed_) {
      arrived_.store(false);
      for (Held one; n < most; ++n) {
        if (!next(one)) return n;
        taker(one.info, sample_.payload);
      }
      arrived_.store(true);  // the next wait() checks
      return n;
    }
    while (n < most) {
      if (fetched_.empty()) fetch();
      if (fetched_.empty()) break;
      const Held one = std::move(fetched_.front());
      fetched_.pop_front();
      left_.store(fetched_.size());
      ++n;
      taker(one.info, one.payload);
    }
    return n;
  } catch (...) {
    arrived_.store(true);
    return 0;
  }
}

bool Reader::has_samples() {
  if (left_.load() || (keyed_ && instances_.has_ends(matches_.count()))) return true;
  if (!arrived_.exchange(false)) return false;
  dds::SampleInfo info;
  if (reader_->get_first_untaken_info(&info) != Code::RETCODE_OK) return false;
  arrived_.store(true);
  return true;
}

void Reader::hang(std::shared_ptr<Bell> bell) {
  {
    const std::lock_guard lock(bells_mutex_);
    bells_.push_back(std::move(bell));
  }
  arrived_.store(true);  // for samples that arrived before the listener was set
}

void Reader::unhang(const std::shared_ptr<Bell>& bell) {
  const std::lock_guard lock(bells_mutex_);
  if (const auto at = std::find(bells_.begin(), bells_.end(), bell); at != bells_.end()) bells_.erase(at);
}

void Reader::ring() {
  const std::lock_guard lock(bells_mutex_);
  for (const auto& bell : bells_) bell->ring();
}

void Reader::on_data_available(dds::DataReader*) {
  arrived_.store(true);
  ring();
}

void Reader::writer_left(const Guid& writer) {
  if (!keyed_) return;
  try {
    instances_.left(writer);
    ring();
  } catch (const std::bad_alloc&) {
    return;
  }
}

/// Fast DDS removes a writer whose liveliness is lost from its instances, as if it were gone.
void Reader::on_liveliness_changed(dds::DataReader*, const dds::LivelinessChangedStatus& status) {
  const Guid writer = guid_of(status.last_publication_handle);
  const std::int32_t before = lapsed_.exchange(status.not_alive_count);
  if (status.not_alive_count > before) writer_left(writer);
  else if (status.not_alive_count < before && keyed_) instances_.returned(writer);
}

void Reader::on_subscription_matched(dds::DataReader*, const dds::SubscriptionMatchedStatus& status) {
  try {
    const Guid writer = guid_of(status.last_publication_handle);
    const Matches::Change change = matches_.changed(status.current_count, writer);
    if (change == Matches::Change::went) writer_left(writer);
    if (change == Matches::Change::came && keyed_) instances_.returned(writer);
  } catch (const std::bad_alloc&) {
    ring();
  }
  const std::lock_guard lock(match_mutex_);
  if (tell_match_) tell_match_();
}

bool Reader::on_match(std::function<void()> tell) {
  const std::lock_guard lock(match_mutex_);
  tell_match_ = std::move(tell);
  return true;
}

Status Reader::status() {
  Status out;
  dds::SubscriptionMatchedStatus matched;
  if (reader_->get_subscription_matched_status(matched) == Code::RETCODE_OK) {
    out.matched = matched.current_count;
    out.matched_ever = matched.total_count;
  }
  dds::RequestedIncompatibleQosStatus incompatible;
  if (reader_->get_requested_incompatible_qos_status(incompatible) == Code::RETCODE_OK && incompatible.total_count) {
    out.incompatible = static_cast<std::int64_t>(incompatible.total_count);
    out.incompatible_policy = policy_name(incompatible.last_policy_id);
  }
  dds::SampleLostStatus lost;
  if (reader_->get_sample_lost_status(lost) == Code::RETCODE_OK) out.lost = lost.total_count;
  dds::SampleRejectedStatus rejected;
  if (reader_->get_sample_rejected_status(rejected) == Code::RETCODE_OK) out.rejected = rejected.total_count;
  dds::RequestedDeadlineMissedStatus deadline;
  if (reader_->get_requested_deadline_missed_status(deadline) == Code::RETCODE_OK)
    out.deadline_missed = deadline.total_count;
  dds::LivelinessChangedStatus liveliness;
  if (reader_->get_liveliness_changed_status(liveliness) == Code::RETCODE_OK) {
    out.alive = liveliness.alive_count;
    out.liveliness_lost = liveliness.not_alive_count;
  }
  return out;
}

std::vector<Guid> Reader::matched() {
  dds::SubscriptionMatchedStatus matched;
  if (reader_->get_subscription_matched_status(matched) == Code::RETCODE_OK && matched.current_count == 0) return {};
  return matches_.list(known_);
}

// ---- Waiter

Waiter::~Waiter() {
  for (const auto& [reader, tag] : readers_) reader->unhang(bell_);
}

Result<void> Waiter::attach(ReaderPort& reader, std::uint64_t tag) {
  auto* const mine = dynamic_cast<Reader*>(&reader);
  if (!mine || mine->participant() != participant_)
    return Error{"bus.open", "a waiter waits for readers of its own participant only",
                 "make the waiter from the bus that made the reader"};
  {
    const std::lock_guard lock(mutex_);
    readers_.emplace_back(mine, tag);
  }
  mine->hang(bell_);
  bell_->ring();  // a sleeping thread must check this reader too
  return {};
}

void Waiter::detach(ReaderPort& reader) {
  auto* const mine = dynamic_cast<Reader*>(&reader);
  if (!mine) return;
  mine->unhang(bell_);
  const std::lock_guard lock(mutex_);
  std::erase_if(readers_, [&](const auto& of) { return of.first == mine; });
}

std::vector<std::uint64_t> Waiter::wait(Deadline deadline) {
  std::vector<std::uint64_t> tags;
  for (;;) {
    bell_->silence();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [reader, tag] : readers_)
        if (reader->has_samples()) tags.push_back(tag);
    }
    if (bell_->woken() || !tags.empty() || !bell_->wait(deadline)) return tags;
  }
}

void Waiter::wake() { bell_->wake(); }

}  // namespace sonde::bus::fastdds
