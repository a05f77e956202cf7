#include "bus/module/fastdds/instances.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

namespace sonde::bus::fastdds {

namespace {
constexpr std::size_t max_gone = 4096;  ///< the most writers that came and went between two takes
}

std::size_t Instances::Hash::operator()(const Handle& handle) const {
  std::array<char, 16> bytes;
  for (std::size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<char>(handle.value[k]);
  return std::hash<std::string_view>()({bytes.data(), bytes.size()});
}

void Instances::left(const Guid& writer) {
  const std::lock_guard lock(mutex_);
  if (gone_.size() < max_gone) gone_.insert(writer);
  else overflown_ = true;
  looks_.store(true);
}

void Instances::returned(const Guid& writer) {
  const std::lock_guard lock(mutex_);
  if (gone_.erase(writer)) looks_.store(true);
}

bool Instances::ends_without(const Entry& entry, const std::set<Guid>& gone, std::int64_t matched) const {
  if (matched > 0 && (exclusive_ || entry.writers.empty())) return false;
  return std::all_of(entry.writers.begin(), entry.writers.end(), [&](const Guid& guid) { return gone.contains(guid); });
}

bool Instances::has_ends(std::int64_t matched) {
  if (!looks_.load()) {
    const std::lock_guard lock(mutex_);
    return has_ends_;
  }
  const std::lock_guard lock(mutex_);
  looks_.store(false);
  has_ends_ = overflown_ || (!gone_.empty() && std::any_of(entries_.begin(), entries_.end(), [&](const auto& of) {
                return ends_without(of.second, gone_, matched);
              }));
  return has_ends_;
}

void Instances::begin() {
  const std::lock_guard lock(mutex_);
  ++take_;
  leaving_ = gone_;
}

void Instances::wrote(const Handle& instance, const Guid& writer, Bytes payload, bool alive) {
  const std::lock_guard lock(mutex_);
  const auto [at, first] = entries_.try_emplace(instance);
  Entry& entry = at->second;
  if (first) {
    if (!checker_.verify(payload)) {
      entries_.erase(at);
      return;
    }
    entry.key = serialised_key(*type_, payload);
  }
  if (std::find(entry.writers.begin(), entry.writers.end(), writer) == entry.writers.end())
    entry.writers.push_back(writer);
  entry.last = writer;
  entry.take = take_;
  entry.alive = alive;
}

void Instances::gave_up(const Handle& instance, const Guid& writer) {
  const std::lock_guard lock(mutex_);
  if (const auto at = entries_.find(instance); at != entries_.end()) std::erase(at->second.writers, writer);
}

std::vector<Instances::End> Instances::ends(std::int64_t matched, const Known& known) {
  std::set<Guid> lost;
  {
    const std::lock_guard lock(mutex_);
    if (leaving_.empty() && !overflown_) return {};
    if (overflown_)
      for (const auto& [handle, entry] : entries_) lost.insert(entry.writers.begin(), entry.writers.end());
  }
  std::erase_if(lost, known);  // not under the lock: `known` needs a lock that is held while left() is called
  const std::lock_guard lock(mutex_);
  overflown_ = false;
  // Writers that have returned meanwhile are not in gone_ any more.
  for (const Guid& guid : leaving_)
    if (gone_.erase(guid)) lost.insert(guid);
  leaving_.clear();
  std::vector<End> out;
  for (auto at = entries_.begin(); at != entries_.end();) {
    Entry& entry = at->second;
    const auto next = std::next(at);
    // A sample was just taken whose writers had all left before, but the instance is alive: another writer
    // writes it, whose samples were replaced or dropped before they were taken.
    const bool alive = entry.take == take_ && entry.alive;
    if (ends_without(entry, lost, matched)) {
      if (alive && matched > 0) {
        entry.writers.clear();
      } else {
        out.push_back({payload_of_key(*type_, entry.key), entry.last});
        entries_.erase(at);
      }
    } else {
      std::erase_if(entry.writers, [&](const Guid& guid) { return lost.contains(guid); });
    }
    at = next;
  }
  looks_.store(true);
  return out;
}

}  // namespace sonde::bus::fastdds
