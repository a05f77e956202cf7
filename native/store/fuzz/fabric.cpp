// libFuzzer: a hostile peer of a Link over libfabric that has the key, on a provider that the input controls. The input
// is a list of steps: messages with valid or invalid headers and streams, in any order; completions that come late; a
// provider that is full; ends. Whatever comes, a Link must deliver whole frames, or report store.* and close. The
// sanitizer detects accesses beyond its memory.
#include <rdma/fi_errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/deadline.hpp"
#include "core/fuzz/input.hpp"
#include "store/module/ofi/fabric.hpp"
#include "store/module/ofi/link.hpp"
#include "store/module/ofi/message.hpp"
#include "store/transport.hpp"

namespace {

using namespace sonde::store;
using ofi::MessageHeader;
using ofi::MessageKind;
using sonde::fuzz::hold;
using sonde::fuzz::Input;

constexpr std::size_t header_bytes = sizeof(MessageHeader);
constexpr std::size_t backlog_max = 4u << 20;  // this side does not send more by itself: more would be the peer's work

/// The other side of a Port: sent messages, and operations that will complete.
struct World {
  struct Posted {
    std::byte* at;
    std::size_t bytes;
    ofi::Context* context;
  };
  ofi::SipKey own_key{}, peer_key{};
  ofi::Demands demands;
  std::deque<Posted> receives, reads;
  std::deque<ofi::Context*> sends;
  std::deque<ofi::Done> done;
  std::deque<ofi::Event> events;
  std::set<std::uint64_t> regions;
  std::uint64_t last_region = 0, sent = 0;
  std::uint32_t full = 0;  ///< calls that the provider refuses now
  std::uint32_t given = 0, released = 0, announced = 0;
  std::size_t most_receives = 0;
  bool stopped = false;

  bool takes() {
    if (full == 0) return true;
    --full;
    return false;
  }
};

class FakePort final : public ofi::Port {
 public:
  explicit FakePort(World& world) : world_(world) {}

  const ofi::Demands& demands() const override { return world_.demands; }
  const std::string& provider() const override { return name_; }
  sonde::Result<std::vector<std::byte>> address() override { return std::vector<std::byte>(16); }
  std::uint32_t address_format() const override { return 0; }
  sonde::Result<void> set_peer(Bytes) override { return {}; }
  sonde::Result<void> connect(Bytes) override { return {}; }
  sonde::Result<void> take_request() override { return {}; }
  void reject_request() override {}
  sonde::Result<void> accept() override { return {}; }
  bool ready() const override { return true; }

  ofi::Event event(Bytes*) override {
    if (world_.events.empty()) return ofi::Event::none;
    const ofi::Event event = world_.events.front();
    world_.events.pop_front();
    return event;
  }

  sonde::Result<ofi::Region> enrol(void* memory, std::size_t bytes, bool) override {
    if (!world_.takes()) return sonde::Error{"store.fabric", "no more memory can be registered", ""};
    ofi::Region region;
    region.handle = ++world_.last_region;
    region.mr = reinterpret_cast<fid_mr*>(&world_);
    region.base = static_cast<const std::byte*>(memory);
    region.size = bytes;
    world_.regions.insert(region.handle);
    return region;
  }
  void strike(ofi::Region& region) override {
    if (region.mr) hold(world_.regions.erase(region.handle) == 1, "memory is unregistered twice");
    region = {};
  }

  ssize_t receive(void* memory, std::size_t bytes, const ofi::Region*, ofi::Context* context) override {
    if (!world_.takes()) return -FI_EAGAIN;
    world_.receives.push_back({static_cast<std::byte*>(memory), bytes, context});
    hold(world_.receives.size() <= world_.most_receives, "more receives are posted than there are buffers");
    return 0;
  }
  ssize_t send(const iovec* pieces, void**, std::size_t n, ofi::Context* context, bool completes) override {
    if (!world_.takes()) return -FI_EAGAIN;
    hold(n <= world_.demands.iovs, "more vectors than the provider accepts");
    went(pieces, n);
    if (completes) world_.sends.push_back(context);
    return 0;
  }
  ssize_t inject(const void* memory, std::size_t bytes) override {
    if (!world_.takes()) return -FI_EAGAIN;
    hold(bytes <= world_.demands.inject, "more bytes are injected than the provider accepts");
    const iovec piece{const_cast<void*>(memory), bytes};
    went(&piece, 1);
    return 0;
  }
  ssize_t read(const iovec* pieces, void**, std::size_t n, std::uint64_t, std::uint64_t,
               ofi::Context* context) override {
    if (!world_.takes()) return -FI_EAGAIN;
    hold(n == 1 && pieces->iov_len <= wire::data_bytes_max, "a remote read is longer than a frame's data");
    world_.reads.push_back({static_cast<std::byte*>(pieces->iov_base), pieces->iov_len, context});
    return 0;
  }
  std::size_t poll(ofi::Done* done, std::size_t n) override {
    n = std::min(n, world_.done.size());
    for (std::size_t k = 0; k < n; ++k) {
      done[k] = std::move(world_.done.front());
      world_.done.pop_front();
    }
    return n;
  }
  void stop(bool) override {
    world_.stopped = true;
    world_.receives.clear();
    world_.reads.clear();
    world_.sends.clear();
    world_.done.clear();
  }
  ofi::Wait waiting() const override { return ofi::Wait::none; }
  int fd() const override { return -1; }
  bool may_sleep() override { return true; }
  void settle() override {}

 private:
  /// The peer must find this side's messages valid.
  void went(const iovec* pieces, std::size_t n) {
    std::vector<std::byte> whole;
    for (std::size_t k = 0; k < n; ++k) {
      const auto* at = static_cast<const std::byte*>(pieces[k].iov_base);
      whole.insert(whole.end(), at, at + pieces[k].iov_len);
    }
    MessageHeader h;
    hold(ofi::read_header(whole, h), "a message without a header");
    hold(h.bytes == whole.size() - header_bytes && h.sequence == static_cast<std::uint32_t>(world_.sent),
         "a message with a wrong header");
    hold(h.tag == ofi::tag_of(world_.own_key, h, world_.sent, Bytes(whole).subspan(header_bytes)),
         "a message with a wrong tag");
    if (h.kind == static_cast<std::uint8_t>(MessageKind::announce)) {
      const auto read = ofi::read_announcement(Bytes(whole).subspan(header_bytes));
      hold(bool(read), "an announcement that its peer refuses");
      ++world_.announced;
    }
    ++world_.sent;
  }

  World& world_;
  std::string name_ = "fake";
};

class FakeControl final : public Control {
 public:
  FakeControl() { hold(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_) == 0, "there is no socket pair"); }
  sonde::Result<void> send(Bytes) override { return {}; }
  sonde::Result<std::vector<std::byte>> receive(Deadline) override { return std::vector<std::byte>{}; }
  int fd() const override { return ends_[0]; }
  void ring() override {}
  bool heard() override { return there; }
  std::string peer_host() const override { return "127.0.0.1"; }
  bool same_host() const override { return true; }

  bool there = true;

 private:
  int ends_[2];
};

/// Handles frames as a session or a client does: reads all of them, and answers some.
class Reader final : public Sink {
 public:
  bool place(Link&, const wire::Header& h, Bytes table, std::vector<iovec>& places) override {
    look(table);
    if (pieces == 0) return false;
    memory = std::make_unique<std::byte[]>(h.data_bytes);
    const std::size_t piece = h.data_bytes / pieces;
    for (std::size_t k = 0; k < pieces; ++k)
      places.push_back({memory.get() + k * piece, k + 1 == pieces ? h.data_bytes - k * piece : piece});
    placed = h.data_bytes;
    return true;
  }
  void frame(Link& link, const wire::Header& h, Bytes table, Bytes data, bool in_place) override {
    hold(!ended, "a frame after the end");
    hold(table.size() == h.table_bytes, "a table whose length is not its header's");
    hold(in_place ? data.empty() && placed == h.data_bytes : data.size() == h.data_bytes,
         "data whose length is not its header's");
    look(table);
    look(in_place ? Bytes(memory.get(), h.data_bytes) : data);
    ++frames;
    if (!answers || link.backlog() > 1u << 20) return;
    wire::Header back;
    back.kind = wire::Kind::pong;
    back.data_bytes = std::max<std::uint32_t>(h.data_bytes, 1);
    Outgoing out;
    out.head.resize(wire::header_bytes);
    wire::encode(back, out.head.data());
    auto keep = std::make_shared<std::vector<std::byte>>(back.data_bytes, std::byte{5});
    out.segments.push_back(*keep);
    out.keep = std::move(keep);
    link.send(std::move(out));
  }
  void closed(Link& link, const sonde::Error* error) override {
    hold(!ended, "the end of a link is reported twice");
    hold(!link.open(), "a link that reported its end is open");
    if (error) hold(*error, "store.");
    ended = true;
  }

  std::size_t pieces = 0, placed = 0, frames = 0;
  bool answers = false, ended = false;
  std::uint64_t sum = 0;
  std::unique_ptr<std::byte[]> memory;

 private:
  void look(Bytes bytes) {
    for (const std::byte b : bytes) sum += std::to_integer<unsigned>(b);
  }
};

/// The peer: the messages that it has sent, and the rest of its stream.
struct Peer {
  World& world;
  std::uint64_t number = 0;
  std::vector<std::byte> stream;

  void message(Input& input, MessageKind kind, Bytes content) {
    MessageHeader h;
    h.kind = static_cast<std::uint8_t>(kind);
    h.bytes = static_cast<std::uint32_t>(content.size());
    h.given = static_cast<std::uint32_t>(world.sent);
    h.released = world.announced;
    h.seen = static_cast<std::uint32_t>(world.sent);
    std::uint64_t at = number;
    const auto lies = input.next<std::uint8_t>();  // usually 0
    if (lies & 1) h.kind = input.next<std::uint8_t>();
    if (lies & 2) h.bytes += input.next<std::uint32_t>();
    if (lies & 4) h.given -= input.next<std::uint8_t>();
    if (lies & 8) h.released += input.next<std::uint8_t>();
    if (lies & 16) h.seen -= input.next<std::uint8_t>();
    if (lies & 32) at += static_cast<std::uint64_t>(input.next<std::int8_t>());  // too early, or a second time
    if (lies & 64) h.sealed = input.next<std::uint8_t>();
    else h.sealed = static_cast<std::uint8_t>(std::min<std::size_t>(content.size() / ofi::seal_unit, 32));
    h.sequence = static_cast<std::uint32_t>(at);
    h.tag = ofi::tag_of(world.peer_key, h, at, content);
    if (lies & 128) h.tag ^= input.next<std::uint8_t>();
    else if (at == number) ++number;
    std::vector<std::byte> whole(header_bytes + content.size());
    std::memcpy(whole.data(), &h, header_bytes);
    std::copy(content.begin(), content.end(), whole.begin() + header_bytes);
    arrives(whole);
  }

  void arrives(Bytes whole) {
    if (world.receives.empty()) return;  // the provider delays or drops it: no buffer, no message
    const World::Posted to = world.receives.front();
    world.receives.pop_front();
    ofi::Done done;
    done.context = to.context;
    done.bytes = std::min(whole.size(), to.bytes);
    if (whole.size() > to.bytes) done.error = FI_ETRUNC;
    std::copy_n(whole.begin(), done.bytes, to.at);
    world.done.push_back(std::move(done));
  }

  /// A frame whose header has the input's lengths and a correct checksum, with `filled` of its bytes.
  std::vector<std::byte> frame(Input& input, bool whole) {
    wire::Header h;
    h.kind = static_cast<wire::Kind>(1 + input.next<std::uint8_t>() % 12);
    h.id = input.next<std::uint8_t>();
    h.flags = static_cast<std::uint16_t>(input.next<std::uint8_t>() % 8);
    h.timeout_ms = input.next<std::uint32_t>() % (2u << 20);
    h.batch_ops = 8;
    if (h.kind == wire::Kind::request || h.kind == wire::Kind::reply) {
      h.id |= 256;
      h.ops = input.next<std::uint8_t>();
      h.table_bytes = input.next<std::uint16_t>();
    }
    const auto size = input.next<std::uint16_t>();
    h.data_bytes = size & 0x8000 ? (size & 0x7fffu) << 6 : size;  // up to twice the limit
    std::vector<std::byte> out(wire::header_bytes, std::byte{});
    wire::encode(h, out.data());
    if (whole) out.resize(out.size() + h.table_bytes + h.data_bytes, std::byte{3});
    return out;
  }
};

void announce(Input& input, Peer& peer) {
  const auto shape = input.next<std::uint8_t>();
  std::vector<std::byte> frame = peer.frame(input, false);
  const auto header = wire::decode(frame.data());
  std::uint32_t data = header ? (*header).data_bytes : 100;
  if (header) frame.resize(frame.size() + (*header).table_bytes, std::byte{4});
  const std::uint32_t n = shape & 1 ? 1 + shape / 2 % 70 : 1;
  std::vector<ofi::Range> ranges(n);
  for (std::size_t k = 0; k < n; ++k) {
    const auto piece = k + 1 == n ? data : std::min<std::uint32_t>(data, input.next<std::uint16_t>());
    ranges[k] = {input.next<std::uint64_t>(), k, piece};
    data -= piece;
  }
  if (shape & 128) ranges[0].bytes = input.next<std::uint64_t>();
  std::uint32_t counts[2] = {static_cast<std::uint32_t>(frame.size()), n};
  if ((shape & 96) == 96) counts[shape / 2 % 2] = input.next<std::uint32_t>();
  std::vector<std::byte> content(sizeof counts + n * sizeof(ofi::Range) + frame.size());
  std::memcpy(content.data(), counts, sizeof counts);
  std::memcpy(content.data() + sizeof counts, ranges.data(), n * sizeof(ofi::Range));
  std::copy(frame.begin(), frame.end(), content.end() - static_cast<std::ptrdiff_t>(frame.size()));
  peer.message(input, MessageKind::announce, content);
}

void complete(World& world, bool reads, std::size_t n, int error) {
  for (; n && !(reads ? world.reads.empty() : world.sends.empty()); --n) {
    ofi::Done done;
    done.error = error;
    if (error) done.why = "it broke";
    if (reads) {
      const World::Posted to = world.reads.front();
      world.reads.pop_front();
      if (!error) std::fill_n(to.at, to.bytes, std::byte{6});
      done.context = to.context;
    } else {
      done.context = world.sends.front();
      world.sends.pop_front();
    }
    world.done.push_back(std::move(done));
  }
}

void send_own(Input& input, Link& link) {
  const std::size_t n = input.next<std::uint8_t>() % 4, size = std::size_t{input.next<std::uint8_t>()} << 7;
  wire::Header h;
  h.kind = wire::Kind::pong;
  Outgoing out;
  auto keep = std::make_shared<std::vector<std::byte>>(n * size, std::byte{7});
  for (std::size_t k = 0; k < n; ++k) out.segments.push_back(Bytes(*keep).subspan(k * size, size));
  out.keep = keep;
  h.data_bytes = static_cast<std::uint32_t>(n * size);
  out.head.resize(wire::header_bytes);
  wire::encode(h, out.head.data());
  link.send(std::move(out));
}

void step(Input& input, Peer& peer, ofi::OfiLink& link, FakeControl& control, bool trial) {
  World& world = peer.world;
  const auto what = input.next<std::uint8_t>();
  switch (what % 16) {
    case 0: peer.message(input, MessageKind::stream, input.take(std::size_t{what} / 16 * 64)); break;
    case 1: {
      const auto frame = peer.frame(input, true);
      if (peer.stream.size() < 8u << 20) peer.stream.insert(peer.stream.end(), frame.begin(), frame.end());
      break;
    }
    case 2:
    case 3: {  // as much of the stream as fits into a message, or a part of it
      std::size_t n = std::min(peer.stream.size(), world.receives.empty() ? 0 : world.receives.front().bytes - 32);
      if (what % 16 == 3) n = std::min<std::size_t>(n, input.next<std::uint16_t>());
      const std::vector<std::byte> piece(peer.stream.begin(), peer.stream.begin() + static_cast<std::ptrdiff_t>(n));
      peer.stream.erase(peer.stream.begin(), peer.stream.begin() + static_cast<std::ptrdiff_t>(n));
      peer.message(input, MessageKind::stream, piece);
      break;
    }
    case 4: announce(input, peer); break;
    case 5: peer.message(input, MessageKind::credit, {}); break;
    case 6: peer.message(input, MessageKind::asleep, {}); break;
    case 7: peer.message(input, what & 16 ? MessageKind::bye : MessageKind::hello, {}); break;
    case 8: peer.arrives(input.take(std::size_t{what} / 16 * 4)); break;  // not a message of ours
    case 9: complete(world, true, 1 + what / 16, 0); break;
    case 10: complete(world, false, 1 + what / 16, 0); break;
    case 11: complete(world, what & 16, 1, what / 16 % 4 == 3 ? FI_EIO : 0); break;
    case 12: world.full = what / 16; break;
    case 13:
      if (what & 16) link.receive(what & 32);
      else if (what & 32) (void)link.arm();
      else if (what & 64) world.events.push_back(what & 128 ? ofi::Event::failed : ofi::Event::shutdown);
      else control.there = !(what & 128);
      break;
    case 14:
      if (link.backlog() < 1u << 20) send_own(input, link);
      if (what & 16) link.flush();
      break;
    default:
      if (trial) link.serve();
      else link.progress();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  static FakeControl control;
  if (n < 4) return 0;
  Input input(bytes, n);
  control.there = true;
  World world;
  const auto asks = input.next<std::uint8_t>(), has = input.next<std::uint8_t>(), plays = input.next<std::uint8_t>();
  world.demands.local_mr = asks & 1;
  world.demands.virtual_addr = asks & 2;
  world.demands.in_order = asks & 4;
  world.demands.inject = asks & 8 ? 64 : 0;
  world.demands.iovs = 1 + asks / 16 % 4;
  world.demands.sends = asks & 64 ? 4 : 64;
  for (std::size_t k = 0; k < world.peer_key.size(); ++k) {
    world.peer_key[k] = static_cast<std::byte>(k);
    world.own_key[k] = static_cast<std::byte>(100 + k);
  }
  ofi::Agreement agreement;
  agreement.transport = "ofi-rma";
  agreement.style = has & 1 ? ofi::Style::rdm : ofi::Style::msg;
  agreement.own_buffers = world.most_receives = 2 + has / 2 % 8;
  agreement.own_bytes = has & 16 ? 40'000 : 1000;
  agreement.peer_buffers = 4 + has / 32 % 4;
  agreement.peer_bytes = has & 128 ? 70'000 : 4096;
  agreement.frame_data = 4096;
  agreement.own_key = world.own_key;
  agreement.peer_key = world.peer_key;
  agreement.rma_from = plays & 1 ? 1000 : -1;
  const bool trial = plays & 2;
  Reader reader;
  reader.pieces = std::size_t{plays} / 4 % 4 * 5;
  reader.answers = plays & 16;
  LinkOptions options;
  options.gather = (plays & 96) != 96;
  options.await = !options.gather && plays & 128;
  {
    ofi::OfiLink link(std::make_unique<FakePort>(world), control, options, reader);
    if (!link.prepare(agreement)) return 0;
    if (trial) link.enter_trial();
    Peer peer{world, 0, {}};
    peer.message(input, MessageKind::hello, {});
    if (const auto ok = link.greet(sonde::Deadline::in_s(0)); !ok) hold(ok.error(), "store.");
    while (!input.empty()) {
      step(input, peer, link, control, trial);
      if (!trial) hold(link.open() != reader.ended, "a link ends without a report");
      hold(link.backlog() <= backlog_max, "answers to the peer pile up");
    }
    if (trial) {
      (void)link.served();
      link.leave_trial();
    }
    world.full = 0;
    for (int k = 0; k < 8; ++k) {
      link.progress();
      complete(world, false, 1000, 0);
      complete(world, true, 1000, 0);
    }
    (void)link.info();
    // At its end a link waits for a peer, unless it knows that the peer is gone.
    control.there = false;
    (void)link.arm();
    link.progress();
  }
  hold(world.stopped && world.regions.empty(), "memory stays registered after the end");
  return 0;
}
