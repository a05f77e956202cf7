#pragma once
/// One thread and the connections that it serves.

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/spin.hpp"
#include "store/transport/tcp.hpp"

namespace sonde::store {

class Server;
class Session;

class Reactor {
 public:
  explicit Reactor(Server& server);
  ~Reactor();

  // Any-thread.
  void add(int fd);
  /// Runs in the reactor's thread, soon.
  void post(std::function<void()> task);
  /// Says goodbye to everyone once nothing of theirs is under way, or when the deadline passed; then ends.
  void stop(Deadline deadline);
  std::size_t sessions() const { return count_.load(std::memory_order_relaxed); }

  // The reactor's own thread.
  Server& server() { return server_; }
  void watch(Session& session);
  void drop(Session& session);
  bool stopping() const { return stopping_; }
  /// Runs `work` in a thread that the reactor waits for before it goes.
  void spawn(std::function<void()> work);

 private:
  void run();
  /// Looks for a while without sleeping. Number of events; -1: a fabric's link brought something.
  int look(std::vector<epoll_event>& events);
  void step_aside(long switches);

  Server& server_;
  int epoll_ = -1, wake_ = -1;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  bool woken_ = false;
  std::unordered_map<Session*, std::shared_ptr<Session>> sessions_;
  std::vector<std::shared_ptr<Session>> dropped_;  ///< destroyed when no call of theirs is on the stack
  std::vector<Session*> polled_;                   ///< those whose link has to be asked before a sleep
  std::vector<Session*> asked_;                    ///< of them, while they are asked: that may change the others
  std::atomic<std::size_t> count_ = 0;
  Spin spin_;
  unsigned looks_ = 0;
  std::int64_t stay_ns_ = 0, stay_until_ns_ = 0;  ///< after it changed its core
  bool stopping_ = false;
  Deadline stop_by_;
  struct Helper {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> ended;
  };
  std::vector<Helper> helpers_;
  std::thread thread_;
};

}  // namespace sonde::store
