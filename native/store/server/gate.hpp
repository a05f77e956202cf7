#pragma once
/// Admission of connections. An unauthenticated connection has a place in a small pool, where the oldest makes room for
/// the newest; only authenticated ones count against the server's limit. So strangers cannot block clients. Any-thread.

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
  /// The maximum memory that an unauthenticated connection may use: that of TLS.
  static constexpr std::size_t place_bytes = 128u << 10;

  /// connections: maximum of authenticated ones. memory: of all clients; the pool may use a quarter of it.
  Gate(std::size_t connections, std::size_t memory);

  /// A place in the pool for a connected socket. When the pool is full, the address with the most places loses its
  /// oldest: `last_words` are sent to that socket, and it is shut down, so that its session ends by itself. `room`:
  /// whether this happened.
  std::uint64_t enter(int fd, std::string address, std::string_view last_words, bool& room);
  /// The time in ms after which accepting a connection would only end one whose time to authenticate is over; 0: none,
  /// or no connection has to end. So a burst of connections waits in the listener's queue, and does not end itself.
  int crowded_ms() const;

  enum class Answer { welcome, full, gone };
  /// Admits an authenticated connection. full: the maximum is reached. gone: its place was given to another one.
  Answer prove(std::uint64_t number);

  /// Before its socket is closed.
  void leave(std::uint64_t number);

  std::size_t connections() const { return connections_; }
  /// The number of places for connections that wait for their authentication.
  std::size_t unproven_max() const { return unproven_max_; }
  std::size_t unproven() const;

 private:
  struct Place {
    int fd;
    std::string address;
    std::int64_t since_ns;
  };
  using Places = std::map<std::uint64_t, Place>;  ///< oldest first
  /// Called under the mutex, when the pool is full: the place that would make room.
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
