#pragma once
/// Frames over a TCP socket: the transport `tcp`, and the Control of all others. Owner-thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/spin.hpp"
#include "store/transport.hpp"
#include "store/transport/tls.hpp"

namespace sonde::store {

struct Address {
  std::string host;  ///< a name, an IPv4 address, or an IPv6 address without its brackets
  std::uint16_t port = 0;
  std::string text() const;
};

/// "host:port", "[::1]:5440", ":5440" (loopback), "host" (port 5440). Error: store.bad_address.
Result<Address> parse_address(std::string_view text);
inline constexpr std::uint16_t default_port = 5440;

/// 127.0.0.0/8, ::1 or a name that means nothing else.
bool is_loopback(const Address& address);

/// A connected socket, close-on-exec. Errors: store.unreachable (address, reason, what to look at), store.timed_out.
/// The part of a wait after which the caller may be asked whether to continue, and the error when not.
Deadline slice(Deadline whole);
Error interrupted(const Address& address);
/// stop: asked ten times a second, and true gives store.interrupted.
Result<int> tcp_connect(const Address& address, Deadline deadline, const std::function<bool()>& stop = {});
/// A listening socket, and the port it got. Errors: store.cannot_listen.
Result<int> tcp_listen(const Address& address, std::uint16_t& port);

/// The address that a connected socket's peer has; empty where it is no internet address.
std::string peer_of(int fd);

class TcpLink final : public Link {
 public:
  /// Takes the socket. The sink may be changed by turn_to(), by the thread that owns the link.
  TcpLink(int fd, const LinkOptions& options, Sink& sink);
  TcpLink(const TcpLink&) = delete;
  TcpLink& operator=(const TcpLink&) = delete;
  ~TcpLink() override;

  /// Everything goes through TLS from the first byte on. Before anything was sent.
  void secure(std::unique_ptr<Tls> tls);
  /// A peer may begin with TLS, which `secret` is for; `only`: if it does not, it hears why, and the link ends. Before
  /// anything was received.
  void offer_tls(const std::string& secret, bool only) noexcept;
  /// The peer has shown that it knows the secret, and all goes through TLS.
  bool secured() const { return tls_ && shaken_; }

  void turn_to(Sink& sink) { sink_ = &sink; }
  void adopt(const LinkOptions& options);
  void send(Outgoing frame) override;
  void flush() override;
  std::size_t backlog() const override { return out_bytes_ + cipher_left(); }
  int progress() override;
  int wait_fd() const override { return fd_; }
  short wait_events() const override;
  bool arm() override { return !undelivered() || !receiving_; }
  void wait(Deadline deadline) override;
  void receive(bool on) override { receiving_ = on; }
  bool open() const override { return fd_ >= 0 && !closed_; }
  LinkInfo info() const override;

  /// Longer frames are the end of the link, and no room is made for them. 0: those that the wire format allows.
  void limit_frames(std::size_t bytes) { frame_max_ = bytes; }
  /// progress() left frames that are here already, so that others have their turn.
  bool undelivered() const { return open() && (unparsed_ || more_); }
  /// A frame has come in part.
  bool partial() const { return placing_ || end_ != begin_; }
  /// Memory for what is received, and of TLS.
  std::size_t room_in() const { return capacity_ + (tls_ ? tls_->held() : 0); }
  std::uint64_t bytes_in() const { return bytes_in_; }
  std::uint64_t bytes_out() const { return bytes_out_; }
  std::string peer_host() const;
  bool same_host() const;

 private:
  struct Out {
    Outgoing frame;
    std::size_t sent = 0, bytes = 0;
  };

  void push();
  void push_secured();
  void read_some(int flags);
  /// As recvmsg(2) of the plain bytes, into the places in turn. With TLS it says in more_ whether there are more.
  ssize_t receive(iovec* places, std::size_t count, int flags);
  ssize_t receive_secured(iovec* places, std::size_t count, int flags);
  /// Detects from the first bytes whether the peer uses TLS. False: TLS is required, and the peer does not use it.
  bool settle_tls();
  /// A server that cannot even begin TLS says so in plain: that, and nothing else, is heard.
  bool hear_goodbye(Bytes came);
  bool send_cipher();
  std::size_t cipher_left() const { return tls_ ? tls_->cipher().size() : 0; }
  /// There is something that the network may take now.
  bool has_to_send() const { return tls_ ? cipher_left() || (shaken_ && !out_.empty()) : !out_.empty(); }
  int deliver();
  void fail(const Error& error);
  void finish();
  void make_room(std::size_t need);
  std::size_t room() const;

  int fd_;
  LinkOptions options_;
  Sink* sink_;
  std::deque<Out> out_;
  bool full_ = false;  ///< the socket took less than it was offered last
  std::size_t out_bytes_ = 0;

  std::unique_ptr<std::byte[]> in_;
  std::size_t capacity_ = 0, begin_ = 0, end_ = 0;  ///< in_[begin_, end_) is received and not delivered
  std::size_t frame_max_ = 0;
  std::size_t rest_ = 0;   ///< of a large frame that is on its way into in_
  bool large_ = false;     ///< the frame before was large: so may the next be
  bool unparsed_ = false;  ///< it may hold a frame
  bool receiving_ = true, closed_ = false, eof_ = false;
  int recv_timeout_ms_ = -1;
  Spin spin_;

  std::unique_ptr<Tls> tls_;
  bool shaken_ = false;  ///< the handshake is over
  bool more_ = false;    ///< receive() may find more without the network
  bool asked_ = false;   ///< this side began TLS, and nothing has come yet
  const std::string* offer_ = nullptr;
  bool offer_only_ = false;

  bool placing_ = false;  ///< the data of placed_header_ goes to places_
  wire::Header placed_header_;
  std::vector<std::byte> placed_table_;
  std::vector<iovec> places_;
  std::size_t place_at_ = 0, place_left_ = 0;
  std::uint64_t bytes_in_ = 0, bytes_out_ = 0;
};

/// The Control of another transport, over the TCP link of the connection. Takes its frames while it exists.
class TcpControl final : public Control, public Sink {
 public:
  explicit TcpControl(TcpLink& link) : link_(link) { link_.turn_to(*this); }
  Result<void> send(Bytes message) override;
  Result<std::vector<std::byte>> receive(Deadline deadline) override;
  int fd() const override { return link_.wait_fd(); }
  void ring() override;
  bool heard() override;
  std::string peer_host() const override { return link_.peer_host(); }
  bool same_host() const override { return link_.same_host(); }

  void frame(Link&, const wire::Header&, Bytes table, Bytes data, bool placed) override;
  void closed(Link&, const Error* error) override;

  /// Why the peer ended the connection, if it did: what it said, or store.disconnected.
  Error why_ended() const;

 private:
  TcpLink& link_;
  std::deque<std::vector<std::byte>> inbox_;
  std::optional<Error> said_;
  bool gone_ = false;
};

/// The error in a goodbye or a fault; store.disconnected when it names no code.
Error last_words(Bytes data);

/// A frame without a table: hello, ping, goodbye and their like.
Outgoing plain_frame(wire::Kind kind, Bytes data, std::uint64_t id = 0);

}  // namespace sonde::store
