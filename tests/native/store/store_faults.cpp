#include "store_faults.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>

#include "store/db.hpp"

namespace {

std::mutex syncs_mutex;
std::condition_variable syncs_released;
bool syncs_noted = false, syncs_held = false;
std::size_t syncs_count = 0, syncs_fail_from = ~std::size_t{0};
std::set<std::pair<dev_t, ino_t>> syncs;

int note(int fd, long call) {
  {
    std::unique_lock lock(syncs_mutex);
    if (syncs_noted) {
      if (syncs_count++ >= syncs_fail_from) {
        errno = EIO;
        return -1;
      }
      struct stat about;
      if (fstat(fd, &about) == 0) syncs.emplace(about.st_dev, about.st_ino);
      syncs_released.wait(lock, [] { return !syncs_held; });
    }
  }
  return static_cast<int>(syscall(call, fd));
}

}  // namespace

// The program's own come before those of the C library, for the shared libraries too.
extern "C" int fsync(int fd) { return note(fd, SYS_fsync); }
extern "C" int fdatasync(int fd) { return note(fd, SYS_fdatasync); }

namespace sonde::store::faults {

Scratch::Scratch() {
  path = (std::filesystem::temp_directory_path() / "sonde-faults-XXXXXX").string();
  REQUIRE(mkdtemp(path.data()) != nullptr);
}
Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

SmallDisk::SmallDisk(std::size_t bytes) {
  mounted = mount("tmpfs", scratch.path.c_str(), "tmpfs", 0, ("size=" + std::to_string(bytes)).c_str()) == 0;
}
SmallDisk::~SmallDisk() {
  if (mounted) umount2(scratch.path.c_str(), MNT_DETACH);
}

Syncs::Syncs() {
  const std::lock_guard lock(syncs_mutex);
  syncs_noted = true;
  syncs_count = 0;
  syncs_fail_from = ~std::size_t{0};
  syncs.clear();
}
Syncs::~Syncs() {
  release();
  const std::lock_guard lock(syncs_mutex);
  syncs_noted = false;
}
bool Syncs::synced(const std::string& path) {
  struct stat about;
  REQUIRE(stat(path.c_str(), &about) == 0);
  const std::lock_guard lock(syncs_mutex);
  return syncs.contains({about.st_dev, about.st_ino});
}
std::size_t Syncs::count() {
  const std::lock_guard lock(syncs_mutex);
  return syncs_count;
}
void Syncs::clear() {
  const std::lock_guard lock(syncs_mutex);
  syncs_count = 0;
  syncs_fail_from = ~std::size_t{0};
  syncs.clear();
}
void Syncs::fail_from(std::size_t number) {
  const std::lock_guard lock(syncs_mutex);
  syncs_fail_from = number;
}
void Syncs::hold() {
  const std::lock_guard lock(syncs_mutex);
  syncs_held = true;
}
void Syncs::release() {
  {
    const std::lock_guard lock(syncs_mutex);
    syncs_held = false;
  }
  syncs_released.notify_all();
}

std::unique_ptr<Backend> open(Role role, const std::string& name, const Settings& settings) {
  auto opened = open_backend(role, name, settings);
  if (!opened) FAIL(opened.error().what);
  return std::move(*opened);
}

std::string cannot_open(Role role, const std::string& name, const Settings& settings) {
  const auto opened = open_backend(role, name, settings);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code == "store.cannot_open");
  return opened.error().what;
}

Op op(Code code, std::string_view key, std::string_view data, std::uint8_t flags) {
  Op op;
  op.code = code;
  op.flags = flags;
  op.space = "s";
  op.key = key;
  op.data = bytes_of(data);
  return op;
}

Op read(std::string_view key, std::uint64_t length) {
  Op read = op(Code::object_read, key);
  read.length = length;
  return read;
}

std::vector<Status> run(Backend& backend, const std::vector<Op>& ops, Safety safety) {
  Arena arena;
  std::vector<Outcome> outcomes(ops.size());
  backend.execute(ops, safety, outcomes, arena);
  std::vector<Status> statuses;
  for (const Outcome& outcome : outcomes) statuses.push_back(outcome.status);
  return statuses;
}

Status run(Backend& backend, const Op& op, Safety safety) { return run(backend, std::vector<Op>{op}, safety).front(); }

std::string text(Backend& backend, const Op& op) {
  Arena arena;
  Outcome outcome;
  backend.execute({&op, 1}, Safety::network, {&outcome, 1}, arena);
  if (outcome.status != Status::ok) return '<' + std::string(name_of(outcome.status)) + '>';
  return std::string(text_of(outcome.data));
}

void check_folder(Role role, const std::string& name, Role other_role, const std::string& other_name) {
  namespace fs = std::filesystem;
  const Scratch scratch;
  const auto says = [](const std::string& what, const char* word) {
    CHECK_MESSAGE(what.find(word) != std::string::npos, what);
  };
  const std::string path = scratch / "one";

  SUBCASE("made with access for its owner only, and no path at all") {
    open(role, name, {{"path", path}});
    CHECK((fs::status(path).permissions() & fs::perms::all) == fs::perms::owner_all);
    const auto none = open_backend(role, name, {});
    REQUIRE_FALSE(none);
    CHECK(none.error().code == "store.bad_setting");
    CHECK(none.error().what.find("path") != std::string::npos);
  }
  SUBCASE("in use by another") {
    const auto first = open(role, name, {{"path", path}});
    says(cannot_open(role, name, {{"path", path}}), "another server");
  }
  SUBCASE("of another backend") {
    open(other_role, other_name, {{"path", path}});
    says(cannot_open(role, name, {{"path", path}}), other_name.c_str());
  }
  SUBCASE("of another version") {
    open(role, name, {{"path", path}});
    std::ofstream(path + "/sonde-store") << "sonde-store " << name << " 99\n";
    says(cannot_open(role, name, {{"path", path}}), "99");
  }
  SUBCASE("with a damaged marker, and with an empty one beside data") {
    open(role, name, {{"path", path}});
    std::ofstream(path + "/data") << "x";
    for (const char* damaged : {"\x7f"
                                "ELF",
                                "sonde-store posi", ""}) {
      std::ofstream(path + "/sonde-store", std::ios::trunc) << damaged;
      says(cannot_open(role, name, {{"path", path}}), "damaged");
    }
  }
  SUBCASE("whose marker was cut short by a crash, before there was anything else") {
    fs::create_directory(path);
    std::ofstream(path + "/sonde-store") << "sonde-st";
    open(role, name, {{"path", path}});
    open(role, name, {{"path", path}});
  }
  SUBCASE("of somebody else: refused and left alone") {
    fs::create_directory(path);
    std::ofstream(path + "/thesis.tex") << "x";
    says(cannot_open(role, name, {{"path", path}}), "not empty");
    CHECK(std::distance(fs::directory_iterator(path), fs::directory_iterator()) == 1);
  }
  SUBCASE("empty already: taken") {
    fs::create_directory(path);
    open(role, name, {{"path", path}});
  }
  SUBCASE("a file, or under a folder that is not there") {
    std::ofstream(path) << "x";
    says(cannot_open(role, name, {{"path", path}}), path.c_str());
    says(cannot_open(role, name, {{"path", scratch / "none/none"}}), "none/none");
  }
  SUBCASE("on a file system that became read-only") {
    const SmallDisk disk(32u << 20);
    REQUIRE_OR_SKIP(disk.mounted);
    const std::string there = disk.scratch / "one";
    open(role, name, {{"path", there}});
    REQUIRE(mount("tmpfs", disk.scratch.path.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0);
    says(cannot_open(role, name, {{"path", there}}), "Read-only");
  }
}

// ---- killed in the middle

namespace {

constexpr int ops_in_batch = 8;
constexpr int ack_fd = 3;

std::string key_of(unsigned batch, int k) { return "batch" + std::to_string(batch) + '-' + std::to_string(k); }
std::string value_of(unsigned batch, int k) {
  return std::string(200 + 37 * static_cast<std::size_t>(k), static_cast<char>('a' + batch % 26));
}

db::Schema schema() { return {{{"key", db::Type::text}, {"value", db::Type::text}}, {{{0}, true}}}; }

/// One batch under Safety::storage; dies where it fails, which the parent sees.
void write_batch(Backend& backend, Role role, unsigned batch) {
  std::vector<std::string> keys, values;
  std::vector<db::Blob> rows;
  std::vector<Op> ops;
  for (int k = 0; k < ops_in_batch; ++k) {
    keys.push_back(key_of(batch, k));
    values.push_back(value_of(batch, k));
    rows.push_back(db::encode(db::Rows{{"key", "value"}, {{keys.back(), values.back()}}}));
  }
  for (std::size_t k = 0; k < ops_in_batch; ++k) {
    switch (role) {
      case Role::data: ops.push_back(op(Code::object_write, keys[k], values[k])); break;
      case Role::kv: ops.push_back(op(Code::kv_put, keys[k], values[k])); break;
      case Role::db: ops.push_back(op(Code::db_insert, "rows", text_of(rows[k]))); break;
    }
  }
  for (const Status status : run(backend, ops, Safety::storage))
    if (status != Status::ok) _exit(11);
  if (!backend.sync(false)) _exit(12);
  if (write(ack_fd, &batch, sizeof batch) != sizeof batch) _exit(13);
}

/// How many of a batch's values are there as they were written.
int found(Backend& backend, Role role, unsigned batch) {
  int n = 0;
  for (int k = 0; k < ops_in_batch; ++k) {
    const std::string key = key_of(batch, k);
    if (role == Role::db) {
      const auto query = db::encode(db::Query{db::Selector::where("key", db::Compare::eq, key), {}, {"value"}});
      const std::string bytes = text(backend, op(Code::db_query, "rows", text_of(query)));
      const auto answer = db::decode_answer(bytes_of(bytes));
      n += answer && (*answer).rows.size() == 1 && (*answer).rows[0][0] == db::Value(value_of(batch, k));
    } else {
      n += text(backend, role == Role::data ? read(key) : op(Code::kv_get, key)) == value_of(batch, k);
    }
  }
  return n;
}

}  // namespace

TEST_CASE("the child of check_kill" * doctest::skip()) {
  const char* role_text = std::getenv("SONDE_TEST_KILL_ROLE");
  if (!role_text) return;
  const auto role = static_cast<Role>(std::atoi(role_text));
  auto backend = open(role, std::getenv("SONDE_TEST_KILL_BACKEND"), {{"path", std::getenv("SONDE_TEST_KILL_PATH")}});
  for (unsigned batch = static_cast<unsigned>(std::atoi(std::getenv("SONDE_TEST_KILL_FIRST")));; ++batch)
    write_batch(*backend, role, batch);
}

void check_kill(Role role, const std::string& name) {
  const Scratch scratch;
  const std::string path = scratch / "data";
  if (role == Role::db) {
    auto backend = open(role, name, {{"path", path}});
    const auto definition = db::encode(schema());
    REQUIRE(run(*backend, op(Code::db_define, "rows", text_of(definition))) == Status::ok);
    REQUIRE(backend->settle());
  }
  unsigned next = 0;
  std::vector<std::pair<unsigned, unsigned>> acknowledged;  // batches [first, last)
  for (unsigned round = 0; round < 6; ++round) {
    int acks[2];
    REQUIRE(pipe(acks) == 0);
    const unsigned first = next;
    setenv("SONDE_TEST_KILL_ROLE", std::to_string(static_cast<int>(role)).c_str(), 1);
    setenv("SONDE_TEST_KILL_BACKEND", name.c_str(), 1);
    setenv("SONDE_TEST_KILL_PATH", path.c_str(), 1);
    setenv("SONDE_TEST_KILL_FIRST", std::to_string(first).c_str(), 1);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      // A process of its own: a fork alone would have the locks of libraries, without the threads that hold them.
      close(acks[0]);
      if (acks[1] != ack_fd) {
        dup2(acks[1], ack_fd);
        close(acks[1]);
      }
      execl("/proc/self/exe", "sonde-test-store", "--no-skip", "-tc=the child of check_kill",
            static_cast<char*>(nullptr));
      _exit(10);
    }
    close(acks[1]);
    for (const char* variable :
         {"SONDE_TEST_KILL_ROLE", "SONDE_TEST_KILL_BACKEND", "SONDE_TEST_KILL_PATH", "SONDE_TEST_KILL_FIRST"})
      unsetenv(variable);
    unsigned batch = 0;
    const auto next_ack = [&] { return ::read(acks[0], &batch, sizeof batch) == sizeof batch; };
    for (unsigned k = 0; k < 3 + 5 * round; ++k) {
      REQUIRE_MESSAGE(next_ack(), "the child ended by itself");
      CHECK(batch == next);
      next = batch + 1;
    }
    usleep(300 * round);  // somewhere within the next batch
    kill(child, SIGKILL);
    while (next_ack()) next = batch + 1;
    close(acks[0]);
    int how = 0;
    REQUIRE(waitpid(child, &how, 0) == child);
    CHECK((WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL));
    acknowledged.emplace_back(first, next);

    const auto backend = open(role, name, {{"path", path}});
    for (const auto& [from, to] : acknowledged)
      for (unsigned k = from; k < to; ++k)
        CHECK_MESSAGE(found(*backend, role, k) == ops_in_batch, "batch " << k << " was acknowledged");
    const int last = found(*backend, role, next);
    if (role != Role::data)
      CHECK_MESSAGE((last == 0 || last == ops_in_batch), "of a batch that was not acknowledged there are " << last);
    ++next;  // that one may be there
  }
}

}  // namespace sonde::store::faults
