/// Records of an HDF5 file in the store that somebody changed.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/h5/failure.hpp"
#include "store/h5/records.hpp"

namespace {

using namespace sonde::store::h5;

/// What is said of a record; "" where it is read.
template <typename Decode> std::string refused(Decode&& decode) {
  try {
    decode();
    return "";
  } catch (const Failure& failure) {
    CHECK(std::string(failure.what()).size() > 0);
    return failure.what();
  }
}
std::string refused_header(const std::string& record) {
  return refused([&] { decode_header(record); });
}
bool says(const std::string& error, std::string_view part) { return error.find(part) != error.npos; }

FileRecord file() { return {0x1234, 7, 2, 1u << 20, "properties"}; }
Link link(Link::Kind kind) { return {kind, kind == Link::Kind::hard ? 5u : 0u, "a/path", "file", -3, 1}; }
Attribute attribute() { return {"type", "space", 9, "data", "heap", 4, 0}; }
Header header(Kind kind) {
  Header o;
  o.kind = kind;
  o.links_to = 2;
  o.changed_s = 1'700'000'000;
  o.properties = "properties";
  o.comment = "a comment";
  o.tracks_times = o.tracks_attribute_order = true;
  if (kind == Kind::group) {
    o.tracks_link_order = true;
    o.next_link_order = 8;
    o.link_count = 6;
  }
  if (kind != Kind::group) o.type = "type";
  if (kind == Kind::dataset) {
    o.space_class = 1;
    o.extent = {10, 0};
    o.extent_max = {10, ~std::uint64_t{0}};
    o.chunk = {4, 4};
    o.filtered = true;
    o.data_end = 4096;
    o.heap_end = 77;
    o.fill = "fill";
  }
  return o;
}

struct Kept {
  const char* name;
  std::string record;
  /// Reads, and writes again.
  std::function<std::string(std::string_view)> again;
};
std::vector<Kept> records() {
  const auto of_header = [](std::string_view record) { return encode(decode_header(record)); };
  const auto of_link = [](std::string_view record) {
    std::string name;
    const auto link = decode_link(record, name);
    return encode(name, link);
  };
  const auto of_attribute = [](std::string_view record) {
    std::string name;
    const auto attribute = decode_attribute(record, name);
    return encode(name, attribute);
  };
  std::vector<Kept> out;
  out.push_back({"file", encode(file()), [](std::string_view r) { return encode(decode_file(r, "/a/file.h5")); }});
  for (const auto kind : {Kind::group, Kind::dataset, Kind::datatype})
    out.push_back({"header", encode(header(kind)), of_header});
  for (const auto kind : {Link::Kind::hard, Link::Kind::soft, Link::Kind::external})
    out.push_back({"link", encode("a name", link(kind)), of_link});
  out.push_back({"attribute", encode("a/name", attribute()), of_attribute});
  out.push_back(
      {"chunk", encode(Chunk{1 << 20, 100, 120, 3}), [](std::string_view r) { return encode(decode_chunk(r)); }});
  out.push_back(
      {"region", encode(RegionRecord{17, "space"}), [](std::string_view r) { return encode(decode_region(r)); }});
  return out;
}

}  // namespace

TEST_CASE("hostile: a record has one encoding, and each of its beginnings is refused") {
  for (const auto& kept : records()) {
    CAPTURE(kept.name);
    CHECK(kept.again(kept.record) == kept.record);
    for (std::size_t n = 0; n < kept.record.size(); ++n) {
      CAPTURE(n);
      CHECK(says(refused([&] { kept.again(kept.record.substr(0, n)); }), "is truncated"));
    }
    CHECK(says(refused([&] { kept.again(kept.record + "x"); }), "continues beyond its end"));
  }
}

TEST_CASE("hostile: a changed record is refused, or read as what it says") {
  std::mt19937 dice(20260402);
  for (const auto& kept : records()) {
    CAPTURE(kept.name);
    std::size_t bad = 0;
    for (int round = 0; round < 20000; ++round) {
      std::string changed = kept.record;
      for (unsigned k = 1 + dice() % 4; k > 0; --k) changed[dice() % changed.size()] = static_cast<char>(dice());
      if (dice() % 4 == 0) changed.resize(dice() % (changed.size() + 1));
      bad += !refused([&] {
                if (kept.again(changed) != changed) FAIL("a record is written otherwise than it was read");
              }).empty();
    }
    CHECK(bad > 0);
  }
}

TEST_CASE("hostile: records of another version or of an unknown kind are refused") {
  for (const auto& kept : records()) {
    if (kept.name == std::string_view("chunk") || kept.name == std::string_view("region")) continue;
    CAPTURE(kept.name);
    std::string later = kept.record;
    later[0] = 2;
    CHECK(says(refused([&] { kept.again(later); }), "version 2"));
  }
  for (const int kind : {0, 4, 255}) {
    std::string record = encode(header(Kind::group));
    record[1] = static_cast<char>(kind);
    CHECK(says(refused_header(record), "is of an unknown kind"));
  }
  std::string record = encode("x", link(Link::Kind::hard)), name;
  record[1] = 3;
  CHECK(says(refused([&] { decode_link(record, name); }), "is of an unknown kind"));
}

TEST_CASE("hostile: a dataset's header says one number of axes") {
  const auto with = [](const std::function<void(Header&)>& change) {
    auto o = header(Kind::dataset);
    change(o);
    return refused_header(encode(o));
  };
  CHECK(with([](Header&) {}) == "");
  CHECK(says(with([](Header& o) { o.space_class = 3; }), "dataspace of an unknown class"));
  CHECK(says(with([](Header& o) { o.space_class = 0; }), "does not match its dataspace"));
  CHECK(says(with([](Header& o) { o.extent = o.extent_max = o.chunk = {}; }), "does not match its dataspace"));
  CHECK(says(with([](Header& o) { o.extent = o.extent_max = std::vector<std::uint64_t>(33, 1); }),
             "does not match its dataspace"));
  CHECK(says(with([](Header& o) { o.extent_max = {10}; }), "a different number of axes"));
  CHECK(says(with([](Header& o) { o.chunk = {4}; }), "a different number of axes"));
  CHECK(says(with([](Header& o) { o.chunk = {4, 4, 4}; }), "a different number of axes"));
  CHECK(says(with([](Header& o) { o.extent = {11, 0}; }), "longer than its limit"));
  // A chunk without extent would be divided by; one of 2^64 elements would have none.
  CHECK(says(with([](Header& o) { o.chunk = {4, 0}; }), "has empty chunks"));
  CHECK(says(with([](Header& o) { o.chunk = {std::uint64_t{1} << 32, std::uint64_t{1} << 32}; }), "2^64 elements"));
  CHECK(says(with([](Header& o) { o.chunk = {}; }), "an invalid layout"));
  CHECK(says(with([](Header& o) { o.compact = true; }), "an invalid layout"));
  CHECK(with([](Header& o) {
          o.space_class = 0;
          o.extent = o.extent_max = o.chunk = {};
          o.filtered = false;
        }) == "");
}

TEST_CASE("hostile: names have no NUL, and are there") {
  std::string name;
  for (const std::string_view bad : {std::string_view(""), std::string_view("a\0b", 3)}) {
    CHECK(says(refused([&] { decode_link(encode(bad, link(Link::Kind::soft)), name); }), "has no name"));
    CHECK(says(refused([&] { decode_attribute(encode(bad, attribute()), name); }), "has no name"));
  }
  auto strange = link(Link::Kind::soft);
  strange.charset = 2;
  CHECK(says(refused([&] { decode_link(encode("x", strange), name); }), "character set"));
}

TEST_CASE("hostile: a file's stripes have an extent") {
  for (const auto& [stripes, bytes] : {std::pair<std::uint32_t, std::uint64_t>{0, 1}, {1, 0}}) {
    auto bad = file();
    bad.stripes = stripes;
    bad.stripe_bytes = bytes;
    CHECK(says(refused([&] { decode_file(encode(bad), "x"); }), "empty stripes"));
  }
}

TEST_CASE("hostile: a chunk lies in its place, and its place within 2^64 bytes") {
  const auto said = [](const Chunk& chunk) { return refused([&] { decode_chunk(encode(chunk)); }); };
  CHECK(said({0, 10, 10, 0}) == "");
  CHECK(says(said({0, 0, 10, 0}), "has no bytes"));
  CHECK(says(said({0, 11, 10, 0}), "larger than its place"));
  CHECK(says(said({std::numeric_limits<std::uint64_t>::max(), 1, 1, 0}), "larger than its place"));
}

TEST_CASE("hostile: a chunk's key has one spelling") {
  const auto said = [](std::string_view text) { return refused([&] { chunk_at(text); }); };
  CHECK(chunk_at("4.0.7") == ChunkAt{4, 0, 7});
  CHECK(chunk_at("18446744073709551615") == ChunkAt{std::numeric_limits<std::uint64_t>::max()});
  std::string many = "1";
  for (int k = 1; k < 32; ++k) many += ".1";
  CHECK(chunk_at(many).size() == 32);
  for (const auto& bad :
       {std::string(), std::string("."), std::string("1."), std::string(".1"), std::string("1..2"), std::string("01"),
        std::string("+1"), std::string("-1"), std::string("1 "), std::string("x"), std::string("1\0", 2),
        std::string("18446744073709551616"), std::string("99999999999999999999999"), many + ".1"}) {
    CAPTURE(bad);
    CHECK(says(said(bad), "is not a list of numbers"));
  }
}

TEST_CASE("hostile: long names have keys of their own") {
  const std::string long_name(500, 'n');
  CHECK(named_key('l', 1, "name") == "l0000000000000001name");
  CHECK(named_key('a', 1, long_name).size() <= 440);
  CHECK(named_key('a', 1, long_name) != named_key('a', 1, long_name + "n"));
  CHECK(chunk_key(1, {4, 0, 7}) == "c00000000000000014.0.7");
}
