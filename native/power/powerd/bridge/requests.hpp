#pragma once
/// Requests that come by MQTT, forwarded to the bus, and their replies. Nothing waits here: replies come from the
/// clients' threads and stay in a queue until the bridge's own thread takes them.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "bus/request.hpp"
#include "power/powerd/bridge/link.hpp"

namespace sonde::power::bridge {

struct Reply {
  std::string topic, correlation, payload;
};

class Requests {
 public:
  struct Counts {
    std::uint64_t asked = 0, answered = 0, refused = 0, repeated = 0;
    std::uint64_t forgotten =
        0;  ///< orders whose stored answers were removed for room: a repeated one is executed again
    std::uint64_t stored_bytes = 0;  ///< of orders and answers that are remembered
  };
  /// `sets`: whether services that set something are served as well, for messages of a trusted link; if not, `why_not`
  /// is the reason in the reply. `wake`: called when a reply is ready.
  static std::unique_ptr<Requests> open(const std::shared_ptr<bus::Bus>& bus, const std::string& prefix, bool sets,
                                        std::string why_not, std::function<void()> wake, std::vector<Error>& troubles);
  /// Cancels calls that are under way.
  ~Requests();

  std::vector<std::string> filters() const;
  /// A message under PREFIX/request/. An error is sent in the reply, and returned: bridge.bad_request (no reply is
  /// possible), and the codes of payload_of_json().
  Result<void> take(const Received& message);
  /// Replies that are ready now.
  std::deque<Reply> replies();
  Counts counts() const;
  std::vector<std::string> services() const;

 private:
  struct Shared;
  struct Service {
    std::unique_ptr<bus::Client> client;
    bus::ServiceTypes types;
    bool sets = false;
  };
  Requests() = default;

  std::string prefix_, why_not_;
  bool sets_ = false;
  std::map<std::string, Service, std::less<>> services_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace sonde::power::bridge
