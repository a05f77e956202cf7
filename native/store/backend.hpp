#pragma once
/// A backend stores data. It serves one role; the server, and a client without a server, give it batches.
///
/// A new backend in five steps: derive from Backend; report its capabilities in caps(); execute operations in order and
/// give each its outcome; implement sync(); export a Module (module.hpp). `sonde store conformance ./mine.so` tests it.

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
  bool concurrent = false;  ///< execute() may run in several threads at once; else the caller serialises its calls
  bool keeps = true;        ///< written data can be read again (not from the null backends)
  bool durable = false;     ///< data that sync() covered survive power loss; else Safety::storage is refused
};

/// Settings by name, from `--backend kv=lmdb,path=/var/lib/x,map=64GiB`. A backend must refuse unknown settings.
using Settings = std::map<std::string, std::string, std::less<>>;

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Caps caps() const = 0;

  /// Executes `ops` in order and sets every outcome (as many as ops), which come as `pending`. Names and lengths have
  /// passed check(). kv and db: all or nothing. An operation that fails for good (no_space, io_error, too_large,
  /// denied, invalid, and exists of an exclusive put or insert) undoes the batch: it keeps its status, every other gets
  /// `aborted`. not_found undoes nothing. Later operations of a batch see earlier ones.
  /// data: each operation by itself; a failure does not affect the others.
  /// Read data go to Op::into if it is given (its size bounds the read), else to memory of `arena`.
  /// safety: storage marks the changes for the next sync(); the caller calls it before it acknowledges.
  /// An operation Code::sync is only answered ok: the caller calls sync(true) before it acknowledges the batch.
  /// Never blocks on the network, and should not throw. If it does, operations that have no outcome yet, of kv and db
  /// the whole batch, are answered `internal` and `aborted`, and roll_back() is called.
  virtual void execute(std::span<const Op> ops, Safety safety, std::span<Outcome> outcomes, Arena& arena) = 0;

  /// Called after execute() has thrown, in its thread and, unless concurrent, before any other call: undoes the rest of
  /// an atomic batch and ends its transaction. Not needed when this happens while the stack unwinds. If it throws, too,
  /// execute() and sync() are not called again, because the state of the data is then unknown.
  virtual void roll_back() {}

  /// Brings all changes of execute() under Safety::storage to stable storage before it returns. `all`: also changes
  /// under other levels. May run while another thread is in execute(), whose changes need not be covered. After an
  /// error nothing that was executed since the last successful sync() may be acknowledged as stored.
  virtual Result<void> sync(bool all) = 0;

  /// Writes data from memory to a place where a restart finds them, without the cost of sync(). Called at least once a
  /// second, and before a clean end.
  virtual Result<void> settle() { return {}; }

  /// One line for `status`: path, size, entries, and other facts for the operator.
  virtual std::string describe() const = 0;
};

/// Opens a built-in or loaded backend, wrapped so that its calls throw no exceptions. Names: null, memory (each
/// role), posix (data), lmdb, rocksdb (kv), sqlite (db). Errors: store.unknown_backend (lists those of the role),
/// store.bad_module (the file that should have it did not load), store.bad_setting, store.cannot_open (path and reason,
/// or the exception's text).
Result<std::unique_ptr<Backend>> open_backend(Role role, std::string_view name, const Settings& settings);

/// Names of the backends of a role that this build and the loaded modules have.
std::vector<std::string> backend_names(Role role);

// ---- for authors of backends

/// The time limit of a batch. It applies to the backend calls of its thread while the object exists. A backend in which
/// one operation may take very long calls passed() now and then, and ends the batch with the status that it returns.
class Bounds {
 public:
  /// stop: set when the batch is no longer needed, because its server ends.
  Bounds(Deadline deadline, const std::atomic<bool>* stop);
  ~Bounds();
  Bounds(const Bounds&) = delete;
  /// ok, timed_out or unavailable. Without Bounds in the calling thread: ok.
  static Status passed();
  /// Whether passed() has reported that the time was over.
  bool gave_up() const { return gave_up_; }

 private:
  Deadline deadline_;
  const std::atomic<bool>* stop_;
  Bounds* before_;
  bool gave_up_ = false;
};

/// The value of a setting, which is removed, so that the remaining settings are the unknown ones. Empty: not given.
std::string take_setting(Settings& settings, std::string_view name);
/// ok when no setting is left; else store.bad_setting, which names the first one and the allowed settings.
Result<void> no_more_settings(const Settings& left, std::string_view backend, std::string_view allowed);

/// The outcome of a get with this value: copied to Op::into, cut to its size, or to the arena. Outcome::value: the
/// whole length.
Outcome give(Bytes value, const Op& op, Arena& arena);

/// Answers of kv_scan and object_list are packed: u32 bytes of the key, u32 bytes of the value, key, value, and so on.
/// An answer has at most this many bytes; Outcome::value is the number of entries, and time_ns is 1 when more follow.
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

/// Unpacks the output of PairPacker. False: it is cut short.
bool unpack_pairs(Bytes packed, std::vector<std::pair<std::string_view, Bytes>>& pairs);

}  // namespace sonde::store
