#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "service.hpp"
#include "store_faults.hpp"

using namespace sonde::store;
using namespace sonde::store::faults;

namespace {

std::unique_ptr<Backend> open_posix(const std::string& path, const std::string& files = "512") {
  return faults::open(Role::data, "posix", {{"path", path}, {"files", files}});
}

Op write(std::string_view key, std::string_view data, std::uint64_t offset = 0) {
  Op write = op(Code::object_write, key, data);
  write.offset = offset;
  return write;
}

/// The one file that an object is in, found by its content.
std::string file_of(const std::string& folder, const std::string& name) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename() == name) return entry.path().string();
  FAIL("there is no file " << name);
  return {};
}

}  // namespace

TEST_CASE("posix: folders that it must refuse") { check_folder(Role::data, "posix", Role::kv, "lmdb"); }

TEST_CASE("posix: settings that make no sense") {
  const Scratch scratch;
  for (const char* files : {"0", "-1", "1.5", "many", "1048577", "99999999999999999999"}) {
    const auto opened = open_backend(Role::data, "posix", {{"path", scratch / "x"}, {"files", files}});
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code == "store.bad_setting");
    CHECK(opened.error().what.find(files) != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(scratch / "x"));
}

TEST_CASE("posix: no name leaves the folder") {
  const Scratch scratch;
  auto backend = open_posix(scratch / "in");
  for (const char* name : {"../out", "..", "/etc/sonde-out", ".", "a/../../../out", "sonde-store"})
    CHECK(run(*backend, write(name, "x")) == Status::ok);
  Op other = write("../../out", "x");
  other.space = "..";
  CHECK(run(*backend, other) == Status::ok);
  CHECK(std::distance(std::filesystem::directory_iterator(scratch.path), std::filesystem::directory_iterator()) == 1);
  CHECK_FALSE(std::filesystem::exists("/etc/sonde-out"));
  for (const auto& entry : std::filesystem::directory_iterator(scratch / "in"))
    CHECK((entry.is_directory() || entry.path().filename() == "sonde-store"));
}

TEST_CASE("posix: the folders of a long name go with its last object") {
  const Scratch scratch;
  auto backend = open_posix(scratch / "long");
  const std::string name(1000, 'x');
  const auto folders = [&] {
    return std::count_if(std::filesystem::recursive_directory_iterator(scratch / "long"),
                         std::filesystem::recursive_directory_iterator(),
                         [](const auto& e) { return e.is_directory(); });
  };
  CHECK(folders() == 0);
  CHECK(run(*backend, write(name, "1")) == Status::ok);
  CHECK(folders() == 1 + 4);
  CHECK(run(*backend, op(Code::object_remove, name)) == Status::ok);
  CHECK(folders() == 1);
}

TEST_CASE("posix: an object that a stranger made a symbolic link of is not followed") {
  const Scratch scratch;
  auto backend = open_posix(scratch / "in");
  CHECK(run(*backend, write("link", "secret")) == Status::ok);
  const std::string file = file_of(scratch / "in", "s+link");
  backend.reset();
  std::filesystem::rename(file, scratch / "elsewhere");
  std::filesystem::create_symlink(scratch / "elsewhere", file);
  backend = open_posix(scratch / "in");
  CHECK(text(*backend, faults::read("link")) == "<io_error>");
  CHECK(run(*backend, write("link", "x")) == Status::io_error);
}

TEST_CASE("posix: sync covers the files and folders that storage needs, and no others") {
  const Scratch scratch;
  auto backend = open_posix(scratch / "in");
  Syncs syncs;
  CHECK(run(*backend, {write("stored", "1"), write("stored2", "2")}, Safety::storage) ==
        std::vector<Status>(2, Status::ok));
  CHECK(run(*backend, write("network", "3")) == Status::ok);
  CHECK(Syncs::count() == 0);
  REQUIRE(backend->sync(false));
  const std::string stored = file_of(scratch / "in", "s+stored"), network = file_of(scratch / "in", "s+network");
  const auto folder = [](const std::string& path) { return path.substr(0, path.rfind('/')); };
  CHECK(Syncs::synced(stored));
  CHECK(Syncs::synced(file_of(scratch / "in", "s+stored2")));
  CHECK(Syncs::synced(folder(stored)));
  CHECK(Syncs::synced(scratch / "in"));
  CHECK_FALSE(Syncs::synced(network));

  SUBCASE("nothing new: nothing to sync") {
    Syncs::clear();
    REQUIRE(backend->sync(false));
    REQUIRE(backend->settle());
    CHECK(Syncs::count() == 0);
  }
  SUBCASE("a file made under a lower level gets its folder synced with its first stored write") {
    Syncs::clear();
    CHECK(run(*backend, write("network", "4"), Safety::storage) == Status::ok);
    REQUIRE(backend->sync(false));
    CHECK(Syncs::synced(network));
    CHECK(Syncs::synced(folder(network)));
    Syncs::clear();
    CHECK(run(*backend, write("network", "5"), Safety::storage) == Status::ok);
    REQUIRE(backend->sync(false));
    CHECK(Syncs::synced(network));
    CHECK_FALSE(Syncs::synced(folder(network)));
  }
  SUBCASE("sync of all covers what was written under lower levels") {
    Syncs::clear();
    REQUIRE(backend->sync(true));
    CHECK(Syncs::synced(network));
    CHECK(Syncs::synced(folder(network)));
  }
  SUBCASE("a remove is in its folder, a truncate in its file") {
    Syncs::clear();
    CHECK(run(*backend, op(Code::object_remove, "stored2"), Safety::storage) == Status::ok);
    Op cut = op(Code::object_truncate, "stored");
    CHECK(run(*backend, cut, Safety::storage) == Status::ok);
    REQUIRE(backend->sync(false));
    CHECK(Syncs::synced(stored));
    CHECK(Syncs::count() == 2);
  }
  SUBCASE("every folder of a long name") {
    const std::string name(600, 'n');
    CHECK(run(*backend, {write(name, "x"), op(Code::object_remove, name)}) == std::vector<Status>(2, Status::ok));
    REQUIRE(backend->sync(true));
    Syncs::clear();
    CHECK(run(*backend, write(name, "x"), Safety::storage) == Status::ok);
    REQUIRE(backend->sync(false));
    CHECK(Syncs::count() == 4);  // the file, two folders of the name, that of the hash
  }
}

TEST_CASE("posix: after a sync that failed nothing is claimed stored, until it is opened again") {
  const Scratch scratch;
  auto backend = open_posix(scratch / "in");
  {
    Syncs syncs;
    CHECK(run(*backend, write("a", "1"), Safety::storage) == Status::ok);
    Syncs::fail_from(0);
    const auto failed = backend->sync(false);
    REQUIRE_FALSE(failed);
    CHECK(failed.error().code == "store.sync_failed");
    CHECK(failed.error().what.find("Input/output error") != std::string::npos);
  }
  CHECK_FALSE(backend->sync(false));  // the disk is well again; the pages may be gone all the same
  CHECK(run(*backend, write("b", "2"), Safety::storage) == Status::ok);
  CHECK_FALSE(backend->sync(true));
  CHECK(backend->describe().find("SYNC FAILED") != std::string::npos);
  CHECK(text(*backend, faults::read("a")) == "1");
  backend.reset();
  backend = open_posix(scratch / "in");
  CHECK(backend->sync(true));
}

TEST_CASE("posix: more files stored than may be open are synced on the way; a failure there is told") {
  const Scratch scratch;
  auto backend = open_posix(scratch / "in", "4");
  Syncs syncs;
  std::vector<std::string> names;
  for (int k = 0; k < 20; ++k) names.push_back("f" + std::to_string(k));
  std::vector<Op> ops;
  for (const auto& name : names) ops.push_back(write(name, name));
  CHECK(run(*backend, ops, Safety::storage) == std::vector<Status>(20, Status::ok));
  CHECK(Syncs::count() > 0);
  REQUIRE(backend->sync(false));
  for (const auto& name : names) CHECK(Syncs::synced(file_of(scratch / "in", "s+" + name)));
  Syncs::fail_from(0);
  CHECK(run(*backend, ops, Safety::storage) == std::vector<Status>(20, Status::ok));
  CHECK_FALSE(backend->sync(false));
}

TEST_CASE("posix: a full disk is no_space, what was written before stays, and room made is room used") {
  const SmallDisk disk(4u << 20);
  REQUIRE_OR_SKIP(disk.mounted);
  auto backend = open_posix(disk.scratch / "in");
  const std::string block(256u << 10, 'b');
  std::vector<std::string> written;
  Status status = Status::ok;
  while (status == Status::ok && written.size() < 100) {
    const std::string name = "o" + std::to_string(written.size());
    status = run(*backend, write(name, block));
    if (status == Status::ok) written.push_back(name);
  }
  CHECK(status == Status::no_space);
  CHECK(written.size() > 5);
  for (const auto& name : written) CHECK((text(*backend, faults::read(name)) == block));
  // What fails leaves the others of its batch alone, also where they were to be written by one call.
  const auto statuses = run(*backend, {write("o0", "head"), write("o0", block, 256u << 10),
                                       write("o0", "more", 512u << 10), write("o1", "x")});
  CHECK(statuses[0] == Status::ok);
  CHECK(statuses[1] == Status::no_space);
  CHECK(statuses[3] == Status::ok);
  CHECK(backend->sync(true));
  CHECK(run(*backend, op(Code::object_remove, "o1")) == Status::ok);
  CHECK(run(*backend, write("new", std::string(100000, 'n'))) == Status::ok);
}

TEST_CASE("posix: a permission that is lost is denied, and nothing else") {
  if (geteuid() != 0) {
    MESSAGE("skipped: changing the user needs root");
    return;
  }
  const Scratch scratch;
  auto backend = open_posix(scratch / "in");
  CHECK(run(*backend, write("cached", "1")) == Status::ok);
  REQUIRE(seteuid(65534) == 0);
  const Status made = run(*backend, write("new", "x")), removed = run(*backend, op(Code::object_remove, "cached"));
  const std::string cached = text(*backend, faults::read("cached"));
  REQUIRE(seteuid(0) == 0);
  CHECK(made == Status::denied);
  CHECK(removed == Status::denied);
  CHECK(cached == "1");
  CHECK(run(*backend, write("new", "x")) == Status::ok);
}

TEST_CASE("posix: objects on a file system that became read-only can still be read") {
  const SmallDisk disk(4u << 20);
  REQUIRE_OR_SKIP(disk.mounted);
  auto backend = open_posix(disk.scratch / "in", "1");
  CHECK(run(*backend, {write("a", "1"), write("b", "2")}) == std::vector<Status>(2, Status::ok));
  const std::string file = file_of(disk.scratch / "in", "s+a");
  REQUIRE(chmod(file.c_str(), 0400) == 0);
  // root may write what it may not; another user, who owns the folders, may not
  REQUIRE(chown(file.c_str(), 0, 65534) == 0);
  for (auto folder : {std::filesystem::path(file).parent_path(), std::filesystem::path(disk.scratch / "in"),
                      std::filesystem::path(disk.scratch.path)})
    REQUIRE(chmod(folder.c_str(), 0755) == 0);
  REQUIRE(chmod(file.c_str(), 0444) == 0);
  REQUIRE(seteuid(65534) == 0);
  const std::string read = text(*backend, faults::read("a"));
  const Status written = run(*backend, write("a", "x"));
  REQUIRE(seteuid(0) == 0);
  CHECK(read == "1");
  CHECK(written == Status::denied);
  CHECK(run(*backend, write("a", "x")) == Status::ok);
  CHECK(text(*backend, faults::read("a")) == "x");
}

TEST_CASE("posix: when descriptors run out, those kept open are given back") {
  const Scratch scratch;
  auto backend = open_posix(scratch / "in", "100000");
  rlimit before;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit low{64, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  std::vector<std::string> names;
  for (int k = 0; k < 300; ++k) names.push_back("f" + std::to_string(k));
  bool good = true;
  for (const Safety safety : {Safety::network, Safety::storage})
    for (const auto& name : names) good = good && run(*backend, write(name, name), safety) == Status::ok;
  for (const auto& name : names) good = good && text(*backend, faults::read(name)) == name;
  const std::string listed = text(*backend, op(Code::object_list, ""));
  const bool synced = static_cast<bool>(backend->sync(true));
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(good);
  CHECK(synced);
  CHECK(listed.size() > 300 * 8);
}

TEST_CASE("posix: threads that write and remove one object never write into one that was removed") {
  const Scratch scratch;
  auto backend = open_posix(scratch / "in", "2");
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int k = 0; k < 300; ++k) {
        (void)run(*backend, write("x", "v"));
        (void)run(*backend, op(Code::object_remove, "x"));
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(run(*backend, write("x", "last")) == Status::ok);
  CHECK(text(*backend, faults::read("x")) == "last");
  backend.reset();
  CHECK(text(*open_posix(scratch / "in"), faults::read("x")) == "last");
}

TEST_CASE("posix: killed in the middle of stored batches, what was acknowledged is there") {
  check_kill(Role::data, "posix");
}

namespace {

/// Files of this process end at so many bytes while it lives: a full disk that needs no mount.
struct FileLimit {
  explicit FileLimit(rlim_t bytes) : before(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit less{bytes, limit.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &less) == 0);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, before);
  }
  FileLimit(const FileLimit&) = delete;
  sighandler_t before;
  rlimit limit{};
};

/// What a write says that stands, which is what a read finds from its offset on, also through a server that gets it in
/// pieces.
void tells_what_stands(const std::string& path, Status status, std::size_t first, std::size_t size) {
  const auto bytes = test::noise(size, 3);
  std::vector<std::byte> into(size);
  for (const bool served : {false, true}) {
    CAPTURE(served);
    std::unique_ptr<test::Service> service;
    Config config;
    if (served) {
      ServerConfig small;
      small.frame_data = 256u << 10;
      service =
          std::make_unique<test::Service>(1, std::vector<BackendSpec>{{Role::data, "posix", {{"path", path}}}}, small);
      config = service->config;
    } else {
      config.embedded = {{Role::data, "posix", {{"path", path}}}};
    }
    auto client = Client::open(config);
    REQUIRE(client);
    auto batch = client->batch();
    batch.write("s", "o", 0, Bytes(bytes).first(first));
    batch.write("s", "o", first, Bytes(bytes).subspan(first));
    REQUIRE(batch.run());
    CHECK(batch[0].status == Status::ok);
    CHECK(batch[0].value == first);
    CHECK(batch[1].status == status);
    const std::size_t stands = first + batch[1].value;
    CHECK(stands < size);
    batch.clear();
    batch.status("s", "o");
    batch.read("s", "o", 0, into);
    REQUIRE(batch.run());
    CHECK(batch[0].value == stands);
    CHECK(batch[1].data.size() == stands);
    CHECK(std::equal(batch[1].data.begin(), batch[1].data.end(), bytes.begin()));
    batch.clear();
    batch.remove_object("s", "o");
    REQUIRE(batch.run());
    CHECK(batch.failed() == 0);
  }
}

}  // namespace

TEST_CASE("posix: a write that did not fit says how many bytes of it stand, on a full disk") {
  const SmallDisk disk(2u << 20);
  REQUIRE_OR_SKIP(disk.mounted);
  tells_what_stands(disk.scratch / "in", Status::no_space, 300'001, 5'000'000);
}

TEST_CASE("posix: a write that did not fit says how many bytes of it stand, where files may not grow") {
  const Scratch scratch;
  const FileLimit limit(1'234'567);
  tells_what_stands(scratch / "in", Status::too_large, 300'001, 5'000'000);
}
