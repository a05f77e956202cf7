// all_to_all and bcast: every rank at once.

#include "core/clock.hpp"
#include "net/mode.hpp"

namespace sonde::net {

namespace {

const ModeInfo& info_of(std::string_view name) {
  for (const ModeInfo& info : mode_list())
    if (name == info.name) return info;
  return mode_list().front();
}

void prepare(std::vector<Samples>& out, std::size_t about, std::uint32_t n, double t0) {
  out[about].value.resize(n);
  out[about].offset.resize(n);
  out[about].t0 = t0;
}

class AllToAll final : public Mode {
 public:
  const ModeInfo& info() const override { return info_of("all_to_all"); }

  void all(Context& ctx, int, std::size_t bytes, std::uint32_t n, std::uint32_t extra, std::vector<Samples>& out) override {
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
      MPI_Barrier(ctx.comm);
      const std::int64_t start = now_ns();
      for (std::size_t i = 0; i < others; ++i)
        MPI_Isend(ctx.send, count, MPI_BYTE, peers[i], tag_data, ctx.comm, &sends[i]);
      for (std::size_t left = others; left > 0; --left) {
        int which = 0;
        MPI_Waitany(static_cast<int>(others), recvs.data(), &which, MPI_STATUS_IGNORE);
        const std::int64_t now = now_ns();
        if (k < extra) continue;
        auto& about = out[static_cast<std::size_t>(peers[static_cast<std::size_t>(which)])];
        about.value[k - extra] = static_cast<double>(now - start) * 1e-9;
        about.offset[k - extra] = static_cast<float>(static_cast<double>(start - begin) * 1e-9);
      }
      MPI_Waitall(static_cast<int>(others), sends.data(), MPI_STATUSES_IGNORE);
    }
  }
};

class Bcast final : public Mode {
 public:
  const ModeInfo& info() const override { return info_of("bcast"); }

  void all(Context& ctx, int root, std::size_t bytes, std::uint32_t n, std::uint32_t extra, std::vector<Samples>& out) override {
    const auto about = static_cast<std::size_t>(root);
    const std::int64_t begin = now_ns();
    prepare(out, about, ctx.rank == root ? 0 : n, static_cast<double>(begin) * 1e-9);
    for (std::uint32_t k = 0; k < n + extra; ++k) {
      MPI_Barrier(ctx.comm);
      const std::int64_t start = now_ns();
      MPI_Bcast(ctx.rank == root ? ctx.send : ctx.recv, static_cast<int>(bytes), MPI_BYTE, root, ctx.comm);
      const std::int64_t now = now_ns();
      if (ctx.rank == root || k < extra) continue;
      out[about].value[k - extra] = static_cast<double>(now - start) * 1e-9;
      out[about].offset[k - extra] = static_cast<float>(static_cast<double>(start - begin) * 1e-9);
    }
  }
};

}  // namespace

std::unique_ptr<Mode> make_all_to_all() { return std::make_unique<AllToAll>(); }
std::unique_ptr<Mode> make_bcast() { return std::make_unique<Bcast>(); }

}  // namespace sonde::net
