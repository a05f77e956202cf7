#pragma once
/// Pages of the kernel's trace ring buffer, as read from per_cpu/cpuN/trace_pipe_raw. Their form is described in
/// events/header_page and events/header_event of tracefs, and in the kernel's ring_buffer.h; it has not changed since
/// Linux 2.6.30. Pure.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace sonde::io {

/// The number of events that a page lost before its first event; may be unknown.
struct Lost {
  std::uint64_t events = 0;
  bool unknown = false;
};

/// Calls event(timestamp, data) for each event of a page; data begins with common_type. Returns the number of lost
/// events before the page. A damaged page ends at the first impossible value.
template <typename Do> Lost each_event(std::span<const std::byte> page, Do&& event) {
  constexpr std::uint64_t missed = 1u << 31, missed_stored = 1u << 30;
  Lost lost;
  if (page.size() < 16) return lost;
  const auto read32 = [&](std::size_t at) {
    std::uint32_t value;
    std::memcpy(&value, page.data() + at, sizeof value);
    return value;
  };
  std::uint64_t time, commit;
  std::memcpy(&time, page.data(), 8);
  std::memcpy(&commit, page.data() + 8, 8);
  const std::size_t bytes = commit & 0xfffff;  // the length; higher bits are flags
  std::size_t end = 16 + bytes;
  if (end > page.size()) end = page.size();
  if (commit & missed) {
    if ((commit & missed_stored) && end + 8 <= page.size()) {
      std::memcpy(&lost.events, page.data() + end, 8);
    } else {
      lost.unknown = true;
    }
  }
  constexpr std::uint32_t padding = 29, extend = 30, stamp = 31;
  for (std::size_t at = 16; at + 4 <= end;) {
    const std::uint32_t head = read32(at), kind = head & 31, delta = head >> 5;
    const std::uint32_t more = at + 8 <= end ? read32(at + 4) : 0;
    if (kind == padding) {
      if (delta == 0) break;  // nothing behind it
      time += delta;
      at += 4 + more;
      if (more == 0) break;
    } else if (kind == extend) {
      time += delta + (std::uint64_t{more} << 27);
      at += 8;
    } else if (kind == stamp) {
      // The five highest bits do not fit into an event: they are taken from the previous time.
      time = (time & (std::uint64_t{31} << 59)) | (delta + (std::uint64_t{more} << 27));
      at += 8;
    } else {
      time += delta;
      const std::size_t data = kind == 0 ? at + 8 : at + 4, length = kind == 0 ? more - 4 : kind * 4;
      if ((kind == 0 && more < 4) || length > end - data || data > end) break;
      event(time, page.subspan(data, length));
      at = data + length;
    }
  }
  return lost;
}

}  // namespace sonde::io
