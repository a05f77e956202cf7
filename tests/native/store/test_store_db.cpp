#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "store/db.hpp"
#include "store_faults.hpp"

using namespace sonde::store;
using namespace sonde::store::db;

namespace {

Schema a_schema() {
  return {{{"name", Type::text}, {"n", Type::uint64}, {"x", Type::blob}}, {{{0, 1}, true}, {{2}, false}}};
}

Selector a_selector() {
  return Selector::any_of({Selector::every(),
                           Selector::all_of({Selector::where("name", Compare::like, std::string("a%")),
                                             Selector::where("_id", Compare::ge, std::uint64_t{7})}),
                           Selector::where("x", Compare::is_null), Selector::all_of({})});
}

Rows some_rows() {
  return {{"b", "i", "u", "I", "U", "f", "d", "t", "x", "z"},
          {{true, std::int32_t{-5}, std::uint32_t{5}, std::int64_t{-6}, std::uint64_t{6}, 1.5f, -0.0,
            std::string("text"), Blob{std::byte{1}, std::byte{0}}, Value{}},
           {false, std::int32_t{0}, std::uint32_t{0}, std::int64_t{0}, std::uint64_t{0}, 0.f,
            std::numeric_limits<double>::infinity(), std::string(), Blob{}, Value{}}}};
}

Update an_update() { return {a_selector(), {"name", "n"}, {std::string("new"), Value{}}}; }
Query a_query() { return {a_selector(), {{"name", true}, {"_id", false}}, {"n", "name"}}; }
Answer an_answer() { return {{"n"}, {3, 9}, {{std::uint64_t{1}}, {Value{}}}}; }

std::string why(const sonde::Error& error) { return error.what; }

template <typename T> void refused(const sonde::Result<T>& result, const std::string& word) {
  REQUIRE_FALSE(result);
  CHECK(result.error().code == "store.bad_encoding");
  CHECK_MESSAGE(why(result.error()).find(word) != std::string::npos, why(result.error()));
}

Blob bytes(std::initializer_list<int> list) {
  Blob out;
  for (const int b : list) out.push_back(static_cast<std::byte>(b));
  return out;
}

/// Every decoder over the same bytes; what it takes, it must write in the same way again.
int decode_all(Bytes b) {
  int taken = 0;
  const auto again = [&](const auto& result) {
    if (!result) return;
    ++taken;
    const Blob back = encode(*result);
    CHECK(Bytes(back).size() == b.size());
    CHECK(std::equal(back.begin(), back.end(), b.begin(), b.end()));
  };
  again(decode_schema(b));
  again(decode_rows(b));
  again(decode_selector(b));
  again(decode_update(b));
  again(decode_query(b));
  again(decode_answer(b));
  return taken;
}

std::vector<Blob> messages() {
  return {encode(a_schema()),  encode(some_rows()), encode(a_selector()),
          encode(an_update()), encode(a_query()),   encode(an_answer())};
}

}  // namespace

TEST_CASE("what is encoded comes back") {
  CHECK(*decode_schema(encode(a_schema())) == a_schema());
  CHECK(*decode_rows(encode(some_rows())) == some_rows());
  CHECK(*decode_selector(encode(a_selector())) == a_selector());
  CHECK(*decode_update(encode(an_update())) == an_update());
  CHECK(*decode_query(encode(a_query())) == a_query());
  CHECK(*decode_answer(encode(an_answer())) == an_answer());
  CHECK(std::signbit(std::get<double>(decode_rows(encode(some_rows()))->rows[0][6])));
  CHECK(*decode_answer(encode(Answer{})) == Answer{});
  CHECK(*decode_rows(encode(Rows{{"a"}, {}})) == Rows{{"a"}, {}});
}

TEST_CASE("the encoding is that of the header, byte by byte") {
  CHECK(encode(Schema{{{"ab", Type::int32}}, {{{0}, true}}}) ==
        bytes({'S', 1, 1, 0, 2, 2, 'a', 'b', 1, 0, 1, 1, 0, 0}));
  CHECK(encode(Rows{{"a"}, {{std::int32_t{-2}}, {std::string("x")}, {Value{}}, {true}}}) ==
        bytes({'R', 1, 1, 0, 1, 'a', 4, 0, 0, 0, 2, 0xfe, 0xff, 0xff, 0xff, 8, 1, 0, 0, 0, 'x', 0, 1, 1}));
  CHECK(encode(Selector::all_of({Selector::every(), Selector::where("a", Compare::ge, std::uint32_t{258})})) ==
        bytes({'W', 1, 1, 2, 0, 0, 3, 6, 1, 'a', 3, 2, 1, 0, 0}));
  CHECK(encode(Query{{}, {{"a", true}}, {"b"}}) == bytes({'Q', 1, 0, 1, 0, 1, 1, 'a', 1, 0, 1, 'b'}));
  CHECK(encode(Answer{{"a"}, {5}, {{false}}}) ==
        bytes({'A', 1, 1, 0, 1, 'a', 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 1, 0}));
  CHECK(encode(Update{{}, {"a"}, {1.0f}}) == bytes({'U', 1, 0, 1, 0, 1, 'a', 6, 0, 0, 0x80, 0x3f}));
}

TEST_CASE("a message cut short anywhere, or with a byte too many, is refused") {
  for (const Blob& message : messages()) {
    for (std::size_t n = 0; n < message.size(); ++n) CHECK(decode_all(Bytes(message).first(n)) == 0);
    CHECK(decode_all(message) == 1);
    Blob longer = message;
    longer.push_back(std::byte{0});
    CHECK(decode_all(longer) == 0);
  }
}

TEST_CASE("random damage is refused, or is another valid message: nothing crashes, nothing is half taken") {
  std::uint64_t state = 42;
  const auto draw = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state >> 33);
  };
  int taken = 0, refused = 0;
  const auto whole = messages();
  for (int round = 0; round < 20000; ++round) {
    Blob message = whole[draw() % whole.size()];
    for (unsigned k = 0, n = 1 + draw() % 4; k < n; ++k) {
      const std::size_t at = draw() % message.size();
      switch (draw() % 4) {
        case 0: message[at] = static_cast<std::byte>(draw()); break;
        case 1: message[at] ^= static_cast<std::byte>(1u << draw() % 8); break;
        case 2: message.erase(message.begin() + static_cast<std::ptrdiff_t>(at)); break;
        case 3:
          message.insert(message.begin() + static_cast<std::ptrdiff_t>(at),
                         static_cast<std::byte>(draw() % 2 ? 0xff : 0));
          break;
      }
      if (message.empty()) break;
    }
    (decode_all(message) ? taken : refused) += 1;
  }
  CHECK(refused > 10000);
  CHECK(taken > 100);
}

TEST_CASE("a count that promises more than is there takes no memory") {
  refused(decode_rows(bytes({'R', 1, 1, 0, 1, 'a', 0xff, 0xff, 0x0f, 0, 0})), "cut short");
  refused(decode_rows(bytes({'R', 1, 1, 0, 1, 'a', 1, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0})), "cut short");
  refused(decode_rows(bytes({'R', 1, 1, 0, 1, 'a', 1, 0, 0, 0, 9, 0xff, 0xff, 0xff, 0xff})), "bytes of a blob");
  refused(decode_answer(bytes({'A', 1, 0, 0, 0xff, 0xff, 0xff, 0xff})), "cut short");
  refused(decode_selector(bytes({'W', 1, 1, 0, 4, 0})), "cut short");
}

TEST_CASE("limits of fields, indexes, orders, depth and nodes") {
  Schema schema;
  refused(decode_schema(encode(schema)), "fields");
  for (std::size_t k = 0; k < fields_max; ++k) schema.fields.push_back({"f" + std::to_string(k), Type::int32});
  CHECK(decode_schema(encode(schema)));
  schema.fields.push_back({"one more", Type::int32});
  refused(decode_schema(encode(schema)), "257 fields");
  schema.fields.resize(10);
  schema.indexes.assign(indexes_max, {{0, 1, 2, 3, 4, 5, 6, 7}, false});
  CHECK(decode_schema(encode(schema)));
  schema.indexes.push_back({{0}, false});
  refused(decode_schema(encode(schema)), "33 indexes");
  schema.indexes = {{{0, 1, 2, 3, 4, 5, 6, 7, 8}, false}};
  refused(decode_schema(encode(schema)), "fields of an index");
  schema.indexes = {{{}, false}};
  refused(decode_schema(encode(schema)), "fields of an index");
  schema.indexes = {{{10}, false}};
  refused(decode_schema(encode(schema)), "field 10 of 10");
  schema.indexes = {{{1, 1}, false}};
  refused(decode_schema(encode(schema)), "twice");

  Selector deep = Selector::every();
  for (std::size_t k = 1; k < selector_depth_max; ++k) deep = Selector::any_of({deep});
  CHECK(decode_selector(encode(deep)));
  refused(decode_selector(encode(Selector::any_of({deep}))), "deeper");
  Selector wide = Selector::all_of(std::vector<Selector>(selector_nodes_max - 1));
  CHECK(decode_selector(encode(wide)));
  wide.parts.emplace_back();
  refused(decode_selector(encode(wide)), "nodes");
  CHECK(decode_query(encode(Query{{}, std::vector<Order>(orders_max, {"a", false}), {}})));
  refused(decode_query(encode(Query{{}, std::vector<Order>(orders_max + 1, {"a", false}), {}})), "orders");
}

TEST_CASE("names: empty, too long, no UTF-8, NUL, reserved, twice") {
  const auto one = [](const std::string& name) { return decode_schema(encode(Schema{{{name, Type::int32}}, {}})); };
  CHECK(one(std::string(name_bytes_max, 'n')));
  CHECK(one("\xc3\xa4"));
  refused(one(""), "bytes of a name");
  refused(one(std::string(name_bytes_max + 1, 'n')), "bytes of a name");
  refused(one("\xff"), "UTF-8");
  refused(one(std::string("a\0b", 3)), "UTF-8");
  refused(one("_id"), "'_'");
  refused(one("_x"), "'_'");
  refused(decode_schema(encode(Schema{{{"a", Type::int32}, {"a", Type::text}}, {}})), "twice");
  refused(decode_rows(encode(Rows{{"a", "a"}, {}})), "twice");
  refused(decode_rows(encode(Rows{{"_id"}, {}})), "'_'");
  refused(decode_schema(encode(Schema{{{"a", Type::null}}, {}})), "type 0");
}

TEST_CASE("values: NaN, text that is no text, a boolean that is neither, an unknown type") {
  const auto one = [](Value value) { return decode_rows(encode(Rows{{"a"}, {{std::move(value)}}})); };
  refused(one(std::numeric_limits<double>::quiet_NaN()), "NaN");
  refused(one(std::numeric_limits<float>::quiet_NaN()), "NaN");
  CHECK(one(-std::numeric_limits<float>::infinity()));
  refused(one(std::string("\xc0\x80")), "UTF-8");
  refused(one(std::string(1, 0)), "UTF-8");
  refused(decode_rows(bytes({'R', 1, 1, 0, 1, 'a', 1, 0, 0, 0, 1, 2})), "neither 0 nor 1");
  refused(decode_rows(bytes({'R', 1, 1, 0, 1, 'a', 1, 0, 0, 0, 10})), "type 10");
  refused(decode_rows(bytes({'R', 2, 1, 0, 1, 'a', 0, 0, 0, 0})), "version");
  refused(decode_rows(bytes({'S', 1, 1, 0, 1, 'a', 0, 0, 0, 0})), "'R'");
}

TEST_CASE("conditions that make no sense are refused") {
  const auto one = [](Compare compare, Value value) {
    return decode_selector(encode(Selector::where("a", compare, std::move(value))));
  };
  refused(one(Compare::eq, {}), "is_null");
  refused(one(Compare::is_null, true), "take no value");
  refused(one(Compare::like, std::int32_t{1}), "takes a text");
  refused(one(Compare::like, std::string(pattern_bytes_max + 1, '%')), "pattern");
  refused(one(Compare::prefix, 1.0), "text or a blob");
  refused(one(static_cast<Compare>(11), true), "comparison 11");
  refused(decode_selector(bytes({'W', 1, 4})), "node 4");
}

TEST_CASE("UTF-8: the borders of each length, overlong forms, surrogates") {
  for (const char* good : {"", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    CHECK(is_text(good));
  for (const char* bad : {"\x80", "\xc1\xbf", "\xc2", "\xc2\x41", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe1\x80",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"})
    CHECK_FALSE(is_text(bad));
}

// ---- SQLite on disk

namespace {

bool has_sqlite() {
  for (const auto& name : backend_names(Role::db))
    if (name == "sqlite") return true;
  MESSAGE("skipped: this build has no backend sqlite");
  return false;
}

struct Table {
  std::unique_ptr<Backend> backend;
  explicit Table(const Settings& settings, std::string name = "sqlite")
      : backend(faults::open(Role::db, name, settings)) {
    const Blob schema = encode(Schema{{{"n", Type::int32}, {"pad", Type::text}}, {{{0}, true}}});
    REQUIRE(faults::run(*backend, faults::op(Code::db_define, "rows", text_of(schema))) == Status::ok);
  }
  Status insert(std::int32_t n, std::size_t pad = 10) {
    const Blob rows = encode(Rows{{"n", "pad"}, {{n, std::string(pad, 'p')}}});
    return faults::run(*backend, faults::op(Code::db_insert, "rows", text_of(rows)));
  }
  std::size_t count() {
    std::size_t n = 0;
    for (bool more = true; more;) {
      const Blob query = encode(Query{{}, {}, {"n"}});
      Op op = faults::op(Code::db_query, "rows", text_of(query));
      op.offset = n;
      Arena arena;
      Outcome outcome;
      backend->execute({&op, 1}, Safety::network, {&outcome, 1}, arena);
      REQUIRE(outcome.status == Status::ok);
      n += outcome.value;
      more = outcome.time_ns == 1;
    }
    return n;
  }
};

/// Inserts until there is no space; what was acknowledged must be there, what was not must be absent.
void fill(const Settings& settings, std::size_t at_least, const std::string& name = "sqlite") {
  std::size_t n = 0;
  {
    Table table(settings, name);
    Status status = Status::ok;
    while (n < 5000 && (status = table.insert(static_cast<std::int32_t>(n), 20000)) == Status::ok) ++n;
    CHECK(status == Status::no_space);
    CHECK(n >= at_least);
    CHECK(table.count() == n);
    CHECK(table.insert(static_cast<std::int32_t>(n), 2000000) == Status::no_space);
    CHECK(table.count() == n);
    CHECK(table.backend->sync(true));
  }
  if (name != "memory") CHECK(Table(settings, name).count() == n);
}

}  // namespace

TEST_CASE("sqlite: folders that it must refuse") {
  if (has_sqlite()) faults::check_folder(Role::db, "sqlite", Role::data, "posix");
}

TEST_CASE("sqlite: a limit that is reached, on disk and in memory") {
  if (!has_sqlite()) return;
  const faults::Scratch scratch;
  fill({{"path", scratch / "x"}, {"limit", "2MiB"}}, 50);
  fill({{"limit", "2MiB"}}, 50, "memory");
  CHECK_FALSE(open_backend(Role::db, "sqlite", {{"path", scratch / "y"}, {"limit", "10kB"}}));
  CHECK_FALSE(open_backend(Role::db, "sqlite", {{"path", scratch / "y"}, {"limit", "much"}}));
}

TEST_CASE("sqlite: a full disk undoes the batch that does not fit, and no other") {
  if (!has_sqlite()) return;
  const faults::SmallDisk disk(6u << 20);
  REQUIRE_OR_SKIP(disk.mounted);
  fill({{"path", disk.scratch / "x"}}, 50);
}

TEST_CASE("sqlite: a database that is none is refused") {
  if (!has_sqlite()) return;
  const faults::Scratch scratch;
  { Table table({{"path", scratch / "x"}}); }
  std::filesystem::copy_file("/proc/self/exe", scratch / "x/rows.db",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(faults::cannot_open(Role::db, "sqlite", {{"path", scratch / "x"}}).find("SQLite") != std::string::npos);
}

TEST_CASE("sqlite: sync, settle and a clean end put on storage what is not committed yet") {
  if (!has_sqlite()) return;
  const faults::Scratch scratch;
  {
    Table table({{"path", scratch / "x"}});
    REQUIRE(table.backend->settle());
    faults::Syncs syncs;
    CHECK(table.insert(1) == Status::ok);
    CHECK(faults::Syncs::count() == 0);
    REQUIRE(table.backend->sync(false));
    CHECK(faults::Syncs::synced(scratch / "x/rows.db-wal"));
    faults::Syncs::clear();
    REQUIRE(table.backend->sync(true));
    CHECK(faults::Syncs::count() == 0);
    CHECK(table.insert(2) == Status::ok);
  }
  CHECK(Table({{"path", scratch / "x"}}).count() == 2);
}

TEST_CASE("sqlite: after a commit that failed nothing is claimed stored, until it is opened again") {
  if (!has_sqlite()) return;
  const faults::Scratch scratch;
  {
    Table table({{"path", scratch / "x"}});
    CHECK(table.insert(1) == Status::ok);
    REQUIRE(table.backend->sync(false));
    {
      faults::Syncs syncs;
      CHECK(table.insert(2) == Status::ok);
      faults::Syncs::fail_from(0);
      const auto failed = table.backend->sync(false);
      REQUIRE_FALSE(failed);
      CHECK(failed.error().code == "store.sync_failed");
    }
    CHECK_FALSE(table.backend->sync(false));
    CHECK(table.insert(3) == Status::io_error);
  }
  Table table({{"path", scratch / "x"}});
  CHECK(table.insert(1) == Status::exists);
  CHECK(table.insert(3) == Status::ok);
  CHECK(table.backend->sync(false));
}

TEST_CASE("sqlite: killed in the middle of stored batches, they are whole or absent") {
  if (has_sqlite()) faults::check_kill(Role::db, "sqlite");
}
