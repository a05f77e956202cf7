// Raw transports: a datagram, a byte stream, a ring in shared memory. Waiting threads sleep in the kernel, like the
// readers of the bus.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bus/probe/way.hpp"
#include "core/number.hpp"

namespace sonde::bus::probe {

namespace {

Error system_error(const std::string& what) { return {"bus.failed", what + ": " + std::strerror(errno), ""}; }

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_;
};

/// "10.1.2.3:4567".
Result<sockaddr_in> parse_place(const std::string& text) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  const auto colon = text.rfind(':');
  std::uint16_t port = 0;
  if (colon == std::string::npos || !number(std::string_view(text).substr(colon + 1), port) ||
      ::inet_pton(AF_INET, text.substr(0, colon).c_str(), &at.sin_addr) != 1)
    return Error{"bus.failed", "'" + text + "' is not an IPv4 address with a port", ""};
  at.sin_port = htons(port);
  return at;
}

/// The address where a socket listens.
sockaddr_in place_of(int fd) {
  sockaddr_in at{};
  socklen_t n = sizeof at;
  (void)::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &n);
  return at;
}

std::string text_of(const sockaddr_in& at) {
  char text[INET_ADDRSTRLEN] = {};
  ::inet_ntop(AF_INET, &at.sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(ntohs(at.sin_port));
}

void set_buffers(int fd, const Variant& v) {
  const auto set = [fd](int plain, int forced, std::uint64_t bytes) {
    const int value = static_cast<int>(bytes);
    if (bytes && ::setsockopt(fd, SOL_SOCKET, forced, &value, sizeof value) != 0)
      ::setsockopt(fd, SOL_SOCKET, plain, &value, sizeof value);
  };
  set(SO_RCVBUF, SO_RCVBUFFORCE, v.transport.receive_buffer_bytes);
  set(SO_SNDBUF, SO_SNDBUFFORCE, v.transport.send_buffer_bytes);
}

/// Sets the timeout of recv() to `left_ms`, -1: no timeout. Makes a system call only if this changes.
class Patience {
 public:
  void set(int fd, Deadline deadline) {
    const bool limited = deadline.at_ns != 0;
    if (known_ && limited == limited_) return;
    const timeval step{0, limited ? 100'000 : 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &step, sizeof step);
    known_ = true;
    limited_ = limited;
  }

 private:
  bool known_ = false, limited_ = false;
};

// ---- datagrams

class UdpSender final : public Sender {
 public:
  explicit UdpSender(const Variant& v) : fd_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    set_buffers(fd_.get(), v);
  }
  Result<void> connect(const std::vector<std::string>& addresses) override {
    for (const auto& a : addresses) {
      auto to = parse_place(a);
      if (!to) return to.error();
      to_.push_back(*to);
    }
    return {};
  }
  Result<void> write(Message& message) override {
    const Bytes body = message.body();
    for (const auto& to : to_)
      if (::sendto(fd_.get(), body.data(), body.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to) < 0)
        return system_error("sendto()");
    return {};
  }

 private:
  Fd fd_;
  std::vector<sockaddr_in> to_;
};

class UdpReceiver final : public Receiver {
 public:
  UdpReceiver(Fd fd) : fd_(std::move(fd)), memory_(65536) {}
  std::size_t receive(const Taker& taker, Deadline deadline) override {
    patience_.set(fd_.get(), deadline);
    while (!deadline.passed()) {
      if (woken_.exchange(false)) return 0;
      if (const auto n = step(taker, 0)) return n;
    }
    return 0;
  }
  std::size_t look(const Taker& taker) override { return step(taker, MSG_DONTWAIT); }
  void wake() override {
    woken_ = true;
    const auto to = place_of(fd_.get());
    (void)::sendto(fd_.get(), nullptr, 0, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  std::string address() const override { return text_of(place_of(fd_.get())); }

 private:
  std::size_t step(const Taker& taker, int flags) {
    const ssize_t n = ::recv(fd_.get(), memory_.data(), memory_.size(), flags);
    if (n <= 0) return 0;
    taker({memory_.data(), static_cast<std::size_t>(n)});
    return 1;
  }
  Fd fd_;
  Patience patience_;
  std::vector<std::byte> memory_;
  std::atomic<bool> woken_{false};
};

// ---- a byte stream: the length of each body before it

class TcpSender final : public Sender {
 public:
  explicit TcpSender(const Variant& v) : variant_(v) {}
  Result<void> connect(const std::vector<std::string>& addresses) override {
    for (const auto& a : addresses) {
      Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      set_buffers(fd.get(), variant_);
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      const auto to = parse_place(a);
      if (!to) return to.error();
      if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*to), sizeof *to) != 0)
        return system_error("connect()");
      to_.push_back(std::move(fd));
    }
    return {};
  }
  Result<void> write(Message& message) override {
    const Bytes body = message.body();
    std::uint32_t length = static_cast<std::uint32_t>(body.size());
    for (const auto& to : to_) {
      iovec pieces[2] = {{&length, sizeof length}, {const_cast<std::byte*>(body.data()), body.size()}};
      msghdr all{};
      all.msg_iov = pieces;
      all.msg_iovlen = 2;
      for (std::size_t left = sizeof length + body.size(); left;) {
        const ssize_t n = ::sendmsg(to.get(), &all, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return system_error("sendmsg()");
        left -= static_cast<std::size_t>(n);
        for (auto gone = static_cast<std::size_t>(n); gone && all.msg_iovlen;) {
          const auto here = std::min(gone, all.msg_iov->iov_len);
          all.msg_iov->iov_base = static_cast<char*>(all.msg_iov->iov_base) + here;
          all.msg_iov->iov_len -= here;
          gone -= here;
          if (all.msg_iov->iov_len == 0) ++all.msg_iov, --all.msg_iovlen;
        }
      }
    }
    return {};
  }

 private:
  const Variant& variant_;
  std::vector<Fd> to_;
};

class TcpReceiver final : public Receiver {
 public:
  TcpReceiver(Fd listener, const Variant& v) : listener_(std::move(listener)), variant_(v), memory_(256 << 10) {}
  std::size_t receive(const Taker& taker, Deadline deadline) override {
    patience_.set(listener_.get(), deadline);
    if (fd_.open()) stream_patience_.set(fd_.get(), deadline);
    while (!deadline.passed() && !woken_.exchange(false) && !ended_) {
      if (!fd_.open()) {
        accept(0);
        if (fd_.open()) stream_patience_.set(fd_.get(), deadline);
      } else if (const auto n = step(taker, 0)) {
        return n;
      }
    }
    return 0;
  }
  std::size_t look(const Taker& taker) override {
    if (!fd_.open()) {
      pollfd waiting{listener_.get(), POLLIN, 0};
      if (::poll(&waiting, 1, 0) == 1) accept(0);
    }
    return fd_.open() ? step(taker, MSG_DONTWAIT) : 0;
  }
  void wake() override {
    woken_ = true;
    ::shutdown(listener_.get(), SHUT_RD);
    const int fd = shared_fd_;
    if (fd >= 0) ::shutdown(fd, SHUT_RD);
  }
  std::string address() const override { return text_of(place_of(listener_.get())); }

 private:
  void accept(int flags) {
    const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | flags);
    if (fd < 0) return;
    fd_ = Fd(fd);
    set_buffers(fd, variant_);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    shared_fd_ = fd;
  }
  std::size_t step(const Taker& taker, int flags) {
    if (memory_.size() - used_ < 4096) memory_.resize(memory_.size() * 2);
    const ssize_t got = ::recv(fd_.get(), memory_.data() + used_, memory_.size() - used_, flags);
    if (got == 0) ended_ = true;
    if (got <= 0) return 0;
    used_ += static_cast<std::size_t>(got);
    std::size_t at = 0, taken = 0;
    for (std::uint32_t length; used_ - at >= sizeof length; at += sizeof length + length, ++taken) {
      std::memcpy(&length, memory_.data() + at, sizeof length);
      if (used_ - at - sizeof length < length) break;
      taker({memory_.data() + at + sizeof length, length});
    }
    std::memmove(memory_.data(), memory_.data() + at, used_ - at);
    used_ -= at;
    return taken;
  }
  Fd listener_, fd_;
  const Variant& variant_;
  std::atomic<int> shared_fd_{-1};
  Patience patience_, stream_patience_;
  std::vector<std::byte> memory_;
  std::size_t used_ = 0;
  std::atomic<bool> woken_{false};
  bool ended_ = false;
};

// ---- a ring in shared memory: one writer, one reader, each sleeps on a futex

struct Ring {
  static constexpr std::uint64_t capacity = 8u << 20;
  alignas(64) std::atomic<std::uint64_t> head;  ///< bytes ever written
  std::atomic<std::uint32_t> filled;            ///< changes with each write; the reader sleeps on it
  std::atomic<std::uint32_t> reader_sleeps;
  alignas(64) std::atomic<std::uint64_t> tail;  ///< bytes ever read
  std::atomic<std::uint32_t> emptied;           ///< changes with each read; the writer sleeps on it
  std::atomic<std::uint32_t> writer_sleeps;
  alignas(64) std::byte data[capacity];
};

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, int left_ms) {
  const timespec most{left_ms / 1000, left_ms % 1000 * 1'000'000L};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, left_ms < 0 ? nullptr : &most, nullptr, 0);
}
void futex_wake(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

class SharedRing {
 public:
  static Result<std::shared_ptr<SharedRing>> make() {
    Fd fd(::memfd_create("sonde-busprobe", MFD_CLOEXEC));
    if (!fd.open() || ::ftruncate(fd.get(), sizeof(Ring)) != 0) return system_error("memfd_create()");
    return map(std::move(fd));
  }
  static Result<std::shared_ptr<SharedRing>> open(const std::string& path) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd.open()) return system_error(path);
    return map(std::move(fd));
  }
  SharedRing(Fd fd, void* at) : fd_(std::move(fd)), ring_(static_cast<Ring*>(at)) {}
  ~SharedRing() { ::munmap(ring_, sizeof(Ring)); }
  Ring& operator*() { return *ring_; }
  std::string path() const { return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_.get()); }

 private:
  static Result<std::shared_ptr<SharedRing>> map(Fd fd) {
    void* const at = ::mmap(nullptr, sizeof(Ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (at == MAP_FAILED) return system_error("mmap()");
    return std::make_shared<SharedRing>(std::move(fd), at);
  }
  Fd fd_;
  Ring* ring_;
};

constexpr std::uint64_t padded(std::uint64_t n) { return (n + 7) / 8 * 8; }

class ShmSender final : public Sender {
 public:
  Result<void> connect(const std::vector<std::string>& addresses) override {
    for (const auto& a : addresses) {
      auto ring = SharedRing::open(a);
      if (!ring) return ring.error();
      to_.push_back(std::move(*ring));
    }
    return {};
  }
  Result<void> write(Message& message) override {
    const Bytes body = message.body();
    const auto length = static_cast<std::uint64_t>(body.size());
    const std::uint64_t needs = sizeof length + padded(length);
    if (needs > Ring::capacity)
      return Error{"bus.failed", "the ring is too small for a message of " + std::to_string(length) + " B", ""};
    const Deadline deadline = Deadline::in_s(1);
    for (const auto& to : to_) {
      Ring& ring = **to;
      const std::uint64_t head = ring.head.load(std::memory_order_relaxed);
      while (Ring::capacity - (head - ring.tail.load(std::memory_order_acquire)) < needs) {
        const std::uint32_t seen = ring.emptied.load();
        ring.writer_sleeps = 1;
        if (Ring::capacity - (head - ring.tail.load()) < needs) futex_wait(ring.emptied, seen, 100);
        ring.writer_sleeps = 0;
        if (deadline.passed()) return Error{"bus.timed_out", "the ring stayed full for 1 s", ""};
      }
      put(ring, head, &length, sizeof length);
      put(ring, head + sizeof length, body.data(), length);
      ring.head.store(head + needs, std::memory_order_release);
      ring.filled.fetch_add(1);
      if (ring.reader_sleeps.load()) futex_wake(ring.filled);
    }
    return {};
  }

 private:
  static void put(Ring& ring, std::uint64_t at, const void* from, std::uint64_t n) {
    const std::uint64_t place = at % Ring::capacity, first = std::min(n, Ring::capacity - place);
    std::memcpy(ring.data + place, from, first);
    std::memcpy(ring.data, static_cast<const std::byte*>(from) + first, n - first);
  }
  std::vector<std::shared_ptr<SharedRing>> to_;
};

class ShmReceiver final : public Receiver {
 public:
  explicit ShmReceiver(std::shared_ptr<SharedRing> ring) : ring_(std::move(ring)) {}
  std::size_t receive(const Taker& taker, Deadline deadline) override {
    Ring& ring = **ring_;
    for (;;) {
      if (const auto n = look(taker)) return n;
      if (woken_.exchange(false) || deadline.passed()) return 0;
      const std::uint32_t seen = ring.filled.load();
      ring.reader_sleeps = 1;
      if (ring.head.load() == ring.tail.load() && !woken_.load()) futex_wait(ring.filled, seen, deadline.left_ms());
      ring.reader_sleeps = 0;
    }
  }
  std::size_t look(const Taker& taker) override {
    Ring& ring = **ring_;
    std::size_t n = 0;
    for (std::uint64_t tail = ring.tail.load(std::memory_order_relaxed);
         ring.head.load(std::memory_order_acquire) != tail; ++n) {
      std::uint64_t length = 0;
      std::memcpy(&length, ring.data + tail % Ring::capacity,
                  sizeof length);  // never split: all start at multiples of 8
      const std::uint64_t place = (tail + sizeof length) % Ring::capacity;
      if (length > Ring::capacity) break;
      if (place + length <= Ring::capacity) {
        taker({ring.data + place, length});
      } else {
        memory_.resize(length);
        std::memcpy(memory_.data(), ring.data + place, Ring::capacity - place);
        std::memcpy(memory_.data() + (Ring::capacity - place), ring.data, length - (Ring::capacity - place));
        taker(memory_);
      }
      tail += sizeof length + padded(length);
      ring.tail.store(tail, std::memory_order_release);
      ring.emptied.fetch_add(1);
      if (ring.writer_sleeps.load()) futex_wake(ring.emptied);
    }
    return n;
  }
  void wake() override {
    woken_ = true;
    (**ring_).filled.fetch_add(1);
    futex_wake((**ring_).filled);
  }
  std::string address() const override { return ring_->path(); }

 private:
  std::shared_ptr<SharedRing> ring_;
  std::vector<std::byte> memory_;
  std::atomic<bool> woken_{false};
};

class RawPlace final : public Place {
 public:
  RawPlace(const Variant& v, const PlaceOptions& options)
      : variant_(v), at_(options.addresses.empty() ? "127.0.0.1" : options.addresses.front()) {}
  Result<std::unique_ptr<Sender>> sender(const EndOptions&) override {
    if (variant_.implementation == "raw-udp") return std::unique_ptr<Sender>(std::make_unique<UdpSender>(variant_));
    if (variant_.implementation == "raw-tcp") return std::unique_ptr<Sender>(std::make_unique<TcpSender>(variant_));
    return std::unique_ptr<Sender>(std::make_unique<ShmSender>());
  }
  Result<std::unique_ptr<Receiver>> receiver(const EndOptions&) override {
    if (variant_.implementation == "raw-shm") {
      auto ring = SharedRing::make();
      if (!ring) return ring.error();
      return std::unique_ptr<Receiver>(std::make_unique<ShmReceiver>(std::move(*ring)));
    }
    const bool udp = variant_.implementation == "raw-udp";
    Fd fd(::socket(AF_INET, (udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0));
    const auto place = parse_place(at_ + ":0");
    if (!place) return place.error();
    const sockaddr_in at = *place;
    set_buffers(fd.get(), variant_);
    if (!fd.open() || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
        (!udp && ::listen(fd.get(), 8) != 0))
      return system_error("bind()");
    if (udp) return std::unique_ptr<Receiver>(std::make_unique<UdpReceiver>(std::move(fd)));
    return std::unique_ptr<Receiver>(std::make_unique<TcpReceiver>(std::move(fd), variant_));
  }

 private:
  Variant variant_;  ///< endpoints refer to it, and are destroyed before their place
  std::string at_;   ///< the address to listen at
};

}  // namespace

std::unique_ptr<Place> open_raw(const Variant& variant, const PlaceOptions& options) {
  return std::make_unique<RawPlace>(variant, options);
}

}  // namespace sonde::bus::probe
