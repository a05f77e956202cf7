#pragma once
/// One thread and the connections that it serves.

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <deque>
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
  /// A connection with a place at the server's gate. Where this throws, neither is taken.
  void add(int fd, std::uint64_t place);
  /// Runs in the reactor's thread, soon. If it throws there, the session is dropped.
  void post(std::shared_ptr<Session> session, std::function<void()> task);
  /// Sessions that are lost() are dropped, soon. Takes no memory.
  void drop_lost() noexcept;
  /// Says goodbye to everyone once nothing of theirs is under way, or when the deadline passed; then ends.
  void stop(Deadline deadline);
  std::size_t sessions() const { return count_.load(std::memory_order_relaxed); }

  // The reactor's own thread.
  Server& server() { return server_; }
  void watch(Session& session);
  void drop(Session& session);
  bool stopping() const { return stopping_; }
  /// Has the session's make_link() called by a thread that the reactor waits for before it goes; where the
  /// limit of such threads is reached, by the first that is free. False: not even one can be started.
  bool spawn(std::shared_ptr<Session> session);

 private:
  struct Posted {
    std::shared_ptr<Session> session;
    std::function<void()> run;
  };
  void run();
  void turn();
  void take(int fd, std::uint64_t place);
  /// An exception in a call of a session ends that session, and no other.
  template <typename F> auto guarded(Session& session, F&& call) -> decltype(call());
  bool ready(Session& session);
  void wake() noexcept;
  void make_links();
  /// Refuses sessions that have waited too long for a thread, and as the server ends all that wait.
  void refuse_waiting();
  void look_after();
  bool ended();
  /// Looks for a while without sleeping. Number of events; -1: a fabric's link brought something.
  int look(std::vector<epoll_event>& events);
  void step_aside(long switches);

  Server& server_;
  int epoll_ = -1, wake_ = -1;
  std::mutex mutex_;
  std::vector<Posted> posted_;
  bool woken_ = false;
  std::atomic<bool> lost_ = false;
  std::unordered_map<Session*, std::shared_ptr<Session>> sessions_;
  std::vector<std::shared_ptr<Session>> dropped_;  ///< destroyed when no call of theirs is on the stack
  std::vector<Session*> polled_;                   ///< those whose link has to be asked before a sleep
  std::vector<Session*> asked_;                    ///< of them, while they are asked: that may change the others
  std::atomic<std::size_t> count_ = 0;
  Spin spin_;
  unsigned looks_ = 0, turns_ = 0;
  std::int64_t looked_ns_ = 0;
  bool worked_ = false;
  std::vector<epoll_event> events_;
  std::int64_t stay_ns_ = 0, stay_until_ns_ = 0;  ///< after it changed its core
  bool stopping_ = false, told_to_stop_ = false;
  Deadline stop_by_;
  struct Helper {
    std::thread thread;
    std::shared_ptr<std::atomic<bool>> ended;
  };
  struct Waiting {
    std::shared_ptr<Session> session;
    std::int64_t since_ns;
  };
  const unsigned helpers_max_;
  std::vector<Helper> helpers_;
  std::mutex helpers_mutex_;
  std::deque<Waiting> waiting_;  ///< for a helper
  unsigned helping_ = 0;         ///< helpers that look into waiting_ before they end
  std::thread thread_;
};

}  // namespace sonde::store
