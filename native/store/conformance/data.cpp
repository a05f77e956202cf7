// Checks of the role data.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "store/conformance/suite.hpp"

namespace sonde::store::conformance {

namespace {

Op make(Code code, std::string_view key, std::uint8_t flags = 0) {
  Op op;
  op.code = code;
  op.flags = flags;
  op.space = space;
  op.key = key;
  return op;
}
Op create(std::string_view key, std::uint8_t flags = 0) { return make(Code::object_create, key, flags); }
Op write(std::string_view key, std::uint64_t offset, std::string_view data, std::uint8_t flags = 0) {
  Op op = make(Code::object_write, key, flags);
  op.offset = offset;
  op.data = bytes_of(data);
  return op;
}
Op read(std::string_view key, std::uint64_t offset, std::uint64_t length) {
  Op op = make(Code::object_read, key);
  op.offset = offset;
  op.length = length;
  return op;
}
Op truncate(std::string_view key, std::uint64_t length) {
  Op op = make(Code::object_truncate, key);
  op.length = length;
  return op;
}
Op status(std::string_view key) { return make(Code::object_status, key); }
Op remove(std::string_view key) { return make(Code::object_remove, key); }

std::vector<std::string> list_all(Suite& suite, std::string_view of_space, std::string_view prefix,
                                  std::uint64_t page) {
  std::vector<std::string> names;
  std::string after;
  for (;;) {
    Op op = make(Code::object_list, prefix);
    op.space = of_space;
    op.length = page;
    op.data = bytes_of(after);
    const Answers got = suite.run({op});
    suite.expect(got.one().status, Status::ok, "list");
    std::vector<std::pair<std::string_view, Bytes>> pairs;
    suite.expect(unpack_pairs(got.one().data, pairs), "the answer of a list is truncated");
    suite.expect(pairs.size() == got.one().value, "value is not the number of names");
    suite.expect(!page || pairs.size() <= page, "a page has more entries than requested");
    for (const auto& [name, value] : pairs) {
      suite.expect(names.empty() || names.back() < name,
                   "a list is not in ascending order, or a page begins before the previous one's end");
      names.emplace_back(name);
    }
    if (!got.one().time_ns) return names;
    suite.expect(!pairs.empty(), "an empty page says that more follow");
    after = names.back();
  }
}

/// Names that are difficult for a backend.
std::vector<std::string> hard_names() {
  std::vector<std::string> names{".",   "..", "...", "/", "/etc/passwd", "../up", "a/b", "a",  "a ",
                                 " a",  "A",  "~",   "+", "%",           "%2F",   "%00", "a~", "a+b",
                                 "x\n", "\t", "\\",  "ä", "*",           "'",     "\""};
  std::string every;
  for (int c = 1; c < 256; ++c) every += static_cast<char>(c);
  names.push_back(every);
  names.emplace_back("\xff");
  names.emplace_back("\xff\xfe");
  for (const std::size_t n : {249u, 250u, 251u, 255u, 256u, 1023u, 1024u}) {
    names.emplace_back(n, 'n');
    names.push_back(std::string(n - 1, 'n') + 'o');
    names.push_back(std::string(n, '/'));
  }
  return names;
}

}  // namespace

void check_data(Suite& suite) {
  if (!suite.caps().keeps) {
    suite.check("every write is ok and every read gives zeros", [&] {
      const Answers got =
          suite.run({create("k"), write("k", 0, "abc"), read("k", 0, 3), truncate("k", 1), remove("k")});
      for (const Outcome& outcome : got.outcomes)
        suite.expect(outcome.status, Status::ok, "a backend that stores nothing");
      suite.expect(got[1].value == 3, "a write's value is the number of bytes");
      expect_text(suite, got[2], std::string(3, 0), "read");
    });
    return;
  }

  suite.check("an object that does not exist is not found", [&] {
    const Answers got = suite.run({read("none", 0, 1), status("none"), remove("none"), truncate("none", 0),
                                   write("none", 0, "x", flag::must_exist), status("none")});
    for (const Outcome& outcome : got.outcomes)
      suite.expect(outcome.status, Status::not_found, "an object that was never made");
  });

  suite.check("create makes an empty object, and succeeds if it already exists", [&] {
    const Answers got = suite.run(
        {create("create"), status("create"), write("create", 0, "abc"), create("create"), read("create", 0, 9)});
    suite.expect(got[0].status, Status::ok, "create");
    suite.expect(got[1].status == Status::ok && got[1].value == 0, "a new object is empty");
    suite.expect(got[3].status, Status::ok, "create again");
    expect_text(suite, got[4], "abc", "content after create again");
  });

  suite.check("exclusive create: exists the second time, also after a write, and again ok after a remove", [&] {
    suite.expect(suite.status(create("exclusive", flag::exclusive)), Status::ok, "first");
    suite.expect(suite.status(create("exclusive", flag::exclusive)), Status::exists, "second");
    suite.expect(suite.status(write("exclusive2", 0, "x")), Status::ok, "write");
    const Answers got = suite.run({create("exclusive2", flag::exclusive), remove("exclusive2"),
                                   create("exclusive2", flag::exclusive), status("exclusive2")});
    suite.expect(got[0].status, Status::exists, "of an object made by a write");
    suite.expect(got[2].status, Status::ok, "after a remove");
    suite.expect(got[3].value == 0, "a removed object is back");
  });

  suite.check("must_exist: a write to an existing object", [&] {
    const Answers got = suite.run({create("must"), write("must", 0, "ab", flag::must_exist), read("must", 0, 2)});
    suite.expect(got[1].status, Status::ok, "write");
    expect_text(suite, got[2], "ab", "read");
  });

  suite.check("writes overlap, extend, and leave holes that read as zeros", [&] {
    const Answers got = suite.run({write("holes", 0, "abcdef"), write("holes", 3, "XYZ!"), read("holes", 0, 100),
                                   write("holes", 200000, "end"), status("holes"), read("holes", 0, 10),
                                   read("holes", 199990, 100), read("holes", 65530, 12)});
    for (const std::size_t k : {0u, 1u, 3u}) suite.expect(got[k].status, Status::ok, "write");
    suite.expect(got[1].value == 4, "a write's value is the number of bytes written");
    expect_text(suite, got[2], "abcXYZ!", "overlapping writes");
    suite.expect(got[4].value == 200003, "size is " + std::to_string(got[4].value) + " instead of 200003");
    expect_text(suite, got[5], std::string("abcXYZ!") + std::string(3, 0), "the hole's beginning");
    expect_text(suite, got[6], std::string(10, 0) + "end", "the hole's end");
    expect_text(suite, got[7], std::string(12, 0), "within the hole");
  });

  suite.check("reads at and beyond the end are short, not errors", [&] {
    const Answers got = suite.run({write("end", 0, "12345"), read("end", 0, 5), read("end", 4, 5), read("end", 5, 1),
                                   read("end", 1000, 1), read("end", 0, 0), read("end", limit::object_bytes - 1, 1),
                                   read("end", 2, limit::object_bytes - 2)});
    expect_text(suite, got[1], "12345", "the whole object");
    expect_text(suite, got[2], "5", "the last byte");
    expect_text(suite, got[3], "", "at the end");
    expect_text(suite, got[4], "", "beyond the end");
    expect_text(suite, got[5], "", "of 0 bytes");
    expect_text(suite, got[6], "", "at the largest offset");
    expect_text(suite, got[7], "345", "of more bytes than an object can have");
  });

  suite.check("a write of 0 bytes makes an object and does not extend it", [&] {
    const Answers got = suite.run({write("nothing", 100, ""), status("nothing")});
    suite.expect(got[0].status, Status::ok, "write");
    suite.expect(got[1].status, Status::ok, "status");
    suite.expect(got[1].value == 0, "size is " + std::to_string(got[1].value));
  });

  suite.check("truncate shortens an object; if it grows again, the new part reads as zeros", [&] {
    const std::string text = pattern(150000, 1);
    const Answers got =
        suite.run({write("cut", 0, text), truncate("cut", 70001), status("cut"), truncate("cut", 150000),
                   read("cut", 0, 70001), read("cut", 70001, 100000), truncate("cut", 0), status("cut"),
                   write("cut", 10, "x"), read("cut", 0, 100), truncate("cut", 4), read("cut", 0, 100)});
    suite.expect(got[1].status == Status::ok && got[1].value == 70001, "truncate's value is the new size");
    suite.expect(got[2].value == 70001, "size after truncate");
    expect_text(suite, got[4], std::string_view(text).substr(0, 70001), "the remaining part");
    expect_text(suite, got[5], std::string(79999, 0), "the part that grew again");
    suite.expect(got[7].status == Status::ok && got[7].value == 0, "truncate to 0");
    expect_text(suite, got[9], std::string(10, 0) + 'x', "after truncate to 0");
    expect_text(suite, got[11], std::string(4, 0), "cut within a hole");
  });

  suite.check("status gives the size and the time of the last change", [&] {
    timespec before, after;
    clock_gettime(CLOCK_REALTIME, &before);
    const Answers got = suite.run({write("time", 0, "abc"), status("time")});
    clock_gettime(CLOCK_REALTIME, &after);
    suite.expect(got[1].status == Status::ok && got[1].value == 3, "size");
    const std::int64_t s = got[1].time_ns / 1'000'000'000;
    // File systems take their time from the kernel's tick, which may lag by one tick.
    suite.expect(s >= before.tv_sec - 1 && s <= after.tv_sec + 1,
                 "time is " + std::to_string(got[1].time_ns) + " ns since 1970");
  });

  suite.check("remove: the object is gone, and a new one of its name is empty", [&] {
    const Answers got = suite.run({write("gone", 0, "abc"), remove("gone"), status("gone"), read("gone", 0, 1),
                                   remove("gone"), write("gone", 1, "z"), read("gone", 0, 9)});
    suite.expect(got[1].status, Status::ok, "remove");
    for (const std::size_t k : {2u, 3u, 4u}) suite.expect(got[k].status, Status::not_found, "after remove");
    expect_text(suite, got[6], std::string(1, 0) + "z", "the new object");
  });

  suite.check("a failed operation does not affect the others", [&] {
    const Answers got = suite.run({write("alone", 0, "a"), read("alone-none", 0, 1), create("alone", flag::exclusive),
                                   write("alone", 1, "b"), read("alone", 0, 9)});
    suite.expect(got[0].status, Status::ok, "before");
    suite.expect(got[1].status, Status::not_found, "a read of a missing object");
    suite.expect(got[2].status, Status::exists, "an exclusive create");
    suite.expect(got[3].status, Status::ok, "after");
    expect_text(suite, got[4], "ab", "content");
  });

  suite.check("a batch of adjacent and of scattered writes reads back, in one batch and one by one", [&] {
    const std::string text = pattern(std::size_t{1000} * 512, 2);
    std::vector<Op> ops;
    const auto at = [](std::size_t k) { return (k * 7919 % 1000) * 512; };
    for (std::size_t k = 0; k < 1000; ++k)
      ops.push_back(write("batch", k * 512, std::string_view(text).substr(k * 512, 512)));
    for (std::size_t k = 0; k < 1000; ++k)
      ops.push_back(write("scatter", at(k), std::string_view(text).substr(at(k), 512)));
    const Answers written = suite.run(ops);
    for (const Outcome& outcome : written.outcomes)
      suite.expect(outcome.status == Status::ok && outcome.value == 512, "write");
    ops.clear();
    for (std::size_t k = 0; k < 1000; ++k) ops.push_back(read("batch", k * 512, 512));
    const Answers got = suite.run(ops);
    for (std::size_t k = 0; k < 1000; ++k)
      expect_text(suite, got[k], std::string_view(text).substr(k * 512, 512), "read " + std::to_string(k));
    const Answers one = suite.run({read("scatter", 0, text.size())});
    expect_text(suite, one[0], text, "the scattered object as a whole");
  });

  suite.check("a batch that alternates between two objects", [&] {
    std::vector<Op> ops;
    for (int k = 0; k < 50; ++k) ops.insert(ops.end(), {write("to", k, "t"), write("fro", k, "f")});
    ops.insert(ops.end(), {read("to", 0, 99), read("fro", 0, 99), remove("to"), write("fro", 0, "F"), status("to"),
                           read("fro", 0, 2)});
    const Answers got = suite.run(ops);
    expect_text(suite, got[100], std::string(50, 't'), "to");
    expect_text(suite, got[101], std::string(50, 'f'), "fro");
    suite.expect(got[104].status, Status::not_found, "the first object, after its remove");
    expect_text(suite, got[105], "Ff", "the second object, at the end");
  });

  suite.check("reads in a batch that cross the end of the object", [&] {
    const Answers got = suite.run({write("over", 0, "0123456789"), read("over", 0, 4), read("over", 4, 4),
                                   read("over", 8, 4), read("over", 12, 4)});
    expect_text(suite, got[1], "0123", "first");
    expect_text(suite, got[2], "4567", "second");
    expect_text(suite, got[3], "89", "the read across the end");
    expect_text(suite, got[4], "", "the read beyond the end");
  });

  suite.check("into: read data goes to the given memory, and not beyond it", [&] {
    std::string memory(8, '#');
    Op op = read("into", 0, 100);
    op.into = std::as_writable_bytes(std::span(memory.data() + 1, 5));
    Op shorter = read("into", 7, 100);
    std::string other(8, '#');
    shorter.into = std::as_writable_bytes(std::span(other));
    const Answers got = suite.run({write("into", 0, "abcdefghij"), op, shorter});
    expect_text(suite, got[1], "abcde", "read");
    suite.expect(got[1].data.data() == op.into.data(), "the answer is not in `into`");
    suite.expect(memory == "#abcde##", "memory is " + shown(memory));
    expect_text(suite, got[2], "hij", "a short read");
    suite.expect(other == "hij#####", "memory is " + shown(other));
  });

  suite.check("spaces do not mix", [&] {
    Op other = write("mix", 0, "other");
    other.space = "conformance2";
    Op other_read = read("mix", 0, 9);
    other_read.space = "conformance2";
    const Answers got = suite.run({write("mix", 0, "one"), other, read("mix", 0, 9), other_read});
    expect_text(suite, got[2], "one", "first space");
    expect_text(suite, got[3], "other", "second space");
  });

  suite.check("names of any bytes and of every length up to 1024, listed in byte order", [&] {
    auto names = hard_names();
    for (const auto& name : names) {
      Op op = write(name, 0, name);
      op.space = "conformance/\xff";
      suite.expect(suite.status(op), Status::ok, "write " + shown(name));
    }
    for (const auto& name : names) {
      Op op = read(name, 0, 2000);
      op.space = "conformance/\xff";
      const Answers got = suite.run({op});
      expect_text(suite, got.one(), name, "read " + shown(name));
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const std::uint64_t page : {0u, 1u, 7u}) {
      const auto listed = list_all(suite, "conformance/\xff", "", page);
      suite.expect(listed == names, "listed " + std::to_string(listed.size()) + " of " + std::to_string(names.size()) +
                                        " names, or in another order, in pages of " + std::to_string(page));
    }
    for (const auto& name : names) {
      Op op = remove(name);
      op.space = "conformance/\xff";
      suite.expect(suite.status(op), Status::ok, "remove " + shown(name));
    }
    suite.expect(list_all(suite, "conformance/\xff", "", 0).empty(),
                 "names are listed after their objects were removed");
  });

  suite.check("the longest space, and one that looks like a path", [&] {
    const std::string longest(limit::space_bytes, '/'), dots = "..";
    for (const std::string& one : {longest, dots}) {
      const std::string key(1024, '\x01');
      Op op = write(key, 0, "v");
      op.space = one;
      suite.expect(suite.status(op), Status::ok, "write");
      suite.expect(list_all(suite, one, "", 0) == std::vector<std::string>{key}, "list");
      op.code = Code::object_remove;
      suite.expect(suite.status(op), Status::ok, "remove");
    }
  });

  suite.check("list: prefix, `after` within and outside it, and changes since the last page", [&] {
    for (const char* name : {"b", "ba", "bb", "bc", "c", "a"}) {
      Op op = create(name);
      op.space = "conformance-list";
      suite.expect(suite.status(op), Status::ok, "create");
    }
    using Names = std::vector<std::string>;
    const auto page = [&](std::string_view prefix, std::string_view after, std::uint64_t n) {
      Op op = make(Code::object_list, prefix);
      op.space = "conformance-list";
      op.length = n;
      op.data = bytes_of(after);
      const Answers got = suite.run({op});
      suite.expect(got.one().status, Status::ok, "list");
      std::vector<std::pair<std::string_view, Bytes>> pairs;
      suite.expect(unpack_pairs(got.one().data, pairs), "truncated");
      Names names;
      for (const auto& pair : pairs) names.emplace_back(pair.first);
      if (got.one().time_ns) names.emplace_back("+");
      return names;
    };
    suite.expect(page("b", "", 0) == Names{"b", "ba", "bb", "bc"}, "prefix");
    suite.expect(page("b", "", 2) == Names{"b", "ba", "+"}, "the first page, and that more follow");
    suite.expect(page("b", "", 4) == Names{"b", "ba", "bb", "bc"},
                 "a page that is exactly full, and that no more follow");
    suite.expect(page("b", "ba", 0) == Names{"bb", "bc"}, "after");
    suite.expect(page("b", "bz", 0).empty(), "after the last");
    suite.expect(page("b", "a", 0) == Names{"b", "ba", "bb", "bc"}, "after a name before the prefix");
    suite.expect(page("b", "c", 0).empty(), "after a name beyond the prefix");
    suite.expect(page("x", "", 0).empty(), "a prefix that matches no name");
    Op gone = remove("bb"), made = write("bbb", 0, "x");
    gone.space = made.space = "conformance-list";
    (void)suite.run({gone, made});
    suite.expect(page("b", "ba", 0) == Names{"bbb", "bc"}, "after a remove and a write");
  });

  suite.check("a list longer than one answer comes in pages that fit", [&] {
    std::vector<std::string> names;
    std::vector<Op> ops;
    for (int k = 0; k < 300; ++k) names.push_back(std::string(900, 'p') + std::to_string(1000 + k));
    for (const auto& name : names) {
      ops.push_back(create(name));
      ops.back().space = "conformance-pages";
    }
    const Answers made = suite.run(ops);
    for (const Outcome& outcome : made.outcomes) suite.expect(outcome.status, Status::ok, "create");
    Op op = make(Code::object_list, "");
    op.space = "conformance-pages";
    const Answers first = suite.run({op});
    suite.expect(first.one().data.size() <= scan_bytes_max,
                 "one answer has " + std::to_string(first.one().data.size()) + " bytes");
    suite.expect(first.one().time_ns == 1, "it does not report that more follow");
    suite.expect(list_all(suite, "conformance-pages", "", 0) == names, "the pages together are incomplete");
  });

  suite.check("more objects than a backend may keep open", [&] {
    std::vector<std::string> names;
    std::vector<Op> ops;
    for (int k = 0; k < 700; ++k) names.push_back("many" + std::to_string(k));
    for (const auto& name : names) ops.push_back(write(name, 0, name));
    const Answers written = suite.run(ops, Safety::storage);
    for (const Outcome& outcome : written.outcomes) suite.expect(outcome.status, Status::ok, "write");
    if (auto synced = suite.backend().sync(false); !synced) throw Failed(synced.error().what);
    ops.clear();
    for (const auto& name : names) ops.push_back(read(name, 0, 99));
    const Answers got = suite.run(ops);
    for (std::size_t k = 0; k < names.size(); ++k) expect_text(suite, got[k], names[k], names[k]);
  });

  if (suite.caps().concurrent)
    suite.check("threads that write, read, list and sync concurrently each see their own writes", [&] {
      std::atomic<int> wrong = 0;
      Backend& backend = suite.backend();
      const auto work = [&](unsigned seed) {
        Arena arena;
        for (unsigned k = 0; k < 60; ++k) {
          const std::string mine = "thread" + std::to_string(seed), text = pattern(700, seed * 1000 + k);
          const Op ops[] = {write(mine, 0, text),
                            read(mine, 0, 700),
                            write("shared", std::uint64_t{seed} * 700, text),
                            read("shared", std::uint64_t{seed} * 700, 700),
                            make(Code::object_list, "thread"),
                            create("fleeting"),
                            remove("fleeting")};
          Outcome outcomes[std::size(ops)];
          backend.execute(ops, k % 2 ? Safety::storage : Safety::network, outcomes, arena);
          for (std::size_t j = 0; j < 5; ++j) wrong += outcomes[j].status != Status::ok;
          wrong += outcomes[5].status != Status::ok ||
                   (outcomes[6].status != Status::ok && outcomes[6].status != Status::not_found);
          wrong += text_of(outcomes[1].data) != text || text_of(outcomes[3].data) != text;
          if (k % 16 == 0) wrong += !backend.sync(k % 32 == 0);
          arena.clear();
        }
      };
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 4; ++t) threads.emplace_back(work, t);
      for (auto& thread : threads) thread.join();
      suite.expect(wrong == 0, std::to_string(wrong) + " wrong answers");
    });

  if (suite.caps().durable)
    suite.check("synced data is present after the backend is opened again", [&] {
      const std::string text = pattern(100000, 3);
      std::vector<Op> ops{write("kept", 0, text),  create("kept-empty"),       write("kept-cut", 0, text),
                          truncate("kept-cut", 5), write("kept-gone", 0, "x"), remove("kept-gone")};
      const Answers written = suite.run(ops, Safety::storage);
      for (const Outcome& outcome : written.outcomes) suite.expect(outcome.status, Status::ok, "write");
      if (auto synced = suite.backend().sync(false); !synced) throw Failed(synced.error().what);
      suite.expect(suite.status(write("kept-network", 0, "n")), Status::ok, "write");
      suite.open();
      const Answers got = suite.run({read("kept", 0, 200000), status("kept-empty"), read("kept-cut", 0, 9),
                                     status("kept-gone"), read("kept-network", 0, 9)});
      expect_text(suite, got[0], text, "an object");
      suite.expect(got[1].status == Status::ok && got[1].value == 0, "an empty object");
      expect_text(suite, got[2], std::string_view(text).substr(0, 5), "a truncated object");
      suite.expect(got[3].status, Status::not_found, "a removed object");
      expect_text(suite, got[4], "n", "the settled object");
      suite.expect(list_all(suite, space, "kept", 0) ==
                       std::vector<std::string>{"kept", "kept-cut", "kept-empty", "kept-network"},
                   "the list");
    });
}

}  // namespace sonde::store::conformance
