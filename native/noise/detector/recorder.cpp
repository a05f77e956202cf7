#include "noise/detector/recorder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/json.hpp"

namespace sonde::noise {

RecordSchema schema_of(const Options& options, const MpiTeam& team, const Place& place, double began_s) {
  std::string fields = "[";
  for (const char* name : {"kind", "block", "segment", "variant", "n", "part", "complete", "pad"})
    fields += "[\"" + std::string(name) + "\",\"<u4\",[]],";
  for (const char* name : {"iterations", "stalls_lost", "involuntary"})
    fields += "[\"" + std::string(name) + "\",\"<u8\",[]],";
  for (const char* name : {"t_begin", "length", "excluded", "run_delay", "cpu", "resumed"})
    fields += "[\"" + std::string(name) + "\",\"<f8\",[]],";
  fields += "[\"payload\",\"|u1\",[" + std::to_string(payload_bytes) + "]]]";
  std::vector<std::string> names;
  for (const auto& variant : options.variants) names.push_back(variant.name);
  JsonLine header;
  header.raw("fields", fields).add("schema", "noise/1").add("kind", "run").add("rank", team.rank());
  header.add("ranks", team.size()).add("variants", names).add("op", options.op).add("size", options.bytes);
  header.add("classes", Histogram::classes).add("lowest_bit", Histogram::lowest_bit).add("cuts", Histogram::cuts);
  header.add_name("host", place.host).add("cpu", place.cpu).add("core", place.core).add("l3", place.l3);
  header.add("numa", place.numa).add("package", place.package);
  header.raw("began_ns", std::to_string(static_cast<std::int64_t>(began_s * 1e9)));
  return {header.text(), sizeof(RecordHead) + payload_bytes};
}

Result<void> Recorder::put(const RecordHead& head, std::span<const std::byte> payload) {
  if (writer_->room() == 0)
    if (auto done = writer_->flush(); !done) return done;
  auto* out = static_cast<std::byte*>(writer_->reserve());
  if (out == nullptr) return {};  // the cap: counted by the writer
  std::memcpy(out, &head, sizeof head);
  std::memcpy(out + sizeof head, payload.data(), payload.size());
  std::memset(out + sizeof head + payload.size(), 0, payload_bytes - payload.size());
  writer_->commit();
  return {};
}

Result<void> Recorder::block(std::uint32_t number, std::uint32_t segment, std::uint32_t variant, const Block& block,
                             double resumed_s) {
  static_assert(Histogram::classes * sizeof(std::uint32_t) <= payload_bytes);
  RecordHead head{};
  head.kind = static_cast<std::uint32_t>(Kind::block);
  head.block = number;
  head.segment = segment;
  head.variant = variant;
  head.n = static_cast<std::uint32_t>(block.stalls.size());
  head.complete = 1;
  head.iterations = block.iterations;
  head.stalls_lost = block.stalls_lost;
  head.involuntary = block.involuntary;
  head.t_begin = static_cast<double>(block.begin_ns) * 1e-9 - began_s_;
  head.length = block.length_s;
  head.excluded = block.excluded_s;
  head.run_delay = block.run_delay_s;
  head.cpu = block.cpu_s;
  head.resumed = resumed_s - began_s_;
  if (auto done = put(head, std::as_bytes(std::span(block.count))); !done) return done;
  constexpr std::size_t each = payload_bytes / sizeof(Stall);
  const std::span<const Stall> all(block.stalls);
  head.kind = static_cast<std::uint32_t>(Kind::stalls);
  for (std::size_t begin = 0; begin < all.size(); begin += each, ++head.part) {
    const auto piece = all.subspan(begin, std::min(each, all.size() - begin));
    head.n = static_cast<std::uint32_t>(piece.size());
    if (auto done = put(head, std::as_bytes(piece)); !done) return done;
  }
  return {};
}

Result<void> Recorder::iterations(std::uint32_t number, std::span<const std::uint32_t> ticks) {
  RecordHead head{};
  head.kind = static_cast<std::uint32_t>(Kind::iterations);
  head.block = number;
  constexpr std::size_t each = payload_bytes / sizeof(std::uint32_t);
  for (std::size_t begin = 0; begin < ticks.size(); begin += each, ++head.part) {
    const auto piece = ticks.subspan(begin, std::min(each, ticks.size() - begin));
    head.n = static_cast<std::uint32_t>(piece.size());
    if (auto done = put(head, std::as_bytes(piece)); !done) return done;
  }
  return {};
}

Result<void> Recorder::values(Kind kind, std::uint32_t block, std::uint32_t segment, std::uint32_t variant,
                              std::span<const double> values) {
  RecordHead head{};
  head.kind = static_cast<std::uint32_t>(kind);
  head.block = block;
  head.segment = segment;
  head.variant = variant;
  head.n = static_cast<std::uint32_t>(values.size());
  return put(head, std::as_bytes(values));
}

}  // namespace sonde::noise
