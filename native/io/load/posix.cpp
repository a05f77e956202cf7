// The file through system calls. Each rank opens it by itself; no call waits for another rank.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "io/load/access.hpp"
#include "io/load/move_all.hpp"

namespace sonde::ioload {

Result<void> write_all(int fd, const std::string& path, const void* data, std::size_t bytes, std::uint64_t at) {
  return move_all("write", path, bytes, at, [&](std::size_t done, off_t where) {
    return ::pwrite(fd, static_cast<const char*>(data) + done, bytes - done, where);
  });
}

Result<void> read_all(int fd, const std::string& path, void* data, std::size_t bytes, std::uint64_t at) {
  return move_all("read", path, bytes, at, [&](std::size_t done, off_t where) {
    return ::pread(fd, static_cast<char*>(data) + done, bytes - done, where);
  });
}

namespace {

class Posix final : public Access {
 public:
  explicit Posix(const Layout& layout) : layout_(layout) {}
  ~Posix() override {
    if (fd_ >= 0) ::close(fd_);
  }

  Result<void> open(const std::string& path, Purpose purpose, int owner) override {
    path_ = path;
    owner_ = owner;
    fd_ = ::open(path.c_str(), (purpose == Purpose::write ? O_WRONLY | O_CREAT : O_RDONLY) | O_CLOEXEC, 0666);
    if (fd_ < 0) return file_error("open", path_, errno);
    return {};
  }

  Result<void> write(const Piece& piece, std::span<const std::uint64_t> words) override {
    return write_all(fd_, path_, words.data(), words.size_bytes(), layout_.offset(piece, owner_));
  }

  Result<void> read(const Piece& piece, std::span<std::uint64_t> words) override {
    return read_all(fd_, path_, words.data(), words.size_bytes(), layout_.offset(piece, owner_));
  }

  Result<void> sync() override {
    if (::fsync(fd_) != 0) return file_error("sync", path_, errno);
    return {};
  }

  Result<void> close() override {
    const int fd = fd_;
    fd_ = -1;
    if (fd >= 0 && ::close(fd) != 0) return file_error("close", path_, errno);
    return {};
  }

  bool opens_together() const override { return false; }

 private:
  Layout layout_;
  std::string path_;
  int owner_ = 0, fd_ = -1;
};

}  // namespace

std::unique_ptr<Access> make_posix(const Layout& layout) { return std::make_unique<Posix>(layout); }

}  // namespace sonde::ioload
