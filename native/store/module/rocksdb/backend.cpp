// Keys in RocksDB. This is a module, because the library is too heavy for every client.
//
// Settings
//   path    the folder (required); created if it is missing, refused if it contains other things
//   cache   of blocks read, default 64MiB
//   buffer  for written data before it goes to its own file, default 64MiB
//
// On disk (version 1): the database is in db/, next to the marker and lock of folder.hpp. A key is one byte with the
// length of the space, the space, the key: so spaces do not mix, and the keys of one space are in byte order.
//
// A batch is one WriteBatch: whole or absent. While it is gathered it has an index, so that later operations see
// earlier ones.
//   network   written to the log, that is to the kernel: it survives kill -9 of the server, not a crash of the machine.
//   storage   after sync(): the log is fsynced.
// A failed fsync is final, as in the backend posix: from then on every sync() fails until the backend is opened again.
//
// Threads. Plain puts and reads need no order except RocksDB's own. Operations that must know whether a key exists
// before they write (exclusive puts, removes) have the backend to themselves: otherwise two threads could both find no
// key. All reads of one batch use one snapshot, so they see other batches whole.
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/snapshot.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/write_batch_with_index.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/units.hpp"
#include "store/backend/packed_key.hpp"
#include "store/folder.hpp"
#include "store/module.hpp"

namespace sonde::store {

namespace {

constexpr unsigned format_version = 1;
constexpr std::uint64_t size_default = 64ull << 20, size_least = 1ull << 20, size_most = 1ull << 40;

struct Key : PackedKey {
  using PackedKey::PackedKey;
  rocksdb::Slice slice() const { return {bytes, size}; }
};

rocksdb::Slice slice(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
Bytes bytes_of(const rocksdb::Slice& slice) { return store::bytes_of(std::string_view(slice.data(), slice.size())); }

Status status_of(const rocksdb::Status& status) {
  if (status.ok()) return Status::ok;
  if (status.IsNotFound()) return Status::not_found;
  if (status.IsNoSpace() || status.IsMemoryLimit()) return Status::no_space;
  if (status.IsCorruption()) return Status::corrupt;
  if (status.IsBusy() || status.IsTryAgain() || status.IsShutdownInProgress()) return Status::unavailable;
  return Status::io_error;
}

class Rocksdb final : public Backend {
 public:
  Rocksdb(Folder folder, std::unique_ptr<rocksdb::DB> db) : folder_(std::move(folder)), db_(std::move(db)) {}
  ~Rocksdb() override { (void)db_->Close(); }

  Caps caps() const override { return {Role::kv, true, true, true}; }

  void execute(std::span<const Op> ops, Safety, std::span<Outcome> outcomes, Arena& arena) override {
    bool writes = false, looks = false, reads = false;
    for (const Op& op : ops) {
      const bool put = op.code == Code::kv_put, remove = op.code == Code::kv_remove;
      writes |= put || remove;
      looks |= remove || (put && op.flags & flag::exclusive);
      reads |= !put && !remove;
    }
    std::unique_lock<std::shared_mutex> alone(mutex_, std::defer_lock);
    std::shared_lock<std::shared_mutex> beside(mutex_, std::defer_lock);
    if (looks) alone.lock();
    else if (writes) beside.lock();

    rocksdb::ReadOptions options;
    std::optional<rocksdb::ManagedSnapshot> snapshot;
    if (reads && ops.size() > 1) options.snapshot = snapshot.emplace(db_.get()).snapshot();
    if (!writes) {
      for (std::size_t k = 0; k < ops.size(); ++k) {
        outcomes[k] = read(ops[k], options, nullptr, arena);
        if (failed(outcomes[k].status)) {
          undone(outcomes.first(ops.size()), k, outcomes[k].status);
          break;
        }
      }
    } else if (looks || reads) {
      rocksdb::WriteBatchWithIndex batch(rocksdb::BytewiseComparator(), 0, true);
      gather(ops, outcomes, options, batch, arena, batch.GetWriteBatch());
    } else {
      rocksdb::WriteBatch batch;
      for (std::size_t k = 0; k < ops.size(); ++k) {
        outcomes[k] = {Status::ok, 0, 0, {}};
        (void)batch.Put(Key(ops[k].space, ops[k].key).slice(), slice(ops[k].data));
      }
      write(ops, outcomes, batch);
    }
  }

  Result<void> sync(bool) override {
    const std::lock_guard lock(sync_mutex_);
    if (failure_.empty()) {
      // Nothing was logged since the last memtable was written to a file. That is no failure, because such files are
      // fsynced.
      const rocksdb::Status status = db_->SyncWAL();
      if (status.ok()) return {};
      failure_ = status.ToString();
    }
    return Error{"store.sync_failed",
                 "the backend rocksdb in " + folder_.path() + " cannot guarantee stable storage: " + failure_,
                 "check the disk, then start the server again"};
  }

  std::string describe() const override {
    std::uint64_t keys = 0, bytes = 0;
    db_->GetIntProperty(rocksdb::DB::Properties::kEstimateNumKeys, &keys);
    db_->GetIntProperty(rocksdb::DB::Properties::kTotalSstFilesSize, &bytes);
    return folder_.path() + ", about " + std::to_string(keys) + (keys == 1 ? " key, " : " keys, ") +
           format_size(bytes) + " in files";
  }

 private:
  static bool failed(Status status) {
    return status != Status::ok && status != Status::not_found && status != Status::unsupported;
  }

  static void undone(std::span<Outcome> outcomes, std::size_t failed, Status status) {
    for (std::size_t k = 0; k < outcomes.size(); ++k) outcomes[k] = {k == failed ? status : Status::aborted, 0, 0, {}};
  }

  void gather(std::span<const Op> ops, std::span<Outcome> outcomes, const rocksdb::ReadOptions& options,
              rocksdb::WriteBatchWithIndex& batch, Arena& arena, rocksdb::WriteBatch* plain) {
    for (std::size_t k = 0; k < ops.size(); ++k) {
      const Op& op = ops[k];
      if (op.code != Code::kv_put && op.code != Code::kv_remove) {
        outcomes[k] = read(op, options, &batch, arena);
      } else {
        const Key key(op.space, op.key);
        rocksdb::Status status;
        bool there = false;
        if (op.code == Code::kv_remove || op.flags & flag::exclusive) {
          rocksdb::PinnableSlice old;
          status = batch.GetFromBatchAndDB(db_.get(), options, key.slice(), &old);
          there = status.ok();
        }
        if (!status.ok() && !status.IsNotFound()) outcomes[k] = {status_of(status), 0, 0, {}};
        else if (op.code == Code::kv_put && there) outcomes[k] = {Status::exists, 0, 0, {}};
        else if (op.code == Code::kv_remove && !there) outcomes[k] = {Status::not_found, 0, 0, {}};
        else
          outcomes[k] = {
              status_of(op.code == Code::kv_put ? batch.Put(key.slice(), slice(op.data)) : batch.Delete(key.slice())),
              0,
              0,
              {}};
      }
      if (failed(outcomes[k].status)) return undone(outcomes.first(ops.size()), k, outcomes[k].status);
    }
    write(ops, outcomes, *plain);
  }

  void write(std::span<const Op> ops, std::span<Outcome> outcomes, rocksdb::WriteBatch& batch) {
    const rocksdb::Status status = db_->Write(rocksdb::WriteOptions(), &batch);
    if (status.ok()) return;
    std::size_t last = ops.size() - 1;
    while (ops[last].code != Code::kv_put && ops[last].code != Code::kv_remove) --last;
    undone(outcomes.first(ops.size()), last, status_of(status));
  }

  Outcome read(const Op& op, const rocksdb::ReadOptions& options, rocksdb::WriteBatchWithIndex* batch, Arena& arena) {
    if (op.code == Code::sync) return {Status::ok, 0, 0, {}};
    if (op.code == Code::kv_scan) return scan(op, options, batch, arena);
    if (op.code != Code::kv_get) return {Status::unsupported, 0, 0, {}};
    const Key key(op.space, op.key);
    rocksdb::PinnableSlice value;
    const rocksdb::Status status = batch ? batch->GetFromBatchAndDB(db_.get(), options, key.slice(), &value)
                                         : db_->Get(options, db_->DefaultColumnFamily(), key.slice(), &value);
    if (!status.ok()) return {status_of(status), 0, 0, {}};
    return give(bytes_of(value), op, arena);
  }

  Outcome scan(const Op& op, const rocksdb::ReadOptions& options, rocksdb::WriteBatchWithIndex* batch, Arena& arena) {
    const Key prefix(op.space, op.key), after(op.space, text_of(op.data));
    std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(options));
    if (batch) at.reset(batch->NewIteratorWithBase(at.release()));
    const bool from_after = !op.data.empty() && after.view() >= prefix.view();
    at->Seek(from_after ? after.slice() : prefix.slice());
    if (from_after && at->Valid() && at->key() == after.slice()) at->Next();
    PairPacker packer(op);
    for (; at->Valid() && at->key().starts_with(prefix.slice()); at->Next()) {
      const rocksdb::Slice key = at->key();
      if (!packer.add(std::string_view(key.data(), key.size()).substr(1 + op.space.size()), bytes_of(at->value())))
        break;
    }
    if (!at->status().ok()) return {status_of(at->status()), 0, 0, {}};
    return packer.finish(arena);
  }

  Folder folder_;
  std::unique_ptr<rocksdb::DB> db_;
  std::shared_mutex mutex_;
  std::mutex sync_mutex_;
  std::string failure_;
};

Result<std::uint64_t> size_setting(Settings& settings, std::string_view name) {
  const std::string text = take_setting(settings, name);
  if (text.empty()) return size_default;
  auto size = parse_size(text);
  if (size && (*size < size_least || *size > size_most))
    return Error{"store.bad_setting", "the backend rocksdb refuses " + std::string(name) + '=' + text,
                 std::string(name) + " must be a size from 1MiB to 1TiB"};
  return size;
}

Result<std::unique_ptr<Backend>> open_rocksdb(Role, const Settings& settings) {
  Settings left = settings;
  const std::string path = take_setting(left, "path");
  const auto cache = size_setting(left, "cache"), buffer = size_setting(left, "buffer");
  if (auto ok = no_more_settings(left, "rocksdb", "path, cache, buffer"); !ok) return ok.error();
  if (!cache) return cache.error();
  if (!buffer) return buffer.error();
  auto folder = Folder::open(path, "rocksdb", format_version);
  if (!folder) return folder.error();
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(*cache);
  table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = *buffer;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  options.keep_log_file_num = 4;
  // A log record that was cut by a crash ends the log; all data that was acknowledged as stored is before it.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(options, path + "/db", &db);
  if (!status.ok()) return cannot_open(path, "RocksDB reports: " + status.ToString(), "");
  return std::unique_ptr<Backend>(std::make_unique<Rocksdb>(std::move(*folder), std::unique_ptr<rocksdb::DB>(db)));
}

constexpr BackendEntry backends[] = {{"rocksdb", 1u << static_cast<unsigned>(Role::kv), open_rocksdb}};
const Module module{module_abi, "rocksdb", backends, {}};

}  // namespace

}  // namespace sonde::store

extern "C" const sonde::store::Module* sonde_store_module() { return &sonde::store::module; }
