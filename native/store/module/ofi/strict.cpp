#include "store/module/ofi/strict.hpp"

#include <rdma/fi_errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>

namespace sonde::store::ofi {

namespace {

struct Enrolled {
  const std::byte* base;
  std::size_t size;
  Region below;
  bool remote, alive;
  int in_use;
};

/// Shared by all strict Ports, because the other end must find a remote key.
std::mutex table_mutex;
std::map<std::uint64_t, Enrolled> table;
std::uint64_t last_handle = 0;

constexpr std::uint64_t key_mask = 0x5a5a'a5a5'0000'0000;  ///< the provider chooses the keys: no caller can guess them
constexpr unsigned char pattern = 0xc7;

void complain(const std::string& what) { std::fprintf(stderr, "strict fabric: %s\n", what.c_str()); }

class StrictPort final : public Port {
 public:
  explicit StrictPort(std::unique_ptr<Port> below) : below_(std::move(below)), demands_(below_->demands()) {
    scribble_ = !demands_.context;  // a provider that uses the context writes there itself
    below_virtual_ = demands_.virtual_addr;
    demands_.local_mr = demands_.provider_key = demands_.allocated = demands_.context = demands_.receive_data =
        demands_.async_iov = true;
    demands_.virtual_addr = !below_virtual_;
    demands_.inject = std::min<std::size_t>(demands_.inject, 64);
    demands_.iovs = 2;
    demands_.sends = std::min<std::size_t>(demands_.sends, 8);
    demands_.receives = std::min<std::size_t>(demands_.receives, 16);
  }

  ~StrictPort() override {
    const std::lock_guard lock(table_mutex);
    for (const auto handle : own_)
      if (table[handle].alive)
        complain("memory of " + std::to_string(table[handle].size) +
                 " bytes is still registered when its domain is closed");
    for (const auto handle : own_) table.erase(handle);
  }

  const Demands& demands() const override { return demands_; }
  const std::string& provider() const override { return below_->provider(); }
  Result<std::vector<std::byte>> address() override { return below_->address(); }
  std::uint32_t address_format() const override { return below_->address_format(); }
  Result<void> set_peer(Bytes address) override { return below_->set_peer(address); }
  Result<void> connect(Bytes token) override { return below_->connect(token); }
  Result<void> take_request() override { return below_->take_request(); }
  void reject_request() override { below_->reject_request(); }
  Result<void> accept() override { return below_->accept(); }
  Event event(Bytes* token) override { return below_->event(token); }
  bool ready() const override { return below_->ready(); }
  Wait waiting() const override { return below_->waiting(); }
  int fd() const override { return below_->fd(); }
  bool may_sleep() override { return below_->may_sleep(); }
  void settle() override { below_->settle(); }

  void stop(bool shared) override {
    below_->stop(shared);
    const std::lock_guard lock(table_mutex);
    for (const auto& [context, flying] : flying_) release(flying);
    flying_.clear();
    silent_.clear();
    covers_.clear();
  }

  Result<Region> enrol(void* memory, std::size_t bytes, bool remote) override {
    if (bytes == 0) return refuse("memory of 0 bytes is registered");
    const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(memory) / page * page;
    std::vector<unsigned char> pages((reinterpret_cast<std::uintptr_t>(memory) + bytes - begin + page - 1) / page);
    if (::mincore(reinterpret_cast<void*>(begin), reinterpret_cast<std::uintptr_t>(memory) + bytes - begin,
                  pages.data()) != 0)
      return refuse("unallocated memory is registered");
    auto below = below_->enrol(memory, bytes, remote);
    if (!below) return below;
    const std::lock_guard lock(table_mutex);
    Region region = *below;
    region.handle = ++last_handle;
    table[region.handle] = {static_cast<std::byte*>(memory), bytes, *below, remote, true, 0};
    own_.push_back(region.handle);
    region.descriptor = reinterpret_cast<void*>(region.handle);
    region.key = region.handle ^ key_mask;
    return region;
  }

  void strike(Region& region) override {
    if (!region.mr) return;
    Region below;
    {
      const std::lock_guard lock(table_mutex);
      Enrolled& entry = table[region.handle];
      if (!entry.alive) complain("a registration is ended twice");
      if (entry.in_use) complain("a registration ends while " + std::to_string(entry.in_use) + " operations use it");
      entry.alive = false;
      below = entry.below;
    }
    below_->strike(below);
    region = {};
  }

  ssize_t receive(void* memory, std::size_t bytes, const Region* region, Context* context) override {
    if (!region) {
      const std::lock_guard lock(table_mutex);
      complain("a receive has no descriptor");
      return -FI_EINVAL;
    }
    iovec piece{memory, bytes};
    void* descriptor = region->descriptor;
    Region below;
    void* real = nullptr;
    if (!begin(&piece, &descriptor, 1, context, &real)) return -FI_EINVAL;
    below.descriptor = real;
    return finish(below_->receive(memory, bytes, &below, context), context);
  }

  ssize_t send(const iovec* pieces, void** descriptors, std::size_t n, Context* context, bool completes) override {
    std::array<void*, 8> real{};
    if (!descriptors || !begin(pieces, descriptors, n, context, real.data())) return -FI_EINVAL;
    const ssize_t result = finish(below_->send(pieces, real.data(), n, context, completes), context);
    if (result == 0 && !completes) silent_.push_back(context);
    if (result == 0 && completes) {
      covers_[context] = std::move(silent_);
      silent_.clear();
    }
    return result;
  }

  ssize_t inject(const void* memory, std::size_t bytes) override {
    if (bytes > demands_.inject) {
      const std::lock_guard lock(table_mutex);
      complain("a message of " + std::to_string(bytes) + " bytes is injected");
      return -FI_EINVAL;
    }
    return below_->inject(memory, bytes);
  }

  ssize_t read(const iovec* pieces, void** descriptors, std::size_t n, std::uint64_t address, std::uint64_t key,
               Context* context) override {
    std::array<void*, 8> real{};
    if (!descriptors || !begin(pieces, descriptors, n, context, real.data())) return -FI_EINVAL;
    std::size_t bytes = 0;
    for (std::size_t k = 0; k < n; ++k) bytes += pieces[k].iov_len;
    std::uint64_t below_address = 0, below_key = 0;
    {
      const std::lock_guard lock(table_mutex);
      const auto found = table.find(key ^ key_mask);
      if (found == table.end() || !found->second.alive || !found->second.remote) {
        complain("remote memory is read with an unknown key");
        forget(context);
        return -FI_EINVAL;
      }
      const Enrolled& entry = found->second;
      const auto base = reinterpret_cast<std::uintptr_t>(entry.base);
      const std::uint64_t offset = demands_.virtual_addr ? address - base : address;
      if (offset > entry.size || bytes > entry.size - offset) {
        complain("remote memory is read outside of its region");
        forget(context);
        return -FI_EINVAL;
      }
      below_address = below_virtual_ ? base + offset : offset;
      below_key = entry.below.key;
    }
    return finish(below_->read(pieces, real.data(), n, below_address, below_key, context), context);
  }

  std::size_t poll(Done* done, std::size_t n) override {
    const std::size_t got = below_->poll(done, n);
    for (std::size_t k = 0; k < got; ++k) {
      const std::lock_guard lock(table_mutex);
      if (!done[k].context) continue;
      const auto found = flying_.find(done[k].context);
      if (found == flying_.end()) {
        complain("an operation completes that was never posted");
        continue;
      }
      const auto* bytes = reinterpret_cast<const unsigned char*>(&done[k].context->space);
      // Earlier operations without a completion of their own are complete with it.
      if (const auto covered = covers_.find(done[k].context); covered != covers_.end()) {
        for (Context* context : covered->second) forget(context);
        covers_.erase(covered);
      }
      if (scribble_ && !std::all_of(bytes, bytes + sizeof(fi_context2), [](unsigned char c) { return c == pattern; }))
        complain("the context of an operation was changed before it completed");
      for (std::size_t p = 0; p < found->second.n; ++p)
        if (std::memcmp(&found->second.where[p], &found->second.pieces[p], sizeof(iovec)) != 0)
          complain("the vectors of an operation were changed before it completed");
      release(found->second);
      flying_.erase(found);
    }
    return got;
  }

 private:
  struct Flying {
    std::array<iovec, 8> pieces;
    const iovec* where;
    std::size_t n;
    std::array<std::uint64_t, 8> handles;
  };

  static Error refuse(const char* what) {
    const std::lock_guard lock(table_mutex);
    complain(what);
    return {"store.fabric", what, "please report this"};
  }

  static void release(const Flying& flying) {
    for (std::size_t k = 0; k < flying.n; ++k) --table[flying.handles[k]].in_use;
  }

  bool begin(const iovec* pieces, void** descriptors, std::size_t n, Context* context, void** real) {
    const std::lock_guard lock(table_mutex);
    if (n == 0 || n > demands_.iovs) {
      complain(std::to_string(n) + " vectors, but at most " + std::to_string(demands_.iovs) + " are allowed");
      return false;
    }
    if (!context || flying_.contains(context)) {
      complain("a context is reused before its operation completed");
      return false;
    }
    Flying flying{};
    flying.n = n;
    for (std::size_t k = 0; k < n; ++k) {
      const auto handle = reinterpret_cast<std::uint64_t>(descriptors[k]);
      const auto found = table.find(handle);
      if (found == table.end() || !found->second.alive || std::find(own_.begin(), own_.end(), handle) == own_.end()) {
        complain("a piece of " + std::to_string(pieces[k].iov_len) + " bytes has no descriptor of registered memory");
        return false;
      }
      const Enrolled& entry = found->second;
      const auto* at = static_cast<const std::byte*>(pieces[k].iov_base);
      if (at < entry.base || at + pieces[k].iov_len > entry.base + entry.size) {
        complain("a piece of " + std::to_string(pieces[k].iov_len) +
                 " bytes is not within the memory of its descriptor");
        return false;
      }
      flying.pieces[k] = pieces[k];
      flying.handles[k] = handle;
      real[k] = entry.below.descriptor;
    }
    for (std::size_t k = 0; k < n; ++k) ++table[flying.handles[k]].in_use;
    Flying& kept = flying_[context] = flying;
    kept.where = context->op == Context::Op::receive ? kept.pieces.data() : pieces;
    if (scribble_) std::memset(&context->space, pattern, sizeof context->space);
    return true;
  }

  ssize_t finish(ssize_t result, Context* context) {
    if (result == 0) return 0;
    const std::lock_guard lock(table_mutex);
    forget(context);
    return result;
  }

  /// Call it with table_mutex locked.
  void forget(Context* context) {
    const auto found = flying_.find(context);
    if (found == flying_.end()) return;
    release(found->second);
    flying_.erase(found);
  }

  std::unique_ptr<Port> below_;
  Demands demands_;
  bool scribble_ = true, below_virtual_ = false;
  std::vector<std::uint64_t> own_;
  std::map<Context*, Flying> flying_;
  std::vector<Context*> silent_;  ///< sends since the last one with a completion
  std::map<Context*, std::vector<Context*>> covers_;
};

}  // namespace

std::unique_ptr<Port> make_strict(std::unique_ptr<Port> below) {
  return std::make_unique<StrictPort>(std::move(below));
}

}  // namespace sonde::store::ofi
