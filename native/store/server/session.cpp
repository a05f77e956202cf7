#include "store/server/session.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "core/clock.hpp"
#include "core/units.hpp"
#include "store/auth.hpp"
#include "store/guard.hpp"
#include "store/server/session_parts.hpp"

namespace sonde::store {

namespace {

constexpr std::size_t backlog_low = 1u << 20;
constexpr std::size_t queued_max = 8u << 20;  ///< frames of one connection that wait for a backend
constexpr std::size_t turn_arena_bytes = 256u << 10;
constexpr std::size_t share_step = 64u << 10;  ///< step by which a connection's share of the memory for clients grows

/// Limit before the welcome: enough for a hello and a MUNGE credential.
constexpr std::size_t entry_frame_bytes = 4096;

/// Bytes stored for an unfinished batch: its client's names and data, and the bookkeeping.
constexpr std::size_t held_max = limit::atomic_batch_bytes + (1u << 20);

constexpr std::uint64_t slowest_bytes_s = 64u << 10;  // a message that arrives more slowly is refused

/// The longest time for which a batch of tables may block its reactor; then it starts again in its lane.
constexpr std::int64_t table_turn_ns = 5'000'000;

/// A batch of keys or rows with more than this goes to its lane at once.
constexpr std::size_t batch_turn_bytes = 1u << 20;

constexpr std::uint32_t batch_turn_ops = 1024;

bool writes(Code code) {
  switch (code) {
    case Code::object_read:
    case Code::object_status:
    case Code::object_list:
    case Code::kv_get:
    case Code::kv_scan:
    case Code::db_describe:
    case Code::db_query: return false;
    default: return true;
  }
}

std::string words(const Error& e) { return wire::encode_text({{"code", e.code}, {"what", e.what}, {"hint", e.hint}}); }

}  // namespace

void Message::clear() {
  header = {};
  parts = part_out = data = 0;
  arrived_ns = 0;
  wait_ns = -1;
  backend_ns = 0;
  sync_all = queued = complete = false;
  refused = Status::ok;
  answers.clear();
  segments.clear();
  arena.reset();
  failed = 0;
  held.clear();
  if (held.capacity() > wire::frame_ops_max) std::vector<std::unique_ptr<Held>>().swap(held);
  held_bytes = 0;
}

Session::Session(Reactor& reactor, int fd, std::uint64_t place)
    : reactor_(reactor), server_(reactor.server()), since_ns_(now_ns()), place_(place), share_(server_.budget()) {
  tcp_ = std::make_unique<TcpLink>(fd, server_.config().link, *this);  // takes the socket: nothing may throw from here
  tcp_->limit_frames(entry_frame_bytes);
  if (const std::string& tls = server_.config().tls; tls != "off") tcp_->offer_tls(server_.token(), tls == "require");
  link_ = tcp_.get();
  ++server_.metrics().connections;
  ++server_.metrics().connections_ever;
  (void)share_.hold(entry_bytes);  // there was room as it was accepted
}

Session::~Session() {
  server_.gate().leave(place_);
  --server_.metrics().connections;
}

Error Session::no_room(const Budget& budget) {
  return {"store.unavailable",
          "the server uses " + format_size(budget.used()) + " of memory for its clients, of at most " +
              format_size(budget.max()) + ", and has no room for more",
          "send less at once, or try again in a moment; or start it with more: --client-memory"};
}

std::size_t Session::holds() const {
  std::size_t bytes = entry_bytes + tcp_->room_in() + link_->backlog() + queued_bytes_;
  if (own_link_) bytes += tcp_->backlog();
  if (message_) bytes += message_->held_bytes;
  for (const Job& job : jobs_) bytes += job.frame->bytes();
  for (const auto& arena : arenas_)
    if (arena.use_count() == 1) bytes += arena->used();
  return bytes;
}

bool Session::has_room(std::size_t more) {
  // In steps, so that small requests need no access to data that all threads share.
  const auto whole = [&] {
    const std::size_t bytes = holds() + more;
    return state_ == State::ready ? (bytes + share_step - 1) / share_step * share_step : bytes;
  };
  if (share_.hold(whole())) return true;
  arenas_.clear();  // memory for answers to come
  if (share_.hold(whole())) return true;
  refuse(no_room(server_.budget()), false);
  return false;
}

std::uint32_t Session::events() const {
  const short wanted = link_ == tcp_.get() ? tcp_->wait_events() : POLLIN;
  return (wanted & POLLIN ? EPOLLIN : 0u) | (wanted & POLLOUT ? EPOLLOUT : 0u);
}

bool Session::arm() {
  if (!armed_) armed_ = !alive_ || !own_link_ || own_link_->arm();
  return armed_;
}

bool Session::ready() {
  armed_ = false;
  bool came = false;
  for (bool again = true; again && alive_ && !upgrading_;) {
    came |= link_->progress() > 0;
    if (alive_ && control_ && !control_->heard()) closed(*tcp_, nullptr);
    if (!alive_ || upgrading_) return came;
    pump();
    if (!alive_) return came;
    // A client that does not read its answers gets no more until it does. Frames that were received meanwhile are in
    // the link, and no event will report them.
    const bool full = link_->backlog() > backlog_max || queued_bytes_ > queued_max || !jobs_.empty();
    again = !full && !receiving_;
    receiving_ = !full;
    link_->receive(receiving_);
  }
  turn_arena_.reset();
  if (!alive_ || upgrading_) return came;
  flush();
  if (!alive_ || !has_room(0)) return came;
  if (receiving_ && link_ == tcp_.get() && tcp_->undelivered()) soon();  // after the others: no event would report it
  // This may have emptied the queue that made it wait: no event would report it.
  if (!receiving_ && queued_bytes_ <= queued_max && link_->backlog() < backlog_low) soon();
  reactor_.watch(*this);  // for every caller: data that could not be sent now need an event when they can be sent
  return came;
}

void Session::pump() {
  while (alive_ && !jobs_.empty() && link_->backlog() < backlog_low) {
    Job& job = jobs_.front();
    const auto message = job.message;
    bool ended = false;
    trace::call(sonde_store_later, trace::unknown, number_of(*message), [&] {
      ended = run_data(
          *message, job.frame->records, job.frame->data, job.position, scratch_,
          [this](Outgoing out) { reply(std::move(out)); }, true);
    });
    if (!ended) {
      // Its turn is over, even if the client reads all its answers: other clients are served first.
      flush();
      if (link_->backlog() < backlog_low) soon();
      break;
    }
    jobs_.pop_front();
    finish_frame(message);
  }
}

void Session::soon() {
  if (std::exchange(posted_, true)) return;
  reactor_.post(shared_from_this(), [this] {
    posted_ = false;
    if (alive_) ready();
  });
}

void Session::goodbye() {
  if (!alive_) return;
  tcp_->send(plain_frame(wire::Kind::goodbye, bytes_of(words({"store.unavailable", "the server is shutting down",
                                                              "connect again when it is back"}))));
  tcp_->flush();
  alive_ = false;
  reactor_.drop(*this);
}

void Session::end_broken(const char* what) noexcept {
  if (!alive_) return;
  alive_ = false;
  server_.metrics().dropped.fetch_add(1, std::memory_order_relaxed);
  try {
    const Error why{"store.unavailable", std::string("the server cannot continue this connection: ") + what,
                    "connect again; see the server's log"};
    server_.failed("the connection of " + (state_ == State::ready ? client_ : tcp_->peer_host()) + " ended: " + what);
    tcp_->send(plain_frame(wire::Kind::goodbye, bytes_of(words(why))));
    tcp_->flush();
  } catch (...) {
    lost_ = true;  // it ends without a message
  }
  reactor_.drop(*this);
}

void Session::broke() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    end_broken("out of memory");
  } catch (const std::exception& e) {
    end_broken(e.what());
  } catch (...) {
    end_broken("an exception of an unknown type");
  }
}

void Session::lose() noexcept {
  lost_ = true;
  reactor_.drop_lost();
}

void Session::drop_lost() noexcept {
  if (upgrading_ && !link_lost_) return;  // its link is another thread's; look_after() comes back to it
  upgrading_ = false;
  end_broken("out of memory");
}

bool Session::overdue(const Begun& begun, std::int64_t now) const {
  const double allowed_s = server_.config().message_timeout_s +
                           static_cast<double>(received() - begun.received) / static_cast<double>(slowest_bytes_s);
  return static_cast<double>(now - begun.since_ns) * 1e-9 > allowed_s;
}

void Session::look_after(std::int64_t now) {
  if (!alive_ || upgrading_) return;
  if (lost()) return drop_lost();
  if (state_ != State::ready) {
    const double allowed_s = server_.config().hello_timeout_s;
    if (static_cast<double>(now - since_ns_) * 1e-9 <= allowed_s) return;
    if (state_ == State::checking)
      refuse({"store.no_munge", "MUNGE on the server's host did not answer within " + format_duration(allowed_s),
              "see munged there, then connect again"},
             false);
    else
      refuse({"store.timed_out", "the client did not prove its identity within " + format_duration(allowed_s),
              "connect again; the network or this host may be very busy"},
             false);
    return;
  }
  if (!receiving_) {  // this side has stopped reading
    message_begun_ = {now, received(), frames_};
    frame_begun_ = {};
    return;
  }
  if (!tcp_->partial()) frame_begun_ = {};
  else if (frame_begun_.since_ns == 0 || frame_begun_.frames != frames_) frame_begun_ = {now, received(), frames_};
  if ((message_ && overdue(message_begun_, now)) || (frame_begun_.since_ns && overdue(frame_begun_, now)))
    refuse({"store.bad_frame",
            "a message was not complete within " + format_duration(server_.config().message_timeout_s) +
                " and one more second for each 64 KiB of it",
            "check what delays the client or the network"},
           true);
}

void Session::failed(const Error& error) {
  if (state_ == State::ready) {
    server_.metrics().failed(client_ + ": " + error.what);
  } else {
    const std::string host = tcp_->peer_host();
    server_.metrics().turned_away(host.empty() ? "this host" : host, error.code);
  }
}

void Session::refuse(const Error& error, bool fault) {
  if (!alive_) return;
  ++(fault ? server_.metrics().bad_frames : server_.metrics().refused);
  failed(error);
  tcp_->send(plain_frame(fault ? wire::Kind::fault : wire::Kind::goodbye, bytes_of(words(error))));
  tcp_->flush();
  alive_ = false;
  reactor_.drop(*this);
}

void Session::closed(Link&, const Error* error) {
  if (!alive_) return;
  if (error && error->code == "store.bad_frame") {
    ++server_.metrics().bad_frames;
    failed(*error);
  } else if (error && error->code == "store.denied") {  // by TLS
    ++server_.metrics().refused;
    failed(*error);
  }
  alive_ = false;
  reactor_.drop(*this);
}

void Session::frame(Link&, const wire::Header& h, Bytes table, Bytes data, bool) {
  if (!alive_) return;
  server_.metrics().frames.fetch_add(1, std::memory_order_relaxed);
  ++frames_;
  if (own_link_) received_ += wire::header_bytes + table.size() + data.size();
  using wire::Kind;
  if (state_ != State::ready && h.kind != Kind::hello && h.kind != Kind::proof && h.kind != Kind::goodbye &&
      h.kind != Kind::fault)
    return refuse({"store.bad_frame",
                   (h.kind == Kind::request ? std::string("a request")
                                            : "a frame of kind " + std::to_string(static_cast<int>(h.kind))) +
                       " before the connection was welcomed",
                   "both sides must run the same version of Sonde"},
                  true);
  if (h.kind == Kind::request) return request(h, table, data);
  if (h.body_crc != wire::crc32c(data))
    return refuse({"store.bad_frame", "a frame's checksum is wrong", "check the network between client and server"},
                  true);
  switch (h.kind) {
    case wire::Kind::hello: {
      if (state_ != State::hello) break;
      return hello(wire::decode_text(data));
    }
    case wire::Kind::proof:
      if (state_ != State::proof) break;
      return proof(wire::decode_text(data));
    case wire::Kind::ping:
      if (state_ != State::ready) break;
      pings_.push_back(h.id);
      if (pings_.size() > 64) return refuse({"store.bad_frame", "too many pings at once", ""}, true);
      if (queued_ == 0 && jobs_.empty()) give_back(0);
      return;
    case wire::Kind::pong: return;
    case wire::Kind::status: {
      if (state_ != State::ready) break;
      std::string text = server_.status();
      tcp_->send(plain_frame(wire::Kind::status, bytes_of(text)));
      tcp_->flush();
      return;
    }
    case wire::Kind::transport:
      if (state_ != State::ready || own_link_ || upgrading_) break;
      return upgrade(data);
    case wire::Kind::goodbye:
    case wire::Kind::fault: return closed(*tcp_, nullptr);
    default: break;
  }
  refuse({"store.bad_frame", "a frame of kind " + std::to_string(static_cast<int>(h.kind)) + " that was not expected",
          "both sides must run the same version of Sonde"},
         true);
}

/// Whether the frame just read has operations that must not be acknowledged before a sync.
bool Session::needs_sync(Message& m) const {
  bool needs = false;
  for (const auto& r : records_) {
    m.sync_all |= r.code == Code::sync;
    needs |= r.code == Code::sync || (m.header.safety == Safety::storage && writes(r.code));
  }
  return needs;
}

bool Session::too_late(const Message& m) const {
  return m.header.timeout_ms &&
         now_ns() - m.arrived_ns.load(std::memory_order_relaxed) > std::int64_t{m.header.timeout_ms} * 1'000'000;
}

std::shared_ptr<Message> Session::take_message() {
  return spare_ ? std::exchange(spare_, nullptr) : std::make_shared<Message>();
}

void Session::reuse(const std::shared_ptr<Message>& message) {
  if (message->arena && message->arena->used() > turn_arena_bytes && message->header.role != Role::data) {
    std::erase(arenas_, message->arena);  // if stored for reuse, it would hold all that a large batch has read
    if (turn_arena_ == message->arena) turn_arena_.reset();
  }
  message->clear();
  spare_ = message;
}

std::shared_ptr<Arena> Session::take_arena() {
  for (auto& arena : arenas_)
    if (arena.use_count() == 1) {
      arena->clear();
      return arena;
    }
  auto arena = std::make_shared<Arena>(16u << 10);
  if (arenas_.size() < 16) arenas_.push_back(arena);
  return arena;
}

std::shared_ptr<Arena> Session::turn_arena() {
  if (!turn_arena_ || turn_arena_->used() > turn_arena_bytes) turn_arena_ = take_arena();
  return turn_arena_;
}

void Session::reply(Outgoing out) {
  const std::uint64_t id = wire::id_of(out.head.data());
  std::size_t bytes = 0;
  for (const Segment& s : out.segments) bytes += s.size();
  trace::call(sonde_store_reply, bytes, trace::request(number_, id),
              [&] { trace::call(sonde_store_link_send, bytes, 0, [&] { link_->send(std::move(out)); }); });
}

void Session::flush() {
  if (const std::size_t held = link_->backlog()) trace::call(sonde_store_link_flush, held, 0, [&] { link_->flush(); });
  else link_->flush();
}

void Session::request(const wire::Header& h, Bytes table, Bytes data) {
  const std::int64_t now = now_ns();
  const auto read = wire::read_table(h, table, records_);
  trace::Asked asked;
  if (read)
    for (const auto& r : records_) asked.add(r.code, r.data_bytes, r.length);
  trace::call(asked.of(sonde_store_serve_read, sonde_store_serve_write, sonde_store_serve_other),
              read ? asked.bytes : trace::unknown, trace::request(number_, h.id),
              [&] { serve(h, table, data, read, now); });
}

void Session::serve(const wire::Header& h, Bytes table, Bytes data, const Result<void>& read, std::int64_t now) {
  std::uint32_t sum = wire::crc32c(table);
  if (h.flags & wire::data_sum) sum = wire::crc32c(data, sum);
  const bool damaged = sum != h.body_crc;
  if (!damaged && !read) return refuse(read.error(), true);
  server_.metrics().bytes_in.fetch_add(data.size(), std::memory_order_relaxed);

  Lane* lane = server_.lane(h.role);
  if (!message_) {
    if (h.part != 0 || h.batch_ops == 0)
      return refuse({"store.bad_frame", "a message does not begin with its first frame", ""}, true);
    message_begun_ = {now, received(), frames_};
    message_ = take_message();
    message_->header = h;
    // Otherwise each of many small answers in flight would hold memory of its own. A message in several frames may
    // continue in a lane's thread: its memory is not shared.
    message_->arena = h.flags & wire::more ? take_arena() : turn_arena();
    if (!lane || (h.safety == Safety::storage && !lane->caps().durable)) message_->refused = Status::unsupported;
    else if (server_.stopping()) message_->refused = Status::unavailable;
  } else if (h.id != message_->header.id || h.part != message_->parts || h.role != message_->header.role ||
             h.safety != message_->header.safety || h.batch_ops != message_->header.batch_ops ||
             (h.flags ^ message_->header.flags) & wire::no_reply) {
    return refuse({"store.bad_frame", "a frame does not continue the message before it", ""}, true);
  }
  if (h.ops == 0 && h.flags & wire::more)
    return refuse({"store.bad_frame", "a frame has no operation, but is not the last of its message",
                   "both sides must run the same version of Sonde"},
                  true);
  const std::shared_ptr<Message> message = message_;
  Message& m = *message;
  ++m.parts;
  m.arrived_ns = now;
  m.complete = !(h.flags & wire::more);
  if (m.complete) message_.reset();
  const Emit send = [this](Outgoing out) { reply(std::move(out)); };
  if (damaged) {
    // Half of it is in the lane already: no answer would be right for all operations.
    if (m.queued && h.role == Role::data)
      return refuse({"store.bad_frame", "a frame's checksum is wrong", "check the network between client and server"},
                    true);
    m.refused = Status::corrupt;
  }
  if (m.refused != Status::ok) {
    m.held.clear();
    m.held_bytes = 0;
    if (m.complete) finish_frame(message);
    return;
  }
  // It may have to wait, here or in its lane: memory for it is reserved now, and released if it was not needed.
  if (!has_room(sizeof(Message::Held) + table.size() + data.size())) return;

  if (h.role == Role::data) {
    const bool durable = needs_sync(m);
    auto& outstanding = lane_tasks_[static_cast<std::size_t>(h.role)];
    if (m.queued || durable || outstanding || !lane->try_enter()) {
      if (!std::exchange(m.queued, true) && m.data == 0) m.arena = take_fresh(false);
      hold_with_records(m, h, table, data);
      return enqueue(message);
    }
    m.wait_ns = std::max<std::int64_t>(m.wait_ns, 0);  // executed in the thread where it arrived
    Position position;
    bool ended = true;
    {
      const Turn turn(*lane);
      if (too_late(m))
        for (const auto& r : records_) answer(m, r.index, op_of(r, {}), {Status::timed_out, 0, 0, {}}, send);
      else ended = run_data(m, records_, data, position, scratch_, send, true);
    }
    if (ended) {
      finish_frame(message);
      if (m.complete) reuse(message);
      return;
    }
    // The client must receive earlier data before more is read: the rest of this frame waits in memory of its own.
    hold_with_records(m, h, table, data);
    jobs_.push_back({message, std::move(m.held.back()), position});
    m.held.pop_back();
    soon();
    receiving_ = false;
    link_->receive(false);
    return;
  }

  // kv and db: all or nothing, so the whole message must have arrived first.
  m.held_bytes += table.size() + data.size() + (m.complete && m.parts == 1 ? 0 : Message::Held{}.bytes());
  if (m.held_bytes > held_max) {
    m.refused = Status::too_large;
    std::vector<std::unique_ptr<Message::Held>>().swap(m.held);
    m.held_bytes = 0;
    if (m.complete) finish_frame(message);
    return;
  }
  m.queued |= needs_sync(m) || takes_long(m);
  auto& outstanding = lane_tasks_[static_cast<std::size_t>(h.role)];
  if (m.complete && m.parts == 1 && !m.queued && !outstanding && lane->try_enter()) {
    // The common case: one frame, executed in place.
    m.wait_ns = 0;
    const FrameView frame{records_, data};
    bool ended = false;
    {
      const Turn turn(*lane);
      ended = run_atomic(m, {&frame, 1}, scratch_, send, false);
    }
    scratch_.trim();
    if (ended) return reuse(message);
    hold(m, h, table, data);
    return enqueue(message);
  }
  hold(m, h, table, data);
  if (!m.complete) return;
  if (!m.queued && !outstanding && lane->try_enter()) {
    m.wait_ns = now_ns() - now;
    bool ended = false;
    {
      const Turn turn(*lane);
      ended = run_held(m, scratch_, send, false);
    }
    scratch_.trim();
    if (ended) return reuse(message);
  }
  enqueue(message);
}

void Session::hold(Message& m, const wire::Header& h, Bytes table, Bytes data) {
  auto held = std::make_unique<Message::Held>();
  held->header = h;
  held->table.assign(table.begin(), table.end());
  held->data.assign(data.begin(), data.end());
  m.held.push_back(std::move(held));
}

void Session::hold_with_records(Message& m, const wire::Header& h, Bytes table, Bytes data) {
  hold(m, h, table, data);
  Message::Held& held = *m.held.back();
  held.records = std::exchange(records_, {});
  // Names pointed into the received frame; now they point into the copy.
  const auto* from = reinterpret_cast<const char*>(table.data());
  const auto* to = reinterpret_cast<const char*>(held.table.data());
  for (auto& r : held.records) {
    r.space = {to + (r.space.data() - from), r.space.size()};
    r.key = {to + (r.key.data() - from), r.key.size()};
  }
}

bool Session::takes_long(const Message& m) const {
  if (m.held_bytes > batch_turn_bytes || m.header.batch_ops > batch_turn_ops) return true;
  if (m.header.role != Role::db) return false;
  return std::any_of(records_.begin(), records_.end(), [](const auto& r) {
    return r.code == Code::db_update || r.code == Code::db_remove || r.code == Code::db_undefine;
  });
}

Deadline Session::deadline_of(const Message& m, bool in_lane) const {
  const std::int64_t now = now_ns();
  Deadline by = Deadline::in_s(server_.config().query_timeout_s);
  if (m.header.timeout_ms)
    by.at_ns = std::min(by.at_ns,
                        m.arrived_ns.load(std::memory_order_relaxed) + std::int64_t{m.header.timeout_ms} * 1'000'000);
  if (!in_lane) by.at_ns = std::min(by.at_ns, now + table_turn_ns);
  return by;
}

/// Gives the content of a message to its lane: a frame of objects, or a whole batch of kv or db.
void Session::enqueue(const std::shared_ptr<Message>& message) {
  Message& m = *message;
  m.queued = true;
  const Role role = m.header.role;
  Lane& lane = *server_.lane(role);
  std::shared_ptr<Message::Held> frame;
  std::size_t bytes = m.held_bytes;
  if (role == Role::data) {
    frame = std::move(m.held.back());
    m.held.clear();
    bytes = frame->bytes() + frame->records.size() * sizeof(wire::Record);
  }
  if (role != Role::data) m.arena = take_fresh(false);  // the pool of arenas is this thread's
  ++lane_tasks_[static_cast<std::size_t>(role)];
  ++queued_;
  queued_bytes_ += bytes;
  struct Result {
    std::vector<Outgoing> frames;
    bool complete = false;
    std::uint64_t failed = 0;
  };
  auto result = std::make_shared<Result>();
  result->complete = m.complete;
  auto self = shared_from_this();
  Lane::Task task;
  const bool last = m.complete;
  task.durable = last && (m.header.safety == Safety::storage || m.sync_all);
  task.all = last && m.sync_all;
  auto work = [self, message, frame, result, last]() mutable {
    Message& msg = *message;
    const Emit collect = [&](Outgoing out) { result->frames.push_back(std::move(out)); };
    Scratch scratch;
    if (msg.wait_ns < 0) msg.wait_ns = now_ns() - msg.arrived_ns.load(std::memory_order_relaxed);
    if (!frame) {
      if (self->too_late(msg)) self->refuse_all(msg, Status::timed_out, collect);
      else self->run_held(msg, scratch, collect, true);
    } else {
      Position position;
      if (self->too_late(msg))
        for (const auto& r : frame->records)
          self->answer(msg, r.index, op_of(r, {}), {Status::timed_out, 0, 0, {}}, collect);
      else self->run_data(msg, frame->records, frame->data, position, scratch, collect, false);
      if (last) self->emit_reply(msg, true, collect);
    }
    // The received data are no longer needed; their memory is freed before it is returned to the budget.
    // A message of objects may be getting its next frame into `held` now.
    if (!frame) std::vector<std::unique_ptr<Message::Held>>().swap(msg.held);
    frame.reset();
    // Done here, not when the result is reported: by then the message's next frame may be executing.
    result->failed = std::exchange(msg.failed, 0);
  };
  task.run = [self, message, work = std::move(work)]() mutable {
    trace::call(sonde_store_later, trace::unknown, self->number_of(*message), work);
  };
  task.lost = [self] { self->lose(); };
  task.done = [self, message, result, role, bytes, durable = task.durable](bool synced) {
    self->reactor_.post(self, [self, message, result, role, bytes, durable, synced] {
      --self->lane_tasks_[static_cast<std::size_t>(role)];
      --self->queued_;
      if (self->alive_) {
        if (!synced && durable) {
          // The executed operations are not stored durably: every answer of the message becomes io_error.
          Message failed;
          failed.header = message->header;
          failed.wait_ns = message->wait_ns;
          failed.backend_ns = message->backend_ns;
          if (result->complete)
            self->refuse_all(failed, Status::io_error, [&](Outgoing out) { self->reply(std::move(out)); });
        } else {
          for (auto& out : result->frames) self->reply(std::move(out));
        }
        if (message->header.flags & wire::no_reply) self->lost_ops_ += static_cast<std::uint32_t>(result->failed);
      }
      self->give_back(bytes);
    });
  };
  lane.add(std::move(task));
}

void Session::give_back(std::size_t bytes) {
  queued_bytes_ -= bytes;
  if (!alive_) return;
  if (queued_ == 0) {
    for (const std::uint64_t id : std::exchange(pings_, {})) {
      Outgoing pong = plain_frame(wire::Kind::pong, {}, id);
      wire::Header h;
      h.kind = wire::Kind::pong;
      h.flags = wire::data_sum;
      h.id = id;
      h.lost = std::exchange(lost_ops_, 0);
      wire::encode(h, pong.head.data());
      link_->send(std::move(pong));
    }
  }
  if (bytes) ready();
  else flush();
}

}  // namespace sonde::store
