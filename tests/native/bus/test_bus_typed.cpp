#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bus/typed.hpp"

namespace typed_test {

enum class Mode : std::uint8_t { off, on = 5 };
struct Inner {
  std::string text;
  Mode mode = Mode::off;
  std::array<std::int16_t, 3> triple{};
  bool operator==(const Inner&) const = default;
};
struct All {
  bool flag = false;
  char letter = 0;
  std::byte raw{};
  std::int8_t i8 = 0;
  std::uint8_t u8 = 0;
  std::int16_t i16 = 0;
  std::uint16_t u16 = 0;
  std::int32_t i32 = 0;
  std::uint32_t u32 = 0;
  std::int64_t i64 = 0;
  unsigned long long u64 = 0;
  float f32 = 0;
  double f64 = 0;
  std::string node;
  std::vector<double> values;
  std::vector<bool> flags;
  std::vector<std::byte> blob;
  std::vector<Inner> inners;
  std::array<std::array<std::string, 2>, 2> grid;
  std::vector<std::vector<Mode>> modes;
  bool operator==(const All&) const = default;
};

All example() {
  All all;
  all.flag = true;
  all.letter = 'x';
  all.raw = std::byte{200};
  all.i8 = -8;
  all.u8 = 250;
  all.i16 = -1600;
  all.u16 = 65000;
  all.i32 = -320000;
  all.u32 = 4000000000;
  all.i64 = std::numeric_limits<std::int64_t>::min();
  all.u64 = std::numeric_limits<std::uint64_t>::max();
  all.f32 = 1.5f;
  all.f64 = -2.25;
  all.node = "n\u00e9";
  all.values = {1, 2, 3};
  all.flags = {true, false, true};
  all.blob = {std::byte{1}, std::byte{0}};
  all.inners = {{"a", Mode::on, {1, 2, 3}}, {"", Mode::off, {4, 5, 6}}};
  all.grid = {{{"a", "b"}, {"c", ""}}};
  all.modes = {{}, {Mode::on, Mode::off}};
  return all;
}

}  // namespace typed_test

template <> struct sonde::bus::Described<typed_test::Mode> {
  static constexpr auto name = "t::Mode";
  static constexpr auto enumerators =
      std::array{enumerator("off", typed_test::Mode::off), enumerator("on", typed_test::Mode::on)};
};
template <> struct sonde::bus::Described<typed_test::Inner> {
  using T = typed_test::Inner;
  static constexpr auto name = "t::Inner";
  static constexpr auto fields =
      std::tuple{field("text", &T::text).at_most(4), field("mode", &T::mode), field("triple", &T::triple)};
};
template <> struct sonde::bus::Described<typed_test::All> {
  using T = typed_test::All;
  static constexpr auto name = "t::All";
  static constexpr auto fields =
      std::tuple{field("flag", &T::flag),    field("letter", &T::letter), field("raw", &T::raw),
                 field("i8", &T::i8),        field("u8", &T::u8),         field("i16", &T::i16),
                 field("u16", &T::u16),      field("i32", &T::i32),       field("u32", &T::u32),
                 field("i64", &T::i64),      field("u64", &T::u64),       field("f32", &T::f32),
                 field("f64", &T::f64, "W"), key("node", &T::node),       field("values", &T::values).at_most(3),
                 field("flags", &T::flags),  field("blob", &T::blob),     field("inners", &T::inners),
                 field("grid", &T::grid),    field("modes", &T::modes)};
};

using namespace sonde::bus;
using typed_test::All;
using typed_test::example;
using typed_test::Mode;

namespace {

/// The same sample as a big-endian writer would send it, made field by field.
class BigEndian {
 public:
  std::vector<std::byte> bytes = std::vector<std::byte>(4);
  template <typename T> void put(T value) {
    while ((bytes.size() - 4) % sizeof value) bytes.push_back(std::byte{0});
    auto raw = std::bit_cast<std::array<std::byte, sizeof value>>(value);
    bytes.insert(bytes.end(), raw.rbegin(), raw.rend());
  }
  void text(std::string_view t) {
    put(static_cast<std::uint32_t>(t.size() + 1));
    for (const char c : t) bytes.push_back(static_cast<std::byte>(c));
    bytes.push_back(std::byte{0});
  }
};

bool says(const All& all, std::string_view what) {
  std::vector<std::byte> payload;
  const auto done = encode(all, payload);
  if (done) return false;
  CHECK(done.error().code == "bus.bad_value");
  if (done.error().what.find(what) != std::string::npos) return true;
  MESSAGE("said: ", done.error().what);
  return false;
}

}  // namespace

TEST_CASE("bus: a described structure is the type that its IDL declares") {
  CHECK(to_idl(*type_of<All>()) ==
        "module t {\n"
        "  enum Mode {\n    @value(0) off,\n    @value(5) on\n  };\n"
        "  @final struct Inner {\n    string<4> text;\n    ::t::Mode mode;\n    int16 triple[3];\n  };\n"
        "  @final struct All {\n    boolean flag;\n    char letter;\n    octet raw;\n    int8 i8;\n    uint8 u8;\n    "
        "int16 i16;\n    uint16 u16;\n    int32 i32;\n    uint32 u32;\n"
        "    int64 i64;\n    uint64 u64;\n    float f32;\n    @unit(\"W\") double f64;\n    @key string node;\n    "
        "sequence<double, 3> values;\n    sequence<boolean> flags;\n"
        "    sequence<octet> blob;\n    sequence<::t::Inner> inners;\n    string grid[4];\n    "
        "sequence<sequence<::t::Mode> > modes;\n  };\n"
        "};\n");
  CHECK(bool(check(*type_of<All>())));
  CHECK(type_of<All>() == type_of<All>());
}

TEST_CASE("bus: what was encoded decodes to the same, and is a sample of the type") {
  const All all = example();
  std::vector<std::byte> payload;
  REQUIRE(bool(encode(all, payload)));
  std::string why;
  CHECK_MESSAGE(verify(*type_of<All>(), payload, &why), why);
  CHECK(Checker(type_of<All>()).verify(payload));
  const auto back = decode<All>(payload);
  REQUIRE(bool(back));
  CHECK(*back == all);
  // Into something that holds other things.
  All used = example();
  used.values.resize(100);
  used.inners.resize(7);
  used.node = "something longer than before";
  REQUIRE(bool(decode(payload, used)));
  CHECK(used == all);
  // Nothing at all is a sample too.
  REQUIRE(bool(encode(All{}, payload)));
  CHECK(*decode<All>(payload) == All{});
}

TEST_CASE("bus: a big-endian sample decodes to the same") {
  const All all = example();
  BigEndian out;
  out.put(std::uint8_t{1});
  out.put(all.letter);
  out.put(all.raw);
  out.put(all.i8);
  out.put(all.u8);
  out.put(all.i16);
  out.put(all.u16);
  out.put(all.i32);
  out.put(all.u32);
  out.put(all.i64);
  out.put(all.u64);
  out.put(all.f32);
  out.put(all.f64);
  out.text(all.node);
  out.put(std::uint32_t{3});
  for (const double v : all.values) out.put(v);
  out.put(std::uint32_t{3});
  for (const bool v : all.flags) out.put(static_cast<std::uint8_t>(v));
  out.put(std::uint32_t{2});
  for (const std::byte v : all.blob) out.put(v);
  out.put(std::uint32_t{2});
  for (const auto& inner : all.inners) {
    out.text(inner.text);
    out.put(static_cast<std::int32_t>(inner.mode));
    for (const std::int16_t v : inner.triple) out.put(v);
  }
  for (const auto& row : all.grid)
    for (const auto& text : row) out.text(text);
  out.put(std::uint32_t{2});
  out.put(std::uint32_t{0});
  out.put(std::uint32_t{2});
  out.put(std::int32_t{5});
  out.put(std::int32_t{0});
  std::string why;
  REQUIRE_MESSAGE(verify(*type_of<All>(), out.bytes, &why), why);
  CHECK(Checker(type_of<All>()).verify(out.bytes));
  const auto back = decode<All>(out.bytes);
  REQUIRE(bool(back));
  CHECK(*back == all);
}

TEST_CASE("bus: values that the type does not allow are not encoded") {
  All all = example();
  all.inners[1].text = "12345";
  CHECK(says(all, "t::All.inners[1].text has 5 characters; 4 are allowed"));
  all = example();
  all.values.resize(4);
  CHECK(says(all, "t::All.values has 4 elements; 3 are allowed"));
  all = example();
  all.grid[1][0] = std::string("a\0b", 3);
  CHECK(says(all, "t::All.grid[1][0] contains a NUL, which IDL strings cannot hold"));
  all = example();
  all.modes[1][0] = static_cast<Mode>(3);
  CHECK(says(all, "t::All.modes[1][0] has the value 3, but t::Mode has no such enumerator"));
}

TEST_CASE("bus: what is no sample of the type does not decode, wherever it is cut or changed") {
  std::vector<std::byte> payload;
  REQUIRE(bool(encode(example(), payload)));
  for (std::size_t n = 0; n < payload.size(); ++n) {
    const auto cut = decode<All>(Bytes(payload).first(n));
    REQUIRE_FALSE(cut);
    CHECK(cut.error().code == "bus.malformed");
    CHECK_FALSE(cut.error().what.empty());
  }
  // Decoding and verify() agree on every payload with one byte changed.
  for (std::size_t n = 0; n < payload.size(); ++n)
    for (const int value : {0, 1, 2, 255}) {
      auto changed = payload;
      changed[n] = static_cast<std::byte>(value);
      CHECK(bool(decode<All>(changed)) == verify(*type_of<All>(), changed));
    }
}

TEST_CASE("bus: a profile's type that the program does not mean is told, with the program's") {
  const auto other = structure("t::All", {{"flag", primitive(Kind::boolean), false, ""}});
  CHECK(bool(detail::same_type("x", *type_of<All>(), *type_of<All>())));
  const auto no = detail::same_type("x", *other, *type_of<All>());
  REQUIRE_FALSE(no);
  CHECK(no.error().code == "bus.bad_type");
  CHECK(no.error().hint.find("struct All {") != std::string::npos);
}

namespace typed_test {

struct Ask {
  std::uint32_t socket = 0;
};
struct Told {
  double power_w = 0;
  std::string unit;
};

std::shared_ptr<Bus> open_bus(const Profile& profile) {
  auto bus = Bus::open(profile, "null");
  REQUIRE_MESSAGE(bool(bus), bus.error().what);
  return *bus;
}

}  // namespace typed_test

template <> struct sonde::bus::Described<typed_test::Ask> {
  static constexpr auto name = "t::Ask";
  static constexpr auto fields = std::tuple{field("socket", &typed_test::Ask::socket)};
};
template <> struct sonde::bus::Described<typed_test::Told> {
  static constexpr auto name = "t::Told";
  static constexpr auto fields =
      std::tuple{field("power_w", &typed_test::Told::power_w, "W"), field("unit", &typed_test::Told::unit).at_most(3)};
};

using typed_test::Ask;
using typed_test::Told;

TEST_CASE("bus: a publisher's structures come out of a subscriber, and disposals with their key") {
  Profile profile;
  profile.domain = 187;
  profile.types = {{"t::All", type_of<All>()}, {"t::Told", type_of<Told>()}};
  profile.topics["all"] = {"all", "t::All", {}, {}};
  profile.topics["told"] = {"told", "t::Told", {}, {}};
  const auto bus = typed_test::open_bus(profile);
  auto publisher = Publisher<All>::open(bus, "all");
  auto subscriber = Subscriber<All>::open(bus, "all");
  REQUIRE(bool(publisher));
  REQUIRE(bool(subscriber));
  REQUIRE((*publisher)->writer().wait_matched(1, sonde::Deadline::in_s(10)));
  REQUIRE(bool((*publisher)->write(example())));
  REQUIRE(bool((*publisher)->write(All{})));
  REQUIRE(bool((*publisher)->dispose(example())));
  All broken = example();
  broken.values.resize(9);
  CHECK((*publisher)->write(broken).error().code == "bus.bad_value");
  std::vector<All> got;
  std::vector<InstanceState> states;
  CHECK((*subscriber)->take([&](const SampleInfo& info, const All& all) {
    got.push_back(all);
    states.push_back(info.state);
  }) == 3);
  REQUIRE(got.size() == 3);
  CHECK(got[0] == example());
  CHECK(got[1] == All{});
  CHECK(got[2].node == example().node);
  CHECK(states == std::vector{InstanceState::alive, InstanceState::alive, InstanceState::disposed});

  CHECK(Publisher<All>::open(bus, "told").error().code == "bus.bad_type");
  CHECK(Subscriber<Told>::open(bus, "all").error().code == "bus.bad_type");
  CHECK(Publisher<All>::open(bus, "nowhere").error().code == "bus.unknown_topic");
  CHECK(bool(Publisher<Told>::open(bus, "another", Qos{})));
}

TEST_CASE("bus: calls carry structures both ways, and codes without them") {
  Profile profile;
  profile.domain = 188;
  const auto bus = typed_test::open_bus(profile);
  const auto types = service_types<Ask, Told>();
  auto server =
      Server::open(bus, "power_get", types, handler<Ask, Told>([](const Incoming&, const Ask& ask) -> AnswerOf<Told> {
                     if (ask.socket == 0) return {ReplyCode::ok, "", "", 1, {211.5, "W"}};
                     if (ask.socket == 1) return {ReplyCode::ok, "", "", 1, {0, "watts"}};
                     return {ReplyCode::not_found, "no socket " + std::to_string(ask.socket), "", 1, {}};
                   }));
  REQUIRE(bool(server));
  auto client = Client::open(bus, "power_get", types);
  REQUIRE(bool(client));
  REQUIRE((*client)->wait_for_server(sonde::Deadline::in_s(30)));
  const CallOptions patient{"", 60, 1};
  const auto told = call<Told>(**client, Ask{0}, patient);
  REQUIRE(bool(told));
  CHECK((*told).code == ReplyCode::ok);
  CHECK((*told).body.power_w == 211.5);
  CHECK((*told).body.unit == "W");
  const auto unknown = call<Told>(**client, Ask{7}, patient);
  REQUIRE(bool(unknown));
  CHECK((*unknown).code == ReplyCode::not_found);
  CHECK((*unknown).message == "no socket 7");
  // A reply that its type does not allow is the server's failure.
  const auto failed = call<Told>(**client, Ask{1}, patient);
  REQUIRE(bool(failed));
  CHECK((*failed).code == ReplyCode::failed);
  CHECK((*failed).message.find("t::Told.unit has 5 characters; 3 are allowed") != std::string::npos);
}
