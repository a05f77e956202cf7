#include "core/block.hpp"

#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/owned_file.hpp"

namespace sonde {

namespace {

constexpr std::uint32_t block_magic = 0x4b4c4253;  // "SBLK"

// Eight tables, eight bytes a step: the checksum of a block must not be what an epoch waits for.
constexpr auto crc_tables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> t{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) ? 0xedb88320u ^ (c >> 1) : c >> 1;
    t[0][i] = c;
  }
  for (std::uint32_t i = 0; i < 256; ++i)
    for (std::size_t k = 1; k < 8; ++k) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xff];
  return t;
}();

template <typename T> void put(std::vector<std::byte>& out, const T& value) {
  const auto* p = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> data, std::uint32_t seed) {
  std::uint32_t c = ~seed;
  const auto* p = reinterpret_cast<const unsigned char*>(data.data());
  std::size_t n = data.size();
  const auto& t = crc_tables;
  for (; n >= 8; n -= 8, p += 8) {
    std::uint32_t lo, hi;
    std::memcpy(&lo, p, 4);
    std::memcpy(&hi, p + 4, 4);
    lo ^= c;
    c = t[7][lo & 0xff] ^ t[6][(lo >> 8) & 0xff] ^ t[5][(lo >> 16) & 0xff] ^ t[4][lo >> 24] ^ t[3][hi & 0xff] ^
        t[2][(hi >> 8) & 0xff] ^ t[1][(hi >> 16) & 0xff] ^ t[0][hi >> 24];
  }
  for (; n > 0; --n, ++p) c = t[0][(c ^ *p) & 0xff] ^ (c >> 8);
  return ~c;
}

Result<FileSink> FileSink::create(const std::string& path) {
  const auto fd = make_file(path);
  if (!fd) return fd.error();
  // Ranks outlive a parent that was killed, for a moment: by this lock `sonde data recover` sees them.
  (void)::flock(*fd, LOCK_SH | LOCK_NB);
  return FileSink(*fd, path);
}

FileSink::FileSink(FileSink&& other) noexcept : fd_(other.fd_), path_(std::move(other.path_)) { other.fd_ = -1; }

FileSink::~FileSink() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> FileSink::put(std::span<const std::byte> bytes) {
  const off_t begin = ::lseek(fd_, 0, SEEK_CUR);
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int err = errno;
      // Half a block would make every later block unreadable: take it back.
      if (begin >= 0 && ::ftruncate(fd_, begin) == 0) ::lseek(fd_, begin, SEEK_SET);
      return write_error(path_, err);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> FileSink::sync() {
  if (::fdatasync(fd_) != 0 && errno != EINVAL && errno != EROFS) return write_error(path_, errno);
  return {};
}

RecordWriter::RecordWriter(BlockSink& sink, std::size_t record_bytes, std::size_t capacity, std::uint64_t cap)
    : sink_(&sink), record_bytes_(record_bytes), capacity_(capacity), cap_bytes_(cap) {
  buffer_.resize(block_header_bytes + record_bytes * capacity);
}

Result<RecordWriter> RecordWriter::open(BlockSink& sink, const RecordSchema& schema, std::size_t buffer_records,
                                        std::uint64_t cap_bytes) {
  if (schema.record_bytes == 0 || buffer_records == 0)
    return Error{"core.internal", "a block file needs records of at least one byte and room for one record", ""};
  std::string header = schema.header;
  header.append((8 - header.size() % 8) % 8, ' ');
  std::vector<std::byte> head;
  const char magic[] = {'S', 'O', 'N', 'D', 'E', 'B', 'L', 'K'};
  put(head, magic);
  put(head, std::uint32_t{1});
  put(head, static_cast<std::uint32_t>(header.size()));
  const auto text = std::as_bytes(std::span(header));
  put(head, crc32(text, crc32(std::span(head).subspan(sizeof magic))));
  put(head, std::uint32_t{0});
  head.insert(head.end(), text.begin(), text.end());
  if (auto done = sink.put(head); !done) return done.error();
  RecordWriter writer(sink, schema.record_bytes, buffer_records, cap_bytes);
  writer.written_ = head.size();
  return writer;
}

Result<void> RecordWriter::flush() {
  if (used_ == 0) return {};
  const std::size_t bytes = block_header_bytes + used_ * record_bytes_;
  if (cap_bytes_ != 0 && written_ + bytes > cap_bytes_) {
    dropped_ += used_;
    used_ = 0;
    return Error{
        "core.cap_reached",
        "the block file reached its cap of " + std::to_string(cap_bytes_) + " bytes; later records are dropped",
        "raise --cap, or ask for fewer sizes or samples"};
  }
  const auto records = static_cast<std::uint32_t>(used_);
  std::memcpy(buffer_.data(), &block_magic, 4);
  std::memcpy(buffer_.data() + 8, &sequence_, 4);
  std::memcpy(buffer_.data() + 12, &records, 4);
  std::memcpy(buffer_.data() + 16, &dropped_, 8);
  const std::span<const std::byte> block(buffer_.data(), bytes);
  const std::uint32_t crc = crc32(block.subspan(8));
  std::memcpy(buffer_.data() + 4, &crc, 4);
  if (auto done = sink_->put(block); !done) {
    dropped_ += used_;
    used_ = 0;
    return done;
  }
  written_ += bytes;
  ++sequence_;
  used_ = 0;
  return {};
}

}  // namespace sonde
