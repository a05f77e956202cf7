#include "store/server/lane.hpp"

#include <chrono>
#include <cstdint>
#include <utility>

#include "core/clock.hpp"
#include "store/trace.hpp"

namespace sonde::store {

Lane::Lane(Role role, std::unique_ptr<Backend> backend, Metrics& metrics)
    : role_(role), backend_(std::move(backend)), caps_(backend_->caps()), metrics_(metrics), thread_([this] {
        work();
      }) {}

Lane::~Lane() {
  finish();
  (void)!backend_->settle();
  if (caps_.durable) (void)!backend_->sync(true);
}

bool Lane::try_enter() {
  const std::lock_guard lock(mutex_);
  if (caps_.concurrent) {
    ++inside_;
    return true;
  }
  if (working_ || !queue_.empty() || inside_) return false;
  inside_ = 1;
  return true;
}

void Lane::leave() {
  const std::lock_guard lock(mutex_);
  if (--inside_ == 0) left_.notify_all();
}

void Lane::add(Task task) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void Lane::finish() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::size_t Lane::waiting() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

std::string Lane::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

bool Lane::sync(bool all) {
  try {
    return try_sync(all);
  } catch (...) {
    // Nobody knows what reached the storage: as after a sync that failed.
    const std::lock_guard lock(mutex_);
    broken_ = "out of memory";  // short enough to need none
    return false;
  }
}

bool Lane::try_sync(bool all) {
  if (!broken().empty()) return false;
  const std::int64_t begin = now_ns();
  Result<void> ok;
  trace::call(sonde_store_backend_sync, trace::unknown, trace::unknown, [&] { ok = backend_->sync(all); });
  metrics_.synced[static_cast<std::size_t>(role_)].add(now_ns() - begin);
  if (ok) return true;
  metrics_.failed(ok.error().what);
  const std::lock_guard lock(mutex_);
  broken_ = ok.error().what;
  return false;
}

void Lane::carry_out(std::deque<Task>& tasks, bool& durable, bool& all) {
  for (auto& task : tasks) {
    try {
      task.run();
      durable |= task.durable;
      all |= task.all;
      if (!task.durable && task.done && !durable) {
        task.done(true);
        task.done = nullptr;
      }
    } catch (...) {
      task.done = nullptr;
      if (task.lost) task.lost();
    }
  }
}

void Lane::give_out(std::deque<Task>& tasks, bool synced) {
  for (auto& task : tasks) {
    try {
      if (task.done) task.done(!task.durable || synced);
    } catch (...) {
      if (task.lost) task.lost();
    }
  }
}

void Lane::work() {
  std::unique_lock lock(mutex_);
  double settled_s = now_s();
  for (;;) {
    wake_.wait_for(lock, std::chrono::milliseconds(500), [&] { return stop_ || !queue_.empty(); });
    if (!queue_.empty()) {
      working_ = true;
      // A backend that is not concurrent: wait for the thread inside; no other thread enters while working_ is set.
      if (!caps_.concurrent) left_.wait(lock, [&] { return inside_ == 0; });
      tasks_.swap(queue_);  // takes no memory
      lock.unlock();
      bool durable = false, all = false;
      carry_out(tasks_, durable, all);
      give_out(tasks_, !durable || sync(all));
      tasks_.clear();
      lock.lock();
      working_ = !queue_.empty();
      continue;
    }
    if (stop_) return;
    if (now_s() - settled_s > 0.5) {
      settled_s = now_s();
      working_ = true;
      if (!caps_.concurrent) left_.wait(lock, [&] { return inside_ == 0; });
      lock.unlock();
      try {
        if (auto ok = backend_->settle(); !ok) metrics_.failed(ok.error().what);
      } catch (...) {
        settled_s = now_s();  // it is tried again in a moment
      }
      lock.lock();
      working_ = !queue_.empty();
    }
  }
}

}  // namespace sonde::store
