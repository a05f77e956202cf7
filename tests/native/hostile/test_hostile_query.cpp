// Queries whose cost has no end: they end at their deadline, others are served meanwhile, and nothing that was
// acknowledged is lost by it.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../store/service.hpp"
#include "store/db.hpp"
#include "store/fuzz/hostile.hpp"
#include "stranger.hpp"

using namespace sonde::store;
using namespace sonde::store::test;

namespace {

using db::Compare;
using db::Selector;

bool has_tables() {
  const auto names = backend_names(Role::db);
  const bool has = std::find(names.begin(), names.end(), "memory") != names.end();
  if (!has) MESSAGE("this build has no SQLite");
  return has;
}

std::vector<BackendSpec> with_tables() {
  auto backends = memory_backends();
  backends.push_back({Role::db, "memory", {}});
  return backends;
}

Stream message(std::uint64_t id, Code code, Bytes data, std::uint32_t timeout_ms = 0) {
  Request request(Role::db, id);
  request.add(code, "t", data);
  request.header.timeout_ms = timeout_ms;
  return request.frame();
}

/// The status of one operation of a client who sends nothing else.
Status run(Stranger& one, std::uint64_t id, Code code, Bytes data, std::uint32_t timeout_ms = 0) {
  one.say(message(id, code, data, timeout_ms));
  return answers_of(one.hear(wire::Kind::reply)).at(0).status;
}

/// Texts and a pattern that take a matcher without end: each of the pattern's letters is tried at each of the text's.
struct Endless {
  Stranger client;
  db::Blob query;

  explicit Endless(Server& server) : client(server) {
    client.be_welcomed();
    REQUIRE(run(client, 1, Code::db_define,
                db::encode(db::Schema{{{"t", db::Type::text}, {"n", db::Type::int64}}, {}})) == Status::ok);
    const std::string text(900'000, 'a');
    for (std::uint64_t id = 2; id < 22; ++id) {
      db::Rows rows{{"t", "n"}, {{text, std::int64_t{7}}}};
      REQUIRE(run_large(id, db::encode(rows)) == Status::ok);
    }
    query = db::encode(db::Query{selector(), {}, {}});
  }
  static Selector selector() {
    std::vector<Selector> parts;
    for (int k = 0; k < 500; ++k)
      parts.push_back(
          Selector::where("t", Compare::like, '%' + std::string(1000, 'a') + 'b' + std::to_string(k) + '%'));
    return Selector::any_of(std::move(parts));
  }
  Status run_large(std::uint64_t id, const db::Blob& data) {
    client.say(message(id, Code::db_insert, data));
    return answers_of(client.hear(wire::Kind::reply)).at(0).status;
  }
};

}  // namespace

TEST_CASE("a query without end ends at the server's limit, and the table is as it was") {
  if (!has_tables()) return;
  ServerConfig base;
  base.query_timeout_s = 0.5;
  Service service(1, with_tables(), base);
  Endless endless(*service.servers[0]);
  CHECK(run(endless.client, 100, Code::db_query, endless.query) == Status::timed_out);
  CHECK(run(endless.client, 101, Code::db_remove, db::encode(endless.selector())) == Status::timed_out);
  CHECK(run(endless.client, 102, Code::db_update,
            db::encode(db::Update{endless.selector(), {"n"}, {std::int64_t{8}}})) == Status::timed_out);
  // Rows of others that are in the open transaction are still there: none was rolled back with it.
  endless.client.say(message(103, Code::db_query,
                             db::encode(db::Query{Selector::where("n", Compare::eq, std::int64_t{7}), {}, {"n"}})));
  const auto answers = answers_of(endless.client.hear(wire::Kind::reply));
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].status == Status::ok);
  CHECK(answers[0].value == 20);
}

TEST_CASE("a query without end ends when its client no longer waits for it") {
  if (!has_tables()) return;
  ServerConfig base;
  base.query_timeout_s = 3600;
  Service service(1, with_tables(), base);
  Endless endless(*service.servers[0]);
  CHECK(run(endless.client, 100, Code::db_query, endless.query, 200) == Status::timed_out);
}

TEST_CASE("beside a query without end others are served, and the server can be asked and stopped") {
  if (!has_tables()) return;
  ServerConfig base;
  base.query_timeout_s = 3600;
  Service service(1, with_tables(), base);
  Server& server = *service.servers[0];
  Endless endless(server);
  Stranger other(server);
  other.be_welcomed();
  endless.client.say(message(100, Code::db_query, endless.query));
  for (int k = 0; k < 3; ++k) {
    CHECK(fuzz::alive(server));
    other.say(plain_frame(wire::Kind::status, {}));
    other.hear(wire::Kind::status);
  }
  // Another's small query waits for its turn in the table's queue, and costs nobody else theirs.
  other.say(
      message(1, Code::db_query, db::encode(db::Query{Selector::where("n", Compare::eq, std::int64_t{7}), {}, {"n"}})));
  CHECK(fuzz::alive(server));
  server.stop(0.1);
}

TEST_CASE("like finds what it found: any text, one character, and either for itself") {
  if (!has_tables()) return;
  Service service(1, with_tables());
  Stranger one(*service.servers[0]);
  one.be_welcomed();
  std::uint64_t id = 1;
  // With an index as well: a pattern's beginning is looked up in it.
  REQUIRE(run(one, id++, Code::db_define, db::encode(db::Schema{{{"t", db::Type::text}}, {{{0}, false}}})) ==
          Status::ok);
  const std::vector<std::string> texts{"",
                                       "a",
                                       "ab",
                                       "abc",
                                       "aXbXc",
                                       "a%c",
                                       "a_c",
                                       "a\\c",
                                       "\xc3\xa4",
                                       "\xc3\xa4z",
                                       "\xe2\x82\xac\xf0\x9f\x98\x80",
                                       "aaaab",
                                       "banana",
                                       "\xf4\x8f\xbf\xbf",
                                       "ABC"};
  for (const auto& text : texts)
    REQUIRE(run(one, id++, Code::db_insert, db::encode(db::Rows{{"t"}, {{text}}})) == Status::ok);
  REQUIRE(run(one, id++, Code::db_insert, db::encode(db::Rows{{"t"}, {{db::Value{}}}})) == Status::ok);
  const auto count = [&](const std::string& pattern) {
    one.say(message(id++, Code::db_query, db::encode(db::Query{Selector::where("t", Compare::like, pattern), {}, {}})));
    const auto answers = answers_of(one.hear(wire::Kind::reply));
    REQUIRE(answers.at(0).status == Status::ok);
    return answers[0].value;
  };
  CHECK(count("") == 1);
  CHECK(count("%") == texts.size());
  CHECK(count("%%") == texts.size());
  CHECK(count("_") == 3);   // a, ä, U+10FFFF
  CHECK(count("__") == 3);  // ab, äz, €😀
  CHECK(count("_%") == texts.size() - 1);
  CHECK(count("a%") == 8);
  CHECK(count("a%c") == 5);
  CHECK(count("a\\%c") == 1);
  CHECK(count("a\\_c") == 1);
  CHECK(count("a\\\\c") == 1);
  CHECK(count("%b") == 2);  // ab, aaaab
  CHECK(count("%an%an%") == 1);
  CHECK(count("%a%b%c%") == 2);
  CHECK(count("\xc3\xa4%") == 2);
  CHECK(count("\xf4\x8f\xbf\xbf%") == 1);
  CHECK(count("A%") == 1);
  CHECK(count("a\\") == 0);  // nothing behind the backslash
  CHECK(count("abc\\%") == 0);
}
