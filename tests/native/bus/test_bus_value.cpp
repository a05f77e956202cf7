#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bus/cdr.hpp"
#include "bus/idl.hpp"
#include "bus/value.hpp"

using namespace sonde::bus;

namespace {

const TypePtr type = [] {
  const auto types = parse_idl(R"(
    module v {
      enum Mode { off, @value(7) on };
      struct In { string<4> text; Mode mode; };
      struct S {
        boolean flag; octet raw; char letter; int8 i8; uint8 u8; int16 i16; uint16 u16; int32 i32; uint32 u32; int64 i64; uint64 u64; float f32; double f64;
        string node; Mode mode; sequence<In, 2> rows; sequence<octet> blob; char name[4]; double grid[2]; sequence<char> letters; sequence<uint8, 2> small;
      };
    };)");
  return types ? (*types).at("v::S") : nullptr;
}();

Value of(std::int64_t n) { return {n}; }
Value of(const char* text) { return {std::string(text)}; }

/// What becomes of a structure with this one field.
bool says(const char* field, Value value, std::string_view what, std::string_view hint = "") {
  std::vector<std::byte> payload;
  const auto done = encode(*type, {Struct{{field, std::move(value)}}}, payload);
  if (done) {
    MESSAGE("accepted ", field);
    return false;
  }
  CHECK(done.error().code == "bus.bad_value");
  const bool found =
      done.error().what.find(what) != std::string::npos && done.error().hint.find(hint) != std::string::npos;
  if (!found) MESSAGE("said: ", done.error().what, " (", done.error().hint, ")");
  return found;
}

/// The field, after there and back, as JSON.
std::string back(const char* field, Value value) {
  std::vector<std::byte> payload;
  const auto done = encode(*type, {Struct{{field, std::move(value)}}}, payload);
  if (!done) return done.error().what;
  const auto decoded = decode(*type, payload);
  if (!decoded) return decoded.error().what;
  for (const auto& [name, part] : std::get<Struct>((*decoded).is))
    if (name == field) return to_json(part);
  return "lost";
}

}  // namespace

TEST_CASE("bus: nothing is zeros, empty texts and first enumerators, and a sample") {
  std::vector<std::byte> payload;
  REQUIRE(bool(encode(*type, {Struct{}}, payload)));
  CHECK(verify(*type, payload));
  const auto value = decode(*type, payload);
  REQUIRE(bool(value));
  CHECK(to_json(*value) ==
        "{\"flag\":false,\"raw\":0,\"letter\":\"\\u0000\",\"i8\":0,\"u8\":0,\"i16\":0,\"u16\":0,\"i32\":0,\"u32\":0,"
        "\"i64\":0,\"u64\":0,\"f32\":0,\"f64\":0,\"node\":\"\","
        "\"mode\":\"off\",\"rows\":[],\"blob\":\"base64:\",\"name\":\"base64:AAAAAA==\",\"grid\":[0,0],\"letters\":"
        "\"base64:\",\"small\":\"base64:\"}");
  std::vector<std::byte> same;
  REQUIRE(bool(encode(*type, {}, same)));
  CHECK(same == payload);
}

TEST_CASE("bus: values come back as they went") {
  CHECK(back("flag", {true}) == "true");
  CHECK(back("i8", of(-128)) == "-128");
  CHECK(back("u8", of(255)) == "255");
  CHECK(back("u64", {std::numeric_limits<std::uint64_t>::max()}) == "18446744073709551615");
  CHECK(back("i64", of(std::numeric_limits<std::int64_t>::min())) == "-9223372036854775808");
  CHECK(back("f32", {1.5}) == "1.5");
  CHECK(back("f64", {0.1}) == "0.1");
  CHECK(back("f64", of(3)) == "3");
  CHECK(back("f64", {std::nan("")}) == "null");
  CHECK(back("f32", {-std::numeric_limits<double>::infinity()}) == "null");
  CHECK(back("letter", of("x")) == "\"x\"");
  CHECK(back("letter", of("\u00e9")) == "\"\u00e9\"");
  CHECK(back("node", of("n\u00e9\"\\\n")) == "\"n\u00e9\\\"\\\\\\u000a\"");
  CHECK(back("mode", of("on")) == "\"on\"");
  CHECK(back("mode", of(7)) == "\"on\"");
  CHECK(back("mode", {std::uint64_t{7}}) == "\"on\"");
  CHECK(back("rows", {List{{Struct{{"mode", of("on")}, {"text", of("a")}}}, {}}}) ==
        "[{\"text\":\"a\",\"mode\":\"on\"},{\"text\":\"\",\"mode\":\"off\"}]");
  CHECK(back("blob", {Blob{std::byte{255}, std::byte{0}}}) == "\"base64:/wA=\"");
  CHECK(back("blob", {List{of(1), of(2), of(3)}}) == "\"base64:AQID\"");
  CHECK(back("name", of("abcd")) == "\"base64:YWJjZA==\"");
  CHECK(back("letters", {List{of("a"), of("\u00ff")}}) == "\"base64:Yf8=\"");
  CHECK(back("small", {Blob{std::byte{1}}}) == "\"base64:AQ==\"");
  CHECK(back("grid", {List{{0.5}, of(-2)}}) == "[0.5,-2]");
}

TEST_CASE("bus: values that the type does not allow are refused, with path, value and what is allowed") {
  CHECK(says("flag", of(1), "v::S.flag is a whole number: 1", "a boolean is allowed"));
  CHECK(says("i8", of(128), "v::S.i8 is 128", "-128 to 127"));
  CHECK(says("u8", of(-1), "v::S.u8 is -1", "0 to 255"));
  CHECK(says("i32", {std::uint64_t{1} << 40}, "is 1099511627776", "-2147483648 to 2147483647"));
  CHECK(says("u64", of(-1), "is -1", "0 to 18446744073709551615"));
  CHECK(says("i16", {1.5}, "is a number: 1.5", "a whole number is allowed"));
  CHECK(says("i16", {true}, "is a boolean: true"));
  CHECK(says("f32", {1e39}, "is 1e+39, too large for a float", "declare a double"));
  CHECK(says("f64", of("1"), "is a text: \"1\""));
  CHECK(says("letter", of("ab"), "is \"ab\"", "one character"));
  CHECK(says("letter", of("\u20ac"), "is \"\u20ac\"", "U+00FF"));
  CHECK(says("letter", of(""), "is \"\""));
  CHECK(says("node", {std::string("a\0b", 3)}, "has a NUL in it", "sequence<octet>"));
  CHECK(says("node", of(1), "is a whole number: 1", "a text is allowed"));
  CHECK(says("mode", of("om"), "v::S.mode is \"om\" (nearest: on)", "off, on are allowed"));
  CHECK(says("mode", of(1), "is 1", "off, on are allowed"));
  CHECK(says("mode", {std::numeric_limits<std::uint64_t>::max()}, "is 18446744073709551615"));
  CHECK(says("rows", {List{{}, {}, {}}}, "has 3 elements", "2 are allowed"));
  CHECK(says("rows", {List{{}, {Struct{{"text", of("12345")}}}}}, "v::S.rows[1].text has 5 bytes: \"12345\"",
             "4 are allowed"));
  CHECK(says("rows", {List{{Struct{{"txt", of("1")}}}}}, "v::S.rows[0] has no field 'txt' (nearest: text)",
             "v::In has text, mode"));
  CHECK(says("rows", {List{{Struct{{"text", of("1")}, {"text", of("2")}}}}}, "has its field 'text' twice"));
  CHECK(says("rows", {Blob{}}, "is bytes", "a list is allowed"));
  CHECK(says("rows", {List{of(1)}}, "v::S.rows[0] is a whole number", "a structure is allowed"));
  CHECK(says("grid", {List{of(1)}}, "has 1 elements", "an array of 2"));
  CHECK(says("grid", of("ab"), "is a text", "a list"));
  CHECK(says("blob", of("ab"), "is a text", "a list"));
  CHECK(says("name", of("abc"), "has 3 elements", "an array of 4"));
  CHECK(says("small", {Blob(3)}, "has 3 elements", "2 are allowed"));
  CHECK(says("small", {List{of(256)}}, "v::S.small[0] is 256"));
  CHECK(says("Flag", {true}, "has no field 'Flag' (nearest: flag)"));
  std::vector<std::byte> payload;
  CHECK(encode(*type, of(1), payload).error().what == "v::S is a whole number: 1");
  CHECK(says("mode", {std::string(100, 'x')}, "xxx …"));
}

TEST_CASE("bus: what is no sample does not decode, and says why") {
  const auto no = decode(*type, {});
  REQUIRE_FALSE(no);
  CHECK(no.error().code == "bus.malformed");
  CHECK(no.error().what.find("encapsulation") != std::string::npos);
}

TEST_CASE("bus: a sample that would take too much memory as values is refused") {
  const auto wide = structure("W", {{"all", sequence_of(primitive(Kind::boolean)), false, ""}});
  std::vector<std::byte> payload;
  CdrWriter out(payload);
  out.put(static_cast<std::uint32_t>(limit::values));
  payload.resize(payload.size() + limit::values);
  REQUIRE(verify(*wide, payload));
  const auto no = decode(*wide, payload);
  REQUIRE_FALSE(no);
  CHECK(no.error().code == "bus.too_large");
}

TEST_CASE("bus: JSON is JSON whatever a string holds") {
  CHECK(to_json(of("\xff"
                   "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80")) == "\"\ufffda\u00e9\u20ac\U0001f600\"");
  CHECK(to_json(of("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82")) ==
        "\"\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\"");
  CHECK(to_json({List{{}, {true}, of(-1), {Blob{std::byte{1}, std::byte{2}}}}}) == "[null,true,-1,\"base64:AQI=\"]");
  CHECK(to_json({Struct{{"a\"", {1e300}}}}) == "{\"a\\\"\":1e+300}");
}
