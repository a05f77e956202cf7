#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store_faults.hpp"

using namespace sonde::store;
using namespace sonde::store::faults;

namespace {

bool there_is(Role role, std::string_view name) {
  const auto names = backend_names(role);
  if (std::find(names.begin(), names.end(), name) != names.end()) return true;
  MESSAGE("skipped: this build has no backend " << name);
  return false;
}

std::unique_ptr<Backend> open_lmdb(const std::string& path, const std::string& map = "64GiB") {
  return faults::open(Role::kv, "lmdb", {{"path", path}, {"map", map}});
}
Op put(std::string_view key, std::string_view value, std::uint8_t flags = 0) {
  return op(Code::kv_put, key, value, flags);
}
Op get(std::string_view key) { return op(Code::kv_get, key); }

/// Puts until there is no space, sometimes in batches: all that was acknowledged must be there, before and after it is
/// opened again, and a batch that did not fit must be absent.
void fill(const std::string& path, const std::string& map, std::size_t at_least) {
  auto backend = open_lmdb(path, map);
  const std::string value(20000, 'v');
  std::vector<std::string> acknowledged, refused;
  for (int round = 0; round < 2000 && refused.size() < 20; ++round) {
    std::vector<std::string> keys;
    for (int k = 0; k < 1 + round % 5; ++k) keys.push_back("k" + std::to_string(round) + '-' + std::to_string(k));
    std::vector<Op> ops;
    for (const auto& key : keys) ops.push_back(put(key, value));
    const auto statuses = run(*backend, ops);
    const bool ok = std::all_of(statuses.begin(), statuses.end(), [](Status s) { return s == Status::ok; });
    if (!ok) {
      CHECK(std::count(statuses.begin(), statuses.end(), Status::no_space) == 1);
      CHECK(std::count(statuses.begin(), statuses.end(), Status::aborted) ==
            static_cast<std::ptrdiff_t>(statuses.size()) - 1);
    }
    auto& list = ok ? acknowledged : refused;
    list.insert(list.end(), keys.begin(), keys.end());
  }
  CHECK(acknowledged.size() >= at_least);
  CHECK(refused.size() >= 20);
  for (int pass = 0; pass < 2; ++pass) {
    for (const auto& key : acknowledged) CHECK((text(*backend, get(key)) == value));
    for (const auto& key : refused) CHECK(text(*backend, get(key)) == "<not_found>");
    CHECK(backend->sync(true));
    backend.reset();
    backend = open_lmdb(path, map);
  }
  // What is removed makes room, once two commits have passed.
  for (std::size_t k = 0; k < 10; ++k) CHECK(run(*backend, op(Code::kv_remove, acknowledged[k])) == Status::ok);
  for (int k = 0; k < 3; ++k) {
    CHECK(run(*backend, put("tiny", "t")) == Status::ok);
    CHECK(backend->sync(true));
  }
  CHECK(run(*backend, put("again", value)) == Status::ok);
  CHECK((text(*backend, get("again")) == value));
}

}  // namespace

TEST_CASE("lmdb: folders that it must refuse") {
  if (there_is(Role::kv, "lmdb")) check_folder(Role::kv, "lmdb", Role::data, "posix");
}

TEST_CASE("lmdb: settings that make no sense") {
  if (!there_is(Role::kv, "lmdb")) return;
  const Scratch scratch;
  for (const char* map : {"0", "1kB", "1000TiB", "much", "64G"})
    CHECK_FALSE(open_backend(Role::kv, "lmdb", {{"path", scratch / "x"}, {"map", map}}));
  CHECK_FALSE(std::filesystem::exists(scratch / "x"));
}

TEST_CASE("lmdb: a database that is none is refused") {
  if (!there_is(Role::kv, "lmdb")) return;
  const Scratch scratch;
  open_lmdb(scratch / "x");
  std::filesystem::resize_file(scratch / "x/data.mdb", 0);
  std::filesystem::copy_file("/proc/self/exe", scratch / "x/data.mdb",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(cannot_open(Role::kv, "lmdb", {{"path", scratch / "x"}}).find("LMDB") != std::string::npos);
}

TEST_CASE("lmdb: a file that was cut short is refused, not met by a signal when it is read") {
  if (!there_is(Role::kv, "lmdb")) return;
  const Scratch scratch;
  {
    auto backend = open_backend(Role::kv, "lmdb", {{"path", scratch / "x"}});
    REQUIRE(backend);
    const std::vector<std::byte> value(100'000, std::byte{7});
    Op op;
    op.code = Code::kv_put;
    op.space = "s";
    op.key = "k";
    op.data = value;
    Outcome outcome;
    Arena arena;
    (*backend)->execute({&op, 1}, Safety::storage, {&outcome, 1}, arena);
    REQUIRE(outcome.status == Status::ok);
    REQUIRE((*backend)->sync(true));
  }
  for (const std::uintmax_t bytes : {60'000u, 8192u, 5000u}) {
    std::filesystem::resize_file(scratch / "x/data.mdb", bytes);
    CHECK(cannot_open(Role::kv, "lmdb", {{"path", scratch / "x"}}).find("cut short") != std::string::npos);
  }
}

TEST_CASE("lmdb: a full map undoes the batch that does not fit, and no other") {
  if (!there_is(Role::kv, "lmdb")) return;
  const Scratch scratch;
  fill(scratch / "x", "3MiB", 50);
}

TEST_CASE("lmdb: a full disk undoes the batch that does not fit, and no other") {
  if (!there_is(Role::kv, "lmdb")) return;
  const SmallDisk disk(3u << 20);
  REQUIRE_OR_SKIP(disk.mounted);
  fill(disk.scratch / "x", "64GiB", 50);
}

TEST_CASE(
    "lmdb: what is not committed yet is there for every batch, and put on storage by sync, settle and a clean end") {
  if (!there_is(Role::kv, "lmdb")) return;
  const Scratch scratch;
  auto backend = open_lmdb(scratch / "x");
  Syncs syncs;
  CHECK(run(*backend, put("a", "1")) == Status::ok);
  CHECK(text(*backend, get("a")) == "1");
  CHECK(Syncs::count() == 0);
  REQUIRE(backend->sync(false));
  CHECK(Syncs::synced(scratch / "x/data.mdb"));
  Syncs::clear();
  REQUIRE(backend->sync(true));
  CHECK(Syncs::count() == 0);
  CHECK(run(*backend, put("b", "2")) == Status::ok);
  REQUIRE(backend->settle());
  CHECK(Syncs::count() > 0);
  CHECK(run(*backend, put("c", "3")) == Status::ok);
  backend.reset();
  backend = open_lmdb(scratch / "x");
  for (const char* key : {"a", "b", "c"}) CHECK(text(*backend, get(key)).size() == 1);
}

TEST_CASE("lmdb: a large open transaction is committed by itself") {
  if (!there_is(Role::kv, "lmdb")) return;
  const Scratch scratch;
  auto backend = open_lmdb(scratch / "x");
  Syncs syncs;
  const std::string value(1u << 20, 'v');
  for (int k = 0; k < 200; ++k) REQUIRE(run(*backend, put("k" + std::to_string(k), value)) == Status::ok);
  CHECK(Syncs::count() > 0);
}

TEST_CASE("lmdb: after a commit that failed nothing is claimed stored, until it is opened again") {
  if (!there_is(Role::kv, "lmdb")) return;
  const Scratch scratch;
  auto backend = open_lmdb(scratch / "x");
  CHECK(run(*backend, put("kept", "1")) == Status::ok);
  REQUIRE(backend->sync(false));
  {
    Syncs syncs;
    CHECK(run(*backend, put("lost", "2"), Safety::storage) == Status::ok);
    Syncs::fail_from(0);
    const auto failed = backend->sync(false);
    REQUIRE_FALSE(failed);
    CHECK(failed.error().code == "store.sync_failed");
  }
  CHECK_FALSE(backend->sync(false));
  CHECK(run(*backend, put("more", "3")) == Status::io_error);
  CHECK(text(*backend, get("kept")) == "<io_error>");
  backend.reset();
  backend = open_lmdb(scratch / "x");
  CHECK(text(*backend, get("kept")) == "1");
  CHECK(text(*backend, get("lost")) == "<not_found>");
  CHECK(run(*backend, put("more", "3")) == Status::ok);
  CHECK(backend->sync(false));
}

TEST_CASE("lmdb: killed in the middle of stored batches, they are whole or absent") {
  if (there_is(Role::kv, "lmdb")) check_kill(Role::kv, "lmdb");
}

TEST_CASE("rocksdb: folders that it must refuse") {
  if (there_is(Role::kv, "rocksdb")) check_folder(Role::kv, "rocksdb", Role::data, "posix");
}

TEST_CASE("rocksdb: settings that make no sense") {
  if (!there_is(Role::kv, "rocksdb")) return;
  const Scratch scratch;
  for (const char* name : {"cache", "buffer"})
    for (const char* size : {"0", "2TiB", "much"})
      CHECK_FALSE(open_backend(Role::kv, "rocksdb", {{"path", scratch / "x"}, {name, size}}));
  CHECK_FALSE(std::filesystem::exists(scratch / "x"));
}

TEST_CASE("rocksdb: a full disk undoes the batch that does not fit, and no other") {
  if (!there_is(Role::kv, "rocksdb")) return;
  const SmallDisk disk(24u << 20);
  REQUIRE_OR_SKIP(disk.mounted);
  // Where it is the first database of its process, an assertion of Debian's RocksDB 7.8 ends the process instead:
  // sync_without_flush_called_ in writable_file_writer.h. Why is not known.
  const Scratch scratch;
  faults::open(Role::kv, "rocksdb", {{"path", scratch / "before"}}).reset();
  auto backend = faults::open(Role::kv, "rocksdb", {{"path", disk.scratch / "x"}, {"buffer", "64MiB"}});
  std::vector<std::string> acknowledged;
  std::string values(20000, 'v');
  std::vector<Status> last;
  for (int k = 0; k < 2000; ++k) {
    const std::string one = "k" + std::to_string(k), other = "l" + std::to_string(k);
    last = run(*backend, {put(one, values), put(other, values)});
    if (last.front() != Status::ok) break;
    acknowledged.insert(acknowledged.end(), {one, other});
  }
  CHECK(last == std::vector<Status>{Status::aborted, Status::no_space});
  CHECK(acknowledged.size() > 100);
  for (const auto& key : acknowledged) CHECK((text(*backend, get(key)) == values));
  CHECK(text(*backend, get("k" + std::to_string(acknowledged.size() / 2))) == "<not_found>");
}

TEST_CASE("rocksdb: after a sync that failed nothing is claimed stored, until it is opened again") {
  if (!there_is(Role::kv, "rocksdb")) return;
  const Scratch scratch;
  auto backend = faults::open(Role::kv, "rocksdb", {{"path", scratch / "x"}});
  {
    Syncs syncs;
    CHECK(run(*backend, put("a", "1"), Safety::storage) == Status::ok);
    Syncs::fail_from(0);
    CHECK_FALSE(backend->sync(false));
  }
  CHECK_FALSE(backend->sync(true));
  backend.reset();
  backend = faults::open(Role::kv, "rocksdb", {{"path", scratch / "x"}});
  CHECK(run(*backend, put("b", "2"), Safety::storage) == Status::ok);
  CHECK(backend->sync(false));
}

TEST_CASE("rocksdb: killed in the middle of stored batches, they are whole or absent") {
  if (there_is(Role::kv, "rocksdb")) check_kill(Role::kv, "rocksdb");
}
