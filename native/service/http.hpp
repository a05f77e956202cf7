#pragma once
/// A service's page for a scraper: GET /metrics and /healthz over HTTP/1.1, one small answer a connection.
/// Owner-thread, with a thread of its own that serves.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/error.hpp"

namespace sonde::service {

/// The response to a complete request with its fields: the page, or the reason for its refusal. token: as in
/// HttpConfig. An exception from `metrics` gives a response, too. Any-thread, as far as `metrics` is.
std::string http_answer(const std::string& request, const std::string& token,
                        const std::function<std::string()>& metrics);

/// OpenMetrics 1.0 in Prometheus' text format 0.0.4, where counters are named with their `_total`, and units and the
/// end mark are unknown. Any-thread.
std::string prometheus_text(const std::string& open_metrics);

struct HttpConfig {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  ///< 0: any
  std::string token;       ///< asked for as "Authorization: Bearer …"; must be there on addresses that others can reach
  double request_timeout_s = 2;  ///< for a connection, from its begin to the answer's last byte
  unsigned connections = 64;     ///< at once; for one more, the oldest of the address that has the most is dropped
};

class Http {
 public:
  /// `metrics` gives the OpenMetrics text; called by the serving thread. A client that does not request that format
  /// gets Prometheus' older one, converted from it. Errors: service.bad_address, service.cannot_listen,
  /// service.not_loopback.
  static Result<std::unique_ptr<Http>> start(const HttpConfig& config, std::function<std::string()> metrics);
  ~Http();
  std::uint16_t port() const;

 private:
  struct Impl;
  explicit Http(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace sonde::service
