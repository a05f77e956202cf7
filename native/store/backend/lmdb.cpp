// Keys in an LMDB environment.
//
// Settings
//   path   the folder (required); created if missing, refused if it has other files
//   map    the largest size of the database, 1MiB or more, default 64GiB: address space, not disk
//
// On disk (version 1): data.mdb of LMDB, next to the marker and lock of folder.hpp. A key is one byte with the length
// of the space, the space, the key: so spaces do not mix, and the keys of one are in byte order. 504 bytes at most;
// LMDB takes 511.
//
// One write transaction stays open between batches and serves reads and writes alike, so a put costs no commit and a
// batch sees all that was done before it. It is committed, with fsync, by sync(), by settle(), and when it has grown to
// 128 MiB.
//   network   in the open transaction: every client sees it; a kill -9 of the server loses what came after the last
//             commit.
//   storage   after sync(): committed and fsynced.
//
// Nothing acknowledged may be lost for want of space, yet an LMDB transaction that meets a full map or disk can only be
// discarded as a whole. So pages for uncommitted data are reserved first: an upper bound of what a batch can
// take is counted, checked against the map and allocated in the file. A batch for which that does not go is executed in
// a transaction of its own, committed at once: if it does not fit, it alone is undone.
//
// MDB_NOLOCK: LMDB would bind the write transaction to the thread that began it (it holds a robust mutex). Here the
// folder's lock keeps other processes out, and mutex_ has one thread at a time in the environment; there are no read
// transactions, so no reader can meet a page that is used again. That is all that lmdb.h asks for.
#include <fcntl.h>
#include <lmdb.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/units.hpp"
#include "store/backend/built_in.hpp"
#include "store/backend/packed_key.hpp"
#include "store/folder.hpp"

namespace sonde::store {

namespace {

constexpr unsigned format_version = 1;
constexpr std::uint64_t open_pages_max =
    32768;  // of the open transaction: 128 MiB, well under what LMDB keeps without spilling
constexpr std::uint64_t reserve_pages = 1024;    // LMDB's own: list of free pages, root, what the bound does not see
constexpr std::uint64_t allocation_step = 4096;  // pages allocated in the file beyond what is needed at once
constexpr std::uint64_t map_default = 64ull << 30, map_least = 1ull << 20;

struct Key : PackedKey {
  using PackedKey::PackedKey;
  MDB_val val() { return {size, bytes}; }
};

std::string_view view(const MDB_val& v) { return {static_cast<const char*>(v.mv_data), v.mv_size}; }

Status status_of(int error) {
  switch (error) {
    case MDB_SUCCESS: return Status::ok;
    case MDB_NOTFOUND: return Status::not_found;
    case MDB_KEYEXIST: return Status::exists;
    case MDB_MAP_FULL:
    case MDB_TXN_FULL: return Status::no_space;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND: return Status::corrupt;
    case MDB_BAD_VALSIZE: return Status::invalid;
    default: return error > 0 ? status_of_errno(error) : Status::io_error;
  }
}

class Lmdb final : public Backend {
 public:
  Lmdb(Folder folder, MDB_env* env) : folder_(std::move(folder)), env_(env) {}
  ~Lmdb() override {
    (void)settle();
    mdb_env_close(env_);
  }

  Caps caps() const override { return {Role::kv, false, true, true}; }

  /// Once, before the backend is used.
  int prepare() {
    MDB_stat stat;
    MDB_envinfo info;
    if (int error = mdb_env_stat(env_, &stat)) return error;
    if (int error = mdb_env_info(env_, &info)) return error;
    page_bytes_ = stat.ms_psize;
    map_pages_ = info.me_mapsize / page_bytes_;
    if (int error = begin()) return error;
    return 0;
  }

  void execute(std::span<const Op> ops, Safety, std::span<Outcome> outcomes, Arena& arena) override {
    const std::lock_guard lock(mutex_);
    const auto all = [&](Status status) {
      for (std::size_t k = 0; k < ops.size(); ++k) outcomes[k] = {status, 0, 0, {}};
    };
    if (failed_) return all(Status::io_error);
    std::uint64_t writes = 0, overflow = 0;
    std::size_t undo_before = 0;  // operations before this one may have to be undone for an exclusive put
    for (std::size_t k = 0; k < ops.size(); ++k) {
      if (ops[k].code == Code::kv_put) {
        ++writes;
        if (ops[k].data.size() > page_bytes_ / 2 - 64)
          overflow += (ops[k].data.size() + 16 + page_bytes_ - 1) / page_bytes_;
        if (ops[k].flags & flag::exclusive) undo_before = k;
      } else if (ops[k].code == Code::kv_remove) {
        ++writes;
      }
    }
    if (undo_before) writes *= 2, overflow *= 2;  // what is undone takes pages again

    bool alone = false;
    if (writes) {
      if (changed_ && (pages_with(writes, overflow) > open_pages_max || !has_room(writes, overflow)))
        if (const int error = commit()) return lose("commit", error), all(Status::io_error);
      if (!txn_)
        if (const int error = begin()) return all(status_of(error));
      alone = !has_room(writes, overflow);
    } else if (!txn_) {
      if (const int error = begin()) return all(status_of(error));
    }

    const bool others = changed_;  // what other batches did is in the open transaction
    half_ = writes != 0;
    std::vector<Undo> undo;
    for (std::size_t k = 0; k < ops.size(); ++k) {
      int error = 0;
      outcomes[k] = run(ops[k], k < undo_before ? &undo : nullptr, arena, error);
      const Status status = outcomes[k].status;
      if (status == Status::ok || status == Status::not_found || status == Status::unsupported) continue;
      // LMDB gives up a transaction in which anything but "exists" and "not found" has happened.
      if (!others) drop();
      else if (status != Status::exists || !take_back(undo)) lose("a write in the open transaction", error);
      else writes_ += writes, overflow_ += overflow;
      half_ = false;
      undone(outcomes, k, status);
      return;
    }
    half_ = false;
    if (!writes) return;
    changed_ = true;
    writes_ += writes;
    overflow_ += overflow;
    if (!alone) return;
    if (const int error = commit()) {
      std::size_t last = ops.size() - 1;
      while (ops[last].code != Code::kv_put && ops[last].code != Code::kv_remove) --last;
      // Nothing of others was in it, and what was committed before is untouched.
      undone(outcomes, last, status_of_commit(error));
    }
  }

  /// Memory ran out within a batch: its changes cannot be separated from those of others in the same transaction.
  void roll_back() override {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(half_, false)) return;
    if (changed_) lose("an exception in the open transaction", ENOMEM);
    else if (txn_) drop();
  }

  Result<void> sync(bool) override {
    const std::lock_guard lock(mutex_);
    if (!failed_ && changed_)
      if (const int error = commit()) lose("commit", error);
    if (!failed_) return {};
    return Error{"store.sync_failed",
                 "the backend lmdb in " + folder_.path() + " lost data that was not on stable storage yet: " + failure_,
                 "repair the disk, then start the server again"};
  }

  Result<void> settle() override { return sync(true); }

  std::string describe() const override {
    const std::lock_guard lock(mutex_);
    MDB_stat stat{};
    if (txn_) mdb_stat(txn_, dbi_, &stat);
    else mdb_env_stat(env_, &stat);
    const std::uint64_t bytes = (stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages) * page_bytes_;
    std::string text = folder_.path() + ", " + std::to_string(stat.ms_entries) +
                       (stat.ms_entries == 1 ? " key, " : " keys, ") + format_size(bytes) + " of a map of " +
                       format_size(map_pages_ * page_bytes_);
    if (failed_) text += "; FAILED (" + failure_ + "), open it again";
    return text;
  }

 private:
  struct Undo {
    Key key;
    std::string value;
    bool was_there;
  };

  static void undone(std::span<Outcome> outcomes, std::size_t failed, Status status) {
    for (std::size_t k = 0; k < outcomes.size(); ++k) outcomes[k] = {k == failed ? status : Status::aborted, 0, 0, {}};
  }

  /// Pages that the open transaction can have taken, with `writes` and `overflow` more.
  std::uint64_t pages_with(std::uint64_t writes, std::uint64_t overflow) const {
    writes += writes_;
    // A page of the committed tree is copied when it is first touched: `depth` for a write, each page once. Then a leaf
    // may be split, and now and then a branch.
    return std::min(writes * depth_, tree_pages_) + 2 * writes + overflow_ + overflow;
  }

  bool has_room(std::uint64_t writes, std::uint64_t overflow) {
    const std::uint64_t need = last_page_ + 1 + pages_with(writes, overflow) + reserve_pages;
    if (need > map_pages_) return false;
    if (need <= allocated_pages_) return true;
    int fd = -1;
    mdb_env_get_fd(env_, &fd);
    for (const std::uint64_t pages : {std::min(need + allocation_step, map_pages_), need}) {
      int done;
      do done = fallocate(fd, 0, 0, static_cast<off_t>(pages * page_bytes_));
      while (done != 0 && errno == EINTR);
      if (done == 0) {
        allocated_pages_ = pages;
        return true;
      }
      if (errno == EOPNOTSUPP ||
          errno == ENOSYS) {  // such a file system cannot promise; its errors come with the commit
        allocated_pages_ = std::numeric_limits<std::uint64_t>::max();
        return true;
      }
    }
    return false;
  }

  int begin() {
    if (int error = mdb_txn_begin(env_, nullptr, 0, &txn_)) {
      txn_ = nullptr;
      return error;
    }
    MDB_stat stat;
    MDB_envinfo info;
    int error = mdb_dbi_open(txn_, nullptr, 0, &dbi_);
    if (!error) error = mdb_stat(txn_, dbi_, &stat);
    if (!error) error = mdb_env_info(env_, &info);
    if (error) {
      drop();
      return error;
    }
    depth_ = stat.ms_depth + 1;
    tree_pages_ = stat.ms_branch_pages + stat.ms_leaf_pages + 1;
    last_page_ = info.me_last_pgno;
    writes_ = overflow_ = 0;
    return 0;
  }

  int commit() {
    MDB_txn* txn = std::exchange(txn_, nullptr);
    changed_ = false;
    return mdb_txn_commit(txn);
  }

  /// LMDB says EIO where a full disk took a part of a page, so one that has no room for a batch is looked at.
  Status status_of_commit(int error) const {
    struct statvfs fs;
    if (error == EIO && fstatvfs(folder_.fd(), &fs) == 0 &&
        std::uint64_t{fs.f_bavail} * fs.f_frsize < reserve_pages * page_bytes_)
      return Status::no_space;
    return status_of(error);
  }

  void drop() {
    mdb_txn_abort(std::exchange(txn_, nullptr));
    changed_ = false;
  }

  /// Acknowledged data are lost: nothing more is acknowledged until the backend is opened again.
  void lose(const char* what, int error) {
    if (txn_) drop();
    failed_ = true;
    failure_ = std::string(what) + ": " + mdb_strerror(error);
  }

  Outcome run(const Op& op, std::vector<Undo>* undo, Arena& arena, int& error) {
    if (op.code == Code::sync) return {Status::ok, 0, 0, {}};
    if (op.code == Code::kv_scan) return scan(op, arena, error);
    Key key(op.space, op.key);
    MDB_val name = key.val(), value{0, nullptr};
    switch (op.code) {
      case Code::kv_get:
        error = mdb_get(txn_, dbi_, &name, &value);
        return error ? Outcome{status_of(error), 0, 0, {}} : give(bytes_of(view(value)), op, arena);
      case Code::kv_put:
      case Code::kv_remove: {
        if (undo) {
          MDB_val old{0, nullptr};
          error = mdb_get(txn_, dbi_, &name, &old);
          if (error && error != MDB_NOTFOUND) return {status_of(error), 0, 0, {}};
          undo->push_back({key, error ? std::string() : std::string(view(old)), error == 0});
        }
        value = {op.data.size(), const_cast<std::byte*>(op.data.data())};
        if (op.code == Code::kv_remove) error = mdb_del(txn_, dbi_, &name, nullptr);
        else error = mdb_put(txn_, dbi_, &name, &value, op.flags & flag::exclusive ? MDB_NOOVERWRITE : 0);
        if (error == MDB_KEYEXIST && undo) undo->pop_back();
        return {status_of(error), 0, 0, {}};
      }
      default: return {Status::unsupported, 0, 0, {}};
    }
  }

  bool take_back(std::vector<Undo>& undo) {
    for (auto step = undo.rbegin(); step != undo.rend(); ++step) {
      MDB_val name = step->key.val(), value{step->value.size(), step->value.data()};
      const int error = step->was_there ? mdb_put(txn_, dbi_, &name, &value, 0) : mdb_del(txn_, dbi_, &name, nullptr);
      if (error && error != MDB_NOTFOUND) return false;
    }
    return true;
  }

  Outcome scan(const Op& op, Arena& arena, int& error) {
    const Key prefix(op.space, op.key), after(op.space, text_of(op.data));
    Key start = !op.data.empty() && after.view() >= prefix.view() ? after : prefix;
    MDB_cursor* cursor = nullptr;
    error = mdb_cursor_open(txn_, dbi_, &cursor);
    if (error) return {status_of(error), 0, 0, {}};
    MDB_val name = start.val(), value;
    PairPacker packer(op);
    error = mdb_cursor_get(cursor, &name, &value, MDB_SET_RANGE);
    if (!error && !op.data.empty() && view(name) == after.view())
      error = mdb_cursor_get(cursor, &name, &value, MDB_NEXT);
    while (!error && view(name).starts_with(prefix.view()) &&
           packer.add(view(name).substr(1 + op.space.size()), bytes_of(view(value))))
      error = mdb_cursor_get(cursor, &name, &value, MDB_NEXT);
    mdb_cursor_close(cursor);
    if (error && error != MDB_NOTFOUND) return {status_of(error), 0, 0, {}};
    error = 0;
    return packer.finish(arena);
  }

  Folder folder_;
  MDB_env* env_;
  mutable std::mutex mutex_;
  MDB_txn* txn_ = nullptr;
  MDB_dbi dbi_ = 0;
  bool changed_ = false;                                      // the open transaction holds what a batch wrote
  bool half_ = false;                                         // and what one under way did so far
  std::uint64_t writes_ = 0, overflow_ = 0;                   // of the open transaction
  std::uint64_t depth_ = 1, tree_pages_ = 1, last_page_ = 1;  // of the committed state
  std::uint64_t page_bytes_ = 4096, map_pages_ = 0, allocated_pages_ = 0;
  bool failed_ = false;
  std::string failure_;
};

}  // namespace

Result<std::unique_ptr<Backend>> open_lmdb(const Settings& settings) {
  Settings left = settings;
  const std::string path = take_setting(left, "path"), map = take_setting(left, "map");
  if (auto ok = no_more_settings(left, "lmdb", "path, map"); !ok) return ok.error();
  std::uint64_t map_bytes = map_default;
  if (!map.empty()) {
    const auto size = parse_size(map);
    if (!size) return size.error();
    if (*size < map_least || *size > 1ull << 46)
      return Error{"store.bad_setting", "the backend lmdb cannot have a map of " + map,
                   "map is a size from 1MiB to 64TiB"};
    map_bytes = *size / map_least * map_least;
  }
  auto folder = Folder::open(path, "lmdb", format_version);
  if (!folder) return folder.error();
  MDB_env* env = nullptr;
  int error = mdb_env_create(&env);
  if (!error) error = mdb_env_set_mapsize(env, map_bytes);
  if (!error) error = mdb_env_open(env, path.c_str(), MDB_NOLOCK, 0600);
  std::unique_ptr<Lmdb> backend;
  if (!error) {
    // Pages that the file does not have are found when they are read, by a signal that ends the process. Where the file
    // system cannot allocate ahead, a page that was taken and given back before it was written may lie behind a sound
    // file's end.
    int fd = -1;
    MDB_envinfo info{};
    MDB_stat stat{};
    struct stat file{};
    const bool known = mdb_env_get_fd(env, &fd) == 0 && mdb_env_info(env, &info) == 0 &&
                       mdb_env_stat(env, &stat) == 0 && ::fstat(fd, &file) == 0;
    const std::uint64_t wanted = (std::uint64_t{info.me_last_pgno} + 1) * stat.ms_psize;
    if (known && stat.ms_entries && static_cast<std::uint64_t>(file.st_size) < wanted &&
        fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 1) == 0) {
      mdb_env_close(env);
      return cannot_open(
          path, "data.mdb is cut short: it has " + std::to_string(file.st_size) + " bytes of " + std::to_string(wanted),
          "restore it from a copy");
    }
    backend = std::make_unique<Lmdb>(std::move(*folder), env);
    env = nullptr;
    error = backend->prepare();
  }
  if (env) mdb_env_close(env);
  if (error)
    return cannot_open(
        path, "LMDB reports: " + std::string(mdb_strerror(error)),
        error == ENOMEM ? "the map is larger than the address space allowed; set a smaller one, map=1GiB" : "");
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace sonde::store
