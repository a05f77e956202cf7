#include "power/powerd/bridge/link.hpp"

#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "core/clock.hpp"
#include "core/deadline.hpp"

namespace sonde::power::bridge {

namespace {

constexpr double connect_s = 5, handshake_s = 10;
constexpr int keepalive_s = 10;
constexpr std::uint32_t session_s = 7 * 86400;  ///< the broker stores our messages for this time while we are away
constexpr int packets_a_turn = 512;
constexpr std::uint64_t numbers_until_reuse =
    60000;  ///< libmosquitto's numbers go up to 65535, and it does not check whether one is still in use

Error mqtt_error(const char* code, int rc) {
  return {code, rc == MOSQ_ERR_ERRNO ? std::strerror(errno) : mosquitto_strerror(rc), "see the broker's log"};
}

struct Properties {
  mosquitto_property* list = nullptr;
  ~Properties() { mosquitto_property_free_all(&list); }
};

}  // namespace

struct Link::Calls {
  static void connected(mosquitto*, void* self, int rc, int flags, const mosquitto_property*) {
    auto& link = *static_cast<Link*>(self);
    ++link.progress_;
    if (rc != 0) {
      const char* hint = rc == MQTT_RC_BAD_USERNAME_OR_PASSWORD || rc == MQTT_RC_NOT_AUTHORIZED
                             ? "check user, password_file and certificate in [mqtt-bridge]"
                         : rc == MQTT_RC_UNSUPPORTED_PROTOCOL_VERSION || rc == 1
                             ? "the broker must support MQTT 5, as mosquitto 1.6 or later does"
                             : "see the broker's log";
      link.last_ = {"bridge.refused", std::string("the broker refuses the connection: ") + mosquitto_reason_string(rc),
                    hint};
      return;
    }
    link.state_ = State::connected;
    ++link.connects_;
    link.subscribing_.clear();
    link.session_present_ = flags & 1;
    if (link.handlers_.connected) link.handlers_.connected(link.session_present_);
    if (link.subscribing_.empty()) link.served();
  }
  static void disconnected(mosquitto*, void* self, int rc, const mosquitto_property*) {
    auto& link = *static_cast<Link*>(self);
    ++link.progress_;
    if (link.closing_) {
      link.state_ = State::idle;
      return;
    }
    Error error = std::exchange(link.last_, Error{});
    if (error.code.empty())
      error = {"bridge.lost",
               std::string("the connection to the broker is lost: ") +
                   (rc >= 0x80 ? mosquitto_reason_string(rc) : mosquitto_strerror(rc)),
               "the bridge tries again"};
    link.failed(error);
  }
  static void message(mosquitto*, void* self, const mosquitto_message* m, const mosquitto_property* properties) {
    auto& link = *static_cast<Link*>(self);
    ++link.progress_;
    Received out;
    out.trusted = link.trusted();
    out.topic = m->topic ? m->topic : "";
    out.payload = {static_cast<const char*>(m->payload), static_cast<std::size_t>(m->payloadlen)};
    out.retained = m->retain;
    char* owned[2] = {};
    for (const auto* p = properties; p; p = mosquitto_property_next(p)) {
      const int what = mosquitto_property_identifier(p);
      if (what == MQTT_PROP_USER_PROPERTY && !owned[0]) {
        char *name = nullptr, *value = nullptr;
        mosquitto_property_read_string_pair(p, MQTT_PROP_USER_PROPERTY, &name, &value, false);
        if (name && value && std::string_view(name) == "sonde-origin") owned[0] = value, out.origin = value;
        else std::free(value);
        std::free(name);
      } else if (what == MQTT_PROP_RESPONSE_TOPIC) {
        char* value = nullptr;
        mosquitto_property_read_string(p, what, &value, false);
        if (value) out.response_topic = value;
        std::free(value);
      } else if (what == MQTT_PROP_CORRELATION_DATA) {
        void* value = nullptr;
        std::uint16_t n = 0;
        mosquitto_property_read_binary(p, what, &value, &n, false);
        if (value) out.correlation.assign(static_cast<const char*>(value), n);
        std::free(value);
      } else if (what == MQTT_PROP_MESSAGE_EXPIRY_INTERVAL) {
        std::uint32_t s = 0;
        mosquitto_property_read_int32(p, what, &s, false);
        out.expiry_s = s;
      }
    }
    if (link.handlers_.message) link.handlers_.message(out);
    std::free(owned[0]);
  }
  static void published(mosquitto*, void* self, int mid, int reason, const mosquitto_property*) {
    auto& link = *static_cast<Link*>(self);
    ++link.progress_;
    // For QoS 0 it is called when the message is written. Message numbers are reused: such a call would look like an
    // acknowledgement.
    if (!link.reading_) return;
    for (auto& one : link.waiting_) {
      if (one.number != mid || one.taken) continue;
      one.taken = true;
      break;
    }
    while (!link.waiting_.empty() && link.waiting_.front().taken) link.waiting_.pop_front();
    const bool taken = reason < 0x80;
    if (link.handlers_.acknowledged)
      link.handlers_.acknowledged(mid, taken, taken ? "" : mosquitto_reason_string(reason));
  }
  static void subscribed(mosquitto*, void* self, int mid, int n, const int* granted, const mosquitto_property*) {
    auto& link = *static_cast<Link*>(self);
    ++link.progress_;
    const auto asked = link.subscribing_.extract(mid);
    if (asked.empty()) return;
    for (int k = 0; k < n; ++k)
      if (granted[k] >= 0x80 && link.handlers_.refused)
        link.handlers_.refused(asked.mapped(),
                               {"bridge.not_subscribed",
                                "the broker refuses the subscription to " + asked.mapped().substr(0, 200) + ": " +
                                    mosquitto_reason_string(granted[k]),
                                "allow this user to read it in the broker's access lists"});
    if (link.subscribing_.empty()) link.served();
  }
};

Result<std::unique_ptr<Link>> Link::make(const LinkOptions& options, Handlers handlers) {
  static std::once_flag once;
  std::call_once(once, [] { mosquitto_lib_init(); });
  if (auto context = tls_context(options.ca, options.certificate, options.key); !context) return context.error();
  std::unique_ptr<Link> link(new Link(options, std::move(handlers)));
  link->mosq_ = mosquitto_new(options.id.c_str(), options.clean, link.get());
  if (!link->mosq_)
    return Error{"bridge.mqtt", "cannot create an MQTT client: " + std::string(std::strerror(errno)), ""};
  auto* m = link->mosq_;
  mosquitto_int_option(m, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5);
  mosquitto_int_option(m, MOSQ_OPT_TCP_NODELAY, 1);
  mosquitto_int_option(m, MOSQ_OPT_RECEIVE_MAXIMUM, receive_maximum);
  mosquitto_int_option(m, MOSQ_OPT_SEND_MAXIMUM, 65535);
  mosquitto_connect_v5_callback_set(m, Calls::connected);
  mosquitto_disconnect_v5_callback_set(m, Calls::disconnected);
  mosquitto_message_v5_callback_set(m, Calls::message);
  mosquitto_publish_v5_callback_set(m, Calls::published);
  mosquitto_subscribe_v5_callback_set(m, Calls::subscribed);
  return link;
}

Link::~Link() {
  if (mosq_) mosquitto_destroy(mosq_);
}

void Link::failed(const Error& error) {
  state_ = State::idle;
  corked_ = false;
  backoff_.failed(options_.clock(), random_.uniform());
  if (handlers_.lost) handlers_.lost(error);
}

/// The broker has answered everything that the connection requested.
void Link::served() {
  backoff_.serves(options_.clock());
  if (handlers_.subscribed) handlers_.subscribed(session_present_);
}

/// getaddrinfo() can wait very long for name servers, and signals do not end it, so it runs in a detached thread. One
/// lookup at a time.
struct Link::Lookup {
  struct Address {
    sockaddr_storage at{};
    socklen_t bytes = 0;
  };
  std::mutex mutex;
  std::condition_variable answered;
  bool over = false;
  int rc = 0;
  std::vector<Address> found;

  void run(const std::string& host, std::uint16_t port, int flags) {
    addrinfo hints{}, *all = nullptr;
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags;
    const int result = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &all);
    std::vector<Address> made;
    for (const addrinfo* a = result ? nullptr : all; a; a = a->ai_next) {
      Address one;
      if (a->ai_addrlen > sizeof one.at) continue;
      std::memcpy(&one.at, a->ai_addr, a->ai_addrlen);
      one.bytes = a->ai_addrlen;
      made.push_back(one);
    }
    if (!result) ::freeaddrinfo(all);
    const std::lock_guard lock(mutex);
    over = true;
    rc = result;
    found = std::move(made);
    answered.notify_all();
  }
};

/// False: no answer, or not yet; the next attempt asks for the same name again.
bool Link::look_up(std::string& why) {
  if (!lookup_) {
    lookup_ = std::make_shared<Lookup>();
    lookup_->run(options_.host, options_.port, AI_NUMERICHOST);  // an address needs no name server
    if (lookup_->rc) {
      lookup_ = std::make_shared<Lookup>();
      try {
        std::thread([lookup = lookup_, host = options_.host, port = options_.port] {
          lookup->run(host, port, 0);
        }).detach();
      } catch (const std::system_error& error) {
        lookup_.reset();
        why = std::string("cannot start a thread: ") + error.what();
        return false;
      }
    }
  }
  const Deadline until = Deadline::in_s(connect_s);
  std::unique_lock lock(lookup_->mutex);
  while (!lookup_->over && !stopping_ && !until.passed())
    lookup_->answered.wait_for(lock, std::chrono::milliseconds(100));
  if (lookup_->over && !lookup_->rc) return true;
  why = lookup_->over ? ::gai_strerror(lookup_->rc)
                      : "the name servers do not answer within " + std::to_string(static_cast<int>(connect_s)) + " s";
  const bool over = lookup_->over;
  lock.unlock();
  if (over) lookup_.reset();
  return false;
}

/// A non-blocking socket, connected to the broker; -1: failed, see `why`.
int Link::reach(std::string& why) {
  if (!look_up(why)) return -1;
  const auto known = std::exchange(lookup_, nullptr);  // looked up again for each attempt
  bool fine = false;
  const std::int64_t until = now_ns() + static_cast<std::int64_t>(connect_s * 1e9);
  for (std::size_t k = 0; k < known->found.size() && !fine; ++k) {
    const auto* at = reinterpret_cast<const sockaddr*>(&known->found[k].at);
    const int fd = ::socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    if (::connect(fd, at, known->found[k].bytes) == 0) {
      fine = true;
    } else if (errno == EINPROGRESS) {
      why = "no answer within " + std::to_string(static_cast<int>(connect_s)) + " s";
      while (!stopping_) {
        pollfd ready{fd, POLLOUT, 0};
        const auto left = std::min<std::int64_t>(100, (until - now_ns()) / 1'000'000);
        if (left <= 0) break;
        if (::poll(&ready, 1, static_cast<int>(left)) <= 0) continue;
        int error = 0;
        socklen_t n = sizeof error;
        ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n);
        fine = error == 0;
        if (error) why = std::strerror(error);
        break;
      }
    } else {
      why = std::strerror(errno);
    }
    if (fine) return fd;
    ::close(fd);
  }
  return -1;
}

/// The connection to the broker, with TLS if configured, and libmosquitto's socket at its near end.
Result<void> Link::open_wire() {
  const std::string where = "the broker at " + options_.host + ":" + std::to_string(options_.port);
  // Read again for each connection: certificates are replaced while the bridge runs.
  auto context = tls_context(options_.ca, options_.certificate, options_.key);
  if (!context) return context.error();
  std::string why;
  const int fd = reach(why);
  if (fd < 0)
    return Error{"bridge.unreachable", where + " cannot be reached: " + why,
                 "check broker in [mqtt-bridge], and that the broker is running"};
  auto wire = Wire::make(fd, std::move(*context), options_.host);
  if (!wire) return wire.error();
  wire_ = std::move(*wire);
  const Deadline until = Deadline::in_s(connect_s);
  for (;;) {
    auto over = wire_->shake();
    if (!over) return Error{over.error().code, where + ": " + over.error().what, over.error().hint};
    if (*over) break;
    if (stopping_ || until.passed())
      return Error{
          "bridge.tls",
          where + " does not finish the TLS handshake within " + std::to_string(static_cast<int>(connect_s)) + " s",
          "check that it uses TLS at that port"};
    pollfd ready{fd, wire_->wants_of_broker(true), 0};
    ::poll(&ready, 1, 100);
  }
  return {};
}

void Link::connect() {
  if (auto fine = open_wire(); !fine) return failed(fine.error());
  if (stopping_) return;
  auto port = wire_->listen();
  if (!port) return failed(port.error());
  // Set here, because libmosquitto sends its CONNECT, with the password, as soon as it is connected.
  const bool with_password = trusted() && !options_.password.empty();
  mosquitto_username_pw_set(mosq_, options_.user.empty() ? nullptr : options_.user.c_str(),
                            with_password ? options_.password.c_str() : nullptr);
  std::string topic, payload;
  int qos = 0;
  bool retain = false;
  if (handlers_.will) handlers_.will(topic, payload, qos, retain);
  mosquitto_will_clear(mosq_);
  if (!topic.empty())
    mosquitto_will_set_v5(mosq_, topic.c_str(), static_cast<int>(payload.size()), payload.data(), qos, retain, nullptr);
  Properties properties;
  mosquitto_property_add_int32(&properties.list, MQTT_PROP_SESSION_EXPIRY_INTERVAL, options_.clean ? 0 : session_s);
  mosquitto_property_add_int32(&properties.list, MQTT_PROP_MAXIMUM_PACKET_SIZE, packet_bytes_max);
  last_ = {};
  mosquitto_threaded_set(mosq_, true);
  const int rc = mosquitto_connect_bind_v5(mosq_, "127.0.0.1", *port, keepalive_s, nullptr, properties.list);
  if (rc != MOSQ_ERR_SUCCESS) return failed(mqtt_error("bridge.mqtt", rc));
  if (auto fine = wire_->accept(mosquitto_socket(mosq_)); !fine) return drop(fine.error());
  state_ = State::handshake;
  handshake_until_ns_ = now_ns() + static_cast<std::int64_t>(handshake_s * 1e9);
}

/// Ends the connection at once, without a message to the broker.
void Link::drop(const Error& error) {
  closing_ = true;  // its callback adds nothing
  mosquitto_disconnect_v5(mosq_, 0, nullptr);
  if (const int open = mosquitto_socket(mosq_); open >= 0) ::shutdown(open, SHUT_RDWR);
  closing_ = false;
  failed(error);
}

bool Link::peer_is_proven() const { return wire_ && wire_->proven(); }

bool Link::trusted() const { return options_.unprotected || peer_is_proven(); }

void Link::turn(int timeout_ms, int wake_fd, bool reads) {
  const std::int64_t now = options_.clock();
  if (state_ == State::idle && !closing_ && !stopping_ && now >= backoff_.next_ns()) connect();
  if (state_ == State::idle)
    timeout_ms = std::min<int>(
        timeout_ms, static_cast<int>(std::clamp<std::int64_t>((backoff_.next_ns() - now) / 1'000'000 + 1, 0, 1000)));
  const int fd = state_ == State::idle ? -1 : mosquitto_socket(mosq_);
  if (state_ == State::idle) wire_.reset();
  if (state_ != State::idle && fd < 0)
    return failed({"bridge.lost", "the connection to the broker is lost", "the bridge tries again"});
  pollfd ready[4] = {{wake_fd, POLLIN, 0}, {-1, 0, 0}, {-1, 0, 0}, {-1, 0, 0}};
  if (fd >= 0) {
    ready[1] = {fd, static_cast<short>((reads ? POLLIN : 0) | (mosquitto_want_write(mosq_) ? POLLOUT : 0)), 0};
    ready[2] = {wire_->near(), wire_->wants_of_near(), 0};
    ready[3] = {wire_->broker(), wire_->wants_of_broker(reads), 0};
    for (auto& one : ready)
      if (!one.events) one.fd = -1;  // poll() would report its end again and again
    if (wire_->ready(reads)) timeout_ms = 0;
  }
  if (::poll(ready, 4, timeout_ms) < 0) return;
  if (ready[0].revents) {
    std::uint64_t n = 0;
    (void)!::read(wake_fd, &n, sizeof n);
  }
  if (fd < 0) return;
  constexpr short comes = POLLIN | POLLHUP | POLLERR;
  if ((ready[1].revents & comes) || (ready[2].revents & POLLOUT) || (ready[3].revents & comes) || wire_->ready(reads)) {
    // Acknowledgements are queued until their messages have been handled.
    mosquitto_threaded_set(mosq_, true);
    reading_ = true;
    std::optional<Error> bad;
    for (int k = 0; k < packets_a_turn && state_ != State::idle && !bad; ++k) {
      const std::uint64_t before = progress_;
      errno = 0;
      if (reads && mosquitto_loop_read(mosq_, 1) != MOSQ_ERR_SUCCESS) break;
      if (progress_ != before) continue;
      const auto moved = wire_->in(reads);
      if (!moved) bad = moved.error();
      else if (!*moved) break;
      if (last_.code.empty()) last_ = wire_->why();
    }
    reading_ = false;
    if (handlers_.dealt) handlers_.dealt();
    if (bad && state_ != State::idle) return drop(*bad);
  }
  if (state_ == State::idle) return;
  if (mosquitto_want_write(mosq_)) {
    begin_batch();  // acknowledgements are 4 bytes each
    const int rc = mosquitto_loop_write(mosq_, 1);
    end_batch();
    if (rc != MOSQ_ERR_SUCCESS) return;
  }
  if (state_ == State::idle) return;
  wire_->out();
  mosquitto_loop_misc(mosq_);
  if (state_ == State::handshake && now_ns() > handshake_until_ns_)
    drop({"bridge.silent", "the broker does not answer within " + std::to_string(static_cast<int>(handshake_s)) + " s",
          "check that it is an MQTT broker, and that it uses TLS only if `ca` is set"});
}

bool Link::takes() const {
  if (state_ != State::connected || mosquitto_want_write(mosq_) || wire_->blocked()) return false;
  return waiting_.empty() ||
         (waiting_.size() < most_unacknowledged && published_ - waiting_.front().published < numbers_until_reuse);
}

Result<int> Link::publish(const Outgoing& message) {
  Properties properties;
  if (message.origin)
    mosquitto_property_add_string_pair(&properties.list, MQTT_PROP_USER_PROPERTY, "sonde-origin",
                                       message.origin->c_str());
  if (message.correlation && !message.correlation->empty())
    mosquitto_property_add_binary(&properties.list, MQTT_PROP_CORRELATION_DATA, message.correlation->data(),
                                  static_cast<std::uint16_t>(message.correlation->size()));
  int mid = 0;
  mosquitto_threaded_set(mosq_, false);  // written immediately, into a corked socket
  const int rc = mosquitto_publish_v5(mosq_, &mid, message.topic.c_str(), static_cast<int>(message.payload.size()),
                                      message.payload.data(), message.qos, message.retain, properties.list);
  mosquitto_threaded_set(mosq_, true);
  if (rc == MOSQ_ERR_SUCCESS) {
    ++published_;
    if (message.qos > 0) waiting_.push_back({mid, published_, false});
    return mid;
  }
  if (rc == MOSQ_ERR_NO_CONN || rc == MOSQ_ERR_CONN_LOST || rc == MOSQ_ERR_ERRNO) return mqtt_error("bridge.lost", rc);
  Error error = mqtt_error("bridge.refused_locally", rc);
  error.what = "a message of " + std::to_string(message.payload.size()) + " bytes under " +
               message.topic.substr(0, 200) + ": " + error.what;
  return error;
}

Result<void> Link::subscribe(const std::string& filter, int qos) {
  // Our own messages do not come back, and messages retained before we connected are not new.
  int mid = 0;
  const int rc = mosquitto_subscribe_v5(mosq_, &mid, filter.c_str(), qos,
                                        MQTT_SUB_OPT_NO_LOCAL | MQTT_SUB_OPT_SEND_RETAIN_NEVER, nullptr);
  if (rc) return mqtt_error("bridge.not_subscribed", rc);
  subscribing_[mid] = filter;
  return {};
}

void Link::begin_batch() {
  const int fd = mosquitto_socket(mosq_), one = 1;
  if (fd >= 0) corked_ = ::setsockopt(fd, IPPROTO_TCP, TCP_CORK, &one, sizeof one) == 0;
}

void Link::end_batch() {
  const int fd = mosquitto_socket(mosq_), none = 0;
  if (fd >= 0 && corked_) ::setsockopt(fd, IPPROTO_TCP, TCP_CORK, &none, sizeof none);
  corked_ = false;
}

void Link::close(double s) {
  closing_ = true;
  if (state_ == State::idle) return;
  mosquitto_disconnect_v5(mosq_, 0, nullptr);
  const std::int64_t until = now_ns() + static_cast<std::int64_t>(s * 1e9);
  while (state_ != State::idle && now_ns() < until) {
    mosquitto_loop_write(mosq_, 1);
    wire_->out();
    if (state_ == State::idle || mosquitto_socket(mosq_) < 0) break;
    pollfd ready[2] = {{mosquitto_socket(mosq_), POLLOUT, 0},
                       {wire_->broker(), static_cast<short>(wire_->blocked() ? POLLOUT : 0), 0}};
    ::poll(ready, 2, 20);
  }
  state_ = State::idle;
  wire_->finish(until);
  wire_.reset();
}

}  // namespace sonde::power::bridge
