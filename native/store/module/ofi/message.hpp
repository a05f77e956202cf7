#pragma once
/// The header of a Link's messages, the tag that proves that a message is the peer's, and the checks that a message
/// must pass before any other use. Pure; any-thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "store/module/ofi/siphash.hpp"
#include "store/types.hpp"
#include "store/wire.hpp"

namespace sonde::store::ofi {

/// 32 bytes, little-endian like the whole wire format.
struct MessageHeader {
  std::uint16_t magic = 0x4f53;
  std::uint8_t kind = 0;
  std::uint8_t sealed = 0;     ///< how many of the bytes that follow the tag covers: in units of seal_unit
  std::uint32_t bytes = 0;     ///< number of bytes that follow
  std::uint32_t sequence = 0;  ///< counts messages: some providers complete receives out of order
  std::uint32_t given = 0;     ///< receives returned so far
  std::uint32_t released = 0;  ///< announced frames read so far
  std::uint32_t seen = 0;      ///< asleep: messages taken from the queue so far
  std::uint64_t tag = 0;       ///< tag_of() everything before it, and the sealed part
};
static_assert(sizeof(MessageHeader) == 32);

constexpr std::size_t seal_unit = 8;  ///< the alignment of heads and records of frames
/// Sealed part of a stream's message: a frame's head, its first records, a small value. Each byte costs each end 0.6
/// ns.
constexpr std::size_t sealed_most = 256;

/// The tag of a message. number: the message's number on its Link; the header has the lower half of it. content: the
/// bytes after the header; only the sealed part counts.
inline std::uint64_t tag_of(const SipKey& key, const MessageHeader& header, std::uint64_t number, Bytes content) {
  SipHash hash(key);
  hash.add(std::as_bytes(std::span(&header, 1)).first(offsetof(MessageHeader, tag)));
  hash.add(std::as_bytes(std::span(&number, 1)));
  hash.add(content.first(std::min(content.size(), header.sealed * seal_unit)));
  return hash.end();
}

enum class MessageKind : std::uint8_t { hello = 1, stream, announce, credit, asleep, bye, bye_seen };

inline Error bad_message(std::string what) {
  return {"store.bad_frame", std::move(what), "both sides must run the same version of Sonde"};
}

/// Whether a counter that wraps around has reached a number.
inline bool reached(std::uint32_t count, std::uint32_t number) {
  return static_cast<std::int32_t>(count - number) >= 0;
}

/// The counts of a Link: a header from the peer is checked against them.
struct LinkCounts {
  std::uint32_t sent = 0;       ///< messages, hello included
  std::uint32_t announced = 0;  ///< frames whose data the peer reads
  std::uint64_t taken = 0;      ///< messages of the peer handled in their turn: the number of the next one
  std::size_t buffers = 0;      ///< receives that this side always has posted
};

/// False: `message` is too short for a header.
inline bool read_header(Bytes message, MessageHeader& header) {
  if (message.size() < sizeof header) return false;
  std::memcpy(&header, message.data(), sizeof header);
  return true;
}

/// Whether the tag is the peer's. content: the bytes after the header. The address from the provider is no proof: any
/// process that connects chooses its own.
inline bool tag_fits(const SipKey& peer_key, const MessageHeader& header, const LinkCounts& counts, Bytes content) {
  // A message that was handled before has a lower number, so its tag no longer matches. One that waits for its turn
  // still matches.
  const std::uint64_t number = counts.taken + (header.sequence - static_cast<std::uint32_t>(counts.taken));
  return header.tag == tag_of(peer_key, header, number, content);
}

/// Whether a message with the peer's tag is valid. Error: store.bad_frame.
inline Result<void> check_header(const MessageHeader& header, std::size_t content_bytes, const LinkCounts& counts,
                                 const std::string& provider) {
  if (header.magic != MessageHeader{}.magic || header.kind < static_cast<std::uint8_t>(MessageKind::hello) ||
      header.kind > static_cast<std::uint8_t>(MessageKind::bye_seen))
    return bad_message("a message over '" + provider + "' is not Sonde's");
  if (header.bytes != content_bytes)
    return bad_message("a message over '" + provider + "' has " + std::to_string(content_bytes) +
                       " bytes, but its header gives " + std::to_string(header.bytes));
  if (!reached(counts.sent, header.given) || !reached(counts.announced, header.released))
    return bad_message("the peer returns more buffers than it got over '" + provider + "'");
  if (header.sequence - static_cast<std::uint32_t>(counts.taken) >= counts.buffers)
    return bad_message("a message over '" + provider + "' is out of sequence");
  return {};
}

/// One range of remote memory in an announcement.
struct Range {
  std::uint64_t address, key, bytes;
};

constexpr std::size_t announcements_max = 8;  ///< announcements whose data is not read yet
constexpr std::size_t ranges_max = 64;        ///< ranges in one announcement

/// A frame with data that stays at the peer for this side to read.
struct Announcement {
  wire::Header header;
  Bytes table;                ///< within the message
  std::vector<Range> ranges;  ///< together header.data_bytes, at least one
};

/// The content of an announcement: two counts, the ranges, the frame's header and table. Error: store.bad_frame.
inline Result<Announcement> read_announcement(Bytes content) {
  std::uint32_t counts[2];
  if (content.size() < sizeof counts) return bad_message("an announcement is truncated");
  std::memcpy(counts, content.data(), sizeof counts);
  const std::size_t head = counts[0], n = counts[1];
  if (n == 0 || n > ranges_max || head < wire::header_bytes ||
      content.size() != sizeof counts + n * sizeof(Range) + head)
    return bad_message("an announcement's lengths do not add up");
  Announcement out;
  out.ranges.resize(n);
  std::memcpy(out.ranges.data(), content.data() + sizeof counts, n * sizeof(Range));
  const Bytes frame = content.last(head);
  const auto header = wire::decode(frame.data());
  if (!header) return header.error();
  out.header = *header;
  std::uint64_t announced = 0;
  for (const Range& range : out.ranges) announced += std::min<std::uint64_t>(range.bytes, wire::data_bytes_max + 1);
  if (head != wire::header_bytes + out.header.table_bytes || announced != out.header.data_bytes || announced == 0)
    return bad_message("an announcement's lengths do not add up");
  out.table = frame.subspan(wire::header_bytes);
  return out;
}

}  // namespace sonde::store::ofi
