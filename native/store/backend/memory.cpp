#include "store/backend/memory.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/units.hpp"

namespace sonde::store {

namespace {

constexpr std::size_t block_bytes = 64u << 10;

std::int64_t wall_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::string full_name(std::string_view space, std::string_view key) {
  std::string name;
  name.reserve(space.size() + 1 + key.size());
  name.append(space).append(1, '\0').append(key);  // a space holds no NUL, so names do not run into each other
  return name;
}

/// The used part of a limit, counted before memory is allocated.
class Quota {
 public:
  explicit Quota(std::uint64_t limit) : limit_(limit) {}
  bool take(std::uint64_t n) {
    if (used_.fetch_add(n) + n <= limit_) return true;
    used_.fetch_sub(n);
    return false;
  }
  void give(std::uint64_t n) { used_.fetch_sub(n); }
  /// Counts memory that is in use already, even beyond the limit.
  void take_back(std::uint64_t n) { used_.fetch_add(n); }

  /// At its end, releases everything that was not confirmed: when memory itself runs out, nothing stays counted.
  class Share {
   public:
    Share(Quota& quota, std::uint64_t n) : quota_(quota), taken_(quota.take(n)), left_(taken_ ? n : 0) {}
    Share(const Share&) = delete;
    ~Share() { quota_.give(left_); }
    bool taken() const { return taken_; }
    void keep() { left_ = 0; }
    void keep(std::uint64_t n) { left_ -= n; }

   private:
    Quota& quota_;
    bool taken_;
    std::uint64_t left_;
  };

  std::string describe(std::size_t entries, const char* what) const {
    return std::to_string(entries) + ' ' + what + (entries == 1 ? ", " : "s, ") + format_size(used_.load()) +
           (limit_ >> 60 ? ", no limit" : " of " + format_size(limit_));
  }

 private:
  std::atomic<std::uint64_t> used_ = 0;
  std::uint64_t limit_;
};

Result<std::uint64_t> limit_of(Settings settings) {
  const std::string text = take_setting(settings, "limit");
  if (auto ok = no_more_settings(settings, "memory", "limit"); !ok) return ok.error();
  if (text.empty()) return std::uint64_t{1} << 62;
  return parse_size(text);
}

/// Sparse: blocks that were never written are not there and read as zeros. The first block grows, as most objects are
/// small.
struct Object {
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  std::uint64_t size = 0;
  std::int64_t changed_ns = 0;
  std::unordered_map<std::uint64_t, Block> blocks;

  std::uint64_t held() const {
    std::uint64_t n = 0;
    for (const auto& [number, block] : blocks) n += block.size;
    return n;
  }
};

class MemoryData final : public Backend {
 public:
  explicit MemoryData(std::uint64_t limit) : quota_(limit) {}
  Caps caps() const override { return {Role::data, true, true, false}; }

  void execute(std::span<const Op> ops, Safety, std::span<Outcome> outcomes, Arena& arena) override {
    for (std::size_t k = 0; k < ops.size(); ++k) outcomes[k] = run(ops[k], arena);
  }
  Result<void> sync(bool) override { return {}; }
  std::string describe() const override {
    std::size_t n = 0;
    for (const auto& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      n += shard.objects.size();
    }
    return quota_.describe(n, "object");
  }

 private:
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<std::string, Object> objects;
  };

  Shard& shard_of(const std::string& name) { return shards_[std::hash<std::string>{}(name) % shards_.size()]; }

  Outcome run(const Op& op, Arena& arena) {
    if (op.code == Code::sync) return {Status::ok, 0, 0, {}};
    if (op.code == Code::object_list) return list(op, arena);
    const std::string name = full_name(op.space, op.key);
    Shard& shard = shard_of(name);
    const std::lock_guard lock(shard.mutex);
    auto found = shard.objects.find(name);
    const bool is_there = found != shard.objects.end();
    switch (op.code) {
      case Code::object_create:
      case Code::object_write:
        if (op.code == Code::object_create && is_there)
          return {op.flags & flag::exclusive ? Status::exists : Status::ok, 0, 0, {}};
        if (!is_there) {
          if (op.flags & flag::must_exist) return {Status::not_found, 0, 0, {}};
          return make(shard, name, op);
        }
        return write(found->second, op);
      case Code::object_read: return is_there ? read(found->second, op, arena) : Outcome{Status::not_found, 0, 0, {}};
      case Code::object_status:
        return is_there ? Outcome{Status::ok, found->second.size, found->second.changed_ns, {}}
                        : Outcome{Status::not_found, 0, 0, {}};
      case Code::object_remove:
        if (!is_there) return {Status::not_found, 0, 0, {}};
        quota_.give(name.size() + found->second.held());
        shard.objects.erase(found);
        return {Status::ok, 0, 0, {}};
      case Code::object_truncate:
        if (!is_there) return {Status::not_found, 0, 0, {}};
        truncate(found->second, op.length);
        return {Status::ok, op.length, 0, {}};
      default: return {Status::unsupported, 0, 0, {}};
    }
  }

  /// A new object, with what is written to it. What is refused leaves none.
  Outcome make(Shard& shard, const std::string& name, const Op& op) {
    Quota::Share share(quota_, name.size());
    if (!share.taken()) return {Status::no_space, 0, 0, {}};
    Object object;
    object.changed_ns = wall_ns();
    const Outcome out = op.code == Code::object_write ? write(object, op) : Outcome{Status::ok, 0, 0, {}};
    if (out.status != Status::ok) {
      quota_.give(object.held());
      return {out.status, 0, 0, {}};
    }
    shard.objects.try_emplace(name, std::move(object));
    share.keep();
    return out;
  }

  /// The size that a block has once bytes up to `end` of it are written.
  static std::size_t grown_size(std::uint64_t number, std::size_t size, std::size_t end) {
    return size >= end ? size : number == 0 ? std::min(block_bytes, std::max(end, 2 * size)) : block_bytes;
  }

  /// All of it or nothing, as far as the limit goes: what it takes is counted before the first byte is written.
  Outcome write(Object& object, const Op& op) {
    std::uint64_t need = 0;
    for (std::size_t done = 0; done < op.data.size();) {
      const std::uint64_t at = op.offset + done;
      const std::size_t inside = at % block_bytes, n = std::min(op.data.size() - done, block_bytes - inside);
      const auto block = object.blocks.find(at / block_bytes);
      const std::size_t size = block == object.blocks.end() ? 0 : block->second.size;
      need += grown_size(at / block_bytes, size, inside + n) - size;
      done += n;
    }
    Quota::Share share(quota_, need);
    if (!share.taken()) return {Status::no_space, 0, 0, {}};
    for (std::size_t done = 0; done < op.data.size();) {
      const std::uint64_t at = op.offset + done;
      const std::size_t inside = at % block_bytes, n = std::min(op.data.size() - done, block_bytes - inside);
      auto& block = object.blocks[at / block_bytes];
      if (block.size < inside + n) {
        const std::size_t size = grown_size(at / block_bytes, block.size, inside + n);
        std::unique_ptr<std::byte[]> grown(new (std::nothrow) std::byte[size]);
        if (!grown) {  // what came before it stands
          if (done) object.size = std::max(object.size, op.offset + done);
          return {Status::no_space, done, 0, {}};
        }
        if (block.size) std::memcpy(grown.get(), block.bytes.get(), block.size);
        if (inside > block.size) std::memset(grown.get() + block.size, 0, inside - block.size);
        std::memset(grown.get() + inside + n, 0, size - inside - n);
        share.keep(size - block.size);
        block = {std::move(grown), size};
      }
      std::memcpy(block.bytes.get() + inside, op.data.data() + done, n);
      done += n;
    }
    if (!op.data.empty()) object.size = std::max(object.size, op.offset + op.data.size());
    object.changed_ns = wall_ns();
    return {Status::ok, op.data.size(), 0, {}};
  }

  static Outcome read(const Object& object, const Op& op, Arena& arena) {
    const std::uint64_t left = op.offset < object.size ? object.size - op.offset : 0;
    std::size_t length = static_cast<std::size_t>(std::min(op.length, left));
    if (!op.into.empty()) length = std::min(length, op.into.size());
    const MutableBytes to = op.into.empty() ? arena.take(length) : op.into.first(length);
    for (std::size_t done = 0; done < length;) {
      const std::uint64_t at = op.offset + done;
      const std::size_t inside = at % block_bytes, n = std::min(length - done, block_bytes - inside);
      const auto block = object.blocks.find(at / block_bytes);
      const std::size_t held =
          block == object.blocks.end() || block->second.size <= inside ? 0 : std::min(n, block->second.size - inside);
      if (held) std::memcpy(to.data() + done, block->second.bytes.get() + inside, held);
      if (held < n) std::memset(to.data() + done + held, 0, n - held);
      done += n;
    }
    return {Status::ok, length, 0, to};
  }

  void truncate(Object& object, std::uint64_t size) {
    if (size < object.size) {
      std::erase_if(object.blocks, [&](const auto& entry) {
        if (entry.first * block_bytes < size) return false;
        quota_.give(entry.second.size);
        return true;
      });
      // When the object grows again, the bytes beyond this size must be zeros.
      const auto block = object.blocks.find(size / block_bytes);
      const std::size_t inside = size % block_bytes;
      if (block != object.blocks.end() && block->second.size > inside)
        std::memset(block->second.bytes.get() + inside, 0, block->second.size - inside);
    }
    object.size = size;
    object.changed_ns = wall_ns();
  }

  Outcome list(const Op& op, Arena& arena) {
    const std::string prefix = full_name(op.space, op.key),
                      after = op.data.empty() ? "" : full_name(op.space, text_of(op.data));
    std::vector<std::string> names;
    for (auto& shard : shards_) {
      const std::lock_guard lock(shard.mutex);
      for (const auto& [name, object] : shard.objects)
        if (name.starts_with(prefix) && (after.empty() || name > after))
          names.push_back(name.substr(op.space.size() + 1));
    }
    std::sort(names.begin(), names.end());
    return pack_names(names, op.length, arena);
  }

  Quota quota_;
  std::array<Shard, 64> shards_;
};

class MemoryKv final : public Backend {
 public:
  explicit MemoryKv(std::uint64_t limit) : quota_(limit) {}
  Caps caps() const override { return {Role::kv, true, true, false}; }
  Result<void> sync(bool) override { return {}; }
  std::string describe() const override {
    std::size_t n = 0;
    for (const Shard& shard : shards_) {
      const std::shared_lock lock(shard.mutex);
      n += shard.pairs.size();
    }
    return quota_.describe(n, "key");
  }

  void execute(std::span<const Op> ops, Safety, std::span<Outcome> outcomes, Arena& arena) override {
    bool writes = false;
    Shards all;
    for (const Op& op : ops) {
      writes |= op.code == Code::kv_put || op.code == Code::kv_remove;
      all.set(number_of(op));
    }
    if (!writes) {
      const Locked<std::shared_lock<std::shared_mutex>> locked(shards_, all);
      for (std::size_t k = 0; k < ops.size(); ++k) outcomes[k] = read(ops[k], arena);
      return;
    }
    const Locked<std::unique_lock<std::shared_mutex>> locked(shards_, all);
    std::vector<Undo> undo;
    for (std::size_t k = 0; k < ops.size(); ++k) {
      const Op& op = ops[k];
      try {
        outcomes[k] = op.code == Code::kv_put      ? put(op, ops.size() > 1 ? &undo : nullptr)
                      : op.code == Code::kv_remove ? remove(op, ops.size() > 1 ? &undo : nullptr)
                                                   : read(op, arena);
      } catch (const std::bad_alloc&) {
        outcomes[k] = {Status::no_space, 0, 0, {}};
      }
      const Status status = outcomes[k].status;
      if (status == Status::ok || status == Status::not_found) continue;
      for (auto step = undo.rbegin(); step != undo.rend(); ++step) take_back(*step);
      for (std::size_t other = 0; other < ops.size(); ++other)
        if (other != k) outcomes[other] = {Status::aborted, 0, 0, {}};
      return;
    }
  }

 private:
  /// Written once: a put makes another one, so that an answer can be sent from here while its key has a new value
  /// already.
  struct Value {
    std::shared_ptr<const std::byte[]> memory;
    std::size_t size = 0;
    Bytes bytes() const { return {memory.get(), size}; }
  };

  /// The spaces are distributed over these: a large batch blocks users of its own spaces, and hardly any
  /// else. A space lies in one of them whole, for its scans.
  struct Shard {
    mutable std::shared_mutex mutex;
    std::map<std::string, Value> pairs;  // ordered: scans are in byte order
  };
  static constexpr std::size_t shard_count = 64;
  using Shards = std::bitset<shard_count>;

  /// The shards of a batch, all at once and in one order, so that two batches do not wait for each other.
  template <typename Lock> class Locked {
   public:
    Locked(std::array<Shard, shard_count>& shards, const Shards& which) {
      for (std::size_t k = 0; k < shard_count; ++k)
        if (which[k]) locks_[k] = Lock(shards[k].mutex);
    }

   private:
    std::array<Lock, shard_count> locks_;
  };

  static std::size_t number_of(const Op& op) { return std::hash<std::string_view>{}(op.space) % shard_count; }
  std::map<std::string, Value>& pairs_of(const Op& op) { return shards_[number_of(op)].pairs; }
  const std::map<std::string, Value>& pairs_of(const Op& op) const { return shards_[number_of(op)].pairs; }

  struct Undo {
    std::map<std::string, Value>* pairs;
    std::string name;
    Value value;
    bool was_there;
  };

  static Value value_of(Bytes bytes) {
    auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes.size());
    if (!bytes.empty()) std::memcpy(memory.get(), bytes.data(), bytes.size());
    return {std::move(memory), bytes.size()};
  }

  Outcome put(const Op& op, std::vector<Undo>* undo) {
    std::string name = full_name(op.space, op.key);
    auto& pairs = pairs_of(op);
    const auto found = pairs.find(name);
    if (found != pairs.end() && op.flags & flag::exclusive) return {Status::exists, 0, 0, {}};
    Quota::Share share(quota_, op.data.size() + (found == pairs.end() ? name.size() : 0));
    if (!share.taken()) return {Status::no_space, 0, 0, {}};
    Value value = value_of(op.data);
    if (found == pairs.end()) {
      if (undo) undo->push_back({&pairs, name, {}, false});
      pairs.emplace(std::move(name), std::move(value));
    } else {
      if (undo) undo->push_back({&pairs, std::move(name), found->second, true});
      quota_.give(found->second.size);
      found->second = std::move(value);
    }
    share.keep();
    return {Status::ok, 0, 0, {}};
  }

  Outcome remove(const Op& op, std::vector<Undo>* undo) {
    std::string name = full_name(op.space, op.key);
    auto& pairs = pairs_of(op);
    const auto found = pairs.find(name);
    if (found == pairs.end()) return {Status::not_found, 0, 0, {}};
    const std::size_t held = name.size() + found->second.size;
    if (undo) undo->push_back({&pairs, std::move(name), found->second, true});
    quota_.give(held);
    pairs.erase(found);
    return {Status::ok, 0, 0, {}};
  }

  void take_back(Undo& step) {
    auto& pairs = *step.pairs;
    const auto found = pairs.find(step.name);
    if (found != pairs.end()) {
      quota_.give(step.name.size() + found->second.size);
      pairs.erase(found);
    }
    if (!step.was_there) return;
    // It was there before, whether others have filled the limit meanwhile or not.
    quota_.take_back(step.name.size() + step.value.size);
    pairs.emplace(std::move(step.name), std::move(step.value));
  }

  Outcome read(const Op& op, Arena& arena) const {
    if (op.code == Code::kv_scan) return scan(op, arena);
    if (op.code == Code::sync) return {Status::ok, 0, 0, {}};
    if (op.code != Code::kv_get) return {Status::unsupported, 0, 0, {}};
    const auto& pairs = pairs_of(op);
    const auto found = pairs.find(full_name(op.space, op.key));
    if (found == pairs.end()) return {Status::not_found, 0, 0, {}};
    const Value& value = found->second;
    if (op.into.empty() && value.size >= kept_from && arena.fits(value.size))
      return {Status::ok, value.size, 0, arena.keep(value.bytes(), value.memory)};
    return give(value.bytes(), op, arena);
  }

  Outcome scan(const Op& op, Arena& arena) const {
    const auto& pairs = pairs_of(op);
    const std::string prefix = full_name(op.space, op.key);
    auto at = op.data.empty() ? pairs.lower_bound(prefix) : pairs.upper_bound(full_name(op.space, text_of(op.data)));
    if (!op.data.empty() && at != pairs.end() && at->first < prefix) at = pairs.lower_bound(prefix);
    PairPacker packer(op);
    for (; at != pairs.end() && at->first.starts_with(prefix); ++at)
      if (!packer.add(std::string_view(at->first).substr(op.space.size() + 1), at->second.bytes())) break;
    return packer.finish(arena);
  }

  static constexpr std::size_t kept_from = 1024;  ///< for smaller values, a copy costs less than counting readers
  Quota quota_;
  std::array<Shard, shard_count> shards_;
};

}  // namespace

Result<std::unique_ptr<Backend>> open_memory_data(const Settings& settings) {
  auto limit = limit_of(settings);
  if (!limit) return limit.error();
  return std::unique_ptr<Backend>(std::make_unique<MemoryData>(*limit));
}

Result<std::unique_ptr<Backend>> open_memory_kv(const Settings& settings) {
  auto limit = limit_of(settings);
  if (!limit) return limit.error();
  return std::unique_ptr<Backend>(std::make_unique<MemoryKv>(*limit));
}

}  // namespace sonde::store
