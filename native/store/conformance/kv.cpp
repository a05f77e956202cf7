// Checks of the role kv.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "store/conformance/suite.hpp"

namespace sonde::store::conformance {

namespace {

Op make(Code code, std::string_view key, std::uint8_t flags = 0, std::string_view of_space = space) {
  Op op;
  op.code = code;
  op.flags = flags;
  op.space = of_space;
  op.key = key;
  return op;
}
Op put(std::string_view key, std::string_view value, std::uint8_t flags = 0, std::string_view of_space = space) {
  Op op = make(Code::kv_put, key, flags, of_space);
  op.data = bytes_of(value);
  return op;
}
Op get(std::string_view key, std::string_view of_space = space) { return make(Code::kv_get, key, 0, of_space); }
Op remove(std::string_view key, std::string_view of_space = space) { return make(Code::kv_remove, key, 0, of_space); }

/// Expects that every operation except `failed` is aborted, and that `failed` has its own status.
void expect_undone(Suite& suite, const Answers& got, std::size_t failed, Status status) {
  for (std::size_t k = 0; k < got.outcomes.size(); ++k)
    suite.expect(got[k].status, k == failed ? status : Status::aborted,
                 "operation " + std::to_string(k) + " of the batch");
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs page(Suite& suite, std::string_view of_space, std::string_view prefix, std::string_view after, std::uint64_t n,
           bool* more = nullptr, std::uint8_t flags = 0) {
  Op op = make(Code::kv_scan, prefix, flags, of_space);
  op.length = n;
  op.data = bytes_of(after);
  const Answers got = suite.run({op});
  suite.expect(got.one().status, Status::ok, "scan");
  std::vector<std::pair<std::string_view, Bytes>> pairs;
  suite.expect(unpack_pairs(got.one().data, pairs), "the answer of a scan is truncated");
  suite.expect(pairs.size() == got.one().value, "value is not the number of pairs");
  suite.expect(!n || pairs.size() <= n, "a page has more entries than requested");
  suite.expect(pairs.size() <= 1 || got.one().data.size() <= scan_bytes_max,
               "one answer has " + std::to_string(got.one().data.size()) + " bytes");
  if (more) *more = got.one().time_ns == 1;
  Pairs out;
  for (const auto& [key, value] : pairs) out.emplace_back(key, text_of(value));
  return out;
}

Pairs scan_all(Suite& suite, std::string_view of_space, std::string_view prefix, std::uint64_t n) {
  Pairs all;
  for (bool more = true; more;) {
    const Pairs next = page(suite, of_space, prefix, all.empty() ? "" : all.back().first, n, &more);
    suite.expect(!next.empty() || !more, "an empty page says that more follow");
    for (const auto& pair : next) {
      suite.expect(all.empty() || all.back().first < pair.first,
                   "a scan is not in ascending order, or a page begins before the previous one's end");
      all.push_back(pair);
    }
  }
  return all;
}

std::vector<std::string> hard_keys() {
  std::vector<std::string> keys{std::string(1, 0),
                                std::string(2, 0),
                                std::string("a\0b", 3),
                                std::string("a\0", 2),
                                "a",
                                "a\x01",
                                "\xff",
                                "\xff\xff",
                                "\xff\xfe",
                                "/",
                                "../x",
                                " "};
  std::string every;
  for (int c = 0; c < 256; ++c) every += static_cast<char>(c);
  keys.push_back(every);
  for (const std::size_t n : {439u, 440u}) {
    keys.emplace_back(n, 'k');
    keys.emplace_back(n, '\0');
    keys.emplace_back(n, '\xff');
  }
  return keys;
}

}  // namespace

void check_kv(Suite& suite) {
  if (!suite.caps().keeps) {
    suite.check("every put is ok, every get finds nothing", [&] {
      const Answers got = suite.run({put("k", "v"), get("k")});
      suite.expect(got[0].status, Status::ok, "put");
      suite.expect(got[1].status, Status::not_found, "get");
    });
    return;
  }

  suite.check("a key that does not exist is not found, and that undoes nothing", [&] {
    const Answers got = suite.run({get("none"), put("there", "1"), remove("none"), get("there")});
    suite.expect(got[0].status, Status::not_found, "get");
    suite.expect(got[1].status, Status::ok, "put");
    suite.expect(got[2].status, Status::not_found, "remove");
    expect_text(suite, got[3], "1", "get of a key that the batch put");
    expect_text(suite, suite.run({get("there")}).one(), "1", "get after the batch");
  });

  suite.check("put, replace, remove, and put again", [&] {
    const Answers got = suite.run(
        {put("k", "one"), get("k"), put("k", "another"), get("k"), remove("k"), get("k"), put("k", "x"), get("k")});
    expect_text(suite, got[1], "one", "first");
    expect_text(suite, got[3], "another", "replaced");
    suite.expect(got[4].status, Status::ok, "remove");
    suite.expect(got[5].status, Status::not_found, "after remove");
    expect_text(suite, got[7], "x", "put again");
  });

  suite.check("empty values are values", [&] {
    const Answers got = suite.run({put("empty", ""), get("empty"), put("empty", "", flag::exclusive)});
    suite.expect(got[2].status, Status::exists, "an exclusive put over an empty value");
    suite.expect(suite.status(put("empty", "")), Status::ok, "put");
    expect_text(suite, suite.run({get("empty")}).one(), "", "get");
    suite.expect(page(suite, space, "empty", "", 0) == Pairs{{"empty", ""}}, "scan");
  });

  suite.check("an exclusive put fails if the key exists, and does not change it", [&] {
    suite.expect(suite.status(put("only", "1", flag::exclusive)), Status::ok, "first");
    suite.expect(suite.status(put("only", "2", flag::exclusive)), Status::exists, "second");
    expect_text(suite, suite.run({get("only")}).one(), "1", "value");
    const Answers got = suite.run({remove("only"), put("only", "3", flag::exclusive), get("only")});
    expect_text(suite, got[2], "3", "after a remove in the same batch");
  });

  suite.check("an exclusive put that fails undoes its batch, whatever comes before and after it", [&] {
    (void)suite.run({put("u-old", "old"), put("u-gone", "gone"), put("u-twice", "twice"), put("u-block", "block")});
    const std::string large = pattern(100000, 9);
    expect_undone(suite,
                  suite.run({put("u-new", "new"), put("u-old", large), remove("u-gone"), put("u-twice", "a"),
                             put("u-twice", "b"), remove("u-twice"), get("u-old"), remove("u-none"),
                             put("u-block", "no", flag::exclusive), put("u-after", "x")}),
                  8, Status::exists);
    const Answers got =
        suite.run({get("u-new"), get("u-old"), get("u-gone"), get("u-twice"), get("u-block"), get("u-after")});
    suite.expect(got[0].status, Status::not_found, "a key that the batch made");
    expect_text(suite, got[1], "old", "a value that it replaced");
    expect_text(suite, got[2], "gone", "a key that it removed");
    expect_text(suite, got[3], "twice", "a key that it changed three times");
    expect_text(suite, got[4], "block", "the existing key");
    suite.expect(got[5].status, Status::not_found, "a key after it");
  });

  suite.check("a batch that puts one key twice exclusively undoes itself", [&] {
    expect_undone(suite, suite.run({put("self", "1", flag::exclusive), put("self", "2", flag::exclusive)}), 1,
                  Status::exists);
    suite.expect(suite.status(get("self")), Status::not_found, "the key");
  });

  suite.check("the first operation of a batch may be the one that fails", [&] {
    (void)suite.run({put("first", "1")});
    expect_undone(suite, suite.run({put("first", "2", flag::exclusive), put("first-other", "x")}), 0, Status::exists);
    const Answers got = suite.run({get("first"), get("first-other")});
    expect_text(suite, got[0], "1", "the key");
    suite.expect(got[1].status, Status::not_found, "the other");
  });

  suite.check("a batch that was undone does not affect earlier batches", [&] {
    for (int k = 0; k < 20; ++k) suite.expect(suite.status(put("keep" + std::to_string(k), "v")), Status::ok, "put");
    expect_undone(suite, suite.run({remove("keep0"), put("keep1", "w"), put("keep2", "w", flag::exclusive)}), 2,
                  Status::exists);
    for (int k = 0; k < 20; ++k)
      expect_text(suite, suite.run({get("keep" + std::to_string(k))}).one(), "v", "keep" + std::to_string(k));
  });

  suite.check("later operations of a batch see earlier ones, scans too", [&] {
    Op scan = make(Code::kv_scan, "", 0, "conformance-see");
    const Answers got = suite.run({put("b", "1", 0, "conformance-see"), put("a", "2", 0, "conformance-see"), scan,
                                   remove("b", "conformance-see"), put("c", "3", 0, "conformance-see"), scan});
    std::vector<std::pair<std::string_view, Bytes>> pairs;
    suite.expect(got[2].status, Status::ok, "scan");
    suite.expect(
        unpack_pairs(got[2].data, pairs) && pairs.size() == 2 && pairs[0].first == "a" && pairs[1].first == "b",
        "the first scan");
    suite.expect(unpack_pairs(got[5].data, pairs) && pairs.size() == 2 && pairs[0].first == "a" &&
                     pairs[1].first == "c" && text_of(pairs[1].second) == "3",
                 "the second scan");
  });

  suite.check("keys of any bytes and up to 440 of them, NUL too, scanned in byte order", [&] {
    auto keys = hard_keys();
    for (const std::string& of_space : {std::string("conformance/\xff"), std::string(limit::space_bytes, 's')}) {
      std::vector<Op> ops;
      for (const auto& key : keys) ops.push_back(put(key, key, 0, of_space));
      const Answers made = suite.run(ops);
      for (std::size_t k = 0; k < keys.size(); ++k) suite.expect(made[k].status, Status::ok, "put " + shown(keys[k]));
      for (const auto& key : keys) expect_text(suite, suite.run({get(key, of_space)}).one(), key, "get " + shown(key));
      std::sort(keys.begin(), keys.end());
      Pairs wanted;
      for (const auto& key : keys) wanted.emplace_back(key, key);
      for (const std::uint64_t n : {0u, 1u, 5u})
        suite.expect(scan_all(suite, of_space, "", n) == wanted, "scan in pages of " + std::to_string(n));
    }
  });

  suite.check("spaces do not mix, even if one's name begins with another's", [&] {
    (void)suite.run({put("bc", "1", 0, "a"), put("c", "2", 0, "ab"), put("x", "3", 0, "abc")});
    suite.expect(scan_all(suite, "a", "", 0) == Pairs{{"bc", "1"}}, "space a");
    suite.expect(scan_all(suite, "ab", "", 0) == Pairs{{"c", "2"}}, "space ab");
    suite.expect(suite.status(get("c", "a")), Status::not_found, "a key of another space");
  });

  suite.check("scan: prefix, `after` within and outside it, the maximum number, keys only", [&] {
    std::vector<Op> ops;
    for (const char* key : {"b", "ba", "bb", "bc", "c", "a"}) ops.push_back(put(key, "v", 0, "conformance-scan"));
    (void)suite.run(ops);
    const auto keys = [&](std::string_view prefix, std::string_view after, std::uint64_t n, std::uint8_t flags = 0) {
      bool more = false;
      std::string text;
      for (const auto& [key, value] : page(suite, "conformance-scan", prefix, after, n, &more, flags))
        text += key + '=' + value + ' ';
      return text + (more ? "+" : "");
    };
    const auto expect = [&](const std::string& found, const std::string& wanted) {
      suite.expect(found == wanted, "'" + found + "' instead of '" + wanted + "'");
    };
    expect(keys("b", "", 0), "b=v ba=v bb=v bc=v ");
    expect(keys("b", "", 2), "b=v ba=v +");
    expect(keys("b", "", 4), "b=v ba=v bb=v bc=v ");
    expect(keys("b", "ba", 0), "bb=v bc=v ");
    expect(keys("b", "baa", 0), "bb=v bc=v ");
    expect(keys("b", "bz", 0), "");
    expect(keys("b", "a", 0), "b=v ba=v bb=v bc=v ");
    expect(keys("b", "c", 0), "");
    expect(keys("x", "", 0), "");
    expect(keys("", "", 0), "a=v b=v ba=v bb=v bc=v c=v ");
    expect(keys("b", "", 1, flag::keys_only), "b= +");
  });

  suite.check("a scan longer than one answer comes in pages, and a value larger than a page comes alone", [&] {
    Pairs wanted;
    for (int k = 0; k < 30; ++k)
      wanted.emplace_back("k" + std::to_string(100 + k), pattern(k == 7 ? 3 * scan_bytes_max : 20000, k));
    std::vector<Op> ops;
    for (const auto& [key, value] : wanted) ops.push_back(put(key, value, 0, "conformance-pages"));
    (void)suite.run(ops);
    suite.expect(scan_all(suite, "conformance-pages", "k", 0) == wanted, "the pages together are incomplete");
    suite.expect(page(suite, "conformance-pages", "", "k106", 0).size() == 1, "the large value does not come alone");
  });

  suite.check("into: truncated to its size, with the whole length reported", [&] {
    std::string memory(6, '#');
    Op op = get("into");
    op.into = std::as_writable_bytes(std::span(memory.data(), 4));
    const Answers got = suite.run({put("into", "abcdefgh"), op});
    suite.expect(got[1].status, Status::ok, "get");
    suite.expect(memory == "abcd##", "memory is " + shown(memory));
    suite.expect(got[1].value == 8, "value is " + std::to_string(got[1].value) + ", not the whole length");
    suite.expect(got[1].data.data() == op.into.data() && got[1].data.size() == 4, "the answer is not in `into`");
  });

  suite.check("values up to the limit of 16 MiB, and back to small ones", [&] {
    const std::string large = pattern(limit::value_bytes, 4);
    suite.expect(suite.status(put("large", large)), Status::ok, "put");
    expect_text(suite, suite.run({get("large")}).one(), large, "get");
    const Answers got = suite.run({put("large", "small"), get("large")});
    expect_text(suite, got[1], "small", "replaced");
  });

  suite.check("a batch of 5000 random changes has the same result as a map", [&] {
    std::map<std::string, std::string> model;
    std::uint32_t state = 12345;
    const auto draw = [&](std::uint32_t n) { return (state = state * 1664525u + 1013904223u) / (~0u / n + 1); };
    for (int round = 0; round < 5; ++round) {
      std::vector<std::string> texts;
      texts.reserve(3000);
      std::vector<Op> ops;
      std::vector<std::pair<bool, std::string>> wanted;
      for (int k = 0; k < 1000; ++k) {
        texts.push_back("r" + std::to_string(draw(200)));
        const std::string& key = texts.back();
        const auto kind = draw(4);
        const auto found = model.find(key);
        wanted.emplace_back(kind < 2 || found != model.end(), kind == 3 && found != model.end() ? found->second : "");
        if (kind < 2) {
          texts.push_back(pattern(draw(3) ? draw(100) : draw(6000), static_cast<unsigned>(k)));
          ops.push_back(put(key, texts.back(), 0, "conformance-random"));
          model[key] = texts.back();
        } else if (kind == 2) {
          ops.push_back(remove(key, "conformance-random"));
          model.erase(key);
        } else {
          ops.push_back(get(key, "conformance-random"));
        }
      }
      const Answers got = suite.run(ops);
      for (std::size_t k = 0; k < ops.size(); ++k) {
        suite.expect(got[k].status, wanted[k].first ? Status::ok : Status::not_found, "operation " + std::to_string(k));
        if (ops[k].code == Code::kv_get && wanted[k].first)
          expect_text(suite, got[k], wanted[k].second, "get " + std::to_string(k));
      }
      suite.expect(scan_all(suite, "conformance-random", "", 0) == Pairs(model.begin(), model.end()),
                   "the scan after round " + std::to_string(round));
    }
  });

  suite.check("a sync by another thread while batches run", [&] {
    std::atomic<bool> stop = false;
    std::atomic<int> wrong = 0;
    std::thread syncing([&] {
      while (!stop) {
        wrong += !suite.backend().sync(false);
        wrong += !suite.backend().settle();
      }
    });
    Arena arena;
    for (int k = 0; k < 200; ++k) {
      const std::string key = "s" + std::to_string(k);
      const Op ops[] = {put(key, key), get(key)};
      Outcome outcomes[2];
      suite.backend().execute(ops, Safety::storage, outcomes, arena);
      wrong += outcomes[0].status != Status::ok || text_of(outcomes[1].data) != key;
    }
    stop = true;
    syncing.join();
    suite.expect(wrong == 0, std::to_string(wrong) + " wrong answers");
  });

  if (suite.caps().concurrent)
    suite.check("threads see batches whole: a transfer between two keys never changes their sum", [&] {
      std::atomic<int> wrong = 0;
      (void)suite.run({put("left", std::string(1, 100)), put("right", std::string(1, 100))});
      const auto read_sum = [&] {
        Arena arena;
        const Op ops[] = {get("left"), get("right")};
        Outcome outcomes[2];
        suite.backend().execute(ops, Safety::network, outcomes, arena);
        if (outcomes[0].data.size() != 1 || outcomes[1].data.size() != 1) return -1;
        return static_cast<int>(outcomes[0].data[0]) + static_cast<int>(outcomes[1].data[0]);
      };
      std::vector<std::thread> threads;
      threads.emplace_back([&] {
        Arena arena;
        for (int k = 0; k < 2000; ++k) {
          const std::string left(1, static_cast<char>(k % 200)), right(1, static_cast<char>(200 - k % 200));
          const Op ops[] = {put("left", left), put("right", right)};
          Outcome outcomes[2];
          suite.backend().execute(ops, Safety::network, outcomes, arena);
        }
      });
      for (int t = 0; t < 3; ++t)
        threads.emplace_back([&] {
          for (int k = 0; k < 1000; ++k) wrong += read_sum() != 200;
        });
      for (auto& thread : threads) thread.join();
      suite.expect(wrong == 0, std::to_string(wrong) + " reads saw half a batch");
    });

  if (suite.caps().concurrent)
    suite.check("of threads that put one key exclusively, one succeeds", [&] {
      for (int round = 0; round < 50; ++round) {
        std::atomic<int> won = 0, other = 0;
        const std::string key = "race" + std::to_string(round);
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
          threads.emplace_back([&] {
            Arena arena;
            const Op ops[] = {put(key, "x", flag::exclusive)};
            Outcome outcomes[1];
            suite.backend().execute(ops, Safety::network, outcomes, arena);
            won += outcomes[0].status == Status::ok;
            other += outcomes[0].status != Status::ok && outcomes[0].status != Status::exists;
          });
        for (auto& thread : threads) thread.join();
        suite.expect(won == 1 && other == 0, std::to_string(won) + " threads got ok");
      }
    });

  if (suite.caps().durable)
    suite.check("synced data is present after the backend is opened again", [&] {
      const std::string large = pattern(300000, 5);
      (void)suite.run({put("kept", "v"), put("kept-large", large), put("kept-gone", "x"), put("kept-empty", "")},
                      Safety::storage);
      (void)suite.run({remove("kept-gone")}, Safety::storage);
      if (auto synced = suite.backend().sync(false); !synced) throw Failed(synced.error().what);
      suite.expect(suite.status(put("kept-network", "n")), Status::ok, "put");
      suite.open();
      const Answers got =
          suite.run({get("kept"), get("kept-large"), get("kept-gone"), get("kept-empty"), get("kept-network")});
      expect_text(suite, got[0], "v", "a value");
      expect_text(suite, got[1], large, "a large value");
      suite.expect(got[2].status, Status::not_found, "a removed key");
      expect_text(suite, got[3], "", "an empty value");
      expect_text(suite, got[4], "n", "the settled key");
    });
}

}  // namespace sonde::store::conformance
