#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/backend/built_in.hpp"
#include "store/conformance/backend.hpp"

using namespace sonde;
using namespace sonde::store;

namespace {

struct Scratch {
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "sonde-backends-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Scratch() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

void conforms(Role role, const std::string& name, const Settings& settings, std::size_t at_least) {
  CAPTURE(name);
  std::size_t n = 0;
  for (const auto& check : conformance::check_backend(role, [&](const Settings& besides) {
         Settings all = settings;
         all.insert(besides.begin(), besides.end());
         return open_backend(role, name, all);
       })) {
    CHECK_MESSAGE(check.passed, check.name << ": " << check.message);
    ++n;
  }
  CHECK(n >= at_least);
}

bool there_is(Role role, std::string_view name) {
  for (const auto& known : backend_names(role))
    if (known == name) return true;
  MESSAGE("skipped: this build has no backend " << name);
  return false;
}

}  // namespace

TEST_CASE("conformance: null") {
  conforms(Role::data, "null", {}, 7);
  conforms(Role::kv, "null", {}, 7);
  conforms(Role::db, "null", {}, 7);
}

TEST_CASE("conformance: memory, objects") { conforms(Role::data, "memory", {}, 25); }
TEST_CASE("conformance: memory, keys") { conforms(Role::kv, "memory", {}, 20); }

TEST_CASE("conformance: posix") {
  const Scratch scratch;
  conforms(Role::data, "posix", {{"path", scratch.path / "objects"}}, 25);
}

TEST_CASE("conformance: posix that may keep one file open") {
  const Scratch scratch;
  conforms(Role::data, "posix", {{"path", scratch.path / "objects"}, {"files", "1"}}, 25);
}

TEST_CASE("conformance: lmdb") {
  if (!there_is(Role::kv, "lmdb")) return;
  const Scratch scratch;
  conforms(Role::kv, "lmdb", {{"path", scratch.path / "keys"}}, 20);
}

TEST_CASE("conformance: lmdb whose map is so small that every batch is committed alone") {
  if (!there_is(Role::kv, "lmdb")) return;
  const Scratch scratch;
  conforms(Role::kv, "lmdb", {{"path", scratch.path / "keys"}, {"map", "40MiB"}}, 20);
}

TEST_CASE("conformance: sqlite, on disk and in memory") {
  if (!there_is(Role::db, "sqlite")) return;
  const Scratch scratch;
  conforms(Role::db, "sqlite", {{"path", scratch.path / "rows"}}, 20);
  conforms(Role::db, "memory", {}, 20);
}

TEST_CASE("conformance: rocksdb, a module of this build") {
  if (!there_is(Role::kv, "rocksdb")) return;
  const Scratch scratch;
  conforms(Role::kv, "rocksdb", {{"path", scratch.path / "keys"}}, 20);
}

namespace {

/// A memory backend with one fault, to see that the checks see it.
class Faulty final : public Backend {
 public:
  Faulty(Role role, int fault) : good_(std::move(*open_backend(role, "memory", {}))), fault_(fault) {}
  Caps caps() const override {
    Caps caps = good_->caps();
    if (fault_ == 6) caps.durable = true;
    return caps;
  }
  void execute(std::span<const Op> ops, Safety safety, std::span<Outcome> outcomes, Arena& arena) override {
    std::vector<Op> changed(ops.begin(), ops.end());
    for (Op& op : changed) {
      if (fault_ == 1) op.flags = 0;  // forgets flags
      if (fault_ == 2) op.into = {};  // ignores `into`
      if (fault_ == 3 && (op.code == Code::object_list || op.code == Code::kv_scan))
        op.data = {};                                                          // starts over with each page
      if (fault_ == 4 && op.key.size() > 200) op.key = op.key.substr(0, 200);  // cuts names
    }
    if (fault_ == 5)  // one by one: no batch is atomic
      for (std::size_t k = 0; k < ops.size(); ++k)
        good_->execute({&changed[k], 1}, safety, outcomes.subspan(k, 1), arena);
    else good_->execute(changed, safety, outcomes, arena);
    if (fault_ == 7 && ops.size() > 2) outcomes[2] = {};
    if (fault_ == 8)
      for (std::size_t k = 0; k < ops.size(); ++k) outcomes[k].value += ops[k].code == Code::object_status;
  }
  Result<void> sync(bool all) override { return good_->sync(all); }
  std::string describe() const override { return fault_ == 9 ? "two\nlines" : good_->describe(); }

 private:
  std::unique_ptr<Backend> good_;
  int fault_;
};

std::size_t failures(Role role, int fault, const std::string& word) {
  std::size_t failed = 0, fitting = 0;
  for (const auto& check :
       conformance::check_backend(role, [&](const Settings& besides) -> Result<std::unique_ptr<Backend>> {
         if (fault != 10)
           if (auto ok = no_more_settings(besides, "faulty", "none"); !ok) return ok.error();
         return std::unique_ptr<Backend>(std::make_unique<Faulty>(role, fault));
       })) {
    CHECK(check.passed == check.message.empty());
    failed += !check.passed;
    fitting += !check.passed && check.name.find(word) != std::string::npos;
  }
  CAPTURE(fault);
  CHECK((fault == 0 || fitting > 0));
  return failed;
}

}  // namespace

TEST_CASE("conformance: what is wrong is found, where it is wrong") {
  CHECK(failures(Role::data, 0, "") == 0);
  CHECK(failures(Role::kv, 0, "") == 0);
  for (const Role role : {Role::data, Role::kv}) {
    failures(role, 1, "exclusive");
    failures(role, 2, "into");
    failures(role, 4, role == Role::data ? "names of any bytes" : "keys of any bytes");
    failures(role, 6, "opened again");
    failures(role, 9, "describes itself");
    failures(role, 10, "an unknown setting is refused, with its name");
    CHECK(failures(role, 7, "") > 5);
  }
  failures(Role::data, 3, "list: prefix");
  failures(Role::kv, 3, "scan: prefix");
  failures(Role::kv, 5, "undoes its batch");
  failures(Role::data, 8, "status gives the size");
}

TEST_CASE("every setting that the help names is one that its backend knows") {
  for (const SettingHelp& help : setting_help) {
    CAPTURE(help.backend);
    CAPTURE(help.name);
    bool known = false;
    for (const Role role : {Role::data, Role::kv, Role::db}) {
      const auto names = backend_names(role);
      if (std::find(names.begin(), names.end(), help.backend) == names.end()) continue;
      // The error names what is left over, and lists what is known.
      const auto opened = open_backend(role, help.backend, {{help.name, ""}, {"no-such-setting", "1"}});
      REQUIRE_FALSE(opened);
      CHECK(opened.error().what.find(std::string("no setting 'no-such-setting'")) != std::string::npos);
      CHECK(opened.error().what.find(help.name) != std::string::npos);
      known = true;
    }
    if (!known) MESSAGE("skipped: this build has no backend " << help.backend);
  }
}
