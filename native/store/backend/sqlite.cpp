// Schemas and rows in an SQLite database.
// Long because: one class over one connection; its operations share the prepared statements.
//
// Settings
//   path    the folder (required); created if missing, refused if it has other files. `memory` has no path
//   limit   the largest size of the database, 1MiB or more; beyond it no_space. Default: what the disk, or memory, has
//
// On disk (version 1): rows.db and its WAL, next to the marker and lock of folder.hpp.
//   schemas(id, space, name, definition)   definition as db.hpp encodes it
//   r<id>(id, c0, c1, …)                   the rows; column k is field k, without a declared type, so that SQLite keeps
//                                          values
//                                          as they are: boolean and integers as INTEGER (uint64 less 2^63, which keeps
//                                          their order), floats as REAL, text as TEXT, blobs as BLOB. An id is never
//                                          used again.
//   r<id>_<k>                              index k
// No name or value of a client ever becomes part of a statement's text.
//
// One transaction stays open between batches, a savepoint makes each batch whole or absent, and a batch sees what was
// done before it. It is committed, with fsync (WAL, synchronous=FULL), by sync(), by settle(), and when it has grown
// large.
//   network   in the open transaction: a kill -9 of the server loses what came after the last commit.
//   storage   after sync(): committed and fsynced.
// Where the disk or the limit is nearly reached, a batch is committed by itself, so that if it does not fit it alone is
// undone: SQLite may give up the whole transaction when it meets a full disk.
#include <sqlite3.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/units.hpp"
#include "store/backend/built_in.hpp"
#include "store/db.hpp"
#include "store/folder.hpp"

namespace sonde::store {

namespace {

constexpr unsigned format_version = 1;
constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t open_bytes_max = 64u << 20, open_ops_max = 100'000;  // of the open transaction
constexpr std::uint64_t margin_bytes = 16u << 20;  // free space from which on a batch is not committed by itself
constexpr std::size_t statements_max = 256;
constexpr int instructions_between_looks = 1000;  // of SQLite's machine: some 10 µs
constexpr unsigned rows_between_looks = 16;
constexpr std::size_t steps_between_looks = 4096;  // of like(), which SQLite takes for one instruction
constexpr const char* kept_begin = "BEGIN IMMEDIATE";

Status status_of(int error) {
  switch (error & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE: return Status::ok;
    case SQLITE_FULL:
    case SQLITE_NOMEM: return Status::no_space;
    case SQLITE_CONSTRAINT: return Status::exists;  // the only ones are unique indexes
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH: return Status::denied;
    case SQLITE_TOOBIG: return Status::too_large;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return Status::corrupt;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return Status::unavailable;
    default: return Status::io_error;
  }
}

struct Refused {
  Status status;
};

// ---- like

/// The part of a pattern before its first wildcard, without the backslashes.
std::string literal_begin(std::string_view pattern) {
  std::string begin;
  for (std::size_t k = 0; k < pattern.size() && pattern[k] != '%' && pattern[k] != '_'; ++k) {
    if (pattern[k] == '\\') ++k;
    if (k < pattern.size()) begin += pattern[k];
  }
  return begin;
}

/// Behind the character that begins at `at`.
std::size_t next_character(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;) ++at;
  return at;
}

enum class Match { no, yes, given_up };

/// As SQLite's own with '\\' for escape, which cannot be interrupted: the cost of one call is text times pattern.
/// `look` is asked now and then, and false ends it.
template <typename Look> Match like(std::string_view text, std::string_view pattern, Look look) {
  constexpr std::size_t none = std::string_view::npos;
  std::size_t t = 0, p = 0, behind_any = none, from = 0, steps = 0;
  while (t < text.size()) {
    if (++steps % steps_between_looks == 0 && !look()) return Match::given_up;
    if (p < pattern.size() && pattern[p] == '%') {
      behind_any = ++p;
      from = t;
      continue;
    }
    if (p < pattern.size() && pattern[p] == '_') {
      t = next_character(text, t);
      ++p;
      continue;
    }
    if (p < pattern.size()) {
      const std::size_t escaped = pattern[p] == '\\' ? 1 : 0;
      if (p + escaped == pattern.size()) return Match::no;  // nothing behind the backslash
      if (text[t] == pattern[p + escaped]) {
        ++t;
        p += 1 + escaped;
        continue;
      }
    }
    if (behind_any == none) return Match::no;
    from = next_character(text, from);
    // Continue where the part after the last '%' can begin.
    if (behind_any < pattern.size() && pattern[behind_any] != '_' && pattern[behind_any] != '%' &&
        pattern[behind_any] != '\\') {
      from = text.find(pattern[behind_any], from);
      if (from == none) return Match::no;
    }
    t = from;
    p = behind_any;
  }
  while (p < pattern.size() && pattern[p] == '%') ++p;
  return p == pattern.size() ? Match::yes : Match::no;
}

struct Table {
  std::int64_t id = 0;
  db::Blob definition;
  db::Schema schema;
  std::unordered_map<std::string, std::size_t> numbers;
  std::string rows() const { return 'r' + std::to_string(id); }
};

constexpr std::size_t id_number = std::numeric_limits<std::size_t>::max();

/// A statement's text and what is bound to it, built together so that they fit.
struct Text {
  std::string sql;
  std::vector<db::Value> bound;
};

class Sqlite final : public Backend {
 public:
  Sqlite(std::optional<Folder> folder, sqlite3* db, std::uint64_t limit)
      : folder_(std::move(folder)), db_(db), limit_(limit) {}
  ~Sqlite() override {
    (void)settle();
    for (auto& [sql, entry] : statements_) sqlite3_finalize(entry->statement);
    sqlite3_close(db_);
  }

  Caps caps() const override { return {Role::db, false, true, folder_.has_value()}; }

  /// Once, before the backend is used. SQLITE_OK, or what went wrong.
  int prepare() {
    // Exclusive locking, before anything looks into the database, keeps the WAL's index in this process's memory; the
    // folder's lock has others out anyway.
    std::string setup =
        "PRAGMA locking_mode=EXCLUSIVE; PRAGMA page_size=4096; PRAGMA cache_size=-65536; PRAGMA cache_spill=OFF; "
        "PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF; "
        "PRAGMA secure_delete=OFF; ";
    if (folder_) setup += "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864; ";
    setup += "PRAGMA max_page_count=" + std::to_string(limit_ / page_bytes) + "; ";
    setup +=
        "CREATE TABLE IF NOT EXISTS schemas(id INTEGER PRIMARY KEY AUTOINCREMENT, space BLOB NOT NULL, name BLOB NOT "
        "NULL, definition BLOB NOT NULL, UNIQUE(space, name));";
    if (const int error = sqlite3_exec(db_, setup.c_str(), nullptr, nullptr, nullptr)) return error;
    sqlite3_progress_handler(db_, instructions_between_looks, progress, this);
    int error =
        sqlite3_create_function(db_, "like", 3, SQLITE_UTF8 | SQLITE_DETERMINISTIC, this, sql_like, nullptr, nullptr);
    if (!error) error = sqlite3_create_function(db_, "in_time", 1, SQLITE_UTF8, this, sql_in_time, nullptr, nullptr);
    if (error) return error;
    committed_pages_ = seen_pages_ = pages();
    if (folder_ && fsync(folder_->fd()) != 0) return SQLITE_IOERR_FSYNC;
    return SQLITE_OK;
  }

  void execute(std::span<const Op> ops, Safety, std::span<Outcome> outcomes, Arena& arena) override {
    const std::lock_guard lock(mutex_);
    const auto all = [&](Status status) {
      for (std::size_t k = 0; k < ops.size(); ++k) outcomes[k] = {status, 0, 0, {}};
    };
    if (failed_) return all(Status::io_error);
    given_up_ = Status::ok;
    std::uint64_t bytes = 0, writes = 0;
    std::size_t last_write = 0;
    bool sweeping = false, defines = false;
    for (std::size_t k = 0; k < ops.size(); ++k) {
      const Code code = ops[k].code;
      if (code == Code::db_describe || code == Code::db_query || code == Code::sync) continue;
      sweeping |= code == Code::db_update || code == Code::db_remove || code == Code::db_undefine;
      defines |= code == Code::db_define || code == Code::db_undefine;
      bytes += ops[k].data.size() + ops[k].key.size() + ops[k].space.size();
      last_write = k;
      ++writes;
    }

    bool alone = false;
    if (writes) {
      const bool room = has_room(bytes, writes, sweeping);
      if (dirty_ && (!room || bytes_ + bytes > open_bytes_max || writes_ + writes > open_ops_max))
        if (const int error = commit()) return lose("commit", error), all(Status::io_error);
      alone = !room && !has_room(bytes, writes, sweeping);
      if (!open_)
        if (const int error = run(kept_begin)) return all(status_of(error));
      open_ = true;
      if (const int error = run("SAVEPOINT batch")) return all(status_of(error));
      half_ = true;
    }
    for (std::size_t k = 0; k < ops.size(); ++k) {
      outcomes[k] = one(ops[k], arena);
      const Status status = outcomes[k].status;
      if (status == Status::ok || status == Status::not_found || status == Status::unsupported) continue;
      if (writes) take_back(defines);
      undone(outcomes.first(ops.size()), k, status);
      return;
    }
    if (!writes) return;
    half_ = false;
    if (const int error = run("RELEASE batch")) return lose("a release", error), all(Status::io_error);
    dirty_ = true;
    bytes_ += bytes;
    writes_ += writes;
    if (!alone) return;
    if (const int error = commit()) {
      if (status_of(error) != Status::no_space) lose("commit", error);
      tables_.clear();
      undone(outcomes.first(ops.size()), last_write, status_of(error));
    }
  }

  void roll_back() override {
    const std::lock_guard lock(mutex_);
    if (half_) take_back(true);
  }

  Result<void> sync(bool) override {
    const std::lock_guard lock(mutex_);
    if (!failed_ && dirty_)
      if (const int error = commit()) lose("commit", error);
    if (!failed_) return {};
    return Error{"store.sync_failed",
                 "the backend sqlite" + where() + " lost data that was not on stable storage yet: " + failure_,
                 "repair the disk, then start the server again"};
  }

  Result<void> settle() override { return sync(true); }

  std::string describe() const override {
    // A request for the status does not wait until a long batch is over.
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock.owns_lock()) seen_pages_ = pages();
    std::string text =
        (folder_ ? folder_->path() : std::string("in memory")) + ", " + format_size(seen_pages_ * page_bytes);
    if (limit_ < unlimited) text += " of " + format_size(limit_);
    if (!lock.owns_lock()) text += ", busy";
    else if (failed_) text += "; FAILED (" + failure_ + "), open it again";
    return text;
  }

  static constexpr std::uint64_t unlimited = page_bytes * 4294967294ull;

 private:
  struct Cached {
    std::string sql;
    sqlite3_stmt* statement;
  };
  using Used = std::list<Cached>;

  /// A statement in use: reset, and its bindings dropped, when done.
  class Running {
   public:
    explicit Running(sqlite3_stmt* statement) : statement_(statement) {}
    Running(const Running&) = delete;
    ~Running() {
      sqlite3_reset(statement_);
      sqlite3_clear_bindings(statement_);
    }
    operator sqlite3_stmt*() const { return statement_; }

   private:
    sqlite3_stmt* statement_;
  };

  // ---- time

  /// False: the batch has to be given up.
  bool in_time() {
    if (given_up_ == Status::ok) given_up_ = Bounds::passed();
    return given_up_ == Status::ok;
  }

  /// SQLite interrupts the statement where this is not 0. It would then roll back the whole transaction for a statement
  /// that writes, other clients' batches with it: those look at the time in the function in_time instead, whose error
  /// undoes no more than the savepoint.
  static int progress(void* self) {
    auto* own = static_cast<Sqlite*>(self);
    return own->selecting_ && !own->in_time();
  }

  static void give_up(sqlite3_context* context) { sqlite3_result_error(context, "its time limit is over", -1); }

  static void sql_in_time(sqlite3_context* context, int, sqlite3_value**) {
    auto* own = static_cast<Sqlite*>(sqlite3_user_data(context));
    if (++own->rows_ % rows_between_looks == 0 && !own->in_time()) return give_up(context);
    sqlite3_result_int(context, 1);
  }

  static void sql_like(sqlite3_context* context, int, sqlite3_value** values) {
    auto* own = static_cast<Sqlite*>(sqlite3_user_data(context));
    const auto view = [](sqlite3_value* value) {
      const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(value));
      return std::string_view(text ? text : "", static_cast<std::size_t>(sqlite3_value_bytes(value)));
    };
    if (sqlite3_value_type(values[1]) == SQLITE_NULL) return sqlite3_result_null(context);
    const Match match = like(view(values[1]), view(values[0]), [&] { return own->in_time(); });
    if (match == Match::given_up) return give_up(context);
    sqlite3_result_int(context, match == Match::yes);
  }

  /// A statement that only reads is under way.
  class Selecting {
   public:
    explicit Selecting(bool& on) : on_(on) { on_ = true; }
    Selecting(const Selecting&) = delete;
    ~Selecting() { on_ = false; }

   private:
    bool& on_;
  };

  std::string where() const { return folder_ ? " in " + folder_->path() : " in memory"; }

  static void undone(std::span<Outcome> outcomes, std::size_t failed, Status status) {
    for (std::size_t k = 0; k < outcomes.size(); ++k) outcomes[k] = {k == failed ? status : Status::aborted, 0, 0, {}};
  }

  /// The batch under way, from its savepoint on.
  void take_back(bool defines) {
    half_ = false;
    if (defines) tables_.clear();
    // After a full disk SQLite may have rolled back everything, what others did included.
    if (sqlite3_get_autocommit(db_)) {
      open_ = false;
      if (dirty_) lose("a write in the open transaction", last_error_);
    } else if (run("ROLLBACK TO batch") || run("RELEASE batch")) {
      lose("a rollback", last_error_);
    }
  }

  void lose(const char* what, int error) {
    if (!sqlite3_get_autocommit(db_)) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
    open_ = dirty_ = false;
    tables_.clear();
    failed_ = true;
    failure_ = std::string(what) + ": " + sqlite3_errstr(error);
  }

  std::uint64_t pages() const {
    sqlite3_stmt* statement = nullptr;
    std::uint64_t n = 0;
    if (sqlite3_prepare_v2(db_, "PRAGMA page_count", -1, &statement, nullptr) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
      n = static_cast<std::uint64_t>(sqlite3_column_int64(statement, 0));
    sqlite3_finalize(statement);
    return n;
  }

  /// Whether the open transaction and a batch surely fit into limit and disk. An upper bound: splits of pages and
  /// indexes for what is inserted, the whole database where rows are swept over.
  bool has_room(std::uint64_t bytes, std::uint64_t writes, bool sweeping) const {
    const std::uint64_t old = committed_pages_ * page_bytes;
    const std::uint64_t need =
        4 * (bytes_ + bytes) + 4 * page_bytes * (writes_ + writes) + (sweeping ? old : 0) + margin_bytes;
    if (old + need > limit_) return false;
    if (!folder_) return true;
    struct statvfs fs;
    if (fstatvfs(folder_->fd(), &fs) != 0) return false;
    return need <= std::uint64_t{fs.f_bavail} * fs.f_frsize;
  }

  int commit() {
    const int error = run("COMMIT");
    if (error) {
      if (!sqlite3_get_autocommit(db_)) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
    }
    open_ = dirty_ = false;
    bytes_ = writes_ = 0;
    committed_pages_ = pages();
    return error;
  }

  // ---- statements

  sqlite3_stmt* statement(const std::string& sql) {
    const auto found = statements_.find(sql);
    if (found != statements_.end()) {
      used_.splice(used_.begin(), used_, found->second);
      return found->second->statement;
    }
    sqlite3_stmt* made = nullptr;
    if (const int error = sqlite3_prepare_v3(db_, sql.c_str(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                             &made, nullptr))
      fail(error);
    used_.push_front({sql, made});
    statements_.emplace(sql, used_.begin());
    while (used_.size() > statements_max) {
      sqlite3_finalize(used_.back().statement);
      statements_.erase(used_.back().sql);
      used_.pop_back();
    }
    return made;
  }

  /// A statement without bindings or rows. 0, or what went wrong.
  int run(const char* sql) {
    try {
      const Running running(statement(sql));
      const int error = sqlite3_step(running);
      if (error == SQLITE_DONE || error == SQLITE_ROW) return SQLITE_OK;
      return last_error_ = error;
    } catch (const Refused&) {
      return last_error_;
    }
  }
  /// Schema statements, which are not worth keeping.
  void run_once(const std::string& sql) {
    if (const int error = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr)) fail(error);
  }

  [[noreturn]] void fail(int error) {
    last_error_ = error;
    throw Refused{given_up_ == Status::ok ? status_of(error) : given_up_};
  }
  void step(sqlite3_stmt* statement) {
    if (const int error = sqlite3_step(statement); error != SQLITE_DONE) fail(error);
  }

  void bind(sqlite3_stmt* statement, int at, const db::Value& value) {
    int error = SQLITE_OK;
    switch (db::type_of(value)) {
      case db::Type::null: error = sqlite3_bind_null(statement, at); break;
      case db::Type::boolean: error = sqlite3_bind_int64(statement, at, std::get<bool>(value)); break;
      case db::Type::int32: error = sqlite3_bind_int64(statement, at, std::get<std::int32_t>(value)); break;
      case db::Type::uint32: error = sqlite3_bind_int64(statement, at, std::get<std::uint32_t>(value)); break;
      case db::Type::int64: error = sqlite3_bind_int64(statement, at, std::get<std::int64_t>(value)); break;
      case db::Type::uint64:
        error =
            sqlite3_bind_int64(statement, at, static_cast<std::int64_t>(std::get<std::uint64_t>(value) ^ (1ull << 63)));
        break;
      case db::Type::float32: error = sqlite3_bind_double(statement, at, std::get<float>(value)); break;
      case db::Type::float64: error = sqlite3_bind_double(statement, at, std::get<double>(value)); break;
      case db::Type::text: error = bind_text(statement, at, std::get<std::string>(value)); break;
      case db::Type::blob: error = bind_blob(statement, at, std::get<db::Blob>(value)); break;
    }
    if (error) fail(error);
  }
  static int bind_text(sqlite3_stmt* statement, int at, std::string_view text) {
    return sqlite3_bind_text(statement, at, text.data(), static_cast<int>(text.size()), SQLITE_STATIC);
  }
  /// A null pointer would be taken for NULL.
  static int bind_blob(sqlite3_stmt* statement, int at, Bytes blob) {
    return blob.empty() ? sqlite3_bind_zeroblob(statement, at, 0)
                        : sqlite3_bind_blob(statement, at, blob.data(), static_cast<int>(blob.size()), SQLITE_STATIC);
  }

  static void append(db::Blob& out, sqlite3_stmt* statement, int column, db::Type type) {
    if (sqlite3_column_type(statement, column) == SQLITE_NULL) return db::append(out, {});
    const auto integer = [&] { return sqlite3_column_int64(statement, column); };
    switch (type) {
      case db::Type::null: break;
      case db::Type::boolean: return db::append(out, integer() != 0);
      case db::Type::int32: return db::append(out, static_cast<std::int32_t>(integer()));
      case db::Type::uint32: return db::append(out, static_cast<std::uint32_t>(integer()));
      case db::Type::int64: return db::append(out, static_cast<std::int64_t>(integer()));
      case db::Type::uint64: return db::append(out, static_cast<std::uint64_t>(integer()) ^ (1ull << 63));
      case db::Type::float32: return db::append(out, static_cast<float>(sqlite3_column_double(statement, column)));
      case db::Type::float64: return db::append(out, sqlite3_column_double(statement, column));
      case db::Type::text:
      case db::Type::blob: {
        const void* bytes = type == db::Type::text ? static_cast<const void*>(sqlite3_column_text(statement, column))
                                                   : sqlite3_column_blob(statement, column);
        const auto n = static_cast<std::uint32_t>(sqlite3_column_bytes(statement, column));
        const std::size_t at = out.size();
        out.resize(at + 5 + n);
        out[at] = static_cast<std::byte>(type);
        std::memcpy(out.data() + at + 1, &n, 4);
        if (n) std::memcpy(out.data() + at + 5, bytes, n);
        return;
      }
    }
  }

  // ---- schemas

  Table* find(const Op& op) {
    std::string name(op.space);
    name.append(1, '\0').append(op.key);
    const auto found = tables_.find(name);
    if (found != tables_.end()) return &found->second;
    const Running select(statement("SELECT id, definition FROM schemas WHERE space = ? AND name = ?"));
    int error = bind_blob(select, 1, bytes_of(op.space));
    if (!error) error = bind_blob(select, 2, bytes_of(op.key));
    if (error) fail(error);
    error = sqlite3_step(select);
    if (error == SQLITE_DONE) return nullptr;
    if (error != SQLITE_ROW) fail(error);
    Table table;
    table.id = sqlite3_column_int64(select, 0);
    const auto* bytes = static_cast<const std::byte*>(sqlite3_column_blob(select, 1));
    table.definition.assign(bytes, bytes + sqlite3_column_bytes(select, 1));
    auto schema = db::decode_schema(table.definition);
    if (!schema) throw Refused{Status::corrupt};
    table.schema = std::move(*schema);
    for (std::size_t k = 0; k < table.schema.fields.size(); ++k) table.numbers.emplace(table.schema.fields[k].name, k);
    if (tables_.size() >= 4096) tables_.clear();
    return &tables_.emplace(std::move(name), std::move(table)).first->second;
  }

  static std::size_t number_of(const Table& table, const std::string& field, bool id_allowed = false) {
    if (id_allowed && field == db::id_field) return id_number;
    const auto found = table.numbers.find(field);
    if (found == table.numbers.end()) throw Refused{Status::invalid};
    return found->second;
  }
  static std::string column(std::size_t number) { return number == id_number ? "id" : 'c' + std::to_string(number); }
  static void expect_type(const Table& table, std::size_t number, const db::Value& value) {
    const db::Type type = db::type_of(value);
    if (type != db::Type::null && type != table.schema.fields[number].type) throw Refused{Status::invalid};
  }

  Outcome define(const Op& op) {
    auto schema = db::decode_schema(op.data);
    if (!schema) return {Status::invalid, 0, 0, {}};
    if (const Table* table = find(op)) return {table->schema == *schema ? Status::ok : Status::exists, 0, 0, {}};
    {
      const Running insert(statement("INSERT INTO schemas(space, name, definition) VALUES(?, ?, ?)"));
      int error = bind_blob(insert, 1, bytes_of(op.space));
      if (!error) error = bind_blob(insert, 2, bytes_of(op.key));
      if (!error) error = bind_blob(insert, 3, op.data);
      if (error) fail(error);
      step(insert);
    }
    const std::string rows = 'r' + std::to_string(sqlite3_last_insert_rowid(db_));
    std::string sql = "CREATE TABLE " + rows + "(id INTEGER PRIMARY KEY AUTOINCREMENT";
    for (std::size_t k = 0; k < schema->fields.size(); ++k) sql += ", c" + std::to_string(k);
    run_once(sql + ')');
    for (std::size_t k = 0; k < schema->indexes.size(); ++k) {
      const db::Index& index = schema->indexes[k];
      sql = std::string("CREATE ") + (index.unique ? "UNIQUE " : "") + "INDEX " + rows + '_' + std::to_string(k) +
            " ON " + rows + '(';
      for (std::size_t j = 0; j < index.fields.size(); ++j) sql += (j ? ", c" : "c") + std::to_string(index.fields[j]);
      run_once(sql + ')');
    }
    return {Status::ok, 0, 0, {}};
  }

  Outcome undefine(const Op& op) {
    const Table* table = find(op);
    if (!table) return {Status::not_found, 0, 0, {}};
    run_once("DROP TABLE " + table->rows());
    run_once("DELETE FROM schemas WHERE id = " + std::to_string(table->id));
    tables_.clear();
    return {Status::ok, 0, 0, {}};
  }

  // ---- rows

  Outcome insert(const Op& op) {
    const Table* table = find(op);
    if (!table) return {Status::not_found, 0, 0, {}};
    db::RowsReader rows(op.data);
    if (!rows.error()) return {Status::invalid, 0, 0, {}};
    std::vector<std::size_t> numbers;
    std::string sql = "INSERT INTO " + table->rows() + '(', marks;
    for (const auto& field : rows.fields()) {
      numbers.push_back(number_of(*table, field));
      sql += (numbers.size() > 1 ? ", " : "") + column(numbers.back());
      marks += numbers.size() > 1 ? ", ?" : "?";
    }
    sqlite3_stmt* insert = statement(sql + ") VALUES(" + marks + ')');
    std::uint64_t last = 0;
    for (std::vector<db::Value> row; rows.next(row);) {
      const Running running(insert);
      for (std::size_t k = 0; k < row.size(); ++k) {
        expect_type(*table, numbers[k], row[k]);
        bind(running, static_cast<int>(k + 1), row[k]);
      }
      step(running);
      last = static_cast<std::uint64_t>(sqlite3_last_insert_rowid(db_));
    }
    if (!rows.error()) return {Status::invalid, 0, 0, {}};
    return {Status::ok, last, 0, {}};
  }

  void where(const Table& table, const db::Selector& node, Text& text) {
    using Kind = db::Selector::Kind;
    switch (node.kind) {
      case Kind::every: text.sql += '1'; return;
      case Kind::all_of:
      case Kind::any_of:
        if (node.parts.empty()) {
          text.sql += node.kind == Kind::all_of ? '1' : '0';
          return;
        }
        joined(table, node, 0, node.parts.size(), text);
        return;
      case Kind::condition: condition(table, node, text); return;
    }
  }

  /// In halves: SQLite takes a row of a thousand ANDs for a tree of that depth, and refuses it.
  void joined(const Table& table, const db::Selector& node, std::size_t from, std::size_t to, Text& text) {
    if (to - from == 1) return where(table, node.parts[from], text);
    const std::size_t middle = from + (to - from) / 2;
    text.sql += '(';
    joined(table, node, from, middle, text);
    text.sql += node.kind == db::Selector::Kind::all_of ? " AND " : " OR ";
    joined(table, node, middle, to, text);
    text.sql += ')';
  }

  static void condition(const Table& table, const db::Selector& node, Text& text) {
    const std::size_t number = number_of(table, node.field, true);
    const std::string name = column(number);
    db::Value value = node.value;
    if (node.compare == db::Compare::is_null || node.compare == db::Compare::not_null) {
      text.sql += name + (node.compare == db::Compare::is_null ? " IS NULL" : " IS NOT NULL");
      return;
    }
    if (number == id_number) {
      // The column is an INTEGER as it is; no id is larger than 2^63 - 1.
      if (db::type_of(value) != db::Type::uint64) throw Refused{Status::invalid};
      const std::uint64_t id = std::get<std::uint64_t>(value);
      value = static_cast<std::int64_t>(std::min<std::uint64_t>(id, std::numeric_limits<std::int64_t>::max()));
    } else {
      expect_type(table, number, value);
    }
    switch (node.compare) {
      case db::Compare::eq: text.sql += name + " = ?"; break;
      case db::Compare::ne: text.sql += name + " <> ?"; break;
      case db::Compare::lt: text.sql += name + " < ?"; break;
      case db::Compare::le: text.sql += name + " <= ?"; break;
      case db::Compare::gt: text.sql += name + " > ?"; break;
      case db::Compare::ge: text.sql += name + " >= ?"; break;
      case db::Compare::like:
        if (std::string begin = literal_begin(std::get<std::string>(value)); !begin.empty()) {
          text.sql += '(';
          prefix(name, std::move(begin), text);
          text.sql += " AND " + name + " LIKE ? ESCAPE '\\')";
        } else {
          text.sql += name + " LIKE ? ESCAPE '\\'";
        }
        break;
      case db::Compare::prefix: return prefix(name, std::move(value), text);
      case db::Compare::is_null:
      case db::Compare::not_null: break;
    }
    text.bound.push_back(std::move(value));
  }

  /// A range, so that an index serves it: up to, but without, the next text or blob that does not begin so.
  static void prefix(const std::string& name, db::Value value, Text& text) {
    db::Value end = value;
    const auto next = [](auto& bytes, auto last) {
      while (!bytes.empty() && bytes.back() == last) bytes.pop_back();
      if (!bytes.empty()) bytes.back() = static_cast<decltype(last)>(static_cast<unsigned char>(bytes.back()) + 1);
      return !bytes.empty();
    };
    const bool bounded = db::type_of(end) == db::Type::text ? next(std::get<std::string>(end), '\xff')
                                                            : next(std::get<db::Blob>(end), std::byte{0xff});
    text.sql += bounded ? "(" + name + " >= ? AND " + name + " < ?)" : name + " >= ?";
    text.bound.push_back(std::move(value));
    if (bounded) text.bound.push_back(std::move(end));
  }

  void bind_all(sqlite3_stmt* statement, const Text& text) {
    for (std::size_t k = 0; k < text.bound.size(); ++k) bind(statement, static_cast<int>(k + 1), text.bound[k]);
  }

  Outcome change(const Text& text) {
    const Running running(statement(text.sql));
    bind_all(running, text);
    step(running);
    return {Status::ok, static_cast<std::uint64_t>(sqlite3_changes64(db_)), 0, {}};
  }

  Outcome update(const Op& op) {
    const Table* table = find(op);
    if (!table) return {Status::not_found, 0, 0, {}};
    const auto update = db::decode_update(op.data);
    if (!update) return {Status::invalid, 0, 0, {}};
    Text text{"UPDATE " + table->rows() + " SET ", {}};
    const db::Update& what = *update;
    for (std::size_t k = 0; k < what.fields.size(); ++k) {
      const std::size_t number = number_of(*table, what.fields[k]);
      expect_type(*table, number, what.values[k]);
      text.sql += (k ? ", " : "") + column(number) + " = ?";
      text.bound.push_back(what.values[k]);
    }
    text.sql += " WHERE in_time(id) AND ";
    where(*table, what.selector, text);
    return change(text);
  }

  Outcome remove(const Op& op) {
    const Table* table = find(op);
    if (!table) return {Status::not_found, 0, 0, {}};
    const auto selector = db::decode_selector(op.data);
    if (!selector) return {Status::invalid, 0, 0, {}};
    Text text{"DELETE FROM " + table->rows() + " WHERE in_time(id) AND ", {}};
    where(*table, *selector, text);
    return change(text);
  }

  Outcome query(const Op& op, Arena& arena) {
    const Table* table = find(op);
    if (!table) return {Status::not_found, 0, 0, {}};
    const auto decoded = db::decode_query(op.data);
    if (!decoded) return {Status::invalid, 0, 0, {}};
    const db::Query& query = *decoded;
    std::vector<std::string> names = query.fields;
    if (names.empty())
      for (const auto& field : table->schema.fields) names.push_back(field.name);
    std::vector<db::Type> types;
    Text text{"SELECT id", {}};
    for (const auto& name : names) {
      const std::size_t number = number_of(*table, name);
      types.push_back(table->schema.fields[number].type);
      text.sql += ", " + column(number);
    }
    text.sql += " FROM " + table->rows() + " WHERE ";
    where(*table, query.selector, text);
    text.sql += " ORDER BY ";
    for (const auto& order : query.order)
      text.sql += column(number_of(*table, order.field, true)) + (order.descending ? " DESC, " : ", ");
    text.sql += "id LIMIT -1 OFFSET ?";
    text.bound.push_back(
        static_cast<std::int64_t>(std::min<std::uint64_t>(op.offset, std::numeric_limits<std::int64_t>::max())));
    const Running running(statement(text.sql));
    bind_all(running, text);
    const Selecting selecting(selecting_);

    const std::size_t most = op.into.empty() ? scan_bytes_max : op.into.size();
    db::AnswerWriter answer(names);
    bool more = false;
    for (;;) {
      const int error = sqlite3_step(running);
      if (error == SQLITE_DONE) break;
      if (error != SQLITE_ROW) fail(error);
      if (op.length && answer.rows() == op.length) {
        more = true;
        break;
      }
      const std::size_t before = answer.bytes();
      answer.begin_row(static_cast<std::uint64_t>(sqlite3_column_int64(running, 0)));
      for (std::size_t k = 0; k < types.size(); ++k) append(answer.out(), running, static_cast<int>(k + 1), types[k]);
      // A row larger than an answer comes alone, unless the caller's memory bounds it.
      if (answer.bytes() > most && (answer.rows() > 1 || !op.into.empty())) {
        if (answer.rows() == 1) return {Status::too_large, 0, 0, {}};
        answer.cut(before);
        more = true;
        break;
      }
    }
    const std::uint64_t n = answer.rows();
    const db::Blob& bytes = answer.finish();
    if (bytes.size() > most && n == 0) return {Status::too_large, 0, 0, {}};
    Outcome outcome = give(bytes, op, arena);
    outcome.value = n;
    outcome.time_ns = more ? 1 : 0;
    return outcome;
  }

  Outcome one(const Op& op, Arena& arena) {
    try {
      switch (op.code) {
        case Code::sync: return {Status::ok, 0, 0, {}};
        case Code::db_define: return define(op);
        case Code::db_undefine: return undefine(op);
        case Code::db_insert: return insert(op);
        case Code::db_update: return update(op);
        case Code::db_remove: return remove(op);
        case Code::db_query: return query(op, arena);
        case Code::db_describe: {
          const Table* table = find(op);
          return table ? give(table->definition, op, arena) : Outcome{Status::not_found, 0, 0, {}};
        }
        default: return {Status::unsupported, 0, 0, {}};
      }
    } catch (const Refused& refused) {
      return {refused.status, 0, 0, {}};
    } catch (const std::bad_alloc&) {
      return {Status::no_space, 0, 0, {}};
    }
  }

  std::optional<Folder> folder_;
  sqlite3* db_;
  const std::uint64_t limit_;
  mutable std::mutex mutex_;
  std::map<std::string, Table> tables_;
  Used used_;
  std::unordered_map<std::string, Used::iterator> statements_;
  bool open_ = false, dirty_ = false;  // there is a transaction; it holds what a batch wrote
  bool half_ = false;                  // and what one under way did so far, from its savepoint on
  std::uint64_t bytes_ = 0, writes_ = 0, committed_pages_ = 0;
  bool failed_ = false;
  bool selecting_ = false;
  Status given_up_ = Status::ok;  // why the batch under way may not go on
  unsigned rows_ = 0;             // that in_time() was asked about
  mutable std::atomic<std::uint64_t> seen_pages_ = 0;
  int last_error_ = SQLITE_OK;
  std::string failure_;
};

Result<std::unique_ptr<Backend>> open_at(std::optional<Folder> folder, const std::string& limit) {
  std::uint64_t limit_bytes = Sqlite::unlimited;
  if (!limit.empty()) {
    const auto size = parse_size(limit);
    if (!size) return size.error();
    if (*size < 1u << 20)
      return Error{"store.bad_setting", "a database cannot have the limit " + limit, "limit is a size from 1MiB"};
    limit_bytes = std::min(limit_bytes, *size);
  }
  const std::string path = folder ? folder->path() : "", file = folder ? path + "/rows.db" : ":memory:";
  sqlite3* db = nullptr;
  int error = sqlite3_open_v2(
      file.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
      nullptr);
  auto backend = std::make_unique<Sqlite>(std::move(folder), db, limit_bytes);
  if (!error) error = backend->prepare();
  if (error)
    return cannot_open(file,
                       "SQLite reports: " + std::string(sqlite3_errstr(error)) + " (code " +
                           std::to_string(sqlite3_extended_errcode(db)) + ", " + errno_text(sqlite3_system_errno(db)) +
                           ')',
                       "");
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace

Result<std::unique_ptr<Backend>> open_sqlite(const Settings& settings) {
  Settings left = settings;
  const std::string path = take_setting(left, "path"), limit = take_setting(left, "limit");
  if (auto ok = no_more_settings(left, "sqlite", "path, limit"); !ok) return ok.error();
  auto folder = Folder::open(path, "sqlite", format_version);
  if (!folder) return folder.error();
  return open_at(std::move(*folder), limit);
}

Result<std::unique_ptr<Backend>> open_sqlite_memory(const Settings& settings) {
  Settings left = settings;
  const std::string limit = take_setting(left, "limit");
  if (auto ok = no_more_settings(left, "memory", "limit"); !ok) return ok.error();
  return open_at(std::nullopt, limit);
}

}  // namespace sonde::store
