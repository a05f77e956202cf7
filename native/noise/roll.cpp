#include "noise/roll.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <set>
#include <utility>

namespace sonde::noise {

// The supervisor may be killed while it writes. Half an entry matches no process; half a list is shorter or older.
struct Roll::Page {
  struct Name {
    pid_t pid;
    std::uint64_t started_ticks;
  };
  std::atomic<std::uint32_t> count;
  Name names[most];
};

void Roll::Unmap::operator()(Page* page) const { ::munmap(page, sizeof *page); }

Roll::Roll() {
  void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) page_.reset(::new (memory) Page);
}

void Roll::write(const std::vector<Process>& agent) {
  if (!page_) return;
  const std::size_t count = std::min(agent.size(), most);
  for (std::size_t k = 0; k < count; ++k) page_->names[k] = {agent[k].pid, agent[k].started_ticks};
  page_->count.store(static_cast<std::uint32_t>(count), std::memory_order_release);
}

std::vector<Process> Roll::there() const {
  std::vector<Process> out;
  if (!page_) return out;
  std::set<pid_t> seen;
  auto add = [&](const Process& process) {
    if (process.state != 'Z' && process.state != 'X' && seen.insert(process.pid).second) out.push_back(process);
  };
  const std::size_t count = std::min<std::size_t>(page_->count.load(std::memory_order_acquire), most);
  for (std::size_t k = 0; k < count; ++k) {
    const auto [pid, started_ticks] = page_->names[k];
    const Process process = read_process(pid);
    if (process.pid == 0 || process.started_ticks != started_ticks) continue;
    add(process);
    for (const auto& below : descendants(pid)) add(below);
  }
  return out;
}

}  // namespace sonde::noise
