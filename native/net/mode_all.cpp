// all_to_all and bcast: every rank at once.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/clock.hpp"
#include "mpi/polite.hpp"
#include "net/mode.hpp"

namespace sonde::net {

namespace {

void prepare(std::vector<Samples>& out, std::size_t about, std::uint32_t n, double t0) {
  out[about].value.resize(n);
  out[about].offset.resize(n);
  out[about].t0 = t0;
}

class AllToAll final : public Mode {
 public:
  using Mode::Mode;

  void all(Context& ctx, int, std::size_t bytes, std::uint32_t n, std::uint32_t extra,
           std::vector<Samples>& out) override {
    const int count = static_cast<int>(bytes);
    const auto others = static_cast<std::size_t>(ctx.size - 1);
    std::vector<MPI_Request> recvs(others), sends(others);
    std::vector<int> peers;
    for (int k = 1; k < ctx.size; ++k) peers.push_back((ctx.rank + k) % ctx.size);  // each starts with another peer
    const std::int64_t begin = now_ns();
    for (const int p : peers) prepare(out, static_cast<std::size_t>(p), n, static_cast<double>(begin) * 1e-9);

    for (std::uint32_t k = 0; k < n + extra; ++k) {
      // Receives stand before anyone sends: an unexpected message would measure its copy.
      for (std::size_t i = 0; i < others; ++i)
        MPI_Irecv(ctx.recv + static_cast<std::size_t>(peers[i]) * ctx.recv_stride, count, MPI_BYTE, peers[i], tag_data,
                  ctx.comm, &recvs[i]);
      polite::barrier(ctx.comm);
      const std::int64_t start = now_ns();
      for (std::size_t i = 0; i < others; ++i)
        MPI_Isend(ctx.send, count, MPI_BYTE, peers[i], tag_data, ctx.comm, &sends[i]);
      for (std::size_t left = others; left > 0; --left) {
        const int which = polite::wait_any(static_cast<int>(others), recvs.data());
        const std::int64_t now = now_ns();
        if (k < extra) continue;
        auto& about = out[static_cast<std::size_t>(peers[static_cast<std::size_t>(which)])];
        about.value[k - extra] = static_cast<double>(now - start) * 1e-9;
        about.offset[k - extra] = static_cast<float>(static_cast<double>(start - begin) * 1e-9);
      }
      polite::wait_all(static_cast<int>(others), sends.data());
    }
  }
};

class Bcast final : public Mode {
 public:
  using Mode::Mode;

  void all(Context& ctx, int root, std::size_t bytes, std::uint32_t n, std::uint32_t extra,
           std::vector<Samples>& out) override {
    const auto about = static_cast<std::size_t>(root);
    const std::int64_t begin = now_ns();
    prepare(out, about, ctx.rank == root ? 0 : n, static_cast<double>(begin) * 1e-9);
    for (std::uint32_t k = 0; k < n + extra; ++k) {
      polite::barrier(ctx.comm);
      const std::int64_t start = now_ns();
      polite::bcast(ctx.rank == root ? ctx.send : ctx.recv, static_cast<int>(bytes), MPI_BYTE, root, ctx.comm);
      const std::int64_t now = now_ns();
      if (ctx.rank == root || k < extra) continue;
      out[about].value[k - extra] = static_cast<double>(now - start) * 1e-9;
      out[about].offset[k - extra] = static_cast<float>(static_cast<double>(start - begin) * 1e-9);
    }
  }
};

}  // namespace

std::unique_ptr<Mode> make_all_to_all(const ModeInfo& info) { return std::make_unique<AllToAll>(info); }
std::unique_ptr<Mode> make_bcast(const ModeInfo& info) { return std::make_unique<Bcast>(info); }

}  // namespace sonde::net
