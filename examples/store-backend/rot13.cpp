// A backend from outside: keys in a map, values written with their letters turned by thirteen. What matters is its
// shape.
//
//   g++ -shared -fPIC rot13.cpp $(sonde store conformance --flags) -o rot13.so
//   sonde store conformance ./rot13.so
//   sonde store serve --module ./rot13.so --backend kv=rot13
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "store/module.hpp"

namespace {

using namespace sonde;
using namespace sonde::store;

std::string turned(std::string_view text) {
  std::string out(text);
  for (char& ch : out) {
    if ((ch >= 'a' && ch <= 'z')) ch = static_cast<char>('a' + (ch - 'a' + 13) % 26);
    if ((ch >= 'A' && ch <= 'Z')) ch = static_cast<char>('A' + (ch - 'A' + 13) % 26);
  }
  return out;
}

// 1. Derive from Backend.
class Rot13 final : public Backend {
 public:
  // 2. Say what it can do: keys, several threads at once, not durable.
  Caps caps() const override { return {Role::kv, true, true, false}; }

  // 3. Execute operations in order, give each its outcome; a batch that fails for good is undone.
  void execute(std::span<const Op> ops, Safety, std::span<Outcome> outcomes, Arena& arena) override {
    const std::lock_guard lock(mutex_);
    auto before = pairs_;  // an undo log would cost less
    for (std::size_t k = 0; k < ops.size(); ++k) {
      try {
        outcomes[k] = run(ops[k], arena);
      } catch (...) {  // no memory: the server answers for it, but half a batch may not stay
        pairs_.swap(before);
        throw;
      }
      if (outcomes[k].status == Status::ok || outcomes[k].status == Status::not_found) continue;
      pairs_ = before;
      for (std::size_t other = 0; other < ops.size(); ++other)
        if (other != k) outcomes[other] = {Status::aborted, 0, 0, {}};
      return;
    }
  }

  // 4. Make sync() true: nothing is kept beyond this process, and caps() say so.
  Result<void> sync(bool) override { return {}; }

  std::string describe() const override {
    const std::lock_guard lock(mutex_);
    return std::to_string(pairs_.size()) + " keys";
  }

 private:
  Outcome run(const Op& op, Arena& arena) {
    const std::pair name{std::string(op.space), std::string(op.key)};
    const auto found = pairs_.find(name);
    switch (op.code) {
      case Code::sync: return {Status::ok, 0, 0, {}};
      case Code::kv_put:
        if (found != pairs_.end() && op.flags & flag::exclusive) return {Status::exists, 0, 0, {}};
        pairs_[name] = turned(text_of(op.data));
        return {Status::ok, 0, 0, {}};
      case Code::kv_get: {
        if (found == pairs_.end()) return {Status::not_found, 0, 0, {}};
        const std::string value = turned(found->second);
        return give(bytes_of(value), op, arena);
      }
      case Code::kv_remove: return {pairs_.erase(name) ? Status::ok : Status::not_found, 0, 0, {}};
      case Code::kv_scan: {
        const std::string after(text_of(op.data));
        auto at = after.empty() || after < op.key ? pairs_.lower_bound(name) : pairs_.upper_bound({name.first, after});
        PairPacker packer(op);
        for (; at != pairs_.end() && at->first.first == op.space && at->first.second.starts_with(op.key); ++at) {
          const std::string value = turned(at->second);
          if (!packer.add(at->first.second, bytes_of(value))) break;
        }
        return packer.finish(arena);
      }
      default: return {Status::unsupported, 0, 0, {}};
    }
  }

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::string> pairs_;
};

Result<std::unique_ptr<Backend>> open(Role, const Settings& settings) {
  if (auto ok = no_more_settings(settings, "rot13", "none"); !ok) return ok.error();
  return std::unique_ptr<Backend>(std::make_unique<Rot13>());
}

const BackendEntry backends[] = {{"rot13", 1u << static_cast<unsigned>(Role::kv), open}};
const Module module{module_abi, "rot13", backends, {}};

}  // namespace

// 5. Export a Module.
extern "C" const Module* sonde_store_module() { return &module; }
