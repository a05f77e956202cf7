#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/block.hpp"

namespace {

struct MemorySink final : sonde::BlockSink {
  std::vector<std::byte> bytes;
  bool full = false;
  sonde::Result<void> put(std::span<const std::byte> b) override {
    if (full) return sonde::Error{"core.disk_full", "full", ""};
    bytes.insert(bytes.end(), b.begin(), b.end());
    return {};
  }
  sonde::Result<void> sync() override { return {}; }
};

const sonde::RecordSchema schema{R"({"fields": [["v", "<f8", []]]})", 8};

void push(sonde::RecordWriter& w, double v) {
  if (void* p = w.reserve()) {
    std::memcpy(p, &v, sizeof v);
    w.commit();
  }
}

}  // namespace

TEST_CASE("crc32 equals the published check value and chains") {
  const char text[] = "123456789";
  const auto bytes = std::as_bytes(std::span(text, 9));
  CHECK(sonde::crc32(bytes) == 0xcbf43926u);  // the check value of CRC-32/ISO-HDLC
  CHECK(sonde::crc32(bytes.subspan(4), sonde::crc32(bytes.first(4))) == 0xcbf43926u);
  CHECK(sonde::crc32({}) == 0);
}

TEST_CASE("a full buffer drops records and counts them in the next block") {
  MemorySink sink;
  auto writer = sonde::RecordWriter::open(sink, schema, 4, 0);
  REQUIRE(writer);
  for (int k = 0; k < 6; ++k) push(*writer, k);
  CHECK(writer->dropped() == 2);
  const std::size_t before = sink.bytes.size();
  REQUIRE(writer->flush());
  CHECK(sink.bytes.size() - before == sonde::RecordWriter::block_header_bytes + 4 * 8);
  std::uint64_t dropped;
  std::memcpy(&dropped, sink.bytes.data() + before + 16, 8);
  CHECK(dropped == 2);
  push(*writer, 7);
  CHECK(writer->buffered() == 1);
}

TEST_CASE("the cap is an error that names itself, and nothing is written past it") {
  MemorySink sink;
  auto writer = sonde::RecordWriter::open(sink, schema, 4, 100);
  REQUIRE(writer);
  push(*writer, 1);
  REQUIRE(writer->flush());
  const std::size_t size = sink.bytes.size();
  for (int k = 0; k < 4; ++k) push(*writer, k);
  auto done = writer->flush();
  REQUIRE_FALSE(done);
  CHECK(done.error().code == "core.cap_reached");
  CHECK(sink.bytes.size() == size);
  CHECK(writer->dropped() == 4);
}

TEST_CASE("a sink that fails costs the buffered records, not the writer") {
  MemorySink sink;
  auto writer = sonde::RecordWriter::open(sink, schema, 4, 0);
  REQUIRE(writer);
  push(*writer, 1);
  sink.full = true;
  CHECK_FALSE(writer->flush());
  sink.full = false;
  push(*writer, 2);
  CHECK(writer->flush());
  CHECK(writer->dropped() == 1);
}

TEST_CASE("a folder that is not there is said") {
  auto sink = sonde::FileSink::create("/proc/nonexistent/x.blk");
  REQUIRE_FALSE(sink);
  CHECK(sink.error().code == "core.cannot_write");
}

TEST_CASE("the header carries its own checksum and blocks begin at a multiple of eight") {
  MemorySink sink;
  REQUIRE(sonde::RecordWriter::open(sink, schema, 4, 0));
  REQUIRE(sink.bytes.size() % 8 == 0);
  std::uint32_t bytes, crc;
  std::memcpy(&bytes, sink.bytes.data() + 12, 4);
  std::memcpy(&crc, sink.bytes.data() + 16, 4);
  const std::span<const std::byte> all(sink.bytes);
  REQUIRE(all.size() == 24 + bytes);
  CHECK(crc == sonde::crc32(all.subspan(24), sonde::crc32(all.subspan(8, 8))));
}
