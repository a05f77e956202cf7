#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "store/wire.hpp"

using namespace sonde::store;

TEST_CASE("crc32c of every length and alignment is what a table gives, byte by byte") {
  std::uint32_t table[256];
  for (std::uint32_t k = 0; k < 256; ++k) {
    table[k] = k;
    for (int bit = 0; bit < 8; ++bit) table[k] = table[k] >> 1 ^ (table[k] & 1 ? 0x82f63b78u : 0);
  }
  std::vector<std::byte> data(40'000);
  std::uint32_t random = 1;
  for (auto& b : data) b = static_cast<std::byte>((random = random * 1664525u + 1013904223u) >> 24);
  for (const std::size_t offset : {0u, 1u, 7u}) {
    for (const std::uint32_t seed : {0u, 0xdeadbeefu}) {
      std::uint32_t slow = ~seed;
      std::size_t wrong = 0;
      for (std::size_t n = 0; offset + n < data.size(); ++n) {
        if (n <= 6000 || n % 997 == 0 || (n > 16'380 && n < 16'390))
          wrong += wire::crc32c(Bytes(data).subspan(offset, n), seed) != ~slow;
        slow = slow >> 8 ^ table[(slow ^ static_cast<std::uint8_t>(data[offset + n])) & 0xff];
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("crc32c is that of RFC 3720, and chains") {
  // Appendix B.4 of the RFC: 32 bytes of zeros, of ones, and 0..31.
  std::vector<std::byte> zeros(32), ones(32, std::byte{0xff}), count(32);
  for (int k = 0; k < 32; ++k) count[k] = static_cast<std::byte>(k);
  CHECK(wire::crc32c(zeros) == 0x8a9136aa);
  CHECK(wire::crc32c(ones) == 0x62a8ab43);
  CHECK(wire::crc32c(count) == 0x46dd794e);
  CHECK(wire::crc32c(Bytes(count).subspan(7), wire::crc32c(Bytes(count).first(7))) == 0x46dd794e);
  CHECK(wire::crc32c({}, 0x1234) == 0x1234);
}

TEST_CASE("a header comes back as it was sent, and any changed bit is seen") {
  wire::Header h;
  h.kind = wire::Kind::request;
  h.flags = wire::more | wire::data_sum;
  h.id = 0x0123456789abcdef;
  h.ops = 3;
  h.table_bytes = 96;
  h.data_bytes = 4096;
  h.role = Role::kv;
  h.safety = Safety::storage;
  h.part = 2;
  h.batch_ops = 1000;
  h.timeout_ms = 1500;
  h.body_crc = 0xdeadbeef;
  std::byte bytes[wire::header_bytes];
  wire::encode(h, bytes);
  const auto back = wire::decode(bytes);
  REQUIRE(back);
  CHECK((*back).id == h.id);
  CHECK((*back).flags == h.flags);
  CHECK((*back).batch_ops == 1000);
  CHECK((*back).timeout_ms == 1500);
  CHECK((*back).body_crc == h.body_crc);
  for (std::size_t bit = 0; bit < 8 * wire::header_bytes; ++bit) {
    std::byte bad[wire::header_bytes];
    std::memcpy(bad, bytes, sizeof bad);
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    CHECK_FALSE(wire::decode(bad));
  }
}

TEST_CASE("a table sends equal names once and gives them back") {
  wire::TableWriter writer;
  wire::Record r;
  r.code = Code::object_write;
  r.space = "fields";
  r.key = "pressure";
  r.data_bytes = 10;
  for (std::uint32_t k = 0; k < 3; ++k) {
    r.index = k;
    r.offset = 10 * k;
    writer.add(r);
  }
  r.key = "temperature";
  r.index = 3;
  writer.add(r);
  CHECK(writer.bytes() == 4 * wire::record_bytes + 16 + 16);
  wire::Header h;
  h.ops = writer.ops();
  h.table_bytes = static_cast<std::uint32_t>(writer.bytes());
  h.data_bytes = 40;
  h.batch_ops = 4;
  std::vector<wire::Record> records;
  REQUIRE(wire::read_table(h, writer.table(), records));
  REQUIRE(records.size() == 4);
  CHECK(records[2].key == "pressure");
  CHECK(records[2].offset == 20);
  CHECK(records[3].space == "fields");
  CHECK(records[3].key == "temperature");

  SUBCASE("a table cut anywhere is refused") {
    for (std::size_t n = 0; n < writer.bytes(); ++n) {
      auto cut = h;
      cut.table_bytes = static_cast<std::uint32_t>(n);
      CHECK_FALSE(wire::read_table(cut, writer.table().first(n), records));
    }
  }
  SUBCASE("an index outside the batch is refused") {
    h.batch_ops = 3;
    CHECK_FALSE(wire::read_table(h, writer.table(), records));
  }
  SUBCASE("data that does not add up is refused") {
    h.data_bytes = 41;
    CHECK_FALSE(wire::read_table(h, writer.table(), records));
  }
}
