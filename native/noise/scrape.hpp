#pragma once
/// One HTTP GET as Prometheus sends it, over the loopback. It never blocks: the owner polls `fd` for `events` and calls
/// `advance`. Connections are closed after each scrape, so a scrape costs the agent one accept more than with a real
/// Prometheus. Owner-thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace sonde::noise {

/// The parts of "http://127.0.0.1:9100/metrics". The host is an address of the loopback, or localhost: any other name
/// would need a name service, and the work must be on the measured node.
struct Target {
  std::string host;  ///< as in the Host line
  bool six = false;  ///< [::1]
  int port = 80;
  std::string path = "/";
};

/// Error: noise.agent_bad_option.
Result<Target> parse_target(std::string_view url);

/// A non-blocking socket that connects to the loopback; -1 when it could not begin. `done`: connected at once.
int connect_loopback(int port, bool six, bool& done);

class Scrape {
 public:
  Scrape() = default;
  Scrape(const Scrape&) = delete;
  Scrape& operator=(const Scrape&) = delete;
  ~Scrape() { close(); }

  void begin(const Target& target);
  /// Does the work that is possible now. True when the scrape is over: see `failure`.
  bool advance();
  bool under_way() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  short events() const;
  std::uint64_t bytes() const { return bytes_; }
  const std::string& failure() const { return failure_; }  ///< "" after a success
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
