// Cyclone DDS and Fast DDS on one domain: what one of them writes or disposes of is the same instance for the other.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../claimed.hpp"
#include "bus/bus.hpp"
#include "bus/cdr.hpp"
#include "core/clock.hpp"
#include "there.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

bool both() { return there_is("cyclonedds") && there_is("fastdds"); }

Field key(const std::string& name, TypePtr type) { return {name, std::move(type), true, {}}; }
TypePtr of(const std::string& name, std::vector<Field> keys) {
  keys.push_back({"value", primitive(Kind::uint32), false, {}});
  return structure("across::" + name, std::move(keys));
}
TypePtr number(Kind kind) { return primitive(kind); }

/// Numbers that follow from `n` in each byte, texts of as many characters as `text`.
void put(const Type& type, std::uint32_t n, std::size_t text, CdrWriter& out) {
  switch (type.kind) {
    case Kind::octet: return out.put(static_cast<std::uint8_t>(n));
    case Kind::uint16: return out.put(static_cast<std::uint16_t>(n << 8 | (n + 1)));
    case Kind::uint32: return out.put(n << 24 | (n + 1));
    case Kind::uint64: return out.put(std::uint64_t{n} << 56 | (n + 1));
    case Kind::float64: return out.put(static_cast<double>(n) + 0.5);
    case Kind::string: return out.put(std::string(text, static_cast<char>('a' + n)));
    case Kind::structure:
      for (const Field& field : type.fields) put(*field.type, n, text, out);
      return;
    default: FAIL("no such kind here");
  }
}
std::vector<std::byte> sample(const Type& type, std::uint32_t n, std::size_t text) {
  std::vector<std::byte> out;
  CdrWriter writer(out);
  put(type, n, text, writer);
  return out;
}

struct Keys {
  TypePtr type;
  std::size_t text = 0;
};
/// Each way in which a key becomes a key hash: shorter than, as long as, longer than 16 bytes, with 8 bytes that are
/// aligned differently in XCDR versions 1 and 2, texts that are short by chance.
std::vector<Keys> all_keys() {
  const auto u8 = number(Kind::octet), u16 = number(Kind::uint16), u32 = number(Kind::uint32),
             u64 = number(Kind::uint64), f64 = number(Kind::float64);
  return {
      {of("Byte", {key("a", u8)})},
      {of("Number", {key("a", u32)})},
      {of("Long", {key("a", u64)})},
      {of("Twelve", {key("a", u32), key("b", u32), key("c", u32)})},
      {of("Padded", {key("a", u32), key("b", u64)})},
      {of("Byted", {key("a", u8), key("b", f64)})},
      {of("Between", {key("a", u32), key("b", u64), key("c", u32)})},
      {of("Behind", {key("a", u16), key("b", u32), key("c", u64)})},
      {of("Text", {key("a", string_type())}), 1},
      {of("Text", {key("a", string_type())}), 7},
      {of("Text", {key("a", string_type())}), 8},
      {of("Text", {key("a", string_type())}), 40},
      {of("Short", {key("a", string_type(7))}), 2},
      {of("Short", {key("a", string_type(7))}), 7},
      {of("Bounded", {key("a", string_type(11))}), 3},
      {of("Bounded", {key("a", string_type(11))}), 11},
      {of("Texted", {key("a", string_type(3)), key("b", u64)}), 3},
      {of("Nested",
          {key("a", structure("across::In", {{"x", u32, true, {}}, {"y", u64, false, {}}, {"z", u64, true, {}}}))})}};
}

Profile profile_of() {
  Profile profile;
  static const std::uint32_t domain = claimed::domain();
  profile.domain = domain;
  profile.participant = "across";
  return profile;
}
std::shared_ptr<Bus> open_bus(const char* name) {
  auto bus = Bus::open(profile_of(), name);
  REQUIRE_MESSAGE(bus, bus.error().what);
  return *bus;
}

struct Seen {
  SampleInfo info;
  std::vector<std::byte> key;
};

template <typename Done> bool soon(const Done& done, double seconds = 20) {
  const Deadline deadline = Deadline::in_s(seconds);
  while (!done()) {
    if (deadline.passed()) return false;
    sleep_until(now_s() + 2e-3);
  }
  return true;
}

}  // namespace

TEST_CASE("bus: instances are the same for Cyclone DDS and Fast DDS, and so is their end") {
  if (!both()) return;
  const auto cyclone = open_bus("cyclonedds"), fast = open_bus("fastdds");
  int round = 0;
  for (const auto& [from, to] : {std::pair{cyclone, fast}, std::pair{fast, cyclone}})
    for (const Keys& keys : all_keys()) {
      const std::string topic = "across_" + std::to_string(++round);
      CAPTURE(from->implementation());
      CAPTURE(keys.type->name);
      CAPTURE(keys.text);
      Qos qos;
      qos.history = History::keep_all;
      auto writer = from->writer(topic, keys.type, qos);
      REQUIRE(writer);
      auto reader = to->reader(topic, keys.type, qos);
      REQUIRE(reader);
      REQUIRE((*writer)->wait_matched(1, Deadline::in_s(20)));
      REQUIRE((*reader)->wait_matched(1, Deadline::in_s(20)));
      constexpr std::uint32_t n = 3;
      for (std::uint32_t k = 0; k < n; ++k) REQUIRE((*writer)->write(sample(*keys.type, k, keys.text)));
      std::vector<Seen> seen;
      const auto take = [&] {
        (*reader)->take([&](const SampleInfo& info, Bytes payload) {
          seen.push_back({info, serialised_key(*keys.type, payload)});
        });
      };
      REQUIRE(soon([&] { return take(), seen.size() >= n; }));
      for (const std::uint32_t k : {1u, 0u}) {
        seen.clear();
        REQUIRE((*writer)->dispose(sample(*keys.type, k, keys.text)));
        CHECK_MESSAGE(soon([&] { return take(), !seen.empty(); }, 5), "the end of " << k << " was not told");
        if (seen.empty()) continue;
        CHECK(seen[0].info.state == InstanceState::disposed);
        CHECK_FALSE(seen[0].info.has_data);
        CHECK_MESSAGE(seen[0].key == serialised_key(*keys.type, sample(*keys.type, k, keys.text)),
                      "another instance than " << k);
      }
      seen.clear();
      REQUIRE((*writer)->write(sample(*keys.type, 0, keys.text)));
      CHECK(soon([&] { return take(), !seen.empty(); }, 5));
      if (!seen.empty()) CHECK(seen[0].info.state == InstanceState::alive);
      // Disposals leave no gaps, whatever they are known by.
      CHECK((*reader)->status().lost == 0);
    }
}
