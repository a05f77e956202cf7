#include "store/transport/tcp.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "store/transport/tcp_parts.hpp"

namespace sonde::store {

namespace {

constexpr std::size_t first_capacity = 16u << 10;

constexpr std::size_t usual_capacity =
    512u << 10;  ///< a buffer that keeps filling up grows to this; for one frame it may grow further

constexpr std::size_t large_frame = 64u << 10;
constexpr std::size_t large_first = 16u << 10;  ///< enough for header and table of most large frames
constexpr std::size_t eager_bytes = 64u << 10;  ///< send() buffers up to this much before it sends
constexpr std::size_t eager_frames = 16;        ///< or up to this many: the peer has work while more of them are made

/// Received, or spent on what was received, before progress() comes back: its thread has others to serve.
constexpr std::size_t turn_bytes = 1u << 20;

constexpr std::int64_t turn_ns = 500'000;
constexpr std::size_t record_bytes = 16u << 10;  // of TLS, at most: RFC 8446, section 5.1

/// Received for one call of receive(), and at once: before the handshake is over the peer has proved nothing.
constexpr std::size_t cipher_turn_bytes = 256u << 10, cipher_bytes_max = 32u << 10, shaking_bytes_max = 4u << 10;

constexpr int idle_max = 4;  // reads of TLS that take nothing, before more has to come

const Error no_memory{"store.unavailable", "there is no memory for the received data", "connect again later"};

Error lost(const char* what, int number) {
  return {"store.disconnected", std::string("the connection broke while ") + what + ": " + std::strerror(number),
          "see the server's log; the next batch connects again"};
}

}  // namespace

std::string encode_style(const LinkOptions& o) {
  std::string text = o.nodelay ? "nodelay" : "";
  if (o.cork) text += " cork";
  if (o.gather) text += " gather";
  if (o.await) text += " await";
  return text + " style";
}

void apply_style(std::string_view text, LinkOptions& o) {
  const std::string words = ' ' + std::string(text) + ' ';
  if (words.find(" style ") == std::string::npos) return;
  o.nodelay = words.find(" nodelay ") != std::string::npos;
  o.cork = words.find(" cork ") != std::string::npos;
  o.gather = words.find(" gather ") != std::string::npos;
  o.await = words.find(" await ") != std::string::npos;
}

TcpLink::TcpLink(int fd, const LinkOptions& options, Sink& sink)
    : fd_(fd), options_(options), sink_(&sink), spin_(options.spin_s) {
  // The socket blocks, and every call that must not says MSG_DONTWAIT: a client that waits for one answer then needs
  // one system call, not poll and recv.
  ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_NONBLOCK);
  set_option(fd_, IPPROTO_TCP, TCP_NODELAY, options_.nodelay);
  set_option(fd_, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd_, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(fd_, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(fd_, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void TcpLink::adopt(const LinkOptions& options) {
  options_ = options;
  set_option(fd_, IPPROTO_TCP, TCP_NODELAY, options_.nodelay);
}

TcpLink::~TcpLink() {
  if (fd_ >= 0) ::close(fd_);
}

LinkInfo TcpLink::info() const {
  std::string detail = options_.nodelay ? "nodelay" : "no nodelay";
  if (options_.cork) detail += ", cork";
  if (tls_) detail += ", TLS 1.3";
  if (!options_.gather) detail += options_.await ? ", a send a piece, each awaited" : ", a send a piece";
  return {"tcp", "", detail};
}

std::string peer_of(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  char text[INET6_ADDRSTRLEN] = "";
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return {};
  if (peer.ss_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&peer)->sin_addr, text, sizeof text);
  if (peer.ss_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(&peer)->sin6_addr, text, sizeof text);
  return text;
}

std::string TcpLink::peer_host() const { return peer_of(fd_); }

bool TcpLink::same_host() const {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &size) != 0) return false;
  char text[INET6_ADDRSTRLEN] = "";
  if (own.ss_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&own)->sin_addr, text, sizeof text);
  if (own.ss_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(&own)->sin6_addr, text, sizeof text);
  return peer_host() == text || is_loopback({text, 1});
}

void TcpLink::send(Outgoing frame) {
  if (!open()) return;
  std::size_t bytes = frame.head.size();
  for (const Segment& s : frame.segments) bytes += s.size();
  out_.push_back({std::move(frame), 0, bytes});
  out_bytes_ += bytes;
  if (out_bytes_ >= eager_bytes || (!full_ && out_.size() >= eager_frames)) push();
}

void TcpLink::flush() {
  if (!out_.empty() || cipher_left()) push();
}

void TcpLink::push() {
  if (tls_) return push_secured();
  while (!out_.empty() && open()) {
    if (options_.cork) set_option(fd_, IPPROTO_TCP, TCP_CORK, 1);
    iovec pieces[256];
    std::size_t n = 0, offered = 0;
    // Without gathering, one piece of one frame by each call: that is what the comparison is about.
    const std::size_t pieces_max = options_.gather ? std::size(pieces) : 1;
    for (const Out& out : out_) {
      std::size_t skip = out.sent;
      const auto add = [&](Bytes piece) {
        if (skip >= piece.size()) {
          skip -= piece.size();
        } else if (n < pieces_max) {
          pieces[n++] = {const_cast<std::byte*>(piece.data()) + skip, piece.size() - skip};
          offered += piece.size() - skip;
          skip = 0;
        }
      };
      if (options_.gather) {
        add(out.frame.head);
      } else {
        add(Bytes(out.frame.head).first(wire::header_bytes));
        add(Bytes(out.frame.head).subspan(wire::header_bytes));
      }
      for (const Segment& s : out.frame.segments) {
        if (n == pieces_max) break;
        add(s);
      }
      if (n == pieces_max) break;
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = n;
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) fail(lost("sending", errno));
      full_ = true;
      return;
    }
    bytes_out_ += static_cast<std::uint64_t>(sent);
    out_bytes_ -= static_cast<std::size_t>(sent);
    for (std::size_t left = static_cast<std::size_t>(sent); left;) {
      Out& out = out_.front();
      const std::size_t part = std::min(left, out.bytes - out.sent);
      out.sent += part;
      left -= part;
      if (out.sent == out.bytes) out_.pop_front();
    }
    if (options_.cork && out_.empty()) set_option(fd_, IPPROTO_TCP, TCP_CORK, 0);
    full_ = static_cast<std::size_t>(sent) < offered;
    if (full_) return;
  }
}

void TcpLink::secure(std::unique_ptr<Tls> tls) {
  tls_ = std::move(tls);
  asked_ = true;
  push_secured();  // a client speaks first
}

void TcpLink::offer_tls(const std::string& secret, bool only) noexcept {
  offer_ = &secret;
  offer_only_ = only;
}

bool TcpLink::settle_tls() {
  const std::string& secret = *std::exchange(offer_, nullptr);
  if (end_ == begin_) return true;
  if (!Tls::begins_with(in_[begin_])) {
    if (!offer_only_) return true;
    const Error plain{"store.denied", "this server accepts only TLS", "give --tls (SONDE_STORE_TLS=1)"};
    send(plain_frame(wire::Kind::goodbye,
                     bytes_of(wire::encode_text({{"code", plain.code}, {"what", plain.what}, {"hint", plain.hint}}))));
    flush();
    fail(plain);
    return false;
  }
  auto tls = Tls::make(Tls::Side::server, secret);
  if (!tls) {
    fail(tls.error());
    return false;
  }
  tls_ = std::move(*tls);
  if (!tls_->put(Bytes(in_.get() + begin_, end_ - begin_))) {
    fail(no_memory);
    return false;
  }
  begin_ = end_ = 0;
  more_ = true;
  return true;
}

bool TcpLink::hear_goodbye(Bytes came) {
  if (came.size() < wire::header_bytes || Tls::begins_with(came[0])) return false;
  const auto header = wire::decode(came.data());
  if (!header) return false;
  const wire::Header& h = *header;
  if (h.kind != wire::Kind::goodbye || h.table_bytes || came.size() < wire::header_bytes + h.data_bytes) return false;
  sink_->frame(*this, h, {}, came.subspan(wire::header_bytes, h.data_bytes), false);
  if (open()) fail({"store.disconnected", "the peer ended the connection", "see the server's log"});
  return true;
}

/// Hands the network what it takes of what TLS has for it. Whether it took all.
bool TcpLink::send_cipher() {
  for (Bytes cipher; open() && !(cipher = tls_->cipher()).empty();) {
    const ssize_t sent = ::send(fd_, cipher.data(), cipher.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) fail(lost("sending", errno));
      full_ = true;
      return false;
    }
    bytes_out_ += static_cast<std::uint64_t>(sent);
    tls_->took(static_cast<std::size_t>(sent));
  }
  full_ = false;
  return open();
}

void TcpLink::push_secured() {
  if (!open() || !send_cipher()) return;
  const auto over = tls_->shake();
  if (!over) return fail(over.error());
  shaken_ = *over;
  if (!send_cipher() || !shaken_) return;
  // Small pieces share a record.
  std::vector<std::byte> record;
  record.reserve(record_bytes);  // nothing below takes memory: a stream must not lose a piece
  const auto write = [&](Bytes piece) -> Result<void> {
    if (record.size() + piece.size() < record_bytes) {
      record.insert(record.end(), piece.begin(), piece.end());
      return {};
    }
    if (auto ok = tls_->write(record); !ok) return ok;
    record.clear();
    if (piece.size() < record_bytes) record.assign(piece.begin(), piece.end());
    else return tls_->write(piece);
    return {};
  };
  while (!out_.empty()) {
    for (std::size_t bytes = 0; !out_.empty() && bytes < eager_bytes; out_.pop_front()) {
      const Out& out = out_.front();
      bytes += out.bytes;
      auto ok = write(out.frame.head);
      for (const Segment& s : out.frame.segments)
        if (ok) ok = write(s);
      if (!ok) return fail(ok.error());
      out_bytes_ -= out.bytes;
    }
    if (auto ok = tls_->write(record); !ok) return fail(ok.error());
    record.clear();
    if (!send_cipher()) return;
  }
}

ssize_t TcpLink::receive(iovec* places, std::size_t count, int flags) {
  if (tls_) return receive_secured(places, count, flags);
  msghdr message{};
  message.msg_iov = places;
  message.msg_iovlen = count;
  return ::recvmsg(fd_, &message, flags);
}

ssize_t TcpLink::receive_secured(iovec* places, std::size_t count, int flags) {
  std::size_t got = 0, filled = 0, cipher_bytes = 0;  // of all; of the first place; of what came for it
  std::size_t unread_before = 0;
  int idle = 0;  // reads in a row that took nothing of what is there: one, where an answer had to be written first
  std::int64_t begin = now_ns();
  const auto later = [&]() -> ssize_t {
    more_ = true;
    errno = EAGAIN;
    return got ? static_cast<ssize_t>(got) : -1;
  };
  more_ = false;
  while (count) {
    const std::size_t left = places->iov_len - filled;
    if (left == 0) {
      ++places, --count, filled = 0;
      continue;
    }
    const auto n = tls_->read(static_cast<std::byte*>(places->iov_base) + filled, left);
    if (!n) {
      send_cipher();  // an alert, which gives the peer the reason
      fail(n.error());
      return got ? static_cast<ssize_t>(got) : -1;
    }
    // Data that waited for the end of the handshake are sent now: no later event would wake this side.
    if (!shaken_) push_secured();
    else send_cipher();
    if (!open()) return got ? static_cast<ssize_t>(got) : -1;
    if (*n < 0) return static_cast<ssize_t>(got);
    got += static_cast<std::size_t>(*n);
    filled += static_cast<std::size_t>(*n);
    // Records with little data or none, such as new keys, cost most for their bytes.
    const std::size_t unread = tls_->unread();
    idle = *n > 0 || unread < unread_before ? 0 : idle + 1;
    unread_before = unread;
    if (*n > 0 || (unread && idle <= idle_max)) {
      if (now_ns() - begin > turn_ns) return later();
      continue;
    }
    if (cipher_bytes >= cipher_turn_bytes) return later();  // of which nothing may have come for the places
    std::byte cipher[cipher_bytes_max];
    const ssize_t came =
        ::recv(fd_, cipher, shaken_ ? cipher_bytes_max : shaking_bytes_max, got ? flags | MSG_DONTWAIT : flags);
    if (came <= 0) {
      if (got) return static_cast<ssize_t>(got);  // the end, or the error, is found again
      return came;
    }
    if (!(flags & MSG_DONTWAIT)) begin = now_ns();  // it may have slept
    cipher_bytes += static_cast<std::size_t>(came);
    const Bytes fresh(cipher, static_cast<std::size_t>(came));
    if (std::exchange(asked_, false) && hear_goodbye(fresh)) return -1;
    if (!tls_->put(fresh)) {
      fail(no_memory);
      return -1;
    }
    flags |= MSG_DONTWAIT;
  }
  more_ = true;
  return static_cast<ssize_t>(got);
}

void TcpLink::make_room(std::size_t need) {
  if (capacity_ - end_ >= need) return;
  const std::size_t held = end_ - begin_;
  if (capacity_ >= held + need && held <= capacity_ / 2) {
    std::memmove(in_.get(), in_.get() + begin_, held);
  } else {
    const std::size_t size = frame_max_
                                 ? std::max(held + need, frame_max_)
                                 : std::max({held + need, first_capacity, std::min(2 * capacity_, usual_capacity)});
    auto larger = std::make_unique_for_overwrite<std::byte[]>(size);
    if (held) std::memcpy(larger.get(), in_.get() + begin_, held);
    in_ = std::move(larger);
    capacity_ = size;
  }
  begin_ = 0;
  end_ = held;
}

void TcpLink::read_some(int flags) {
  if (placing_) {
    const ssize_t n =
        receive(places_.data() + place_at_, std::min<std::size_t>(places_.size() - place_at_, 512), flags);
    if (n == 0) eof_ = true;
    if (n < 0 && open() && errno != EAGAIN && errno != EINTR) return fail(lost("receiving", errno));
    if (n <= 0) return;
    bytes_in_ += static_cast<std::uint64_t>(n);
    place_left_ -= static_cast<std::size_t>(n);
    for (std::size_t left = static_cast<std::size_t>(n); left;) {
      iovec& place = places_[place_at_];
      const std::size_t part = std::min(left, place.iov_len);
      place.iov_base = static_cast<std::byte*>(place.iov_base) + part;
      place.iov_len -= part;
      left -= part;
      if (place.iov_len == 0) ++place_at_;
    }
    unparsed_ |= place_left_ == 0;
    return;
  }
  if (begin_ == end_) begin_ = end_ = 0;
  if (capacity_ == end_) make_room(1);
  iovec place{in_.get() + end_, room()};
  const ssize_t n = receive(&place, 1, flags);
  if (n == 0) eof_ = true;
  if (n < 0 && open() && errno != EAGAIN && errno != EINTR) return fail(lost("receiving", errno));
  if (n <= 0) return;
  bytes_in_ += static_cast<std::uint64_t>(n);
  end_ += static_cast<std::size_t>(n);
  if (offer_ && (!settle_tls() || tls_)) return;  // what came is not plain
  unparsed_ = true;
  if (end_ == capacity_ && begin_ == 0 && capacity_ < usual_capacity && !frame_max_)
    make_room(capacity_);  // there is more than it holds
}

std::size_t TcpLink::room() const {
  const std::size_t all = capacity_ - end_;
  // Within a large frame read no further than its end, and before one (large frames follow each other) no further than
  // its table: bytes of the next frame would have to be moved to the front when it does not fit.
  if (rest_) return std::min(all, rest_);
  return large_ ? std::min(all, large_first) : all;
}

int TcpLink::deliver() {
  int frames = 0;
  const std::int64_t begin = now_ns();
  while (open() && receiving_) {
    if (frames && now_ns() - begin > turn_ns) return frames;  // what is left stays unparsed_
    if (placing_) {
      if (place_left_) break;
      placing_ = false;
      ++frames;
      sink_->frame(*this, placed_header_, placed_table_, {}, true);
      continue;
    }
    const std::size_t held = end_ - begin_;
    if (held < wire::header_bytes) {
      make_room(wire::header_bytes);
      break;
    }
    const auto header = wire::decode(in_.get() + begin_);
    if (!header) {
      // The reason is sent to the peer, if it listens; a stream whose lengths are unknown cannot be continued.
      send(plain_frame(wire::Kind::fault, bytes_of(header.error().what)));
      flush();
      fail(header.error());
      break;
    }
    const wire::Header& h = *header;
    const std::size_t head = wire::header_bytes + h.table_bytes, whole = head + h.data_bytes;
    if (frame_max_ && whole > frame_max_) {
      const Error large{"store.bad_frame",
                        "a frame of " + std::to_string(whole) + " B; before it is known who the peer is, at most " +
                            std::to_string(frame_max_) + " B are allowed",
                        "both sides must run the same version of Sonde"};
      send(plain_frame(wire::Kind::fault, bytes_of(large.what)));
      flush();
      fail(large);
      break;
    }
    if (held < whole) {
      // Allocate no more than was received already: a header can claim any size.
      const std::size_t most = std::max(held, usual_capacity);
      if (held < head) {
        make_room(std::min(head - held, most));
        break;
      }
      places_.clear();
      const Bytes table{in_.get() + begin_ + wire::header_bytes, h.table_bytes};
      if (h.data_bytes && sink_->place(*this, h, table, places_)) {
        placed_header_ = h;
        placed_table_.assign(table.begin(), table.end());
        placing_ = true;
        rest_ = 0;
        large_ = h.data_bytes >= large_frame;
        place_at_ = 0;
        place_left_ = h.data_bytes;
        begin_ += head;
        for (std::size_t left = end_ - begin_; left;) {
          iovec& place = places_[place_at_];
          const std::size_t part = std::min(left, place.iov_len);
          std::memcpy(place.iov_base, in_.get() + begin_, part);
          place.iov_base = static_cast<std::byte*>(place.iov_base) + part;
          place.iov_len -= part;
          begin_ += part;
          left -= part;
          place_left_ -= part;
          if (place.iov_len == 0) ++place_at_;
        }
        begin_ = end_ = 0;
        break;
      }
      make_room(std::min(whole - held, most));
      rest_ = h.data_bytes >= large_frame ? whole - held : 0;
      break;
    }
    rest_ = 0;
    large_ = h.data_bytes >= large_frame;
    const std::byte* at = in_.get() + begin_;
    begin_ += whole;
    ++frames;
    sink_->frame(*this, h, {at + wire::header_bytes, h.table_bytes}, {at + head, h.data_bytes}, false);
  }
  if (receiving_) unparsed_ = false;
  return frames;
}

int TcpLink::progress() {
  if (!open()) return 0;
  flush();
  int frames = 0;
  if (receiving_) {
    if (unparsed_) frames += deliver();
    // wait() has received the awaited data: reading again at once would mostly find nothing.
    if (frames && !eof_) return frames;
    const std::uint64_t first = bytes_in_;
    const std::int64_t begin = tls_ ? now_ns() : 0;
    while (open() && receiving_ && !unparsed_ && !eof_ && bytes_in_ - first < turn_bytes) {
      if (begin && now_ns() - begin > turn_ns) break;
      const std::uint64_t before = bytes_in_;
      if (!placing_ && begin_ == end_) begin_ = end_ = 0;
      const std::size_t asked = placing_ ? place_left_ : room();
      read_some(MSG_DONTWAIT);
      if (!unparsed_ && bytes_in_ == before) break;
      frames += deliver();
      if (bytes_in_ - before < asked && !more_) break;  // the socket is empty: no need to ask again
    }
    if (eof_ && open() && !undelivered()) finish();
  }
  return frames;
}

short TcpLink::wait_events() const {
  return static_cast<short>((receiving_ ? POLLIN : 0) | (has_to_send() ? POLLOUT : 0));
}

void TcpLink::wait(Deadline deadline) {
  if (!open() || (undelivered() && receiving_) || eof_) return;
  const bool only_receives = receiving_ && !has_to_send();
  if (only_receives && spin_.begin(deadline.at_ns)) {
    do {
      read_some(MSG_DONTWAIT);
      if (unparsed_ || eof_ || !open()) return;
    } while (spin_.again());
  }
  const int left = deadline.left_ms();
  if (left == 0) return;
  if (only_receives) {
    // Rounded down to a power of two, so that a deadline that comes nearer with every call does not cost a call each;
    // the caller checks the deadline and waits again.
    const int limit_ms = left < 0 ? 0 : static_cast<int>(std::bit_floor(static_cast<unsigned>(left)));
    if (limit_ms != recv_timeout_ms_) {
      recv_timeout_ms_ = limit_ms;
      const timeval limit{limit_ms / 1000, limit_ms % 1000 * 1000L};
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    }
    const std::int64_t begin = now_ns();
    read_some(0);
    spin_.slept(now_ns() - begin);
    return;
  }
  pollfd wait{fd_, wait_events(), 0};
  ::poll(&wait, 1, left);
}

void TcpLink::fail(const Error& error) {
  if (closed_) return;
  closed_ = true;
  out_.clear();
  out_bytes_ = 0;
  sink_->closed(*this, &error);
}

void TcpLink::finish() {
  if (end_ != begin_ || placing_)
    return fail({"store.disconnected", "the peer ended the connection within a frame",
                 "see the server's log; the next batch connects again"});
  closed_ = true;
  out_.clear();
  out_bytes_ = 0;
  sink_->closed(*this, nullptr);
}

Outgoing plain_frame(wire::Kind kind, Bytes data, std::uint64_t id) {
  wire::Header h;
  h.kind = kind;
  h.id = id;
  h.flags = wire::data_sum;
  h.data_bytes = static_cast<std::uint32_t>(data.size());
  h.body_crc = wire::crc32c(data);
  Outgoing frame;
  frame.head.resize(wire::header_bytes + data.size());
  wire::encode(h, frame.head.data());
  if (!data.empty()) std::memcpy(frame.head.data() + wire::header_bytes, data.data(), data.size());
  return frame;
}

Result<void> TcpControl::send(Bytes message) {
  link_.send(plain_frame(wire::Kind::transport, message));
  link_.flush();
  if (link_.open()) return {};
  return why_ended();
}

Result<std::vector<std::byte>> TcpControl::receive(Deadline deadline) {
  for (;;) {
    if (!inbox_.empty()) {
      auto message = std::move(inbox_.front());
      inbox_.pop_front();
      return message;
    }
    if (gone_ || !link_.open()) return why_ended();
    if (deadline.passed())
      return Error{"store.timed_out", "the peer did not answer in time", "see the server's log; raise --timeout"};
    link_.wait(deadline);
    link_.progress();
  }
}

void TcpControl::ring() {
  // A peer that does not read has something to read already: unread wake-ups must not accumulate here.
  link_.flush();
  if (link_.backlog()) return;
  link_.send(plain_frame(wire::Kind::ping, {}));
  link_.flush();
}

bool TcpControl::heard() {
  link_.progress();
  return !gone_ && link_.open();
}

void TcpControl::frame(Link&, const wire::Header& h, Bytes, Bytes data, bool) {
  if (h.body_crc != wire::crc32c(data)) return;
  if (h.kind == wire::Kind::transport && inbox_.size() < 64) inbox_.emplace_back(data.begin(), data.end());
  if (h.kind == wire::Kind::goodbye || h.kind == wire::Kind::fault) {
    said_ = last_words(data);
    gone_ = true;
  }
}

void TcpControl::closed(Link&, const Error* error) {
  gone_ = true;
  if (error && !said_) said_ = Error{"store.disconnected", error->what, "see the server's log"};
}

Error TcpControl::why_ended() const {
  return said_ ? *said_ : Error{"store.disconnected", "the peer ended the connection", "see the server's log"};
}

Error last_words(Bytes data) {
  const auto text = wire::decode_text(data);
  const std::string code(wire::text_value(text, "code"));
  if (code.empty())
    return {"store.disconnected", "the peer ended the connection: " + std::string(text_of(data)),
            "see the server's log"};
  return {code, std::string(wire::text_value(text, "what")), std::string(wire::text_value(text, "hint"))};
}

}  // namespace sonde::store
