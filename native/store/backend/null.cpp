#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "store/backend/memory.hpp"

namespace sonde::store {

namespace {

class Null final : public Backend {
 public:
  explicit Null(Role role) : role_(role) {}
  Caps caps() const override { return {role_, true, false, false}; }

  void execute(std::span<const Op> ops, Safety, std::span<Outcome> outcomes, Arena& arena) override {
    for (std::size_t k = 0; k < ops.size(); ++k) {
      const Op& op = ops[k];
      Outcome& out = outcomes[k];
      out = {Status::ok, 0, 0, {}};
      switch (op.code) {
        case Code::object_read: {
          const MutableBytes to =
              op.into.empty() ? arena.take(op.length) : op.into.first(std::min<std::size_t>(op.into.size(), op.length));
          if (!to.empty()) std::memset(to.data(), 0, to.size());
          out.data = to;
          out.value = to.size();
          break;
        }
        case Code::object_write: out.value = op.data.size(); break;
        case Code::kv_get:
        case Code::db_describe: out.status = Status::not_found; break;
        default: break;
      }
    }
  }

  Result<void> sync(bool) override { return {}; }
  std::string describe() const override { return "stores nothing"; }

 private:
  Role role_;
};

}  // namespace

Result<std::unique_ptr<Backend>> open_null(Role role, const Settings& settings) {
  if (auto ok = no_more_settings(settings, "null", "none"); !ok) return ok.error();
  return std::unique_ptr<Backend>(std::make_unique<Null>(role));
}

}  // namespace sonde::store
