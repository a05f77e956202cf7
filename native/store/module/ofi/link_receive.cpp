// The engine of all ofi transports: messages arrive, and frames are put together and delivered.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "store/module/ofi/link_parts.hpp"

namespace sonde::store::ofi {

namespace {

constexpr std::size_t part_room = 512u << 10;  // reserved at once for a frame that comes in parts

}  // namespace

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

}  // namespace sonde::store::ofi
