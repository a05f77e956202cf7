#include "store/server/session.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "core/clock.hpp"
#include "core/units.hpp"
#include "store/auth.hpp"
#include "store/guard.hpp"

namespace sonde::store {

namespace {

constexpr std::size_t backlog_max = 4u << 20;  ///< answers that a slow reader may leave in memory before its reads wait
constexpr std::size_t backlog_low = 1u << 20;
constexpr std::size_t queued_max = 8u << 20;    ///< frames of one connection that wait for a backend
constexpr std::size_t turn_bytes = 512u << 10;  ///< read for one connection before others get their turn
constexpr std::size_t turn_arena_bytes = 256u << 10;
constexpr std::size_t share_step = 64u << 10;  ///< step by which a connection's share of the memory for clients grows
constexpr std::size_t mixed_reads_max = 64u << 20;
/// Limit before the welcome: enough for a hello and a MUNGE credential.
constexpr std::size_t entry_frame_bytes = 4096;
constexpr std::size_t entry_name_bytes = 128, entry_transport_bytes = 64;
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

Op op_of(const wire::Record& r, Bytes data) {
  Op op;
  op.code = r.code;
  op.flags = r.flags;
  op.space = r.space;
  op.key = r.key;
  op.offset = r.offset;
  op.length = r.length;
  op.data = data;
  return op;
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
    const Error why{"store.unavailable", std::string("the server cannot go on with this connection: ") + what,
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

void Session::hello(const wire::Text& text) {
  if (server_.stopping())
    return refuse({"store.unavailable", "the server is shutting down", "connect again when it is back"}, false);
  client_ = wire::text_value(text, "client").substr(0, entry_name_bytes);
  client_nonce_ = wire::text_value(text, "nonce").substr(0, entry_name_bytes);
  number_ = trace::connection(client_nonce_);
  wanted_transport_ = wire::text_value(text, "transport").substr(0, entry_transport_bytes);
  checksum_ = wire::text_value(text, "checksum") != "head";
  link_options_ = server_.config().link;
  link_options_.frame_data = server_.config().frame_data;
  apply_style(wire::text_value(text, "link"), link_options_);
  tcp_->adopt(link_options_);
  const std::string& auth = server_.config().auth;
  if (const auto theirs = wire::text_value(text, "protocol"); auth != "none" && theirs != auth::protocol)
    return refuse({"store.version",
                   "the client authenticates with version " + std::string(theirs.empty() ? "1" : theirs.substr(0, 8)) +
                       " of the handshake, but the server requires version " + std::string(auth::protocol),
                   "run the same version of Sonde on both sides; the server's is " SONDE_VERSION},
                  false);
  nonce_ = auth::nonce();
  state_ = State::proof;
  tcp_->send(plain_frame(
      wire::Kind::challenge,
      bytes_of(wire::encode_text({{"auth", auth}, {"nonce", nonce_}, {"protocol", std::string(auth::protocol)}}))));
  tcp_->flush();
}

void Session::proof(const wire::Text& text) {
  const ServerConfig& config = server_.config();
  if (config.auth == "none") return welcome({});
  // The address that the client says it reached. A proof for another address was made for another server, and somebody
  // in between forwards it.
  auth::Endpoint reached{std::string(wire::text_value(text, "server")), std::string(wire::text_value(text, "machine")),
                         std::string(wire::text_value(text, "from"))};
  const auth::Endpoint own = auth::server_end(tcp_->wait_fd(), false);
  const bool known =
      std::find(config.known_as.begin(), config.known_as.end(), reached.address) != config.known_as.end();
  if (!known && (own.address.empty() || reached.address != own.address || reached.machine != own.machine)) {
    const bool elsewhere = reached.address == own.address;
    return refuse(
        {"store.denied",
         "the client wants the server at " + reached.address.substr(0, entry_name_bytes) +
             (elsewhere ? " of another machine or network namespace" : ", but this one is at " + own.address) +
             ": something between them forwards the connection",
         "connect to the server itself; or start it with --known-as and the address that clients use"},
        false);
  }
  if (!known && reached.client != own.client)
    return refuse({"store.denied",
                   "the client's address of this connection is " + reached.client.substr(0, entry_name_bytes) +
                       " for the client, but " + own.client +
                       " for the server: something between them "
                       "forwards the connection",
                   "connect to the server itself; where addresses are translated on the way, start it with "
                   "--known-as and the address that clients use"},
                  false);
  const auth::Handshake shake{config.auth, client_nonce_, nonce_, reached};
  if (!auth::is_nonce(client_nonce_))
    return refuse(
        {"store.bad_frame", "the client's nonce is not valid", "both sides must run the same version of Sonde"}, true);
  if (config.auth == "munge")
    return ask_munge(std::string(wire::text_value(text, "proof")), auth::statement(shake, "client"));
  if (!auth::equal(wire::text_value(text, "proof"), auth::token_proof(server_.token(), shake, "client"))) {
    const bool user = config.auth == "user";
    return refuse(
        {"store.denied",
         user ? "only the user who started the server can connect, and this client did not prove to be that user"
              : "the server did not accept the client's proof of identity",
         user ? "if the server is another user's, ask that user for a token; if it is yours, both sides need the "
                "same key, which is in the home folder: .local/state/sonde/store-key"
              : "check the token file"},
        false);
  }
  welcome(auth::token_proof(server_.token(), shake, "server"));
}

void Session::ask_munge(std::string credential, std::string payload) {
  state_ = State::checking;
  const std::weak_ptr<Session> self = weak_from_this();
  const bool asked = server_.credentials().ask(
      {std::move(credential), std::move(payload), [self] { return !self.expired(); },
       [self, &reactor = reactor_](Result<unsigned> user) {
         if (auto session = self.lock())
           reactor.post(session, [raw = session.get(), user = std::move(user)] { raw->let_in_user(user); });
       }});
  if (!asked)
    refuse({"store.unavailable", "MUNGE on the server's host is slow, and too many clients wait for it already",
            "connect again in a moment; see munged there"},
           false);
}

void Session::let_in_user(const Result<unsigned>& user) {
  if (!alive_ || state_ != State::checking) return;
  if (!user) return refuse(user.error(), false);
  const auto& users = server_.config().users;
  if (*user != 0 && *user != ::geteuid() && std::find(users.begin(), users.end(), *user) == users.end())
    return refuse({"store.denied", "the user " + std::to_string(*user) + " may not use this server",
                   "its operator can allow you with --user"},
                  false);
  welcome({});
}

void Session::welcome(const std::string& own_proof) {
  const ServerConfig& config = server_.config();
  switch (server_.gate().prove(place_)) {
    case Gate::Answer::welcome: break;
    case Gate::Answer::gone: return closed(*tcp_, nullptr);  // it was informed already
    case Gate::Answer::full:
      return refuse(
          {"store.unavailable", "the server has " + std::to_string(config.connections) + " connections, its maximum",
           "close some, or start it with a larger --connections"},
          false);
  }
  std::string roles;
  for (const Role role : {Role::data, Role::kv, Role::db})
    if (server_.lane(role)) roles += (roles.empty() ? "" : ",") + std::string(name_of(role));
  wire::Text welcome;
  if (!own_proof.empty()) welcome.emplace_back("proof", own_proof);
  welcome.emplace_back("roles", roles);
  welcome.emplace_back("credits", std::to_string(config.credits));
  welcome.emplace_back("frame_data", std::to_string(config.frame_data));
  welcome.emplace_back("version", SONDE_VERSION);
  state_ = State::ready;
  tcp_->limit_frames(0);
  tcp_->send(plain_frame(wire::Kind::welcome, bytes_of(wire::encode_text(welcome))));
  tcp_->flush();
}

void Session::upgrade(Bytes first) {
  if (!server_.serves(wanted_transport_))
    return refuse({"store.not_served", "the server does not serve the transport " + wanted_transport_,
                   "use tcp; or start the server with --transports tcp," + wanted_transport_ +
                       ", on a network whose hosts are all trusted"},
                  false);
  auto transport = open_transport(wanted_transport_);
  if (!transport) return refuse(transport.error(), false);
  transport_ = *transport;
  // The two halves exchange messages, and an event loop cannot wait for them: a thread does, once this call has
  // returned.
  first_word_.assign(first.begin(), first.end());
  upgrading_ = true;
  tcp_->receive(false);
  reactor_.watch(*this);
  reactor_.post(shared_from_this(), [this] {
    if (!reactor_.spawn(shared_from_this())) refuse_link();
  });
}

void Session::refuse_link() {
  upgrading_ = false;
  refuse({"store.unavailable", "the server has no thread to make a link over the transport " + wanted_transport_,
          "connect again in a moment, or over tcp; allow the server's user more processes: ulimit -u"},
         false);
}

void Session::make_link() noexcept {
  // This thread belongs to the server: an exception in it would end all connections.
  try {
    control_ = std::make_unique<TcpControl>(*tcp_);
    tcp_->receive(true);
    const auto accept = [&]() -> Result<std::unique_ptr<Link>> {
      try {
        return transport_->accept(*control_, first_word_, link_options_, *this,
                                  Deadline::in_s(server_.config().link_timeout_s));
      } catch (...) {
        return threw("the transport " + wanted_transport_);
      }
    };
    auto made = std::make_shared<Result<std::unique_ptr<Link>>>(accept());
    reactor_.post(shared_from_this(), [this, made] {
      upgrading_ = false;
      if (!*made) {
        tcp_->turn_to(*this);
        return refuse(made->error(), false);
      }
      own_link_ = std::move(**made);
      link_ = own_link_.get();
      reactor_.watch(*this);
      ready();
    });
  } catch (...) {
    link_lost_ = true;
    lose();
  }
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

void Session::finish_frame(const std::shared_ptr<Message>& message) {
  if (!message->complete) return;
  const Emit send = [this](Outgoing out) { reply(std::move(out)); };
  if (message->refused != Status::ok) refuse_all(*message, message->refused, send);
  else emit_reply(*message, true, send);
  if (message->header.flags & wire::no_reply) lost_ops_ += static_cast<std::uint32_t>(message->failed);
}

void Session::refuse_all(Message& m, Status status, const Emit& emit) {
  m.answers.clear();
  m.segments.clear();
  m.data = 0;
  m.failed = m.header.batch_ops;
  server_.metrics().outcomes[static_cast<std::size_t>(status)].fetch_add(m.header.batch_ops, std::memory_order_relaxed);
  wire::Answer a;
  a.status = status;
  a.run = m.header.batch_ops;
  m.answers.add(a);
  emit_reply(m, true, emit);
}

void Session::answer(Message& m, std::uint32_t index, const Op& op, const Outcome& out, const Emit& emit) {
  server_.metrics().operations[static_cast<std::size_t>(op.code) % 128].fetch_add(1, std::memory_order_relaxed);
  server_.metrics().outcomes[static_cast<std::size_t>(out.status)].fetch_add(1, std::memory_order_relaxed);
  if (out.status != Status::ok && out.status != Status::not_found) {
    ++m.failed;
    // One operation of the batch has the text of an exception; the others must not hide it.
    const bool told = out.status == Status::internal && !out.data.empty();
    if (told || out.status == Status::io_error || out.status == Status::no_space || out.status == Status::denied)
      server_.metrics().failed(std::string(name_of(op.code)) + " of '" + std::string(op.key) + "' in '" +
                               std::string(op.space) + "': " + explain(out));
  }
  if (m.header.flags & wire::no_reply) return;
  Bytes left = out.status == Status::ok || out.status == Status::internal ? out.data : Bytes{};
  if (out.status == Status::ok && op.code == Code::kv_get && op.length && left.size() > op.length)
    left = left.first(op.length);
  const std::size_t frame_data = server_.config().frame_data;
  do {
    if (m.answers.ops() == wire::frame_ops_max || m.answers.bytes() > (256u << 10) || m.data >= frame_data ||
        (m.data && m.data + left.size() > frame_data && left.size() <= frame_data))
      emit_reply(m, false, emit);
    const std::size_t n = std::min(left.size(), frame_data - m.data);
    wire::Answer a;
    a.status = out.status;
    a.index = index;
    a.value = out.value;
    a.time_ns = out.time_ns;
    a.data_bytes = static_cast<std::uint32_t>(n);
    m.answers.add(a);
    if (n) {
      if (link_options_.gather && !m.segments.empty() &&
          m.segments.back().data() + m.segments.back().size() == left.data())
        m.segments.back() = {m.segments.back().data(), m.segments.back().size() + n};
      else m.segments.push_back(left.first(n));
      m.data += static_cast<std::uint32_t>(n);
    }
    left = left.subspan(n);
  } while (!left.empty());
}

void Session::emit_reply(Message& m, bool last, const Emit& emit) {
  if (last && m.wait_ns >= 0) {
    const auto role = static_cast<std::size_t>(m.header.role);
    server_.metrics().waited[role].add(m.wait_ns);
    server_.metrics().worked[role].add(m.backend_ns);
  }
  if (m.header.flags & wire::no_reply) return;
  wire::Header h;
  h.kind = wire::Kind::reply;
  h.flags = static_cast<std::uint16_t>((last ? 0 : wire::more) | (checksum_ ? wire::data_sum : 0));
  h.id = m.header.id;
  h.ops = m.answers.ops();
  h.table_bytes = static_cast<std::uint32_t>(m.answers.bytes());
  h.data_bytes = m.data;
  h.role = m.header.role;
  h.safety = m.header.safety;
  h.part = m.part_out++;
  h.batch_ops = m.header.batch_ops;
  h.wait_us = static_cast<std::uint32_t>(std::max<std::int64_t>(m.wait_ns, 0) / 1000);
  h.backend_us = static_cast<std::uint32_t>(m.backend_ns / 1000);
  h.body_crc = wire::crc32c(m.answers.table());
  if (checksum_)
    for (const Segment& s : m.segments) h.body_crc = wire::crc32c(s, h.body_crc);
  Outgoing out;
  out.head.resize(wire::header_bytes + m.answers.bytes());
  wire::encode(h, out.head.data());
  if (m.answers.bytes()) std::memcpy(out.head.data() + wire::header_bytes, m.answers.table().data(), m.answers.bytes());
  out.segments = std::move(m.segments);
  out.keep = m.arena;
  out.last = last;
  server_.metrics().bytes_out.fetch_add(m.data, std::memory_order_relaxed);
  m.answers.clear();
  m.segments.clear();
  m.data = 0;
  emit(std::move(out));
}

/// Executes operations on objects from `position` on. False: the client must read answers first (bounded only).
bool Session::run_data(Message& m, std::span<const wire::Record> records, Bytes data, Position& position, Scratch& s,
                       const Emit& emit, bool bounded) {
  Backend& backend = server_.lane(Role::data)->backend();
  const std::size_t frame_data = server_.config().frame_data;
  std::size_t read = 0;
  while (position.record < records.size()) {
    if (bounded && (read > turn_bytes || link_->backlog() > backlog_max)) return false;
    s.ops.clear();
    s.indexes.clear();
    std::size_t reads = 0;
    bool stopped = false;
    // As many operations as fill one frame of answers; a larger read is split into pieces, each with a turn of its own.
    while (position.record < records.size() && !stopped) {
      const wire::Record& r = records[position.record];
      Op op = op_of(r, data.subspan(position.data, r.data_bytes));
      if (const Status status = check(op); status != Status::ok || r.code == Code::sync) {
        if (!s.ops.empty()) break;
        answer(m, r.index, op, {status, 0, 0, {}}, emit);  // the lane syncs before this goes out
        position.data += r.data_bytes;
        ++position.record;
        continue;
      }
      if (r.code == Code::object_read && m.header.flags & wire::no_reply) op.length = 0;  // the data would not be sent
      if (r.code == Code::object_read && op.length) {
        if (reads >= frame_data) break;
        const std::uint64_t left = r.length - position.done;
        const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(left, frame_data - reads));
        // A read that fits into a frame of its own is not split.
        if (n < left && left <= frame_data && reads) break;
        op.offset = r.offset + position.done;
        op.length = n;
        op.into = m.arena->take(n);
        reads += n;
        if (n < left) {
          s.ops.push_back(op);
          s.indexes.push_back(r.index);
          stopped = true;  // whether it continues is known when this piece is read
          break;
        }
      }
      s.ops.push_back(op);
      s.indexes.push_back(r.index);
      position.data += r.data_bytes;
      position.done = 0;
      ++position.record;
    }
    if (s.ops.empty()) continue;
    read += reads;
    if (!bounded && read > mixed_reads_max) {
      for (; position.record < records.size(); ++position.record)
        answer(m, records[position.record].index, op_of(records[position.record], {}), {Status::too_large, 0, 0, {}},
               emit);
      return true;
    }
    s.outcomes.assign(s.ops.size(), {});
    const std::int64_t begin = now_ns();
    execute(backend, s.ops, m.header.safety, s.outcomes, *m.arena);
    m.backend_ns += now_ns() - begin;
    for (std::size_t k = 0; k < s.ops.size(); ++k) answer(m, s.indexes[k], s.ops[k], s.outcomes[k], emit);
    if (stopped) {
      const Outcome& piece = s.outcomes.back();
      const wire::Record& r = records[position.record];
      position.done += s.ops.back().length;
      if (piece.status != Status::ok || piece.data.size() < s.ops.back().length || position.done >= r.length) {
        position.data += r.data_bytes;
        position.done = 0;
        ++position.record;
      }
    }
    if (m.data) {
      // The data are sent before more is read, from memory that then belongs to the answer.
      const bool all = position.record == records.size() && m.complete;
      if (!all) {
        emit_reply(m, false, emit);
        m.arena = take_fresh(bounded);
      }
    }
  }
  return true;
}

bool Session::run_held(Message& m, Scratch& s, const Emit& emit, bool in_lane) {
  s.frames.clear();
  for (const auto& held : m.held) s.frames.push_back({{}, held->data, held.get()});
  return run_atomic(m, s.frames, s, emit, in_lane);
}

/// Executes an atomic batch.
bool Session::run_atomic(Message& m, std::span<const FrameView> frames, Scratch& s, const Emit& emit, bool in_lane) {
  Backend& backend = server_.lane(m.header.role)->backend();
  const auto refuse_it = [&](Status status) {
    refuse_all(m, status, emit);
    return true;
  };
  // No memory is allocated by the sizes that the message claims, only by the bytes received.
  std::size_t came = 0;
  for (const FrameView& frame : frames) came += frame.operations();
  if (m.header.batch_ops > came) return refuse_it(Status::invalid);
  s.ops.assign(m.header.batch_ops, {});
  s.seen.assign(m.header.batch_ops, 0);
  auto& seen = s.seen;
  std::vector<std::vector<Bytes>> pieces;
  bool sound = true;
  for (const FrameView& frame : frames) {
    std::size_t at = 0;
    if (frame.held && !wire::read_table(frame.held->header, frame.held->table, s.records))
      return refuse_it(Status::internal);  // it was read as it came
    for (const auto& r : frame.held ? std::span<const wire::Record>(s.records) : frame.records) {
      const Bytes part = frame.data.subspan(at, r.data_bytes);
      at += r.data_bytes;
      Op& op = s.ops[r.index];
      if (!seen[r.index]) {
        op = op_of(r, part);
        seen[r.index] = 1;
        continue;
      }
      // Another piece of the same operation.
      if (r.code != op.code || r.key != op.key || r.space != op.space) sound = false;
      if (pieces.empty()) pieces.resize(m.header.batch_ops);
      if (pieces[r.index].empty()) pieces[r.index].push_back(op.data);
      pieces[r.index].push_back(part);
    }
  }
  if (!sound || std::find(seen.begin(), seen.end(), 0) != seen.end()) return refuse_it(Status::invalid);
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    if (pieces[k].empty()) continue;
    std::size_t size = 0;
    for (const Bytes p : pieces[k]) size += p.size();
    const MutableBytes whole = m.arena->take(size);
    std::size_t at = 0;
    for (const Bytes p : pieces[k]) {
      if (!p.empty()) std::memcpy(whole.data() + at, p.data(), p.size());
      at += p.size();
    }
    s.ops[k].data = whole;
  }
  s.outcomes.assign(s.ops.size(), {});
  bool any_bad = false;
  for (std::size_t k = 0; k < s.ops.size(); ++k) {
    Role role = m.header.role;
    const Status status =
        !role_of(s.ops[k].code, role) || role != m.header.role ? Status::unsupported : check(s.ops[k]);
    if (status == Status::ok) continue;
    s.outcomes[k].status = status;
    any_bad = true;
  }
  if (any_bad) {
    for (auto& out : s.outcomes)
      if (out.status == Status::pending) out.status = Status::aborted;
  } else {
    // Joined pieces are no longer needed when they are written; read data are needed until they are sent.
    auto results = pieces.empty() ? m.arena : std::make_shared<Arena>(16u << 10);
    results->allow(limit::atomic_batch_bytes);
    const std::int64_t begin = now_ns();
    bool gave_up = false;
    if (m.header.role == Role::db) {
      const Bounds bounds(deadline_of(m, in_lane), server_.abandoned());
      execute(backend, s.ops, m.header.safety, s.outcomes, *results);
      gave_up = bounds.gave_up();
    } else {
      execute(backend, s.ops, m.header.safety, s.outcomes, *results);
    }
    m.backend_ns += now_ns() - begin;
    if (gave_up && !in_lane && !too_late(m)) return false;
    m.arena = std::move(results);
  }
  for (std::size_t k = 0; k < s.ops.size(); ++k)
    answer(m, static_cast<std::uint32_t>(k), s.ops[k], s.outcomes[k], emit);
  emit_reply(m, true, emit);
  if (m.header.flags & wire::no_reply && !m.queued) lost_ops_ += static_cast<std::uint32_t>(m.failed);
  return true;
}

}  // namespace sonde::store
