// The engine of all ofi transports: messages, credits, reassembly, remote reads, waiting.
#include "store/module/ofi/link.hpp"

#include <poll.h>
#include <rdma/fi_errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <limits>

#include "core/clock.hpp"
#include "store/module/ofi/threshold.hpp"

namespace sonde::store::ofi {

namespace {

constexpr std::size_t part_room = 512u << 10;  // reserved at once for a frame that comes in parts
constexpr std::size_t header_bytes = sizeof(MessageHeader);
constexpr std::size_t slot_bytes = 32u << 10;  ///< a message's own memory, header included
constexpr std::size_t copy_bytes = 8u << 10;   ///< the rest of a frame up to this size is copied: cheaper than a vector
constexpr std::size_t enrol_bytes = 64u << 10;  ///< larger pieces are worth their own registration
constexpr std::size_t eager_bytes = 64u << 10;  ///< send() holds back at most this much before it sends
constexpr std::size_t messages_max = 32, messages_for_control = 4;
constexpr std::size_t silent_most = 7;  ///< every eighth message completes
constexpr std::uint32_t control_reserve = 2;
constexpr std::int64_t gone_grace_ns = 100'000'000;  ///< time for a dead peer's last messages to arrive
constexpr std::int64_t linger_ns = 250'000'000,
                       linger_most_ns =
                           1'000'000'000;  ///< at the end: for a peer that reads nothing; for one that reads
constexpr std::int64_t recent_ns = 1'000'000'000;
constexpr std::int64_t bell_poll_first_ns = 10'000'000, bell_poll_most_ns = 50'000'000;
constexpr unsigned look_every = 256;
constexpr std::int64_t untold_most_ns = 5'000'000;
/// For the trial: rounds, the first of which does not count; operations in a row; the most time in all, and the time
/// after which no further round begins.
constexpr int trial_rounds = 12, trial_rounds_min = 4, trial_row = 2;
constexpr std::int64_t trial_usual_ns = 30'000'000, trial_longest_ns = 1'000'000'000;

Error lost(const std::string& provider, const std::string& why) {
  return {"store.disconnected", "the connection over '" + provider + "' was lost: " + why,
          "see the server's log; the next batch connects again"};
}

/// Falsifies the tenth message in the field that a test chose: it simulates a broken or hostile peer that has the key.
void spoil(MessageHeader& header, int lie) {
  switch (lie) {
    case 1: header.bytes = 0xffff'ffff; break;
    case 2: header.kind = 200; break;
    case 3: header.given += 1000; break;
    case 4: header.sequence += 100; break;
    case 5: header.magic = 0; break;
    case 6: header.released += 7; break;
    // The header's lengths are then read as those of a frame.
    default: header.kind = static_cast<std::uint8_t>(MessageKind::announce);
  }
}

}  // namespace

struct OfiLink::Memory {
  std::byte* base = nullptr;
  std::size_t size = 0;
  Region region;
};

struct OfiLink::Buffer {
  Context context;  // first: the provider returns its address
  std::byte* at = nullptr;
  std::size_t taken = 0;  ///< bytes after the header that were delivered
  bool owed = false;      ///< the peer must be informed when it is posted again
  MessageHeader header;
};

struct OfiLink::Frame {
  Outgoing out;
  std::size_t bytes = 0, sent = 0;
};

struct OfiLink::Message {
  Context context;  // first, as above
  MessageHeader header;
  std::byte* slot = nullptr;
  Memory large;
  std::array<iovec, 8> pieces;
  std::array<void*, 8> descriptors;
  std::size_t n = 0, bytes = 0;
  std::vector<std::shared_ptr<Frame>> frames;  ///< frames with memory that this message refers to
  std::vector<Region> regions;                 ///< for this operation only
  std::vector<Message*> covers;                ///< messages that are done when this one is
  std::uint32_t number = 0;                    ///< number of an announcement
  bool announced = false, complete = false, released = false;
};

/// Data of an announced frame that is arriving.
struct OfiLink::Reading {
  struct Step {
    Context context;  // first, as above
    iovec piece{};
    std::uint64_t address = 0, key = 0;
    Region region;
  };
  wire::Header header;
  Bytes table;
  bool placed = false;
  std::vector<iovec> scatter;  ///< destinations of the data in `own`, if there are too many for separate reads
  std::vector<std::unique_ptr<Step>> steps;
  std::size_t posted = 0, outstanding = 0;
};

/// Receives the trial's frames. The kind of frame shows which side this is: only a server gets requests.
struct OfiLink::Trial final : Sink {
  enum Id : std::uint64_t { data, data_end, fetch_by_message, fetch_by_rma, taken, over };

  explicit Trial(OfiLink& own, Sink* before) : own(own), users(before) {}
  bool place(Link&, const wire::Header& h, Bytes, std::vector<iovec>& places) override {
    if (!asks || !fits(h)) return false;
    places.assign(1, {memory->data() + got, h.data_bytes});
    return true;
  }
  void frame(Link&, const wire::Header& h, Bytes, Bytes bytes, bool placed) override;
  void closed(Link&, const Error*) override {}
  bool fits(const wire::Header& h) const { return h.data_bytes <= memory->size() - got; }
  /// Each side waits for the other's answer before it continues, so no unread answers can pile up here.
  static Error too_early() { return bad_message("a trial continues before its answer was read"); }

  OfiLink& own;
  Sink* users;
  /// Source and destination of the data: what a server reads, a client requests, and a backend stores.
  std::shared_ptr<std::vector<std::byte>> memory = std::make_shared<std::vector<std::byte>>(wire::data_bytes_max);
  std::size_t got = 0;
  bool asks = false, done = false, left = false;
  unsigned char fill = 0;
};

BufferPlan plan_buffers(const Demands& demands, std::size_t frame_data) {
  // Pinned memory is scarce, and a thousand connections share it. With other providers a page that no message ever
  // filled uses no memory.
  const std::size_t most = std::clamp<std::size_t>(demands.receives / 2, 4, 16);
  if (demands.local_mr) return {most, 32u << 10};
  // A frame of the usual size fits into one buffer. There are few large buffers, because they are filled in turn and
  // should stay in a cache.
  const std::size_t bytes = std::min(frame_data, wire::data_bytes_max) + (16u << 10);
  return {std::min(most, std::max<std::size_t>(6, (2u << 20) / bytes)), bytes};
}

OfiLink::OfiLink(std::unique_ptr<Port> port, Control& control, const LinkOptions& options, Sink& sink)
    : port_(std::move(port)),
      control_(control),
      options_(options),
      sink_(&sink),
      demands_(port_->demands()),
      provider_(port_->provider()),
      spin_(options.spin_s, port_->waiting() == Wait::none ? bell_spin : SpinPolicy{}) {}

OfiLink::~OfiLink() {
  if (port_ && !closed_ && hello_) say_goodbye();
  shut();
}

void OfiLink::shut() {
  if (!port_) return;
  // Some providers read a peer's memory even when it is no longer the announced memory. A peer that reads from now on
  // must see that this end is closed, and its announcements with it.
  if (!announcements_.empty()) ::shutdown(control_.fd(), SHUT_WR);
  // The order is: operations, then the registrations that they use, then the domain of these, then the memory.
  port_->stop(agreement_.one_process);
  for (auto& message : messages_) {
    for (Region& region : message->regions) port_->strike(region);
    port_->strike(message->large.region);
  }
  if (reading_)
    for (auto& step : reading_->steps) port_->strike(step->region);
  for (Memory* memory : {receive_memory_.get(), send_memory_.get(), read_memory_.get()})
    if (memory) port_->strike(memory->region);
  if (agreement_.one_process) retire(std::move(port_), agreement_.token);
  else port_.reset();
  for (auto& message : messages_) free_memory(message->large);
  for (Memory* memory : {receive_memory_.get(), send_memory_.get(), read_memory_.get()})
    if (memory) free_memory(*memory);
  arrived_.clear();
  early_.clear();
  unposted_.clear();
  idle_.clear();
  announcements_.clear();
  silent_.clear();
  stalled_ = nullptr;
  reading_.reset();
  buffers_.clear();
  messages_.clear();
  queue_.clear();
  queued_bytes_ = in_flight_ = 0;
}

Result<void> OfiLink::allocate(Memory& memory, std::size_t bytes, bool remote) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return Error{"store.no_memory", "no memory for " + std::to_string(bytes) + " bytes of buffers",
                 "close other connections, or raise the memory limit"};
  memory.base = static_cast<std::byte*>(base);
  memory.size = bytes;
  if (demands_.local_mr || remote) {
    auto region = port_->enrol(base, bytes, remote);
    if (!region) {
      free_memory(memory);
      return region.error();
    }
    memory.region = *region;
  }
  return {};
}

void OfiLink::free_memory(Memory& memory) {
  if (memory.base) ::munmap(memory.base, memory.size);
  memory = {};
}

Result<void> OfiLink::prepare(const Agreement& agreement) {
  agreement_ = agreement;
  receive_memory_ = std::make_unique<Memory>();
  send_memory_ = std::make_unique<Memory>();
  if (auto ok = allocate(*receive_memory_, agreement_.own_buffers * agreement_.own_bytes); !ok) return ok;
  if (auto ok = allocate(*send_memory_, (messages_max + messages_for_control) * slot_bytes); !ok) return ok;
  for (std::size_t k = 0; k < agreement_.own_buffers; ++k) {
    auto& buffer = buffers_.emplace_back(std::make_unique<Buffer>());
    buffer->context.op = Context::Op::receive;
    buffer->at = receive_memory_->base + k * agreement_.own_bytes;
    if (!post_receive(*buffer))
      return Error{"store.fabric", "'" + provider_ + "' accepts no more than " + std::to_string(k) + " receives",
                   "choose another provider"};
  }
  return {};
}

bool OfiLink::post_receive(Buffer& buffer) {
  buffer.taken = 0;
  looked_ = false;
  return port_->receive(buffer.at, agreement_.own_bytes, demands_.local_mr ? &receive_memory_->region : nullptr,
                        &buffer.context) == 0;
}

Result<void> OfiLink::greet(Deadline deadline) {
  bool said = false;
  while (true) {
    if (!said) said = say(MessageKind::hello);
    collect();
    if (failure_) return *failure_;
    if (said && hello_) break;
    while (true) {
      const Event event = port_->event(nullptr);
      if (event == Event::none) break;
      if (event == Event::shutdown || event == Event::failed)
        return lost(provider_, "the peer hung up during the greeting");
    }
    if (deadline.passed())
      return Error{"store.timed_out", "no greeting over '" + provider_ + "' in time",
                   "the provider may be blocked between these hosts; try another"};
    // It is not known yet which side has a core, so the wait is gentle.
    const timespec pause{0, 20'000};
    ::nanosleep(&pause, nullptr);
  }
  port_->settle();
  return {};
}

// ---- sending

void OfiLink::send(Outgoing frame) {
  if (closed_ || failure_ || said_bye_) return;
  auto entry = std::make_shared<Frame>();
  entry->bytes = frame.head.size();
  for (const Segment& s : frame.segments) entry->bytes += s.size();
  entry->out = std::move(frame);
  queued_bytes_ += entry->bytes;
  queue_.push_back(std::move(entry));
  if (queued_bytes_ < eager_bytes) return;
  // A side that makes a long answer does not reach the check below. It can use the buffers that the peer has returned
  // meanwhile.
  if (announcements_.size() >= announcements_max || !credit_left(false)) collect();
  pump();
}

void OfiLink::flush() {
  if (closed_ || queue_.empty()) return;
  pump();
  // A peer that sleeps without a descriptor announced that before its last look at the queue; this is our look.
  if (port_->waiting() == Wait::none) collect();
}

bool OfiLink::credit_left(bool control) const {
  return sent_ - peer_given_ + (control ? 0 : control_reserve) < agreement_.peer_buffers;
}

OfiLink::Message* OfiLink::take_message(bool control) {
  if (idle_.empty()) {
    if (messages_.size() >= messages_max + messages_for_control) return nullptr;
    auto& message = messages_.emplace_back(std::make_unique<Message>());
    message->context.op = Context::Op::send;
    message->slot = send_memory_->base + (messages_.size() - 1) * slot_bytes;
    idle_.push_back(message.get());
  }
  if (!control && in_flight_ + silent_.size() >= std::min(messages_max, demands_.sends - 1)) return nullptr;
  Message* message = idle_.back();
  idle_.pop_back();
  message->n = 1;
  message->bytes = 0;
  message->pieces[0] = {message->slot, header_bytes};
  message->descriptors[0] = demands_.local_mr ? send_memory_->region.descriptor : nullptr;
  message->header = {};
  message->announced = message->complete = message->released = false;
  return message;
}

void OfiLink::recycle(Message* message) {
  message->frames.clear();
  for (Region& region : message->regions) port_->strike(region);
  message->regions.clear();
  idle_.push_back(message);
}

void OfiLink::frame_done(Message& message) {
  (void)message;
  ++frames_sent_;
  queue_.pop_front();
}

void OfiLink::pump() {
  if (closed_ || failure_ || !port_) return;
  if (stalled_) {
    if (!credit_left(false)) return;
    Message* message = stalled_;
    stalled_ = nullptr;
    if (!post(message)) return;
  }
  while (!queue_.empty() && credit_left(false)) {
    if (options_.await && in_flight_) return;
    Message* message = build();
    if (!message || !post(message)) return;
  }
}

OfiLink::Message* OfiLink::build() {
  Message* message = take_message(false);
  if (!message) return nullptr;
  message->header.kind = static_cast<std::uint8_t>(MessageKind::stream);
  const std::size_t most = agreement_.peer_bytes - header_bytes;
  const Frame& frame = *queue_.front();
  if (!options_.gather) {
    // One piece in each message: the header, the table, a segment.
    std::size_t at = frame.sent, piece = 0;
    const std::size_t head = frame.out.head.size();
    if (at < wire::header_bytes) {
      piece = std::min(wire::header_bytes, head) - at;
    } else if (at < head) {
      piece = head - at;
    } else {
      at -= head;
      for (const Segment& s : frame.out.segments) {
        if (at < s.size()) {
          piece = s.size() - at;
          break;
        }
        at -= s.size();
      }
    }
    build_large(*message, std::min(piece, most));
  } else if (frame.sent == 0 && agreement_.rma_from >= 0 && build_announcement(*message)) {
  } else if (frame.bytes - frame.sent <= copy_bytes) {
    build_copies(*message);
  } else {
    build_large(*message, std::min(frame.bytes - frame.sent, most));
  }
  return message;
}

/// Calls `use` with each piece of the next `bytes` of a frame.
template <typename Use> static void each_piece(const Outgoing& out, std::size_t skip, std::size_t bytes, Use use) {
  const auto give = [&](Bytes piece) {
    if (skip >= piece.size()) {
      skip -= piece.size();
      return;
    }
    const Bytes part = piece.subspan(skip, std::min(bytes, piece.size() - skip));
    skip = 0;
    bytes -= part.size();
    if (!part.empty()) use(part);
  };
  give(out.head);
  for (const Segment& s : out.segments) {
    if (!bytes) break;
    give(s);
  }
}

/// Small frames, one behind the other, as many as are waiting and fit.
void OfiLink::build_copies(Message& m) {
  const std::size_t room = std::min(slot_bytes, agreement_.peer_bytes);
  std::size_t at = header_bytes;
  while (!queue_.empty()) {
    Frame& frame = *queue_.front();
    const std::size_t bytes = frame.bytes - frame.sent;
    if (bytes > copy_bytes || at + bytes > room) break;
    each_piece(frame.out, frame.sent, bytes, [&](Bytes part) {
      std::memcpy(m.slot + at, part.data(), part.size());
      at += part.size();
    });
    queued_bytes_ -= bytes;
    frame_done(m);
  }
  if (at == header_bytes) {
    // The peer's largest message is smaller than one small frame.
    build_large(m, std::min(queue_.front()->bytes - queue_.front()->sent, agreement_.peer_bytes - header_bytes));
    return;
  }
  m.pieces[0].iov_len = at;
  m.bytes = at - header_bytes;
}

/// A piece of one frame: sent from its place if the provider supports that many vectors, else gathered.
void OfiLink::build_large(Message& m, std::size_t bytes) {
  const std::shared_ptr<Frame> frame = queue_.front();
  const std::size_t vectors = std::min(demands_.iovs, m.pieces.size());
  std::size_t in_slot = header_bytes, n = 1;
  bool in_place = true;
  // The frame's head, and the small pieces before the first large one, are sent with the message's header.
  each_piece(frame->out, frame->sent, bytes, [&](Bytes part) {
    if (!in_place) return;
    if (n == 1 && part.size() <= copy_bytes && in_slot + part.size() <= slot_bytes) {
      in_slot += part.size();
    } else if (n < vectors && (!demands_.local_mr || part.size() >= enrol_bytes)) {
      ++n;
    } else {
      in_place = false;
    }
  });
  std::byte* to = m.slot;
  if (!in_place) {
    n = 1;
    if (header_bytes + bytes > slot_bytes) {
      if (m.large.size < header_bytes + bytes) {
        port_->strike(m.large.region);
        free_memory(m.large);
        // A number from the peer alone is no reason to pin memory.
        const std::size_t usual = std::min(agreement_.peer_bytes, wire::data_bytes_max);
        if (auto ok = allocate(m.large, header_bytes + std::max(bytes, usual)); !ok) return fail(ok.error());
      }
      to = m.large.base;
      m.descriptors[0] = demands_.local_mr ? m.large.region.descriptor : nullptr;
    }
  }
  m.n = 1;
  std::size_t at = header_bytes;
  each_piece(frame->out, frame->sent, bytes, [&](Bytes part) {
    if (!in_place || (m.n == 1 && part.size() <= copy_bytes && at + part.size() <= slot_bytes)) {
      std::memcpy(to + at, part.data(), part.size());
      at += part.size();
      return;
    }
    m.pieces[m.n] = {const_cast<std::byte*>(part.data()), part.size()};
    m.descriptors[m.n] = nullptr;
    if (demands_.local_mr) {
      auto region = port_->enrol(m.pieces[m.n].iov_base, part.size(), false);
      if (!region) return fail(region.error());
      m.regions.push_back(*region);
      m.descriptors[m.n] = region->descriptor;
    }
    ++m.n;
  });
  m.pieces[0] = {to, at};
  m.bytes = bytes;
  queued_bytes_ -= bytes;
  frame->sent += bytes;
  if (m.n > 1) m.frames.push_back(frame);
  if (frame->sent == frame->bytes) frame_done(m);
}

/// Head and table are sent now, the data when the peer reads it. False: this frame cannot be announced now.
bool OfiLink::build_announcement(Message& m) {
  const std::shared_ptr<Frame> frame = queue_.front();
  const std::size_t head = frame->out.head.size(), data = frame->bytes - head;
  if (data == 0 || data < static_cast<std::size_t>(agreement_.rma_from) || announcements_.size() >= announcements_max)
    return false;
  const std::size_t room = std::min(slot_bytes, agreement_.peer_bytes) - header_bytes;
  if (head + 8 + sizeof(Range) > room) return false;
  std::size_t n = 0, least = data;
  for (const Segment& s : frame->out.segments)
    if (!s.empty()) {
      ++n;
      least = std::min(least, s.size());
    }
  std::vector<Range> ranges;
  const auto range_of = [&](const Region& region, const void* at, std::size_t bytes) {
    ranges.push_back({demands_.virtual_addr ? reinterpret_cast<std::uintptr_t>(at) : 0, region.key, bytes});
  };
  if (n <= ranges_max && (n == 1 || least >= enrol_bytes) && 8 + n * sizeof(Range) + head <= room) {
    for (const Segment& s : frame->out.segments) {
      if (s.empty()) continue;
      auto region = port_->enrol(const_cast<std::byte*>(s.data()), s.size(), true);
      if (!region) {
        for (Region& r : m.regions) port_->strike(r);
        m.regions.clear();
        return false;
      }
      m.regions.push_back(*region);
      range_of(*region, s.data(), s.size());
    }
  } else {
    // Many small segments: one contiguous copy is cheaper than a registration and a read for each.
    if (m.large.size < data || !m.large.region.mr) {
      port_->strike(m.large.region);
      free_memory(m.large);
      if (!allocate(m.large, std::max(data, agreement_.frame_data), true)) return false;
    }
    std::size_t at = 0;
    for (const Segment& s : frame->out.segments) {
      if (!s.empty()) std::memcpy(m.large.base + at, s.data(), s.size());
      at += s.size();
    }
    range_of(m.large.region, m.large.base, data);
  }
  const std::uint32_t counts[2] = {static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(ranges.size())};
  std::size_t at = header_bytes;
  const auto put = [&](const void* from, std::size_t bytes) {
    std::memcpy(m.slot + at, from, bytes);
    at += bytes;
  };
  put(counts, sizeof counts);
  put(ranges.data(), ranges.size() * sizeof(Range));
  put(frame->out.head.data(), head);
  m.pieces[0].iov_len = at;
  m.bytes = at - header_bytes;
  m.header.kind = static_cast<std::uint8_t>(MessageKind::announce);
  m.announced = true;
  m.number = ++announced_;
  m.frames.push_back(frame);
  announcements_.push_back(&m);
  queued_bytes_ -= frame->bytes;
  frame->sent = frame->bytes;
  ++frames_by_rma_;
  frame_done(m);
  return true;
}

bool OfiLink::post(Message* m) {
  if (failure_) {
    stalled_ = m;
    return false;
  }
  // All counts are written at the last moment, so that another message may overtake one that the provider refused.
  m->header.bytes = static_cast<std::uint32_t>(m->bytes);
  m->header.sequence = sent_;
  m->header.given = given_;
  m->header.released = released_;
  m->header.seen = received_;
  seal(*m);
  looked_ = false;
  ssize_t r = -FI_EAGAIN;
  bool injected = false, silent = false;
  if (m->n == 1 && m->pieces[0].iov_len <= demands_.inject && !options_.await && !m->announced) {
    r = port_->inject(m->pieces[0].iov_base, m->pieces[0].iov_len);
    injected = r == 0;
  }
  if (!injected) {
    // A copy needs no completion of its own: its memory is used again after a later message has completed.
    silent = demands_.in_order && m->frames.empty() && m->regions.empty() && !m->announced && !options_.await &&
             silent_.size() < std::min(silent_most, demands_.sends / 4);
    r = port_->send(m->pieces.data(), m->descriptors.data(), m->n, &m->context, !silent);
    m->context.busy = r == 0;
  }
  if (r == -FI_EAGAIN) {
    stalled_ = m;
    return false;
  }
  if (r != 0) {
    stalled_ = m;
    lose("sending: " + fabric_error(static_cast<int>(r)));
    return false;
  }
  ++sent_;
  ++messages_sent_;
  given_told_ = given_;
  released_told_ = released_;
  asleep_told_ = false;
  const auto kind = static_cast<MessageKind>(m->header.kind);
  if (kind != MessageKind::asleep && kind != MessageKind::credit) last_sent_ns_ = now_ns();
  if (injected) {
    recycle(m);
  } else if (silent) {
    silent_.push_back(m);
  } else {
    m->covers = std::move(silent_);
    silent_.clear();
    ++in_flight_;
  }
  rouse();
  return true;
}

void OfiLink::seal(Message& m) {
  // Only copied bytes are sealed. If a caller breaks the rules and changes its memory meanwhile, only its own frame is
  // damaged.
  const Bytes copied(static_cast<const std::byte*>(m.pieces[0].iov_base) + header_bytes,
                     m.pieces[0].iov_len - header_bytes);
  constexpr std::size_t units_most = std::numeric_limits<decltype(MessageHeader::sealed)>::max();
  const std::size_t most = std::min(copied.size(), m.announced ? units_most * seal_unit : sealed_most);
  // A piece with others after it may end anywhere. If it ends the message, the sealed part ends there too.
  m.header.sealed = static_cast<std::uint8_t>(m.n == 1 ? (most + seal_unit - 1) / seal_unit : most / seal_unit);
  if (agreement_.lie && messages_sent_ == 9) spoil(m.header, agreement_.lie);
  const std::uint64_t number = messages_sent_ + (m.header.sequence - sent_);
  m.header.tag = tag_of(agreement_.own_key, m.header, number, copied);
  std::memcpy(m.pieces[0].iov_base, &m.header, header_bytes);
}

void OfiLink::rouse() {
  if (!peer_asleep_) return;
  peer_asleep_ = false;
  control_.ring();
}

/// Sends a message without content. False: not now.
bool OfiLink::say(MessageKind kind) {
  if (failure_ || !credit_left(true)) return false;
  Message* message = take_message(true);
  if (!message) return false;
  message->header.kind = static_cast<std::uint8_t>(kind);
  Message* const waiting = stalled_;
  const bool ok = post(message);
  if (!ok) recycle(message);
  stalled_ = waiting;
  return ok;
}

void OfiLink::drop_released() {
  while (!announcements_.empty() && reached(peer_released_, announcements_.front()->number)) {
    Message* message = announcements_.front();
    announcements_.pop_front();
    message->released = true;
    if (message->complete) recycle(message);
  }
}

// ---- receiving

std::size_t OfiLink::collect() {
  if (!port_) return 0;
  std::array<Done, 16> done;
  std::size_t total = 0;
  for (int round = 0; round < 4; ++round) {
    const std::size_t n = port_->poll(done.data(), done.size());
    total += n;
    for (std::size_t k = 0; k < n; ++k) {
      Context* context = done[k].context;
      if (done[k].error) {
        if (context) context->busy = false;
        // The peer knows the maximum length of a message. Other processes that can reach the endpoint send longer
        // messages, or stop in the middle of one. The Control shows whether the peer is gone.
        if (context && context->op == Context::Op::receive && agreement_.style == Style::rdm)
          drop(*reinterpret_cast<Buffer*>(context));
        else if (done[k].error == FI_ETRUNC)
          fail(bad_message("a message over '" + provider_ + "' is longer than agreed"));
        else lose(done[k].why);
        continue;
      }
      if (!context) continue;
      context->busy = false;
      switch (context->op) {
        case Context::Op::receive: arrived(*reinterpret_cast<Buffer*>(context), done[k].bytes); break;
        case Context::Op::send: {
          auto* message = reinterpret_cast<Message*>(context);
          --in_flight_;
          message->complete = true;
          for (Message* before : message->covers) recycle(before);
          message->covers.clear();
          if (!message->announced || message->released) recycle(message);
          break;
        }
        case Context::Op::read:
          if (reading_) --reading_->outstanding;
          break;
      }
    }
    if (n < done.size()) break;
  }
  looked_ = total == 0;
  return total;
}

/// Whether only the peer can have sent it.
bool OfiLink::is_peers(const Buffer& buffer, std::size_t bytes) const {
  if (!tag_fits(agreement_.peer_key, buffer.header, counts(), {buffer.at + header_bytes, bytes - header_bytes}))
    return false;
  return std::none_of(early_.begin(), early_.end(),
                      [&](const Buffer* other) { return other->header.sequence == buffer.header.sequence; });
}

void OfiLink::drop(Buffer& buffer) {
  ++dropped_;
  foreign_messages().fetch_add(1, std::memory_order_relaxed);
  if (!port_ || poisoned_ || post_receive(buffer)) return;
  buffer.owed = false;
  unposted_.push_back(&buffer);
}

void OfiLink::arrived(Buffer& buffer, std::size_t bytes) {
  if (poisoned_) return;
  const MessageHeader& h = buffer.header;
  if (!read_header({buffer.at, bytes}, buffer.header) || !is_peers(buffer, bytes)) return drop(buffer);
  if (auto ok = check_header(h, bytes - header_bytes, counts(), provider_); !ok) return fail(ok.error());
  ++received_;
  asleep_told_ = false;
  if (!reached(peer_given_, h.given)) {
    peer_given_ = h.given;
    untold_ns_ = 0;
  }
  if (!reached(peer_released_, h.released)) {
    peer_released_ = h.released;
    drop_released();
  }
  if (h.sequence != next_sequence_) {
    early_.push_back(&buffer);
    return;
  }
  in_turn(buffer);
  for (bool again = !early_.empty(); again && !poisoned_;) {
    again = false;
    for (std::size_t k = 0; k < early_.size(); ++k)
      if (early_[k]->header.sequence == next_sequence_) {
        Buffer* next = early_[k];
        early_.erase(early_.begin() + static_cast<std::ptrdiff_t>(k));
        in_turn(*next);
        again = !early_.empty();
        break;
      }
  }
}

/// Handles messages for the Link itself at once; the others wait for deliver().
void OfiLink::in_turn(Buffer& buffer) {
  ++next_sequence_;
  ++taken_;
  const MessageHeader& h = buffer.header;
  const auto kind = static_cast<MessageKind>(h.kind);
  if (kind != MessageKind::asleep) peer_asleep_ = false;
  switch (kind) {
    case MessageKind::stream:
    case MessageKind::announce: arrived_.push_back(&buffer); return;
    case MessageKind::bye:
      arrived_.push_back(&buffer);
      say(MessageKind::bye_seen);
      return;
    case MessageKind::hello: hello_ = true; break;
    case MessageKind::asleep:
      // The peer has not seen messages that were sent after its last look, and will not look again by itself.
      if (h.seen != sent_ || (reading_ && reading_->outstanding)) control_.ring();
      else peer_asleep_ = true;
      break;
    case MessageKind::bye_seen: bye_seen_ = true; break;
    case MessageKind::credit: break;
  }
  give_back(buffer);
}

void OfiLink::give_back(Buffer& buffer) {
  if (!port_) return;
  if (post_receive(buffer)) {
    ++given_;
  } else {
    buffer.owed = true;
    unposted_.push_back(&buffer);
  }
}

int OfiLink::deliver() {
  int frames = 0;
  while (receiving_ && !closed_ && !arrived_.empty()) {
    Buffer& buffer = *arrived_.front();
    const auto kind = static_cast<MessageKind>(buffer.header.kind);
    if (kind == MessageKind::bye) {
      peer_said_bye_ = true;
      arrived_.pop_front();
      close_now(nullptr);
      break;
    }
    if (!(kind == MessageKind::stream ? take_stream(buffer, frames) : take_announcement(buffer, frames))) break;
    arrived_.pop_front();
    give_back(buffer);
  }
  return frames;
}

/// True: the whole message is used.
bool OfiLink::take_stream(Buffer& buffer, int& frames) {
  while (buffer.taken < buffer.header.bytes) {
    if (!receiving_ || closed_ || poisoned_) return false;
    const std::byte* at = buffer.at + header_bytes + buffer.taken;
    const std::size_t left = buffer.header.bytes - buffer.taken;
    if (part_.empty() && left >= wire::header_bytes) {
      const auto header = wire::decode(at);
      if (!header) {
        fail(header.error());
        return false;
      }
      const std::size_t head = wire::header_bytes + (*header).table_bytes, whole = head + (*header).data_bytes;
      if (left >= whole) {
        buffer.taken += whole;
        ++frames;
        sink_->frame(*this, *header, {at + wire::header_bytes, (*header).table_bytes},
                     {at + head, (*header).data_bytes}, false);
        continue;
      }
    }
    if (!continue_part(buffer, frames)) return false;
  }
  return true;
}

/// A frame over several messages: uses the part in this one. False: an error, or deliveries should stop.
bool OfiLink::continue_part(Buffer& buffer, int& frames) {
  const std::byte* at = buffer.at + header_bytes + buffer.taken;
  std::size_t left = buffer.header.bytes - buffer.taken;
  if (part_placed_) {
    while (left && place_left_) {
      iovec& place = places_[place_at_];
      const std::size_t n = std::min(left, place.iov_len);
      std::memcpy(place.iov_base, at, n);
      place.iov_base = static_cast<std::byte*>(place.iov_base) + n;
      place.iov_len -= n;
      if (place.iov_len == 0) ++place_at_;
      at += n;
      left -= n;
      place_left_ -= n;
      buffer.taken += n;
    }
    if (place_left_) return true;
  } else {
    if (part_.empty()) {
      part_known_ = false;
      part_need_ = wire::header_bytes;
    }
    const std::size_t n = std::min(left, part_need_ - part_.size());
    part_.insert(part_.end(), at, at + n);
    buffer.taken += n;
    if (part_.size() < part_need_) return true;
    if (!part_known_) {
      const auto header = wire::decode(part_.data());
      if (!header) {
        fail(header.error());
        return false;
      }
      part_header_ = *header;
      part_known_ = true;
      part_need_ += part_header_.table_bytes;
      if (part_.size() < part_need_) return true;
    }
    const std::size_t head = wire::header_bytes + part_header_.table_bytes;
    if (part_.size() == head && part_header_.data_bytes) {
      places_.clear();
      if (sink_->place(*this, part_header_, Bytes(part_).subspan(wire::header_bytes), places_)) {
        std::size_t room = 0;
        for (const iovec& place : places_) room += place.iov_len;
        if (room != part_header_.data_bytes) {
          fail({"store.internal",
                "a frame's buffers hold " + std::to_string(room) + " bytes, its data has " +
                    std::to_string(part_header_.data_bytes),
                "please report this"});
          return false;
        }
        part_placed_ = true;
        place_at_ = 0;
        place_left_ = room;
      } else {
        part_need_ = head + part_header_.data_bytes;
        part_.reserve(std::min(part_need_, part_room));  // memory grows with the data, not the header's claim
      }
      return true;
    }
  }
  const std::size_t head = wire::header_bytes + part_header_.table_bytes;
  const bool placed = part_placed_;
  std::vector<std::byte> whole;
  whole.swap(part_);
  part_placed_ = part_known_ = false;
  ++frames;
  const Bytes bytes = whole;
  sink_->frame(*this, part_header_, bytes.subspan(wire::header_bytes, part_header_.table_bytes),
               placed ? Bytes{} : bytes.subspan(head), placed);
  if (whole.capacity() <= 2 * wire::data_bytes_max && part_.empty()) {
    whole.clear();
    part_.swap(whole);  // its memory is used for the next frame
  }
  return true;
}

bool OfiLink::take_announcement(Buffer& buffer, int& frames) {
  if (!part_.empty()) {
    fail(bad_message("a frame is announced in the middle of another"));
    return false;
  }
  if (!reading_) {
    const auto announced = read_announcement({buffer.at + header_bytes, buffer.header.bytes});
    if (!announced) {
      fail(announced.error());
      return false;
    }
    const Announcement& announcement = *announced;
    const wire::Header& h = announcement.header;
    auto reading = std::make_unique<Reading>();
    reading->header = h;
    reading->table = announcement.table;
    std::vector<iovec> places;
    reading->placed = sink_->place(*this, h, reading->table, places);
    std::size_t room = 0;
    for (const iovec& place : places) room += place.iov_len;
    if (reading->placed && room != h.data_bytes) {
      fail({"store.internal",
            "a frame's buffers hold " + std::to_string(room) + " bytes, its data has " + std::to_string(h.data_bytes),
            "please report this"});
      return false;
    }
    const bool own = !reading->placed || places.size() > announcements_max;
    if (own) {
      if (reading->placed) reading->scatter = places;
      if (!read_memory_) read_memory_ = std::make_unique<Memory>();
      if (read_memory_->size < h.data_bytes) {
        port_->strike(read_memory_->region);
        free_memory(*read_memory_);
        if (auto ok = allocate(*read_memory_, std::max<std::size_t>(h.data_bytes, agreement_.frame_data)); !ok) {
          fail(ok.error());
          return false;
        }
      }
      places.assign(1, {read_memory_->base, h.data_bytes});
    }
    std::size_t place = 0, used = 0;
    for (const Range& range : announcement.ranges) {
      for (std::uint64_t done = 0; done < range.bytes;) {
        while (used == places[place].iov_len) {
          ++place;
          used = 0;
        }
        const std::size_t n_bytes = std::min<std::size_t>(range.bytes - done, places[place].iov_len - used);
        auto step = std::make_unique<Reading::Step>();
        step->context.op = Context::Op::read;
        step->piece = {static_cast<std::byte*>(places[place].iov_base) + used, n_bytes};
        step->address = range.address + done;
        step->key = range.key;
        if (demands_.local_mr && !own) {
          auto region = port_->enrol(step->piece.iov_base, n_bytes, false);
          if (!region) {
            for (auto& made : reading->steps) port_->strike(made->region);
            fail(region.error());
            return false;
          }
          step->region = *region;
        }
        used += n_bytes;
        done += n_bytes;
        reading->steps.push_back(std::move(step));
      }
    }
    reading_ = std::move(reading);
  }
  post_reads();
  // Over shared memory a posted operation is already done. Otherwise its completion would only be seen after a whole
  // turn of the event loop.
  if (!poisoned_ && reading_->outstanding) collect();
  // Otherwise the peer must make progress, which it does not do asleep (libfabric 2.1).
  if (reading_->outstanding) rouse();
  if (poisoned_ || reading_->posted < reading_->steps.size() || reading_->outstanding) return false;
  const std::unique_ptr<Reading> reading = std::move(reading_);
  for (auto& step : reading->steps) port_->strike(step->region);
  // The peer ends its Control before it frees announced memory: the data just read may be invalid.
  if (pollfd end{control_.fd(), POLLRDHUP, 0};
      ::poll(&end, 1, 0) > 0 && end.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) {
    fail(lost(provider_, "the peer ended while its memory was read"));
    return false;
  }
  Bytes data;
  if (!reading->placed) data = {read_memory_->base, reading->header.data_bytes};
  const std::byte* from = reading->scatter.empty() ? nullptr : read_memory_->base;
  for (const iovec& place : reading->scatter) {
    std::memcpy(place.iov_base, from, place.iov_len);
    from += place.iov_len;
  }
  ++released_;
  ++frames;
  sink_->frame(*this, reading->header, reading->table, data, reading->placed);
  return true;
}

void OfiLink::post_reads() {
  while (reading_->posted < reading_->steps.size()) {
    auto& step = *reading_->steps[reading_->posted];
    void* descriptor = step.region.mr ? step.region.descriptor
                       : read_memory_ ? read_memory_->region.descriptor
                                      : nullptr;
    looked_ = false;
    const ssize_t r = port_->read(&step.piece, &descriptor, 1, step.address, step.key, &step.context);
    if (r == -FI_EAGAIN) return;
    if (r != 0) return fail(lost(provider_, "reading remote memory: " + fabric_error(static_cast<int>(r))));
    step.context.busy = true;
    ++reading_->posted;
    ++reading_->outstanding;
  }
}

// ---- the trial of messages and remote reads

// The trial sends frames in the same way as normal use: cut in the same way, announced and registered one by one,
// delivered by the same turns, with data that the peer has just written. A shorter test, such as a read of memory that
// both ends prepared once, would omit the costs that decide between the two ways where they are close.

void OfiLink::Trial::frame(Link&, const wire::Header& h, Bytes, Bytes bytes, bool placed) {
  if (h.id == taken) {
    done = true;
  } else if (h.id == over) {
    left = true;
    own.receiving_ = false;
  } else if (h.id == fetch_by_message || h.id == fetch_by_rma) {
    if (h.timeout_ms > memory->size()) return own.fail(bad_message("a trial of too many bytes"));
    if (own.queued_bytes_) return own.fail(too_early());
    // Written again, as a backend does: then the data is in this core's cache, and not in the peer's.
    std::memset(memory->data(), ++fill, h.timeout_ms);
    own.trial_send(h.timeout_ms, h.id == fetch_by_rma);
  } else if (h.id == data || h.id == data_end) {
    if (!fits(h)) return own.fail(bad_message("a trial of too many bytes"));
    if (!placed && h.data_bytes) std::memcpy(memory->data() + got, bytes.data(), h.data_bytes);
    got += h.data_bytes;
    if (h.id == data) return;
    got = 0;
    if (asks) {
      done = true;
    } else if (own.queued_bytes_) {
      own.fail(too_early());
    } else {
      own.send(own.trial_frame(0, 0, taken));
      own.flush();
    }
  }
}

Outgoing OfiLink::trial_frame(std::size_t bytes, std::size_t from, std::uint64_t id) {
  wire::Header h;
  h.kind = wire::Kind::ping;
  h.id = id;
  h.data_bytes = static_cast<std::uint32_t>(bytes);
  Outgoing out;
  out.head.resize(wire::header_bytes);
  wire::encode(h, out.head.data());
  if (bytes) {
    out.segments.push_back(Bytes(*trial_->memory).subspan(from, bytes));
    out.keep = trial_->memory;
  }
  return out;
}

void OfiLink::trial_send(std::size_t bytes, bool by_rma) {
  agreement_.rma_from = by_rma ? 0 : -1;
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t n = std::min(bytes - at, agreement_.frame_data);
    send(trial_frame(n, at, at + n == bytes ? Trial::data_end : Trial::data));
    at += n;
  }
  flush();
}

void OfiLink::enter_trial() {
  trial_ = std::make_unique<Trial>(*this, sink_);
  sink_ = trial_.get();
}

void OfiLink::serve() {
  collect();
  if (trial_) move();
  else if (stalled_) pump();
}

bool OfiLink::served() const { return !trial_ || trial_->left || failure_ || closed_; }

Result<void> OfiLink::trial_until(const bool& flag, Deadline deadline) {
  while (!flag) {
    collect();
    move();
    if (failure_) return *failure_;
    if (closed_) return lost(provider_, "the peer ended it");
    if (deadline.passed())
      return Error{"store.timed_out", "no answer over '" + provider_ + "' in time",
                   "the provider may be blocked between these hosts; try another"};
    ::sched_yield();
  }
  return {};
}

Result<Thresholds> OfiLink::measure_rma(Deadline deadline) {
  static constexpr std::array<std::uint32_t, 4> sizes{16u << 10, 64u << 10, 256u << 10, 1u << 20};
  trial_->asks = true;
  const auto try_one = [&](bool fetch, std::uint32_t bytes, bool by_rma) -> Result<void> {
    trial_->done = false;
    if (fetch) {
      Outgoing out = trial_frame(0, 0, by_rma ? Trial::fetch_by_rma : Trial::fetch_by_message);
      wire::Header h = *wire::decode(out.head.data());
      h.timeout_ms = bytes;
      wire::encode(h, out.head.data());
      send(std::move(out));
      flush();
    } else {
      trial_send(bytes, by_rma);
    }
    return trial_until(trial_->done, deadline);
  };
  // For used and placed.
  std::array<std::array<Tried, sizes.size()>, 2> tried;
  const std::int64_t begin = now_ns();
  const auto enough = [&](int round) {
    return now_ns() - begin > (round < trial_rounds_min ? trial_longest_ns : trial_usual_ns);
  };
  // The first round faults memory in. Where processors are few, both ends get their own in it.
  for (int round = 0; round < trial_rounds && !enough(round); ++round)
    for (int fetch = 0; fetch < 2; ++fetch)
      for (std::size_t s = 0; s < sizes.size() && !enough(round); ++s) {
        std::array<std::int64_t, 2> took{};
        // The order changes, so that no result depends on it. Each way runs several times in a row, as in use; its
        // first run fills the caches.
        for (int k = 0; k < 2; ++k) {
          const bool by_rma = (k + round) % 2;
          if (auto ok = try_one(fetch, sizes[s], by_rma); !ok) return ok.error();
          const std::int64_t from = now_ns();
          for (int n = 0; n < trial_row; ++n)
            if (auto ok = try_one(fetch, sizes[s], by_rma); !ok) return ok.error();
          took[by_rma] = now_ns() - from;
        }
        Tried& t = tried[static_cast<std::size_t>(fetch)][s];
        t.bytes = sizes[s];
        if (round)
          t.ratios.push_back(static_cast<double>(took[1]) / static_cast<double>(std::max<std::int64_t>(1, took[0])));
      }
  return Thresholds{least_regret(tried[0], agreement_.frame_data), least_regret(tried[1], agreement_.frame_data)};
}

Result<void> OfiLink::end_trial(Deadline deadline) {
  send(trial_frame(0, 0, Trial::over));
  flush();
  // The server frees its announcements when it gets this.
  bool sent = false;
  while (!(sent = queue_.empty() && !stalled_)) {
    collect();
    move();
    if (failure_ || closed_ || deadline.passed()) break;
    ::sched_yield();
  }
  if (auto ok = trial_until(sent, deadline); !ok) return ok.error();
  return {};
}

void OfiLink::leave_trial() {
  if (!trial_) return;
  sink_ = trial_->users;
  trial_.reset();
  receiving_ = true;
  frames_sent_ = frames_by_rma_ = 0;
}

// ---- the state of the Link

/// The stream is invalid from here: nothing more of it is delivered.
void OfiLink::fail(Error error) {
  poisoned_ = true;
  if (!failure_) failure_ = std::move(error);
}

/// The connection is broken: messages received before that count.
void OfiLink::lose(const std::string& why) {
  if (!failure_) failure_ = lost(provider_, why);
}

void OfiLink::close_now(const Error* error) {
  if (closed_) return;
  closed_ = true;
  queue_.clear();
  queued_bytes_ = 0;
  sink_->closed(*this, error);
}

void OfiLink::look_after() {
  for (Event event; (event = port_->event(nullptr)) != Event::none;)
    if ((event == Event::shutdown || event == Event::failed) && !peer_gone_ns_) peer_gone_ns_ = now_ns();
  if (!peer_gone_ns_ && !control_.heard()) peer_gone_ns_ = now_ns();
}

/// Delivers received messages, and sends those that this made possible. Returns the number of frames delivered.
int OfiLink::move() {
  for (std::size_t k = unposted_.size(); k-- > 0;)
    if (post_receive(*unposted_[k])) {
      given_ += unposted_[k]->owed;
      unposted_.erase(unposted_.begin() + static_cast<std::ptrdiff_t>(k));
    }
  const int frames = deliver();
  if (closed_) return frames;
  pump();
  // Half of the buffers that the peer waits for are reported by a message of their own, if no other message reported
  // them. The rest is reported before a sleep.
  if (given_ - given_told_ >= std::max<std::size_t>(1, agreement_.own_buffers / 2) ||
      released_ - released_told_ >= announcements_max / 2)
    say(MessageKind::credit);
  return frames;
}

int OfiLink::progress() {
  if (closed_) return 0;
  const std::size_t got = collect();
  // After a sleep that no completion ended; if a bell may have ended it; and now and then.
  if ((armed_ && (got == 0 || port_->waiting() == Wait::none)) || control_spoke_ || ++turns_ % look_every == 0 ||
      failure_) {
    look_after();
    collect();
  }
  armed_ = control_spoke_ = false;
  const int frames = move();
  if (closed_) {
    shut();
    return frames;
  }
  if (port_->waiting() == Wait::none && in_flight_) collect();
  if (failure_ && (poisoned_ || arrived_.empty() || reading_)) {
    const Error error = *failure_;
    close_now(&error);
    shut();
    // A read of a peer's memory may never complete after the peer is gone (libfabric 2.1, over tcp).
  } else if (peer_gone_ns_ && (arrived_.empty() || reading_) && now_ns() - peer_gone_ns_ > gone_grace_ns) {
    const Error error = lost(provider_, "the peer ended without a goodbye");
    close_now(&error);
    shut();
  }
  return frames;
}

bool OfiLink::anything_to_deliver() const {
  if (poisoned_) return true;
  if (arrived_.empty()) return failure_ || peer_gone_ns_;
  return receiving_ && !(reading_ && reading_->outstanding && !failure_);
}

int OfiLink::wait_fd() const {
  if (!port_) return -1;
  return port_->waiting() == Wait::none ? control_.fd() : port_->fd();
}

short OfiLink::wait_events() const { return POLLIN; }

bool OfiLink::arm() {
  if (closed_) return true;
  armed_ = true;
  // A descriptor shows everything that comes from the peer, but not operations that completed while they were posted.
  if (((port_->waiting() == Wait::none || !looked_) && collect()) || anything_to_deliver()) return false;
  if (stalled_) pump();
  if (port_->waiting() != Wait::none) {
    if (released_told_ != released_) say(MessageKind::credit);
    return port_->may_sleep();
  }
  if (!asleep_told_) {
    asleep_told_ = say(MessageKind::asleep);
    if (collect() || anything_to_deliver()) return false;
  }
  if (asleep_told_ && !stalled_) {
    untold_ns_ = 0;
    return true;
  }
  // If the peer does not know that this side sleeps, only chance ends the sleep. A peer that reads nothing for so long
  // has stopped, or is hostile.
  const std::int64_t now = now_ns();
  if (!untold_ns_) untold_ns_ = now;
  return now - untold_ns_ > untold_most_ns;
}

void OfiLink::wait(Deadline deadline) {
  if (closed_ || (anything_to_deliver() && !peer_gone_ns_)) return;
  if (!peer_gone_ns_ && spin_.begin(deadline.at_ns)) {
    do {
      if (collect()) {
        if (!queue_.empty() || stalled_) pump();
        return;
      }
    } while (spin_.again());
    if (deadline.passed()) return;
  }
  const std::int64_t slept = now_ns();
  std::int64_t bell_poll = bell_poll_first_ns;
  while (!deadline.passed()) {
    if (!arm() && !peer_gone_ns_) break;
    pollfd waits[2] = {{control_.fd(), POLLIN, 0}, {port_->waiting() == Wait::none ? -1 : port_->fd(), POLLIN, 0}};
    std::int64_t most = port_->waiting() == Wait::none ? bell_poll : 1'000'000'000;
    if (peer_gone_ns_) {
      waits[0].fd = -1;  // its end stays readable for ever
      most = 5'000'000;
    }
    if (deadline.at_ns) most = std::min(most, deadline.at_ns - now_ns());
    const timespec time{std::max<std::int64_t>(most, 0) / 1'000'000'000,
                        std::max<std::int64_t>(most, 0) % 1'000'000'000};
    const int ready = ::ppoll(waits, 2, &time, nullptr);
    control_spoke_ |= waits[0].revents != 0;
    if (ready > 0 || peer_gone_ns_) break;
    if (ready < 0 && errno != EINTR) break;
    if (collect()) break;
    bell_poll = std::min(2 * bell_poll, bell_poll_most_ns);
  }
  spin_.slept(now_ns() - slept);
}

void OfiLink::say_goodbye() {
  const std::int64_t begin = now_ns();
  const bool recent = begin - last_sent_ns_ < recent_ns;
  std::int64_t moved = begin;
  bool said = false;
  // Accepted frames must arrive, if the peer reads them; and a socket that closes with unread data discards what it had
  // sent. An idle connection has neither.
  for (unsigned turn = 0;; ++turn) {
    if (collect()) moved = now_ns();
    if (failure_ || peer_gone_ns_) return;
    for (Buffer* buffer : arrived_) peer_said_bye_ |= static_cast<MessageKind>(buffer->header.kind) == MessageKind::bye;
    if (peer_said_bye_ && queue_.empty() && !in_flight_) break;
    pump();
    const bool drained = nothing_under_way();
    if (drained && !said) {
      said = said_bye_ = say(MessageKind::bye);
      continue;
    }
    if (said && drained && (bye_seen_ || !recent)) break;
    // Buffers that wait here for a delivery that never comes are credits that the peer may need to continue.
    for (Buffer* buffer : arrived_) give_back(*buffer);
    arrived_.clear();
    if (given_ - given_told_ >= std::max<std::size_t>(1, agreement_.own_buffers / 2)) say(MessageKind::credit);
    if (turn % 16 == 0) look_after();
    if (const std::int64_t now = now_ns(); now - moved > linger_ns || now - begin > linger_most_ns) break;
    if (turn < 64) {
      ::sched_yield();
    } else {
      const timespec pause{0, 50'000};
      ::nanosleep(&pause, nullptr);
    }
  }
}

LinkInfo OfiLink::info() const {
  std::string detail =
      std::to_string(agreement_.own_buffers) + " receives of " + std::to_string(agreement_.own_bytes >> 10) + " KiB";
  detail += ", inject " + std::to_string(demands_.inject) + " B, " + std::to_string(demands_.iovs) + " vectors";
  if (const std::string modes = demands_.text(); !modes.empty()) detail += ", supports " + modes;
  if (agreement_.transport == "ofi-rma") {
    detail +=
        agreement_.rma_from < 0 ? ", never by RMA" : ", by RMA from " + std::to_string(agreement_.rma_from) + " B";
    if (agreement_.rma_from >= 0 && frames_sent_)
      detail += " (" + std::to_string(frames_by_rma_) + " of " + std::to_string(frames_sent_) + " frames)";
  }
  if (dropped_) detail += ", " + std::to_string(dropped_) + " messages from other processes dropped";
  if (!options_.gather)
    detail += options_.await ? ", one send for each piece, each awaited" : ", one send for each piece";
  return {agreement_.transport, provider_, detail};
}

}  // namespace sonde::store::ofi
