#include "store/backend.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sonde::store {

namespace {

thread_local Bounds* bounds = nullptr;

}  // namespace

Bounds::Bounds(Deadline deadline, const std::atomic<bool>* stop)
    : deadline_(deadline), stop_(stop), before_(std::exchange(bounds, this)) {}

Bounds::~Bounds() { bounds = before_; }

Status Bounds::passed() {
  if (!bounds) return Status::ok;
  if (bounds->stop_ && bounds->stop_->load(std::memory_order_relaxed)) return Status::unavailable;
  if (!bounds->deadline_.passed()) return Status::ok;
  bounds->gave_up_ = true;
  return Status::timed_out;
}

std::string take_setting(Settings& settings, std::string_view name) {
  const auto found = settings.find(name);
  if (found == settings.end()) return {};
  std::string value = std::move(found->second);
  settings.erase(found);
  return value;
}

Result<void> no_more_settings(const Settings& left, std::string_view backend, std::string_view allowed) {
  if (left.empty()) return {};
  return Error{"store.bad_setting",
               "the backend " + std::string(backend) + " has no setting '" + left.begin()->first +
                   "'; allowed: " + std::string(allowed),
               "see 'sonde store serve --help'"};
}

Outcome give(Bytes value, const Op& op, Arena& arena) {
  if (op.into.empty()) {
    if (!arena.fits(value.size())) return {Status::too_large, value.size(), 0, {}};
    return {Status::ok, value.size(), 0, arena.copy(value)};
  }
  const MutableBytes to = op.into.first(std::min(op.into.size(), value.size()));
  if (!to.empty()) std::memcpy(to.data(), value.data(), to.size());
  return {Status::ok, value.size(), 0, to};
}

bool PairPacker::add(std::string_view key, Bytes value) {
  if (keys_only_) value = {};
  if ((limit_ && n_ == limit_) || (n_ && out_.size() + 8 + key.size() + value.size() > scan_bytes_max)) {
    more_ = true;
    return false;
  }
  const std::uint32_t lengths[2] = {static_cast<std::uint32_t>(key.size()), static_cast<std::uint32_t>(value.size())};
  const Bytes head = std::as_bytes(std::span(lengths)), name = bytes_of(key);
  out_.insert(out_.end(), head.begin(), head.end());
  out_.insert(out_.end(), name.begin(), name.end());
  out_.insert(out_.end(), value.begin(), value.end());
  ++n_;
  return true;
}

Outcome PairPacker::finish(Arena& arena) {
  if (!arena.fits(out_.size())) return {Status::too_large, 0, 0, {}};
  return {Status::ok, n_, more_ ? 1 : 0, arena.copy(out_)};
}

Outcome pack_names(const std::vector<std::string>& names, std::uint64_t limit, Arena& arena) {
  Op op;
  op.code = Code::object_list;
  op.length = limit;
  PairPacker packer(op);
  for (const auto& name : names)
    if (!packer.add(name, {})) break;
  return packer.finish(arena);
}

bool unpack_pairs(Bytes packed, std::vector<std::pair<std::string_view, Bytes>>& pairs) {
  pairs.clear();
  while (!packed.empty()) {
    std::uint32_t lengths[2];
    if (packed.size() < sizeof lengths) return false;
    std::memcpy(lengths, packed.data(), sizeof lengths);
    packed = packed.subspan(sizeof lengths);
    if (packed.size() < std::uint64_t{lengths[0]} + lengths[1]) return false;
    pairs.emplace_back(text_of(packed.first(lengths[0])), packed.subspan(lengths[0], lengths[1]));
    packed = packed.subspan(std::size_t{lengths[0]} + lengths[1]);
  }
  return true;
}

}  // namespace sonde::store
