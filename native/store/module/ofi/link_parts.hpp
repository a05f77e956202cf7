#pragma once
/// Shared by the sources of OfiLink: link.cpp (life, waiting), link_send.cpp, link_receive.cpp, link_trial.cpp.

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "store/module/ofi/link.hpp"

namespace sonde::store::ofi {

inline constexpr std::size_t header_bytes = sizeof(MessageHeader);
inline constexpr std::size_t slot_bytes = 32u << 10;  ///< a message's own memory, header included
inline constexpr std::size_t messages_max = 32, messages_for_control = 4;

inline Error lost(const std::string& provider, const std::string& why) {
  return {"store.disconnected", "the connection over '" + provider + "' was lost: " + why,
          "see the server's log; the next batch connects again"};
}

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

}  // namespace sonde::store::ofi
