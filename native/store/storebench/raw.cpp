// The processes at the other end of the raw limits.
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/units.hpp"
#include "store/conformance/pair.hpp"
#include "store/module.hpp"
#include "store/module/ofi/raw.hpp"
#include "store/storebench/load.hpp"
#include "store/transport/tcp.hpp"

namespace sonde::store::bench {

namespace {

constexpr std::size_t raw_chunk = 1u << 20;

/// A child that ends with its parent.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

bool read_all(int fd, void* to, std::size_t n) {
  auto* at = static_cast<char*>(to);
  while (n) {
    const ssize_t got = ::recv(fd, at, n, 0);
    if (got <= 0) return false;
    at += got;
    n -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* from, std::size_t n) {
  const auto* at = static_cast<const char*>(from);
  while (n) {
    const ssize_t sent = ::send(fd, at, n, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    n -= static_cast<std::size_t>(sent);
  }
  return true;
}

[[noreturn]] void serve_raw(int listener) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int fd;
  do fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  while (fd < 0 && (errno == EAGAIN || errno == EINTR));
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  std::vector<char> memory(raw_chunk);
  for (;;) {
    std::uint64_t sizes[2];
    if (!read_all(fd, sizes, sizeof sizes)) ::_exit(0);
    for (std::uint64_t left = sizes[0]; left;) {
      const ssize_t got = ::recv(fd, memory.data(), std::min<std::uint64_t>(left, memory.size()), 0);
      if (got <= 0) ::_exit(0);
      left -= static_cast<std::uint64_t>(got);
    }
    for (std::uint64_t left = sizes[1]; left;) {
      const std::size_t n = std::min<std::uint64_t>(left, memory.size());
      if (!write_all(fd, memory.data(), n)) ::_exit(0);
      left -= n;
    }
  }
}

class TcpPeer final : public RawPeer {
 public:
  TcpPeer(pid_t pid, int fd) : child_(pid), fd_(fd) {
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_NONBLOCK);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  ~TcpPeer() override { ::close(fd_); }

  Result<void> connect(const std::string&, MutableBytes) override { return {}; }
  std::string provider() const override { return ""; }
  std::string detail() const override { return "a socket, no storage system"; }

  Result<void> exchange(std::size_t out, std::size_t in, MutableBytes memory) override {
    const Error lost{"store.disconnected", "the raw TCP peer is gone", "run again"};
    std::uint64_t sizes[2] = {out, in};
    // Its length and small data in one call, as a single message is sent.
    iovec pieces[2] = {{sizes, sizeof sizes}, {memory.data(), std::min({out, memory.size(), raw_chunk})}};
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 2;
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent < static_cast<ssize_t>(sizeof sizes)) return lost;
    const auto through = [&](std::size_t done, std::size_t bytes, auto move) {
      while (done < bytes) {
        const std::size_t at = done % memory.size(), n = std::min({bytes - done, memory.size() - at, raw_chunk});
        if (!move(fd_, memory.data() + at, n)) return false;
        done += n;
      }
      return true;
    };
    if (!through(static_cast<std::size_t>(sent) - sizeof sizes, out, write_all) || !through(0, in, read_all))
      return lost;
    return {};
  }

 private:
  Child child_;
  int fd_;
};

class OfiPeer final : public RawPeer {
 public:
  OfiPeer(pid_t pid, int control, ofi::RawBells& bells, const ofi::RawFabric& fabric)
      : child_(pid), control_(control), bells_(bells), fabric_(fabric) {}
  ~OfiPeer() override {
    end_.reset();
    ::munmap(&bells_, sizeof bells_);
  }

  Result<void> connect(const std::string& provider, MutableBytes memory) override {
    auto end = fabric_.connect(control_, bells_, provider, memory);
    if (!end) return end.error();
    end_ = std::move(*end);
    return {};
  }
  std::string provider() const override { return end_->provider(); }
  std::string detail() const override {
    return "libfabric alone, messages of " + format_size(end_->piece(), true) + ", no storage system";
  }
  Result<void> exchange(std::size_t out, std::size_t in, MutableBytes memory) override {
    return end_->exchange(out, in, memory);
  }

 private:
  Child child_;
  PairControl control_;
  ofi::RawBells& bells_;
  const ofi::RawFabric& fabric_;
  std::unique_ptr<ofi::RawEnd> end_;
};

/// From the module that open_transport would load.
const ofi::RawFabric* load_fabric() {
  for (const auto& folder : module_folders())
    if (void* const module = ::dlopen((folder + "/sonde-store-ofi.so").c_str(), RTLD_NOW | RTLD_LOCAL))
      if (const auto get = reinterpret_cast<const ofi::RawFabric* (*)()>(::dlsym(module, ofi::raw_fabric_symbol)))
        return get();
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<RawPeer>> RawPeer::start_tcp() {
  std::uint16_t port = 0;
  auto listener = tcp_listen({"127.0.0.1", 0}, port);
  if (!listener) return listener.error();
  // Before any thread is started: a fork of a threaded process could inherit locked locks.
  const pid_t pid = ::fork();
  if (pid == 0) serve_raw(*listener);
  auto fd = tcp_connect({"127.0.0.1", port}, Deadline::in_s(5));
  ::close(*listener);
  if (!fd) {
    const Child gone(pid);
    return fd.error();
  }
  return std::unique_ptr<RawPeer>(std::make_unique<TcpPeer>(pid, *fd));
}

Result<std::unique_ptr<RawPeer>> RawPeer::start_ofi() {
  const auto ends = PairControl::make_pair();
  void* const shared =
      ::mmap(nullptr, sizeof(ofi::RawBells), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (ends.first < 0 || shared == MAP_FAILED)
    return Error{"store.failed", "no room for a process to measure libfabric with", ""};
  auto& bells = *new (shared) ofi::RawBells{};
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(ends.first);
    PairControl control(ends.second);
    if (const auto* const fabric = load_fabric()) fabric->serve(control, bells);
    ::_exit(0);
  }
  ::close(ends.second);
  const auto* const fabric = load_fabric();
  if (!fabric) {
    const Child gone(pid);
    ::close(ends.first);
    ::munmap(shared, sizeof(ofi::RawBells));
    return Error{"store.unknown_transport", "this build has no libfabric to measure alone",
                 "run `sonde doctor`: it shows what to install"};
  }
  return std::unique_ptr<RawPeer>(std::make_unique<OfiPeer>(pid, ends.first, bells, *fabric));
}

}  // namespace sonde::store::bench
