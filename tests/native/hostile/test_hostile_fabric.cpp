// Who reaches an endpoint of libfabric and is not the peer: what such a process sends is nothing to a Link.
#include <doctest/doctest.h>

#include <dirent.h>
#include <grp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../store/service.hpp"
#include "core/clock.hpp"
#include "store/module/ofi/fabric.hpp"
#include "store/module/ofi/link.hpp"
#include "stranger.hpp"

using namespace sonde;
using namespace sonde::store;
using namespace sonde::store::test;
using ofi::MessageHeader;
using ofi::MessageKind;

namespace {

constexpr unsigned nobody = 65534;

/// Ports at which this process takes connections, as a scan would find them.
std::set<std::uint16_t> open_ports() {
  std::set<std::uint16_t> ports;
  DIR* const folder = ::opendir("/proc/self/fd");
  REQUIRE(folder);
  while (const dirent* const entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    int listens = 0;
    socklen_t size = sizeof listens;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens) continue;
    sockaddr_in own{};
    size = sizeof own;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 && own.sin_family == AF_INET)
      ports.insert(ntohs(own.sin_port));
  }
  ::closedir(folder);
  return ports;
}

struct Order {
  char provider[32] = {};
  std::uint16_t port = 0;
  std::uint32_t bytes = 0;
};

/// The stranger's process: sends a message to the endpoint at a port. It knows what is public, and no secret.
class Injector {
 public:
  Injector() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    pid_ = ::fork();  // before anything of libfabric runs here
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setresgid(nobody, nobody, nobody) != 0 ||
                               ::setresuid(nobody, nobody, nobody) != 0))
        ::_exit(1);
      inject(ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    fd_ = ends[0];
  }
  ~Injector() {
    ::close(fd_);
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Injector(const Injector&) = delete;
  Injector& operator=(const Injector&) = delete;

  /// Sends it, and does something until it has gone. Whether it went.
  template <typename Meanwhile>
  bool send(const std::string& provider, std::uint16_t port, Bytes message, Meanwhile meanwhile) {
    Order order;
    REQUIRE(provider.size() < sizeof order.provider);
    std::copy(provider.begin(), provider.end(), order.provider);
    order.port = port;
    order.bytes = static_cast<std::uint32_t>(message.size());
    REQUIRE(::send(fd_, &order, sizeof order, MSG_NOSIGNAL) == sizeof order);
    REQUIRE(::send(fd_, message.data(), message.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(message.size()));
    for (;;) {
      meanwhile();
      pollfd ready{fd_, POLLIN, 0};
      char went = 0;
      if (::poll(&ready, 1, 1) > 0) return ::recv(fd_, &went, 1, 0) == 1 && went == 1;
    }
  }

 private:
  static bool all(int fd, void* at, std::size_t bytes) {
    return bytes == 0 || ::recv(fd, at, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }

  static void inject(int fd) {
    Order order;
    while (all(fd, &order, sizeof order)) {
      std::vector<std::byte> message(order.bytes);
      if (!all(fd, message.data(), message.size())) return;
      const char went = sent(order, message) ? 1 : 0;
      if (::send(fd, &went, 1, MSG_NOSIGNAL) != 1) return;
    }
  }

  /// An endpoint for each that is attacked: one that is closed may take with it what it has sent.
  static bool sent(const Order& order, std::vector<std::byte>& message) {
    static std::map<std::pair<std::string, std::uint16_t>, std::unique_ptr<ofi::Port>> own;
    auto& port = own[{order.provider, order.port}];
    if (!port) {
      ofi::PortOptions how;
      how.style = ofi::Style::rdm;
      how.provider = order.provider;
      how.node = "127.0.0.1";
      auto opened = ofi::Port::open(how);
      if (!opened) return false;
      port = std::move(*opened);
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to.sin_port = htons(order.port);
      if (!port->set_peer(std::as_bytes(std::span(&to, 1)))) return false;
    }
    ofi::Region region;
    if (port->demands().local_mr) {
      auto enrolled = port->enrol(message.data(), message.size(), false);
      if (!enrolled) return false;
      region = *enrolled;
    }
    ofi::Context context;
    const iovec piece{message.data(), message.size()};
    const Deadline deadline = Deadline::in_s(20);
    bool posted = false, done = false;
    ofi::Done what;
    while (!done && !deadline.passed()) {
      if (!posted) posted = port->send(&piece, &region.descriptor, 1, &context, true) == 0;
      done = port->poll(&what, 1) == 1;
      if (!done) ::sched_yield();
    }
    if (!done || what.error) {  // nothing that is under way may outlive the message
      port->stop(false);
      port->strike(region);
      port.reset();
      return false;
    }
    port->strike(region);
    return true;
  }

  pid_t pid_;
  int fd_;
};

/// What the owner has and the stranger has not.
struct TokenFile {
  std::string path = "/tmp/sonde-hostile-token-XXXXXX";
  TokenFile() {
    const int fd = ::mkstemp(path.data());
    REQUIRE(fd >= 0);
    const std::string_view token = "a-token-of-at-least-16-characters\n";
    REQUIRE(::write(fd, token.data(), token.size()) == static_cast<ssize_t>(token.size()));
    ::close(fd);
  }
  ~TokenFile() { ::unlink(path.c_str()); }
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
};

std::vector<std::string> providers() {
  std::vector<std::string> names;
  for (const char* const name : {"tcp;ofi_rxm", "net", "sockets", "tcp"}) {
    const auto there = ofi::list_providers(ofi::Style::rdm, false);
    if (std::find(there.begin(), there.end(), name) != there.end()) names.emplace_back(name);
  }
  return names;
}

/// A message of a Link, as whoever has read its source would write it.
Stream message_of(MessageKind kind, std::uint32_t sequence, Bytes content, std::uint64_t tag = 0) {
  MessageHeader h;
  h.kind = static_cast<std::uint8_t>(kind);
  h.bytes = static_cast<std::uint32_t>(content.size());
  h.sequence = sequence;
  h.tag = tag;
  Stream out(sizeof h + content.size());
  std::memcpy(out.data(), &h, sizeof h);
  std::copy(content.begin(), content.end(), out.begin() + sizeof h);
  return out;
}

}  // namespace

TEST_CASE("what a stranger sends to the endpoints of a server and of its client is dropped, and nothing breaks") {
  const auto names = transport_names();
  if (std::find(names.begin(), names.end(), "ofi-rdm") == names.end()) return;
  Injector stranger;
  const TokenFile secret;
  Request put(Role::kv);
  put.add(Code::kv_put, "injected", bytes_of("INJECTED BY A STRANGER"));
  const Stream frame = put.frame();
  for (const std::string& provider : providers()) {
    INFO(provider);
    ServerConfig guarded;
    guarded.auth = "token";
    guarded.token_file = secret.path;
    guarded.link.more["ofi.allow"] = "sockets";
    Service service(1, memory_backends(), guarded);
    service.config.auth = "token";
    service.config.token_file = secret.path;
    const std::set<std::uint16_t> before = open_ports();
    service.config.transport = "ofi-rdm";
    service.config.link.provider = provider;
    service.config.timeout_s = 60;
    Client owner = service.client();
    int calls = 0;
    const auto call = [&] {
      auto batch = owner.batch();
      const std::string value = "value " + std::to_string(++calls);
      batch.put("s", "own", bytes_of(value));
      batch.get("s", "own");
      const auto sent = batch.run();
      REQUIRE_MESSAGE(sent, sent.error().what);
      REQUIRE(batch.failed() == 0);
      REQUIRE(text(batch[1].data) == value);
    };
    call();
    std::set<std::uint16_t> ports;
    for (const std::uint16_t port : open_ports())
      if (!before.contains(port)) ports.insert(port);
    REQUIRE(!ports.empty());
    std::vector<Stream> messages;
    for (std::uint32_t sequence = 0; sequence < 24; ++sequence)
      messages.push_back(message_of(MessageKind::stream, sequence, frame, sequence * 0x9e3779b97f4a7c15u));
    messages.push_back(message_of(MessageKind::bye, 9, {}));
    messages.push_back(message_of(MessageKind::stream, 1u << 31, frame));
    messages.push_back(message_of(MessageKind{200}, 5, {}));
    messages.push_back(Stream(7));                     // no header
    messages.push_back(Stream(100, std::byte{0x5a}));  // none of ours
    const std::uint64_t ever = service.servers[0]->metrics().connections_ever.load();
    const std::uint64_t dropped = foreign_messages().load();
    std::uint64_t went = 0;
    for (const std::uint16_t port : ports)
      for (const Stream& message : messages) went += stranger.send(provider, port, message, call);
    REQUIRE(went > messages.size() / 2);
    const Deadline patience = Deadline::in_s(60);
    while (foreign_messages().load() < dropped + went && !patience.passed()) call();
    CHECK(foreign_messages().load() >= dropped + went);
    // More than a receive takes: what becomes of it is the provider's choice, but not what becomes of the owner.
    const Stream large = message_of(MessageKind::stream, 7, Stream(400'000));
    for (const std::uint16_t port : ports) stranger.send(provider, port, large, call);
    for (int k = 0; k < 50; ++k) call();
    auto look = owner.batch();
    look.get("s", "injected");
    REQUIRE(look.run());
    CHECK(look[0].status == Status::not_found);
    CHECK(service.servers[0]->metrics().connections_ever.load() == ever);  // over the same link all the time
    CHECK(service.servers[0]->status().find("\"foreign_messages\":") != std::string::npos);
  }
}

TEST_CASE("who reads strangers' messages as a peer's is known by name, whatever is below it") {
  for (const char* name : {"udp", "udp;ofi_rxd", "verbs;ofi_rxd", "sockets", "sm2"}) CHECK(ofi::trusts_strangers(name));
  for (const char* name : {"shm", "net", "tcp", "tcp;ofi_rxm", "net;ofi_rxm", "verbs", "verbs;ofi_rxm"})
    CHECK_FALSE(ofi::trusts_strangers(name));
}
