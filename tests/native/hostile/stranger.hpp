#pragma once
// A connection to a server of the store on which a test sends what it likes, frame by frame.

#include <doctest/doctest.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "store/server/server.hpp"
#include "store/transport/tcp.hpp"

namespace sonde::store::test {

/// How long a test waits for what must come, on however busy a machine.
inline constexpr int patience_ms = 60'000;

using Stream = std::vector<std::byte>;

inline void append(Stream& to, Bytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

/// A frame whose lengths and checksums fit.
inline Stream frame_of(wire::Header h, Bytes table = {}, Bytes data = {}) {
  h.table_bytes = static_cast<std::uint32_t>(table.size());
  h.data_bytes = static_cast<std::uint32_t>(data.size());
  h.flags |= wire::data_sum;
  h.body_crc = wire::crc32c(data, wire::crc32c(table));
  Stream out(wire::header_bytes);
  wire::encode(h, out.data());
  append(out, table);
  append(out, data);
  return out;
}

struct Frame {
  wire::Header header;
  std::string table, data;
};

/// The answers of a reply, where each stands for one operation or for several that went alike.
inline std::vector<wire::Answer> answers_of(const Frame& frame) {
  std::vector<wire::Answer> answers;
  REQUIRE(wire::read_answers(frame.header, bytes_of(frame.table), answers));
  return answers;
}

class Stranger {
 public:
  /// Over a pair of sockets, which the server takes as if it had accepted one of them.
  explicit Stranger(Server& server) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    fd_ = ends[0];
    server.serve(ends[1]);
  }
  /// Over TCP, from the address `from` of this host.
  Stranger(Server& server, const char* from);
  /// Over a socket that was accepted: as a server. Takes it.
  explicit Stranger(int fd) : fd_(fd) {}
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)), in_(std::move(other.in_)) {}
  Stranger& operator=(Stranger&&) = delete;
  ~Stranger() {
    if (fd_ >= 0) ::close(fd_);
  }

  /// False: the server has ended the connection.
  bool say(Bytes bytes) {
    while (!bytes.empty()) {
      pollfd ready{fd_, POLLOUT, 0};
      REQUIRE(::poll(&ready, 1, patience_ms) > 0);
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (n < 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return true;
  }
  bool say(const Outgoing& out) { return say(Bytes(out.head)); }
  bool say_hello(std::string_view more = {}) {
    return say(plain_frame(wire::Kind::hello, bytes_of("client=stranger\nnonce=0\n" + std::string(more))));
  }
  bool say_proof() { return say(plain_frame(wire::Kind::proof, {})); }

  /// The next frame; nothing: the server ended the connection.
  std::optional<Frame> hear() {
    for (;;) {
      if (in_.size() >= wire::header_bytes) {
        const auto h = wire::decode(in_.data());
        REQUIRE_MESSAGE(h, h.error().what);
        const std::size_t head = wire::header_bytes + (*h).table_bytes, whole = head + (*h).data_bytes;
        if (in_.size() >= whole) {
          Frame frame{*h, std::string(text_of(Bytes(in_).subspan(wire::header_bytes, (*h).table_bytes))),
                      std::string(text_of(Bytes(in_).subspan(head, (*h).data_bytes)))};
          in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(whole));
          return frame;
        }
      }
      pollfd ready{fd_, POLLIN, 0};
      REQUIRE_MESSAGE(::poll(&ready, 1, patience_ms) > 0, "the server neither answers nor ends the connection");
      std::byte chunk[65536];
      const ssize_t n = ::recv(fd_, chunk, sizeof chunk, 0);
      if (n <= 0) return {};
      append(in_, {chunk, static_cast<std::size_t>(n)});
    }
  }
  /// The next frame, which must be of this kind.
  Frame hear(wire::Kind kind) {
    auto frame = hear();
    REQUIRE_MESSAGE(frame, "the server ended the connection");
    REQUIRE_MESSAGE(frame->header.kind == kind, "kind ", static_cast<int>(frame->header.kind), ": ", frame->data);
    return std::move(*frame);
  }
  /// What the server says before it ends the connection.
  std::string last_words() {
    std::string words;
    while (auto frame = hear()) words = frame->data;
    return words;
  }
  void be_welcomed(std::string_view more = {}) {
    say_hello(more);
    hear(wire::Kind::challenge);
    say_proof();
    hear(wire::Kind::welcome);
  }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
  Stream in_;
};

/// A request with one operation a record.
struct Request {
  wire::Header header;
  wire::TableWriter table;
  Stream data;
  explicit Request(Role role, std::uint64_t id = 1) {
    header.id = id;
    header.role = role;
    header.batch_ops = 0;
  }
  Request& add(Code code, std::string_view key, Bytes bytes = {}, std::uint32_t index = ~0u) {
    wire::Record r;
    r.code = code;
    r.space = "s";
    r.key = key;
    r.index = index == ~0u ? header.batch_ops : index;
    r.data_bytes = static_cast<std::uint32_t>(bytes.size());
    table.add(r);
    append(data, bytes);
    if (index == ~0u) ++header.batch_ops;
    return *this;
  }
  Stream frame(std::uint16_t flags = 0) const {
    wire::Header h = header;
    h.ops = table.ops();
    h.flags = flags;
    return frame_of(h, table.table(), data);
  }
};

}  // namespace sonde::store::test
