// sonde-ofi-bench: half round trips and streams of frames over each transport and provider, compared with plain
// blocking TCP. For tuning; not installed. The rounds of all rows are interleaved. Each row has two processes, which
// sleep between its rounds.
//   sonde-ofi-bench [rounds] [row …]      a row is tcp-raw, tcp, or TRANSPORT/PROVIDER, with +thesis for its variant
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "store/conformance/pair.hpp"
#include "store/transport/tcp.hpp"

using namespace sonde;
using namespace sonde::store;

namespace {

constexpr std::array<std::uint32_t, 4> sizes{64, 4u << 10, 64u << 10, 1u << 20};
enum Mode : std::uint32_t { ping, stream, quit };

struct Command {
  std::uint32_t mode, size, count;
};

std::vector<std::byte> memory(1u << 20);

void all(int fd, void* at, std::size_t bytes, bool out) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n = out ? ::send(fd, static_cast<char*>(at) + done, bytes - done, MSG_NOSIGNAL)
                          : ::recv(fd, static_cast<char*>(at) + done, bytes - done, 0);
    if (n <= 0) ::_exit(3);
    done += static_cast<std::size_t>(n);
  }
}

std::pair<int, int> tcp_pair() {
  std::uint16_t port = 0;
  const int listener = *tcp_listen({"127.0.0.1", 0}, port);
  const int a = *tcp_connect({"127.0.0.1", port}, Deadline::in_s(2));
  int b = -1;
  while ((b = ::accept(listener, nullptr, nullptr)) < 0) {}
  ::close(listener);
  return {a, b};
}

Outgoing frame_of(std::uint64_t id, std::uint32_t size, std::uint32_t count) {
  wire::Header header;
  header.kind = wire::Kind::ping;
  header.id = id;
  header.data_bytes = size;
  header.timeout_ms = count;
  Outgoing out;
  out.head.resize(wire::header_bytes);
  wire::encode(header, out.head.data());
  if (size) out.segments.push_back(Bytes(memory).first(size));
  return out;
}

/// id 1: echo; id 2: a frame of a stream of `timeout_ms` frames, answered after the last.
class Peer final : public Sink {
 public:
  explicit Peer(bool server) : server_(server) {}
  void frame(Link& link, const wire::Header& h, Bytes, Bytes, bool) override {
    ++frames;
    if (!server_) return;
    if (h.id == 1) {
      link.send(frame_of(1, h.data_bytes, 0));
      link.flush();
    } else if (++streamed_ == h.timeout_ms) {
      streamed_ = 0;
      link.send(frame_of(3, 0, 0));
      link.flush();
    }
  }
  void closed(Link&, const Error* error) override {
    if (error && !server_) std::fprintf(stderr, "closed: %s\n", error->what.c_str());
    ended = true;
  }
  std::uint64_t frames = 0;
  bool ended = false;

 private:
  bool server_;
  std::uint32_t streamed_ = 0;
};

double run(Link& link, Peer& sink, const Command& c) {
  const auto wait_for = [&](std::uint64_t frames) {
    while (sink.frames < frames && !sink.ended)
      if (link.progress() == 0) link.wait(Deadline::in_s(5));
  };
  const std::int64_t begin = now_ns();
  if (c.mode == ping) {
    for (std::uint32_t k = 0; k < c.count; ++k) {
      link.send(frame_of(1, c.size, 0));
      link.flush();
      wait_for(sink.frames + 1);
    }
    return static_cast<double>(now_ns() - begin) / c.count / 2 * 1e-3;
  }
  const std::uint64_t last = sink.frames + 1;
  for (std::uint32_t k = 0; k < c.count; ++k) {
    link.send(frame_of(2, c.size, c.count));
    if (k % 16 == 15) link.flush();
    // If progress() has sent everything, no event would end the wait.
    while (link.backlog() > 2u << 20 && !sink.ended)
      if (link.progress() == 0 && link.backlog() > 2u << 20) link.wait(Deadline::in_s(5));
  }
  link.flush();
  wait_for(last);
  return static_cast<double>(c.size) * c.count / static_cast<double>(now_ns() - begin) * 1e3;
}

double run_raw(int fd, const Command& c) {
  std::array<std::uint32_t, 4> head{c.mode, c.size, c.count, 0};
  all(fd, head.data(), sizeof head, true);
  const std::int64_t begin = now_ns();
  if (c.mode == ping) {
    for (std::uint32_t k = 0; k < c.count; ++k) {
      all(fd, memory.data(), c.size + wire::header_bytes, true);
      all(fd, memory.data(), c.size + wire::header_bytes, false);
    }
    return static_cast<double>(now_ns() - begin) / c.count / 2 * 1e-3;
  }
  for (std::uint32_t k = 0; k < c.count; ++k) all(fd, memory.data(), c.size, true);
  all(fd, head.data(), 1, false);
  return static_cast<double>(c.size) * c.count / static_cast<double>(now_ns() - begin) * 1e3;
}

void serve_raw(int fd) {
  while (true) {
    std::array<std::uint32_t, 4> head;
    all(fd, head.data(), sizeof head, false);
    for (std::uint32_t k = 0; k < head[2]; ++k) {
      all(fd, memory.data(), head[1] + (head[0] == ping ? wire::header_bytes : 0), false);
      if (head[0] == ping) all(fd, memory.data(), head[1] + wire::header_bytes, true);
    }
    if (head[0] == stream) all(fd, head.data(), 1, true);
  }
}

/// The row's two processes. Results are returned as doubles.
void row_process(const std::string& row, int commands) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  memory.resize((1u << 20) + 64);
  LinkOptions options;
  options.frame_data = 1u << 20;
  std::string transport = row, suffix;
  if (const auto plus = row.find('+'); plus != std::string::npos) {
    suffix = row.substr(plus + 1);
    transport = row.substr(0, plus);
  }
  if (suffix == "thesis") {
    options.await = true;
    options.gather = false;
  }
  if (suffix.starts_with("spin=")) options.spin_s = std::atof(suffix.c_str() + 5);
  if (suffix.starts_with("rma=")) options.rma_from = std::atol(suffix.c_str() + 4);
  if (suffix == "usual") options.frame_data = wire::frame_data_default;
  if (const auto slash = transport.find('/'); slash != std::string::npos) {
    options.provider = transport.substr(slash + 1);
    transport.resize(slash);
  }
  const bool raw = transport == "tcp-raw", tcp = transport == "tcp";
  const auto [a, b] = raw || tcp ? tcp_pair() : PairControl::make_pair();
  if (raw) {
    for (const int fd : {a, b}) {
      ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
  }
  const Deadline deadline = Deadline::in_s(60);
  if (::fork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::close(a);
    if (raw) {
      serve_raw(b);
      ::_exit(0);
    }
    Peer sink(true);
    std::unique_ptr<Link> link;
    PairControl control(tcp ? -1 : b);
    if (tcp) {
      link = std::make_unique<TcpLink>(b, options, sink);
    } else {
      const auto first = control.receive(deadline);
      if (!first) ::_exit(1);
      auto made = (*open_transport(transport))->accept(control, *first, options, sink, deadline);
      if (!made) ::_exit(1);
      link = std::move(*made);
    }
    while (!sink.ended)
      if (link->progress() == 0) link->wait(Deadline::in_s(5));
    link.reset();
    ::_exit(0);
  }
  ::close(b);
  Peer sink(false);
  std::unique_ptr<Link> link;
  PairControl control(raw || tcp ? -1 : a);
  if (tcp) link = std::make_unique<TcpLink>(a, options, sink);
  if (!raw && !tcp) {
    auto opened = open_transport(transport);
    auto made =
        opened ? (*opened)->connect(control, options, sink, deadline) : Result<std::unique_ptr<Link>>(opened.error());
    if (!made) {
      std::fprintf(stderr, "%s: %s\n", row.c_str(), made.error().what.c_str());
      ::_exit(1);
    }
    link = std::move(*made);
    std::fprintf(stderr, "%s: %s, %s\n", row.c_str(), link->info().provider.c_str(), link->info().detail.c_str());
  }
  Command c;
  double ready = 0;
  (void)!::write(commands, &ready, sizeof ready);
  while (::read(commands, &c, sizeof c) == sizeof c && c.mode != quit) {
    const double result = raw ? run_raw(a, c) : run(*link, sink, c);
    (void)!::write(commands, &result, sizeof result);
  }
  link.reset();
  ::_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  std::vector<std::string> names(argv + std::min(argc, 2), argv + argc);
  if (names.empty())
    names = {"tcp", "ofi-msg/net", "ofi-msg/tcp", "ofi-rdm/shm", "ofi-rdm/net", "ofi-rma/shm", "ofi-rma/tcp"};
  names.insert(names.begin(), "tcp-raw");
  struct Row {
    std::string name;
    int fd;
    bool alive = true;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<double>> got;
  };
  std::vector<Row> rows;
  std::vector<pid_t> children;
  for (const auto& name : names) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 3;
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ends[0]);
      row_process(name, ends[1]);
    }
    ::close(ends[1]);
    children.push_back(child);
    rows.push_back({name, ends[0], true, {}});
    double ready;
    rows.back().alive = ::read(ends[0], &ready, sizeof ready) == sizeof ready;
  }
  for (int round = 0; round <= rounds; ++round)
    for (const std::uint32_t mode : {ping, stream})
      for (const std::uint32_t size : sizes)
        for (std::size_t k = 0; k < rows.size(); ++k) {
          Row& row = rows[round % 2 ? rows.size() - 1 - k : k];  // alternating, so drift affects all rows alike
          if (!row.alive) continue;
          const bool slow =
              row.name.find("thesis") != std::string::npos || row.name.find("sockets") != std::string::npos;
          const std::uint32_t count = (mode == ping ? std::clamp<std::uint32_t>(8'000'000 / (size + 8192), 10, 400)
                                                    : std::clamp<std::uint32_t>(40'000'000 / (size + 1000), 30, 8000)) /
                                          (slow ? 8 : 1) +
                                      1;
          const Command c{mode, size, count};
          double result = 0;
          if (::write(row.fd, &c, sizeof c) != sizeof c || ::read(row.fd, &result, sizeof result) != sizeof result)
            row.alive = false;
          else if (round) row.got[{mode, size}].push_back(result);
        }
  std::printf("%-24s", "half round trip, us");
  for (const char* mode : {"us", "MB/s"})
    for (const auto size : sizes) std::printf(" %7u %-4s", size, mode);
  std::printf("\n");
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> base;
  for (Row& row : rows) {
    std::printf("%-24s", row.name.c_str());
    for (const std::uint32_t mode : {ping, stream})
      for (const auto size : sizes) {
        auto& v = row.got[{mode, size}];
        if (v.empty()) {
          std::printf("     --      ");
          continue;
        }
        std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
        const double median = v[v.size() / 2];
        double& reference = base[{mode, size}];
        if (row.name == "tcp-raw") reference = median;
        std::printf(" %7.1f %4.2f", median, mode == ping ? reference / median : median / reference);
      }
    std::printf("\n");
  }
  for (Row& row : rows) ::close(row.fd);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return 0;
}
