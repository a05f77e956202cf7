#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
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
  template <typename T> void put(const T& value) {
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
  CHECK(seen(page.done()) ==
        std::vector<Seen>{{1000, 1, 8}, {1050, 7, 160}, {late + 4, 3, 4}, {late + 15, 4, 4}, {stamp + 1, 5, 4}});
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
  for (std::size_t length = 0; length < 200; ++length)
    CHECK(seen({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)}).size() <= 2);
  for (std::size_t at = 16; at < 180; ++at) {
    auto damaged = whole;
    damaged[at] = std::byte{0xff};
    seen(damaged);  // must not read behind the page, which a sanitizer would tell
  }
}

namespace {

struct Kept {
  std::int32_t thread;
  Record record;
  std::string path;
};

Watched watched(std::uint16_t function, bool size_is_result = false) {
  Watched one;
  one.function = function;
  if (size_is_result) one.size.part.from = Part::result;
  return one;
}

}  // namespace

TEST_CASE("io: entries and exits become calls") {
  std::vector<Kept> kept;
  auto keep = [&](std::int32_t thread, const Record& record, std::uint64_t, const std::string& path) {
    kept.push_back({thread, record, path});
  };
  Calls<decltype(keep)> calls(keep);
  const Watched seven = watched(7), seven_by_result = watched(7, true), eight = watched(8),
                eight_by_result = watched(8, true), nine = watched(9);
  const auto enter = [&](std::uint64_t time, int thread, const Watched& what, std::uint64_t stack = 0,
                         std::uint64_t size = unknown) {
    calls.take({time, thread, &what, false, stack, size, unknown, 64, 5, {}});
  };
  const auto leave = [&](std::uint64_t time, int thread, const Watched& what, std::int64_t result,
                         std::uint64_t stack = 0) {
    calls.take({time, thread, &what, true, stack, static_cast<std::uint64_t>(result), unknown, unknown, unknown, {}});
  };
  const auto flags = [&](std::size_t k) { return kept.at(k).record.flags; };

  SUBCASE("by thread, one within another, with what came back") {
    enter(10, 1, seven, 0, 100);
    enter(11, 2, seven_by_result);
    enter(12, 1, eight_by_result);
    leave(13, 1, eight_by_result, -5);
    leave(14, 2, seven_by_result, 4096);
    leave(20, 1, seven, 0);
    REQUIRE(kept.size() == 3);
    CHECK((kept[0].thread == 1 && kept[0].record.function == 8 && kept[0].record.depth == 1 &&
           flags(0) == flag_failed && kept[0].record.size == 0));
    CHECK((kept[1].thread == 2 && kept[1].record.size == 4096 && flags(1) == 0 && kept[1].record.offset == 64 &&
           kept[1].record.file == 5));
    CHECK((kept[2].record.begin == 10 && kept[2].record.end == 20 && kept[2].record.depth == 0 &&
           kept[2].record.size == 100));
  }
  SUBCASE("an exit without its entry is none") {
    leave(5, 1, seven, 0);
    enter(6, 1, seven);
    leave(7, 1, nine, 0);
    leave(8, 1, seven, 0);
    REQUIRE(kept.size() == 1);
    CHECK(kept[0].record.begin == 6);
  }
  SUBCASE("what was left by a jump, and what is under way at the end") {
    enter(1, 1, seven);
    enter(2, 1, eight);
    leave(3, 1, seven, 0);
    enter(4, 1, nine);
    calls.end();
    REQUIRE(kept.size() == 3);
    CHECK((kept[0].record.function == 8 && flags(0) == flag_entry_only && kept[0].record.end == 2));
    CHECK((kept[1].record.function == 7 && flags(1) == 0));
    CHECK((kept[2].record.function == 9 && flags(2) == flag_unfinished));
    CHECK(calls.left() == 1);
  }
  SUBCASE("of a recursion of which only the outer calls are seen to end, each ends with its own frame") {
    for (std::uint64_t k = 0; k < 5; ++k) enter(10 + k, 1, seven, 0x9000 - 0x10 * k);
    leave(20, 1, seven, 0, 0x9000 - 0x10 + 8);  // the second
    leave(21, 1, seven, 0, 0x9000 + 8);
    REQUIRE(kept.size() == 5);
    for (std::size_t k = 0; k < 3; ++k) CHECK(flags(k) == flag_entry_only);
    CHECK((kept[3].record.begin == 11 && kept[3].record.end == 20 && flags(3) == 0));
    CHECK((kept[4].record.begin == 10 && kept[4].record.end == 21 && kept[4].record.depth == 0));
    CHECK(calls.left() == 3);
  }
  SUBCASE("what longjmp left is over when its caller, or one above it, calls again") {
    for (int k = 0; k < 3; ++k) enter(1, 1, seven, 0x9000);
    enter(2, 1, eight, 0x9100);
    leave(3, 1, eight, 0, 0x9108);
    CHECK(kept.size() == 4);
    CHECK((kept[3].record.function == 8 && kept[3].record.depth == 0 && flags(3) == 0));
  }
  SUBCASE("a function that is jumped to at another's end is within it") {
    enter(1, 1, seven, 0x9000);
    enter(2, 1, eight, 0x9000);
    leave(3, 1, eight, 0, 0x9008);
    leave(4, 1, seven, 0, 0x9008);
    REQUIRE(kept.size() == 2);
    CHECK((kept[0].record.function == 8 && kept[0].record.depth == 1 && flags(0) == 0));
    CHECK((kept[1].record.function == 7 && kept[1].record.end == 4 && flags(1) == 0));
  }
  SUBCASE("calls on two stacks end each by itself") {
    enter(1, 1, seven, 0x7f0000000000);
    enter(2, 1, eight, 0x100000);  // a fiber's stack
    leave(3, 1, seven, 0, 0x7f0000000008);
    leave(4, 1, eight, 0, 0x100008);
    REQUIRE(kept.size() == 2);
    CHECK((kept[0].record.function == 7 && flags(0) == 0 && kept[0].record.end == 3));
    CHECK((kept[1].record.function == 8 && flags(1) == 0 && kept[1].record.end == 4));
  }
  SUBCASE("failures, widths, products and names are as the map says") {
    Watched opens = watched(1);
    opens.fails = Fails::null;
    opens.file.from = Part::result;
    Watched reads = watched(2, true);
    reads.fails = Fails::never;
    reads.result.width = Width::u32;
    Watched writes = watched(3);
    writes.fails = Fails::nonzero;
    writes.result.width = Width::i32;
    Watched begins = watched(4);
    begins.entry_only = true;
    calls.take({1, 1, &opens, false, 0x9000, unknown, unknown, unknown, unknown, "data"});
    leave(2, 1, opens, 0x123400000000, 0x9008);
    calls.take({3, 1, &opens, false, 0x9000, unknown, unknown, unknown, unknown, "nowhere"});
    leave(4, 1, opens, 0, 0x9008);
    calls.take({5, 1, &reads, false, 0x9000, unknown, 8, unknown, unknown, {}});
    leave(6, 1, reads, 0x500000002, 0x9008);
    calls.take({7, 1, &writes, false, 0x9000, 10, 4, unknown, unknown, {}});
    leave(8, 1, writes, 0x100000000, 0x9008);
    calls.take({9, 1, &begins, false, 0x9000, 3, unknown, unknown, unknown, {}});
    REQUIRE(kept.size() == 5);
    CHECK((kept[0].path == "data" && kept[0].record.file == folded(0x123400000000) && flags(0) == 0));
    CHECK((kept[1].path.empty() && kept[1].record.file == 0 && flags(1) == flag_failed));
    CHECK((kept[2].record.size == 16 && flags(2) == 0));
    CHECK((kept[3].record.size == 40 && flags(3) == 0));
    CHECK((kept[4].record.size == 3 && flags(4) == flag_entry_only && kept[4].record.end == 9));
    CHECK(calls.left() == 0);  // nobody looked for its end
  }
}

TEST_CASE("io: the specification of what is watched") {
  auto spec = parse_spec(
      "tracing /sys/kernel/tracing/instances/a%20b\nfolder /tmp/x\nhost n1\nmost 1000\nskip sh\nskip my%20prog\ncalls "
      "21 "
      "22\n"
      "attached 70 /usr/bin/a%20server\nthread 71 70\ncall 3 17 r @40 @16:i32\n"
      "entry 100 24\nentry 102 28\nexit 101 40\n"
      "probe 4 all both 16 32 @24:i32 null @28*@36 - r @44\nprobe 5 attached entry 16 0 - never @24:u32 - - -\n");
  REQUIRE(spec);
  CHECK(spec->tracing == "/sys/kernel/tracing/instances/a b");
  CHECK((spec->most_bytes == 1000 && spec->enter == 21 && spec->exit == 22));
  CHECK(spec->skipped == std::set<std::string, std::less<>>{"sh", "my prog"});
  CHECK((spec->attached.at(70) == "/usr/bin/a server" && spec->threads.at(71) == 70));
  const Watched& call = spec->calls.at(17);
  CHECK((call.function == 3 && call.size.part.from == Part::result && call.offset.at == 40 &&
         call.file.from == Part::entry && call.file.width == Width::i32));
  const Watched& probe = spec->probes.at(4);
  CHECK((probe.function == 4 && !probe.attached_only && !probe.entry_only && probe.entry_stack == 16 &&
         probe.exit_stack == 32 && probe.path == 44));
  CHECK((probe.fails == Fails::null && probe.result.at == 24 && probe.result.width == Width::i32 &&
         probe.file.from == Part::result));
  CHECK((probe.size.part.at == 28 && probe.size.factor.at == 36 && probe.offset.from == Part::none));
  CHECK((spec->entries == std::map<std::uint32_t, std::uint32_t>{{100, 24}, {102, 28}} && spec->exits.at(101) == 40));
  const Watched& entry = spec->probes.at(5);
  CHECK((entry.attached_only && entry.entry_only && entry.size.part.width == Width::u32));
  for (const char* bad : {"call 3 17 r",
                          "call x 17 r - -",
                          "call 3 17 @x - -",
                          "call 3 17 @99999 - -",
                          "nonsense 1",
                          "calls 1",
                          "probe 1 2 r - -",
                          "attached 5",
                          "attached 5 a b",
                          "attached 5 a%0",
                          "attached 5 a%00b",
                          "folder d",
                          "thread 5",
                          "probe 4 some both 16 32 @24 null - - - -",
                          "probe 4 all both 16 32 r null - - - -",
                          "probe 4 all both 16 32 @24 odd - - - -",
                          "probe 4 all both 16 32 @24 null - - -",
                          "probe 4 all both 16 32 @24:i16 null - - - -",
                          "probe 4 all 1 16 32 @24 null - - - -",
                          "entry 7",
                          "exit x 8",
                          "call 3 17 @8*- - -"}) {
    const auto refused = parse_spec("tracing a\nfolder b\nhost c\n" + std::string(bad) + "\n");
    REQUIRE(!refused);
    CHECK(refused.error().what.find(bad) != std::string::npos);
  }
  CHECK(!parse_spec("tracing a\nfolder b\n"));
}

TEST_CASE("io: a program's name cannot say what is to be watched") {
  auto spec = parse_spec("tracing a\nfolder b\nhost c\nattached 5 /bin/a%0Afolder%20/etc\n");
  REQUIRE(spec);
  CHECK(spec->attached.at(5) == "/bin/a\nfolder /etc");
  CHECK(spec->folder == "b");
  CHECK(!parse_spec("tracing a\nfolder b\nhost c\nattached 5 /bin/a\nfolder /etc\n"));  // as it was written once
}
