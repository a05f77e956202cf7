// What Fast DDS does without the bus above it: a ping-pong and a stream over a type written as fastddsgen writes them,
// with the same QoS, transport and waiting as the bus' (reliable, keep-all; a thread in a waitset, never a listener
// that answers). `make bench-bus` runs it beside sonde-busprobe.
//
// raw_fastdds udp4|shared_memory ping|pong|flood|drain DOMAIN BYTES COUNT|SECONDS
// One line of JSON.
#include <fastcdr/Cdr.h>
#include <fastdds/rtps/transport/UDPv4TransportDescriptor.h>
#include <fastdds/rtps/transport/shared_mem/SharedMemTransportDescriptor.h>
#include <time.h>
#include <unistd.h>
#include <fastdds/dds/core/condition/StatusCondition.hpp>
#include <fastdds/dds/core/condition/WaitSet.hpp>
#include <fastdds/dds/domain/DomainParticipant.hpp>
#include <fastdds/dds/domain/DomainParticipantFactory.hpp>
#include <fastdds/dds/log/Log.hpp>
#include <fastdds/dds/publisher/DataWriter.hpp>
#include <fastdds/dds/publisher/Publisher.hpp>
#include <fastdds/dds/subscriber/DataReader.hpp>
#include <fastdds/dds/subscriber/SampleInfo.hpp>
#include <fastdds/dds/subscriber/Subscriber.hpp>
#include <fastdds/dds/topic/Topic.hpp>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <fastdds/dds/topic/TypeSupport.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

using namespace eprosima::fastdds::dds;
namespace rtps = eprosima::fastrtps::rtps;
using Code = eprosima::fastrtps::types::ReturnCode_t;

namespace {

std::int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000ll + t.tv_nsec;
}

void must(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "raw_fastdds: %s\n", what);
  _exit(1);
}

struct Blob {
  std::uint64_t n = 0;
  std::vector<std::uint8_t> data;
};

class BlobType final : public TopicDataType {
 public:
  explicit BlobType(std::uint32_t most) {
    setName("raw::Blob");
    m_typeSize = 4 + 12 + most;
    m_isGetKeyDefined = false;
    auto_fill_type_object(false);
    auto_fill_type_information(false);
  }
  bool serialize(void* data, rtps::SerializedPayload_t* payload) override {
    const auto& blob = *static_cast<const Blob*>(data);
    eprosima::fastcdr::FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->max_size);
    eprosima::fastcdr::Cdr cdr(buffer, eprosima::fastcdr::Cdr::DEFAULT_ENDIAN, eprosima::fastcdr::Cdr::DDS_CDR);
    payload->encapsulation = cdr.endianness() == eprosima::fastcdr::Cdr::BIG_ENDIANNESS ? CDR_BE : CDR_LE;
    cdr.serialize_encapsulation();
    cdr << blob.n << blob.data;
    payload->length = static_cast<std::uint32_t>(cdr.getSerializedDataLength());
    return true;
  }
  bool deserialize(rtps::SerializedPayload_t* payload, void* data) override {
    auto& blob = *static_cast<Blob*>(data);
    eprosima::fastcdr::FastBuffer buffer(reinterpret_cast<char*>(payload->data), payload->length);
    eprosima::fastcdr::Cdr cdr(buffer, eprosima::fastcdr::Cdr::DEFAULT_ENDIAN, eprosima::fastcdr::Cdr::DDS_CDR);
    cdr.read_encapsulation();
    payload->encapsulation = cdr.endianness() == eprosima::fastcdr::Cdr::BIG_ENDIANNESS ? CDR_BE : CDR_LE;
    cdr >> blob.n >> blob.data;
    return true;
  }
  std::function<std::uint32_t()> getSerializedSizeProvider(void* data) override {
    return [data] { return static_cast<std::uint32_t>(4 + 12 + static_cast<const Blob*>(data)->data.size()); };
  }
  void* createData() override { return new Blob; }
  void deleteData(void* data) override { delete static_cast<Blob*>(data); }
  bool getKey(void*, rtps::InstanceHandle_t*, bool) override { return false; }
};

template <typename Qos> void set(Qos& qos) {
  qos.reliability().kind = RELIABLE_RELIABILITY_QOS;
  qos.history().kind = KEEP_ALL_HISTORY_QOS;
  qos.durability().kind = VOLATILE_DURABILITY_QOS;
  qos.resource_limits().max_samples = qos.resource_limits().max_samples_per_instance = 5000;
  qos.endpoint().history_memory_policy = rtps::PREALLOCATED_WITH_REALLOC_MEMORY_MODE;
  qos.data_sharing().off();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: raw_fastdds udp4|shared_memory ping|pong|flood|drain DOMAIN BYTES COUNT|SECONDS\n");
    return 2;
  }
  const std::string transport = argv[1], mode = argv[2];
  const auto bytes = static_cast<std::uint32_t>(std::strtoul(argv[4], nullptr, 10));
  const double amount = std::strtod(argv[5], nullptr);
  Log::ClearConsumers();
  DomainParticipantQos participant_qos;
  participant_qos.transport().use_builtin_transports = false;
  if (transport == "udp4") {
    auto udp = std::make_shared<eprosima::fastdds::rtps::UDPv4TransportDescriptor>();
    udp->interfaceWhiteList = {"127.0.0.1"};
    udp->receiveBufferSize = 4u << 20;
    participant_qos.transport().user_transports.push_back(udp);
  } else {
    auto shared = std::make_shared<eprosima::fastdds::rtps::SharedMemTransportDescriptor>();
    shared->segment_size(2u << 20);
    participant_qos.transport().user_transports.push_back(shared);
  }
  const auto factory = DomainParticipantFactory::get_shared_instance();
  DomainParticipant* const participant = factory->create_participant(
      static_cast<DomainId_t>(std::strtoul(argv[3], nullptr, 10)), participant_qos, nullptr, StatusMask::none());
  must(participant, "participant");
  TypeSupport type(new BlobType(bytes));
  must(type.register_type(participant) == Code::RETCODE_OK, "type");
  const char* out = mode == "ping" ? "ping" : mode == "pong" ? "pong" : mode == "flood" ? "flood" : nullptr;
  const char* in = mode == "ping" ? "pong" : mode == "pong" ? "ping" : mode == "flood" ? nullptr : "flood";
  DataWriter* writer = nullptr;
  DataReader* reader = nullptr;
  WaitSet waitset;
  if (out) {
    DataWriterQos qos;
    set(qos);
    qos.reliability().max_blocking_time = {1, 0};
    qos.reliable_writer_qos().times.heartbeatPeriod = {0, 100'000'000};
    writer = participant->create_publisher(PUBLISHER_QOS_DEFAULT)
                 ->create_datawriter(participant->create_topic(out, "raw::Blob", TOPIC_QOS_DEFAULT), qos);
    must(writer, "writer");
  }
  if (in) {
    DataReaderQos qos;
    set(qos);
    reader = participant->create_subscriber(SUBSCRIBER_QOS_DEFAULT)
                 ->create_datareader(participant->create_topic(in, "raw::Blob", TOPIC_QOS_DEFAULT), qos);
    must(reader, "reader");
    reader->get_statuscondition().set_enabled_statuses(StatusMask::data_available());
    waitset.attach_condition(reader->get_statuscondition());
  }
  for (const std::int64_t until = now_ns() + 10'000'000'000;;) {
    PublicationMatchedStatus p;
    SubscriptionMatchedStatus s;
    if (writer) writer->get_publication_matched_status(p);
    if (reader) reader->get_subscription_matched_status(s);
    if ((!writer || p.current_count) && (!reader || s.current_count)) break;
    must(now_ns() < until, "no match within 10 s");
    usleep(5000);
  }
  Blob sample, taken;
  sample.data.resize(bytes);
  SampleInfo info;
  ConditionSeq active;

  if (mode == "ping") {
    const auto count = static_cast<std::size_t>(amount);
    std::vector<double> us(count);
    for (std::size_t k = 0; k < count; ++k) {
      const std::int64_t begin = now_ns();
      sample.n = k;
      must(writer->write(&sample), "write");
      for (bool got = false; !got;) {
        must(waitset.wait(active, {3, 0}) == Code::RETCODE_OK, "a reply was lost");
        while (reader->take_next_sample(&taken, &info) == Code::RETCODE_OK) got |= info.valid_data;
      }
      us[k] = static_cast<double>(now_ns() - begin) / 1e3;
    }
    std::sort(us.begin(), us.end());
    std::printf("{\"bytes\": %u, \"n\": %zu, \"rtt_us\": {\"min\": %.3f, \"median\": %.3f, \"p99\": %.3f}}\n", bytes,
                count, us[0], us[count / 2], us[count * 99 / 100]);
  } else if (mode == "pong") {
    while (waitset.wait(active, {3, 0}) == Code::RETCODE_OK)
      while (reader->take_next_sample(&taken, &info) == Code::RETCODE_OK)
        if (info.valid_data) must(writer->write(&taken), "write");
  } else if (mode == "flood") {
    const std::uint64_t per_look = bytes < 256 ? 10 : 1;
    const std::int64_t begin = now_ns();
    while (sample.n % per_look || static_cast<double>(now_ns() - begin) < amount * 1e9) {
      // Refused at once where an acknowledgement made so much place that Fast DDS finds nothing left to remove.
      for (std::int64_t until = 0; !writer->write(&sample);) {
        if (!until) until = now_ns() + 1'000'000'000;
        must(now_ns() < until, "write");
      }
      ++sample.n;
    }
    writer->wait_for_acknowledgments({5, 0});
    const double s = static_cast<double>(now_ns() - begin) / 1e9;
    std::printf("{\"bytes\": %u, \"sent\": %llu, \"per_s\": %.0f, \"MB_per_s\": %.1f}\n", bytes,
                static_cast<unsigned long long>(sample.n), static_cast<double>(sample.n) / s,
                static_cast<double>(sample.n) * bytes / s / 1e6);
    usleep(300'000);
  } else {
    std::uint64_t got = 0, lost = 0, next = 0;
    std::int64_t first = 0, last = 0;
    while (waitset.wait(active, {got ? 1 : 15, 0}) == Code::RETCODE_OK) {
      const std::uint64_t before = got;
      while (reader->take_next_sample(&taken, &info) == Code::RETCODE_OK) {
        if (!info.valid_data) continue;
        if (got) lost += taken.n - next;
        next = taken.n + 1;
        if (!got++) first = now_ns();
      }
      if (got > before) last = now_ns();
    }
    const double s = static_cast<double>(last - first) / 1e9;
    std::printf("{\"bytes\": %u, \"got\": %llu, \"lost\": %llu, \"per_s\": %.0f, \"MB_per_s\": %.1f}\n", bytes,
                static_cast<unsigned long long>(got), static_cast<unsigned long long>(lost),
                s > 0 ? static_cast<double>(got) / s : 0, s > 0 ? static_cast<double>(got) * bytes / s / 1e6 : 0);
  }
  participant->delete_contained_entities();
  factory->delete_participant(participant);
  return 0;
}
