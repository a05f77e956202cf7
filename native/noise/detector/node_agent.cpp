#include "noise/detector/node_agent.hpp"

namespace sonde::noise {

Result<void> NodeAgent::prepare() {
  for (std::uint32_t v = 0; v < variants_.size(); ++v)
    if (!variants_[v].agent.command.empty()) {
      if (auto done = on(v); !done) return done;
      return off();
    }
  return {};
}

Result<void> NodeAgent::on(std::uint32_t variant) {
  if (!keeper_ || variants_[variant].agent.command.empty()) return {};
  const Variant& wanted = variants_[variant];
  if (wanted.cpus != cpus_) {
    if (auto done = keeper_->place(wanted.cpus); !done) return done;
    cpus_ = wanted.cpus;
  }
  if (started_ && variants_[*started_].agent.command == wanted.agent.command) {
    if (auto done = keeper_->resume(); !done) return done;
  } else {
    if (started_)
      if (auto done = keeper_->stop(); !done) return done;
    started_.reset();
    if (auto done = keeper_->start(wanted.agent); !done) return done;
  }
  started_ = variant;
  runs_ = true;
  return {};
}

Result<void> NodeAgent::off() {
  if (!keeper_ || !runs_) return {};
  runs_ = false;
  return keeper_->pause();
}

Result<AgentUse> NodeAgent::use() {
  AgentUse use;
  if (!keeper_ || !started_) return use;
  auto now = keeper_->usage();
  if (!now) return now.error();
  use.cpu_s = now->cpu_s - before_.cpu_s;
  use.keeper_cpu_s = now->keeper_cpu_s - before_.keeper_cpu_s;
  use.drive_s = now->drive_s - before_.drive_s;
  use.wakeups = static_cast<double>(now->wakeups - before_.wakeups);
  use.processes = now->processes;
  use.threads = now->threads;
  use.rss_bytes = static_cast<double>(now->rss_bytes);
  use.drives = static_cast<double>(now->drives_done - before_.drives_done);
  use.drives_failed = static_cast<double>(now->drives_failed - before_.drives_failed);
  before_ = std::move(*now);
  return use;
}

Result<void> NodeAgent::end() {
  if (!keeper_) return {};
  auto done = started_ ? keeper_->stop() : Result<void>{};
  keeper_->dismiss();
  return done;
}

}  // namespace sonde::noise
