#include "noise/detector/node_agent.hpp"

#include <algorithm>
#include <utility>

namespace sonde::noise {

std::vector<std::optional<std::size_t>> keepers_of(const std::vector<Variant>& variants) {
  std::vector<std::optional<std::size_t>> out;
  std::vector<std::string> commands;
  for (const auto& variant : variants) {
    if (variant.agent.command.empty()) {
      out.emplace_back();
      continue;
    }
    const auto known = std::find(commands.begin(), commands.end(), variant.agent.command);
    out.emplace_back(static_cast<std::size_t>(known - commands.begin()));
    if (known == commands.end()) commands.push_back(variant.agent.command);
  }
  return out;
}

std::size_t keepers_needed(const std::vector<Variant>& variants) {
  std::size_t count = 1;
  for (const auto& keeper : keepers_of(variants))
    if (keeper) count = std::max(count, *keeper + 1);
  return count;
}

NodeAgent::NodeAgent(std::vector<Keeper> keepers, const std::vector<Variant>& variants)
    : variants_(variants), keeper_of_(keepers_of(variants)) {
  for (auto& keeper : keepers) kept_.push_back({std::move(keeper), false, {}, {}});
}

Result<void> NodeAgent::prepare() {
  for (std::uint32_t v = 0; v < variants_.size() && leads(); ++v) {
    const auto& index = keeper_of_[v];
    if (!index || kept_[*index].started) continue;
    if (auto done = on(v); !done) return done;
    if (auto done = off(); !done) return done;
    // The cost of the start belongs to no block: the first block may be without this agent.
    if (auto used = use(); !used) return used.error();
  }
  return {};
}

Result<void> NodeAgent::on(std::uint32_t variant) {
  const auto& index = keeper_of_[variant];
  if (!leads() || !index) return {};
  const Variant& wanted = variants_[variant];
  Kept& kept = kept_[*index];
  if (wanted.cpus != kept.cpus) {
    if (auto done = kept.keeper.place(wanted.cpus); !done) return done;
    kept.cpus = wanted.cpus;
  }
  if (auto done = kept.started ? kept.keeper.resume() : kept.keeper.start(wanted.agent); !done) return done;
  kept.started = true;
  last_ = index;
  runs_ = true;
  return {};
}

Result<void> NodeAgent::off() {
  if (!runs_ || !last_) return {};
  runs_ = false;
  return kept_[*last_].keeper.pause();
}

Result<AgentUse> NodeAgent::use() {
  AgentUse use;
  if (!last_) return use;
  Kept& kept = kept_[*last_];
  auto now = kept.keeper.usage();
  if (!now) return now.error();
  const Usage& before = kept.before;
  use.cpu_s = now->cpu_s - before.cpu_s;
  use.keeper_cpu_s = now->keeper_cpu_s - before.keeper_cpu_s;
  use.drive_s = now->drive_s - before.drive_s;
  use.wakeups = static_cast<double>(now->wakeups - before.wakeups);
  use.processes = now->processes;
  use.threads = now->threads;
  use.rss_bytes = static_cast<double>(now->rss_bytes);
  use.drives = static_cast<double>(now->drives_done - before.drives_done);
  use.drives_failed = static_cast<double>(now->drives_failed - before.drives_failed);
  kept.before = std::move(*now);
  return use;
}

Result<void> NodeAgent::end() {
  Result<void> out;
  for (auto& kept : kept_) {
    if (kept.started)
      if (auto done = kept.keeper.stop(); !done && out) out = done;
    kept.keeper.dismiss();
  }
  return out;
}

}  // namespace sonde::noise
