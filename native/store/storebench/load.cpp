#include "store/storebench/load.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <utility>

#include "core/units.hpp"
#include "store/db.hpp"
#include "store/link_options.hpp"

namespace sonde::store::bench {

namespace {

constexpr std::size_t held_max = 64u << 20;  ///< larger batches reuse their memory from the beginning

struct Known {
  const char* name;
  bool reads;
};
constexpr Known known[] = {{"object.write", false}, {"object.read", true},      {"striped.write", false},
                           {"striped.read", true},  {"item.write", false},      {"item.read", true},
                           {"kv.put", false},       {"kv.get", true},           {"db.insert", false},
                           {"db.query", true},      {"db.update", false},       {"dataset.write", false},
                           {"dataset.read", true},  {"attribute.write", false}, {"attribute.read", true}};
constexpr std::size_t row_bytes_min = 64;                                    ///< its typed fields, and some data
constexpr std::size_t table_rows_max = 20'000, table_bytes_max = 32u << 20;  ///< then it is emptied
constexpr std::size_t table_rows_min = 1000;                                 ///< for queries

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  for (;;) {
    const std::size_t end = text.find(at);
    out.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

bool to_number(std::string_view text, std::size_t& out) {
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), out);
  return why == std::errc{} && end == text.data() + text.size();
}

Error operation_failed(const Case& what, const Batch& batch) {
  for (std::size_t k = 0; k < batch.size(); ++k)
    if (batch[k].status != Status::ok)
      return {"store." + std::string(name_of(batch[k].status)),
              what.text() + ": an operation failed: " + explain(batch[k]), "see the server's status"};
  return {"store.failed", what.text() + ": an operation failed", "see the server's status"};
}

class StoreLoad : public Load {
 public:
  StoreLoad(const Case& what, Client& client, std::string space, Safety safety, MutableBytes memory)
      : what_(what),
        client_(client),
        space_(std::move(space)),
        safety_(safety),
        memory_(memory.first(memory_of(what))) {
    for (std::size_t k = 0; k < what_.depth; ++k) batches_.push_back(client_.batch(safety_));
  }

  Result<void> iterate(Stages& s) override {
    for (auto& b : batches_) {
      b.clear();
      add_operations(b);
      if (what_.depth == 1) break;
      if (auto ok = b.start(); !ok) return ok;
    }
    s = {0, 0, 0};
    for (auto& b : batches_) {
      if (auto ok = what_.depth == 1 ? b.run() : b.wait(); !ok) return ok;
      if (b.failed()) return operation_failed(what_, b);
      if (auto ok = take(b); !ok) return ok;
      const Timing t = b.timing();
      s.serialise_s += t.serialise_s;
      s.wait_s += t.wait_s;
      s.backend_s += t.backend_s;
    }
    return {};
  }

 protected:
  virtual void add_operations(Batch& b) = 0;
  /// Uses the answers as a client does.
  virtual Result<void> take(Batch&) { return {}; }
  MutableBytes room(std::size_t k) const {
    return memory_.subspan(k % (memory_.size() / what_.bytes) * what_.bytes, what_.bytes);
  }
  Bytes piece(std::size_t k) const { return room(k); }
  Result<void> all_done(Batch& b) const {
    if (auto ok = b.run(); !ok) return ok;
    return b.failed() ? Result<void>(operation_failed(what_, b)) : Result<void>();
  }

  Case what_;
  Client& client_;
  std::string space_;
  Safety safety_;
  MutableBytes memory_;
  std::vector<Batch> batches_;
};

class ObjectLoad final : public StoreLoad {
 public:
  using StoreLoad::StoreLoad;
  Result<void> prepare(bool fill) override {
    if (what_.operation == "write" || !fill) return {};
    Batch b = client_.batch();
    for (std::size_t k = 0; k < what_.batch; ++k) b.write(space_, "o", k * what_.bytes, piece(k));
    return all_done(b);
  }
  void clean() override {
    Batch b = client_.batch();
    b.remove_object(space_, "o");
    (void)!b.run();
  }

 private:
  void add_operations(Batch& b) override {
    for (std::size_t k = 0; k < what_.batch; ++k)
      if (what_.operation == "write") b.write(space_, "o", k * what_.bytes, piece(k));
      else b.read(space_, "o", k * what_.bytes, room(k));
  }
};

/// Striped objects, and items, whose data is a striped object.
class StripedLoad final : public StoreLoad {
 public:
  using StoreLoad::StoreLoad;
  Result<void> prepare(bool fill) override {
    Distribution distribution;
    distribution.block_bytes = std::max<std::size_t>(what_.bytes, 64u << 10);
    if (what_.client == "item") {
      auto item = Item::open(client_, space_, "i");
      if (!item) item = Item::create(client_, space_, "i", distribution, {{"made-by", "sonde store run"}});
      if (!item) return item.error();
      object_.emplace(item->data());
    } else {
      auto object = Striped::make(client_, space_, "s", distribution);
      if (!object) return object.error();
      object_.emplace(*object);
    }
    if (what_.operation == "write" || !fill) return {};
    Batch b = client_.batch();  // one by one would take minutes if every message waits for an acknowledgement
    for (std::size_t k = 0; k < what_.batch; ++k) object_->write(b, k * what_.bytes, piece(k));
    return all_done(b);
  }
  void clean() override {
    if (what_.client == "item") (void)!Item::remove(client_, space_, "i");
    else if (object_) (void)!object_->remove();
  }

 private:
  void add_operations(Batch& b) override {
    if (!object_) return;  // prepare() created it
    for (std::size_t k = 0; k < what_.batch; ++k)
      if (what_.operation == "write") object_->write(b, k * what_.bytes, piece(k));
      else object_->read(b, k * what_.bytes, room(k));
  }
  std::optional<Striped> object_;
};

class KvLoad final : public StoreLoad {
 public:
  KvLoad(const Case& what, Client& client, std::string space, Safety safety, MutableBytes memory)
      : StoreLoad(what, client, std::move(space), safety, memory) {
    char name[32];
    for (std::size_t k = 0; k < what_.batch * what_.depth; ++k) {
      std::snprintf(name, sizeof name, "key%08zu", k);
      keys_.emplace_back(name);
    }
  }
  Result<void> prepare(bool fill) override {
    if (what_.operation == "put" || !fill) return {};
    Batch b = client_.batch();
    for (std::size_t k = 0; k < keys_.size(); ++k) b.put(space_, keys_[k], piece(k % what_.batch));
    return all_done(b);
  }
  void clean() override {
    Batch b = client_.batch();
    for (const auto& key : keys_) b.remove(space_, key);
    (void)!b.run();
  }

 private:
  void add_operations(Batch& b) override {
    const std::size_t first = static_cast<std::size_t>(&b - batches_.data()) * what_.batch;
    for (std::size_t k = 0; k < what_.batch; ++k)
      if (what_.operation == "put") b.put(space_, keys_[first + k], piece(k));
      else b.get(space_, keys_[first + k], room(k));
  }
  std::vector<std::string> keys_;
};

/// Rows of a text, two numbers and a blob; queries use one of the numbers, which is indexed. Encoding rows and decoding
/// answers is a client's work, and is measured.
class DbLoad final : public StoreLoad {
 public:
  DbLoad(const Case& what, Client& client, std::string space, Safety safety, MutableBytes memory)
      : StoreLoad(what, client, std::move(space), safety, memory),
        per_iteration_(what.batch * what.depth),
        rows_(
            std::max(per_iteration_, std::min(table_rows_min, std::max<std::size_t>(1, table_bytes_max / what.bytes)))),
        encoded_(per_iteration_) {
    const db::Schema schema{
        {{"name", db::Type::text}, {"step", db::Type::int64}, {"value", db::Type::float64}, {"data", db::Type::blob}},
        {{{1}, false}}};
    schema_ = db::encode(schema);
  }

  Result<void> prepare(bool fill) override {
    Batch b = client_.batch();
    b.add(operation(Code::db_define, schema_));
    if (auto ok = all_done(b); !ok || what_.operation == "insert" || !fill) return ok;
    const std::size_t at_once = std::max<std::size_t>(1, table_bytes_max / what_.bytes);
    for (std::size_t k = 0; k < rows_; k += at_once) {
      b.clear();
      std::vector<db::Blob> rows;
      for (std::size_t n = k; n < std::min(rows_, k + at_once); ++n) rows.push_back(row(n));
      for (const auto& encoded : rows) b.add(operation(Code::db_insert, encoded));
      if (auto ok = all_done(b); !ok) return ok;
    }
    return {};
  }

  /// A table that only grows would be different at the end and at the beginning.
  Result<void> ready() override {
    if (what_.operation != "insert" || next_ == 0 ||
        (next_ + per_iteration_ <= table_rows_max && (next_ + per_iteration_) * what_.bytes <= table_bytes_max))
      return {};
    next_ = 0;
    Batch b = client_.batch();
    b.add(operation(Code::db_undefine, {}));
    b.add(operation(Code::db_define, schema_));
    return all_done(b);
  }

  void clean() override {
    Batch b = client_.batch();
    b.add(operation(Code::db_undefine, {}));
    (void)!b.run();
  }

 private:
  void add_operations(Batch& b) override {
    const std::size_t first = static_cast<std::size_t>(&b - batches_.data()) * what_.batch;
    for (std::size_t k = first; k < first + what_.batch; ++k, ++next_) {
      const std::size_t n = what_.operation == "insert" ? next_ : next_ % rows_;
      const auto found = db::Selector::where("step", db::Compare::eq, static_cast<std::int64_t>(n));
      if (what_.operation == "insert") {
        encoded_[k] = row(n);
        b.add(operation(Code::db_insert, encoded_[k]));
      } else if (what_.operation == "query") {
        encoded_[k] = db::encode(db::Query{found, {}, {}});
        Op op = operation(Code::db_query, encoded_[k]);
        op.length = 1;
        b.add(op);
      } else {
        encoded_[k] = db::encode(db::Update{found, {"value", "data"}, {static_cast<double>(next_), data(n)}});
        b.add(operation(Code::db_update, encoded_[k]));
      }
    }
  }

  Result<void> take(Batch& b) override {
    for (std::size_t k = 0; k < b.size() && what_.operation != "insert"; ++k) {
      std::size_t rows = b[k].value;
      if (what_.operation == "query") {
        const auto answer = db::decode_answer(b[k].data);
        if (!answer) return answer.error();
        rows = (*answer).rows.size();
      }
      if (rows != 1)
        return Error{"store.failed",
                     what_.text() + ": an operation found " + std::to_string(rows) + " rows instead of one",
                     "check in the server's status that it stores its tables"};
    }
    return {};
  }

  Op operation(Code code, Bytes data) const {
    return {.code = code, .space = space_, .key = "rows", .data = data, .into = {}};
  }

  db::Blob data(std::size_t n) const {
    const Bytes bytes = piece(n).first(what_.bytes - std::min<std::size_t>(what_.bytes, row_overhead));
    return {bytes.begin(), bytes.end()};
  }

  db::Blob row(std::size_t n) const {
    char name[24];
    std::snprintf(name, sizeof name, "row%08zu", n % 100'000'000);
    return db::encode(db::Rows{{"name", "step", "value", "data"},
                               {{std::string(name), static_cast<std::int64_t>(n), static_cast<double>(n), data(n)}}});
  }

  static constexpr std::size_t row_overhead =
      (5 + 11) + 9 + 9 + 5;  ///< for the values without the blob's bytes, as db.hpp encodes them
  static_assert(row_overhead < row_bytes_min);
  std::size_t per_iteration_, rows_, next_ = 0;
  db::Blob schema_;
  std::vector<db::Blob> encoded_;
};

constexpr std::size_t answer_bytes = 96;  ///< a request or an answer without data is a frame of 64 bytes and one record

class RawLoad final : public Load {
 public:
  RawLoad(const Case& what, RawPeer& peer, MutableBytes memory)
      : what_(what), peer_(peer), memory_(memory.first(std::max<std::size_t>(memory_of(what), answer_bytes))) {}
  Result<void> prepare(bool) override { return {}; }
  Result<void> iterate(Stages& s) override {
    s = {not_known, not_known, not_known};
    const std::size_t bytes = what_.bytes * what_.batch * what_.depth;
    bool reads = false;
    for (const auto& k : known)
      if (what_.client + '.' + what_.operation == k.name) reads = k.reads;
    return reads ? peer_.exchange(answer_bytes, bytes, memory_) : peer_.exchange(bytes, answer_bytes, memory_);
  }

 private:
  Case what_;
  RawPeer& peer_;
  MutableBytes memory_;
};

}  // namespace

std::string Case::text() const {
  return client + '.' + operation + ':' + std::to_string(bytes) + ':' + std::to_string(batch) + ':' +
         std::to_string(depth);
}

Result<Case> Case::parse(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    std::string names;
    for (const auto& k : known) names += (names.empty() ? "" : ", ") + std::string(k.name);
    return Error{"store.bad_case", "'" + std::string(text) + "' is not a case: " + why,
                 "write OPERATION:BYTES:BATCH:DEPTH, such as object.write:4096:1:1; operations: " + names};
  };
  const auto parts = split(text, ':');
  if (parts.size() != 4) return bad("it does not have four parts");
  Case c;
  bool found = false;
  for (const auto& k : known) found |= parts[0] == k.name;
  if (!found) return bad("unknown operation '" + std::string(parts[0]) + "'");
  const auto names = split(parts[0], '.');
  c.client = names[0];
  c.operation = names[1];
  if (!to_number(parts[1], c.bytes) || c.bytes < 1 || c.bytes > (1u << 30))
    return bad("the size must be from 1 B to 1 GiB");
  if (!to_number(parts[2], c.batch) || c.batch < 1 || c.batch > 100'000)
    return bad("a batch has from 1 to 100000 operations");
  if (!to_number(parts[3], c.depth) || c.depth < 1 || c.depth > 1024)
    return bad("the depth must be from 1 to 1024 batches");
  const bool atomic = c.client == "kv" || c.client == "db";
  if (atomic && c.bytes > limit::value_bytes) return bad("a value has at most " + format_size(limit::value_bytes));
  if (atomic && c.bytes * c.batch > limit::atomic_batch_bytes / 2)
    return bad("a batch of keys or rows has at most " + format_size(limit::atomic_batch_bytes / 2));
  if (c.client == "db" && c.bytes < row_bytes_min) return bad("a row has at least " + format_size(row_bytes_min));
  if (c.client == "attribute" && c.bytes > limit::value_bytes / 2)
    return bad("an attribute has at most " + format_size(limit::value_bytes / 2));
  if ((c.client == "attribute" || c.client == "dataset") && c.depth > 1)
    return bad("HDF5 runs one operation at a time");
  return c;
}

Result<Variant> Variant::parse(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    return Error{"store.bad_variant", "'" + std::string(text) + "' is not a variant: " + why,
                 "write "
                 "NAME=TRANSPORT[,provider=P][,nodelay=no][,cork=yes][,gather=no][,await=yes][,rma=BYTES][,spin=20us][,"
                 "checksum=head][,tls=yes][,clients=object+kv][,without=CASE+CASE]"};
  };
  Variant v;
  const std::size_t eq = text.find('=');
  v.name = text.substr(0, eq);
  bool first = true;
  for (std::string_view word : split(eq == std::string_view::npos ? text : text.substr(eq + 1), ',')) {
    if (std::exchange(first, false)) {
      v.transport = word;
      continue;
    }
    const std::size_t at = word.find('=');
    const std::string_view name = word.substr(0, at),
                           value = at == std::string_view::npos ? std::string_view{} : word.substr(at + 1);
    if (name == "checksum" && (value == "all" || value == "head")) v.checksum = value == "all";
    else if (name == "tls" && (value == "yes" || value == "no")) v.tls = value == "yes";
    else if (name == "clients" && !value.empty()) v.clients = value;
    else if (name == "without" && !value.empty()) v.without = value;
    else if (!set_link_option(v.link, name, value)) return bad("'" + std::string(word) + "' is not known there");
  }
  if (v.name.empty() || v.transport.empty()) return bad("a name and a transport are needed");
  if (v.raw() && v.transport != "raw-tcp" && v.transport != "raw-ofi") return bad("raw limits are raw-tcp and raw-ofi");
  return v;
}

bool Variant::takes(const Case& what) const {
  // HDF5 has calls, not messages: for a raw limit it is not known which bytes they would send.
  if (raw() && (what.client == "dataset" || what.client == "attribute")) return false;
  const auto in = [](const std::string& list, const std::string& word) {
    return ('+' + list + '+').find('+' + word + '+') != std::string::npos;
  };
  return (clients.empty() || in(clients, what.client)) && !in(without, what.text());
}

std::size_t memory_of(const Case& what) {
  return std::min(what.batch, std::max<std::size_t>(1, held_max / what.bytes)) * what.bytes;
}

Result<std::unique_ptr<Load>> make_load(const Case& what, Client& client, const std::string& space, Safety safety,
                                        MutableBytes memory) {
  std::unique_ptr<Load> load;
  if (what.client == "object") load = std::make_unique<ObjectLoad>(what, client, space, safety, memory);
  else if (what.client == "kv") load = std::make_unique<KvLoad>(what, client, space, safety, memory);
  else if (what.client == "db") load = std::make_unique<DbLoad>(what, client, space, safety, memory);
  else load = std::make_unique<StripedLoad>(what, client, space, safety, memory);
  return load;
}

std::unique_ptr<Load> make_raw_load(const Case& what, RawPeer& peer, MutableBytes memory) {
  return std::make_unique<RawLoad>(what, peer, memory);
}

}  // namespace sonde::store::bench
