#pragma once
/// A Control over one end of a socket pair: for tests, probes and the conformance suite, where both ends are on one
/// host. Owner-thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "store/transport.hpp"

namespace sonde::store {

class PairControl final : public Control {
 public:
  /// Takes the descriptor: one end of make_pair(), in any process.
  explicit PairControl(int fd) : fd_(fd) {}
  ~PairControl() override;
  PairControl(const PairControl&) = delete;
  PairControl& operator=(const PairControl&) = delete;

  /// Two descriptors, or -1 and -1. They close on exec.
  static std::pair<int, int> make_pair();

  Result<void> send(Bytes message) override;
  Result<std::vector<std::byte>> receive(Deadline deadline) override;
  int fd() const override { return fd_; }
  void ring() override;
  bool heard() override;
  std::string peer_host() const override { return "127.0.0.1"; }
  bool same_host() const override { return true; }
  std::uint64_t rings() const { return rings_; }

 private:
  bool take(std::vector<std::byte>& packet, bool& end);

  int fd_;
  std::deque<std::vector<std::byte>> messages_;
  std::uint64_t rings_ = 0;
  bool gone_ = false;
};

}  // namespace sonde::store
