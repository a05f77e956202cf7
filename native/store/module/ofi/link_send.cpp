// The engine of all ofi transports: messages are built from frames, and posted.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "core/clock.hpp"
#include "store/module/ofi/link_parts.hpp"

namespace sonde::store::ofi {

namespace {

constexpr std::size_t copy_bytes = 8u << 10;  ///< the rest of a frame up to this size is copied: cheaper than a vector
constexpr std::size_t enrol_bytes = 64u << 10;  ///< larger pieces are worth their own registration
constexpr std::size_t eager_bytes = 64u << 10;  ///< send() holds back at most this much before it sends
constexpr std::size_t silent_most = 7;          ///< every eighth message completes
constexpr std::uint32_t control_reserve = 2;

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

}  // namespace sonde::store::ofi
