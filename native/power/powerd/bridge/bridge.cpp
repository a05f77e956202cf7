// Long because: both directions of the bridge share its queues and counters.
#include "power/powerd/bridge/bridge.hpp"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <fstream>
#include <utility>

#include "bus/cdr.hpp"
#include "bus/pattern.hpp"
#include "core/json.hpp"
#include "core/nearest.hpp"
#include "core/number.hpp"
#include "core/owned_file.hpp"
#include "core/text.hpp"
#include "power/powerd/bridge/json.hpp"
#include "power/powerd/bridge/naming.hpp"
#include "power/powerd/tell.hpp"
#include "power/powerd/wiring.hpp"

namespace sonde::power::bridge {

namespace {

constexpr std::string_view mark = "sonde-mqtt-bridge";  ///< user data of writers whose samples came from MQTT
constexpr std::uint32_t least_depth =
    1024;  ///< smallest depth of readers: while the broker is slow for a moment, no sample is lost
constexpr std::size_t batch = 256, most_writers = 65536, most_alive = 65536;
constexpr double held_back_s = 2e-3;  ///< longest delay; the end of a turn sends at once
constexpr double told_every_s = 10, matched_s = 3, most_blocking_s = 0.1, held_s = 5, rebirth_s = 1;

std::int64_t wall_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

bool loopback(const std::string& host) {
  // A name like 127.site.example belongs to another machine.
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

std::string file_name(std::string_view name) {
  std::string out;
  for (const char c : name)
    out +=
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.'
            ? c
            : '_';
  return out;
}

Result<std::string> first_line(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0)
    return Error{"bridge.no_file", "the password file " + path + ": " + std::strerror(errno),
                 "[mqtt-bridge] password_file names a file with the password in its first line"};
  if (about.st_mode & 0007)
    return Error{"bridge.open_password", "the password file " + path + " can be read by everybody", "chmod o= " + path};
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line))
    return Error{"bridge.no_file", "the password file " + path + " is empty or cannot be read",
                 "write the password into its first line"};
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

}  // namespace

Result<void> Bridge::topics(const Config& config) {
  const auto& declared = bus_->profile().topics;
  std::vector<std::string> names;
  for (const auto& [name, topic] : declared) names.push_back(name);
  for (const auto* list : {&config.bridge.to_mqtt, &config.bridge.from_mqtt})
    for (const std::string& pattern : *list) {
      const std::string_view plain = std::string_view(pattern).substr(pattern.starts_with('!'));
      bool any = false;
      for (const auto& name : names) any = any || bus::fits(plain, name);
      if (!any)
        return Error{"bridge.unknown_topic",
                     "no topic of the bus profile is called " + shown(plain) + nearest(plain, names),
                     "[mqtt-bridge] to_mqtt and from_mqtt can name these topics: " + joined(names)};
    }
  for (const auto& [name, declares] : declared) {
    Topic topic;
    topic.name = name;
    topic.to_mqtt = chosen(config.bridge.to_mqtt, name);
    topic.from_mqtt = chosen(config.bridge.from_mqtt, name);
    if (!topic.to_mqtt && !topic.from_mqtt) continue;
    topic.type = bus_->profile().types.at(declares.type);
    topic.mqtt = config_.prefix + "/" + name;
    topic.keyed = bus::has_key(*topic.type);
    topic.control = declares.reader.reliability == bus::Reliability::reliable && !bus::fits("Monitor_report_*", name);
    // In the other two namings a sample becomes metrics, which have no origin to identify a repeated one.
    topic.kept = topic.control && naming_ == Naming::sonde;
    if (topic.to_mqtt) {
      bus::Qos qos = declares.reader;
      if (qos.history == bus::History::keep_last) qos.depth = std::max(qos.depth, least_depth);
      auto reader = bus_->reader(name, topic.type, qos);
      if (!reader) return reader.error();
      topic.reader = std::move(*reader);
      if (auto fine = waiter_->attach(*topic.reader, topics_.size()); !fine) return fine;
    }
    if (topic.from_mqtt) {
      bus::Qos qos = declares.writer;
      qos.user_data = std::string(mark);
      qos.max_blocking_s = std::min(qos.max_blocking_s, most_blocking_s);
      // One packet for each sample made a third of the cost of a message from MQTT. Control messages are never delayed.
      topic.holds_back = !topic.control && bus_->caps().latency_budget;
      if (topic.holds_back && qos.latency_budget_s == 0) qos.latency_budget_s = held_back_s;
      auto writer = bus_->writer(name, topic.type, qos);
      if (!writer) return writer.error();
      topic.writer = std::move(*writer);
      by_mqtt_[topic.mqtt] = topics_.size();
    }
    topics_.push_back(std::move(topic));
  }
  if (topics_.empty() && !config.bridge.requests)
    return Error{"bridge.no_topics", "neither topics nor requests are configured",
                 "set to_mqtt, from_mqtt or requests in [mqtt-bridge]"};
  return {};
}

Result<std::unique_ptr<Bridge>> Bridge::open(const Config& config, const std::string& name) {
  std::unique_ptr<Bridge> bridge(new Bridge);
  Bridge& b = *bridge;
  b.config_ = config.bridge;
  b.cluster_ = config.cluster;
  b.name_ = name;
  b.naming_ = b.config_.naming == "examon"      ? Naming::examon
              : b.config_.naming == "sparkplug" ? Naming::sparkplug
                                                : Naming::sonde;
  const std::string& prefix = b.config_.prefix;
  if (prefix.empty() || prefix.find_first_of(std::string_view("+#\0", 3)) != std::string::npos ||
      prefix.front() == '$' || prefix.front() == '/' || prefix.back() == '/')
    return Error{"bridge.bad_prefix", "the prefix is " + shown(prefix),
                 "allowed: 1 to 255 characters without '+' and '#', no '$' or '/' at the beginning, no '/' at the end"};
  b.status_topic_ = prefix + "/bridge/";
  append_level(name, b.status_topic_);

  LinkOptions options;
  const auto colon = b.config_.broker.rfind(':');
  if (colon == std::string::npos || !number(std::string_view(b.config_.broker).substr(colon + 1), options.port) ||
      !options.port)
    return Error{"bridge.bad_broker", "the broker is " + shown(b.config_.broker),
                 "write HOST:PORT, like 127.0.0.1:1883"};
  options.host = b.config_.broker.substr(0, colon);
  if (options.host.size() > 2 && options.host.front() == '[' && options.host.back() == ']')
    options.host = options.host.substr(1, options.host.size() - 2);
  options.user = b.config_.user;
  options.ca = b.config_.ca;
  options.certificate = b.config_.certificate;
  options.key = b.config_.key;
  options.id = "sonde-" + file_name(config.cluster) + "-" + file_name(name);
  if (!b.config_.password_file.empty()) {
    auto password = first_line(b.config_.password_file);
    if (!password) return password.error();
    options.password = std::move(*password);
  }
  options.unprotected = b.config_.unprotected;
  if (options.unprotected && (!options.ca.empty() || !loopback(options.host)))
    return Error{"bridge.bad_unprotected",
                 options.ca.empty() ? "unprotected is allowed only for a broker on this machine, but the broker is " +
                                          shown(b.config_.broker)
                                    : "unprotected and ca exclude each other: with ca the broker proves its identity",
                 options.ca.empty() ? "set `ca` in [mqtt-bridge] instead: then the bridge uses TLS"
                                    : "remove unprotected from [mqtt-bridge]"};
  if (!options.password.empty() && options.ca.empty() && !options.unprotected)
    return Error{
        "bridge.plain_password",
        "without TLS the password would be sent to any program that listens at " + shown(b.config_.broker) +
            (loopback(options.host) ? ": each user of this machine can start one before the broker starts"
                                    : ", and over the network without encryption"),
        std::string("set `ca` in [mqtt-bridge]: then the bridge uses TLS, and the broker proves its identity") +
            (loopback(options.host) ? "; or set unprotected = true if no other user can listen there" : "")};
  if (options.unprotected)
    b.open_troubles_.push_back({"bridge.unprotected",
                                "any program that listens at " + shown(b.config_.broker) +
                                    " gets the password and may send orders, because unprotected = true",
                                "set `ca` in [mqtt-bridge] instead: then the broker proves its identity"});

  auto bus = open_bus(config, "mqtt-bridge-" + name);
  if (!bus) return bus.error();
  b.bus_ = std::move(*bus);
  auto waiter = b.bus_->waiter();
  if (!waiter) return waiter.error();
  b.waiter_ = std::move(*waiter);
  if (auto fine = b.topics(config); !fine) return fine.error();
  // A Sparkplug session always starts empty; in Sonde's naming the broker must store messages while we are away.
  options.clean = b.by_mqtt_.empty();
  b.wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (b.wake_fd_ < 0)
    return Error{"bridge.state", std::string("cannot create an eventfd: ") + std::strerror(errno),
                 "raise the limit of descriptors: ulimit -n"};

  const std::string base = b.config_.state + "/mqtt-" + file_name(name);
  if (const auto fine = make_folders_to(base); !fine) return fine.error();
  auto store = Store::open(base + ".store", b.config_.store_bytes);
  if (!store) return store.error();
  b.store_ = std::move(*store);
  std::string why;
  b.seen_ = Seen::open(base + ".seen", why);
  if (!why.empty())
    b.open_troubles_.push_back({"bridge.state", "the list of received messages is stored only in memory: " + why,
                                "after a kill -9 some messages may be delivered twice"});
  if (b.naming_ == Naming::sparkplug) {
    b.sparkplug_ = std::make_unique<Sparkplug>(config.cluster, name);
    // The births of a killed bridge and those of the next one must differ.
    const std::string path = base + ".bdseq";
    std::ifstream(path) >> b.bd_seq_;
    b.bd_seq_ = (b.bd_seq_ + 1) % 256;
    (void)write_whole(path, std::to_string(b.bd_seq_) + "\n",
                      0600);  // if this fails, counting continues from the stored number
  }
  if (b.config_.requests) {
    const bool credentials =
        (!b.config_.user.empty() && !b.config_.password_file.empty()) || !b.config_.certificate.empty();
    const bool secured = b.bus_->profile().security.has_value();
    const bool proves = !options.ca.empty() || options.unprotected;
    const std::string why_not = !secured       ? "the bus profile has no <security>"
                                : !credentials ? "the broker is used without credentials"
                                               : "the broker has not proved its identity: set ca in [mqtt-bridge]";
    // The link knows for each message whether the broker proved its identity: Received::trusted.
    b.requests_ =
        Requests::open(b.bus_, prefix, secured && credentials && proves, why_not, [&b] { b.wake(); }, b.open_troubles_);
  }

  Link::Handlers handlers;
  handlers.will = [&b](std::string& topic, std::string& payload, int& qos, bool& retain) {
    qos = 1;
    if (b.sparkplug_) {
      b.bd_seq_ = (b.bd_seq_ + 1) % 256;
      topic = b.sparkplug_->death_topic();
      payload = b.sparkplug_->death(b.bd_seq_, wall_ns() / 1'000'000);
    } else {
      topic = b.status_topic_;
      payload = b.status(false);
      retain = true;
    }
  };
  handlers.connected = [&b](bool) { b.connected(); };
  handlers.refused = [&b](const std::string& filter, const Error& error) { b.not_subscribed(filter, error); };
  handlers.subscribed = [&b](bool present) { b.subscribed(present); };
  handlers.lost = [&b](const Error& error) {
    b.next_attempt_ns_ = b.link_->next_attempt_ns();
    if (b.online_.exchange(false))
      event(JsonLine()
                .add("event", "disconnected")
                .add("code", error.code)
                .add("what", error.what)
                .add("next_attempt_s", b.until_attempt_s()));
    b.trouble(error, "");
  };
  handlers.message = [&b](const Received& message) { b.received(message); };
  handlers.dealt = [&b] {
    for (Topic& topic : b.topics_)
      if (std::exchange(topic.held_back, false)) topic.writer->flush();
  };
  handlers.acknowledged = [&b](int number, bool taken, const std::string& why_not) {
    if (!taken)
      b.trouble({"bridge.not_taken", "the broker refused a message: " + why_not,
                 "allow this user to write in the broker's access lists"},
                "");
    b.counters_.acknowledged += taken;
    b.counters_.not_taken += !taken;
    const auto found = b.stored_.find(number);
    if (found == b.stored_.end()) return;
    b.store_->acknowledged(found->second);
    b.sent_.erase(found->second);
    b.stored_.erase(found);
  };
  auto link = Link::make(options, std::move(handlers));
  if (!link) return link.error();
  b.link_ = std::move(*link);
  return bridge;
}

Bridge::~Bridge() {
  stop(0);
  requests_.reset();  // requests wake this thread, so they end before the descriptor
  for (Topic& topic : topics_)
    if (topic.reader && waiter_) waiter_->detach(*topic.reader);
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

void Bridge::start() {
  for (const Error& error : open_troubles_) trouble(error, "");
  bus_thread_ = std::thread([this] { run_bus(); });
  mqtt_thread_ = std::thread([this] { run_mqtt(); });
}

void Bridge::stop(double s) {
  if (!bus_thread_.joinable()) return;
  stopping_ = true;
  waiter_->wake();
  bus_thread_.join();
  drain_until_ns_ = now_ns() + static_cast<std::int64_t>(s * 1e9);
  draining_ = true;
  wake();
  link_->stop();
  mqtt_thread_.join();
}

void Bridge::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_fd_, &one, sizeof one);
}

// ---- from the bus

Bridge::WriterState& Bridge::writer(const bus::Guid& guid) {
  if (const auto found = writers_.find(guid); found != writers_.end()) return found->second;
  if (writers_.size() >= most_writers) writers_.clear();
  WriterState state;
  const bus::Guid own = bus_->guid();
  // DDSI-RTPS: the first 12 bytes are the participant's. Our writers only write samples from MQTT.
  state.bridge = std::equal(own.bytes.begin(), own.bytes.begin() + 12, guid.bytes.begin());
  if (!state.bridge)
    for (const auto& endpoint : bus_->endpoints())
      if (endpoint.guid == guid) state.bridge = bus::read_announcement(endpoint.user_data).user_data.starts_with(mark);
  return writers_.emplace(guid, state).first->second;
}

void Bridge::run_bus() {
  while (!stopping_) {
    const auto ready = waiter_->wait(Deadline{});
    for (const std::uint64_t tag : ready) {
      Topic& topic = topics_[tag];
      bool fresh = false;
      topic.reader->take(
          [&](const bus::SampleInfo& info, bus::Bytes payload) {
            const bool gone = info.state != bus::InstanceState::alive;
            if (!info.has_data && !gone) return;
            WriterState& from = writer(info.writer);
            if (from.bridge) {
              counters_.loops_bus += info.has_data;
              return;
            }
            Entry entry;
            entry.topic = static_cast<std::uint32_t>(tag);
            entry.source_ns = info.source_ns;
            entry.writer = info.writer;
            bool was_empty = false;
            if (info.has_data) {
              from.tie = info.source_ns && info.source_ns != from.last_ns ? 0 : from.tie + 1;
              from.last_ns = info.source_ns;
              entry.tie = from.tie;
              ++counters_.from_bus;
              if (!(topic.kept ? control_ : telemetry_).put(entry, payload, was_empty) && topic.kept)
                ++counters_.control_lost;
              fresh = fresh || was_empty;
            }
            if (gone && topic.keyed) {
              entry.gone = true;
              telemetry_.put(entry, payload, was_empty);
              fresh = fresh || was_empty;
            }
          },
          4096);
      if (fresh || sleeping_) wake();
    }
  }
}

// ---- to MQTT

std::string Bridge::status(bool online) const {
  return JsonLine()
      .add("state", online ? "online" : "offline")
      .add("bridge", name_)
      .add("cluster", cluster_)
      .add("naming", config_.naming)
      .text();
}

void Bridge::connected() {
  const auto subscribe = [this](const std::string& filter, int qos) {
    if (auto fine = link_->subscribe(filter, qos); !fine) not_subscribed(filter, fine.error());
  };
  not_subscribed_.clear();
  for (const auto& [mqtt, index] : by_mqtt_)
    subscribe(mqtt + "/#", topics_[index].control ? 1 : std::min(config_.qos, 1));
  if (requests_)
    for (const auto& filter : requests_->filters()) subscribe(filter, 1);
  if (sparkplug_) {
    subscribe(sparkplug_->command_filter(), 1);
    sparkplug_->birth(bd_seq_, wall_ns() / 1'000'000, sparkplug_send());
  } else {
    publish(status_topic_, status(true), 1, true, nullptr, 0);
    for (const auto& where : alive_)
      publish(config_.prefix + "/alive/" + where, "{\"alive\":true}", 1, true, nullptr, 0);
  }
  // libmosquitto resends unacknowledged messages when this returns; then those that are only in the store follow.
  published_ = 0;
  reconnects_ = link_->reconnects();
}

/// No messages arrive for this filter; everything else works. Trouble is reported rarely and for all filters together,
/// so the event `connected` has the list.
void Bridge::not_subscribed(const std::string& filter, const Error& error) {
  not_subscribed_.push_back(filter);
  trouble(error, filter);
}

/// Reported only now: messages sent to it before would be lost.
void Bridge::subscribed(bool session_present) {
  online_ = true;
  unread_ = not_subscribed_.size();
  event(JsonLine()
            .add("event", "connected")
            .add("broker", config_.broker)
            .add("session", session_present)
            .add("tls", link_->peer_is_proven())
            .add("not_subscribed", not_subscribed_));
}

Sparkplug::Send Bridge::sparkplug_send() {
  return [this](Sparkplug::Kind, std::string_view topic, std::string_view payload) {
    publish(std::string(topic), payload, 0, false, nullptr, 0);
  };
}

void Bridge::publish(const std::string& topic, std::string_view payload, int qos, bool retain,
                     const std::string* origin, std::uint64_t stored) {
  Outgoing out{topic, payload};
  out.qos = qos;
  out.retain = retain;
  out.origin = origin;
  auto number = link_->publish(out);
  if (!number) {
    trouble(number.error(), topic);
    // Without this, a message that MQTT cannot carry would be tried forever.
    if (stored && number.error().code == "bridge.refused_locally") {
      store_->acknowledged(stored);
      ++counters_.control_lost;
    }
    return;
  }
  ++counters_.to_mqtt;
  if (!stored) return;
  stored_[*number] = stored;
  sent_.insert(stored);
}

void Bridge::publish_stored(std::uint64_t number) {
  const auto found = store_->waiting().find(number);
  if (found == store_->waiting().end()) return;
  const Store::Message message = found->second;
  publish(message.topic, message.payload, 1, false, &message.origin, number);
}

void Bridge::alive(const Topic&, const std::string& where, bool yes) {
  if (yes) {
    if (alive_.contains(where) || alive_.size() >= most_alive) return;
    alive_.insert(where);
  } else if (!alive_.erase(where)) {
    return;
  }
  publish(config_.prefix + "/alive/" + where, yes ? "{\"alive\":true}" : "{\"alive\":false}", 1, true, nullptr, 0);
}

bool Bridge::forward(const Entry& entry, bus::Bytes payload) {
  const Topic& topic = topics_[entry.topic];
  if (naming_ == Naming::sparkplug) {
    if (entry.gone) {
      sparkplug_->device_death(Sparkplug::device_of(*topic.type, payload), wall_ns() / 1'000'000, sparkplug_send());
    } else {
      sparkplug_->data(topic.name, *topic.type, payload, (entry.source_ns ? entry.source_ns : wall_ns()) / 1'000'000,
                       sparkplug_send());
    }
    return true;
  }
  if (naming_ == Naming::examon && !entry.gone) {
    examon(*topic.type, payload, entry.source_ns ? entry.source_ns : wall_ns(), config_.prefix, cluster_,
           [&](std::string_view name, std::string_view value) {
             topic_text_ = name, publish(topic_text_, value, std::min(config_.qos, 1), false, nullptr, 0);
           });
    return true;
  }
  topic_text_ = topic.mqtt;
  if (topic.keyed) {
    topic_text_ += '/';
    append_key(*topic.type, payload, topic_text_);
    key_text_.assign(topic_text_, config_.prefix.size() + 1);
  }
  if (entry.gone) {
    alive(topic, key_text_, false);
    return true;
  }
  json_text_.clear();
  append_json(*topic.type, payload, json_text_);
  origin_text_ = cluster_;
  for (char& c : origin_text_)
    if (c == ' ') c = '_';
  origin_text_ += ' ';
  origin_text_ += entry.writer.text();
  origin_text_ += ' ';
  origin_text_ += std::to_string(entry.source_ns);
  origin_text_ += ' ';
  origin_text_ += std::to_string(entry.tie);
  std::uint64_t stored = 0;
  if (topic.kept) {
    if (auto fine = store_->put({topic_text_, origin_text_, json_text_}, stored); !fine) {
      trouble(fine.error(), topic_text_);
      if (!stored) {
        ++counters_.control_lost;
        return true;
      }
    }
    return true;  // it is published as soon as it is on disk
  }
  publish(topic_text_, json_text_, std::min(config_.qos, 1), false, &origin_text_, stored);
  if (topic.keyed) alive(topic, key_text_, true);
  return true;
}

bool Bridge::drain(std::vector<std::byte>& bytes, std::size_t& head, Outbox& outbox, std::size_t most) {
  const bool control = &outbox == &control_;
  for (std::size_t n = 0; n < most; ++n) {
    if (head >= bytes.size()) {
      head = 0;
      if (!outbox.swap(bytes, head)) {
        bytes.clear();
        return false;
      }
    }
    // Control messages go to disk whether or not there is a broker.
    if (!control && !link_->takes()) return true;
    Entry entry;
    std::memcpy(&entry, bytes.data() + head, sizeof entry);
    forward(entry, bus::Bytes(bytes.data() + head + sizeof entry, entry.bytes));
    head += sizeof entry + entry.bytes;
  }
  return true;
}

void Bridge::run_mqtt() {
  // Messages that wait at the broker would find no reader on the bus yet.
  const Deadline until = Deadline::in_s(matched_s);
  for (Topic& topic : topics_)
    if (topic.writer && topic.control)
      while (!draining_ && !until.passed() && !topic.writer->wait_matched(1, Deadline::in_s(0.05))) {}
  bool more = false;
  for (;;) {
    const bool idle = !more && telemetry_.empty() && control_.empty();
    const bool reads = write_held();
    sleeping_ = true;
    link_->turn(reads && (idle || !link_->takes()) ? 1000 : 0, wake_fd_, reads);
    sleeping_ = false;
    link_->begin_batch();
    if (requests_ && link_->connected())
      for (Reply& reply : requests_->replies()) {
        Outgoing out{reply.topic, reply.payload};
        out.qos = 1;
        out.correlation = &reply.correlation;
        if (auto sent = link_->publish(out); !sent) trouble(sent.error(), reply.topic);
      }
    more = drain(control_batch_, control_head_, control_, batch);
    if (auto fine = store_->sync(); !fine) trouble(fine.error(), "");
    if (link_->connected())
      for (auto at = store_->waiting().upper_bound(published_); at != store_->waiting().end() && link_->takes();) {
        const std::uint64_t number = at->first;
        ++at;
        if (!sent_.contains(number)) publish_stored(number);
        published_ = number;
      }
    // Not moved into a batch while the broker is away: in the queue, new samples replace the oldest.
    if (link_->connected()) more = drain(telemetry_batch_, telemetry_head_, telemetry_, batch) || more;
    link_->end_batch();
    waiting_ = store_->waiting().size();
    store_bytes_ = store_->bytes();
    if (!draining_) continue;
    const bool done = !more && held_.empty() && telemetry_.empty() && control_.empty() &&
                      link_->unacknowledged() == 0 && store_->waiting().empty();
    if (done || now_ns() >= drain_until_ns_ || (!link_->connected() && control_.empty() && held_.empty())) break;
  }
  give_up_held();
  if (link_->connected()) {
    if (sparkplug_)
      publish(sparkplug_->death_topic(), sparkplug_->death(bd_seq_, wall_ns() / 1'000'000), 1, false, nullptr, 0);
    else publish(status_topic_, status(false), 1, true, nullptr, 0);
  }
  link_->close(1);
}

// ---- from MQTT

void Bridge::received(const Received& message) {
  ++counters_.from_mqtt;
  if (sparkplug_ && message.topic == sparkplug_->command_filter()) {
    // An application that asks all the time gets one birth a second.
    if (sparkplug_->asks_rebirth(message.payload) &&
        now_ns() - last_rebirth_ns_ > static_cast<std::int64_t>(rebirth_s * 1e9)) {
      last_rebirth_ns_ = now_ns();
      sparkplug_->birth(bd_seq_, wall_ns() / 1'000'000, sparkplug_send());
    }
    return;
  }
  const std::string_view below = message.topic.substr(std::min(message.topic.size(), config_.prefix.size() + 1));
  if (requests_ && below.starts_with("request/")) {
    if (auto fine = requests_->take(message); !fine) trouble(fine.error(), message.topic);
    return;
  }
  std::string_view name = message.topic;
  auto found = by_mqtt_.find(name);
  while (found == by_mqtt_.end()) {
    const auto slash = name.rfind('/');
    if (slash == name.npos)
      return trouble(
          {"bridge.unknown_topic", "a message under " + shown(message.topic), "it matches no topic of from_mqtt"},
          message.topic);
    name = name.substr(0, slash);
    found = by_mqtt_.find(name);
  }
  Topic& topic = topics_[found->second];
  if (!message.origin.empty()) {
    const std::string_view from = message.origin.substr(0, message.origin.find(' '));
    std::string own = cluster_;
    for (char& c : own)
      if (c == ' ') c = '_';
    if (from == own) {
      ++counters_.loops_mqtt;
      return;
    }
  }
  if (auto fine = payload_of_json(*topic.type, message.payload, incoming_.payload); !fine)
    return trouble(fine.error(), message.topic);
  key_text_ = topic.mqtt;
  if (topic.keyed) {
    key_text_ += '/';
    append_key(*topic.type, incoming_.payload, key_text_);
  }
  if (key_text_ != message.topic)
    return trouble({"bridge.wrong_key", "the sample belongs under " + shown(key_text_, 200),
                    "a sender that may write under one key must not write for another"},
                   message.topic);
  incoming_.topic = found->second;
  incoming_.origin = message.origin;
  incoming_.under = message.topic;
  if (!message.origin.empty()) {
    const auto same = [&](const Held& held) { return held.origin == message.origin && held.under == message.topic; };
    if (seen_->known(message.origin, message.topic) || std::any_of(held_.begin(), held_.end(), same)) {
      ++counters_.duplicates;
      return;
    }
  }
  // In order: after the messages that wait.
  if (!held_.empty() || !write(incoming_, false)) {
    incoming_.until_ns = now_ns() + static_cast<std::int64_t>(held_s * 1e9);
    held_.push_back(incoming_);
  }
}

/// False: the bus had no room; try again later.
bool Bridge::write(const Held& message, bool last_try) {
  Topic& topic = topics_[message.topic];
  auto fine = topic.writer->write(message.payload);
  if (fine) {
    // Not earlier: if the bridge were killed in between, the next bridge would drop the message as a duplicate,
    // although the bus never got it.
    if (!message.origin.empty()) seen_->remember(message.origin, message.under);
    ++counters_.to_bus;
    topic.held_back = topic.holds_back;
    return true;
  }
  if (fine.error().code == "bus.timed_out" && !last_try) return false;
  ++counters_.bus_failed;
  trouble(fine.error(), topic.mqtt);
  return true;
}

/// False: some messages still wait; then the bridge stops reading, which slows the broker before memory fills up.
bool Bridge::write_held() {
  while (!held_.empty()) {
    const Held& oldest = held_.front();
    if (!write(oldest, now_ns() > oldest.until_ns)) return false;
    held_.pop_front();
  }
  return true;
}

/// Called at the end. The broker considers these messages delivered.
void Bridge::give_up_held() {
  if (held_.empty()) return;
  counters_.bus_failed += held_.size();
  trouble({"bus.timed_out",
           std::to_string(held_.size()) + " messages from MQTT could not be written to the bus before the bridge ended",
           "check that the readers of these topics take their samples"},
          topics_[held_.front().topic].mqtt);
  held_.clear();
}

// ---- reports

void Bridge::trouble(const Error& error, std::string_view about) {
  std::uint64_t count = 0;
  {
    const std::lock_guard lock(troubles_mutex_);
    Told& told = troubles_[error.code];
    count = ++told.count;
    const std::int64_t now = now_ns();
    if (count > 1 && now - told.last_ns < static_cast<std::int64_t>(told_every_s * 1e9)) return;
    told.last_ns = now;
  }
  JsonLine line;
  line.add("event", "trouble").add("code", error.code);
  std::string what, topic;
  append_text(error.what, what);
  line.raw("what", what);
  if (!error.hint.empty()) line.add("hint", error.hint);
  if (!about.empty()) {
    append_text(about.substr(0, 200), topic);
    line.raw("topic", topic);
  }
  event(line.add("count", count));
}

std::string Bridge::ready() const {
  std::vector<std::string> to, from;
  for (const auto& topic : topics_) {
    if (topic.to_mqtt) to.push_back(topic.name);
    if (topic.from_mqtt) from.push_back(topic.name);
  }
  JsonLine line;
  line.add("event", "ready")
      .add("role", "mqtt-bridge")
      .add("name", name_)
      .add("cluster", cluster_)
      .add("broker", config_.broker)
      .add("naming", config_.naming);
  line.add("to_mqtt", to)
      .add("from_mqtt", from)
      .add("requests", requests_ ? requests_->services() : std::vector<std::string>{});
  return line.add("stored", store_->waiting().size()).add("pid", static_cast<std::int64_t>(::getpid())).text();
}

/// Time until the next attempt to connect, s; 0 while connected, and during an attempt.
double Bridge::until_attempt_s() const {
  if (online_) return 0;
  return static_cast<double>(std::max<std::int64_t>(0, next_attempt_ns_ - now_ns())) * 1e-9;
}

std::string Bridge::counts(const char* name) const {
  JsonLine line;
  line.add("event", name)
      .add("connected", online_.load())
      .add("not_subscribed", unread_.load())
      .add("reconnects", reconnects_.load())
      .add("next_attempt_s", until_attempt_s());
  line.add("from_bus", counters_.from_bus.load())
      .add("to_mqtt", counters_.to_mqtt.load())
      .add("acknowledged", counters_.acknowledged.load());
  line.add("from_mqtt", counters_.from_mqtt.load()).add("to_bus", counters_.to_bus.load());
  line.add("telemetry_dropped", telemetry_.dropped())
      .add("control_lost", counters_.control_lost.load())
      .add("control_waiting", waiting_.load())
      .add("stored_bytes", store_bytes_.load());
  std::int64_t lost = 0;
  for (const auto& topic : topics_)
    if (topic.reader) lost += std::max<std::int64_t>(0, topic.reader->status().lost);
  line.add("bus_lost", lost);
  line.add("loops", counters_.loops_bus.load() + counters_.loops_mqtt.load())
      .add("duplicates", counters_.duplicates.load())
      .add("not_taken", counters_.not_taken.load())
      .add("bus_failed", counters_.bus_failed.load());
  if (requests_) {
    const auto c = requests_->counts();
    line.add("requests", c.asked)
        .add("replies", c.answered)
        .add("requests_refused", c.refused)
        .add("requests_repeated", c.repeated)
        .add("requests_forgotten", c.forgotten)
        .add("requests_stored_bytes", c.stored_bytes);
  }
  JsonLine refused;
  {
    const std::lock_guard lock(troubles_mutex_);
    for (const auto& [code, told] : troubles_) refused.add(code, told.count);
  }
  return line.raw("troubles", refused.text()).text();
}

std::string Bridge::metrics() const {
  std::string out;
  const auto counter = [&](const char* metric, const char* help, std::uint64_t value) {
    const std::string full = std::string("sonde_power_bridge_") + metric;
    out += "# TYPE " + full + " counter\n# HELP " + full + " " + help + "\n" + full + "_total " +
           std::to_string(value) + "\n";
  };
  const auto gauge = [&](const char* metric, const char* help, std::uint64_t value) {
    const std::string full = std::string("sonde_power_bridge_") + metric;
    out += "# TYPE " + full + " gauge\n# HELP " + full + " " + help + "\n" + full + " " + std::to_string(value) + "\n";
  };
  gauge("connected", "1 if there is a connection to the broker, else 0.", online_);
  gauge("not_subscribed", "Topics that this bridge may not read at the broker, since the last connection.", unread_);
  gauge("next_attempt_seconds", "Time until the next attempt to connect; 0 while connected or connecting.",
        static_cast<std::uint64_t>(std::ceil(until_attempt_s())));
  counter("reconnects", "Connections to the broker after the first.", reconnects_);
  counter("from_bus", "Samples taken from the bus.", counters_.from_bus);
  counter("to_mqtt", "Messages sent to the broker.", counters_.to_mqtt);
  counter("from_mqtt", "Messages received from the broker.", counters_.from_mqtt);
  counter("to_bus", "Samples written to the bus.", counters_.to_bus);
  counter("telemetry_dropped", "Samples that were dropped because the broker was slow or not connected.",
          telemetry_.dropped());
  counter("control_lost", "Control samples that were lost because the store was full.", counters_.control_lost);
  gauge("control_waiting", "Control messages on disk that the broker has not acknowledged.", waiting_);
  counter("loops", "Messages that came from the other side and were not sent back.",
          counters_.loops_bus + counters_.loops_mqtt);
  counter("bus_failed", "Messages from MQTT that the bus refused.", counters_.bus_failed);
  counter("duplicates", "Messages that had been received before.", counters_.duplicates);
  if (requests_) {
    const auto c = requests_->counts();
    counter("requests_forgotten",
            "Orders whose stored reply was removed; the same order, sent again, is executed again.", c.forgotten);
    gauge("requests_stored_bytes", "Bytes of stored orders and their replies.", c.stored_bytes);
  }
  const std::lock_guard lock(troubles_mutex_);
  if (troubles_.empty()) return out + "# EOF\n";
  out += "# TYPE sonde_power_bridge_troubles counter\n# HELP sonde_power_bridge_troubles Problems, by code.\n";
  for (const auto& [code, told] : troubles_)
    out += "sonde_power_bridge_troubles_total{code=\"" + code + "\"} " + std::to_string(told.count) + "\n";
  return out + "# EOF\n";
}

}  // namespace sonde::power::bridge
