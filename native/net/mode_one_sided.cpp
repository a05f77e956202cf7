// put and get: MPI one-sided, passive target.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/clock.hpp"
#include "mpi/polite.hpp"
#include "net/mode.hpp"

namespace sonde::net {

namespace {

class OneSided final : public Mode {
 public:
  OneSided(const ModeInfo& info, bool put) : Mode(info), put_(put) {}

  void open(Context& ctx) override {
    MPI_Win_create(ctx.recv, static_cast<MPI_Aint>(ctx.recv_stride), 1, MPI_INFO_NULL, ctx.comm, &window_);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window_);
  }
  void close(Context&) override {
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }

  // The data goes src -> dst: a put is called by src, a get by dst. The other one waits for a message, so that
  // an MPI whose one-sided operations need the target's progress finds it in the library.
  void pair(Context& ctx, int src, int dst, std::size_t bytes, std::uint32_t n, std::uint32_t extra,
            Samples& out) override {
    const int origin = put_ ? src : dst, target = put_ ? dst : src;
    if (ctx.rank == target) {
      polite::recv(nullptr, 0, MPI_BYTE, origin, tag_back, ctx.comm);
      return;
    }
    out.value.resize(n);
    out.offset.resize(n);
    const int count = static_cast<int>(bytes);
    std::int64_t begin = 0, last = 0;
    for (std::uint32_t k = 0; k < n + extra; ++k) {
      if (k == extra) begin = last = now_ns();
      if (put_) MPI_Put(ctx.send, count, MPI_BYTE, target, 0, count, MPI_BYTE, window_);
      else MPI_Get(ctx.send, count, MPI_BYTE, target, 0, count, MPI_BYTE, window_);
      MPI_Win_flush(target, window_);
      if (k < extra) continue;
      const std::int64_t now = now_ns();
      out.value[k - extra] = static_cast<double>(now - last) * 1e-9;
      out.offset[k - extra] = static_cast<float>(static_cast<double>(last - begin) * 1e-9);
      last = now;
    }
    out.t0 = static_cast<double>(begin) * 1e-9;
    polite::send(nullptr, 0, MPI_BYTE, target, tag_back, ctx.comm);
  }

 private:
  bool put_;
  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace

std::unique_ptr<Mode> make_one_sided(const ModeInfo& info) {
  return std::make_unique<OneSided>(info, info.name == std::string_view("put"));
}

}  // namespace sonde::net
