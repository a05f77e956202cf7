#pragma once
/// Samples for Fast DDS: payloads that pass it unchanged, and their keys.

#include <cstddef>
#include <cstdint>
#include <fastdds/dds/topic/TopicDataType.hpp>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "bus/cdr.hpp"
#include "bus/types.hpp"

namespace sonde::bus::fastdds {

/// The "data" of TopicDataType. In a writer: two views. In a reader: its own copy, reused. In Fast DDS itself, which
/// only computes a key: a view.
struct Sample {
  Bytes payload, key;
  std::vector<std::byte> held;
  bool holds = false;
};

/// One for each type of a participant; Fast DDS deletes it. Any-thread.
class PayloadType final : public eprosima::fastdds::dds::TopicDataType {
 public:
  explicit PayloadType(TypePtr type);

  bool serialize(void* data, eprosima::fastrtps::rtps::SerializedPayload_t* payload) override;
  bool deserialize(eprosima::fastrtps::rtps::SerializedPayload_t* payload, void* data) override;
  std::function<std::uint32_t()> getSerializedSizeProvider(void* data) override;
  void* createData() override;
  void deleteData(void* data) override;
  bool getKey(void* data, eprosima::fastrtps::rtps::InstanceHandle_t* handle, bool force_md5) override;

  const TypePtr& type() const { return type_; }

 private:
  TypePtr type_;
  Checker checker_;
  bool hashes_ = false;  ///< the key can be longer than an instance handle
};

/// Maps the handle of a disposed instance to its key fields: the handle itself, or, if that is a hash, the key seen
/// with this handle. Owner-thread.
class Keys {
 public:
  /// `hashed`: handles are hashes for any key length, as with security.
  Keys(TypePtr type, bool hashed);
  void saw(const eprosima::fastrtps::rtps::InstanceHandle_t& handle, Bytes payload);
  /// Empty: the hash of an unknown key. Handles of disposals from other implementations than Fast DDS and Sonde are not
  /// `sound`: if a disposal contains only the key, in at most 16 bytes, Fast DDS creates the handle from the payload
  /// including its encapsulation; and Cyclone DDS does not hash short keys.
  std::vector<std::byte> payload_of(const eprosima::fastrtps::rtps::InstanceHandle_t& handle, bool sound) const;

 private:
  TypePtr type_;
  std::optional<Checker> checker_;  ///< if keys are hashed
  bool may_be_short_ = true;
  std::map<eprosima::fastrtps::rtps::InstanceHandle_t, std::vector<std::byte>> seen_;
};

}  // namespace sonde::bus::fastdds
