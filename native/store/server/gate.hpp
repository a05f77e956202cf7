#pragma once
/// Admission of connections. A connection that has not proved yet who it is has a place in a small pool, where the
/// oldest makes room for the newest; only those that have proved it count against the server's limit. So strangers keep
/// nobody out. Any-thread.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace sonde::store {

class Gate {
 public:
  /// What a connection may have the server hold before it has proved itself, at most: that of TLS.
  static constexpr std::size_t place_bytes = 128u << 10;

  /// connections: that may have proved who they are. memory: of all clients; the pool may take a quarter of it.
  Gate(std::size_t connections, std::size_t memory);

  /// A place in the pool for a connected socket. Where the pool is full, the address that has most places gives up its
  /// oldest: that one's socket is sent `last_words` and shut down, so that its session ends by itself. `room`: whether
  /// one was.
  std::uint64_t enter(int fd, std::string address, std::string_view last_words, bool& room);
  /// ms until a connection that is accepted now would cost only one that has had its time to prove itself; 0: none, or
  /// nobody has to go. So a crowd that comes at once waits in the listener's queue, and does not push itself out.
  int crowded_ms() const;

  enum class Answer { welcome, full, gone };
  /// It has proved who it is. full: there are as many as there may be. gone: its place went to another.
  Answer prove(std::uint64_t number);

  /// Before its socket is closed.
  void leave(std::uint64_t number);

  std::size_t connections() const { return connections_; }
  /// Connections that may wait to be asked who they are.
  std::size_t unproven_max() const { return unproven_max_; }
  std::size_t unproven() const;

 private:
  struct Place {
    int fd;
    std::string address;
    std::int64_t since_ns;
  };
  using Places = std::map<std::uint64_t, Place>;  ///< oldest first
  /// Under the mutex, where the pool is full: the one that would make room.
  Places::const_iterator next_to_go() const;
  /// Under the mutex.
  void erase(Places::const_iterator place);

  const std::size_t connections_, unproven_max_;
  mutable std::mutex mutex_;
  std::uint64_t last_ = 0;
  Places places_;
  std::unordered_map<std::string, std::size_t> by_address_;
  std::unordered_set<std::uint64_t> proven_;
};

}  // namespace sonde::store
