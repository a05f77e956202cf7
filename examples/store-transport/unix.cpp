// A transport from outside: frames over a Unix-domain socket, for clients on the server's own host.
//
//   g++ -std=c++20 -O2 -shared -fPIC unix.cpp $(sonde store conformance --flags) -o sonde-store-unix.so
//   sonde store conformance ./sonde-store-unix.so
//   SONDE_STORE_MODULES=$PWD sonde store serve --memory
//   SONDE_STORE_MODULES=$PWD sonde store put kv:notes/first text --transport unix
//
// The server listens at an address that nobody can guess, and tells it to the client over the Control; the kernel then
// says whose process has connected (SO_PEERCRED), which must be the user that the Control speaks for.
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/module.hpp"

namespace {

using namespace sonde;
using namespace sonde::store;

constexpr std::string_view greeting = "unix 1 ", end_mark = "unix end";
constexpr std::size_t usual_buffer = 256u << 10;

Error broken(const std::string& what) {
  return {"store.disconnected", "unix: " + what, "see the log of the other side"};
}
Error broken(const std::string& what, int why) { return broken(what + ": " + std::strerror(why)); }

struct Socket {
  int fd = -1;
  explicit Socket(int fd_) : fd(fd_) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd >= 0) ::close(fd);
  }
  int release() { return std::exchange(fd, -1); }
};

// 1. Derive from Link: frames both ways over what connects the two.
class UnixLink final : public Link {
 public:
  UnixLink(int fd, Control& control, Sink& sink) : fd_(fd), control_(control), sink_(sink), in_(usual_buffer) {}

  // A peer that is killed closes its socket as one does that ends in order: the difference is told over the Control.
  ~UnixLink() override {
    if (!closed_) (void)control_.send(bytes_of(end_mark));
    ::close(fd_);
  }

  // Takes a frame and never waits. Its memory is held by its pieces, and let go with the last of them.
  void send(Outgoing frame) override {
    if (closed_ || deaf_) return;
    const auto held = std::make_shared<Outgoing>(std::move(frame));
    const auto add = [&](Bytes bytes) {
      if (bytes.empty()) return;
      out_.push_back({bytes, held});
      backlog_ += bytes.size();
    };
    add(held->head);
    for (const Segment& segment : held->segments) add(segment);
  }

  // All pieces that fit go with one call: headers, tables and data of many frames.
  void flush() override {
    while (!out_.empty()) {
      std::array<iovec, 128> pieces;
      std::size_t n = 0;
      for (auto piece = out_.begin(); piece != out_.end() && n < pieces.size(); ++piece, ++n)
        pieces[n] = {const_cast<std::byte*>(piece->bytes.data()), piece->bytes.size()};
      msghdr message{};
      message.msg_iov = pieces.data();
      message.msg_iovlen = n;
      const ssize_t sent = ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) return;
      if (sent < 0) {
        // What the peer sent before it went is still to be read, and then its end: progress() tells the sink.
        deaf_ = true;
        out_.clear();
        backlog_ = 0;
        return;
      }
      backlog_ -= static_cast<std::size_t>(sent);
      for (auto left = static_cast<std::size_t>(sent); left;) {
        Bytes& first = out_.front().bytes;
        const std::size_t part = std::min(left, first.size());
        left -= part;
        first = first.subspan(part);
        if (first.empty()) out_.pop_front();
      }
    }
  }

  std::size_t backlog() const override { return backlog_; }

  // 3. Deliver whole frames to the Sink, in order.
  int progress() override {
    if (closed_) return 0;
    flush();
    int frames = 0;
    for (int round = 0; round < 16; ++round) {  // others want their turn
      frames += deliver();
      if (closed_ || !receiving_ || !read_some()) break;
    }
    return frames;
  }

  // 4. Say how to wait: for the socket, but not while a frame is here already.
  int wait_fd() const override { return fd_; }
  short wait_events() const override {
    return static_cast<short>((receiving_ ? POLLIN : 0) | (out_.empty() ? 0 : POLLOUT));
  }
  bool arm() override { return !receiving_ || !unparsed_; }
  void wait(Deadline deadline) override {
    if (closed_ || !arm()) return;
    pollfd ready{fd_, wait_events(), 0};
    ::poll(&ready, 1, deadline.left_ms());
  }

  void receive(bool on) override { receiving_ = on; }
  bool open() const override { return !closed_; }
  LinkInfo info() const override { return {"unix", "", "SOCK_STREAM"}; }

 private:
  struct Piece {
    Bytes bytes;
    std::shared_ptr<Outgoing> frame;
  };

  // Frames that are here. Data goes straight to the sink: Sink::place() would save a copy of large ones, and is left
  // out here.
  int deliver() {
    int frames = 0;
    while (receiving_ && !closed_) {
      const std::size_t here = end_ - begin_;
      need_ = wire::header_bytes;
      if (here >= need_) {
        const auto header = wire::decode(in_.data() + begin_);
        if (!header) {  // where the next frame begins is not known any more
          close(header.error());
          break;
        }
        const std::size_t head = wire::header_bytes + (*header).table_bytes;
        need_ = head + (*header).data_bytes;
        if (here >= need_) {
          const std::byte* at = in_.data() + begin_;
          begin_ += need_;
          ++frames;
          sink_.frame(*this, *header, {at + wire::header_bytes, (*header).table_bytes},
                      {at + head, (*header).data_bytes}, false);
          continue;
        }
      }
      unparsed_ = false;
      break;
    }
    return frames;
  }

  // False: there was nothing.
  bool read_some() {
    if (begin_ == end_) begin_ = end_ = 0;
    if (in_.size() - begin_ < need_ || end_ == in_.size()) {
      std::copy(in_.begin() + static_cast<std::ptrdiff_t>(begin_), in_.begin() + static_cast<std::ptrdiff_t>(end_),
                in_.begin());
      end_ -= begin_;
      begin_ = 0;
      if (in_.size() < need_) in_.resize(need_);
    }
    const ssize_t n = ::recv(fd_, in_.data() + end_, in_.size() - end_, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) return true;
    if (n < 0 && errno == EAGAIN) return false;
    if (n > 0) {
      end_ += static_cast<std::size_t>(n);
      unparsed_ = true;
      return true;
    }
    if (begin_ != end_) {
      close(broken("the peer ended within a frame"));
      return false;
    }
    // Its last words were sent before the socket was closed.
    const auto last = control_.receive(Deadline::in_s(0.1));
    if (last && text_of(*last) == end_mark) {
      closed_ = true;
      sink_.closed(*this, nullptr);
    } else {
      close(broken("the peer is gone"));
    }
    return false;
  }

  void close(const Error& error) {
    closed_ = true;
    out_.clear();
    backlog_ = 0;
    sink_.closed(*this, &error);
  }

  int fd_;
  Control& control_;
  Sink& sink_;
  std::deque<Piece> out_;
  std::size_t backlog_ = 0;
  std::vector<std::byte> in_;                   // [begin_, end_) is received and not delivered
  std::size_t begin_ = 0, end_ = 0, need_ = 0;  // need_: bytes of the frame at begin_, as far as known
  bool receiving_ = true, unparsed_ = false;    // unparsed_: there may be a frame in it
  bool deaf_ = false, closed_ = false;          // deaf_: the peer takes nothing more
};

// The abstract namespace: no file that somebody would have to remove.
sockaddr_un address_of(Bytes name, socklen_t& bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// 1. Derive from Transport.
class Unix final : public Transport {
 public:
  std::string name() const override { return "unix"; }

  // 2. connect() on the client, accept() on the server: they find each other over the Control.
  Result<std::unique_ptr<Link>> connect(Control& control, const LinkOptions& options, Sink& sink,
                                        Deadline deadline) override {
    if (auto ok = no_more_settings(options.more, "unix", "none"); !ok) return ok.error();
    if (!control.same_host())
      return Error{"store.other_host",
                   "the transport unix stays on one host, and the server is on " + control.peer_host(),
                   "use --transport tcp"};
    if (auto ok = control.send(bytes_of(std::string(greeting) + std::to_string(::geteuid()))); !ok) return ok.error();
    auto name = control.receive(deadline);
    if (!name) return name.error();
    if (name->empty() || name->size() >= sizeof(sockaddr_un::sun_path))
      return broken("the server's address makes no sense");
    Socket own(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    socklen_t bytes = 0;
    const sockaddr_un address = address_of(*name, bytes);
    if (own.fd < 0 || ::connect(own.fd, reinterpret_cast<const sockaddr*>(&address), bytes) != 0)
      return broken("cannot connect (client and server must share a network namespace)", errno);
    return std::unique_ptr<Link>(std::make_unique<UnixLink>(own.release(), control, sink));
  }

  Result<std::unique_ptr<Link>> accept(Control& control, Bytes first, const LinkOptions&, Sink& sink,
                                       Deadline deadline) override {
    if (!text_of(first).starts_with(greeting)) return broken("the client speaks another version of this transport");
    const std::string_view user = text_of(first).substr(greeting.size());
    std::array<std::byte, 16> name;
    Socket listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    socklen_t bytes = 0;
    if (::getrandom(name.data(), name.size(), 0) != static_cast<ssize_t>(name.size()))
      return broken("no random numbers", errno);
    const sockaddr_un address = address_of(name, bytes);
    if (listener.fd < 0 || ::bind(listener.fd, reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
        ::listen(listener.fd, 8) != 0)
      return broken("cannot listen", errno);
    if (auto ok = control.send(name); !ok) return ok.error();
    for (;;) {
      if (deadline.passed())
        return Error{"store.timed_out", "unix: the client did not connect in time", "see the log of the other side"};
      pollfd ready[2] = {{listener.fd, POLLIN, 0}, {control.fd(), POLLIN, 0}};
      ::poll(ready, 2, deadline.left_ms());
      Socket own(::accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC));
      if (own.fd < 0) {  // only then: who has connected may have sent all it had, and gone
        if (ready[1].revents && !control.heard()) return broken("the client is gone");
        continue;
      }
      ucred peer{};
      socklen_t size = sizeof peer;
      if (::getsockopt(own.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && std::to_string(peer.uid) == user)
        return std::unique_ptr<Link>(std::make_unique<UnixLink>(own.release(), control, sink));
      // A stranger: it is let go, and the client waited for.
    }
  }
};

const TransportEntry transports[] = {{"unix", [] { return std::unique_ptr<Transport>(std::make_unique<Unix>()); }}};
const Module module{module_abi, "unix", {}, transports};

}  // namespace

// 5. Export a Module.
extern "C" const Module* sonde_store_module() { return &module; }
