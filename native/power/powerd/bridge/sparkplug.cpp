#include "power/powerd/bridge/sparkplug.hpp"

#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <variant>

#include "power/powerd/bridge/json.hpp"
#include "power/powerd/bridge/naming.hpp"
#include "power/powerd/bridge/walk.hpp"

namespace sonde::power::bridge {

namespace {

// Field numbers of sparkplug_b.proto, and data types of the specification, section 6.4.16.
namespace field {
constexpr std::uint32_t timestamp = 1, metrics = 2, seq = 3;                     // Payload
constexpr std::uint32_t name = 1, alias = 2, at = 3, datatype = 4, is_null = 7;  // Metric
constexpr std::uint32_t int_value = 10, long_value = 11, float_value = 12, double_value = 13, boolean_value = 14,
                        string_value = 15;
}  // namespace field
namespace datatype {
constexpr std::uint32_t int8 = 1, int16 = 2, int32 = 3, int64 = 4, uint8 = 5, uint16 = 6, uint32 = 7, uint64 = 8,
                        float32 = 9, float64 = 10, boolean = 11, string = 12;
}  // namespace datatype
constexpr std::size_t most_metrics = 1u << 20;  ///< of all devices that are alive
constexpr std::string_view rebirth = "Node Control/Rebirth";
constexpr std::uint64_t rebirth_alias = 0;

void varint(std::uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void number(std::uint32_t field, std::uint64_t value, std::string& out) {
  varint(field << 3, out);
  varint(value, out);
}
void bytes(std::uint32_t field, std::string_view value, std::string& out) {
  varint(field << 3 | 2, out);
  varint(value.size(), out);
  out += value;
}
template <typename T> void fixed(std::uint32_t field, T value, std::string& out) {
  static_assert(std::endian::native == std::endian::little);
  varint(field << 3 | (sizeof(T) == 8 ? 1 : 5), out);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::uint32_t datatype_of(bus::Kind kind) {
  using bus::Kind;
  switch (kind) {
    case Kind::boolean: return datatype::boolean;
    case Kind::int8: return datatype::int8;
    case Kind::int16: return datatype::int16;
    case Kind::int32: return datatype::int32;
    case Kind::int64: return datatype::int64;
    case Kind::octet:
    case Kind::uint8:
    case Kind::char8: return datatype::uint8;
    case Kind::uint16: return datatype::uint16;
    case Kind::uint32: return datatype::uint32;
    case Kind::uint64: return datatype::uint64;
    case Kind::float32: return datatype::float32;
    case Kind::float64: return datatype::float64;
    default: return datatype::string;
  }
}

/// Appends the value's field. Signed numbers are two's complement: up to 32 bits in int_value, 64 bits in long_value.
void put(bus::Kind kind, const Leaf& leaf, std::string& out) {
  if (const auto* flag = std::get_if<bool>(&leaf)) return number(field::boolean_value, *flag, out);
  if (const auto* text = std::get_if<std::string_view>(&leaf)) {
    if (first_bad_utf8(*text) == text->npos) return bytes(field::string_value, *text, out);
    std::string mended;  // a reader may refuse the whole message because of one protobuf string that is not UTF-8
    append_utf8(*text, mended);
    return bytes(field::string_value, mended, out);
  }
  if (const auto* real = std::get_if<double>(&leaf)) {
    if (!std::isfinite(*real)) return number(field::is_null, 1, out);
    if (kind == bus::Kind::float32) return fixed(field::float_value, static_cast<float>(*real), out);
    return fixed(field::double_value, *real, out);
  }
  const std::uint64_t value = std::holds_alternative<std::int64_t>(leaf)
                                  ? static_cast<std::uint64_t>(std::get<std::int64_t>(leaf))
                                  : std::get<std::uint64_t>(leaf);
  if (kind == bus::Kind::int64 || kind == bus::Kind::uint64) return number(field::long_value, value, out);
  number(field::int_value, value & 0xffffffff, out);
}

/// Reads the fields of a message from an untrusted sender.
struct Fields {
  std::string_view text = {};
  std::size_t at = 0;
  std::uint32_t field = 0, kind = 0;
  std::uint64_t value = 0;
  std::string_view bytes = {};

  bool varint(std::uint64_t& out) {
    out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at >= text.size()) return false;
      const auto byte = static_cast<unsigned char>(text[at++]);
      out |= std::uint64_t{byte & 0x7fu} << shift;
      if (!(byte & 0x80)) return true;
    }
    return false;
  }
  bool next() {
    std::uint64_t tag = 0;
    if (at >= text.size() || !varint(tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff) return false;
    field = static_cast<std::uint32_t>(tag >> 3);
    kind = tag & 7;
    if (kind == 0) return varint(value);
    std::uint64_t n = kind == 1 ? 8 : kind == 5 ? 4 : 0;
    if (kind == 2) {
      if (!varint(n)) return false;
    } else if (kind != 1 && kind != 5) {
      return false;
    }
    if (n > text.size() - at) return false;
    bytes = text.substr(at, n);
    at += n;
    return true;
  }
};

}  // namespace

Sparkplug::Sparkplug(std::string group, std::string node) {
  append_tag(group, group_);
  append_tag(node, node_);
  devices_[""];
}

std::string Sparkplug::topic(std::string_view kind, std::string_view device) const {
  std::string out = "spBv1.0/" + group_ + "/" + std::string(kind) + "/" + node_;
  if (!device.empty()) out.append("/").append(device);
  return out;
}

std::string Sparkplug::death_topic() const { return topic("NDEATH", ""); }
std::string Sparkplug::command_filter() const { return topic("NCMD", ""); }

std::string Sparkplug::death(std::uint64_t bd_seq, std::int64_t now_ms) const {
  std::string payload, metric;
  number(field::timestamp, static_cast<std::uint64_t>(now_ms), payload);
  bytes(field::name, "bdSeq", metric);
  number(field::at, static_cast<std::uint64_t>(now_ms), metric);
  number(field::datatype, datatype::int64, metric);
  number(field::long_value, bd_seq, metric);
  bytes(field::metrics, metric, payload);
  return payload;
}

void Sparkplug::finish(std::string& payload) { number(field::seq, seq_++, payload); }

void Sparkplug::node_birth(std::int64_t now_ms, const Send& send) {
  seq_ = 0;
  std::string payload = death(bd_seq_, now_ms), metric;
  bytes(field::name, rebirth, metric);
  number(field::alias, rebirth_alias, metric);
  number(field::at, static_cast<std::uint64_t>(now_ms), metric);
  number(field::datatype, datatype::boolean, metric);
  number(field::boolean_value, 0, metric);
  bytes(field::metrics, metric, payload);
  auto& node = devices_[""];
  for (const auto& [name, m] : node.metrics) {
    metric.clear();
    bytes(field::name, name, metric);
    number(field::alias, m.alias, metric);
    number(field::at, static_cast<std::uint64_t>(now_ms), metric);
    number(field::datatype, m.datatype, metric);
    metric += m.body;
    bytes(field::metrics, metric, payload);
  }
  finish(payload);
  node.born = true;
  send(Kind::birth, topic("NBIRTH", ""), payload);
}

void Sparkplug::device_birth(const std::string& name, Device& device, std::int64_t now_ms, const Send& send) {
  std::string payload, metric;
  number(field::timestamp, static_cast<std::uint64_t>(now_ms), payload);
  for (const auto& [called, m] : device.metrics) {
    metric.clear();
    bytes(field::name, called, metric);
    number(field::alias, m.alias, metric);
    number(field::at, static_cast<std::uint64_t>(now_ms), metric);
    number(field::datatype, m.datatype, metric);
    metric += m.body;
    bytes(field::metrics, metric, payload);
  }
  finish(payload);
  device.born = true;
  send(Kind::birth, topic("DBIRTH", name), payload);
}

void Sparkplug::birth(std::uint64_t bd_seq, std::int64_t now_ms, const Send& send) {
  bd_seq_ = bd_seq;
  node_birth(now_ms, send);
  for (auto& [name, device] : devices_)
    if (!name.empty() && device.born) device_birth(name, device, now_ms, send);
}

std::string Sparkplug::device_of(const bus::Type& type, bus::Bytes payload) {
  std::string name;
  for_each_key(type, payload, [&](std::string_view, bus::Kind, const Leaf& leaf) {
    if (!name.empty()) name += '.';
    if (const auto* text = std::get_if<std::string_view>(&leaf)) append_tag(*text, name);
    else
      std::visit(
          [&](const auto& is) {
            if constexpr (!std::same_as<std::remove_cvref_t<decltype(is)>, std::string_view>)
              name += std::to_string(is);
          },
          leaf);
  });
  return name;
}

void Sparkplug::data(std::string_view from, const bus::Type& type, bus::Bytes payload, std::int64_t at_ms,
                     const Send& send) {
  const std::string name = device_of(type, payload);
  Device& device = devices_[name];
  bool born = device.born;
  std::string out, metric, called(from);
  called += '/';
  const std::size_t before = called.size();
  number(field::timestamp, static_cast<std::uint64_t>(at_ms), out);
  for_each_leaf(type, payload, '/', [&](std::string_view path, bus::Kind kind, const Leaf& leaf) {
    called.resize(before);
    append_utf8(path, called);
    auto found = device.metrics.find(called);
    if (found == device.metrics.end()) {
      if (metrics_ >= most_metrics) {
        ++refused_;
        return;
      }
      ++metrics_;
      born = false;
      found = device.metrics.emplace(called, Metric{next_alias_++, datatype_of(kind), {}}).first;
    }
    Metric& m = found->second;
    m.body.clear();
    put(kind, leaf, m.body);
    metric.clear();
    number(field::alias, m.alias, metric);
    number(field::at, static_cast<std::uint64_t>(at_ms), metric);
    number(field::datatype, m.datatype, metric);
    metric += m.body;
    bytes(field::metrics, metric, out);
  });
  if (!born) {
    // A birth contains the values too. The node's birth replaces all earlier births, so those of its devices follow.
    if (name.empty()) return birth(bd_seq_, at_ms, send);
    return device_birth(name, device, at_ms, send);
  }
  finish(out);
  send(Kind::data, topic(name.empty() ? "NDATA" : "DDATA", name), out);
}

void Sparkplug::device_death(std::string_view name, std::int64_t now_ms, const Send& send) {
  const auto found = devices_.find(name);
  if (found == devices_.end() || !found->second.born || name.empty()) return;
  metrics_ -= found->second.metrics.size();
  devices_.erase(found);
  std::string payload;
  number(field::timestamp, static_cast<std::uint64_t>(now_ms), payload);
  finish(payload);
  send(Kind::death, topic("DDEATH", name), payload);
}

bool Sparkplug::asks_rebirth(std::string_view payload) const {
  Fields message;
  message.text = payload;
  while (message.next()) {
    if (message.field != field::metrics || message.kind != 2) continue;
    Fields metric;
    metric.text = message.bytes;
    bool meant = false, yes = false;
    while (metric.next()) {
      if (metric.field == field::name && metric.kind == 2) meant = metric.bytes == rebirth;
      if (metric.field == field::alias && metric.kind == 0 && metric.value == rebirth_alias) meant = true;
      if (metric.field == field::boolean_value && metric.kind == 0) yes = metric.value != 0;
    }
    if (meant && yes) return true;
  }
  return false;
}

}  // namespace sonde::power::bridge
