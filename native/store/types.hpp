#pragma once
/// Storage operations: the types that client, wire and backend share.
///
/// A batch is a sequence of operations that is sent, executed and answered as a whole. Each operation has its own
/// Status. Batches of the roles `kv` and `db` are atomic on each server: all of it is visible, or none. Any-thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sonde::store {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
inline std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// Which service of a server an operation is for.
enum class Role : std::uint8_t { data = 0, kv = 1, db = 2 };
inline constexpr std::size_t role_count = 3;

/// The promise of an acknowledgement.
///   none     the client has queued it; no acknowledgement is sent. Failures are counted; the next flush() reports
///   them. network  the server has executed it: every client sees it. It survives the client, not the server's machine.
///   storage  it is on stable storage (fsync, or the backend's own sync): it survives power loss.
enum class Safety : std::uint8_t { none = 0, network = 1, storage = 2 };

/// Operations; the numbers are those on the wire. `space` groups names; `key` is the name of the object, key or schema.
enum class Code : std::uint8_t {
  // every role
  sync = 1,  ///< everything executed before reaches stable storage
  // role data
  object_create = 16,  ///< flag exclusive: Status::exists if it is there
  object_write = 17,   ///< `data` at `offset`; makes the object if there is none, unless must_exist
  object_read = 18,    ///< up to `length` bytes at `offset`; fewer at the end; holes read as zeros
  object_status = 19,  ///< Outcome::value: size in bytes; Outcome::time_ns: last change
  object_remove = 20,
  object_truncate = 21,  ///< to `length` bytes
  object_list = 22,      ///< names of `space` that begin with `key`, after `data`, at most `length` (0: as many as fit)
  // role kv
  kv_put = 48,  ///< `data` under `key`; flag exclusive: Status::exists if there is one
  kv_get = 49,  ///< at most `length` bytes of the value (0: all); Outcome::value: the whole length
  kv_remove = 50,
  kv_scan = 51,  ///< keys of `space` that begin with `key`, in byte order, after `data`, at most `length` pairs
  // role db; schemas, rows and selectors are encoded as db.hpp says
  db_define = 80,    ///< schema `key` as `data`; Status::exists unless it is the same
  db_describe = 81,  ///< the schema
  db_undefine = 82,  ///< schema and rows
  db_insert = 83,    ///< rows in `data`; Outcome::value: id of the last row
  db_update = 84,    ///< selector and new values in `data`; Outcome::value: rows changed
  db_remove = 85,    ///< rows that the selector in `data` chooses; Outcome::value: rows removed
  db_query = 86,  ///< rows that the selector in `data` chooses, at most `length` (0: as many as fit), from row `offset`
};

namespace flag {
inline constexpr std::uint8_t exclusive = 1;   ///< create, put: there must be none yet
inline constexpr std::uint8_t must_exist = 2;  ///< object_write: there must be one
inline constexpr std::uint8_t keys_only = 4;   ///< kv_scan: no values
}  // namespace flag

/// The role that executes a code; sync has none of its own. False: no such code.
bool role_of(Code code, Role& role);
/// "kv.put", for messages and metrics; "?" for a number that is no code.
std::string_view name_of(Code code);
std::string_view name_of(Role role);
std::string_view name_of(Safety safety);

/// The result of an operation; the numbers are those on the wire.
enum class Status : std::uint16_t {
  ok = 0,
  not_found = 1,
  exists = 2,
  invalid = 3,    ///< the operation makes no sense: name, offset, encoding
  too_large = 4,  ///< a limit of the server
  no_space = 5,   ///< disk, map or memory is full
  denied = 6,     ///< permission lost, or never had
  io_error = 7,
  corrupt = 8,        ///< a checksum is wrong
  unsupported = 9,    ///< the server has no backend for it, or the backend cannot do it
  aborted = 10,       ///< another operation of its atomic batch failed; nothing of the batch was done
  unavailable = 11,   ///< the server is shutting down, or too busy
  timed_out = 12,     ///< not executed within its deadline
  disconnected = 13,  ///< the connection was lost before the answer: it may or may not have been executed
  internal = 14,  ///< the backend threw an exception; Outcome::data of one operation of the batch: which backend, and
                  ///< the exception's text
  pending = 15,   ///< not answered yet; never on the wire
};
std::string_view name_of(Status status);
/// A status as a phrase: "the name does not exist".
std::string_view explain(Status status);

/// Limits for all backends, so that all accept the same data.
namespace limit {
inline constexpr std::size_t space_bytes = 63;  ///< 1 .. 63, no NUL
inline constexpr std::size_t key_bytes =
    440;  ///< 1 .. 440 (kv, schema names): fits LMDB's page-bound 511 with its space
inline constexpr std::size_t object_name_bytes = 1024;
inline constexpr std::size_t value_bytes = 16u << 20;  ///< of one kv value
inline constexpr std::uint64_t object_bytes = std::uint64_t{1} << 62;
inline constexpr std::size_t batch_ops = 1u << 20;
inline constexpr std::size_t atomic_batch_bytes = 64u << 20;  ///< names and data of a kv or db batch
}  // namespace limit

struct Op {
  Code code{};
  std::uint8_t flags = 0;
  std::string_view space, key;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  Bytes data;         ///< what is written; owned by the caller until the operation is done
  MutableBytes into;  ///< where what is read should go; empty: into the arena
};

struct Outcome {
  Status status = Status::pending;
  std::uint64_t value =
      0;  ///< size, count or id: see Code; of an object_write that failed the bytes from its beginning on that stand
  std::int64_t time_ns = 0;  ///< since 1970, object_status only
  Bytes data;                ///< what was read: in Op::into, or in the arena; of Status::internal a text, in the arena
};

/// The same for an outcome; for Status::internal the text of the backend's exception, if it is known.
std::string explain(const Outcome& outcome);

/// Status::ok, or why an operation may not even reach a backend: names and lengths against `limit`.
Status check(const Op& op);

/// Memory that lives as long as the batch: grows by chunks, so that what it gave stays where it is. Owner-thread.
class Arena {
 public:
  explicit Arena(std::size_t chunk_bytes = 64u << 10, std::size_t limit_bytes = SIZE_MAX)
      : chunk_bytes_(chunk_bytes), limit_bytes_(limit_bytes) {}
  /// Whether n more bytes are within the limit of what one batch may read: a backend asks before it takes.
  bool fits(std::size_t n) const { return n <= limit_bytes_ - std::min(used_, limit_bytes_); }
  /// From now on n more bytes and no more: a batch that shares its arena with others has a limit of its own.
  void allow(std::size_t n) { limit_bytes_ = used_ + n; }
  /// n bytes, not initialised, aligned to 8. n = 0: empty.
  MutableBytes take(std::size_t n);
  Bytes copy(Bytes bytes);
  /// Memory of another owner, which lives on with it: for what is large and need not be copied. It counts as taken.
  Bytes keep(Bytes bytes, std::shared_ptr<const void> owner);
  /// Forgets what was given. Keeps the largest chunk, if it is at most `keep_bytes`.
  void clear(std::size_t keep_bytes = 2u << 20);
  std::size_t used() const { return used_; }

 private:
  struct Chunk {
    std::unique_ptr<std::byte[]> memory;
    std::size_t size, used;
  };
  std::vector<Chunk> chunks_;
  std::vector<std::shared_ptr<const void>> kept_;
  std::size_t chunk_bytes_, limit_bytes_;
  std::size_t used_ = 0;
};

}  // namespace sonde::store
