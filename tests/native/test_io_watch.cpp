#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "io/watch/calls.hpp"
#include "io/watch/ring.hpp"
#include "io/watch/spec.hpp"

using namespace sonde;
using namespace sonde::io;

namespace {

/// A page of the ring buffer, put together as the kernel does.
struct Page {
  std::vector<std::byte> bytes;

  explicit Page(std::uint64_t time) {
    put(time);
    put(std::uint64_t{0});
  }
  template <typename T>
  void put(const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof value);
  }
  void head(std::uint32_t kind, std::uint32_t delta) { put(kind | delta << 5); }
  void event(std::uint32_t delta, const std::vector<std::uint32_t>& data) {
    if (data.size() > 28) {
      head(0, delta);
      put(static_cast<std::uint32_t>(4 + 4 * data.size()));
    } else {
      head(static_cast<std::uint32_t>(data.size()), delta);
    }
    for (const std::uint32_t word : data) put(word);
  }
  std::vector<std::byte> done(std::uint64_t flags = 0, std::uint64_t missed = 0) {
    const std::uint64_t commit = (bytes.size() - 16) | flags;
    std::memcpy(bytes.data() + 8, &commit, 8);
    std::vector<std::byte> page = bytes;
    if (flags & 1u << 30) {
      const auto* from = reinterpret_cast<const std::byte*>(&missed);
      page.insert(page.end(), from, from + 8);
    }
    page.resize(4096);
    return page;
  }
};

struct Seen {
  std::uint64_t time;
  std::uint32_t first;
  std::size_t bytes;
  bool operator==(const Seen&) const = default;
};

std::vector<Seen> seen(const std::vector<std::byte>& page, Lost* lost = nullptr) {
  std::vector<Seen> out;
  const Lost found = each_event(page, [&](std::uint64_t time, std::span<const std::byte> data) {
    std::uint32_t first;
    std::memcpy(&first, data.data(), 4);
    out.push_back({time, first, data.size()});
  });
  if (lost) *lost = found;
  return out;
}

}  // namespace

TEST_CASE("io: pages of the kernel's ring buffer are told apart") {
  Page page(1000);
  page.event(0, {1, 2});
  page.event(50, std::vector<std::uint32_t>(40, 7));  // too long for its head to tell
  page.head(30, 3);                                   // a long time
  page.put(std::uint32_t{2});
  page.event(4, {3});
  page.head(29, 6);  // an event that was taken back: its time counts
  page.put(std::uint32_t{8});
  page.put(std::uint32_t{0});
  page.event(5, {4});
  page.head(31, 9);  // a time by itself
  page.put(std::uint32_t{5});
  page.event(1, {5});
  page.head(29, 0);  // the end, whatever stands behind it
  page.put(std::uint32_t{0xffffffff});
  const std::uint64_t late = 1050 + 3 + (2ull << 27), stamp = 9 + (5ull << 27);
  CHECK(seen(page.done()) == std::vector<Seen>{{1000, 1, 8}, {1050, 7, 160}, {late + 4, 3, 4}, {late + 15, 4, 4}, {stamp + 1, 5, 4}});
}

TEST_CASE("io: what a page lost is told") {
  Page page(0);
  page.event(1, {1});
  Lost lost;
  CHECK(seen(page.done(), &lost).size() == 1);
  CHECK((lost.events == 0 && !lost.unknown));
  seen(page.done(1u << 31), &lost);
  CHECK((lost.events == 0 && lost.unknown));
  CHECK(seen(page.done(1u << 31 | 1u << 30, 77), &lost).size() == 1);
  CHECK((lost.events == 77 && !lost.unknown));
}

TEST_CASE("io: a page that is cut short or damaged ends where it does") {
  Page page(0);
  page.event(1, {1, 2, 3});
  page.event(1, std::vector<std::uint32_t>(30, 9));
  const auto whole = page.done();
  for (std::size_t length = 0; length < 200; ++length) CHECK(seen({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}).size() <= 2);
  for (std::size_t at = 16; at < 180; ++at) {
    auto damaged = whole;
    damaged[at] = std::byte{0xff};
    seen(damaged);  // must not read behind the page, which a sanitizer would tell
  }
}

TEST_CASE("io: entries and exits become calls") {
  std::vector<std::pair<std::int32_t, Record>> kept;
  auto keep = [&](std::int32_t thread, const Record& record) { kept.emplace_back(thread, record); };
  Calls<decltype(keep)> calls(keep);
  const auto enter = [&](std::uint64_t time, int thread, std::uint16_t function, std::uint64_t size = unknown, bool by_result = false) {
    calls.take({time, thread, function, false, size, 64, 5, by_result});
  };
  const auto leave = [&](std::uint64_t time, int thread, std::uint16_t function, std::int64_t result) {
    calls.take({time, thread, function, true, static_cast<std::uint64_t>(result), unknown, unknown, false});
  };

  SUBCASE("by thread, one within another, with what came back") {
    enter(10, 1, 7, 100);
    enter(11, 2, 7, unknown, true);
    enter(12, 1, 8, unknown, true);
    leave(13, 1, 8, -5);
    leave(14, 2, 7, 4096);
    leave(20, 1, 7, 0);
    REQUIRE(kept.size() == 3);
    CHECK((kept[0].first == 1 && kept[0].second.function == 8 && kept[0].second.depth == 1 && kept[0].second.flags == flag_failed && kept[0].second.size == 0));
    CHECK((kept[1].first == 2 && kept[1].second.size == 4096 && kept[1].second.flags == 0 && kept[1].second.offset == 64 && kept[1].second.file == 5));
    CHECK((kept[2].second.begin == 10 && kept[2].second.end == 20 && kept[2].second.depth == 0 && kept[2].second.size == 100));
  }
  SUBCASE("an exit without its entry is none") {
    leave(5, 1, 7, 0);
    enter(6, 1, 7);
    leave(7, 1, 9, 0);
    leave(8, 1, 7, 0);
    REQUIRE(kept.size() == 1);
    CHECK(kept[0].second.begin == 6);
  }
  SUBCASE("what was left by a jump, and what is under way at the end") {
    enter(1, 1, 7);
    enter(2, 1, 8);
    leave(3, 1, 7, 0);
    enter(4, 1, 9);
    calls.end();
    REQUIRE(kept.size() == 3);
    CHECK((kept[0].second.function == 8 && kept[0].second.flags == flag_entry_only && kept[0].second.end == 2));
    CHECK((kept[1].second.function == 7 && kept[1].second.flags == 0));
    CHECK((kept[2].second.function == 9 && kept[2].second.flags == flag_unfinished));
  }
}

TEST_CASE("io: the specification of what is watched") {
  auto spec = parse_spec(
      "tracing /sys/kernel/tracing/instances/a b\nfolder /tmp/x\nhost n1\nmost 1000\nskip sh\nskip my prog\ncalls 21 22\n"
      "call 3 17 r @40 @16\nprobe 4 100 101 - - -\n");
  REQUIRE(spec);
  CHECK(spec->tracing == "/sys/kernel/tracing/instances/a b");
  CHECK((spec->most_bytes == 1000 && spec->enter == 21 && spec->exit == 22));
  CHECK(spec->skipped == std::set<std::string, std::less<>>{"sh", "my prog"});
  const Watched& call = spec->calls.at(17);
  CHECK((call.function == 3 && call.size.from == Where::result && call.offset.at == 40 && call.file.from == Where::entry));
  CHECK((spec->entries.at(100).function == 4 && spec->exits.at(101).function == 4));
  for (const char* bad : {"call 3 17 r", "call x 17 r - -", "call 3 17 @x - -", "call 3 17 @99999 - -", "nonsense 1", "calls 1", "probe 1 2 r - -"}) {
    const auto refused = parse_spec("tracing a\nfolder b\nhost c\n" + std::string(bad) + "\n");
    REQUIRE(!refused);
    CHECK(refused.error().what.find(bad) != std::string::npos);
  }
  CHECK(!parse_spec("tracing a\nfolder b\n"));
}
