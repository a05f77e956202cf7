// libFuzzer: data from a peer of a transport over libfabric: headers of messages, announcements, and the texts of the
// handshake. The first byte selects the kind. Tags and checksums are made correct, so that the code after these checks
// is reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/fuzz/input.hpp"
#include "store/module/ofi/handshake.hpp"
#include "store/module/ofi/message.hpp"
#include "store/module/ofi/region.hpp"

namespace {

using namespace sonde::store;
using sonde::fuzz::hold;
using sonde::fuzz::Input;

void header(Input& input) {
  const bool mended = input.next<std::uint8_t>() & 1;
  ofi::LinkCounts counts;
  counts.sent = input.next<std::uint32_t>();
  counts.announced = input.next<std::uint32_t>();
  counts.taken = input.next<std::uint64_t>();
  counts.buffers = input.next<std::uint8_t>();
  const Bytes whole = input.take(1u << 20);
  ofi::MessageHeader header;
  const bool there = ofi::read_header(whole, header);
  hold(there == (whole.size() >= sizeof header),
       "a header is read from a message without one, or not read from a message with one");
  if (!there) return;
  const Bytes content = whole.subspan(sizeof header);
  ofi::SipKey key{};
  key[7] = std::byte{9};
  const std::uint64_t number = counts.taken + (header.sequence - static_cast<std::uint32_t>(counts.taken));
  const std::uint64_t tag = ofi::tag_of(key, header, number, content);
  if (mended) header.tag = tag;
  hold(ofi::tag_fits(key, header, counts, content) == (header.tag == tag),
       "a correct tag is refused, or a wrong one accepted");
  if (const auto ok = ofi::check_header(header, content.size(), counts, "fuzz"); !ok)
    return hold(ok.error(), "store.bad_frame");
  hold(header.bytes == content.size(), "a message whose length is not its header's");
  hold(header.sequence - static_cast<std::uint32_t>(counts.taken) < counts.buffers,
       "a message beyond the posted receives");
  hold(counts.sent - header.given < 1u << 31 && counts.announced - header.released < 1u << 31,
       "more buffers are returned than were sent");
}

void announcement(Input& input) {
  const bool mended = input.next<std::uint8_t>() & 1;
  const Bytes given = input.take(1u << 20);
  std::vector<std::byte> content(given.begin(), given.end());
  if (std::uint32_t head = 0; mended && content.size() >= 8) {
    std::memcpy(&head, content.data(), sizeof head);
    if (head >= wire::header_bytes && head <= content.size() - 8) {
      std::byte* frame = content.data() + content.size() - head;
      std::memcpy(frame, &wire::magic, sizeof wire::magic);
      frame[4] = static_cast<std::byte>(wire::version);
      const std::uint32_t sum = wire::crc32c({frame, 60});
      std::memcpy(frame + 60, &sum, sizeof sum);
    }
  }
  const auto read = ofi::read_announcement(content);
  if (!read) return hold(read.error(), "store.bad_frame");
  const ofi::Announcement& a = *read;
  std::uint64_t bytes = 0;
  for (const ofi::Range& range : a.ranges) {
    hold(range.bytes <= wire::data_bytes_max, "a range is longer than all data of a frame");
    bytes += range.bytes;
  }
  hold(bytes == a.header.data_bytes && a.ranges.size() <= ofi::ranges_max && !a.ranges.empty(),
       "ranges that do not add up to their frame's data");
  hold(a.table.size() == a.header.table_bytes && a.table.data() + a.table.size() == content.data() + content.size(),
       "a table that does not end its message");
  std::byte again[wire::header_bytes];
  wire::encode(a.header, again);
  hold(std::equal(again, again + sizeof again, a.table.data() - sizeof again),
       "a frame's header changes when it is encoded and decoded");
}

void handshake(Input& input) {
  const wire::Text text = wire::decode_text(input.take(1u << 16));
  (void)ofi::unlike(text, "fuzz");
  if (const auto there = ofi::receives_in(text); !there) {
    hold(there.error(), "store.bad_frame");
  } else {
    hold((*there).count >= 4 && (*there).count <= 4096, "more receives than are allowed, or fewer");
    hold((*there).bytes >= 4096 && (*there).bytes <= 64u << 20, "receives that are too small or too large");
  }
  for (const auto& [name, value] : text) {
    const auto bytes = ofi::from_hex(value);
    std::string small = value;
    for (char& c : small) c = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
    hold(bytes.empty() || ofi::to_hex(bytes) == small, "hexadecimal digits change when they are decoded and encoded");
    const std::string region = ofi::region_of(bytes);
    hold(region.size() <= bytes.size() && region.find('\0') == region.npos, "an invalid name of a region");
    hold(!ofi::is_own_region(region) || region.find('/') == region.npos, "a region outside its folder");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  Input input(bytes, n);
  switch (input.next<std::uint8_t>() % 3) {
    case 0: header(input); break;
    case 1: announcement(input); break;
    default: handshake(input);
  }
  return 0;
}
