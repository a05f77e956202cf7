// A backend that throws, behind the guard, in a client and in a server: nobody but the batch is harmed.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/sanitizer.hpp"
#include "store/db.hpp"
#include "store/guard.hpp"
#include "store_faults.hpp"

using namespace sonde;
using namespace sonde::store;
using namespace sonde::store::faults;

namespace {

/// Keys in a map, changed in place: a batch under way is half done until roll_back(). The key "throws" does as `what`
/// says.
class Thrower final : public Backend {
 public:
  explicit Thrower(Role role) : role_(role) {}
  std::function<void()> what = [] { throw std::out_of_range("no such page"); };
  std::function<void()> undoing, syncing, describing, asked;
  unsigned executed = 0;
  std::map<std::string, std::string> pairs, before;

  Caps caps() const override {
    if (asked) asked();
    return {role_, false, true, true};
  }
  void execute(std::span<const Op> ops, Safety, std::span<Outcome> outcomes, Arena& arena) override {
    ++executed;
    before = pairs;
    for (std::size_t k = 0; k < ops.size(); ++k) {
      if (ops[k].key == "throws") what();
      const std::string key(ops[k].key);
      if (ops[k].code == Code::kv_put || ops[k].code == Code::object_write) {
        pairs[key] = text_of(ops[k].data);
        outcomes[k] = {Status::ok, 0, 0, {}};
      } else {
        outcomes[k] =
            pairs.contains(key) ? give(bytes_of(pairs[key]), ops[k], arena) : Outcome{Status::not_found, 0, 0, {}};
      }
    }
  }
  void roll_back() override {
    if (undoing) undoing();
    pairs = before;
  }
  Result<void> sync(bool) override {
    if (syncing) syncing();
    return {};
  }
  Result<void> settle() override { return sync(false); }
  std::string describe() const override {
    if (describing) describing();
    return "a map";
  }

 private:
  Role role_;
};

struct Behind {
  explicit Behind(Role role) {
    auto own = std::make_unique<Thrower>(role);
    thrower = own.get();
    auto opened = guarded(std::move(own), "the backend mine of the module ./mine.so");
    REQUIRE(opened);
    backend = std::move(*opened);
  }
  std::vector<Outcome> run(const std::vector<Op>& ops) {
    std::vector<Outcome> outcomes(ops.size());
    backend->execute(ops, Safety::network, outcomes, arena);
    return outcomes;
  }
  Thrower* thrower;
  std::unique_ptr<Backend> backend;
  Arena arena;
};

}  // namespace

TEST_CASE("guard: a batch of keys that throws is undone, and told by the operation that threw") {
  Behind at(Role::kv);
  CHECK(at.run({op(Code::kv_put, "a", "1")})[0].status == Status::ok);
  const auto outcomes = at.run({op(Code::kv_put, "a", "2"), op(Code::kv_put, "b", "2"), op(Code::kv_put, "throws", "2"),
                                op(Code::kv_put, "c", "2")});
  CHECK(outcomes[0].status == Status::aborted);
  CHECK(outcomes[1].status == Status::aborted);
  CHECK(outcomes[2].status == Status::internal);
  CHECK(outcomes[3].status == Status::aborted);
  CHECK(explain(outcomes[2]) == "the backend mine of the module ./mine.so threw an exception: no such page");
  CHECK(text(*at.backend, op(Code::kv_get, "a")) == "1");
  CHECK(text(*at.backend, op(Code::kv_get, "b")) == "<not_found>");
}

TEST_CASE("guard: what was done with objects before the exception keeps its outcome") {
  Behind at(Role::data);
  const auto outcomes =
      at.run({op(Code::object_write, "a", "1"), op(Code::object_write, "throws"), op(Code::object_write, "b", "1")});
  CHECK(outcomes[0].status == Status::ok);
  CHECK(outcomes[1].status == Status::internal);
  CHECK(outcomes[2].status == Status::internal);
  CHECK(explain(outcomes[1]).find("no such page") != std::string::npos);
  CHECK(explain(outcomes[2]) == explain(Status::internal));
}

TEST_CASE("guard: what cannot be undone either is not called again") {
  Behind at(Role::kv);
  at.thrower->undoing = [] { throw std::runtime_error("the log is gone"); };
  const auto first = at.run({op(Code::kv_put, "throws")});
  CHECK(first[0].status == Status::internal);
  CHECK(explain(first[0]).find("no such page") != std::string::npos);
  CHECK(explain(first[0]).find("the log is gone") != std::string::npos);
  const unsigned executed = at.thrower->executed;
  const auto second = at.run({op(Code::kv_put, "a", "1"), op(Code::kv_put, "b", "1")});
  CHECK(second[0].status == Status::internal);
  CHECK(second[1].status == Status::aborted);
  CHECK(at.thrower->executed == executed);
  CHECK(at.backend->sync(true).error().code == "store.internal");
}

TEST_CASE("guard: every other call may throw too, and anything") {
  Behind at(Role::kv);
  at.thrower->syncing = [] { throw 7; };
  at.thrower->describing = [] { throw std::bad_alloc(); };
  CHECK(at.backend->sync(false).error().what.find(
            "the backend mine of the module ./mine.so threw an exception: of the type i") != std::string::npos);
  CHECK_FALSE(at.backend->settle());
  CHECK(at.backend->describe().find("bad_alloc") != std::string::npos);
  at.thrower->what = [] { throw std::runtime_error(std::string(5000, 'x')); };
  const auto outcomes = at.run({op(Code::kv_get, "throws")});
  CHECK(outcomes[0].data.size() == 1024);

  auto mute = std::make_unique<Thrower>(Role::kv);
  mute->asked = [] { throw std::runtime_error("not today"); };
  const auto opened = guarded(std::move(mute), "the backend mute");
  REQUIRE_FALSE(opened);
  CHECK(opened.error().what == "the backend mute threw an exception: not today");
}

namespace {

/// A write, and in the same batch a read that finds no memory: what `read_written` shows is then what it showed before.
void undoes_a_batch_without_memory(Backend& backend, const Op& write, const Op& read, const Op& read_written) {
  const std::string before = text(backend, read_written), kept = text(backend, read);
  REQUIRE(backend.settle());
  Arena none(SIZE_MAX);  // no array is that large
  const Op ops[] = {write, read};
  std::vector<Outcome> outcomes(2);
  backend.execute(ops, Safety::network, outcomes, none);
  CHECK(outcomes[0].status == Status::aborted);
  CHECK((outcomes[1].status == Status::internal || outcomes[1].status == Status::no_space));
  CHECK(text(backend, read_written) == before);
  CHECK(text(backend, read) == kept);
  CHECK(run(backend, write) == Status::ok);
  CHECK(text(backend, read_written) != before);
  CHECK(backend.settle());
}

}  // namespace

TEST_CASE("guard: memory that runs out within a batch undoes it, in each backend that is atomic" *
          doctest::skip(sanitized)) {  // their `new` ends the process, where the usual one throws
  const auto names = backend_names(Role::kv);
  for (const char* name : {"memory", "lmdb", "rocksdb"}) {
    CAPTURE(name);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      MESSAGE("skipped: this build has no backend " << name);
      continue;
    }
    const Scratch scratch;
    const auto backend = faults::open(
        Role::kv, name, std::string_view(name) == "memory" ? Settings{} : Settings{{"path", scratch / "keys"}});
    REQUIRE(run(*backend, op(Code::kv_put, "old", "value")) == Status::ok);
    undoes_a_batch_without_memory(*backend, op(Code::kv_put, "new", "value"), op(Code::kv_get, "old"),
                                  op(Code::kv_get, "new"));
  }
  if (const auto tables = backend_names(Role::db); std::find(tables.begin(), tables.end(), "sqlite") != tables.end()) {
    const Scratch scratch;
    const auto backend = faults::open(Role::db, "sqlite", {{"path", scratch / "tables"}});
    const auto schema = db::encode(db::Schema{{{"n", db::Type::int64}}, {}});
    const auto row = db::encode(db::Rows{{"n"}, {{std::int64_t{7}}}});
    const auto query = db::encode(db::Query{{}, {}, {"n"}});
    REQUIRE(run(*backend, op(Code::db_define, "rows", text_of(schema))) == Status::ok);
    undoes_a_batch_without_memory(*backend, op(Code::db_insert, "rows", text_of(row)), op(Code::db_describe, "rows"),
                                  op(Code::db_query, "rows", text_of(query)));
  }
}
