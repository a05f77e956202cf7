// Stores objects as files in a folder.
//
// Settings
//   path    the folder (required); created if missing, refused if it has other files
//   files   descriptors that stay open, least recently used closed first; 1 .. 1048576, default 512
//
// On disk (version 1)
//   sonde-store      marker and lock (folder.hpp)
//   00 .. ff         an object is in the folder of its name's hash, so that no folder grows without bound; made when
//                    needed
//   00/scratch+a.txt an object "a.txt" of the space "scratch". Letters, digits, '.', '_' and '-' stand for themselves,
//     any
//                    other byte is %XX; '+' is between space and name. So no name can leave the folder, and every name
//                    of 1024 bytes can be stored: what is longer than 250 escaped bytes is cut into pieces of 250, each
//                    but the last a folder whose name ends in '~'. A last piece of one or two dots is written %2E or
//                    %2E%2E. No other data are stored about the file, so nothing can be inconsistent.
//
// Meaning of an acknowledgement
//   network   the kernel has it: it survives kill -9 of the server, not a crash of the machine.
//   storage   after sync(): fdatasync of every file written since, fsync of every folder in which one was made or
//             removed.
//   A failed fsync is final. The kernel may drop the pages it could not write and report the next fsync as good, so
//     every
//   sync() from then on fails, until the backend is opened again and its clients know what they lost.
//
// Source of the fsync rule: Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020.
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/number.hpp"
#include "core/units.hpp"
#include "store/backend/built_in.hpp"
#include "store/folder.hpp"

namespace sonde::store {

namespace {

constexpr unsigned format_version = 1;
constexpr std::size_t piece_bytes = 250;  // with '~' within NAME_MAX, and room for tools that append to names
constexpr std::size_t run_ops_max = 256;  // adjacent operations done by one call
constexpr std::size_t run_bytes_max = 16u << 20;
constexpr std::uint64_t unasked_bytes_max = 1u << 20;  // memory taken for a read before the file's size is looked at

// ---- names

bool stands_for_itself(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

void escape(std::string_view text, std::string& out) {
  constexpr char digits[] = "0123456789ABCDEF";
  for (const char c : text) {
    if (stands_for_itself(c)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', digits[byte >> 4], digits[byte & 15]};
    }
  }
}

/// False: not something that escape() makes.
bool unescape(std::string_view text, std::string& out) {
  out.clear();
  for (std::size_t k = 0; k < text.size(); ++k) {
    if (stands_for_itself(text[k])) {
      out += text[k];
      continue;
    }
    unsigned byte = 0;
    if (text[k] != '%' || k + 2 >= text.size()) return false;
    const auto [end, error] = std::from_chars(text.data() + k + 1, text.data() + k + 3, byte, 16);
    if (error != std::errc{} || end != text.data() + k + 3) return false;
    out += static_cast<char>(byte);
    k += 2;
  }
  return true;
}

/// Path of an object below the backend's folder. Its folder is what is before the last '/'.
std::string path_of(std::string_view space, std::string_view key) {
  std::string name;
  name.reserve(space.size() + key.size() + 8);
  escape(space, name);
  name += '+';
  escape(key, name);
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, folded to 8 bits: part of the format
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  hash ^= hash >> 32;
  hash ^= hash >> 16;
  hash ^= hash >> 8;
  std::string path(2, '0');
  constexpr char digits[] = "0123456789abcdef";
  path[0] = digits[(hash >> 4) & 15];
  path[1] = digits[hash & 15];
  for (std::string_view left = name; !left.empty(); left.remove_prefix(std::min(piece_bytes, left.size()))) {
    path += '/';
    // A last piece that the file system takes for the folder itself, or the one above, is written as what else stands
    // for it: %2E, which no other name has.
    const bool dots = left == "." || left == "..";
    if (dots) path += left.size() == 1 ? "%2E" : "%2E%2E";
    else path += left.substr(0, piece_bytes);
    if (left.size() > piece_bytes) path += '~';
  }
  return path;
}

std::string_view folder_of(std::string_view path) { return path.substr(0, path.rfind('/')); }

/// Calls with each folder from the nearest to the outermost.
template <typename F> void for_each_folder(std::string_view folder, F&& f) {
  for (;;) {
    f(folder);
    const std::size_t cut = folder.rfind('/');
    if (cut == std::string_view::npos) return;
    folder = folder.substr(0, cut);
  }
}

// ---- open files

struct File {
  File(int fd, bool writable, std::string folder) : fd(fd), writable(writable), folder(std::move(folder)) {}
  File(const File&) = delete;
  ~File() { close(fd); }
  const int fd;
  const bool writable;
  const std::string folder;
  std::atomic<bool> marked = false;   ///< is in the list of the next sync()
  std::atomic<bool> changed = false;  ///< written since it was last synced, at any level of safety
};
using Handle = std::shared_ptr<File>;

struct Name {
  std::string_view space, key;
  bool operator==(const Name&) const = default;
};
struct OwnedName {
  std::string space, key;
};
struct NameHash {
  using is_transparent = void;
  std::size_t operator()(const Name& n) const {
    return std::hash<std::string_view>{}(n.key) * 31 + std::hash<std::string_view>{}(n.space);
  }
  std::size_t operator()(const OwnedName& n) const { return (*this)(Name{n.space, n.key}); }
};
struct NameEqual {
  using is_transparent = void;
  static Name view(const Name& n) { return n; }
  static Name view(const OwnedName& n) { return {n.space, n.key}; }
  template <typename A, typename B> bool operator()(const A& a, const B& b) const { return view(a) == view(b); }
};

/// Names in a batch mostly point at the same bytes, which spares comparing them.
bool same(std::string_view a, std::string_view b) {
  return a.size() == b.size() && (a.data() == b.data() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}
bool same_object(const Op& a, const Op& b) { return same(a.key, b.key) && same(a.space, b.space); }

/// All of `n` buffers at `offset`, through EINTR and short transfers. Returns the bytes done; `error` 0 at the end of
/// file. `one` and `many` are pwrite and pwritev, or pread and preadv: a single buffer is spared the copy of its
/// description.
template <typename One, typename Many>
std::size_t transfer(One one, Many many, int fd, iovec* vectors, std::size_t n, std::uint64_t offset, int& error) {
  std::size_t done = 0;
  error = 0;
  while (n) {
    const auto at = static_cast<off_t>(offset + done);
    const ssize_t now =
        n == 1 ? one(fd, vectors->iov_base, vectors->iov_len, at) : many(fd, vectors, static_cast<int>(n), at);
    if (now < 0) {
      if (errno == EINTR) continue;
      error = errno;
      return done;
    }
    if (now == 0) return done;
    done += static_cast<std::size_t>(now);
    for (auto left = static_cast<std::size_t>(now); left || (n && vectors->iov_len == 0);) {
      const std::size_t taken = std::min(left, vectors->iov_len);
      vectors->iov_base = static_cast<char*>(vectors->iov_base) + taken;
      vectors->iov_len -= taken;
      left -= taken;
      if (vectors->iov_len == 0) ++vectors, --n;
    }
  }
  return done;
}

class Posix final : public Backend {
 public:
  Posix(Folder folder, std::size_t files) : folder_(std::move(folder)), files_max_(files) {}

  Caps caps() const override { return {Role::data, true, true, true}; }

  void execute(std::span<const Op> ops, Safety safety, std::span<Outcome> outcomes, Arena& arena) override {
    Handle file;
    const Op* of_file = nullptr;  // the operation whose object `file` is
    for (std::size_t k = 0; k < ops.size();) {
      const Op& op = ops[k];
      if (file && !same_object(op, *of_file)) file.reset();
      switch (op.code) {
        case Code::object_write:
        case Code::object_truncate:
        case Code::object_create:
        case Code::object_read: {
          const bool writes = op.code != Code::object_read;
          const bool exclusive = op.code == Code::object_create && op.flags & flag::exclusive;
          if (!file || (writes && !file->writable) || exclusive) {
            const bool makes =
                op.code == Code::object_create || (op.code == Code::object_write && !(op.flags & flag::must_exist));
            const Status status = find(op, writes, makes, exclusive, safety, file);
            if (status != Status::ok) {
              file.reset();
              outcomes[k++] = {status, 0, 0, {}};
              continue;
            }
          }
          of_file = &op;
          if (op.code == Code::object_create) outcomes[k++] = {Status::ok, 0, 0, {}};
          else if (op.code == Code::object_truncate) outcomes[k++] = truncate(*file, op);
          else
            k += op.code == Code::object_write ? write_run(*file, ops, k, outcomes)
                                               : read_run(*file, ops, k, outcomes, arena);
          if (writes) note_change(file, safety);
          break;
        }
        case Code::object_status: outcomes[k++] = status_of(op, file.get()); break;
        case Code::object_remove:
          file.reset();
          outcomes[k++] = remove(op, safety);
          break;
        case Code::object_list: outcomes[k++] = list(op, arena); break;
        case Code::sync: outcomes[k++] = {Status::ok, 0, 0, {}}; break;
        default: outcomes[k++] = {Status::unsupported, 0, 0, {}};
      }
    }
  }

  Result<void> sync(bool all) override {
    // One after the other: a second caller may count on what the first has taken from the list only once that is
    // synced.
    const std::lock_guard alone(sync_mutex_);
    if (failed_) return failed();
    std::vector<Handle> files;
    std::set<std::string, std::less<>> folders;
    bool whole = false;
    {
      const std::lock_guard lock(changes_mutex_);
      files.swap(marked_);
      whole = all && std::exchange(closed_unsynced_, false);
    }
    if (all) {
      const std::lock_guard lock(cache_mutex_);
      for (const auto& entry : used_)
        if (entry.file->changed && !entry.file->marked) files.push_back(entry.file);
    }
    {
      const std::lock_guard lock(changes_mutex_);
      for (const auto& [folder, marked] : changed_folders_)
        if (all || marked) folders.insert(folder);
      // A file that was made under a lower level is nowhere without its entry.
      for (const auto& file : files)
        for_each_folder(file->folder, [&](std::string_view folder) {
          if (changed_folders_.contains(folder)) folders.emplace(folder);
        });
      if ((!files.empty() || !folders.empty()) && changed_folders_.contains(".")) folders.emplace(".");
      for (const auto& folder : folders) changed_folders_.erase(folder);
    }
    if (whole && syncfs(folder_.fd()) != 0) return fail("syncfs", errno);
    for (const auto& file : files) {
      file->marked = false;  // before: what is written from here on marks it again
      file->changed = false;
      if (int error = until_done([&] { return fdatasync(file->fd); }))
        return fail("fdatasync of a file in " + file->folder, error);
    }
    for (const auto& folder : folders) {
      const int fd = openat(folder_.fd(), folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (fd < 0 && errno == ENOENT)
        continue;  // it was emptied and removed; that is in the folder above, which is listed too
      if (fd < 0) return fail("opening folder " + folder, errno);
      const int error = until_done([&] { return fsync(fd); });
      close(fd);
      if (error) return fail("fsync of folder " + folder, error);
    }
    return {};
  }

  Result<void> settle() override {
    const std::lock_guard lock(index_mutex_);
    const auto now = std::chrono::steady_clock::now();
    std::erase_if(index_, [&](const auto& entry) { return now - entry.second.used > std::chrono::seconds(60); });
    if (index_.empty()) indexed_ = false;
    return {};
  }

  std::string describe() const override {
    std::size_t open = 0;
    {
      const std::lock_guard lock(cache_mutex_);
      open = used_.size();
    }
    std::string text =
        folder_.path() + ", " + std::to_string(open) + " of " + std::to_string(files_max_) + " files open";
    struct statvfs fs;
    if (fstatvfs(folder_.fd(), &fs) == 0)
      text += ", " + format_size(std::uint64_t{fs.f_bavail} * fs.f_frsize) + " free";
    if (failed_) text += "; SYNC FAILED, storage is not acknowledged until it is opened again";
    return text;
  }

 private:
  struct Entry {
    OwnedName name;
    Handle file;
  };
  using Used = std::list<Entry>;  // most recently used first

  struct SpaceIndex {
    std::set<std::string> names;
    std::chrono::steady_clock::time_point used;
  };

  template <typename F> static int until_done(F&& f) {
    while (f() != 0)
      if (errno != EINTR) return errno;
    return 0;
  }

  Error failed() const {
    return {"store.sync_failed", "the backend posix in " + folder_.path() + " cannot store data durably: " + failure_,
            "repair the disk, then start the server again"};
  }
  Error fail(const std::string& what, int error) {
    failure_ = what + " failed: " + errno_text(error);
    failed_ = true;
    return failed();
  }

  // ---- finding files

  Handle cached(const Name& name) {
    const std::lock_guard lock(cache_mutex_);
    const auto found = cache_.find(name);
    if (found == cache_.end()) return nullptr;
    used_.splice(used_.begin(), used_, found->second);
    return found->second->file;
  }

  void keep(const Name& name, const Handle& file) {
    std::vector<Handle> closing;  // closed after the lock is gone
    const std::lock_guard lock(cache_mutex_);
    used_.push_front({{std::string(name.space), std::string(name.key)}, file});
    cache_.insert_or_assign(used_.front().name, used_.begin());
    while (used_.size() > files_max_) close_oldest(closing);
  }

  /// With cache_mutex_.
  void close_oldest(std::vector<Handle>& closing) {
    Entry& oldest = used_.back();
    if (oldest.file->changed && !oldest.file->marked) {
      const std::lock_guard lock(changes_mutex_);
      closed_unsynced_ = true;
    }
    closing.push_back(std::move(oldest.file));
    cache_.erase(cache_.find(Name{oldest.name.space, oldest.name.key}));
    used_.pop_back();
  }

  void forget(const Name& name) {
    Handle closing;
    const std::lock_guard lock(cache_mutex_);
    const auto found = cache_.find(name);
    if (found == cache_.end()) return;
    closing = std::move(found->second->file);
    used_.erase(found->second);
    cache_.erase(found);
  }

  /// openat that closes cached descriptors when none is left. Called with a stripe's lock.
  int open_file(const std::string& path, int flags) {
    for (int attempt = 0;; ++attempt) {
      const int fd = openat(folder_.fd(), path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0600);
      if (fd >= 0 || (errno != EMFILE && errno != ENFILE && errno != EINTR) || attempt == 8) return fd;
      if (errno == EINTR) continue;
      const int error = errno;
      std::vector<Handle> closing;
      {
        const std::lock_guard lock(cache_mutex_);
        for (std::size_t n = (used_.size() + 1) / 2; n; --n) close_oldest(closing);
      }
      const bool any = !closing.empty();
      closing.clear();
      bool more = false;
      {
        const std::lock_guard lock(changes_mutex_);
        more = !marked_.empty();
      }
      if (more) (void)sync(false);  // a failure is recorded, and the next sync() reports it
      if (!any && !more) {
        errno = error;
        return -1;
      }
    }
  }

  Status find(const Op& op, bool writes, bool makes, bool exclusive, Safety safety, Handle& file) {
    const Name name{op.space, op.key};
    file = cached(name);
    if (file && (!writes || file->writable)) return exclusive ? Status::exists : Status::ok;
    const std::string path = path_of(op.space, op.key);
    // Creating, opening or removing an object takes its stripe, so that the cache never has a file that was removed.
    const std::lock_guard stripe(stripe_of(path));
    file = cached(name);
    if (file && writes && !file->writable) {
      forget(name);
      file.reset();
    }
    if (file) return exclusive ? Status::exists : Status::ok;
    bool writable = true, made = false;
    int fd = open_file(path, O_RDWR);
    if (fd < 0 && !writes && (errno == EACCES || errno == EROFS || errno == EPERM)) {
      writable = false;
      fd = open_file(path, O_RDONLY);
    }
    if (fd < 0 && errno == ENOENT && makes) {
      made = true;
      fd = open_file(path, O_RDWR | O_CREAT | O_EXCL);
      for (int attempt = 0; fd < 0 && errno == ENOENT && attempt < 8; ++attempt) {
        // The folder of the hash, and those of a long name; another thread may remove one that it found empty, hence
        // more than one attempt.
        for (std::size_t cut = 2; cut != std::string::npos; cut = path.find('/', cut + 1)) {
          if (mkdirat(folder_.fd(), path.substr(0, cut).c_str(), 0700) != 0) {
            if (errno != EEXIST) return status_of_errno(errno);
          } else if (cut == 2) {
            note_folders(".", safety);
          }
        }
        fd = open_file(path, O_RDWR | O_CREAT | O_EXCL);
      }
    }
    if (fd < 0) return errno == ENOENT ? Status::not_found : status_of_errno(errno);
    file = std::make_shared<File>(fd, writable, std::string(folder_of(path)));
    if (made) {
      note_folders(file->folder, safety);
      if (indexed_) {
        const std::lock_guard lock(index_mutex_);
        if (const auto found = index_.find(op.space); found != index_.end()) found->second.names.emplace(op.key);
      }
    }
    keep(name, file);
    return exclusive && !made ? Status::exists : Status::ok;
  }

  std::mutex& stripe_of(std::string_view path) {
    return stripes_[std::hash<std::string_view>{}(path) % stripes_.size()];
  }

  // ---- what the next sync() is about

  void note_change(const Handle& file, Safety safety) {
    file->changed = true;
    if (safety != Safety::storage || file->marked.exchange(true)) return;
    bool many = false;
    {
      const std::lock_guard lock(changes_mutex_);
      marked_.push_back(file);
      many = marked_.size() > files_max_;
    }
    if (many) (void)sync(false);  // else the list of descriptors would only grow; the next sync() reports a failure
  }

  void note_folders(const std::string& folder, Safety safety) {
    const std::lock_guard lock(changes_mutex_);
    for_each_folder(folder, [&](std::string_view each) {
      const auto found = changed_folders_.try_emplace(std::string(each), false).first;
      found->second |= safety == Safety::storage;
    });
  }

  // ---- operations

  static std::size_t write_run(const File& file, std::span<const Op> ops, std::size_t first,
                               std::span<Outcome> outcomes) {
    iovec vectors[run_ops_max];
    std::size_t n = 0, bytes = 0;
    const std::uint64_t offset = ops[first].offset;
    do {
      const Op& op = ops[first + n];
      vectors[n++] = {const_cast<std::byte*>(op.data.data()), op.data.size()};
      bytes += op.data.size();
    } while (first + n < ops.size() && n < run_ops_max && bytes < run_bytes_max &&
             ops[first + n].code == Code::object_write && ops[first + n].offset == offset + bytes &&
             same_object(ops[first + n], ops[first]));
    int error = 0;
    std::size_t done = bytes == 0 ? 0 : transfer(pwrite, pwritev, file.fd, vectors, n, offset, error);
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t size = ops[first + k].data.size(), part = std::min(size, done);
      done -= part;
      if (part == size) {
        outcomes[first + k] = {Status::ok, size, 0, {}};
        continue;
      }
      outcomes[first + k] = {status_of_errno(error), part, 0, {}};
      return k + 1;  // those after it stand for themselves: they may fit where this one did not
    }
    return n;
  }

  static std::size_t read_run(const File& file, std::span<const Op> ops, std::size_t first, std::span<Outcome> outcomes,
                              Arena& arena) {
    iovec vectors[run_ops_max];
    struct {
      std::byte* data;
      std::size_t size;
    } to[run_ops_max];  // not spans: they would all be set to nothing for each read
    std::size_t n = 0, bytes = 0;
    const std::uint64_t offset = ops[first].offset;
    do {
      const Op& op = ops[first + n];
      std::uint64_t length = op.length;
      if (!op.into.empty()) {
        length = std::min<std::uint64_t>(length, op.into.size());
      } else if (length > unasked_bytes_max) {
        struct stat about;
        if (fstat(file.fd, &about) != 0) {
          outcomes[first + n] = {status_of_errno(errno), 0, 0, {}};
          if (n == 0) return 1;
          break;
        }
        const auto size = static_cast<std::uint64_t>(about.st_size);
        length = std::min(length, size > op.offset ? size - op.offset : 0);
      }
      const MutableBytes memory = op.into.empty() ? arena.take(length) : op.into.first(length);
      to[n] = {memory.data(), memory.size()};
      vectors[n] = {memory.data(), memory.size()};
      ++n;
      bytes += length;
    } while (first + n < ops.size() && n < run_ops_max && bytes < run_bytes_max &&
             ops[first + n].code == Code::object_read && ops[first + n].offset == offset + bytes &&
             same_object(ops[first + n], ops[first]));
    int error = 0;
    std::size_t done = bytes == 0 ? 0 : transfer(pread, preadv, file.fd, vectors, n, offset, error);
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t part = std::min(to[k].size, done);
      done -= part;
      if (error && part < to[k].size) {
        outcomes[first + k] = {status_of_errno(error), 0, 0, {}};
        return k + 1;
      }
      outcomes[first + k] = {Status::ok, part, 0, Bytes(to[k].data, part)};
    }
    return n;
  }

  static Outcome truncate(const File& file, const Op& op) {
    const int error = until_done([&] { return ftruncate(file.fd, static_cast<off_t>(op.length)); });
    // Larger than the file system's largest file: some say EINVAL where others say EFBIG.
    if (error) return {error == EINVAL ? Status::too_large : status_of_errno(error), 0, 0, {}};
    return {Status::ok, op.length, 0, {}};
  }

  Outcome status_of(const Op& op, const File* file) {
    struct stat about;
    Handle held;
    if (!file) {
      held = cached({op.space, op.key});
      file = held.get();
    }
    const int failed = file ? fstat(file->fd, &about)
                            : fstatat(folder_.fd(), path_of(op.space, op.key).c_str(), &about, AT_SYMLINK_NOFOLLOW);
    if (failed) return {errno == ENOENT ? Status::not_found : status_of_errno(errno), 0, 0, {}};
    return {Status::ok,
            static_cast<std::uint64_t>(about.st_size),
            std::int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec,
            {}};
  }

  Outcome remove(const Op& op, Safety safety) {
    const std::string path = path_of(op.space, op.key);
    const std::lock_guard stripe(stripe_of(path));
    if (unlinkat(folder_.fd(), path.c_str(), 0) != 0)
      return {errno == ENOENT ? Status::not_found : status_of_errno(errno), 0, 0, {}};
    forget({op.space, op.key});
    const std::string folder(folder_of(path));
    note_folders(folder, safety);
    // The folders of a long name go when they are empty; rmdir refuses the others.
    for_each_folder(folder, [&](std::string_view each) {
      if (each.size() > 2) (void)unlinkat(folder_.fd(), std::string(each).c_str(), AT_REMOVEDIR);
    });
    if (indexed_) {
      const std::lock_guard lock(index_mutex_);
      if (const auto found = index_.find(op.space); found != index_.end())
        found->second.names.erase(std::string(op.key));
    }
    return {Status::ok, 0, 0, {}};
  }

  /// The names of a space are read from the folders once, and then stored in order and updated by creations and
  /// removals until no client has asked for a minute: otherwise a list of many pages would read every folder for each
  /// page.
  Outcome list(const Op& op, Arena& arena) {
    const std::lock_guard lock(index_mutex_);
    auto space = index_.find(op.space);
    if (space == index_.end()) {
      indexed_ =
          true;  // before the folders are read: what is made or removed from here on waits for the lock to say so
      space = index_.try_emplace(std::string(op.space)).first;
      for (unsigned k = 0; k < 256; ++k) {
        constexpr char digits[] = "0123456789abcdef";
        const std::string folder{digits[k >> 4], digits[k & 15]};
        if (const int error = read_folder(folder, "", op.space, space->second.names)) {
          index_.erase(space);
          return {status_of_errno(error), 0, 0, {}};
        }
      }
    }
    space->second.used = std::chrono::steady_clock::now();
    const std::set<std::string>& names = space->second.names;
    const std::string prefix(op.key), after(text_of(op.data));
    auto at = !op.data.empty() && after >= prefix ? names.upper_bound(after) : names.lower_bound(prefix);
    PairPacker packer(op);
    for (; at != names.end() && at->starts_with(prefix); ++at)
      if (!packer.add(*at, {})) break;
    return packer.finish(arena);
  }

  /// Adds names of `space`; returns 0 or an errno. `before`: the pieces of the name above this folder.
  int read_folder(const std::string& folder, const std::string& before, std::string_view space,
                  std::set<std::string>& names) {
    const int fd = open_file(folder, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return errno == ENOENT ? 0 : errno;
    DIR* dir = fdopendir(fd);
    if (!dir) {
      const int error = errno;
      close(fd);
      return error;
    }
    int error = 0;
    std::vector<std::string> below;
    std::string escaped_space, key;
    escape(space, escaped_space);
    escaped_space += '+';
    for (errno = 0;; errno = 0) {
      const dirent* entry = readdir(dir);
      if (!entry) {
        error = errno;
        break;
      }
      std::string_view piece = entry->d_name;
      if (piece == "." || piece == "..") continue;
      if (piece.ends_with('~')) {
        below.emplace_back(piece);
        continue;
      }
      const std::string full = before + std::string(piece);
      if (full.starts_with(escaped_space) && unescape(std::string_view(full).substr(escaped_space.size()), key))
        names.insert(key);
    }
    closedir(dir);
    for (const auto& piece : below)
      if (!error) error = read_folder(folder + '/' + piece, before + piece.substr(0, piece.size() - 1), space, names);
    return error;
  }

  Folder folder_;
  const std::size_t files_max_;
  std::array<std::mutex, 64> stripes_;

  mutable std::mutex cache_mutex_;
  Used used_;
  std::unordered_map<OwnedName, Used::iterator, NameHash, NameEqual> cache_;

  std::mutex changes_mutex_;
  std::vector<Handle> marked_;
  std::map<std::string, bool, std::less<>> changed_folders_;  // true: under Safety::storage
  bool closed_unsynced_ = false;

  std::mutex sync_mutex_;
  std::atomic<bool> failed_ = false;
  std::string failure_;

  std::mutex index_mutex_;
  std::map<std::string, SpaceIndex, std::less<>> index_;
  std::atomic<bool> indexed_ = false;
};

}  // namespace

Result<std::unique_ptr<Backend>> open_posix(const Settings& settings) {
  Settings left = settings;
  const std::string path = take_setting(left, "path"), files = take_setting(left, "files");
  if (auto ok = no_more_settings(left, "posix", "path, files"); !ok) return ok.error();
  std::size_t n = 512;
  if (!files.empty() && (!number(files, n) || n < 1 || n > 1u << 20))
    return Error{"store.bad_setting", "the backend posix cannot keep '" + files + "' files open",
                 "files is a number from 1 to 1048576"};
  auto folder = Folder::open(path, "posix", format_version);
  if (!folder) return folder.error();
  return std::unique_ptr<Backend>(std::make_unique<Posix>(std::move(*folder), n));
}

}  // namespace sonde::store
