// noise, noise_blocking: a ping-pong while other ranks load the network.

#include <algorithm>
#include <numeric>

#include "core/random.hpp"
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
  Noise(const ModeInfo& info, Calls calls) : info_(info), calls_(calls) {}
  const ModeInfo& info() const override { return info_; }

  // The noise ends when the measured pair has entered the barrier that all others entered at the beginning.
  void pair(Context& ctx, int src, int dst, std::size_t bytes, std::uint32_t n, std::uint32_t extra, Samples& out) override {
    MPI_Request over;
    if (ctx.rank == src || ctx.rank == dst) {
      ping_pong(ctx, src, dst, bytes, n, extra, Calls::blocking, out);
      MPI_Ibarrier(ctx.comm, &over);
      MPI_Wait(&over, MPI_STATUS_IGNORE);
      return;
    }
    MPI_Ibarrier(ctx.comm, &over);
    const auto noisy = noisy_ranks(ctx, src, dst);
    const auto me = std::find(noisy.begin(), noisy.end(), ctx.rank);
    if (me != noisy.end()) {
      const auto at = static_cast<std::size_t>(me - noisy.begin());
      if (at % 2 == 0)
        lead(ctx, noisy[at + 1], over);
      else
        follow(ctx, noisy[at - 1]);
    }
    MPI_Wait(&over, MPI_STATUS_IGNORE);
  }

 private:
  // One of each noisy pair watches the barrier and tells the other, or one would wait for the other for ever.
  void lead(const Context& ctx, int peer, MPI_Request& over) const {
    const int count = static_cast<int>(ctx.noise_bytes);
    for (int done = 0;;) {
      MPI_Test(&over, &done, MPI_STATUS_IGNORE);
      if (done) break;
      exchange(ctx, peer, count, tag_noise, true);
    }
    MPI_Send(ctx.send, 0, MPI_BYTE, peer, tag_noise_end, ctx.comm);
  }

  void follow(const Context& ctx, int peer) const {
    const int count = static_cast<int>(ctx.noise_bytes);
    for (;;) {
      MPI_Status status;
      MPI_Probe(peer, MPI_ANY_TAG, ctx.comm, &status);
      if (status.MPI_TAG == tag_noise_end) {
        MPI_Recv(ctx.recv, 0, MPI_BYTE, peer, tag_noise_end, ctx.comm, MPI_STATUS_IGNORE);
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
      MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    } else if (leads) {
      MPI_Send(ctx.send, count, MPI_BYTE, peer, tag, ctx.comm);
      MPI_Recv(ctx.recv, count, MPI_BYTE, peer, tag, ctx.comm, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(ctx.recv, count, MPI_BYTE, peer, tag, ctx.comm, MPI_STATUS_IGNORE);
      MPI_Send(ctx.send, count, MPI_BYTE, peer, tag, ctx.comm);
    }
  }

  const ModeInfo& info_;
  Calls calls_;
};

}  // namespace

std::unique_ptr<Mode> make_noise(std::string_view name) {
  for (const ModeInfo& info : mode_list())
    if (name == info.name)
      return std::make_unique<Noise>(info, name == "noise" ? Calls::nonblocking : Calls::blocking);
  return nullptr;
}

}  // namespace sonde::net
