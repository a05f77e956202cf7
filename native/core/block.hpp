#pragma once
/// Block files: what every Sonde probe writes, and the only thing it writes.
///
/// One writer, one file. Fixed-size records are collected in memory that was allocated at open, and go to the
/// file as checksummed blocks when the caller says so (between epochs, never in the hot path). A file that a
/// kill -9 left is valid up to its last whole block. When the buffer is full or the cap is reached, records
/// are dropped and counted; the count is in every block that follows.
///
/// Layout, little-endian:
///   file    "SONDEBLK" u32 version=1 u32 header_bytes u32 crc32 u32 zero, header (JSON, UTF-8) padded with blanks
///           to 8 bytes, blocks. crc32 covers version, header_bytes and header: a rank or a host read wrongly would
///           put every record of the file into the wrong place
///   block   u32 magic 'SBLK' u32 crc32 u32 sequence u32 records u64 dropped_so_far payload (records x record_bytes)
/// A block's crc32 (IEEE, as zlib's) covers everything after itself: sequence, records, dropped, payload.
/// The header describes the record's layout as numpy does: "fields": [["name", "<f8", [shape]], ...].
/// Read by `sonde.core.blocks`.
///
/// Owner-thread. Freestanding but for the C library: no exceptions, no iostreams.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace sonde {

/// CRC-32 (IEEE 802.3, reflected), chainable: crc32(b, crc32(a)) == crc32(ab). Equal to zlib's.
std::uint32_t crc32(std::span<const std::byte> data, std::uint32_t seed = 0);

struct RecordSchema {
  std::string header;        ///< JSON object; must hold "fields"
  std::size_t record_bytes;  ///< > 0; the sum of the fields' sizes, no hidden padding
};

/// Where finished blocks go. The default is a file; a rank without a shared folder sends them to rank 0.
struct BlockSink {
  virtual ~BlockSink() = default;
  /// Takes a whole header or block. Called by the writer between epochs only.
  virtual Result<void> put(std::span<const std::byte> bytes) = 0;
  /// Asks for what was put to reach the disk.
  virtual Result<void> sync() = 0;
};

class FileSink final : public BlockSink {
 public:
  /// Creates `path` as a new file and holds a shared flock on it while it is open; an older file of the caller is
  /// removed. Errors: those of make_file() in core/owned_file.hpp.
  static Result<FileSink> create(const std::string& path);
  FileSink(FileSink&& other) noexcept;
  FileSink& operator=(FileSink&&) = delete;
  ~FileSink() override;
  Result<void> put(std::span<const std::byte> bytes) override;
  Result<void> sync() override;

 private:
  FileSink(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_;
  std::string path_;
};

class RecordWriter {
 public:
  /// Writes the header to `sink`, which must outlive the writer. buffer_records: number of records that fit between two
  /// flushes. cap_bytes: largest size of the whole file; 0 means no cap.
  static Result<RecordWriter> open(BlockSink& sink, const RecordSchema& schema, std::size_t buffer_records,
                                   std::uint64_t cap_bytes);

  /// Room for the next record, or nullptr when full (the record is then counted as dropped).
  /// Hot path: no lock, no system call, no allocation.
  void* reserve() {
    if (used_ == capacity_) {
      ++dropped_;
      return nullptr;
    }
    return buffer_.data() + block_header_bytes + used_ * record_bytes_;
  }
  /// Keeps the record that reserve() gave.
  void commit() { ++used_; }

  /// Writes the buffer as one block. Not in the hot path. After an error the buffered records count as dropped, and the
  /// writer stays usable.
  Result<void> flush();

  std::uint64_t dropped() const { return dropped_; }
  std::uint64_t bytes_written() const { return written_; }
  std::size_t buffered() const { return used_; }
  /// Records that still fit before the next flush.
  std::size_t room() const { return capacity_ - used_; }

  static constexpr std::size_t block_header_bytes = 24;

 private:
  RecordWriter(BlockSink& sink, std::size_t record_bytes, std::size_t capacity, std::uint64_t cap);
  BlockSink* sink_;
  std::size_t record_bytes_, capacity_, used_ = 0;
  std::uint64_t cap_bytes_, written_ = 0, dropped_ = 0;
  std::uint32_t sequence_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace sonde
