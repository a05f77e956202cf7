#include "bus/module/fastdds/participant.hpp"

#include <fastrtps/xmlparser/XMLProfileManager.h>
#include <sched.h>
#include <unistd.h>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/domain/DomainParticipantListener.hpp>
#include <fastdds/dds/topic/Topic.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bus/bus.hpp"
#include "bus/module/fastdds/endpoint.hpp"
#include "bus/module/fastdds/groups.hpp"
#include "bus/module/fastdds/sample.hpp"
#include "bus/module/fastdds/shared_memory.hpp"
#include "bus/module/fastdds/translate.hpp"
#include "bus/module/fastdds/words.hpp"
#include "core/thrown.hpp"

namespace sonde::bus::fastdds {

namespace {

using Code = eprosima::fastrtps::types::ReturnCode_t;

/// Known participants and endpoints of others: tables that threads of Fast DDS fill. Any-thread.
class Directory final : public dds::DomainParticipantListener {
 public:
  std::vector<Participant> peers() {
    const std::lock_guard lock(mutex_);
    std::vector<Participant> out;
    for (const auto& [guid, participant] : participants_) out.push_back(participant);
    return out;
  }
  std::vector<Endpoint> endpoints() {
    const std::lock_guard lock(mutex_);
    std::vector<Endpoint> out;
    for (const auto& [guid, endpoint] : endpoints_) out.push_back(endpoint);
    return out;
  }
  bool knows(const Guid& guid) {
    const std::lock_guard lock(mutex_);
    return endpoints_.contains(guid);
  }
  /// Whether an endpoint is, or was, one of Sonde, with any DDS.
  bool is_ours(const Guid& guid) {
    const std::lock_guard lock(mutex_);
    return ours_.contains(prefix_of(guid));
  }
  /// Until unwatch() has returned, Fast DDS's threads call `left` with each writer of another participant that ends.
  /// The status of matches also names ending writers, but two that end at the same time share one status.
  void watch(std::uint64_t number, std::function<void(const Guid&)> left) {
    const std::lock_guard lock(watchers_mutex_);
    watchers_[number] = std::move(left);
  }
  void unwatch(std::uint64_t number) {
    const std::lock_guard lock(watchers_mutex_);
    watchers_.erase(number);
  }

 private:
  static constexpr std::size_t most_remembered = 4096;

  static std::array<std::byte, 12> prefix_of(const Guid& guid) {
    std::array<std::byte, 12> prefix;
    std::copy_n(guid.bytes.begin(), prefix.size(), prefix.begin());
    return prefix;
  }
  static Guid participant_of(const rtps::GUID_t& guid) {
    rtps::GUID_t of = guid;
    of.entityId = rtps::c_EntityId_RTPSParticipant;
    return guid_of(of);
  }

  void on_participant_discovery(dds::DomainParticipant* self, rtps::ParticipantDiscoveryInfo&& info) override {
    try {
      const Guid guid = guid_of(info.info.m_guid);
      if (guid == guid_of(self->guid())) return;
      const std::lock_guard lock(mutex_);
      if (info.status == rtps::ParticipantDiscoveryInfo::REMOVED_PARTICIPANT ||
          info.status == rtps::ParticipantDiscoveryInfo::DROPPED_PARTICIPANT) {
        participants_.erase(guid);
        std::erase_if(endpoints_, [&](const auto& of) { return of.second.participant == guid; });
        return;
      }
      Participant& participant = participants_[guid];
      participant.guid = guid;
      participant.name = info.info.m_participantName.c_str();
      for (auto at = info.info.m_properties.begin(); at != info.info.m_properties.end(); ++at) {
        const std::string name = at->first(), value = at->second();
        if (name == "__Hostname" || name == "fastdds.physical_data.host") participant.host = value;
        if (name == "__Pid" || name == "fastdds.physical_data.process")
          std::from_chars(value.data(), value.data() + value.size(), participant.pid);
      }
    } catch (...) {
      return;
    }
  }

  template <typename Info> void note(dds::DomainParticipant* self, const Info& info, bool gone, bool writes) {
    try {
      const Guid guid = guid_of(info.guid());
      const Guid participant = participant_of(info.guid());
      if (participant == guid_of(self->guid())) return;
      const std::lock_guard lock(mutex_);
      if (gone) {
        endpoints_.erase(guid);
        return;
      }
      Endpoint& endpoint = endpoints_[guid];
      endpoint.guid = guid;
      endpoint.participant = participant;
      endpoint.writes = writes;
      endpoint.topic = info.topicName().c_str();
      endpoint.type = info.typeName().c_str();
      endpoint.partitions.clear();
      for (const std::string& name : info.m_qos.m_partition.getNames()) endpoint.partitions.push_back(name);
      endpoint.reliability = info.m_qos.m_reliability.kind == dds::RELIABLE_RELIABILITY_QOS ? Reliability::reliable
                                                                                            : Reliability::best_effort;
      endpoint.durability = info.m_qos.m_durability.kind == dds::VOLATILE_DURABILITY_QOS ? Durability::volatile_
                                                                                         : Durability::transient_local;
      const auto& data = info.m_qos.m_userData.data_vec();
      endpoint.user_data.assign(data.begin(), data.end());
      if (read_announcement(endpoint.user_data).fingerprint.empty()) return;
      if (ours_.size() >= most_remembered) ours_.clear();
      ours_.insert(prefix_of(guid));
    } catch (...) {
      return;
    }
  }
  void on_publisher_discovery(dds::DomainParticipant* self, rtps::WriterDiscoveryInfo&& info) override {
    const bool gone = info.status == rtps::WriterDiscoveryInfo::REMOVED_WRITER;
    note(self, info.info, gone, true);
    if (!gone) return;
    const Guid guid = guid_of(info.info.guid());
    const std::lock_guard lock(watchers_mutex_);
    for (const auto& [number, left] : watchers_) left(guid);
  }
  void on_subscriber_discovery(dds::DomainParticipant* self, rtps::ReaderDiscoveryInfo&& info) override {
    note(self, info.info, info.status == rtps::ReaderDiscoveryInfo::REMOVED_READER, false);
  }

  std::mutex mutex_;
  std::map<Guid, Participant> participants_;
  std::map<Guid, Endpoint> endpoints_;
  std::set<std::array<std::byte, 12>> ours_;  ///< participants, including former ones
  std::mutex watchers_mutex_;
  std::map<std::uint64_t, std::function<void(const Guid&)>> watchers_;
};

/// A participant's number in its process, which determines its ports: the lowest free number. Fast DDS itself never
/// reuses numbers: they would grow beyond the ports that peers try, and finally beyond 65535, where it ends the
/// process.
class Number {
 public:
  Number() {
    const std::lock_guard lock(mutex());
    while (taken().contains(value_)) ++value_;
    taken().insert(value_);
  }
  ~Number() {
    const std::lock_guard lock(mutex());
    if (!foreign_) taken().erase(value_);
  }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  unsigned value() const { return value_; }
  /// Another user of Fast DDS in this process has this number.
  void is_foreign() { foreign_ = true; }

 private:
  static std::mutex& mutex() {
    static std::mutex* const one = new std::mutex;
    return *one;
  }
  static std::set<unsigned>& taken() {
    static auto* const one = new std::set<unsigned>;
    return *one;
  }
  unsigned value_ = 0;
  bool foreign_ = false;
};

class FastParticipant final : public ParticipantPort {
 public:
  static Result<std::unique_ptr<ParticipantPort>> open(const Profile& profile, int tries = 0) {
    std::unique_ptr<FastParticipant> made(new FastParticipant);
    made->number_ = std::make_unique<Number>();
    auto plan = plan_participant(profile, made->number_->value());
    if (!plan) return plan.error();
    made->port_ = plan->port;
    made->hashed_keys_ = profile.security.has_value();
    made->spin_s_ = profile.spin_s;
    made->factory_ = dds::DomainParticipantFactory::get_shared_instance();
    (void)last_words();
    std::string thrown;
    const auto create = [&] {
      try {
        made->participant_ =
            made->factory_->create_participant(profile.domain, plan->qos, &made->directory_, dds::StatusMask::none());
      } catch (...) {
        thrown = text_of_exception();
      }
    };
    if (plan->folder.empty()) create();
    else in_folder(plan->folder, create, thrown);
    if (!made->participant_) {
      std::string said = last_words();
      if (said.find("same ID") != std::string::npos && tries < 100) {
        made->number_->is_foreign();
        return open(profile, tries + 1);
      }
      if (!thrown.empty()) said += (said.empty() ? "" : "; ") + thrown;
      return Error{"bus.open",
                   "Fast DDS did not open a participant in domain " + std::to_string(profile.domain) +
                       (said.empty() ? "" : ": " + said),
                   profile.security ? "look at the six files of <security>; 'sonde bus keys' makes them"
                                    : "'sonde doctor' looks at the machine"};
    }
    take_joined_groups_only();
    if (plan->group_port) made->group_ = std::make_unique<GroupLock>(plan->group_port);
    return std::unique_ptr<ParticipantPort>(std::move(made));
  }

  ~FastParticipant() override {
    if (!participant_) return;
    try {
      participant_->delete_contained_entities();
      factory_->delete_participant(participant_);
    } catch (...) {
      return;
    }
  }

  Guid guid() const override { return guid_of(participant_->guid()); }
  std::uint16_t port() const override { return port_; }
  std::vector<Participant> peers() override { return directory_.peers(); }
  std::vector<Endpoint> endpoints() override { return directory_.endpoints(); }

  Result<std::unique_ptr<WriterPort>> writer(const std::string& topic, const TypePtr& type, const Qos& qos) override {
    try {
      auto plan = plan_writer(qos, has_key(*type));
      if (!plan) return plan.error();
      auto held = hold(topic, type);
      if (!held) return held.error();
      auto made = Writer::make(*participant_, **held, *plan, known(), [this, topic] { release(topic); });
      if (!made) return made.error();
      return std::unique_ptr<WriterPort>(std::move(*made));
    } catch (...) {
      return Error{"bus.open", "a writer of the topic " + topic + " could not be made: " + text_of_exception(), {}};
    }
  }

  Result<std::unique_ptr<ReaderPort>> reader(const std::string& topic, const TypePtr& type, const Qos& qos) override {
    try {
      auto plan = plan_reader(qos, has_key(*type));
      if (!plan) return plan.error();
      auto held = hold(topic, type);
      if (!held) return held.error();
      const std::uint64_t number = readers_++;
      auto made =
          Reader::make(*participant_, **held, type, hashed_keys_, *plan, known(), sound(), [this, topic, number] {
            directory_.unwatch(number);
            release(topic);
          });
      if (!made) return made.error();
      directory_.watch(number, [reader = made->get()](const Guid& guid) { reader->writer_left(guid); });
      return std::unique_ptr<ReaderPort>(std::move(*made));
    } catch (...) {
      return Error{"bus.open", "a reader of the topic " + topic + " could not be made: " + text_of_exception(), {}};
    }
  }

  Result<std::unique_ptr<WaiterPort>> waiter() override {
    return std::unique_ptr<WaiterPort>(std::make_unique<Waiter>(*participant_, spin_s_));
  }

 private:
  struct Held {
    dds::Topic* topic = nullptr;
    TypePtr type;
    std::size_t users = 0;
  };
  struct HeldType {
    TypePtr type;
    std::size_t topics = 0;
  };

  FastParticipant() = default;

  /// Whether an endpoint is known. Discovery does not report endpoints of this participant itself.
  Matches::Known known() {
    return [this](const Guid& guid) {
      return std::memcmp(guid.bytes.data(), guid_of(participant_->guid()).bytes.data(), 12) == 0 ||
             directory_.knows(guid);
    };
  }

  /// Fast DDS sends key hashes with disposals, and so does Sonde.
  Matches::Known sound() {
    constexpr std::array vendor{std::byte{1}, std::byte{15}};
    return [this, vendor](const Guid& guid) {
      return std::equal(vendor.begin(), vendor.end(), guid.bytes.begin()) ||
             std::memcmp(guid.bytes.data(), guid_of(participant_->guid()).bytes.data(), 12) == 0 ||
             directory_.is_ours(guid);
    };
  }

  /// Fast DDS writes a server's files to the working folder. A thread can have its own working folder, which the
  /// threads that it starts share.
  template <typename Create>
  static void in_folder(const std::string& folder, const Create& create, std::string& failed) {
    std::thread([&] {
      if (unshare(CLONE_FS) != 0 || chdir(folder.c_str()) != 0)
        failed = "the backup folder " + folder + ": " + std::strerror(errno);
      else create();
    }).join();
  }

  /// Fast DDS has only one topic and one type of each name.
  Result<dds::Topic*> hold(const std::string& name, const TypePtr& type) {
    const std::lock_guard lock(mutex_);
    const auto other = [&](const std::string& what) {
      return Error{"bus.open", what + " is another structure in this participant already",
                   "fastdds 2 has one of a name in each participant: open a second Bus for the other"};
    };
    if (const auto at = topics_.find(name); at != topics_.end()) {
      if (!equal(*at->second.type, *type)) return other("the type " + type->name + " of the topic " + name);
      ++at->second.users;
      return at->second.topic;
    }
    HeldType& held = types_[type->name];
    if (held.topics && !equal(*held.type, *type)) return other("the type " + type->name);
    if (!held.topics) {
      dds::TypeSupport support(new PayloadType(type));
      if (support.register_type(participant_) != Code::RETCODE_OK) {
        types_.erase(type->name);
        return Error{"bus.open", "Fast DDS did not take the type " + type->name + ": " + last_words(), {}};
      }
      held.type = type;
    }
    dds::Topic* const topic =
        participant_->create_topic(name, type->name, dds::TOPIC_QOS_DEFAULT, nullptr, dds::StatusMask::none());
    if (!topic) {
      if (!held.topics) forget_type(type->name);
      return Error{"bus.open", "Fast DDS did not take the topic " + name + ": " + last_words(), {}};
    }
    ++held.topics;
    topics_[name] = {topic, type, 1};
    return topic;
  }

  void release(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto at = topics_.find(name);
    if (at == topics_.end() || --at->second.users) return;
    participant_->delete_topic(at->second.topic);
    const std::string type = at->second.type->name;
    topics_.erase(at);
    if (--types_[type].topics == 0) forget_type(type);
  }

  void forget_type(const std::string& name) {
    participant_->unregister_type(name);
    types_.erase(name);
  }

  std::unique_ptr<Number> number_;
  std::unique_ptr<GroupLock> group_;  ///< for shared memory; destroyed last
  std::shared_ptr<dds::DomainParticipantFactory> factory_;
  Directory directory_;
  std::atomic<std::uint64_t> readers_{0};  ///< readers opened so far
  dds::DomainParticipant* participant_ = nullptr;
  std::uint16_t port_ = 0;
  bool hashed_keys_ = false;
  double spin_s_ = -1;
  std::mutex mutex_;
  std::map<std::string, Held> topics_;
  std::map<std::string, HeldType> types_;
};

/// Sets up the whole process, before its first participant.
void settle() {
  static const bool once = [] {
    keep_words();
    dds::DomainParticipantFactory::get_shared_instance()
        ->load_profiles();  // loaded now, so that they do not overwrite the following settings
    // Inside a process the same as between processes, so that measurements and tests are valid for both.
    eprosima::fastrtps::LibrarySettingsAttributes settings;
    settings.intraprocess_delivery = eprosima::fastrtps::INTRAPROCESS_OFF;
    eprosima::fastrtps::xmlparser::XMLProfileManager::library_settings(settings);
    return true;
  }();
  (void)once;
}

}  // namespace

Result<std::unique_ptr<ParticipantPort>> open_participant(const Profile& profile) {
  // Fast DDS would turn every simple participant into a client, whatever the profile says.
  if (const char* servers = std::getenv("ROS_DISCOVERY_SERVER");
      servers && *servers && profile.discovery.kind != DiscoveryKind::server)
    return Error{"bus.open",
                 std::string("ROS_DISCOVERY_SERVER=") + servers +
                     " turns Fast DDS' simple discovery into a client of that server",
                 "unset it, or say <discovery kind=\"server\" servers=\"…\"/>"};
  settle();
  if (profile.transport.kind == TransportKind::shared_memory) clean();
  return FastParticipant::open(profile);
}

}  // namespace sonde::bus::fastdds
