#include "store/fuzz/hostile.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "core/clock.hpp"
#include "store/transport/tcp.hpp"

namespace sonde::store::fuzz {

namespace {

using Stream = std::vector<std::byte>;

void append(Stream& to, Bytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

/// A frame from its parts; its checksums are correct unless requested otherwise.
Stream frame_of(wire::Header h, Bytes table, Bytes data, bool sums_fit = true) {
  h.table_bytes = static_cast<std::uint32_t>(table.size());
  h.data_bytes = static_cast<std::uint32_t>(data.size());
  h.flags |= wire::data_sum;
  h.body_crc = wire::crc32c(data, wire::crc32c(table)) + (sums_fit ? 0 : 1);
  Stream out(wire::header_bytes);
  wire::encode(h, out.data());
  append(out, table);
  append(out, data);
  return out;
}

/// Corrects the checksum of a header that was changed, so that the frame passes.
void mend_header(Stream& frame) {
  const std::uint32_t sum = wire::crc32c(Bytes(frame).first(60));
  std::memcpy(frame.data() + 60, &sum, sizeof sum);
}

void mend_body(Stream& frame) {
  if (frame.size() < wire::header_bytes) return;
  const std::uint32_t sum = wire::crc32c(Bytes(frame).subspan(wire::header_bytes));
  std::memcpy(frame.data() + 56, &sum, sizeof sum);
  mend_header(frame);
}

Stream valid_request(std::mt19937_64& random, std::uint64_t id, std::uint16_t flags, std::uint32_t part,
                     std::uint32_t batch) {
  static constexpr Code codes[] = {
      Code::sync,          Code::object_create, Code::object_write,    Code::object_read,
      Code::object_status, Code::object_remove, Code::object_truncate, Code::object_list,
      Code::kv_put,        Code::kv_get,        Code::kv_remove,       Code::kv_scan,
      Code::db_define,     Code::db_insert,     Code::db_query,        static_cast<Code>(99),
      static_cast<Code>(0)};
  wire::TableWriter table;
  Stream data;
  const std::uint32_t ops = static_cast<std::uint32_t>(1 + random() % 4);
  for (std::uint32_t k = 0; k < ops; ++k) {
    wire::Record r;
    r.code = codes[random() % std::size(codes)];
    r.flags = static_cast<std::uint8_t>(random() % 8);
    const std::string space(random() % 8 ? "space" : std::string(random() % 70, 's'));
    const std::string key(random() % 8 ? "key" + std::to_string(random() % 4) : std::string(random() % 1100, 'k'));
    r.space = space;
    r.key = key;
    r.index = random() % 16 ? k : static_cast<std::uint32_t>(random() % (2 * batch + 1));
    r.offset = random() % 4 ? random() % 10'000 : random();
    r.length = random() % 4 ? random() % 10'000 : random();
    r.data_bytes = static_cast<std::uint32_t>(random() % 64);
    data.resize(data.size() + r.data_bytes, std::byte{7});
    table.add(r);
  }
  wire::Header h;
  h.kind = wire::Kind::request;
  h.flags = flags;
  h.id = id;
  h.ops = table.ops();
  h.role = static_cast<Role>(random() % 3);
  h.safety = static_cast<Safety>(random() % 3);
  h.part = part;
  h.batch_ops = batch;
  h.timeout_ms = static_cast<std::uint32_t>(random() % 3 ? 0 : random() % 100);
  return frame_of(h, table.table(), data, random() % 8 != 0);
}

/// The frames that come back on a connection. Stores the beginning of an incomplete frame.
struct Answers {
  int fd;
  bool ended = false;
  Stream in;

  /// Reads frames until the peer ends, `n` have come, or nothing came for a while. Returns the number of frames; -2:
  /// the server itself sent an invalid frame.
  int read(int n, int patience_ms) {
    int frames = 0;
    for (;;) {
      std::size_t at = 0;
      while (frames < n && in.size() - at >= wire::header_bytes) {
        const auto h = wire::decode(in.data() + at);
        if (!h) return -2;
        const std::size_t whole = wire::header_bytes + (*h).table_bytes + (*h).data_bytes;
        if (in.size() - at < whole) break;
        at += whole;
        ++frames;
      }
      in.erase(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(at));
      if (frames == n || ended) return frames;
      pollfd ready{fd, POLLIN, 0};
      if (::poll(&ready, 1, patience_ms) <= 0) return frames;
      std::byte chunk[65536];
      const ssize_t got = ::recv(fd, chunk, sizeof chunk, 0);
      ended = got <= 0;
      if (!ended) append(in, {chunk, static_cast<std::size_t>(got)});
    }
  }
};

}  // namespace

std::unique_ptr<Server> target() {
  ServerConfig config;
  config.listen = "127.0.0.1:0";
  config.auth = "none";
  config.backends = {
      {Role::data, "memory", {{"limit", "64MiB"}}}, {Role::kv, "memory", {{"limit", "64MiB"}}}, {Role::db, "null", {}}};
  auto server = Server::start(config);
  return server ? std::move(*server) : nullptr;
}

int attack(Server& server, Bytes stream, bool welcomed) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 0;
  server.serve(ends[1]);
  const int fd = ends[0];
  Answers answers{fd, false, {}};
  int frames = 0;
  if (welcomed) {
    const Outgoing hello = plain_frame(wire::Kind::hello, bytes_of("client=fuzz\nnonce=0\nauth=none\ntransport=tcp\n")),
                   proof = plain_frame(wire::Kind::proof, {});
    (void)!::send(fd, hello.head.data(), hello.head.size(), MSG_NOSIGNAL);
    (void)!::send(fd, proof.head.data(), proof.head.size(), MSG_NOSIGNAL);
    answers.read(2, 10'000);
  }
  const double until = now_s() + 10;
  for (std::size_t sent = 0; sent < stream.size() && now_s() < until;) {
    const ssize_t n = ::send(fd, stream.data() + sent, std::min<std::size_t>(stream.size() - sent, 65536),
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) break;  // disconnected, as expected
    const int more = answers.read(200, 1);
    if (more == -2) {
      ::close(fd);
      return -2;
    }
    frames += more;
  }
  ::shutdown(fd, SHUT_WR);
  // A client that requests an exabyte of a sparse object gets it, frame by frame: a few of them are enough.
  while (!answers.ended && frames < 200 && now_s() < until) {
    const int more = answers.read(200, 100);
    if (more == -2) {
      ::close(fd);
      return -2;
    }
    frames += more;
  }
  ::close(fd);
  return answers.ended || frames >= 200 ? frames : -1;
}

std::vector<std::byte> stream_of(Bytes input) {
  if (input.empty()) return {};
  Stream stream(input.begin() + 1, input.end());
  if ((input[0] & std::byte{1}) == std::byte{}) return stream;
  for (std::size_t at = 0; stream.size() - at >= wire::header_bytes;) {
    std::byte* head = stream.data() + at;
    std::memcpy(head, &wire::magic, 4);
    head[4] = static_cast<std::byte>(wire::version);
    std::uint32_t table, data;
    std::memcpy(&table, head + 20, 4);
    std::memcpy(&data, head + 24, 4);
    const std::size_t body =
        std::min<std::size_t>(std::uint64_t{table} + data, stream.size() - at - wire::header_bytes);
    const std::uint32_t body_sum = wire::crc32c({head + wire::header_bytes, body});
    std::memcpy(head + 56, &body_sum, 4);
    const std::uint32_t head_sum = wire::crc32c({head, 60});
    std::memcpy(head + 60, &head_sum, 4);
    at += wire::header_bytes + body;
  }
  return stream;
}

std::vector<std::byte> hostile_stream(std::mt19937_64& random, std::size_t frames) {
  Stream out;
  std::uint64_t id = 1 + random() % 1000;
  for (std::size_t k = 0; k < frames; ++k) {
    const std::uint32_t batch = static_cast<std::uint32_t>(1 + random() % 6);
    const std::uint16_t flags =
        static_cast<std::uint16_t>((random() % 8 == 0 ? wire::more : 0) | (random() % 8 == 0 ? wire::no_reply : 0));
    Stream frame =
        valid_request(random, id++, flags, random() % 16 ? 0 : static_cast<std::uint32_t>(random() % 3), batch);
    // Most faults end the connection, and the rest of the stream is not read. So faults are rare.
    switch (random() % 64) {
      case 0:  // any bit, anywhere
        for (std::size_t n = 1 + random() % 4; n--;)
          frame[random() % frame.size()] ^= static_cast<std::byte>(1u << (random() % 8));
        break;
      case 1:  // a header of random bytes with a correct checksum
        for (std::size_t n = 1 + random() % 4; n--;) frame[4 + random() % 52] = static_cast<std::byte>(random());
        mend_header(frame);
        break;
      case 2:
      case 10:
      case 11:  // a table of random bytes with a correct checksum
        for (std::size_t n = 1 + random() % 16; n--;)
          if (frame.size() > wire::header_bytes)
            frame[wire::header_bytes + random() % (frame.size() - wire::header_bytes)] =
                static_cast<std::byte>(random());
        mend_body(frame);
        break;
      case 3:  // wrong lengths
        for (const std::size_t at : {16, 20, 24})
          if (random() % 2) {
            const std::uint32_t n = static_cast<std::uint32_t>(random() % 3 ? random() % 200 : random());
            std::memcpy(frame.data() + at, &n, sizeof n);
          }
        mend_header(frame);
        break;
      case 4: frame.resize(random() % frame.size()); break;
      case 5:
      case 12: append(out, frame); break;
      case 6: {  // a different kind of frame
        wire::Header h;
        h.kind = static_cast<wire::Kind>(1 + random() % 12);
        h.id = random() % 3;
        frame =
            frame_of(h, {}, Bytes(frame).first(random() % std::min<std::size_t>(frame.size(), 200)), random() % 4 != 0);
        break;
      }
      default: break;
    }
    append(out, frame);
  }
  return out;
}

bool alive(Server& server) {
  Config config;
  config.servers = {server.address()};
  config.auth = "none";
  auto client = Client::open(config);
  if (!client) return false;
  auto b = (*client).batch();
  b.put("alive", "k", bytes_of("v"));
  b.get("alive", "k");
  b.write("alive", "o", 0, bytes_of("v"));
  return bool(b.run()) && b.failed() == 0;
}

}  // namespace sonde::store::fuzz
