#pragma once
/// Requests that come by MQTT, asked on the bus, and their replies. Nothing waits here: replies come from the clients'
/// threads and lie in a queue until the bridge's own takes them.

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
    std::uint64_t forgotten = 0;     ///< orders whose answer made place: if one comes again, it is carried out again
    std::uint64_t stored_bytes = 0;  ///< of orders and answers that are remembered
  };
  /// `sets`: whether services that set something are served as well, to messages of a trusted link; where not,
  /// `why_not`: the reason that the asker gets. `wake`: a reply is ready.
  static std::unique_ptr<Requests> open(const std::shared_ptr<bus::Bus>& bus, const std::string& prefix, bool sets,
                                        std::string why_not, std::function<void()> wake, std::vector<Error>& troubles);
  /// Calls that are under way are given up.
  ~Requests();

  std::vector<std::string> filters() const;
  /// A message under PREFIX/request/. What is wrong with it is told in the reply, and returned: bridge.bad_request
  /// (nobody can be answered), and the codes of payload_of_json().
  Result<void> take(const Received& message);
  /// Replies that are there now.
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
