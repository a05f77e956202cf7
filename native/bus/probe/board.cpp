#include "bus/probe/board.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sonde::bus::probe {

namespace {
constexpr std::uint64_t id(std::uint32_t burst, std::uint32_t index) { return std::uint64_t{burst} << 32 | index; }
}  // namespace

Result<std::unique_ptr<SharedBoard>> SharedBoard::map(int fd) {
  void* const at = fd < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    const Error e{"bus.failed", std::string("a page shared by subscribers and a writer: ") + std::strerror(errno),
                  "they must be on one host"};
    if (fd >= 0) ::close(fd);
    return e;
  }
  return std::unique_ptr<SharedBoard>(new SharedBoard(fd, static_cast<Board*>(at)));
}

Result<std::unique_ptr<SharedBoard>> SharedBoard::make() {
  const int fd = ::memfd_create("sonde-busprobe", MFD_CLOEXEC);
  if (fd >= 0 && ::ftruncate(fd, sizeof(Board)) != 0)
    return Error{"bus.failed", std::string("ftruncate(): ") + std::strerror(errno), ""};
  return map(fd);
}

Result<std::unique_ptr<SharedBoard>> SharedBoard::open(const std::string& path) {
  return map(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

SharedBoard::~SharedBoard() {
  ::munmap(board_, sizeof(Board));
  ::close(fd_);
}

std::string SharedBoard::path() const { return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd_); }

void SharedBoard::begin(std::uint32_t burst, std::uint32_t index, std::uint32_t subscribers) {
  board_->current = ~std::uint64_t{0};
  for (std::uint32_t k = 0; k < subscribers; ++k) board_->arrived_ns[k] = 0;
  board_->here = 0;
  board_->wanted = subscribers;
  board_->current = id(burst, index);
}

void SharedBoard::tell(std::uint32_t subscriber, std::uint32_t burst, std::uint32_t index, std::int64_t at_ns) {
  if (subscriber >= Board::most || board_->current.load() != id(burst, index)) return;
  std::int64_t not_yet = 0;
  if (!board_->arrived_ns[subscriber].compare_exchange_strong(not_yet, at_ns)) return;  // a second copy
  if (board_->here.fetch_add(1) + 1 == board_->wanted.load())
    ::syscall(SYS_futex, &board_->here, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

bool SharedBoard::wait(Deadline deadline) {
  for (;;) {
    const std::uint32_t here = board_->here.load();
    if (here >= board_->wanted.load()) return true;
    const int left_ms = deadline.left_ms();
    if (left_ms == 0) return false;
    const timespec most{left_ms / 1000, left_ms % 1000 * 1'000'000L};
    // Subscribers before the last one change the number without waking the writer. So the wait only restarts at the
    // deadline.
    ::syscall(SYS_futex, &board_->here, FUTEX_WAIT, here, left_ms < 0 ? nullptr : &most, nullptr, 0);
  }
}

}  // namespace sonde::bus::probe
