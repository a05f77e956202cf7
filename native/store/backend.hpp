#pragma once
/// Where data finally rests. A backend serves one role; the server, and a client without a server, hand it batches.
///
/// A new one in five steps: derive from Backend; say in caps() what it can do; execute operations in order and give
/// each its outcome; make sync() true; export a Module (module.hpp). `sonde store conformance ./mine.so` then tests it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/deadline.hpp"
#include "core/error.hpp"
#include "store/types.hpp"

namespace sonde::store {

struct Caps {
  Role role = Role::data;
  bool concurrent = false;  ///< execute() may run in several threads at once; else its caller takes turns
  bool keeps = true;        ///< what was written can be read again (the null backends cannot)
  bool durable = false;     ///< what sync() covered survives power loss; else Safety::storage is refused
};

/// Settings by name, from `--backend kv=lmdb,path=/var/lib/x,map=64GiB`. What a backend does not know it must refuse.
using Settings = std::map<std::string, std::string, std::less<>>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Caps caps() const = 0;

  /// Executes `ops` in order and sets every outcome (as many as ops), which come as `pending`. Names and lengths have
  /// passed check(). kv and db: all or nothing. An operation that fails for good (no_space, io_error, too_large,
  /// denied, invalid, and exists of an exclusive put or insert) undoes the batch: it keeps its status, every other gets
  /// `aborted`. not_found undoes nothing. Later operations of a batch see earlier ones.
  /// data: each operation by itself; what failed leaves the others alone.
  /// What is read goes to Op::into where that is given (its size bounds the read), else to memory of `arena`.
  /// safety: storage marks what was changed for the next sync(); the caller calls it before it acknowledges.
  /// Code::sync among them is answered ok and no more: the caller calls sync(true) before it acknowledges the batch.
  /// Never blocks on the network, and should not throw. If it does, operations that have no outcome yet, of kv and db
  /// the whole batch, are answered `internal` and `aborted`, and roll_back() is called.
  virtual void execute(std::span<const Op> ops, Safety safety, std::span<Outcome> outcomes, Arena& arena) = 0;

  /// After execute() has thrown, in its thread and, unless concurrent, its turn: undoes what is left of an atomic
  /// batch, ends its transaction. Nothing to do where that happens as the stack unwinds. Should it throw too, execute()
  /// and sync() are not called again: nobody knows what a later batch would be added to.
  virtual void roll_back() {}

  /// What execute() did under Safety::storage reaches stable storage, before this returns. `all`: what it did under
  /// other levels too. May run while another thread is in execute(); what that does meanwhile need not be covered.
  /// After an error nothing executed since the last good sync() may be acknowledged as stored.
  virtual Result<void> sync(bool all) = 0;

  /// Brings what is in memory to where a restart finds it, without the cost of sync(). Called at least once a second,
  /// and before a clean end.
  virtual Result<void> settle() { return {}; }

  /// One line for `status`: path, size, entries, whatever its operator wants to know.
  virtual std::string describe() const = 0;
};

/// Opens a built-in or loaded backend, so that no exception of it comes out of any call. Names: null, memory (each
/// role), posix (data), lmdb, rocksdb (kv), sqlite (db). Errors: store.unknown_backend (lists those of the role),
/// store.bad_module (the file that should have it did not load), store.bad_setting, store.cannot_open (path and reason,
/// or the exception's text).
Result<std::unique_ptr<Backend>> open_backend(Role role, std::string_view name, const Settings& settings);

/// Names of the backends of a role that this build and the loaded modules have.
std::vector<std::string> backend_names(Role role);

// ---- for those who write one

/// How long a batch may take: while one is alive, for what its thread has a backend execute. A backend in which one
/// operation may take very long asks passed() now and then, and gives the batch up with the status that it gets.
class Bounds {
 public:
  /// stop: set when nobody waits for the batch any more, as its server ends.
  Bounds(Deadline deadline, const std::atomic<bool>* stop);
  ~Bounds();
  Bounds(const Bounds&) = delete;
  /// ok, timed_out or unavailable. Without Bounds in the calling thread: ok.
  static Status passed();
  /// The batch was told that its time was over.
  bool gave_up() const { return gave_up_; }

 private:
  Deadline deadline_;
  const std::atomic<bool>* stop_;
  Bounds* before_;
  bool gave_up_ = false;
};

/// The value of a setting, which is then taken out, so that what is left is unknown. Empty: not there.
std::string take_setting(Settings& settings, std::string_view name);
/// store.bad_setting naming the first that is left and those that are allowed; ok when none is.
Result<void> no_more_settings(const Settings& left, std::string_view backend, std::string_view allowed);

/// A value as the outcome of a get: into Op::into, cut to its size, or copied to the arena. Outcome::value: the whole
/// length.
Outcome give(Bytes value, const Op& op, Arena& arena);

/// Answers of kv_scan and object_list are packed: u32 bytes of the key, u32 bytes of the value, key, value, and so on.
/// One answer holds at most this many bytes; Outcome::value is the number of entries, and time_ns is 1 where more
/// follow.
inline constexpr std::size_t scan_bytes_max = 192u << 10;

/// Gathers the entries of one scan until its limit or scan_bytes_max. A single larger entry is given alone.
class PairPacker {
 public:
  explicit PairPacker(const Op& op)
      : limit_(op.length), keys_only_(op.flags & flag::keys_only || op.code == Code::object_list) {}
  /// False: it did not fit; ask no further.
  bool add(std::string_view key, Bytes value);
  Outcome finish(Arena& arena);

 private:
  std::vector<std::byte> out_;
  std::uint64_t limit_, n_ = 0;
  bool keys_only_, more_ = false;
};

/// object_list from names in order.
Outcome pack_names(const std::vector<std::string>& names, std::uint64_t limit, Arena& arena);

/// What PairPacker packed. False: cut short.
bool unpack_pairs(Bytes packed, std::vector<std::pair<std::string_view, Bytes>>& pairs);

}  // namespace sonde::store
