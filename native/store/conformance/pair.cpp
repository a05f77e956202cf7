#include "store/conformance/pair.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sonde::store {

namespace {
constexpr std::byte is_message{'m'}, is_ring{'r'};
constexpr std::size_t packet_bytes = 64u << 10;
}  // namespace

PairControl::~PairControl() {
  if (fd_ >= 0) ::close(fd_);
}

std::pair<int, int> PairControl::make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return {-1, -1};
  return {ends[0], ends[1]};
}

Result<void> PairControl::send(Bytes message) {
  std::vector<std::byte> packet{is_message};
  packet.insert(packet.end(), message.begin(), message.end());
  if (::send(fd_, packet.data(), packet.size(), MSG_NOSIGNAL) < 0)
    return Error{"store.disconnected", std::string("the peer is gone: ") + std::strerror(errno), "see the peer's log"};
  return {};
}

/// One packet, if there is one.
bool PairControl::take(std::vector<std::byte>& packet, bool& end) {
  packet.resize(packet_bytes);
  ssize_t n;
  do n = ::recv(fd_, packet.data(), packet.size(), MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  end = n == 0 || (n < 0 && errno != EAGAIN);
  if (n <= 0) return false;
  packet.resize(static_cast<std::size_t>(n));
  return true;
}

Result<std::vector<std::byte>> PairControl::receive(Deadline deadline) {
  while (true) {
    if (!messages_.empty()) {
      auto message = std::move(messages_.front());
      messages_.pop_front();
      return message;
    }
    const bool late = deadline.passed();
    const bool there = heard();
    if (!messages_.empty()) continue;  // its last messages are delivered first
    if (!there) return Error{"store.disconnected", "the peer is gone", "see the peer's log"};
    if (late) return Error{"store.timed_out", "the peer sent nothing in time", "check that it is alive"};
    pollfd wait{fd_, POLLIN, 0};
    ::poll(&wait, 1, deadline.left_ms());
  }
}

void PairControl::ring() {
  ++rings_;
  (void)!::send(fd_, &is_ring, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool PairControl::heard() {
  std::vector<std::byte> packet;
  while (!gone_ && take(packet, gone_))
    if (packet[0] == is_message) messages_.emplace_back(packet.begin() + 1, packet.end());
  return !gone_;
}

}  // namespace sonde::store
