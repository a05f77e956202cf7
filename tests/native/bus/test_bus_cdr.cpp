#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bus/cdr.hpp"

using namespace sonde::bus;

namespace {

using Payload = std::vector<std::byte>;

Payload from_hex(std::string_view text) {
  Payload out;
  int digits = 0, value = 0;
  for (const char c : text) {
    if (c == ' ') continue;
    value = value * 16 + (c <= '9' ? c - '0' : c - 'a' + 10);
    if (++digits % 2 == 0) {
      out.push_back(static_cast<std::byte>(value));
      value = 0;
    }
  }
  return out;
}

std::string hex(Bytes bytes) {
  std::string out;
  for (const std::byte b : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(b));
    out += digits;
  }
  return out;
}

Field field(std::string name, TypePtr type, bool key = false) { return {std::move(name), std::move(type), key, ""}; }
TypePtr of(Kind kind) { return primitive(kind); }

/// What verify() says; the compiled checker has to come to the same end.
std::string wrong(const TypePtr& type, Bytes payload) {
  std::string why, again;
  const bool fine = verify(*type, payload, &why);
  CHECK(fine == why.empty());
  CHECK(verify(*type, payload) == fine);
  const Checker checker(type);
  CHECK(checker.verify(payload) == fine);
  CHECK(checker.verify(payload, &again) == fine);
  CHECK(again == why);
  return why;
}

bool says(const TypePtr& type, std::string_view payload, std::string_view part) {
  const std::string why = wrong(type, from_hex(payload));
  if (why.find(part) != std::string::npos) return true;
  MESSAGE("said: ", why);
  return false;
}

const TypePtr mode = enumeration("g::Mode", {{"off", 0}, {"on", 1}, {"auto", 7}});

}  // namespace

TEST_CASE("bus: numbers are aligned to their size from the beginning of the body, 8 for 8") {
  Payload payload{std::byte{9}};
  CdrWriter out(payload);
  out.put(std::uint8_t{1});
  out.put(2.5);
  out.put("h\u00e9");
  out.put_elements(std::as_bytes(std::span<const std::int16_t>({})), 2);
  out.put(std::uint32_t{1});
  out.put(std::uint64_t{7});
  out.put(true);
  out.put('x');
  // Python: cyclonedds 11, dataclass of uint8, float64, str, sequence[uint32], uint64, bool, char:
  // serialize(use_version_2=False).
  CHECK(hex(payload) ==
        "00010000"
        "0100000000000000"
        "0000000000000440"
        "0400000068c3a900"
        "0100000000000000"
        "0700000000000000"
        "0178");

  CdrReader in(payload);
  CHECK(in.get<std::uint8_t>() == 1);
  CHECK(in.get<double>() == 2.5);
  CHECK(in.get_string() == "h\u00e9");
  CHECK(in.get<std::uint32_t>() == 1);
  CHECK(in.get<std::uint64_t>() == 7);
  CHECK(in.get_bool());
  CHECK(in.get<char>() == 'x');
  CHECK(in.ok());
  CHECK(in.left() == 0);
  CHECK(in.position() == 42);
  CHECK(in.get<char>() == 0);
  CHECK_FALSE(in.ok());
}

TEST_CASE("bus: a big-endian payload reads as the little-endian one") {
  CdrReader in(
      from_hex("00000000"
               "01"
               "00"
               "0203"
               "00000004"
               "3ff8000000000000"
               "00000003"
               "414200"));
  const auto bytes = from_hex(
      "00000000"
      "01"
      "00"
      "0203"
      "00000004"
      "3ff8000000000000"
      "00000003"
      "414200");
  in = CdrReader(bytes);
  CHECK(in.swaps());
  CHECK(in.get<std::int8_t>() == 1);
  CHECK(in.get<std::uint16_t>() == 0x203);
  CHECK(in.get<std::int32_t>() == 4);
  CHECK(in.get<double>() == 1.5);
  CHECK(in.get_string() == "AB");
  CHECK(in.ok());
}

TEST_CASE("bus: a reader that met something wrong gives zeros and stays so") {
  const auto text = from_hex(
      "00010000"
      "05000000"
      "4142434400");
  CdrReader in(text);
  CHECK(in.get_string(3).empty());
  CHECK_FALSE(in.ok());
  CHECK(in.get<std::uint8_t>() == 0);
  CHECK(CdrReader(text).get_string(4) == "ABCD");
  const auto lie = from_hex(
      "00010000"
      "ffffffff"
      "41");
  CdrReader length(lie);
  CHECK(length.get_length(0, 1) == 0);
  CHECK_FALSE(length.ok());
  const auto boolean = from_hex(
      "00010000"
      "02");
  CdrReader b(boolean);
  CHECK_FALSE(b.get_bool());
  CHECK_FALSE(b.ok());
  CdrReader none{Bytes{}};
  CHECK_FALSE(none.ok());
  CHECK(none.get<double>() == 0);
  CHECK(none.get_elements(SIZE_MAX / 2, 8).empty());
}

TEST_CASE("bus: verify says what is wrong, where, and what is allowed") {
  const auto inner = structure("g::Inner", {field("text", string_type(3)), field("mode", mode)});
  const auto type = structure("g::S", {field("flag", of(Kind::boolean)), field("rows", sequence_of(inner, 2)),
                                       field("tail", of(Kind::uint16))});
  const std::string good = "00010000 01000000 01000000 02000000 41000000 07000000 0500";
  CHECK(wrong(type, from_hex(good)) == "");
  CHECK(wrong(type, from_hex(good + "000000")) == "");
  CHECK(says(type, good + "00000000",
             "g::S ends at byte 22 of its sample, which goes on for 4; 3 of padding are allowed"));
  CHECK(says(type, "000100", "has 3 bytes; its encapsulation alone takes 4"));
  CHECK(says(type, "00070000 01000000", "encapsulated as 00 07"));
  CHECK(says(type, "00030000 01000000", "encapsulated as 00 03"));
  CHECK(says(type, "01010000 01000000", "encapsulated as 01 01"));
  CHECK(says(type, "00010000 02000000", "g::S.flag is a boolean with the value 2; 0 and 1 are allowed"));
  CHECK(says(type, "00010000 01000000 03000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
             "g::S.rows has 3 elements; 2 are allowed"));
  CHECK(says(type, "00010000 01000000 02000000 02000000",
             "g::S.rows says that it has 2 elements, for which the 4 bytes left are too few"));
  CHECK(says(type, "00010000 01000000 01000000 00000000 41000000 0700", "g::S.rows[0].text is a string of length 0"));
  CHECK(says(type, "00010000 01000000 01000000 05000000 41414141 00000000",
             "g::S.rows[0].text has 4 characters; 3 are allowed"));
  CHECK(says(type, "00010000 01000000 01000000 02000000 41410000 07000000 0500",
             "g::S.rows[0].text is a string without NUL"));
  CHECK(says(type, "00010000 01000000 01000000 03000000 41000000 07000000 0500",
             "g::S.rows[0].text is a string with a NUL in it, at 1"));
  CHECK(says(type, "00010000 01000000 01000000 02000000 41000000 02000000 0500",
             "g::S.rows[0].mode has the value 2, which g::Mode has no enumerator for"));
  CHECK(says(type, "00010000 01000000 01000000 02000000 41000000 07000000 05",
             "g::S.tail is cut off: there are 1 bytes left for its 2 bytes"));
  CHECK(says(type, "00010000", "g::S.flag is cut off"));
  CHECK(says(structure("T", {field("s", string_type())}), "00010000 ffffffff 4100",
             "T.s says that it has 4294967295 bytes, where 2 are left"));
}

TEST_CASE("bus: runs of fixed fields have the right length wherever they begin") {
  // Elements whose length depends on where each of them begins, behind a string of every length.
  const Kind kinds[] = {Kind::uint8, Kind::int16, Kind::float32, Kind::float64, Kind::int8, Kind::uint64};
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<Field> fields;
    for (std::size_t k = 0, n = 1 + random() % 4; k < n; ++k) {
      const TypePtr one = of(kinds[random() % std::size(kinds)]);
      fields.push_back(field("f" + std::to_string(k),
                             random() % 4 ? one : array_of(one, static_cast<std::uint32_t>(1 + random() % 5))));
    }
    const auto element = structure("E", fields);
    const std::uint32_t rows = static_cast<std::uint32_t>(random() % 40),
                        fixed = static_cast<std::uint32_t>(1 + random() % 20);
    const auto type = structure("S", {field("text", string_type()), field("list", sequence_of(element)),
                                      field("grid", array_of(element, fixed)), field("end", of(Kind::uint8))});
    Payload payload;
    CdrWriter out(payload);
    out.put(std::string(random() % 9, 'x'));
    out.put(rows);
    for (std::uint32_t k = 0; k < rows + fixed; ++k)
      for (const Field& f : fields)
        for (std::uint32_t n = f.type->kind == Kind::array ? f.type->bound : 1; n; --n)
          switch (f.type->kind == Kind::array ? f.type->element->kind : f.type->kind) {
            case Kind::int16: out.put(std::int16_t{1}); break;
            case Kind::float32: out.put(1.f); break;
            case Kind::float64: out.put(1.0); break;
            case Kind::uint64: out.put(std::uint64_t{1}); break;
            default: out.put(std::uint8_t{1}); break;
          }
    out.put(std::uint8_t{255});
    REQUIRE(wrong(type, payload) == "");
    payload.pop_back();
    REQUIRE(wrong(type, payload) != "");
    payload.resize(payload.size() + 4);
    REQUIRE(wrong(type, payload) == "");
    payload.push_back(std::byte{0});
    REQUIRE(wrong(type, payload) != "");
  }
}

TEST_CASE("bus: what follows a sequence of structures is not taken for a part of its elements") {
  const auto element = structure("E", {field("name", string_type()), field("n", of(Kind::uint32))});
  const auto type =
      structure("S", {field("list", sequence_of(element)), field("a", of(Kind::uint32)), field("b", of(Kind::uint32))});
  const std::string list = "00010000 02000000 02000000 41000000 01000000 02000000 42000000 02000000 ";
  CHECK(wrong(type, from_hex(list + "03000000 04000000")) == "");
  CHECK(wrong(type, from_hex(list + "03000000")) != "");
  CHECK(wrong(type, from_hex("00010000 00000000 03000000 04000000")) == "");
  CHECK(wrong(type, from_hex("00010000 00000000 03000000 0400")) != "");
}

TEST_CASE("bus: lengths that lie cost nothing") {
  const auto type = structure("S", {field("list", sequence_of(sequence_of(sequence_of(of(Kind::boolean)))))});
  CHECK(wrong(type, from_hex("00010000 ffffffff")) != "");
  CHECK(wrong(type, from_hex("00010000 01000000 ffffffff 00000000")) != "");
  const auto fixed = structure("S", {field("list", sequence_of(of(Kind::float64)))});
  CHECK(wrong(fixed, from_hex("00010000 ffffffff 0000000000000000")) != "");
  CHECK(wrong(fixed, from_hex("00010000 01000020 0000000000000000")) != "");
}

TEST_CASE("bus: enumerators are known wherever they lie") {
  const auto far = enumeration("F", {{"a", INT32_MIN}, {"b", -1}, {"c", INT32_MAX}});
  const auto near = enumeration("N", {{"a", -1}, {"b", 0}, {"c", 1}});
  const auto type = structure("S", {field("f", far), field("n", near)});
  for (const char* f : {"00000080", "ffffffff", "ffffff7f"})
    for (const char* n : {"ffffffff", "00000000", "01000000"})
      CHECK(wrong(type, from_hex(std::string("00010000") + f + n)) == "");
  CHECK(says(type, "00010000 00000000 00000000", "S.f has the value 0"));
  CHECK(says(type, "00010000 ffffffff 02000000", "S.n has the value 2"));
  CHECK(says(type, "00010000 ffffffff feffffff", "S.n has the value -2"));
  CHECK(wrong(type, from_hex("00000000 80000000 00000001")) == "");
}

TEST_CASE("bus: the key is its fields alone, big endian, each aligned within the key") {
  const auto type = structure("S", {field("skip", string_type()), field("id", of(Kind::uint16), true),
                                    field("list", sequence_of(of(Kind::float64))), field("big", of(Kind::uint64), true),
                                    field("flag", of(Kind::boolean), true), field("name", string_type(5), true),
                                    field("mode", mode, true), field("rest", sequence_of(string_type()))});
  Payload payload;
  CdrWriter out(payload);
  out.put("skipped");
  out.put(std::uint16_t{0x0102});
  out.put(std::uint32_t{2});
  out.put(1.0);
  out.put(2.0);
  out.put(std::uint64_t{0x0304});
  out.put(true);
  out.put("key");
  out.put(std::int32_t{7});
  out.put(std::uint32_t{1});
  out.put("x");
  REQUIRE(wrong(type, payload) == "");
  const auto key = serialised_key(*type, payload);
  CHECK(hex(key) ==
        "0102000000000000"
        "0000000000000304"
        "01000000"
        "00000004"
        "6b657900"
        "00000007");
  CHECK(most_key_bytes(*type) == 36);
  const auto back = payload_of_key(*type, key);
  REQUIRE(wrong(type, back) == "");
  CHECK(serialised_key(*type, back) == key);
  CHECK(hex(back) ==
        "00010000"
        "01000000"
        "0000"
        "0201"
        "00000000"
        "00000000"
        "0403000000000000"
        "01000000"
        "04000000"
        "6b657900"
        "07000000"
        "00000000");
}

TEST_CASE("bus: of a structure within the key its own keys count, or all of it where it has none") {
  const auto all = structure("All", {field("a", of(Kind::uint8)), field("b", of(Kind::uint16))});
  const auto some = structure("Some", {field("text", string_type()), field("id", of(Kind::uint8), true)});
  const auto both = structure("Both", {field("all", all), field("some", some)});
  const auto type = structure("S", {field("x", both, true), field("pair", array_of(some, 2), true), field("y", all)});
  Payload payload;
  CdrWriter out(payload);
  out.put(std::uint8_t{1});
  out.put(std::uint16_t{2});
  out.put("long text");
  out.put(std::uint8_t{3});
  for (const std::uint8_t id : {4, 5}) {
    out.put("t");
    out.put(id);
  }
  out.put(std::uint8_t{6});
  out.put(std::uint16_t{7});
  REQUIRE(wrong(type, payload) == "");
  const auto key = serialised_key(*type, payload);
  CHECK(hex(key) ==
        "01"
        "00"
        "0002"
        "03"
        "04"
        "05");
  CHECK(most_key_bytes(*type) == 7);
  CHECK(serialised_key(*type, payload_of_key(*type, key)) == key);
}

TEST_CASE(
    "bus: keys at fixed places are those that are read, in either byte order, with and without what lies before them") {
  const auto all = structure("All", {field("a", of(Kind::uint8)), field("b", of(Kind::uint16))});
  const auto some =
      structure("Some", {field("skipped", array_of(of(Kind::uint16), 3)), field("id", of(Kind::uint64), true)});
  const std::vector<TypePtr> types = {
      structure("S", {field("x", of(Kind::uint32)), field("k", of(Kind::uint64), true),
                      field("rest", sequence_of(of(Kind::octet)))}),
      structure("S", {field("m", mode, true), field("x", some), field("k", some, true), field("all", all, true),
                      field("text", string_type())}),
      structure("S", {field("k", array_of(of(Kind::uint16), 5), true), field("pair", array_of(some, 2), true),
                      field("end", of(Kind::uint8))}),
      structure("S", {field("yes", of(Kind::boolean), true), field("k", of(Kind::uint32), true)}),
      structure("S", {field("text", string_type(), true), field("k", of(Kind::uint32), true)}),
      structure("S", {field("many", array_of(of(Kind::octet), 40), true)}),
      structure("S", {field("x", of(Kind::uint32))}),
  };
  for (const auto& type : types) {
    Payload little;
    CdrWriter out(little);
    put_default(*type, out);
    little.resize(little.size() + 64);
    for (std::size_t k = 4; k < little.size(); ++k) little[k] = static_cast<std::byte>(k * 37 + 11);
    Payload big = little;
    big[1] = std::byte{0};
    const KeyMaker keys(type);
    CHECK(keys.keyed() == has_key(*type));
    for (const Payload& payload : {little, big})
      for (std::size_t n = 0; n <= payload.size(); ++n) {
        const Payload cut(payload.begin(), payload.begin() + static_cast<std::ptrdiff_t>(n));
        Payload made = {std::byte{7}};
        keys.make(cut, made);
        CHECK_MESSAGE(hex(made) == hex(serialised_key(*type, cut)), to_idl(*type) << " of " << n << " bytes");
      }
  }
}

TEST_CASE("bus: a key that is none of the type gives no payload; one filled up to 16 bytes is one") {
  const auto type = structure("S", {field("mode", mode, true), field("data", sequence_of(of(Kind::octet)))});
  CHECK(payload_of_key(*type, from_hex("00000007")).size() == 12);
  CHECK(payload_of_key(*type, from_hex("00000007 00000000 00000000 00000000")).size() == 12);
  CHECK(payload_of_key(*type, from_hex("00000007 00000000 00000000 00000001")).empty());
  CHECK(payload_of_key(*type, from_hex("00000007 00000000")).empty());
  CHECK(payload_of_key(*type, from_hex("00000002")).empty());
  CHECK(payload_of_key(*type, from_hex("0000")).empty());
  CHECK(payload_of_key(*type, {}).empty());
}

TEST_CASE("bus: types without key have an empty one; strings without bound an unbounded one") {
  const auto plain = structure("S", {field("a", of(Kind::uint8))});
  CHECK(serialised_key(*plain, from_hex("00010000 01")).empty());
  CHECK(most_key_bytes(*plain) == 0);
  CHECK(most_key_bytes(*structure("S", {field("a", string_type(), true)})) == SIZE_MAX);
  CHECK(most_key_bytes(*structure("S", {field("a", of(Kind::uint8), true), field("b", of(Kind::float64), true)})) ==
        16);
  CHECK(most_key_bytes(
            *structure("S", {field("a", string_type(2), true), field("b", array_of(string_type(1), 2), true)})) == 22);
}

TEST_CASE("bus: a payload of the key alone is read in either byte order, whatever is behind it") {
  const TypePtr inner =
      structure("t::In", {{"x", primitive(Kind::uint32), true, {}}, {"y", primitive(Kind::uint64), false, {}}});
  const TypePtr type = structure(
      "t::Type",
      {{"first", primitive(Kind::float64), false, {}}, {"in", inner, true, {}}, {"name", string_type(8), true, {}}});
  std::vector<std::byte> whole, alone;
  CdrWriter full(whole), key(alone);
  full.put(0.0);
  for (auto* out : {&full, &key}) {
    out->put(std::uint32_t{0x01020304});
    if (out == &full) out->put(std::uint64_t{0});
    out->put(std::string_view("ab"));
  }
  CHECK(payload_of_key_alone(*type, alone) == whole);
  std::vector<std::byte> big = serialised_key(*type, whole);
  big.insert(big.begin(), 4, std::byte{0});
  CHECK(payload_of_key_alone(*type, big) == whole);
  big.insert(big.end(), 9, std::byte{0x55});
  CHECK(payload_of_key_alone(*type, big) == whole);
  alone.pop_back();
  CHECK(payload_of_key_alone(*type, alone).empty());
  CHECK(payload_of_key_alone(*type, Bytes{}).empty());
}
