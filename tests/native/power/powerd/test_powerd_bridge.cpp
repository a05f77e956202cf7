// The bridge's parts that need neither a bus nor a broker: JSON, names, Sparkplug, what is kept on disk, the queue
// between its threads.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bus/cdr.hpp"
#include "bus/value.hpp"
#include "power/messages.hpp"
#include "power/powerd/bridge/json.hpp"
#include "power/powerd/bridge/naming.hpp"
#include "power/powerd/bridge/outbox.hpp"
#include "power/powerd/bridge/sparkplug.hpp"
#include "power/powerd/bridge/store.hpp"

using namespace sonde;
using namespace sonde::power;
using namespace sonde::power::bridge;

namespace {

NodeTelemetry telemetry() {
  NodeTelemetry t;
  t.node = "r1/n 2";
  t.at_ns = 1'700'000'000'250'000'000;
  t.period_s = 1;
  t.source = Source::simulated;
  t.power_w = 211.5;
  t.domains = {{"package-0", Source::simulated, 90.25, std::nan(""), 120, 50, 200, true}};
  t.trouble = "a \"quoted\" \x01 text \xc3\xa9";
  return t;
}

std::vector<std::byte> payload_of(const NodeTelemetry& t) {
  std::vector<std::byte> out;
  REQUIRE(bus::encode(t, out));
  return out;
}

struct Folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("sonde-bridge-" + std::to_string(::getpid()) +
                                                                         "-" + std::to_string(std::random_device{}()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

TEST_CASE("bridge: JSON is what the bus writes, and gives the same sample back") {
  const auto& type = *bus::type_of<NodeTelemetry>();
  const auto payload = payload_of(telemetry());
  std::string text;
  append_json(type, payload, text);
  CHECK(text == bus::to_json(*bus::decode(type, payload)));
  std::vector<std::byte> back;
  REQUIRE(payload_of_json(type, text, back));
  auto again = bus::decode<NodeTelemetry>(back);
  REQUIRE(again);
  CHECK(again->node == "r1/n 2");
  CHECK(std::isnan(again->domains.at(0).energy_j));
  CHECK(again->domains.at(0).power_w == 90.25);
  CHECK(back == payload);
}

TEST_CASE("bridge: a text in JSON shows what turns text around as its number, and is the same value") {
  std::string out;
  append_text("a\u202eb\x7f\n\xff\u00e9", out);
  CHECK(out == "\"a\\u202eb\\u007f\\u000a\ufffd\u00e9\"");
}

TEST_CASE("bridge: damaged JSON is refused with a name, whatever is done to it") {
  const auto& type = *bus::type_of<NodeTelemetry>();
  std::string text;
  append_json(type, payload_of(telemetry()), text);
  std::mt19937 random(7);
  std::vector<std::byte> payload;
  int refused = 0;
  for (int k = 0; k < 20000; ++k) {
    std::string damaged = text;
    for (int n = 0; n <= k % 3; ++n) {
      const std::size_t at = random() % damaged.size();
      if (k % 2) damaged[at] = static_cast<char>(random());
      else damaged.erase(at, random() % 20);
      if (damaged.empty()) damaged = "x";
    }
    const auto got = payload_of_json(type, damaged, payload);
    if (got) {
      CHECK(bus::verify(type, payload));
      continue;
    }
    ++refused;
    const std::string& code = got.error().code;
    CHECK((code == "bridge.bad_json" || code == "bridge.wrong_type" || code == "bridge.bad_utf8"));
    CHECK(first_bad_utf8(got.error().what) == std::string::npos);
  }
  CHECK(refused > 10000);
}

TEST_CASE("bridge: levels of topics come back as they were") {
  for (const std::string text : {"", "n001", "a/b", "100%", "+#", "\x01\x7f", "é", "\xff\xfe", "%41", " "}) {
    std::string level, back;
    append_level(text, level);
    CHECK_FALSE(level.empty());
    CHECK(level.find_first_of("/+#") == std::string::npos);
    CHECK(first_bad_utf8(level) == std::string::npos);
    CHECK(level_text(level, back));
    CHECK(back == text);
  }
  std::string out;
  for (const std::string bad : {"", "%4", "a%zz", "%a0"}) CHECK_FALSE(level_text(bad, out));
}

TEST_CASE("bridge: patterns choose topics, and those with a '!' leave some out") {
  CHECK(chosen({"Monitor_*", "!*_job_*"}, "Monitor_report_node_telemetry"));
  CHECK_FALSE(chosen({"Monitor_*", "!*_job_*"}, "Monitor_report_job_telemetry"));
  CHECK_FALSE(chosen({"!x"}, "y"));
  CHECK_FALSE(chosen({}, "y"));
}

TEST_CASE("bridge: Examon's messages are numbers that are known") {
  std::vector<std::pair<std::string, std::string>> got;
  const auto n = examon(*bus::type_of<NodeTelemetry>(), payload_of(telemetry()), 0, "org#1", "c",
                        [&](std::string_view topic, std::string_view value) { got.emplace_back(topic, value); });
  CHECK(n == got.size());
  const std::string tags = "org/org_1/cluster/c/node/r1_n_2/plugin/sonde/chnl/data/";
  const auto has = [&](const std::string& metric, const std::string& value) {
    return std::find(got.begin(), got.end(), std::pair{tags + metric, value}) != got.end();
  };
  CHECK(has("power_w", "211.5;1700000000.250000"));
  CHECK(has("domains_package-0_power_w", "90.25;1700000000.250000"));
  CHECK(has("domains_package-0_settable", "1;1700000000.250000"));
  for (const auto& [topic, value] : got) {
    CHECK(topic.find("energy_j") == std::string::npos);
    CHECK(topic.find("at_ns") == std::string::npos);
  }
}

TEST_CASE("bridge: Sparkplug numbers its messages without a gap, through births, data and deaths") {
  Sparkplug edge("group", "node");
  std::vector<std::pair<std::string, std::string>> sent;
  const Sparkplug::Send send = [&](Sparkplug::Kind, std::string_view topic, std::string_view payload) {
    sent.emplace_back(topic, payload);
  };
  edge.birth(3, 1, send);
  const auto payload = payload_of(telemetry());
  for (int k = 0; k < 300; ++k)
    edge.data("Monitor_report_node_telemetry", *bus::type_of<NodeTelemetry>(), payload, k, send);
  edge.device_death("r1_n_2", 5, send);
  edge.device_death("r1_n_2", 5, send);  // is dead
  REQUIRE(sent.size() == 302);
  CHECK(sent[0].first == "spBv1.0/group/NBIRTH/node");
  CHECK(sent[1].first == "spBv1.0/group/DBIRTH/node/r1_n_2");
  CHECK(sent[2].first == "spBv1.0/group/DDATA/node/r1_n_2");
  CHECK(sent.back().first == "spBv1.0/group/DDEATH/node/r1_n_2");
  for (std::size_t k = 0; k < sent.size(); ++k) {
    const unsigned seq = k % 256;  // the last field: 0x18 and a number
    const std::string& text = sent[k].second;
    const std::string tail = seq < 128 ? std::string("\x18") + static_cast<char>(seq)
                                       : std::string("\x18") + static_cast<char>(seq) + '\x01';
    CHECK(text.ends_with(tail));
  }
  CHECK(sent[2].second.size() < sent[1].second.size() / 2);  // aliases instead of names
  std::mt19937 random(3);
  for (int k = 0; k < 5000; ++k) {
    std::string noise(random() % 40, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    CHECK_FALSE(edge.asks_rebirth(noise));
  }
}

TEST_CASE("bridge: Sparkplug's devices die under the name that they were born with, whatever their key is") {
  const auto& type = *bus::type_of<NodeTelemetry>();
  std::vector<std::string> topics;
  const Sparkplug::Send send = [&](Sparkplug::Kind, std::string_view topic, std::string_view) {
    topics.emplace_back(topic);
  };
  Sparkplug edge("group", "node");
  edge.birth(0, 1, send);
  for (const char* node : {"r1/n 2", "", "100%", "\xff", "n1"}) {
    auto t = telemetry();
    t.node = node;
    const auto payload = payload_of(t);
    topics.clear();
    edge.data("T", type, payload, 2, send);
    edge.device_death(Sparkplug::device_of(type, payload), 3, send);
    REQUIRE(topics.size() == 2);
    CHECK(topics[0].substr(0, 22) == "spBv1.0/group/DBIRTH/n");
    CHECK(topics[1] == "spBv1.0/group/DDEATH" + topics[0].substr(20));
    CHECK(edge.devices() == 1);  // the node itself: who came and went leaves nothing
    edge.data("T", type, payload, 4, send);
    CHECK(topics.back() == topics[0]);
    edge.device_death(Sparkplug::device_of(type, payload), 5, send);
  }
}

TEST_CASE("bridge: what the broker has not acknowledged outlives the process, and a torn end of the file") {
  Folder folder;
  const std::string path = folder.path / "store";
  {
    auto store = Store::open(path, 1 << 16);
    REQUIRE(store);
    std::uint64_t one = 0, two = 0, three = 0;
    CHECK((*store)->put({"t/1", "o 1", "first"}, one));
    CHECK((*store)->put({"t/2", "o 2", std::string("sec\0nd", 6)}, two));
    CHECK((*store)->put({"t/3", "o 3", "third"}, three));
    CHECK((*store)->sync());
    (*store)->acknowledged(two);
    CHECK(one < two);
  }
  {
    std::ofstream torn(path, std::ios::app | std::ios::binary);
    torn << "1mqm half a record";
  }
  auto store = Store::open(path, 1 << 16);
  REQUIRE(store);
  REQUIRE((*store)->waiting().size() == 2);
  CHECK((*store)->waiting().begin()->second.payload == "first");
  CHECK((*store)->waiting().rbegin()->second.topic == "t/3");
  std::uint64_t number = 0;
  const auto full = (*store)->put({"t", "o", std::string(1 << 16, 'x')}, number);
  REQUIRE_FALSE(full);
  CHECK(full.error().code == "bridge.store_full");
  CHECK(number == 0);
  // It does not grow without end, whatever passes through it.
  std::uint64_t held = 0;
  CHECK((*store)->put({"t", "o", "held"}, held));
  for (int k = 0; k < 2000; ++k) {
    REQUIRE((*store)->put({"t", "o", std::string(1000, 'x')}, number));
    (*store)->acknowledged(number);
  }
  CHECK(std::filesystem::file_size(path) < 3 << 16);
  CHECK((*store)->waiting().contains(held));
}

TEST_CASE("bridge: a store whose file has its records twice has each message once, and counts it once") {
  Folder folder;
  const std::string path = folder.path / "store";
  {
    auto store = Store::open(path, 1 << 16);
    REQUIRE(store);
    std::uint64_t number = 0;
    CHECK((*store)->put({"t/1", "o 1", "first"}, number));
    CHECK((*store)->put({"t/2", "o 2", "second"}, number));
  }
  std::string text;
  {
    std::ifstream in(path, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::ofstream(path, std::ios::binary) << text << text;
  auto store = Store::open(path, 1 << 16);
  REQUIRE(store);
  REQUIRE((*store)->waiting().size() == 2);
  CHECK((*store)->bytes() == text.size());
  while (!(*store)->waiting().empty()) (*store)->acknowledged((*store)->waiting().begin()->first);
  CHECK((*store)->bytes() == 0);
}

TEST_CASE("bridge: what has come before is known, also by the next process, and the oldest is forgotten in its turn") {
  Folder folder;
  const std::string path = folder.path / "seen";
  std::string why;
  {
    auto seen = Seen::open(path, why);
    CHECK(why.empty());
    CHECK_FALSE(seen->known("alpha w 1 0", "t"));
    CHECK_FALSE(seen->known("alpha w 1 0", "t"));  // to ask is not to have dealt with it
    seen->remember("alpha w 1 0", "t");
    CHECK(seen->known("alpha w 1 0", "t"));
    CHECK_FALSE(seen->known("alpha w 1 0", "u"));
    CHECK_FALSE(seen->known("alpha w 1 1", "t"));
  }
  auto seen = Seen::open(path, why);
  CHECK(seen->known("alpha w 1 0", "t"));
  for (int k = 0; k < 3; ++k) seen->remember("alpha w 1 0", "t");  // takes one place
  int wrong = 0;
  for (int k = 0; k < (1 << 18) - 1; ++k) {
    const std::string origin = "beta " + std::to_string(k);
    wrong += seen->known(origin, "t");
    seen->remember(origin, "t");
  }
  CHECK(wrong == 0);
  CHECK(seen->known("alpha w 1 0", "t"));
  for (int k = (1 << 18) - 1; k < (1 << 18) + 1000; ++k) seen->remember("beta " + std::to_string(k), "t");
  for (int k = 1000; k < (1 << 18) + 1000; ++k) wrong += !seen->known("beta " + std::to_string(k), "t");
  CHECK(wrong == 0);
  CHECK_FALSE(seen->known("beta 999", "t"));
  CHECK_FALSE(seen->known("alpha w 1 0", "t"));  // it is long ago
}

TEST_CASE("bridge: of telemetry the oldest makes place, of control the newest is refused, and both are counted") {
  std::vector<std::byte> big(1000), got;
  std::size_t head = 0;
  bool was_empty = false;
  Outbox telemetry(10 * (sizeof(Entry) + 1000), true), control(10 * (sizeof(Entry) + 1000), false);
  for (std::uint32_t k = 0; k < 35; ++k) {
    Entry entry;
    entry.topic = k;
    CHECK(telemetry.put(entry, big, was_empty));
    CHECK(was_empty == (k == 0));
    CHECK(control.put(entry, big, was_empty) == (k < 10));
  }
  CHECK(telemetry.dropped() == 25);
  CHECK(control.dropped() == 25);
  REQUIRE(telemetry.swap(got, head));
  Entry first;
  std::memcpy(&first, got.data() + head, sizeof first);
  CHECK(first.topic == 25);
  CHECK(first.bytes == 1000);
  REQUIRE(control.swap(got, head));
  std::memcpy(&first, got.data() + head, sizeof first);
  CHECK(first.topic == 0);
  CHECK(control.empty());
}
