// noise, noise_blocking: a ping-pong while other ranks load the network.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "mpi/polite.hpp"
#include "net/ping_pong.hpp"

namespace sonde::net {

namespace {

// Which ranks make noise beside src and dst: the same seeded choice on every rank, an even number, in pairs.
std::vector<int> noisy_ranks(const Context& ctx, int src, int dst) {
  std::vector<int> others;
  for (int r = 0; r < ctx.size; ++r)
    if (r != src && r != dst) others.push_back(r);
  Random random(ctx.seed ^ (static_cast<std::uint64_t>(src) << 32) ^ static_cast<std::uint64_t>(dst));
  for (std::size_t k = others.size(); k > 1; --k) std::swap(others[k - 1], others[random.below(k)]);
  const std::size_t wanted = std::min(others.size(), static_cast<std::size_t>(ctx.noise_ranks));
  others.resize(wanted - wanted % 2);
  return others;
}

class Noise final : public Mode {
 public:
  Noise(const ModeInfo& info, Calls calls) : Mode(info), calls_(calls) {}

  // The noise ends when the measured pair has entered the barrier that all others entered at the beginning.
  void pair(Context& ctx, int src, int dst, std::size_t bytes, std::uint32_t n, std::uint32_t extra,
            Samples& out) override {
    MPI_Request over;
    if (ctx.rank == src || ctx.rank == dst) {
      ping_pong(ctx, src, dst, bytes, n, extra, Calls::blocking, out);
      MPI_Ibarrier(ctx.comm, &over);
      polite::wait(over);
      return;
    }
    MPI_Ibarrier(ctx.comm, &over);
    const auto noisy = noisy_ranks(ctx, src, dst);
    const auto me = std::find(noisy.begin(), noisy.end(), ctx.rank);
    if (me != noisy.end()) {
      const auto at = static_cast<std::size_t>(me - noisy.begin());
      if (at % 2 == 0) lead(ctx, noisy[at + 1], over);
      else follow(ctx, noisy[at - 1]);
    }
    polite::wait(over);
  }

 private:
  // One rank of each noisy pair watches the barrier and informs the other; otherwise one would wait for the other for
  // ever.
  void lead(const Context& ctx, int peer, MPI_Request& over) const {
    const int count = static_cast<int>(ctx.noise_bytes);
    for (int done = 0;;) {
      MPI_Test(&over, &done, MPI_STATUS_IGNORE);
      if (done) break;
      exchange(ctx, peer, count, tag_noise, true);
    }
    polite::send(ctx.send, 0, MPI_BYTE, peer, tag_noise_end, ctx.comm);
  }

  void follow(const Context& ctx, int peer) const {
    const int count = static_cast<int>(ctx.noise_bytes);
    for (;;) {
      if (polite::probe(peer, ctx.comm) == tag_noise_end) {
        polite::recv(ctx.recv, 0, MPI_BYTE, peer, tag_noise_end, ctx.comm);
        return;
      }
      exchange(ctx, peer, count, tag_noise, false);
    }
  }

  void exchange(const Context& ctx, int peer, int count, int tag, bool leads) const {
    if (calls_ == Calls::nonblocking) {
      MPI_Request both[2];
      MPI_Irecv(ctx.recv, count, MPI_BYTE, peer, tag, ctx.comm, &both[0]);
      MPI_Isend(ctx.send, count, MPI_BYTE, peer, tag, ctx.comm, &both[1]);
      polite::wait_all(2, both);
    } else if (leads) {
      polite::send(ctx.send, count, MPI_BYTE, peer, tag, ctx.comm);
      polite::recv(ctx.recv, count, MPI_BYTE, peer, tag, ctx.comm);
    } else {
      polite::recv(ctx.recv, count, MPI_BYTE, peer, tag, ctx.comm);
      polite::send(ctx.send, count, MPI_BYTE, peer, tag, ctx.comm);
    }
  }

  Calls calls_;
};

}  // namespace

std::unique_ptr<Mode> make_noise(const ModeInfo& info) {
  return std::make_unique<Noise>(info, info.name == std::string_view("noise") ? Calls::nonblocking : Calls::blocking);
}

}  // namespace sonde::net
