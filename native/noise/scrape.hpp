#pragma once
/// One HTTP GET as Prometheus sends it, over the loopback, without ever blocking: the owner polls `fd` for `events`
/// and calls `advance`. Connections are not kept between scrapes, so each costs the agent one accept more than a
/// real Prometheus does. Owner-thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace sonde::noise {

/// "http://127.0.0.1:9100/metrics" taken apart. The host is an address of the loopback, or localhost: a name would
/// have to be looked up, and the measured node is the only one that the work belongs to.
struct Target {
  std::string host;  ///< as sent in the Host line
  bool six = false;  ///< [::1]
  int port = 80;
  std::string path = "/";
};

/// Error: noise.agent_bad_option.
Result<Target> parse_target(std::string_view url);

/// A socket that connects to the loopback, not blocking; -1 when it could not even begin. `done`: connected at once.
int connect_loopback(int port, bool six, bool& done);

class Scrape {
 public:
  Scrape() = default;
  Scrape(const Scrape&) = delete;
  Scrape& operator=(const Scrape&) = delete;
  ~Scrape() { close(); }

  void begin(const Target& target);
  /// What can be done now. True when it is over: see `failure`.
  bool advance();
  bool under_way() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  short events() const;
  std::uint64_t bytes() const { return bytes_; }
  const std::string& failure() const { return failure_; }  ///< "" when it went well
  void close();

 private:
  bool fail(std::string why);

  int fd_ = -1;
  bool connected_ = false;
  std::string request_, head_, failure_;
  std::size_t sent_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace sonde::noise
