#include "power/powerd/bridge/requests.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>
#include <utility>

#include "bus/typed.hpp"
#include "core/json.hpp"
#include "core/nearest.hpp"
#include "core/text.hpp"
#include "power/messages.hpp"
#include "power/powerd/bridge/json.hpp"
#include "power/powerd/bridge/naming.hpp"
#include "power/powerd/bridge/remembered.hpp"

namespace sonde::power::bridge {

namespace {

constexpr double default_deadline_s = 5, most_deadline_s = 60;
constexpr std::size_t max_under_way = 256, max_reply_topic = 1024;
constexpr std::size_t max_remembered = 1024, max_remembered_bytes = 16u << 20;

std::string refusal(bus::ReplyCode code, const std::string& message) {
  std::string out = "{\"code\":\"" + std::string(bus::name_of(code)) +
                    "\",\"number\":" + std::to_string(static_cast<unsigned>(code)) + ",\"message\":";
  append_text(message, out);
  return out + ",\"server\":\"\"}";
}

std::string answer_json(const bus::Answer& answer, const bus::TypePtr& type) {
  std::string name(bus::name_of(answer.code));
  const auto number = static_cast<std::uint32_t>(answer.code);
  if (number >= 1000) name = "power";
  std::string out = "{\"code\":\"" + name + "\",\"number\":" + std::to_string(number) + ",\"message\":";
  append_text(answer.message, out);
  out += ",\"server\":";
  append_text(answer.server, out);
  if (answer.code == bus::ReplyCode::ok && type) {
    out += ",\"body\":";
    append_json(*type, answer.body, out);
  }
  return out + "}";
}

}  // namespace

/// Data for calls in progress, which can end after the bridge.
struct Requests::Shared {
  std::mutex mutex;
  std::deque<Reply> replies;
  std::function<void()> wake;
  Counts counts;
  std::size_t under_way = 0;
  Remembered done{max_remembered, max_remembered_bytes};  ///< by whole request, of services that set something

  void reply(Reply reply) {
    {
      const std::lock_guard lock(mutex);
      replies.push_back(std::move(reply));
    }
    wake();
  }
};

std::unique_ptr<Requests> Requests::open(const std::shared_ptr<bus::Bus>& bus, const std::string& prefix, bool sets,
                                         std::string why_not, std::function<void()> wake,
                                         std::vector<Error>& troubles) {
  std::unique_ptr<Requests> out(new Requests);
  out->prefix_ = prefix;
  out->sets_ = sets;
  out->why_not_ = std::move(why_not);
  out->shared_ = std::make_shared<Shared>();
  out->shared_->wake = std::move(wake);
  const auto add = [&](const char* name, const bus::ServiceTypes& types, bool does_set) {
    Service service{nullptr, types, does_set};
    if (!does_set || sets) {
      auto client = bus::Client::open(bus, name, types);
      if (client) service.client = std::move(*client);
      else troubles.push_back(client.error());
    }
    out->services_.emplace(name, std::move(service));
  };
  add(topic::node_get, bus::service_types<NodeQuery, NodeAnswer>(), false);
  add(topic::node_set, bus::service_types<NodeCommand, NodeAnswer>(), true);
  add(topic::system_get, bus::service_types<SystemQuery, SystemAnswer>(), false);
  add(topic::system_set, bus::service_types<SystemCommand, SystemAnswer>(), true);
  return out;
}

Requests::~Requests() {
  // Ends all calls; their `done` still finds its data.
  services_.clear();
}

std::vector<std::string> Requests::filters() const { return {prefix_ + "/request/+/+", prefix_ + "/request/+/+/+"}; }

std::vector<std::string> Requests::services() const {
  std::vector<std::string> out;
  for (const auto& [name, service] : services_)
    if (service.client) out.push_back(name);
  return out;
}

Requests::Counts Requests::counts() const {
  const std::lock_guard lock(shared_->mutex);
  Counts out = shared_->counts;
  out.forgotten = shared_->done.forgotten();
  out.stored_bytes = shared_->done.bytes();
  return out;
}

std::deque<Reply> Requests::replies() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->replies, {});
}

Result<void> Requests::take(const Received& message) {
  const auto count = [&](std::uint64_t Counts::* which) {
    const std::lock_guard lock(shared_->mutex);
    ++(shared_->counts.*which);
  };
  const auto unanswerable = [&](std::string what, std::string hint) -> Result<void> {
    count(&Counts::refused);
    return Error{"bridge.bad_request", std::move(what), std::move(hint)};
  };
  std::vector<std::string> levels;
  std::string_view rest = message.topic.substr(std::min(message.topic.size(), prefix_.size() + sizeof "/request/" - 1));
  for (;;) {
    const auto slash = rest.find('/');
    levels.emplace_back(rest.substr(0, slash));
    if (slash == rest.npos) break;
    rest.remove_prefix(slash + 1);
  }
  // Brokers deliver subscribed topics. A broken broker, or a topic of the bus called "request", can bring other topics.
  if (levels.size() < 2 || levels.size() > 3)
    return unanswerable("a request without a target: " + shown(message.topic), prefix_ + "/request/SERVICE/TARGET");
  Reply reply{message.response_topic, message.correlation, {}};
  if (levels.size() == 3 && message.response_topic.empty()) {
    if (levels[2].empty())
      return unanswerable("a request without an ID: " + shown(message.topic), prefix_ + "/request/SERVICE/TARGET/ID");
    reply.topic = prefix_ + "/reply/" + levels[0] + "/" + levels[1] + "/" + levels[2];
  } else if (message.response_topic.empty()) {
    return unanswerable("a request without a response topic: " + shown(message.topic),
                        "set MQTT 5's response topic, or publish under " + prefix_ + "/request/SERVICE/TARGET/ID");
  }
  // A reply must not look like another message to a bridge or to the broker.
  if (reply.topic.size() > max_reply_topic || reply.topic.starts_with('$') ||
      reply.topic.find_first_of(std::string_view("+#\0", 3)) != std::string::npos ||
      first_bad_utf8(reply.topic) != std::string::npos || reply.topic.starts_with("spBv1.0/") ||
      (reply.topic.starts_with(prefix_ + "/") && !reply.topic.starts_with(prefix_ + "/reply/")))
    return unanswerable("the response topic is " + shown(reply.topic),
                        "use a topic outside of this prefix, or one below " + prefix_ + "/reply/");
  const auto refuse = [&](bus::ReplyCode code, const Error& error) -> Result<void> {
    count(&Counts::refused);
    reply.payload = refusal(code, error.what + (error.hint.empty() ? "" : "; " + error.hint));
    shared_->reply(std::move(reply));
    return error;
  };
  const auto found = services_.find(levels[0]);
  if (found == services_.end()) {
    std::vector<std::string> names;
    for (const auto& [name, service] : services_) names.push_back(name);
    return refuse(bus::ReplyCode::not_found,
                  {"bridge.unknown_service", "there is no service " + shown(levels[0]) + nearest(levels[0], names),
                   "there are " + joined(names)});
  }
  Service& service = found->second;
  if (service.sets && !(sets_ && message.trusted))
    return refuse(
        bus::ReplyCode::denied,
        {"bridge.denied",
         found->first + " is not accepted from MQTT: " + (sets_ ? "the broker has not proved its identity" : why_not_),
         ""});
  if (!service.client)
    return refuse(bus::ReplyCode::failed,
                  {"bridge.not_served", found->first + " could not be opened on the bus", "see the bridge's log"});
  bus::CallOptions options;
  if (!levels[1].empty() && !level_text(levels[1], options.target))
    return refuse(bus::ReplyCode::bad_request, {"bridge.bad_request", "the target is " + shown(levels[1]),
                                                "write a name, with %XX for '/', '+', '#' and '%'"});
  options.deadline_s = message.expiry_s > 0 ? std::min(message.expiry_s, most_deadline_s) : default_deadline_s;
  std::vector<std::byte> body;
  if (auto fine = payload_of_json(*service.types.request,
                                  message.payload.empty() ? std::string_view("{}") : message.payload, body);
      !fine)
    return refuse(bus::ReplyCode::bad_request, fine.error());

  std::string once;
  {
    const std::lock_guard lock(shared_->mutex);
    if (service.sets) {
      // QoS 1 may deliver an order twice: it is executed once.
      once.append(message.topic)
          .append(1, '\0')
          .append(reply.topic)
          .append(1, '\0')
          .append(reply.correlation)
          .append(1, '\0')
          .append(message.payload);
      if (const std::string* before = shared_->done.find(once)) {
        ++shared_->counts.repeated;
        if (before->empty()) return {};
        reply.payload = *before;
        shared_->replies.push_back(std::move(reply));
        return {};
      }
    }
    const auto busy = [&](const std::string& what) -> Result<void> {
      ++shared_->counts.refused;
      reply.payload = refusal(bus::ReplyCode::busy, what + "; ask again");
      shared_->replies.push_back(std::move(reply));
      return {};
    };
    if (shared_->under_way >= max_under_way)
      return busy(std::to_string(max_under_way) + " requests are already in progress");
    if (!once.empty() && !shared_->done.begin(once))
      return busy("orders of " + std::to_string(max_remembered_bytes >> 20) + " MiB in total are already in progress");
    ++shared_->under_way;
    ++shared_->counts.asked;
  }
  service.client->start(body, options,
                        [shared = shared_, reply = std::move(reply), once,
                         type = service.types.reply](Result<bus::Answer> answer) mutable {
                          if (answer) {
                            reply.payload = answer_json(*answer, type);
                          } else {
                            const auto code = answer.error().code == "bus.timed_out" ? bus::ReplyCode::expired
                                              : answer.error().code == "bus.busy"    ? bus::ReplyCode::busy
                                                                                     : bus::ReplyCode::failed;
                            reply.payload = refusal(code, answer.error().what);
                          }
                          {
                            const std::lock_guard lock(shared->mutex);
                            --shared->under_way;
                            ++shared->counts.answered;
                            if (!once.empty()) shared->done.answered(once, reply.payload);
                          }
                          shared->reply(std::move(reply));
                        });
  return {};
}

}  // namespace sonde::power::bridge
