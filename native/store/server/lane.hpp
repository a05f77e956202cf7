#pragma once
/// The way to one backend. What the backend can do at once is done by the thread that read it from the network; what
/// has to reach stable storage, or would have to wait, queues here, and everything that queued meanwhile shares one
/// sync(): group commit. Any-thread.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "store/backend.hpp"
#include "store/server/metrics.hpp"

namespace sonde::store {

class Lane {
 public:
  /// `run` executes and keeps its answer; `done(synced)` gives it out, after the sync when `durable`. Where one of them
  /// throws, for lack of memory as a rule, `lost` is called instead of what is left; it throws nothing.
  struct Task {
    std::function<void()> run;
    std::function<void(bool synced)> done;
    std::function<void()> lost;
    bool durable = false;
    bool all = false;  ///< durable: with it everything executed before, under whatever level
  };

  Lane(Role role, std::unique_ptr<Backend> backend, Metrics& metrics);
  /// As finish(), then settles and syncs what is there.
  ~Lane();

  Backend& backend() { return *backend_; }
  const Caps& caps() const { return caps_; }

  /// Enters the backend from the calling thread, without waiting: false when other work waits or runs there, so that
  /// the order is preserved.
  bool try_enter();
  void leave();
  void add(Task task);
  /// Works off the queue. Nobody may add to it any more.
  void finish();
  std::size_t waiting() const;
  /// A sync failed, and nothing that asks for storage can be promised until a restart: the reason.
  std::string broken() const;

 private:
  void work();
  bool sync(bool all);
  bool try_sync(bool all);
  static void carry_out(std::deque<Task>& tasks, bool& durable, bool& all);
  static void give_out(std::deque<Task>& tasks, bool synced);

  Role role_;
  std::unique_ptr<Backend> backend_;
  Caps caps_;
  Metrics& metrics_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, left_;
  std::deque<Task> queue_, tasks_;  ///< tasks that wait; tasks that the thread carries out
  unsigned inside_ = 0;             ///< threads between try_enter and leave
  bool working_ = false, stop_ = false;
  std::string broken_;
  std::thread thread_;
};

}  // namespace sonde::store
