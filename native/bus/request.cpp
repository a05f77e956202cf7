// Requests and replies. All clients of one service of a Bus share a Hub, in which calls wait. It has one writer, one
// reader, and one thread that takes replies and resends unanswered requests. A server has one thread that takes
// requests and others that call its handler.
// Long because: a call's life passes through client, hub and server, which share one wire format.
#include "bus/request.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>

#include "bus/cdr.hpp"
#include "bus/pattern.hpp"
#include "core/clock.hpp"
#include "core/text.hpp"
#include "core/thrown.hpp"

namespace sonde::bus {
namespace {

constexpr std::uint32_t request_depth = 1024;  ///< samples that each end of the request topic stores
constexpr std::uint32_t reply_depth = 256;     ///< of a server, for one participant of clients
constexpr std::uint32_t replies_depth =
    65536;  ///< of such a participant, for replies of all servers: a DDS treats them as one instance
constexpr std::size_t in_flight_of_hub =
    reply_depth;  ///< calls that were sent and not answered: there is room for the replies to all
constexpr std::size_t in_flight_of_client = 64;  ///< as many as a server remembers by default
constexpr std::size_t most_waiting = 65536;      ///< calls of a hub that wait for their turn
constexpr std::size_t finished_kept = 1024;      ///< finished calls of a client whose outcome is remembered
constexpr double most_blocking_s = 0.1;  ///< the longest time that a peer which does not read can block a thread
constexpr double cold_retry_s = 0.02;    ///< while no server has answered yet: requests sent during a match can be lost
constexpr double look_again_s = 0.005;   ///< period of checks for a server
constexpr double look_for_clients_s = 0.05;  ///< for an implementation that does not report matches
constexpr double way_back_s =
    1;  ///< by then a server has opened its writer of replies, or it opens it at the first request
constexpr double linger_s = 0.25;  ///< how long a thread polls for new timers after work, without a wake-up
constexpr std::size_t most_participants = 1024;  ///< of clients, that a server remembers
constexpr std::size_t most_clients = 1024;       ///< of one participant
constexpr std::size_t most_remembered_bytes =
    256u << 20;                ///< not including the last reply_depth replies that the DDS stores for each participant
constexpr double grace_s = 5;  ///< a participant without a reader of replies is forgotten after this time
constexpr std::uint32_t most_partition = 64, most_name = 255, most_message = 4096;
constexpr std::size_t most_body = limit::sample_bytes - 8192;  ///< the rest is for the header
constexpr std::uint32_t no_deadline = UINT32_MAX;

/// The value of now_ns() in `s` seconds; 0: never.
std::int64_t in_ns(std::int64_t now, double s) { return s >= 1e9 ? 0 : now + static_cast<std::int64_t>(s * 1e9); }

std::string partition_of(const Guid& client) { return "reply/" + client.text(); }
/// DDSI-RTPS: the first 12 bytes are the participant's.
bool is_of(const Guid& endpoint, const Guid& participant) {
  return std::equal(endpoint.bytes.begin(), endpoint.bytes.begin() + 12, participant.bytes.begin());
}

struct RequestHeader {
  Guid client;
  std::uint64_t number = 0;
  std::uint32_t client_number = 0, left_ms = 0, attempt = 0;
  std::string_view partition, target;
  Bytes body;
};

void encode(const RequestHeader& header, std::vector<std::byte>& payload) {
  CdrWriter out(payload);
  out.put_bytes(header.client.bytes);
  out.put(header.number);
  out.put(header.client_number);
  out.put(header.left_ms);
  out.put(header.attempt);
  out.put(header.partition);
  out.put(header.target);
  out.put(static_cast<std::uint32_t>(header.body.size()));
  out.put_bytes(header.body);
}

bool decode(Bytes payload, RequestHeader& header) {
  CdrReader in(payload);
  const Bytes client = in.get_bytes(header.client.bytes.size());
  std::copy(client.begin(), client.end(), header.client.bytes.begin());
  header.number = in.get<std::uint64_t>();
  header.client_number = in.get<std::uint32_t>();
  header.left_ms = in.get<std::uint32_t>();
  header.attempt = in.get<std::uint32_t>();
  header.partition = in.get_string(most_partition);
  header.target = in.get_string(most_name);
  header.body = in.get_bytes(in.get_length(0, 1));
  return in.ok();
}

struct ReplyHeader {
  Guid client;
  std::uint64_t number = 0;
  std::uint32_t client_number = 0, code = 0;
  std::string_view server, message;
  Bytes body;
};

void encode(const ReplyHeader& header, std::vector<std::byte>& payload) {
  CdrWriter out(payload);
  out.put_bytes(header.client.bytes);
  out.put(header.number);
  out.put(header.client_number);
  out.put(header.code);
  out.put(header.server);
  out.put(header.message);
  out.put(static_cast<std::uint32_t>(header.body.size()));
  out.put_bytes(header.body);
}

bool decode(Bytes payload, ReplyHeader& header) {
  CdrReader in(payload);
  const Bytes client = in.get_bytes(header.client.bytes.size());
  std::copy(client.begin(), client.end(), header.client.bytes.begin());
  header.number = in.get<std::uint64_t>();
  header.client_number = in.get<std::uint32_t>();
  header.code = in.get<std::uint32_t>();
  header.server = in.get_string(most_name);
  header.message = in.get_string(most_message);
  header.body = in.get_bytes(in.get_length(0, 1));
  return in.ok();
}

/// Text that a bounded string can carry.
std::string_view fitting(std::string_view text, std::size_t most) {
  text = text.substr(0, text.find('\0'));
  std::size_t end = std::min(most, text.size());
  while (end && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

/// The QoS of requests: the caller's choices and fixed policies. Both ends are reliable and hold all calls that can run
/// at a time.
Qos request_qos(const Qos& given, bool reads) {
  Qos qos = given;
  qos.reliability = Reliability::reliable;
  qos.durability = Durability::volatile_;  // a server that starts later must not execute old requests
  if (qos.history == History::keep_last) qos.depth = std::max(qos.depth, request_depth);
  qos.max_blocking_s = std::min(qos.max_blocking_s, most_blocking_s);
  qos.deadline_s = qos.lifespan_s = qos.lease_s = forever;
  qos.liveliness = Liveliness::automatic;
  qos.ownership = Ownership::shared;
  qos.strength = 0;
  if (reads) qos.latency_budget_s = 0;
  return qos;
}
Qos reply_qos(const Qos& given, const Guid& client, const Caps& caps) {
  Qos qos = request_qos(given, false);
  // The first reply is written during the match; with transient_local it still arrives.
  qos.durability = caps.durability ? Durability::transient_local : Durability::volatile_;
  qos.history = History::keep_last;
  qos.depth = reply_depth;
  qos.max_samples = 0;
  qos.partitions = {partition_of(client)};
  return qos;
}

/// ServiceTypes with their checkers, which are created once. Any-thread.
struct ServiceCheckers {
  std::optional<Checker> request, reply;

  explicit ServiceCheckers(const ServiceTypes& types) {
    if (types.request) request.emplace(types.request);
    if (types.reply) reply.emplace(types.reply);
  }
  static Result<void> possible(const std::string& service, const ServiceTypes& types) {
    for (const TypePtr& type : {types.request, types.reply}) {
      if (!type) continue;
      if (auto ok = bus::check(*type); !ok)
        return Error{ok.error().code, "service " + service + ": " + ok.error().what, ok.error().hint};
    }
    return {};
  }
};

// ---- clients

struct Hub;

/// A Client in its hub. All but the constants are protected by the hub's lock.
struct ClientCore {
  explicit ClientCore(const ServiceTypes& types) : checkers(types) {}
  std::uint32_t number = 0;
  const ServiceCheckers checkers;
  std::uint64_t last_call = 0;
  std::size_t calls = 0, in_flight = 0;
  CallCounts counts;
  bool closed = false;
  std::deque<std::uint64_t> finished;
  std::unordered_map<std::uint64_t, bool> was_answered;  ///< for each of these calls
};

struct Call {
  // Constant after the registration.
  std::shared_ptr<ClientCore> client;
  std::uint64_t number = 0;
  std::vector<std::byte> body;
  std::string target;
  std::int64_t give_up_ns = 0;  ///< 0: never
  double retry_s = 0;
  bool all = false;
  std::size_t most = 1;
  std::function<void(Result<std::vector<Answer>>)> done;

  // Under the hub's lock.
  std::int64_t due_ns = 0;
  double next_retry_s = 0;
  int tries = 0;
  bool flying = false, finished = false;
  std::vector<Guid> answered_by;
  std::vector<Answer> answers;
};
using CallPtr = std::shared_ptr<Call>;

struct Hub : std::enable_shared_from_this<Hub> {
  std::shared_ptr<Bus> bus;
  std::string service;
  Qos qos;
  std::unique_ptr<Writer> writer;
  std::unique_ptr<Reader> reader;
  std::unique_ptr<Waiter> waiter;
  std::thread thread;
  std::thread::id thread_id;
  std::size_t users = 0;  ///< Clients; under the registry's lock

  std::mutex mutex;
  std::condition_variable emptied;  ///< a closed client has no calls any more
  std::map<std::pair<std::uint32_t, std::uint64_t>, CallPtr> calls;
  std::unordered_map<std::uint32_t, std::shared_ptr<ClientCore>> clients;
  std::set<std::pair<std::int64_t, Call*>> timers;
  std::deque<CallPtr> waiting;
  std::size_t in_flight = 0;
  std::int64_t sleeps_until_ns = -1;    ///< 0: until it is woken; -1: is awake
  std::atomic<bool> warm{false};        ///< a request sent now is not lost because of an incomplete match
  std::atomic<std::int64_t> met_ns{0};  ///< the time since which there is a server; 0: there is none
  bool stopping = false;
  std::vector<std::pair<CallPtr, Result<std::vector<Answer>>>> over;  ///< to be reported

  Result<void> open();
  void run();
  void stop();

  /// With the lock held; `c.due_ns` becomes `at`.
  void arm(Call& c, std::int64_t at) {
    disarm(c);
    if (!at) return;
    c.due_ns = at;
    timers.emplace(at, &c);
    if (sleeps_until_ns == 0 || (sleeps_until_ns > 0 && at < sleeps_until_ns)) wake();
  }
  void disarm(Call& c) {
    if (c.due_ns) timers.erase({c.due_ns, &c});
    c.due_ns = 0;
  }
  void wake() {
    sleeps_until_ns = -1;
    waiter->wake();
  }
  static std::int64_t sooner(std::int64_t a, std::int64_t b) { return !a ? b : !b ? a : std::min(a, b); }

  void register_call(const CallPtr& call);
  void send(const CallPtr& call);
  void finish(const CallPtr& call, Result<std::vector<Answer>> result);
  void refuse(const CallPtr& call, Error why);
  void on_reply(const SampleInfo& info, Bytes payload);
  void on_timers(std::vector<CallPtr>& to_send);
  bool has_ways_back(bool all) const;
  bool wait_for_server(Deadline deadline);
  Error timed_out(const Call& call) const;
};

std::mutex& hubs_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
std::vector<std::shared_ptr<Hub>>& hubs() {
  static auto* all = new std::vector<std::shared_ptr<Hub>>;
  return *all;
}

Result<std::shared_ptr<Hub>> join_hub(const std::shared_ptr<Bus>& bus, const std::string& service, const Qos& qos) {
  const std::lock_guard lock(hubs_mutex());
  for (const auto& hub : hubs())
    if (hub->bus == bus && hub->service == service && hub->qos == qos) {
      ++hub->users;
      return hub;
    }
  auto hub = std::make_shared<Hub>();
  hub->bus = bus;
  hub->service = service;
  hub->qos = qos;
  if (auto ok = hub->open(); !ok) return ok.error();
  hub->users = 1;
  hubs().push_back(hub);
  return hub;
}
/// Takes the pointer itself: a client may be destroyed within a callback of the hub, which must live until stop() ends.
void leave_hub(std::shared_ptr<Hub> hub) {  // NOLINT(performance-unnecessary-value-param)
  {
    const std::lock_guard lock(hubs_mutex());
    if (--hub->users) return;
    std::erase(hubs(), hub);
  }
  hub->stop();
}

Result<void> Hub::open() {
  auto w = bus->writer(service, request_type(), request_qos(qos, false));
  if (!w) return w.error();
  Qos replies = reply_qos(qos, bus->guid(), bus->caps());
  replies.depth = replies_depth;
  auto r = bus->reader(service + "_reply", reply_type(), replies);
  if (!r) return r.error();
  auto wait = bus->waiter();
  if (!wait) return wait.error();
  writer = std::move(*w), reader = std::move(*r), waiter = std::move(*wait);
  if (auto ok = waiter->attach(*reader, 1); !ok) return ok.error();
  thread = std::thread([self = shared_from_this()] { self->run(); });
  thread_id = thread.get_id();
  return {};
}

void Hub::stop() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
    wake();
  }
  if (std::this_thread::get_id() == thread_id)
    thread.detach();  // a `done` destroyed the last client; this thread keeps the hub alive until it ends
  else thread.join();
}

void Hub::register_call(const CallPtr& call) {
  CallPtr now;
  {
    const std::lock_guard lock(mutex);
    ClientCore& client = *call->client;
    call->number = ++client.last_call;
    ++client.calls, ++client.counts.calls;
    calls.emplace(std::pair{client.number, call->number}, call);
    if (client.closed) {
      finish(call, Error{"bus.closed", "service " + service + ": the client was closed during a call",
                         "end calls before their client"});
    } else if (waiting.size() >= most_waiting) {
      finish(call, Error{"bus.busy",
                         "service " + service + ": " + std::to_string(waiting.size()) +
                             " calls wait for their turn; allowed: up to " + std::to_string(most_waiting),
                         "let calls come back before others are started"});
    } else if (in_flight >= in_flight_of_hub || client.in_flight >= in_flight_of_client) {
      waiting.push_back(call);
      arm(*call, call->give_up_ns);
    } else {
      ++in_flight, ++client.in_flight;
      call->flying = true;
      now = call;
    }
  }
  if (now) send(now);
}

/// Whether one server, or every present server, has opened its writer of replies, which it does after a match with this
/// hub's writer.
bool Hub::has_ways_back(bool all) const {
  const auto servers = writer->matched(), replies = reader->matched();
  const auto has_one = [&](const Guid& server) {
    return std::any_of(replies.begin(), replies.end(), [&](const Guid& of) { return is_of(of, server); });
  };
  return all ? !servers.empty() && std::all_of(servers.begin(), servers.end(), has_one)
             : std::any_of(servers.begin(), servers.end(), has_one);
}

/// Waits until requests reach a server and its replies arrive. For a server that opens its writer of replies only at
/// the first request, it waits way_back_s.
bool Hub::wait_for_server(Deadline deadline) {
  for (;;) {
    if (writer->status().matched <= 0) met_ns = 0;
    if (!writer->wait_matched(1, deadline)) return false;
    std::int64_t none = 0;
    met_ns.compare_exchange_strong(none, now_ns());
    for (double pause_s = 1e-3; writer->status().matched > 0; pause_s = std::min(pause_s * 1.2, 1e-2)) {
      if (has_ways_back(false) || now_ns() > in_ns(met_ns, way_back_s)) return true;
      if (deadline.passed()) return false;
      sleep_until(now_s() + pause_s);
    }
  }
}

/// Writes a call's request, or schedules another attempt if there is no server yet. Call it without the lock.
void Hub::send(const CallPtr& call) {
  const std::int64_t now = now_ns();
  const bool there = writer->status().matched > 0;
  if (there && !warm && has_ways_back(true)) warm = true;
  RequestHeader header;
  const std::string partition = partition_of(bus->guid());
  {
    const std::lock_guard lock(mutex);
    if (call->finished) return;
    if (!there) return arm(*call, sooner(call->give_up_ns, in_ns(now, look_again_s)));
    if (call->tries++) ++call->client->counts.retried;
    if (call->retry_s > 0) {
      if (call->tries == 1) call->next_retry_s = warm ? call->retry_s : std::min(call->retry_s, cold_retry_s);
      arm(*call, sooner(call->give_up_ns, in_ns(now, call->next_retry_s)));
      call->next_retry_s *= 2;
    } else {
      arm(*call, call->give_up_ns);
    }
    header.attempt = static_cast<std::uint32_t>(call->tries);
  }
  header.client = bus->guid();
  header.number = call->number;
  header.client_number = call->client->number;
  header.left_ms = no_deadline;
  if (call->give_up_ns)
    header.left_ms =
        static_cast<std::uint32_t>(std::clamp<std::int64_t>((call->give_up_ns - now) / 1'000'000, 1, no_deadline - 1));
  header.partition = partition;
  header.target = call->target;
  header.body = call->body;
  thread_local std::vector<std::byte> payload;
  encode(header, payload);
  const auto sent = writer->write(payload);
  if (payload.capacity() > 1u << 20) std::vector<std::byte>().swap(payload);
  if (!sent && (sent.error().code != "bus.timed_out" || call->retry_s <= 0)) {
    const std::lock_guard lock(mutex);
    if (!call->finished) finish(call, sent.error());
  }
}

/// With the lock held. The hub's thread reports the result to the waiting thread.
void Hub::finish(const CallPtr& call, Result<std::vector<Answer>> result) {
  ClientCore& client = *call->client;
  call->finished = true;
  disarm(*call);
  calls.erase({client.number, call->number});
  if (call->flying) --in_flight, --client.in_flight;
  else std::erase(waiting, call);
  client.finished.push_back(call->number);
  const bool answered = bool(result) && !result->empty();
  if (!answered && (result || result.error().code == "bus.timed_out")) ++client.counts.timed_out;
  client.was_answered[call->number] = answered;
  if (client.finished.size() > finished_kept) {
    client.was_answered.erase(client.finished.front());
    client.finished.pop_front();
  }
  over.emplace_back(call, std::move(result));
  if (sleeps_until_ns >= 0) wake();
}

/// Refuses a call that was never registered.
void Hub::refuse(const CallPtr& call, Error why) {
  const std::lock_guard lock(mutex);
  ++call->client->calls;
  call->finished = true;
  over.emplace_back(call, std::move(why));
  if (sleeps_until_ns >= 0) wake();
}

Error Hub::timed_out(const Call& call) const {
  const auto matched = writer->status().matched;
  std::string what = "service " + service + (call.target.empty() ? "" : ", target " + shown(call.target, most_name)) +
                     ": no answer in time; the request was sent " + std::to_string(call.tries) +
                     (call.tries == 1 ? " time" : " times") + ", " + (matched > 0 ? std::to_string(matched) : "no") +
                     (matched == 1 ? " server is" : " servers are") + " there";
  if (call.client->counts.malformed)
    what += ", " + std::to_string(call.client->counts.malformed) + " answers to this client were malformed";
  return {"bus.timed_out", what,
          matched <= 0          ? "start a server of it in the same domain and partition, or correct the service's name"
          : call.target.empty() ? "raise deadline_s, or look why the server does not answer"
                                : "correct the target, or raise deadline_s"};
}

/// Collects waiting calls whose turn has come. With the lock held; the caller sends them.
void Hub::on_timers(std::vector<CallPtr>& to_send) {
  const std::int64_t now = now_ns();
  while (!timers.empty() && timers.begin()->first <= now) {
    Call& c = *timers.begin()->second;
    disarm(c);
    const CallPtr call = calls.at({c.client->number, c.number});
    if (c.give_up_ns && now >= c.give_up_ns) {
      if (c.all) finish(call, std::move(c.answers));
      else finish(call, timed_out(c));
    } else if (c.flying) {
      to_send.push_back(call);
    }
  }
  for (auto it = waiting.begin(); it != waiting.end() && in_flight < in_flight_of_hub;) {
    Call& c = **it;
    if (c.client->in_flight >= in_flight_of_client) {
      ++it;
      continue;
    }
    ++in_flight, ++c.client->in_flight;
    c.flying = true;
    to_send.push_back(*it);
    it = waiting.erase(it);
  }
}

/// With the lock held.
void Hub::on_reply(const SampleInfo& info, Bytes payload) {
  ReplyHeader header;
  if (!info.has_data || !decode(payload, header) || header.client != bus->guid()) return;
  const auto known = clients.find(header.client_number);
  if (known == clients.end()) return;  // the client is gone, or belongs to another hub
  ClientCore& client = *known->second;
  warm = true;
  const auto at = calls.find({client.number, header.number});
  if (at == calls.end()) {
    if (const auto past = client.was_answered.find(header.number); past != client.was_answered.end())
      ++(past->second ? client.counts.duplicate : client.counts.late);
    else ++(header.number && header.number <= client.last_call ? client.counts.late : client.counts.unasked);
    return;
  }
  const CallPtr call = at->second;
  if (!call->tries) {  // was never sent
    ++client.counts.unasked;
    return;
  }
  if (header.code == static_cast<std::uint32_t>(ReplyCode::ok) && client.checkers.reply &&
      !client.checkers.reply->verify(header.body)) {
    ++client.counts.malformed;
    return;
  }
  if (call->all &&
      std::find(call->answered_by.begin(), call->answered_by.end(), info.writer) != call->answered_by.end()) {
    ++client.counts.duplicate;
    return;
  }
  if (call->answers.empty()) ++client.counts.answered;
  Answer answer;
  answer.code = static_cast<ReplyCode>(header.code);
  answer.message = header.message;
  answer.server = header.server;
  answer.body.assign(header.body.begin(), header.body.end());
  answer.tries = call->tries;
  call->answered_by.push_back(info.writer);
  call->answers.push_back(std::move(answer));
  if (call->answers.size() >= call->most) finish(call, std::move(call->answers));
}

void Hub::run() {
  bool busy = false;
  std::vector<CallPtr> to_send;
  decltype(over) to_tell;
  for (;;) {
    std::int64_t until = 0;
    {
      const std::lock_guard lock(mutex);
      if (over.empty()) {
        until = busy ? in_ns(now_ns(), linger_s) : 0;
        if (!timers.empty()) until = sooner(until, timers.begin()->first);
        sleeps_until_ns = until;
      } else {
        until = 1;
      }
      if (stopping && over.empty()) return;
    }
    const bool samples = !waiter->wait(Deadline{until}).empty();
    busy = samples;
    try {
      if (samples) {
        const std::lock_guard lock(mutex);
        sleeps_until_ns = -1;
        reader->take([&](const SampleInfo& info, Bytes payload) { on_reply(info, payload); });
      }
      {
        const std::lock_guard lock(mutex);
        sleeps_until_ns = -1;
        on_timers(to_send);
      }
      for (const auto& call : to_send) send(call);
      to_send.clear();
      for (;;) {
        {
          const std::lock_guard lock(mutex);
          to_tell.swap(over);
        }
        if (to_tell.empty()) break;
        busy = true;
        for (auto& [call, result] : to_tell) {
          try {
            call->done(std::move(result));
          } catch (...) {
            // An exception of a callback must not end the thread that other calls need.
          }
          const std::lock_guard lock(mutex);
          if (--call->client->calls == 0 && call->client->closed) emptied.notify_all();
        }
        to_tell.clear();
      }
    } catch (...) {
      to_send.clear();  // no memory: the timers send these requests again
      sleep_until(now_s() + 0.01);
    }
  }
}

class ClientOfHub final : public Client {
 public:
  ClientOfHub(std::shared_ptr<Hub> hub, const ServiceTypes& types)
      : hub_(std::move(hub)), core_(std::make_shared<ClientCore>(types)) {
    static std::atomic<std::uint32_t> clients{0};
    core_->number = ++clients;
    const std::lock_guard lock(hub_->mutex);
    hub_->clients.emplace(core_->number, core_);
  }
  ~ClientOfHub() override {
    {
      std::unique_lock lock(hub_->mutex);
      core_->closed = true;
      std::vector<CallPtr> mine;
      for (auto it = hub_->calls.lower_bound({core_->number, 0});
           it != hub_->calls.end() && it->first.first == core_->number; ++it)
        mine.push_back(it->second);
      for (const auto& call : mine)
        hub_->finish(call, Error{"bus.closed", "service " + hub_->service + ": the client was closed during a call",
                                 "end calls before their client"});
      hub_->clients.erase(core_->number);
      // Inside a `done`, the hub's thread cannot wait for itself; it reports the other calls afterwards.
      if (std::this_thread::get_id() != hub_->thread_id) hub_->emptied.wait(lock, [&] { return core_->calls == 0; });
    }
    leave_hub(std::move(hub_));
  }

  Result<Answer> call(Bytes body, const CallOptions& options) override {
    auto answers = wait_for(body, options, false, 1);
    if (!answers) return answers.error();
    return std::move(answers->front());
  }
  Result<std::vector<Answer>> call_all(Bytes body, const CallOptions& options, std::size_t most) override {
    if (!most) return std::vector<Answer>{};
    return wait_for(body, options, true, most);
  }
  void start(Bytes body, const CallOptions& options, std::function<void(Result<Answer>)> done) override {
    const CallPtr call = make(options, [done = std::move(done)](Result<std::vector<Answer>> answers) {
      if (!answers) done(answers.error());
      else done(std::move(answers->front()));
    });
    if (auto ok = check(body, options); !ok) return hub_->refuse(call, ok.error());
    call->body.assign(body.begin(), body.end());
    hub_->register_call(call);
  }
  bool wait_for_server(Deadline deadline) override { return hub_->wait_for_server(deadline); }
  CallCounts counts() const override {
    const std::lock_guard lock(hub_->mutex);
    return core_->counts;
  }

 private:
  CallPtr make(const CallOptions& options, std::function<void(Result<std::vector<Answer>>)> done) {
    auto call = std::make_shared<Call>();
    call->client = core_;
    call->done = std::move(done);
    call->target = options.target;
    call->retry_s = options.retry_s > 0 ? std::clamp(options.retry_s, 1e-3, 1e9) : 0;
    const std::int64_t now = now_ns();
    call->give_up_ns = options.deadline_s > 0 ? in_ns(now, options.deadline_s) : now;
    return call;
  }
  Result<void> check(Bytes body, const CallOptions& options) const {
    const auto malformed = [&](const std::string& what, std::string hint) {
      return Error{"bus.malformed", "service " + hub_->service + ": " + what, std::move(hint)};
    };
    if (options.target.size() > most_name || options.target.find('\0') != std::string::npos)
      return malformed("the target " + shown(options.target) + " has " + std::to_string(options.target.size()) +
                           " B; allowed: up to " + std::to_string(most_name) + ", no NUL",
                       "give a server's name, or a pattern of it");
    if (const auto& checker = core_->checkers.request) {
      std::string why;
      if (!checker->verify(body, &why))
        return malformed("the request is no " + checker->type()->name + ": " + why,
                         "encode it by typed.hpp or value.hpp from that type");
    }
    if (body.size() > most_body)
      return Error{"bus.too_large",
                   "service " + hub_->service + ": a request of " + std::to_string(body.size()) +
                       " B; allowed: up to " + std::to_string(most_body),
                   "send it in pieces"};
    return {};
  }
  Result<std::vector<Answer>> wait_for(Bytes body, const CallOptions& options, bool all, std::size_t most) {
    if (auto ok = check(body, options); !ok) return ok.error();
    if (std::this_thread::get_id() == hub_->thread_id)
      return Error{"bus.would_wait",
                   "service " + hub_->service + ": a call within a `done` would wait for the thread that it is in",
                   "start() the next call there"};
    struct {
      std::mutex mutex;
      std::condition_variable told;
      std::optional<Result<std::vector<Answer>>> result;
    } state;
    const CallPtr call = make(options, [&state](Result<std::vector<Answer>> result) {
      const std::lock_guard lock(state.mutex);
      state.result.emplace(std::move(result));
      state.told.notify_one();
    });
    call->body.assign(body.begin(), body.end());
    call->all = all;
    call->most = most;
    hub_->register_call(call);
    std::unique_lock lock(state.mutex);
    state.told.wait(lock, [&] { return state.result.has_value(); });
    return std::move(state.result).value();
  }

  std::shared_ptr<Hub> hub_;
  std::shared_ptr<ClientCore> core_;
};

// ---- servers

struct Remembered {
  bool done = false;
  std::shared_ptr<const std::vector<std::byte>> reply;
};

/// The state of one Client in a server.
struct ClientMemory {
  std::map<std::uint64_t, Remembered> calls;
  std::deque<std::uint64_t> done;  ///< in the order of their replies
  std::uint64_t forgotten = 0;     ///< the highest number whose reply was removed
  std::uint64_t used = 0;          ///< last use, counted in requests of the server
  std::size_t under_way = 0;
};

/// The state of one participant of clients in a server.
struct ClientParticipant {
  std::shared_ptr<Writer> writer;
  std::map<std::uint32_t, ClientMemory> clients;
  std::uint64_t used = 0;
  std::size_t under_way = 0;
  std::int64_t unmatched_since_ns = 0;  ///< 0: matched
  std::int64_t stuck_until_ns =
      0;  ///< it took no reply within max_blocking: no thread waits for it again before this time
};

class ServerOfBus final : public Server {
 public:
  ServerOfBus(std::shared_ptr<Bus> bus, const std::string& service, const ServiceTypes& types, Handler handler,
              const ServerOptions& options, const Qos& qos)
      : bus_(std::move(bus)),
        service_(service),
        checkers_(types),
        handler_(std::move(handler)),
        options_(options),
        qos_(qos) {}
  ~ServerOfBus() override;
  Result<void> open();
  ServeCounts counts() const override;

 private:
  struct Job {
    Guid client;
    std::uint32_t client_number = 0;
    std::uint64_t number = 0;
    std::string target;
    std::vector<std::byte> body;
    Deadline deadline;
    bool repeated = false;
  };

  void take_requests();
  void meet_clients();
  void on_request(const SampleInfo& info, Bytes payload);
  void handle_jobs();
  Answer answer_to(const Job& job);
  void maintain();
  ClientParticipant* participant(const Guid& client, std::unique_lock<std::mutex>& lock);
  ClientMemory* memory(ClientParticipant& of, std::uint32_t number);
  void remember(const Job& job, std::shared_ptr<const std::vector<std::byte>> reply);
  void forget(ClientMemory& of, std::uint64_t number);
  void forget_oldest();
  void send(const Guid& client, const std::vector<std::byte>& reply);
  void answer_now(const Job& job, ReplyCode code, std::string_view message);
  std::shared_ptr<std::vector<std::byte>> encoded(const Job& job, const Answer& answer) const;

  std::shared_ptr<Bus> bus_;
  std::string service_;
  const ServiceCheckers checkers_;
  Handler handler_;
  ServerOptions options_;
  Qos qos_;
  std::unique_ptr<Reader> reader_;
  std::unique_ptr<Waiter> waiter_;
  std::thread taker_;
  std::vector<std::thread> threads_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> queue_;
  std::map<Guid, ClientParticipant> participants_;
  std::size_t remembered_bytes_ = 0;
  std::uint64_t clock_ = 0;  ///< requests so far, as a clock for the last use
  ServeCounts counts_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> matches_changed_{true};
  bool is_told_of_matches_ = false;
  std::int64_t maintained_ns_ = 0;  ///< used only by the taker, like the next one
  std::set<Guid> heard_;            ///< the matched writers of requests at the last check
};

Result<void> ServerOfBus::open() {
  auto reader = bus_->reader(service_, request_type(), request_qos(qos_, true));
  if (!reader) return reader.error();
  auto waiter = bus_->waiter();
  if (!waiter) return waiter.error();
  reader_ = std::move(*reader), waiter_ = std::move(*waiter);
  if (auto ok = waiter_->attach(*reader_, 1); !ok) return ok.error();
  is_told_of_matches_ = reader_->on_match([this] {
    matches_changed_ = true;
    waiter_->wake();
  });
  for (unsigned k = 0; k < std::max(1u, options_.threads); ++k) threads_.emplace_back([this] { handle_jobs(); });
  taker_ = std::thread([this] { take_requests(); });
  return {};
}

ServerOfBus::~ServerOfBus() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    wake_.notify_all();
  }
  if (reader_) reader_->on_match({});
  if (waiter_) waiter_->wake();
  if (taker_.joinable()) taker_.join();
  for (auto& thread : threads_) thread.join();
  // The last reply must be sent before its writer closes.
  const Deadline linger = Deadline::in_s(0.5);
  for (auto& [guid, of] : participants_)
    if (of.writer && of.writer->status().matched > 0 && !of.stuck_until_ns) of.writer->wait_acknowledged(linger);
}

ServeCounts ServerOfBus::counts() const {
  const Counts samples = reader_->counts();
  const std::lock_guard lock(mutex_);
  ServeCounts counts = counts_;
  counts.malformed += samples.malformed + samples.too_large + samples.other_type;
  counts.clients = 0;
  for (const auto& [guid, of] : participants_) counts.clients += of.clients.size();
  return counts;
}

void ServerOfBus::take_requests() {
  while (!closing_) {
    try {
      if (matches_changed_.exchange(false) || !is_told_of_matches_) meet_clients();
    } catch (...) {
      // No memory: the caller gets this error.
    }
    bool idle;
    {
      const std::lock_guard lock(mutex_);
      idle = participants_.empty();
    }
    const Deadline next = !is_told_of_matches_ ? Deadline::in_s(look_for_clients_s)
                          : idle               ? Deadline{}
                                               : Deadline::in_s(1);
    const bool samples = !waiter_->wait(next).empty();
    try {
      if (samples) reader_->take([&](const SampleInfo& info, Bytes payload) { on_request(info, payload); });
      if (now_ns() - maintained_ns_ > 1'000'000'000) maintain();
    } catch (...) {
      sleep_until(now_s() + 0.01);  // no memory: the client of a lost request sends it again
    }
  }
}

/// Opens the writer of replies for each new participant in advance, because this and the match take longer than most
/// requests.
void ServerOfBus::meet_clients() {
  std::set<Guid> heard;
  for (const Guid& writer : reader_->matched()) heard.insert(writer);
  for (const Guid& writer : heard) {
    if (heard_.contains(writer)) continue;
    Guid client = bus_->guid();  // the last four bytes are the same for all participants
    std::copy_n(writer.bytes.begin(), 12, client.bytes.begin());
    std::unique_lock lock(mutex_);
    if (participants_.size() < most_participants) (void)participant(client, lock);
  }
  heard_.swap(heard);
}

void ServerOfBus::on_request(const SampleInfo& info, Bytes payload) {
  if (!info.has_data) return;
  RequestHeader header;
  // A request with a forged client would send answers to that participant and fill its memory.
  const bool sound = decode(payload, header) && header.partition == partition_of(header.client) &&
                     is_of(info.writer, header.client) && header.number && header.attempt;
  std::unique_lock lock(mutex_);
  ++counts_.requests;
  if (!sound) {
    ++counts_.malformed;
    return;
  }
  if (!header.target.empty() && !fits(header.target, options_.name)) {
    ++counts_.not_for_us;
    return;
  }
  ++clock_;
  Job job{header.client, header.client_number, header.number, std::string(header.target), {}, {}, false};
  if (header.left_ms != no_deadline) job.deadline = Deadline{now_ns() + std::int64_t{header.left_ms} * 1'000'000};
  ClientParticipant* of = participant(header.client, lock);
  ClientMemory* client = of ? memory(*of, header.client_number) : nullptr;
  if (!client) {
    ++counts_.busy;  // all remembered clients have requests in progress: this one asks again later
    return;
  }
  if (const auto known = client->calls.find(header.number); known != client->calls.end()) {
    ++counts_.repeated;
    if (const auto reply = known->second.reply) {
      lock.unlock();
      send(header.client, *reply);
    }
    return;
  }
  if (!header.left_ms) {
    ++counts_.expired;
    return;
  }
  if (checkers_.request && !checkers_.request->verify(header.body)) {
    ++counts_.malformed;
    lock.unlock();
    std::string why;
    (void)checkers_.request->verify(header.body, &why);
    return answer_now(job, ReplyCode::bad_request, "the request is no " + checkers_.request->type()->name + ": " + why);
  }
  if (queue_.size() >= options_.queue) {
    ++counts_.busy;
    const std::size_t waiting = queue_.size();
    lock.unlock();
    return answer_now(job, ReplyCode::busy, std::to_string(waiting) + " requests wait already");
  }
  job.repeated = header.attempt > 1 && header.number <= client->forgotten;
  job.body.assign(header.body.begin(), header.body.end());
  client->calls.emplace(header.number, Remembered{});
  ++client->under_way, ++of->under_way;
  queue_.push_back(std::move(job));
  wake_.notify_one();
}

void ServerOfBus::handle_jobs() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      job = std::move(queue_.front());
      queue_.pop_front();
    }
    std::shared_ptr<std::vector<std::byte>> reply;
    const bool expired = job.deadline.passed();
    if (!expired) {
      const Answer answer = closing_ ? Answer{ReplyCode::closing, "the server ends", {}, {}, 1} : answer_to(job);
      try {
        reply = encoded(job, answer);
      } catch (...) {
        // No memory for the request: the client asks again.
      }
    }
    {
      const std::lock_guard lock(mutex_);
      if (expired) ++counts_.expired;
      if (reply) ++counts_.answered;
      remember(job, reply);
    }
    if (reply) send(job.client, *reply);
  }
}

Answer ServerOfBus::answer_to(const Job& job) {
  const auto failed = [&](std::string message) {
    const std::lock_guard lock(mutex_);
    ++counts_.failed;
    return Answer{ReplyCode::failed, std::move(message), {}, {}, 1};
  };
  try {
    Answer answer = handler_(Incoming{job.body, job.client, job.target, job.number, job.deadline, job.repeated});
    if (answer.code == ReplyCode::ok && checkers_.reply) {
      std::string why;
      if (!checkers_.reply->verify(answer.body, &why))
        return failed("the server's answer is no " + checkers_.reply->type()->name + ": " + why);
    }
    if (answer.body.size() > most_body)
      return failed("the server's answer has " + std::to_string(answer.body.size()) + " B; allowed: up to " +
                    std::to_string(most_body));
    return answer;
  } catch (...) {
    return failed(text_of_exception());
  }
}

std::shared_ptr<std::vector<std::byte>> ServerOfBus::encoded(const Job& job, const Answer& answer) const {
  ReplyHeader header;
  header.client = job.client;
  header.number = job.number;
  header.client_number = job.client_number;
  header.code = static_cast<std::uint32_t>(answer.code);
  header.server = options_.name;
  header.message = fitting(answer.message, most_message);
  header.body = answer.body;
  auto reply = std::make_shared<std::vector<std::byte>>();
  encode(header, *reply);
  return reply;
}

/// Sends an answer without storing it: a repeated request may get another answer.
void ServerOfBus::answer_now(const Job& job, ReplyCode code, std::string_view message) {
  Answer answer;
  answer.code = code;
  answer.message = message;
  send(job.client, *encoded(job, answer));
}

void ServerOfBus::send(const Guid& client, const std::vector<std::byte>& reply) {
  std::shared_ptr<Writer> writer;
  {
    const std::lock_guard lock(mutex_);
    const auto of = participants_.find(client);
    if (of == participants_.end() || !of->second.writer) return;
    if (of->second.stuck_until_ns > now_ns()) return;  // the reply is stored, and the client asks again
    of->second.stuck_until_ns = 0;
    writer = of->second.writer;
  }
  if (writer->write(reply)) return;
  const std::lock_guard lock(mutex_);
  ++counts_.failed;
  if (const auto of = participants_.find(client); of != participants_.end())
    of->second.stuck_until_ns = in_ns(now_ns(), 1);
}

// Call the next four functions with the lock held.

ClientParticipant* ServerOfBus::participant(const Guid& client, std::unique_lock<std::mutex>& lock) {
  const auto known = participants_.find(client);
  if (known != participants_.end()) {
    known->second.used = clock_;
    return &known->second;
  }
  std::shared_ptr<Writer> let_go;
  if (participants_.size() >= most_participants) {
    auto oldest = participants_.end();
    for (auto it = participants_.begin(); it != participants_.end(); ++it)
      if (!it->second.under_way && (oldest == participants_.end() || it->second.used < oldest->second.used))
        oldest = it;
    if (oldest == participants_.end()) return nullptr;
    for (auto& [number, of] : oldest->second.clients)
      while (!of.done.empty()) forget(of, of.done.front());
    let_go = std::move(oldest->second.writer);
    participants_.erase(oldest);
  }
  // Only the taker adds and removes participants, so nothing changes here meanwhile.
  lock.unlock();
  let_go.reset();
  auto writer = bus_->writer(service_ + "_reply", reply_type(), reply_qos(qos_, client, bus_->caps()));
  lock.lock();
  if (!writer) {
    ++counts_.failed;
    return nullptr;
  }
  ClientParticipant& of = participants_[client];
  of.writer = std::move(*writer);
  of.used = clock_;
  of.unmatched_since_ns = now_ns();
  return &of;
}

ClientMemory* ServerOfBus::memory(ClientParticipant& of, std::uint32_t number) {
  if (of.clients.size() >= most_clients && !of.clients.contains(number)) {
    auto oldest = of.clients.end();
    for (auto it = of.clients.begin(); it != of.clients.end(); ++it)
      if (!it->second.under_way && (oldest == of.clients.end() || it->second.used < oldest->second.used)) oldest = it;
    if (oldest == of.clients.end()) return nullptr;
    while (!oldest->second.done.empty()) forget(oldest->second, oldest->second.done.front());
    of.clients.erase(oldest);
  }
  ClientMemory& client = of.clients[number];
  client.used = clock_;
  return &client;
}

void ServerOfBus::forget(ClientMemory& of, std::uint64_t number) {
  const auto call = of.calls.find(number);
  remembered_bytes_ -= call->second.reply ? call->second.reply->size() : 0;
  of.calls.erase(call);
  std::erase(of.done, number);
  of.forgotten = std::max(of.forgotten, number);
}

void ServerOfBus::remember(const Job& job, std::shared_ptr<const std::vector<std::byte>> reply) {
  const auto participant = participants_.find(job.client);
  if (participant == participants_.end()) return;
  const auto client = participant->second.clients.find(job.client_number);
  if (client == participant->second.clients.end()) return;
  --participant->second.under_way, --client->second.under_way;
  const auto call = client->second.calls.find(job.number);
  if (call == client->second.calls.end()) return;
  if (!reply || !options_.remembered) {
    client->second.calls.erase(call);
    return;
  }
  call->second.done = true;
  call->second.reply = std::move(reply);
  remembered_bytes_ += call->second.reply->size();
  client->second.done.push_back(job.number);
  while (client->second.done.size() > options_.remembered) forget(client->second, client->second.done.front());
  if (remembered_bytes_ > most_remembered_bytes) forget_oldest();
}

/// Forgets replies of the least recently active client, until the rest fits.
void ServerOfBus::forget_oldest() {
  while (remembered_bytes_ > most_remembered_bytes) {
    ClientMemory* oldest = nullptr;
    for (auto& [guid, of] : participants_)
      for (auto& [number, client] : of.clients)
        if (!client.done.empty() && (!oldest || client.used < oldest->used)) oldest = &client;
    if (!oldest) return;
    forget(*oldest, oldest->done.front());
  }
}

/// Forgets participants that are gone, and closes their writers.
void ServerOfBus::maintain() {
  const std::int64_t now = maintained_ns_ = now_ns();
  std::vector<std::shared_ptr<Writer>> let_go;
  std::vector<std::pair<Guid, std::shared_ptr<Writer>>> there;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [guid, of] : participants_) there.emplace_back(guid, of.writer);
  }
  for (const auto& [guid, writer] : there) {
    const bool matched = writer->status().matched > 0;
    const std::lock_guard lock(mutex_);
    ClientParticipant& of = participants_.at(guid);
    if (matched) of.unmatched_since_ns = 0;
    else if (!of.unmatched_since_ns) of.unmatched_since_ns = now;
    else if (now > in_ns(of.unmatched_since_ns, grace_s) && !of.under_way) {
      for (auto& [number, client] : of.clients)
        while (!client.done.empty()) forget(client, client.done.front());
      let_go.push_back(std::move(of.writer));
      participants_.erase(guid);
    }
  }
}

}  // namespace

std::string_view name_of(ReplyCode code) {
  switch (code) {
    case ReplyCode::ok: return "ok";
    case ReplyCode::bad_request: return "bad_request";
    case ReplyCode::denied: return "denied";
    case ReplyCode::not_found: return "not_found";
    case ReplyCode::busy: return "busy";
    case ReplyCode::failed: return "failed";
    case ReplyCode::expired: return "expired";
    case ReplyCode::unsupported: return "unsupported";
    case ReplyCode::closing: return "closing";
  }
  return static_cast<std::uint32_t>(code) >= 1000 ? "user" : "unknown";
}

TypePtr request_type() {
  static const TypePtr type =
      structure("sonde::bus::Request", {{"client", array_of(primitive(Kind::octet), 16), false, {}},
                                        {"number", primitive(Kind::uint64), false, {}},
                                        {"client_number", primitive(Kind::uint32), false, {}},
                                        {"left_ms", primitive(Kind::uint32), false, {}},
                                        {"attempt", primitive(Kind::uint32), false, {}},
                                        {"reply_partition", string_type(most_partition), false, {}},
                                        {"target", string_type(most_name), false, {}},
                                        {"body", sequence_of(primitive(Kind::octet)), false, {}}});
  return type;
}

TypePtr reply_type() {
  static const TypePtr type =
      structure("sonde::bus::Reply", {{"client", array_of(primitive(Kind::octet), 16), false, {}},
                                      {"number", primitive(Kind::uint64), false, {}},
                                      {"client_number", primitive(Kind::uint32), false, {}},
                                      {"code", primitive(Kind::uint32), false, {}},
                                      {"server", string_type(most_name), false, {}},
                                      {"message", string_type(most_message), false, {}},
                                      {"body", sequence_of(primitive(Kind::octet)), false, {}}});
  return type;
}

Result<std::unique_ptr<Client>> Client::open(const std::shared_ptr<Bus>& bus, const std::string& service,
                                             const ServiceTypes& types, const Qos& qos) {
  if (auto ok = ServiceCheckers::possible(service, types); !ok) return ok.error();
  auto hub = join_hub(bus, service, qos);
  if (!hub) return hub.error();
  return std::unique_ptr<Client>(std::make_unique<ClientOfHub>(std::move(*hub), types));
}

Result<std::unique_ptr<Server>> Server::open(std::shared_ptr<Bus> bus, const std::string& service,
                                             const ServiceTypes& types, Handler handler, const ServerOptions& options,
                                             const Qos& qos) {
  if (options.name.size() > most_name || options.name.find('\0') != std::string::npos)
    return Error{"bus.bad_name",
                 "a server of " + service + " is called " + shown(options.name) + ", which has " +
                     std::to_string(options.name.size()) + " B; allowed: up to " + std::to_string(most_name) +
                     ", no NUL",
                 "take a shorter name: clients compare targets with it"};
  if (auto ok = ServiceCheckers::possible(service, types); !ok) return ok.error();
  auto server = std::make_unique<ServerOfBus>(std::move(bus), service, types, std::move(handler), options, qos);
  if (auto ok = server->open(); !ok) return ok.error();
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace sonde::bus
