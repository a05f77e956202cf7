// The layer between a program and a DDS: it checks names, types and QoS, verifies samples in both directions, and
// counts errors.
#include "bus/bus.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>

#include "bus/cdr.hpp"
#include "bus/network.hpp"
#include "core/nearest.hpp"
#include "core/text.hpp"
#include "core/thrown.hpp"

namespace sonde::bus {
namespace {

constexpr std::string_view mark = "sonde1 fp=";
constexpr std::size_t fingerprint_digits = 32;
static_assert(most_user_data == 255 - (mark.size() + fingerprint_digits + 1));

/// Calls a module and catches its exceptions.
template <typename Call> auto guarded(const std::string& who, const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    return Error{"bus.internal", "the implementation " + who + " threw an exception: " + text_of_exception(),
                 "tell who wrote it"};
  }
}

Error gave_nothing(const std::string& who) {
  return {"bus.internal", "the implementation " + who + " returned no object and no error", "report it to its author"};
}

Error too_large(std::size_t bytes) {
  return {"bus.too_large",
          "a sample of " + std::to_string(bytes) + " B; allowed: up to " + std::to_string(limit::sample_bytes),
          "send it in pieces"};
}

/// Waits until `done`, with a check every ms at first and every 10 ms later: ports have no call that waits for a match.
template <typename Done> bool poll(Deadline deadline, const Done& done) {
  for (double pause_s = 1e-3;; pause_s = std::min(pause_s * 1.2, 1e-2)) {
    if (done()) return true;
    const std::int64_t now = now_ns();
    if (deadline.at_ns && now >= deadline.at_ns) return false;
    double until_s = static_cast<double>(now) * 1e-9 + pause_s;
    if (deadline.at_ns) until_s = std::min(until_s, static_cast<double>(deadline.at_ns) * 1e-9);
    sleep_until(until_s);
  }
}

/// Checks the files first: a DDS would only report that it could not create a participant.
Result<void> check_files(const Security& security) {
  const auto& s = security;
  for (const std::string* path :
       {&s.identity_ca, &s.certificate, &s.private_key, &s.permissions_ca, &s.governance, &s.permissions})
    if (access(path->c_str(), R_OK) != 0)
      return Error{"bus.no_file", "cannot read " + *path + ", of the profile's <security>: " + std::strerror(errno),
                   errno == EACCES ? "run it as the owner of the files"
                                   : "create the files with 'sonde bus keys', or correct the path"};
  return {};
}

std::string program_and_pid() { return std::string(program_invocation_short_name) + "-" + std::to_string(getpid()); }

}  // namespace

std::string Guid::text() const {
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += digits[std::to_integer<unsigned>(b) >> 4];
    out += digits[std::to_integer<unsigned>(b) & 15];
  }
  return out;
}

std::string announcement(const Type& type, std::string_view user_data) {
  std::string text = std::string(mark) + fingerprint(type);
  if (!user_data.empty()) text += " " + std::string(user_data);
  return text;
}

Announcement read_announcement(std::string_view announced) {
  const std::string_view digits = announced.starts_with(mark) ? announced.substr(mark.size(), fingerprint_digits) : "";
  const std::string_view rest =
      digits.size() == fingerprint_digits ? announced.substr(mark.size() + fingerprint_digits) : "";
  const bool ours = digits.size() == fingerprint_digits &&
                    digits.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
                    (rest.empty() || rest.front() == ' ');
  if (!ours) return {"", std::string(announced)};
  return {std::string(digits), std::string(rest.substr(rest.empty() ? 0 : 1))};
}

// ---- Writer

struct Writer::Body {
  std::shared_ptr<Bus> bus;
  std::string topic;
  Checker checker;
  KeyMaker keys;
  std::atomic<std::uint64_t> samples{0}, bytes{0};
  Guid guid;
  std::unique_ptr<WriterPort> port;  // destroyed first

  ~Body() {
    const std::lock_guard lock(bus->mutex_);
    bus->own_writers_.erase(guid);
  }

  explicit Body(TypePtr of) : checker(of), keys(std::move(of)) {}

  template <typename Send> Result<void> send(Bytes payload, const Send& send) {
    if (payload.size() > limit::sample_bytes) return too_large(payload.size());
    if (!checker.verify(payload)) {
      std::string why;
      (void)checker.verify(payload, &why);
      return Error{"bus.malformed", "topic " + topic + ": not a sample of " + checker.type()->name + ": " + why,
                   "encode it by typed.hpp or value.hpp from that type"};
    }
    auto sent = guarded(bus->implementation(), [&] {
      if (!keys.keyed()) return send(payload, Bytes{});
      thread_local std::vector<std::byte> key;
      keys.make(payload, key);
      return send(payload, Bytes(key));
    });
    if (sent) {
      samples.fetch_add(1, std::memory_order_relaxed);
      bytes.fetch_add(payload.size(), std::memory_order_relaxed);
    }
    return sent;
  }
};

Writer::Writer(std::unique_ptr<Body> body) : body_(std::move(body)) {}
Writer::~Writer() = default;

Result<void> Writer::write(Bytes payload) {
  return body_->send(payload, [this](Bytes sample, Bytes key) { return body_->port->write(sample, key); });
}
Result<void> Writer::dispose(Bytes payload) {
  return body_->send(payload, [this](Bytes sample, Bytes key) { return body_->port->dispose(sample, key); });
}
void Writer::flush() { body_->port->flush(); }
bool Writer::wait_matched(std::size_t n, Deadline deadline) {
  return poll(deadline, [&] { return body_->port->status().matched >= static_cast<std::int64_t>(n); });
}
bool Writer::wait_acknowledged(Deadline deadline) { return body_->port->wait_acknowledged(deadline); }
void Writer::assert_liveliness() { body_->port->assert_liveliness(); }
Status Writer::status() const { return body_->port->status(); }
Counts Writer::counts() const {
  Counts counts;
  counts.samples = body_->samples.load(std::memory_order_relaxed);
  counts.bytes = body_->bytes.load(std::memory_order_relaxed);
  return counts;
}
std::vector<Guid> Writer::matched() const { return body_->port->matched(); }
const Guid& Writer::guid() const { return body_->guid; }
const std::string& Writer::topic() const { return body_->topic; }
const TypePtr& Writer::type() const { return body_->checker.type(); }

// ---- Reader

namespace {

/// Increments a count that one thread writes and others read, without a locked instruction.
void add(std::atomic<std::uint64_t>& count, std::uint64_t n) {
  count.store(count.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace

/// The port of a waiter. A port knows its readers by address, so none of them may end while the port ends.
struct Waiter::Listening {
  std::mutex ending;
  std::unique_ptr<WaiterPort> port;
};

struct Reader::Body {
  std::shared_ptr<Bus> bus;
  std::string topic;
  Checker checker;
  std::string fingerprint;
  Guid guid;

  /// The known fingerprint of a writer's type.
  struct Verdict {
    std::string other;              ///< its fingerprint if it differs; empty: it is equal or not announced
    std::int64_t ask_again_ns = 0;  ///< time of the next query if it is not announced yet; 0: settled
    std::int64_t pause_ns = 0;
  };
  std::map<Guid, Verdict> verdicts;  // used by the taking thread
  Guid last;                         // the last sample's writer, and its verdict
  Verdict* last_verdict = nullptr;

  std::atomic<std::uint64_t> samples{0}, bytes{0}, malformed{0}, other_type{0}, oversized{0};
  mutable std::mutex mutex;
  std::string last_error;
  std::vector<std::weak_ptr<Waiter::Listening>> waiters;

  std::unique_ptr<ReaderPort> port;  // destroyed first

  explicit Body(TypePtr of) : checker(std::move(of)), fingerprint(bus::fingerprint(*checker.type())) {}
  ~Body() {
    for (const auto& weak : waiters)
      if (const auto waiter = weak.lock()) {
        const std::lock_guard lock(waiter->ending);
        if (waiter->port) waiter->port->detach(*port);
      }
  }

  void note(std::atomic<std::uint64_t>& count, std::string why) {
    add(count, 1);
    const std::lock_guard lock(mutex);
    last_error = std::move(why);
  }

  /// Queries the announcements, and stores the verdicts on all writers of the topic.
  void ask(const Guid& writer, Verdict& verdict) {
    std::optional<std::string> announced;
    {
      const std::lock_guard lock(bus->mutex_);
      if (const auto own = bus->own_writers_.find(writer); own != bus->own_writers_.end()) announced = own->second;
    }
    if (!announced)
      if (const auto matched = port->announcements())
        for (const auto& [guid, user_data] : *matched) {
          const std::string its = read_announcement(user_data).fingerprint;
          if (guid == writer) announced = its;
          else verdicts.try_emplace(guid).first->second = {its.empty() || its == fingerprint ? "" : its, 0, 0};
        }
    if (!announced)
      for (const auto& endpoint : bus->port_->endpoints()) {
        if (!endpoint.writes || endpoint.topic != topic) continue;
        const std::string its = read_announcement(endpoint.user_data).fingerprint;
        if (endpoint.guid == writer) announced = its;
        else verdicts.try_emplace(endpoint.guid).first->second = {its.empty() || its == fingerprint ? "" : its, 0, 0};
      }
    if (announced) {
      verdict = {announced->empty() || *announced == fingerprint ? "" : *announced, 0, 0};
      return;
    }
    // A DDS may deliver a sample before its list of endpoints has the writer.
    verdict.pause_ns = std::clamp<std::int64_t>(verdict.pause_ns * 2, 1'000'000, 10'000'000'000);
    verdict.ask_again_ns = now_ns() + verdict.pause_ns;
  }

  /// The verdict on a writer; null if a query is needed first.
  Verdict* known(const Guid& writer) {
    if (!last_verdict || last != writer) {
      const auto at = verdicts.find(writer);
      if (at == verdicts.end()) return nullptr;
      last = writer;
      last_verdict = &at->second;
    }
    return last_verdict->ask_again_ns && now_ns() >= last_verdict->ask_again_ns ? nullptr : last_verdict;
  }

  const Verdict& verdict_on(const Guid& writer) {
    if (const Verdict* verdict = known(writer)) return *verdict;
    constexpr std::size_t most_remembered = 16384;  // writers come and go during the life of a reader
    if (verdicts.size() > most_remembered) {
      verdicts.clear();
      last_verdict = nullptr;
    }
    Verdict& verdict = verdicts[writer];
    ask(writer, verdict);
    return verdict;
  }

  /// Whether a sample may be delivered.
  bool fits(const SampleInfo& info, Bytes payload) {
    if (const Verdict& verdict = verdict_on(info.writer); !verdict.other.empty()) {
      if (!info.has_data) return false;  // its end, or the disposal of a sample that was not delivered
      note(other_type, "topic " + topic + ": the writer " + info.writer.text() + " means another structure by " +
                           checker.type()->name + ": fingerprint " + verdict.other + ", here " + fingerprint +
                           "; build both sides from one IDL");
      return false;
    }
    if (payload.size() > limit::sample_bytes) {
      note(oversized,
           "topic " + topic + ": " + too_large(payload.size()).what + ", of the writer " + info.writer.text());
      return false;
    }
    if (checker.verify(payload)) return true;
    std::string why;
    (void)checker.verify(payload, &why);
    note(malformed, "topic " + topic + ": not a sample of " + checker.type()->name + ": " + why + "; of the writer " +
                        info.writer.text());
    return false;
  }
};

Reader::Reader(std::unique_ptr<Body> body) : body_(std::move(body)) {}
Reader::~Reader() = default;

std::size_t Reader::take(const Taker& taker, std::size_t most) {
  struct Held {
    SampleInfo info;
    std::vector<std::byte> payload;
  };
  constexpr std::size_t chunk = 256;
  Body& body = *body_;
  std::size_t handed = 0;
  std::exception_ptr thrown;  // must not pass through the DDS, which may be C
  const auto hand_on = [&](const SampleInfo& info, Bytes payload) {
    if (!body.fits(info, payload)) return;
    add(body.samples, 1);
    add(body.bytes, payload.size());
    ++handed;
    taker(info, payload);
  };
  std::vector<Held> held;  // samples from the first one of an unknown writer on: the query must wait until the
                           // implementation has finished take()
  while (most > 0 && !thrown) {
    const std::size_t wanted = std::min(most, chunk);
    const std::size_t taken = body.port->take(wanted, [&](const SampleInfo& info, Bytes payload) {
      if (thrown) return;
      try {
        if (held.empty() && body.known(info.writer)) hand_on(info, payload);
        else held.push_back({info, {payload.begin(), payload.end()}});
      } catch (...) {
        thrown = std::current_exception();
      }
    });
    if (thrown) break;
    for (const auto& sample : held) hand_on(sample.info, sample.payload);
    held.clear();
    most -= std::min(taken, most);
    if (taken < wanted) break;
  }
  if (thrown) std::rethrow_exception(thrown);
  return handed;
}

bool Reader::wait_matched(std::size_t n, Deadline deadline) {
  return poll(deadline, [&] { return body_->port->status().matched >= static_cast<std::int64_t>(n); });
}
bool Reader::on_match(std::function<void()> tell) { return body_->port->on_match(std::move(tell)); }
Status Reader::status() const { return body_->port->status(); }
Counts Reader::counts() const {
  Counts counts;
  counts.samples = body_->samples.load(std::memory_order_relaxed);
  counts.bytes = body_->bytes.load(std::memory_order_relaxed);
  counts.malformed = body_->malformed.load(std::memory_order_relaxed);
  counts.other_type = body_->other_type.load(std::memory_order_relaxed);
  counts.too_large = body_->oversized.load(std::memory_order_relaxed);
  const std::lock_guard lock(body_->mutex);
  counts.last_error = body_->last_error;
  return counts;
}
std::vector<Guid> Reader::matched() const { return body_->port->matched(); }
const Guid& Reader::guid() const { return body_->guid; }
const std::string& Reader::topic() const { return body_->topic; }
const TypePtr& Reader::type() const { return body_->checker.type(); }

// ---- Waiter

Waiter::Waiter(std::shared_ptr<Bus> bus, std::unique_ptr<WaiterPort> port)
    : bus_(std::move(bus)), listening_(std::make_shared<Listening>()) {
  listening_->port = std::move(port);
}
Waiter::~Waiter() {
  const std::lock_guard lock(listening_->ending);
  listening_->port.reset();
}

Result<void> Waiter::attach(Reader& reader, std::uint64_t tag) {
  if (reader.body_->bus != bus_)
    return Error{"bus.other_bus", "the reader of " + reader.topic() + " is of another bus than the waiter",
                 "make both from the same Bus"};
  auto attached = guarded(bus_->implementation(), [&] { return listening_->port->attach(*reader.body_->port, tag); });
  if (!attached) return attached;
  const std::lock_guard lock(reader.body_->mutex);
  std::erase_if(reader.body_->waiters, [](const auto& weak) { return weak.expired(); });
  reader.body_->waiters.push_back(listening_);
  return {};
}

void Waiter::detach(Reader& reader) {
  {
    const std::lock_guard lock(reader.body_->mutex);
    const auto of_this = [this](const auto& weak) { return weak.lock() == listening_; };
    if (std::erase_if(reader.body_->waiters, of_this) == 0) return;
  }
  listening_->port->detach(*reader.body_->port);
}
std::vector<std::uint64_t> Waiter::wait(Deadline deadline) { return listening_->port->wait(deadline); }
void Waiter::wake() { listening_->port->wake(); }

// ---- Bus

Result<std::shared_ptr<Bus>> Bus::open(const Profile& profile, std::string_view implementation) {
  const char* chosen = std::getenv("SONDE_BUS");
  std::string name(implementation);
  if (name.empty()) name = profile.implementation;
  if (name.empty() && chosen) name = chosen;
  if (name.empty()) name = "cyclonedds";
  const auto entry = find_implementation(name);
  if (!entry) {
    Error error = entry.error();
    if (implementation.empty() && profile.implementation.empty() && chosen && name == chosen)
      error.what = "SONDE_BUS: " + error.what;
    return error;
  }
  if (auto ok = check(profile); !ok) return ok.error();
  const auto bus = std::shared_ptr<Bus>(new Bus);
  bus->profile_ = profile;
  bus->implementation_ = (*entry)->name;
  bus->entry_ = *entry;
  const auto able = guarded(name, [&]() -> Result<Caps> { return (*entry)->caps(); });
  if (!able) return able.error();
  bus->caps_ = *able;
  if (auto ok = check(profile, name, bus->caps_); !ok) return ok.error();
  if (bus->caps_.across_processes) {
    const auto addresses = chosen_addresses(profile.transport);
    if (!addresses) return addresses.error();
    if (auto ok = check_exposure(profile, *addresses); !ok) return ok.error();
  }
  if (profile.security)
    if (auto ok = check_files(*profile.security); !ok) return ok.error();
  if (bus->profile_.participant.empty()) bus->profile_.participant = program_and_pid();
  auto port = guarded(name, [&] { return (*entry)->open(bus->profile_); });
  if (!port) return port.error();
  if (!*port) return gave_nothing(name);
  bus->port_ = std::move(*port);
  return bus;
}

Bus::~Bus() = default;

namespace {

Error unknown_topic(const std::string& topic, const Profile& profile) {
  std::vector<std::string> names;
  for (const auto& [name, its] : profile.topics) names.push_back(name);
  return {"bus.unknown_topic",
          "the profile " + profile.name + " has no topic " + shown(topic, 255) + nearest(topic, names),
          names.empty() ? "it has none: declare it by <topic name=\"…\" type=\"…\"/>, or give its type"
                        : "it has: " + joined(names)};
}

/// Checks type, name and QoS of an endpoint; returns the QoS as announced.
Result<Qos> announced_qos(const std::string& topic, const TypePtr& type, const Qos& qos,
                          const std::string& implementation, const Caps& caps) {
  if (auto ok = check_topic_name(topic); !ok) return ok.error();
  if (!type)
    return Error{"bus.bad_type", "topic " + topic + ": no type was given",
                 "give a structure: structure(), parse_idl() or typed.hpp make one"};
  for (const auto& ok : {check(*type), check(qos), check(qos, implementation, caps)})
    if (!ok) return Error{ok.error().code, "topic " + topic + ": " + ok.error().what, ok.error().hint};
  Qos announced = qos;
  announced.user_data = announcement(*type, qos.user_data);
  return announced;
}

}  // namespace

Result<std::unique_ptr<Writer>> Bus::writer(const std::string& topic) {
  const auto at = profile_.topics.find(topic);
  if (at == profile_.topics.end()) return unknown_topic(topic, profile_);
  return writer(topic, profile_.types.at(at->second.type), at->second.writer);
}

Result<std::unique_ptr<Reader>> Bus::reader(const std::string& topic) {
  const auto at = profile_.topics.find(topic);
  if (at == profile_.topics.end()) return unknown_topic(topic, profile_);
  return reader(topic, profile_.types.at(at->second.type), at->second.reader);
}

Result<std::unique_ptr<Writer>> Bus::writer(const std::string& topic, const TypePtr& type, const Qos& qos) {
  const auto announced = announced_qos(topic, type, qos, implementation_, caps_);
  if (!announced) return announced.error();
  auto port = guarded(implementation_, [&] { return port_->writer(topic, type, *announced); });
  if (!port) return port.error();
  if (!*port) return gave_nothing(implementation_);
  auto body = std::make_unique<Writer::Body>(type);
  body->bus = shared_from_this();
  body->topic = topic;
  body->guid = (*port)->guid();
  body->port = std::move(*port);
  {
    const std::lock_guard lock(mutex_);
    own_writers_[body->guid] = fingerprint(*type);
  }
  return std::unique_ptr<Writer>(new Writer(std::move(body)));
}

Result<std::unique_ptr<Reader>> Bus::reader(const std::string& topic, const TypePtr& type, const Qos& qos) {
  const auto announced = announced_qos(topic, type, qos, implementation_, caps_);
  if (!announced) return announced.error();
  auto port = guarded(implementation_, [&] { return port_->reader(topic, type, *announced); });
  if (!port) return port.error();
  if (!*port) return gave_nothing(implementation_);
  auto body = std::make_unique<Reader::Body>(type);
  body->bus = shared_from_this();
  body->topic = topic;
  body->guid = (*port)->guid();
  body->port = std::move(*port);
  return std::unique_ptr<Reader>(new Reader(std::move(body)));
}

Result<std::unique_ptr<Waiter>> Bus::waiter() {
  auto port = guarded(implementation_, [&] { return port_->waiter(); });
  if (!port) return port.error();
  if (!*port) return gave_nothing(implementation_);
  return std::unique_ptr<Waiter>(new Waiter(shared_from_this(), std::move(*port)));
}

std::string Bus::version() const { return entry_->version(); }
Guid Bus::guid() const { return port_->guid(); }
std::vector<Participant> Bus::peers() const { return port_->peers(); }
std::vector<Endpoint> Bus::endpoints() const { return port_->endpoints(); }
std::uint16_t Bus::port() const { return port_->port(); }

}  // namespace sonde::bus
