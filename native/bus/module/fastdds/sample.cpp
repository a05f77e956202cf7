#include "bus/module/fastdds/sample.hpp"

#include <fastrtps/utils/md5.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace sonde::bus::fastdds {

using eprosima::fastrtps::rtps::InstanceHandle_t;
using eprosima::fastrtps::rtps::SerializedPayload_t;

namespace {

constexpr std::size_t handle_bytes = 16;
constexpr unsigned char unknown_byte = 0xff;      ///< byte of the handle of samples with an unknown key
constexpr std::uint32_t first_bytes = 128;        ///< initial size of a history's payloads, which grow as needed
constexpr std::size_t most_remembered = 1 << 16;  ///< the most stored keys of a reader whose keys are hashed

void set_handle(InstanceHandle_t& handle, Bytes key, bool hash) {
  if (hash) {
    MD5 md5;
    md5.init();
    md5.update(reinterpret_cast<const unsigned char*>(key.data()), static_cast<unsigned>(key.size()));
    md5.finalize();
    for (std::size_t k = 0; k < handle_bytes; ++k) handle.value[k] = md5.digest[k];
    return;
  }
  for (std::size_t k = 0; k < handle_bytes; ++k)
    handle.value[k] = k < key.size() ? std::to_integer<unsigned char>(key[k]) : 0;
}

}  // namespace

PayloadType::PayloadType(TypePtr type) : type_(std::move(type)), checker_(type_) {
  setName(type_->name.c_str());
  m_typeSize = first_bytes;
  m_isGetKeyDefined = has_key(*type_);
  hashes_ = m_isGetKeyDefined && most_key_bytes(*type_) > handle_bytes;
  auto_fill_type_object(false);
  auto_fill_type_information(false);
}

bool PayloadType::serialize(void* data, SerializedPayload_t* payload) {
  const auto& sample = *static_cast<const Sample*>(data);
  if (sample.payload.size() > payload->max_size || sample.payload.size() < encapsulation_bytes) return false;
  std::memcpy(payload->data, sample.payload.data(), sample.payload.size());
  payload->length = static_cast<std::uint32_t>(sample.payload.size());
  payload->encapsulation = std::to_integer<std::uint16_t>(sample.payload[1]);
  return true;
}

bool PayloadType::deserialize(SerializedPayload_t* payload, void* data) {
  auto& sample = *static_cast<Sample*>(data);
  const Bytes bytes(reinterpret_cast<const std::byte*>(payload->data), payload->length);
  if (sample.holds) {
    sample.held.assign(bytes.begin(), bytes.end());
    sample.payload = sample.held;
  } else {
    sample.payload = bytes;
  }
  sample.key = {};
  return true;
}

std::function<std::uint32_t()> PayloadType::getSerializedSizeProvider(void* data) {
  const auto bytes = static_cast<std::uint32_t>(static_cast<const Sample*>(data)->payload.size());
  return [bytes] { return bytes; };
}

void* PayloadType::createData() { return new Sample; }
void PayloadType::deleteData(void* data) { delete static_cast<Sample*>(data); }

bool PayloadType::getKey(void* data, InstanceHandle_t* handle, bool force_md5) {
  if (!m_isGetKeyDefined) return false;
  const auto& sample = *static_cast<const Sample*>(data);
  if (!sample.key.empty()) {
    set_handle(*handle, sample.key, hashes_ || force_md5);
    return true;
  }
  if (!checker_.verify(sample.payload)) {
    // If they were dropped here, the fault would stay unknown: they get their own instance, and the reader reports it.
    for (std::size_t k = 0; k < handle_bytes; ++k) handle->value[k] = unknown_byte;
    return true;
  }
  set_handle(*handle, serialised_key(*type_, sample.payload), hashes_ || force_md5);
  return true;
}

Keys::Keys(TypePtr type, bool hashed) : type_(std::move(type)), may_be_short_(!hashed) {
  if (has_key(*type_) && (hashed || most_key_bytes(*type_) > handle_bytes)) checker_.emplace(type_);
}

void Keys::saw(const InstanceHandle_t& handle, Bytes payload) {
  if (!checker_ || seen_.contains(handle) || !checker_->verify(payload)) return;
  if (seen_.size() >= most_remembered) seen_.clear();
  seen_.emplace(handle, serialised_key(*type_, payload));
}

std::vector<std::byte> Keys::payload_of(const InstanceHandle_t& handle, bool sound) const {
  std::array<std::byte, handle_bytes> bytes;
  for (std::size_t k = 0; k < handle_bytes; ++k) bytes[k] = std::byte{handle.value[k]};
  if (std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{unknown_byte}; })) return {};
  if (!sound)
    if (auto payload = payload_of_key_alone(*type_, bytes); !payload.empty()) return payload;
  if (!checker_) return payload_of_key(*type_, bytes);
  if (const auto at = seen_.find(handle); at != seen_.end()) return payload_of_key(*type_, at->second);
  return may_be_short_ && !sound ? payload_of_key(*type_, bytes) : std::vector<std::byte>{};
}

}  // namespace sonde::bus::fastdds
