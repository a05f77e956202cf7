#pragma once
/// The header of a Link's messages, and the tag by which a Link knows those of its peer. Pure; any-thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "store/module/ofi/siphash.hpp"
#include "store/types.hpp"

namespace sonde::store::ofi {

/// 32 bytes, little-endian as all of the wire.
struct MessageHeader {
  std::uint16_t magic = 0x4f53;
  std::uint8_t kind = 0;
  std::uint8_t sealed = 0;     ///< of the bytes that follow, how many the tag covers: in units of seal_unit
  std::uint32_t bytes = 0;     ///< that follow
  std::uint32_t sequence = 0;  ///< counts messages: some providers complete receives out of order
  std::uint32_t given = 0;     ///< receives given back so far
  std::uint32_t released = 0;  ///< announced frames read so far
  std::uint32_t seen = 0;      ///< asleep: messages taken from the queue so far
  std::uint64_t tag = 0;       ///< tag_of() all that is before it, and what is sealed
};
static_assert(sizeof(MessageHeader) == 32);

constexpr std::size_t seal_unit = 8;  ///< as heads and records of frames are
/// Of a stream's message: a frame's head, its first records, a small value. Each byte costs each end 0.6 ns.
constexpr std::size_t sealed_most = 256;

/// The tag of a message. number: of the message on its Link, of which the header has the lower half; content: what
/// follows the header, of which the sealed part counts.
inline std::uint64_t tag_of(const SipKey& key, const MessageHeader& header, std::uint64_t number, Bytes content) {
  SipHash hash(key);
  hash.add(std::as_bytes(std::span(&header, 1)).first(offsetof(MessageHeader, tag)));
  hash.add(std::as_bytes(std::span(&number, 1)));
  hash.add(content.first(std::min(content.size(), header.sealed * seal_unit)));
  return hash.end();
}

enum class MessageKind : std::uint8_t { hello = 1, stream, announce, credit, asleep, bye, bye_seen };

}  // namespace sonde::store::ofi
