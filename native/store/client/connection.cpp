#include "store/client/connection.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <new>
#include <string_view>
#include <utility>

#include "core/clock.hpp"
#include "core/units.hpp"
#include "store/auth.hpp"

namespace sonde::store {

namespace {

std::size_t number(std::string_view text, std::size_t otherwise, std::size_t most) {
  std::size_t value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::min(value, most);
}

/// The user and program of this client, for the server's log.
std::string client_name() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return std::string(host) + ':' + std::to_string(::getpid());
}

constexpr const char* connecting = "connect_timeout_s";

/// Limit until the server has proved its identity.
constexpr std::size_t greeting_frame_bytes = 16u << 10, words_max = 400;
constexpr const char* before_proof[] = {"store.bad_frame", "store.denied",      "store.no_munge",
                                        "store.timed_out", "store.unavailable", "store.version"};

Result<std::string> secret_of(const Config& config) {
  return config.token_file.empty() ? auth::user_key(false) : auth::read_token(config.token_file, false);
}

Result<std::unique_ptr<Tls>> tls_of(const Config& config) {
  if (config.auth == "none" || config.auth == "munge")
    return Error{"store.usage", "TLS makes its key from a secret, but there is no secret with --auth " + config.auth,
                 "use --auth user or token, or leave --tls out"};
  const auto secret = secret_of(config);
  if (!secret) return secret.error();
  return Tls::make(Tls::Side::client, *secret);
}

bool adds_up(Code code) { return code == Code::object_read || code == Code::object_write; }

constexpr std::size_t read_ahead_max = 64u << 20;  ///< allocated for a read before its data arrive
constexpr std::uint64_t value_ahead = 16;          ///< allocated for values, for each byte received
constexpr std::size_t failure_text_max = 4096;
constexpr unsigned pongs_max = 64;

/// The maximum size of the answer to an operation, from its request, or from the limit of stored data.
std::uint64_t answer_bytes_max(const Op& op) {
  if (!op.into.empty()) return op.into.size();
  switch (op.code) {
    case Code::object_read: return op.length;
    case Code::kv_get: return limit::value_bytes;
    case Code::kv_scan:
    case Code::object_list: return scan_bytes_max + limit::value_bytes;  // an entry that is larger than a page is alone
    case Code::db_describe:
    case Code::db_query: return limit::atomic_batch_bytes;
    default: return 0;
  }
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::open(const Address& address, const Config& config, Deadline deadline) {
  for (double pause_s = 5e-3;; pause_s = std::min(2 * pause_s, 0.1)) {
    bool again = false;
    auto opened = open_once(address, config, deadline, again);
    if (opened || !again || deadline.passed() || (config.stop && config.stop())) return opened;
    sleep_until(now_s() + pause_s);
  }
}

Result<std::unique_ptr<Connection>> Connection::open_once(const Address& address, const Config& config,
                                                          Deadline deadline, bool& again) {
  const std::int64_t begin_ns = now_ns();
  auto fd = tcp_connect(address, deadline, config.stop);
  if (!fd) return fd.error();
  std::unique_ptr<Connection> connection(new Connection);
  connection->address_ = address.text();
  connection->asked_ns_ = begin_ns;
  connection->tcp_ = std::make_unique<TcpLink>(*fd, config.link, *connection);
  connection->link_ = connection->tcp_.get();
  connection->stop_ = config.stop;
  if (config.tls) {
    auto tls = tls_of(config);
    if (!tls) return tls.error();
    connection->tcp_->secure(std::move(*tls));
  }
  if (auto ok = connection->greet(address, config, deadline); !ok) {
    again = connection->again_;
    return ok.error();
  }
  connection->stop_ = {};
  connection->used_ns_ = now_ns();
  return connection;
}

Connection::~Connection() {
  close("the client closed the connection");
  reap();
}

Error Connection::too_slow(double seconds, const char* option) const {
  return {"store.timed_out", "the server at " + address_ + " did not answer within " + format_duration(seconds),
          std::string("it is stopped, or very busy: see its log; or raise ") + option};
}

Error Connection::named(Error error) const {
  if (error.what.find(address_) == std::string::npos) error.what = address_ + ": " + error.what;
  if (error.code == "store.disconnected") error.hint = "is it running? sonde store status --server " + address_;
  return error;
}

Error Connection::said(Bytes words) const {
  Error error = last_words(words);
  if (proven_ || tcp_->secured()) return named(error);  // by TLS it has shown that it knows the secret
  // Any program may listen there: its text is quoted as such, and decides neither the kind of the error nor the hint.
  const auto known = std::find(std::begin(before_proof), std::end(before_proof), error.code);
  std::string text = std::move(error.what);
  if (!error.hint.empty()) text += " (" + error.hint + ")";
  if (text.size() > words_max) text = text.substr(0, words_max) + "…";
  return {known == std::end(before_proof) ? "store.disconnected" : *known,
          address_ + " reports, without having proved to be the server: \"" + text + '"',
          "another program may listen there: check the server's log before you trust this message"};
}

Result<wire::Text> Connection::heard(wire::Kind kind, Deadline deadline, const char* option) {
  heard_one_ = false;
  while (!heard_one_) {
    if (!open_) return failure_;
    if (deadline.passed()) {
      const Error late = too_slow(static_cast<double>(now_ns() - asked_ns_) * 1e-9, option);
      close(late.what);
      reap();
      return late;
    }
    if (stop_ && stop_()) {
      close("the client was interrupted");
      reap();
      return interrupted(*parse_address(address_));
    }
    link_->wait(stop_ ? slice(deadline) : deadline);
    link_->progress();
    reap();
  }
  if (!open_) return failure_;  // the server's last message came with it, and the links are gone
  if (last_kind_ != kind)
    return named({"store.bad_frame", "the server sent an answer that was not asked for",
                  "both sides must run the same version of Sonde"});
  return wire::decode_text(bytes_of(last_text_));
}

Result<void> Connection::greet(const Address& address, const Config& config, Deadline deadline) {
  checksum_ = config.checksum;
  gather_ = config.link.gather;
  // With these two the server proves nothing. A user who gives them by name trusts the program that listens there.
  proven_ = config.auth == "none" || config.auth == "munge";
  tcp_->limit_frames(greeting_frame_bytes);
  const std::string own_nonce = auth::nonce();
  number_ = trace::connection(own_nonce);
  wire::Text hello{{"protocol", std::string(auth::protocol)},
                   {"client", client_name()},
                   {"nonce", own_nonce},
                   {"auth", config.auth},
                   {"transport", config.transport},
                   {"checksum", checksum_ ? "all" : "head"},
                   {"link", encode_style(config.link)}};
  link_->send(plain_frame(wire::Kind::hello, bytes_of(wire::encode_text(hello))));
  link_->flush();
  auto challenge = heard(wire::Kind::challenge, deadline, connecting);
  if (!challenge) return challenge.error();
  const std::string method(wire::text_value(*challenge, "auth")), server_nonce(wire::text_value(*challenge, "nonce"));
  if (!config.auth.empty() && config.auth != method)
    return Error{
        "store.denied",
        "the server at " + address.text() + " asks for the authentication '" + method + "', not '" + config.auth + "'",
        "give --auth " + method + " if this is the right server, or start it with --auth " + config.auth};
  // A program that listens at the address may request no proof, or accept a credential without proving its own
  // identity. The user must allow this explicitly.
  if (config.auth.empty() && (method == "none" || method == "munge"))
    return Error{"store.denied",
                 "the server at " + address.text() + " asks for the authentication '" + method +
                     "', with which it does not prove whose server it is",
                 "if you trust all programs that may listen there, give --auth " + method + " (SONDE_STORE_AUTH)"};
  const bool secret = method == "token" || method == "user";
  if ((secret || method == "munge") && wire::text_value(*challenge, "protocol") != auth::protocol)
    return Error{"store.version",
                 "the server at " + address.text() +
                     " uses another version of the handshake than this client, which has " +
                     std::string(auth::protocol),
                 "run the same version of Sonde on both sides; this one is " SONDE_VERSION};
  const auth::Handshake shake{method, own_nonce, server_nonce, auth::server_end(tcp_->wait_fd(), true)};
  wire::Text proof{{"server", shake.server.address}, {"machine", shake.server.machine}, {"from", shake.server.client}};
  std::string token;
  // The server chooses one part of the signed text. It must be a nonce, because other programs accept credentials for
  // other texts.
  if ((secret || method == "munge") && !auth::is_nonce(server_nonce))
    return named({"store.bad_frame", "the server's nonce is not valid: nothing is signed for it",
                  "both sides must run the same version of Sonde"});
  if (secret) {
    if (method == "token" && config.token_file.empty())
      return Error{"store.denied", "the server at " + address.text() + " asks for a token",
                   "give the token file with which it was started: --token-file FILE"};
    auto read = secret_of(config);
    if (!read) return read.error();
    token = *read;
    proof.emplace_back("proof", auth::token_proof(token, shake, "client"));
  } else if (method == "munge") {
    auto credential = auth::munge_credential(auth::statement(shake, "client"));
    if (!credential) return credential.error();
    proof.emplace_back("proof", *credential);
  } else if (method != "none") {
    return Error{"store.denied",
                 "the server at " + address.text() + " asks for the authentication '" + method +
                     "', which this client does not know",
                 "use a client of the server's version"};
  }
  link_->send(plain_frame(wire::Kind::proof, bytes_of(wire::encode_text(proof))));
  link_->flush();
  auto welcome = heard(wire::Kind::welcome, deadline, connecting);
  if (!welcome) return welcome.error();
  if (secret && !auth::equal(wire::text_value(*welcome, "proof"), auth::token_proof(token, shake, "server")))
    return Error{"store.denied",
                 "the server at " + address.text() + " does not know the " +
                     (method == "user" ? "key of this user" : "token") + ": it is another server than expected",
                 method == "user" ? "check the address" : "check address and token file"};
  proven_ = true;
  tcp_->limit_frames(0);
  const std::string_view roles = wire::text_value(*welcome, "roles");
  for (const Role role : {Role::data, Role::kv, Role::db})
    if ((',' + std::string(roles) + ',').find(',' + std::string(name_of(role)) + ',') != std::string::npos)
      roles_ |= 1u << static_cast<unsigned>(role);
  credits_ = std::max<std::size_t>(1, number(wire::text_value(*welcome, "credits"), 64, 4096));
  frame_data_ = std::max<std::size_t>(
      4096, number(wire::text_value(*welcome, "frame_data"), wire::frame_data_default, wire::data_bytes_max));
  if (config.transport != "tcp") {
    auto transport = open_transport(config.transport);
    if (!transport) return transport.error();
    transport_ = *transport;
    control_ = std::make_unique<TcpControl>(*tcp_);
    LinkOptions options = config.link;
    options.frame_data = frame_data_;
    auto link = transport_->connect(*control_, options, *this, deadline);
    if (!link) return named(link.error());
    own_link_ = std::move(*link);
    link_ = own_link_.get();
  }
  return {};
}

bool Connection::idle_for(double seconds) const {
  return now_ns() - used_ns_ > static_cast<std::int64_t>(seconds * 1e9);
}

void Connection::send_held() {
  if (const std::size_t held = link_->backlog()) trace::call(sonde_store_link_flush, held, 0, [&] { link_->flush(); });
  else link_->flush();
}

void Connection::await(Deadline deadline) {
  trace::call(sonde_store_link_wait, trace::unknown, 0, [&] { link_->wait(deadline); });
}

int Connection::receive() {
  int frames = 0;
  trace::call(sonde_store_link_receive, trace::unknown, 0, [&] { frames = link_->progress(); });
  return frames;
}

void Connection::start(Exchange& x) {
  const std::int64_t begin = now_ns();
  if (x.begin_ns == 0) x.begin_ns = begin;
  used_ns_ = begin;
  if (!open_) {
    x.failed = true;
    return settle(x);
  }
  x.id = next_id_++;
  trace::Asked asked;
  for (std::uint32_t k = 0; k < x.size(); ++k) asked.add(x.ops[x.place(k)]);
  trace::call(asked.of(sonde_store_message_read, sonde_store_message_write, sonde_store_message_other), asked.bytes,
              trace::request(number_, x.id), [&] { send_message(x, begin); });
}

void Connection::send_message(Exchange& x, std::int64_t begin) {
  const bool was_idle = exchanges_.empty();
  const bool answered = x.safety != Safety::none;
  if (answered) exchanges_.emplace(x.id, &x);

  wire::Header h;
  h.kind = wire::Kind::request;
  h.id = x.id;
  h.role = x.role;
  h.safety = x.safety;
  h.batch_ops = x.size();
  h.timeout_ms = static_cast<std::uint32_t>(std::min(x.timeout_s * 1e3, 4e9));
  Outgoing out;
  table_.clear();
  std::size_t data = 0;
  std::int64_t in_link_ns = 0;
  const auto emit = [&](bool last) {
    h.flags = static_cast<std::uint16_t>((last ? 0 : wire::more) | (answered ? 0 : wire::no_reply) |
                                         (checksum_ ? wire::data_sum : 0));
    h.ops = table_.ops();
    h.table_bytes = static_cast<std::uint32_t>(table_.bytes());
    h.data_bytes = static_cast<std::uint32_t>(data);
    h.body_crc = wire::crc32c(table_.table());
    if (checksum_)
      for (const Segment& s : out.segments) h.body_crc = wire::crc32c(s, h.body_crc);
    out.head.resize(wire::header_bytes + table_.bytes());
    wire::encode(h, out.head.data());
    if (table_.bytes()) std::memcpy(out.head.data() + wire::header_bytes, table_.table().data(), table_.bytes());
    out.last = last;
    if (!answered) {  // the caller's memory is free again when this returns
      auto copy = std::make_shared<std::vector<std::byte>>();
      copy->reserve(data);
      for (const Segment& s : out.segments) copy->insert(copy->end(), s.begin(), s.end());
      out.segments.assign(1, Bytes(*copy));
      out.keep = std::move(copy);
    }
    // Large data are sent at once: this time is the network's, not that of building the message.
    const bool large = data >= (64u << 10);
    const std::int64_t t = large ? now_ns() : 0;
    trace::call(sonde_store_link_send, data, 0, [&] { link_->send(std::move(out)); });
    if (large) in_link_ns += now_ns() - t;
    out = {};
    table_.clear();
    data = 0;
    ++h.part;
  };
  for (std::uint32_t k = 0; k < x.size(); ++k) {
    const Op& op = x.ops[x.place(k)];
    wire::Record r;
    r.code = op.code;
    r.flags = op.flags;
    r.space = op.space;
    r.key = op.key;
    r.index = k;
    r.offset = op.offset;
    r.length = op.code == Code::kv_get ? op.into.size() : op.length;
    Bytes left = op.data;
    do {
      if (table_.ops() == wire::frame_ops_max ||
          table_.bytes() + wire::record_bytes + limit::space_bytes + limit::object_name_bytes + 8 >
              wire::table_bytes_max ||
          data == frame_data_ || (data && data + left.size() > frame_data_ && left.size() <= frame_data_))
        emit(false);
      const std::size_t n = std::min(left.size(), frame_data_ - data);
      r.data_bytes = static_cast<std::uint32_t>(n);
      table_.add(r);
      if (n) {
        // Neighbours in memory are sent as one segment, unless each piece must be sent by itself.
        if (gather_ && !out.segments.empty() && out.segments.back().data() + out.segments.back().size() == left.data())
          out.segments.back() = {out.segments.back().data(), out.segments.back().size() + n};
        else out.segments.push_back(left.first(n));
      }
      data += n;
      r.offset += n;
      left = left.subspan(n);
    } while (!left.empty());
  }
  emit(true);
  x.serialise_ns = now_ns() - begin - in_link_ns;
  // A message alone is sent now; after others it is sent with them, at the next wait, or when enough are gathered.
  if (was_idle) send_held();
  if (!answered) {
    x.failed = !open_;
    settle(x);
  }
  reap();
}

void Connection::settle(Exchange& x) {
  if (x.failed && x.safety != Safety::none)
    for (std::uint32_t k = 0; k < x.size(); ++k)
      if (Outcome& out = x.outcomes[x.place(k)]; out.status == Status::pending) out.status = Status::disconnected;
  x.done.store(true, std::memory_order_release);
}

void Connection::progress() {
  if (!open_) return reap();
  used_ns_ = now_ns();
  link_->progress();
  // The fabric may not notice that its peer is gone; the TCP connection does.
  if (open_ && control_ && exchanges_.empty() && !control_->heard()) close(control_->why_ended().what);
  reap();
}

void Connection::wait(Exchange& x, Deadline deadline) {
  if (open_) send_held();
  reap();
  // Wait first: a link that has data returns at once, and a link without data need not be asked twice.
  for (bool looked = false; !x.done.load(std::memory_order_acquire); looked = true) {
    if (looked && deadline.passed()) {
      for (std::uint32_t k = 0; k < x.size(); ++k)
        if (Outcome& out = x.outcomes[x.place(k)]; out.status == Status::pending) out.status = Status::timed_out;
      close("a batch ran into its deadline");
    } else if (open_) {
      await(deadline);
      receive();
    }
    reap();
  }
}

std::byte* Connection::room_for(Exchange& x, std::uint32_t k, const wire::Answer& a) {
  const Op& op = x.ops[k];
  if (x.rooms.empty()) x.rooms.resize(x.ops.size());
  Room& room = x.rooms[k];
  const std::uint64_t most = answer_bytes_max(op);
  if (most - room.got < a.data_bytes) return nullptr;
  if (!op.into.empty()) return op.into.data() + room.got;
  if (room.size - room.got < a.data_bytes) {
    std::uint64_t want = std::min(most, std::max<std::uint64_t>(room.got + a.data_bytes, 2 * room.got));
    if (op.code == Code::object_read) want = std::max(want, std::min<std::uint64_t>(most, read_ahead_max));
    // The length that the server claims for a value is trusted only in proportion to the bytes received.
    const std::uint64_t borne = wire::data_bytes_max + value_ahead * x.came;
    if (op.code == Code::kv_get && x.taken < borne) want = std::max(want, std::min({a.value, most, borne - x.taken}));
    MutableBytes larger;
    try {
      larger = x.arena->take(want);
    } catch (const std::bad_alloc&) {
      close("there is no memory for what the server sends");
      return nullptr;
    }
    if (room.got) std::memcpy(larger.data(), room.begin, room.got);
    room.begin = larger.data();
    room.size = want;
    x.taken += want;
  }
  return room.begin + room.got;
}

/// Joins neighbours in memory to one place.
static void join(std::vector<iovec>& places, std::byte* to, std::size_t bytes) {
  if (!places.empty() && static_cast<std::byte*>(places.back().iov_base) + places.back().iov_len == to)
    places.back().iov_len += bytes;
  else places.push_back({to, bytes});
}

bool Connection::place(Link&, const wire::Header& h, Bytes table, std::vector<iovec>& places) {
  if (h.kind != wire::Kind::reply || h.data_bytes < 4096) return false;
  const auto found = exchanges_.find(h.id);
  if (found == exchanges_.end() || !wire::read_answers(h, table, answers_)) return false;
  Exchange& x = *found->second;
  // Two answers in this frame for the same operation would go to the same place: frame() handles this.
  std::uint32_t before = 0;
  for (std::size_t n = 0; n < answers_.size(); ++n) {
    const auto& a = answers_[n];
    if (a.index >= x.size() || (n && a.index <= before)) return false;
    before = a.index;
  }
  for (const auto& a : answers_) {
    if (a.data_bytes == 0) continue;
    std::byte* to = a.status == Status::internal ? nullptr : room_for(x, x.place(a.index), a);
    if (!to) return false;
    join(places, to, a.data_bytes);
  }
  return true;
}

void Connection::answer(Exchange& x, const wire::Header& h, Bytes data, bool placed) {
  std::size_t at = 0;
  for (const auto& a : answers_) {
    for (std::uint32_t n = 0; n < a.run; ++n) {
      const std::uint32_t k = x.place(a.index + n);
      Outcome& out = x.outcomes[k];
      const bool first = out.status == Status::pending;
      // For a read or write in pieces the value counts the bytes from its beginning: bytes after a failed piece are not
      // counted.
      if (first || !adds_up(x.ops[k].code)) out.value = a.value;
      else if (out.status == Status::ok) out.value += a.value;
      if (first || out.status == Status::ok) out.status = a.status;
      out.time_ns = a.time_ns;
      if (a.data_bytes == 0) continue;
      if (a.status == Status::internal) {  // a text, which does not go to the caller's memory
        if (out.status == Status::internal && !std::exchange(x.explained, true))
          out.data = x.arena->copy(data.subspan(at, std::min<std::size_t>(a.data_bytes, failure_text_max)));
        at += a.data_bytes;
        continue;
      }
      if (out.status == Status::internal) return close("the server sent data after a failure");
      std::byte* to = room_for(x, k, a);
      if (!to) return close("the server sent more than was asked for");
      if (!placed) std::memcpy(to, data.data() + at, a.data_bytes);
      at += a.data_bytes;
      x.came += a.data_bytes;
      Room& room = x.rooms[k];
      room.got += a.data_bytes;
      out.data = {to + a.data_bytes - room.got, static_cast<std::size_t>(room.got)};
    }
  }
  if (h.flags & wire::more) return;
  exchanges_.erase(x.id);
  x.wait_us = h.wait_us;
  x.backend_us = h.backend_us;
  for (std::uint32_t k = 0; k < x.size(); ++k) x.failed |= x.outcomes[x.place(k)].status == Status::pending;
  trace::call(sonde_store_answered, h.data_bytes, trace::request(number_, x.id), [&] { settle(x); });
}

void Connection::frame(Link&, const wire::Header& h, Bytes table, Bytes data, bool placed) {
  if (h.kind == wire::Kind::reply) {
    const auto found = exchanges_.find(h.id);
    if (found == exchanges_.end()) return;  // abandoned meanwhile
    Exchange& x = *found->second;
    lost_ += h.lost;
    // place() read the table of what is placed, and nothing else came since.
    auto read = placed ? Result<void>() : wire::read_answers(h, table, answers_);
    std::uint64_t spoken_of = 0;
    for (const auto& a : answers_) {
      if (read && a.index + a.run > x.size())
        read = Error{"store.bad_frame", "a reply to operations that were not sent", ""};
      spoken_of += a.run;
    }
    // An answer may not begin before the operation of the previous answer.
    if (read && spoken_of > x.size() + answers_.size())
      read = Error{"store.bad_frame", "a reply has the same operations over and over", ""};
    if (!read) return close(read.error().what);
    std::uint32_t sum = wire::crc32c(table);
    if (h.flags & wire::data_sum) {
      if (placed) {
        joined_.clear();
        for (const auto& a : answers_)
          if (a.data_bytes) join(joined_, room_for(x, x.place(a.index), a), a.data_bytes);
        for (const iovec& piece : joined_)
          sum = wire::crc32c({static_cast<const std::byte*>(piece.iov_base), piece.iov_len}, sum);
      } else {
        sum = wire::crc32c(data, sum);
      }
    }
    if (sum != h.body_crc) return close("a reply's checksum is wrong");
    answer(x, h, data, placed);
    return;
  }
  if (h.body_crc != wire::crc32c(data)) return close("a frame's checksum is wrong");
  switch (h.kind) {
    case wire::Kind::ping:
      if (link_->backlog() == 0) pongs_ = 0;
      if (++pongs_ > pongs_max) return close("the server sends pings, but reads no answers");
      link_->send(plain_frame(wire::Kind::pong, {}, h.id));
      link_->flush();
      return;
    case wire::Kind::goodbye:
    case wire::Kind::fault: {
      again_ = wire::text_value(wire::decode_text(data), "again") == "1";
      failure_ = said(data);
      return close(failure_.what);
    }
    default:
      last_kind_ = h.kind;
      last_text_ = text_of(data);
      heard_one_ = true;
      lost_ += h.lost;
  }
}

void Connection::closed(Link&, const Error* error) {
  if (error && failure_.code.empty()) failure_ = named(*error);
  close("the server ended the connection");
}

void Connection::close(const std::string& why) {
  if (!open_) return;
  open_ = false;
  if (failure_.code.empty()) failure_ = named({"store.disconnected", why, ""});
}

void Connection::reap() {
  if (open_ || !link_) return;
  // The links are destroyed before the batches are informed: then nothing accesses memory of the batches any more.
  own_link_.reset();
  control_.reset();
  tcp_.reset();
  link_ = nullptr;
  for (auto& [id, x] : std::exchange(exchanges_, {})) {
    x->failed = true;
    settle(*x);
  }
}

Result<std::string> Connection::status(Deadline deadline) {
  asked_ns_ = now_ns();
  link_->send(plain_frame(wire::Kind::status, {}));
  link_->flush();
  reap();
  if (auto text = heard(wire::Kind::status, deadline, connecting); !text) return text.error();
  return last_text_;
}

Result<std::uint64_t> Connection::drain(Deadline deadline) {
  asked_ns_ = now_ns();
  while (open_ && !exchanges_.empty()) {
    if (deadline.passed()) {
      failure_ = too_slow(static_cast<double>(now_ns() - asked_ns_) * 1e-9, "timeout_s");
      close(failure_.what);
      break;
    }
    if (receive() == 0 && !exchanges_.empty() && open_) await(deadline);
    reap();
  }
  reap();
  if (!open_) return failure_;
  link_->send(plain_frame(wire::Kind::ping, {}, next_id_++));
  link_->flush();
  if (auto pong = heard(wire::Kind::pong, deadline, "timeout_s"); !pong) return pong.error();
  return std::exchange(lost_, 0);
}

}  // namespace sonde::store
