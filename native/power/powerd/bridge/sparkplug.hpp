#pragma once
/// Sparkplug B 3.0 (Eclipse): the few fields of its protobuf payload, and the state of an edge node with its devices.
/// Owner-thread.
///
///   spBv1.0/GROUP/NBIRTH/NODE           the bridge, on each connection; NDEATH is its last will
///   spBv1.0/GROUP/DBIRTH/NODE/DEVICE    what a device measures: names, aliases, types, values. DEVICE is the sample's
///                                       key
///   spBv1.0/GROUP/DDATA/NODE/DEVICE     aliases and values; NDATA of samples without a key
///   spBv1.0/GROUP/NCMD/NODE             only "Node Control/Rebirth" is obeyed

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bus/types.hpp"

namespace sonde::power::bridge {

class Sparkplug {
 public:
  enum class Kind : std::uint8_t { birth, data, death };
  using Send = std::function<void(Kind kind, std::string_view topic, std::string_view payload)>;

  Sparkplug(std::string group, std::string node);

  /// For the connection that is about to be made: `bd_seq` ties the death to the birth. 0 … 255.
  std::string death_topic() const;
  std::string death(std::uint64_t bd_seq, std::int64_t now_ms) const;
  std::string command_filter() const;

  /// On a new connection, and on the request of an application: sends the node's birth, then those of all devices.
  void birth(std::uint64_t bd_seq, std::int64_t now_ms, const Send& send);
  /// Sends a sample as DDATA; before it the birth, if the sample has a device or metrics without one. Metrics have
  /// names like TOPIC/FIELD….
  void data(std::string_view topic, const bus::Type& type, bus::Bytes payload, std::int64_t at_ms, const Send& send);
  /// The name of a sample's device: its key. Empty: the sample has no key.
  static std::string device_of(const bus::Type& type, bus::Bytes payload);
  /// The device is gone: its liveliness was lost, or it was disposed. Its metrics are forgotten, so that a device that
  /// returns gets a new birth.
  void device_death(std::string_view device, std::int64_t now_ms, const Send& send);
  /// Whether an NCMD's payload asks for a rebirth; false for any other content, also for invalid protobuf.
  bool asks_rebirth(std::string_view payload) const;
  std::size_t devices() const { return devices_.size(); }
  std::uint64_t refused() const { return refused_; }  ///< metrics beyond the bound

 private:
  struct Metric {
    std::uint64_t alias = 0;
    std::uint32_t datatype = 0;
    std::string body;  ///< the last protobuf field of the value
  };
  struct Device {
    bool born = false;
    std::map<std::string, Metric, std::less<>> metrics;
  };

  std::string topic(std::string_view kind, std::string_view device) const;
  void device_birth(const std::string& name, Device& device, std::int64_t now_ms, const Send& send);
  void node_birth(std::int64_t now_ms, const Send& send);
  void finish(std::string& payload);

  std::string group_, node_;
  std::map<std::string, Device, std::less<>> devices_;  ///< "" is the node itself
  std::size_t metrics_ = 0;                             ///< of all devices
  std::uint64_t next_alias_ = 1, bd_seq_ = 0, refused_ = 0;
  std::uint8_t seq_ = 0;
};

}  // namespace sonde::power::bridge
