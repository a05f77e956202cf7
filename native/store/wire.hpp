#pragma once
/// The wire format: frames of a fixed 64-byte header, a table of operations and their data. All numbers little-endian.
/// docs/reference/store-wire.md describes it byte by byte, with examples that the tests read.
///
/// A message (one batch for one role of one server, or its answer) is a sequence of frames with the same id, every
/// one but the last with `more`. The header's checksum guards the lengths, so a frame whose body is damaged is answered
/// with Status::corrupt and the stream goes on; a damaged header ends the connection. Any-thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "store/types.hpp"

namespace sonde::store::wire {

inline constexpr std::uint32_t magic = 0x31534e53;  ///< "SNS1"
inline constexpr std::uint8_t version = 1;
inline constexpr std::size_t header_bytes = 64;
inline constexpr std::size_t record_bytes = 32;

/// Hard limits of any frame. A peer may set lower ones for data in its hello, never higher.
inline constexpr std::size_t frame_ops_max = 8192;
inline constexpr std::size_t table_bytes_max = 1u << 20;
inline constexpr std::size_t data_bytes_max = 1u << 20;
inline constexpr std::size_t frame_data_default = 256u << 10;

enum class Kind : std::uint8_t {
  hello = 1,      ///< client: what it can and wants (text); the first frame of a connection
  welcome = 2,    ///< server: what it grants (text)
  challenge = 3,  ///< server: requests a proof of identity (text)
  proof = 4,      ///< client (text)
  request = 5,
  reply = 6,
  ping = 7,
  pong = 8,
  transport = 9,  ///< either: what a transport says to its other half (opaque)
  goodbye = 10,   ///< either: no more will come; text says why
  fault = 11,     ///< either: the peer's frame was wrong; text says how; the connection ends
  status = 12,    ///< client asks (empty), server answers (JSON)
};

inline constexpr std::uint16_t more = 1;      ///< another frame of this message follows
inline constexpr std::uint16_t no_reply = 2;  ///< Safety::none: do not answer
inline constexpr std::uint16_t data_sum = 4;  ///< body_crc covers the data, not only the table

struct Header {
  Kind kind = Kind::request;
  std::uint16_t flags = 0;
  std::uint64_t id = 0;   ///< chosen by the client, not 0; replies carry that of their request
  std::uint32_t ops = 0;  ///< records in this frame's table
  std::uint32_t table_bytes = 0;
  std::uint32_t data_bytes = 0;
  Role role = Role::data;
  Safety safety = Safety::network;
  std::uint32_t part = 0;        ///< 0, 1, 2 … within the message
  std::uint32_t batch_ops = 0;   ///< operations of the whole message
  std::uint32_t timeout_ms = 0;  ///< request: not to be executed after that long; 0: no limit
  std::uint32_t wait_us = 0;     ///< reply: from the last frame's arrival to the backend, and
  std::uint32_t backend_us =
      0;  ///<   within it. With both a client can separate the time of the wire from that of the service
  std::uint32_t lost = 0;  ///< reply: operations under Safety::none that failed on this connection since the last reply
  std::uint32_t body_crc = 0;
};
static_assert(record_bytes % 8 == 0);

/// One operation of a request, 32 bytes, then space and key unless they are those of the record before.
struct Record {
  Code code{};
  std::uint8_t flags = 0;  ///< flag::*
  bool same_space = false, same_key = false;
  std::uint32_t index = 0;  ///< of the operation in its batch; one that is too big for a frame comes in pieces
  std::uint64_t offset = 0, length = 0;
  std::uint32_t data_bytes = 0;  ///< of this frame's data
  std::string_view space, key;
};

/// One answer, 32 bytes, for `run` operations in a row that all went alike. An object read or write in pieces has an
/// answer a piece: values and data add up, the worst status counts. What is read otherwise may come in pieces too: the
/// data adds up, the value is the same in each.
struct Answer {
  Status status = Status::ok;
  std::uint32_t index = 0;
  std::uint32_t run = 1;
  std::uint64_t value = 0;
  std::int64_t time_ns = 0;
  std::uint32_t data_bytes = 0;
};

/// CRC32C (Castagnoli, RFC 3720), chainable.
std::uint32_t crc32c(Bytes bytes, std::uint32_t seed = 0);

/// Writes the header, its own checksum included.
void encode(const Header& header, std::byte* out);
/// Error store.bad_frame: magic, version, checksum, unknown kind, role or safety, reserved bits, a length over its
/// limit.
Result<Header> decode(const std::byte* in);
/// For a valid header.
std::uint64_t id_of(const std::byte* in);

/// A frame's table as it is built; knows the record before, so that equal names are sent once.
class TableWriter {
 public:
  void clear();
  void add(const Record& record);
  /// Joined to the one before where only the index differs, and neither has data.
  void add(const Answer& answer);
  std::size_t bytes() const { return table_.size(); }
  std::uint32_t ops() const { return ops_; }
  Bytes table() const { return table_; }

 private:
  std::vector<std::byte> table_;
  std::uint32_t ops_ = 0;
  std::string space_, key_;
  bool first_ = true;
  Answer last_;
};

/// Reads a request's table. Strings point into `table`. Errors store.bad_frame: a record cut short, a name over its
/// limit, `same` in the first record, data that does not add up to data_bytes, bytes left over, an index out of batch.
Result<void> read_table(const Header& header, Bytes table, std::vector<Record>& records);
Result<void> read_answers(const Header& header, Bytes table, std::vector<Answer>& answers);

/// Text of hello, welcome, challenge, proof: "name=value" lines. Unknown names are ignored, so that versions can
/// differ.
using Text = std::vector<std::pair<std::string, std::string>>;
std::string encode_text(const Text& text);
Text decode_text(Bytes bytes);
std::string_view text_value(const Text& text, std::string_view name);

}  // namespace sonde::store::wire
