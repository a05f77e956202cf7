// one_to_one, async_one_to_one, send_recv_and_recv_send.

#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "mpi/polite.hpp"
#include "net/ping_pong.hpp"

namespace sonde::net {

namespace {

int count_of(std::size_t bytes) { return static_cast<int>(bytes); }  // sizes are checked to stay below 2^31

void send_from(const Context& ctx, void* buffer, int peer, std::size_t bytes, int tag, Calls calls) {
  if (calls == Calls::blocking) {
    polite::send(buffer, count_of(bytes), MPI_BYTE, peer, tag, ctx.comm);
  } else {
    MPI_Request request;
    MPI_Isend(buffer, count_of(bytes), MPI_BYTE, peer, tag, ctx.comm, &request);
    polite::wait(request);
  }
}

void send_to(const Context& ctx, int peer, std::size_t bytes, int tag, Calls calls) {
  send_from(ctx, ctx.send, peer, bytes, tag, calls);
}

// Sends on what came last, as NetPIPE does. Bytes that nobody writes between two messages stay in both ranks' caches,
// and a message of 64 KiB within a host then takes a quarter of what one with fresh data takes.
void send_back(const Context& ctx, int peer, std::size_t bytes, int tag, Calls calls) {
  send_from(ctx, ctx.recv, peer, bytes, tag, calls);
}

void recv_from(const Context& ctx, int peer, std::size_t bytes, int tag, Calls calls) {
  if (calls == Calls::blocking) {
    polite::recv(ctx.recv, count_of(bytes), MPI_BYTE, peer, tag, ctx.comm);
  } else {
    MPI_Request request;
    MPI_Irecv(ctx.recv, count_of(bytes), MPI_BYTE, peer, tag, ctx.comm, &request);
    polite::wait(request);
  }
}

void prepare(Samples& out, std::uint32_t n) {
  out.value.resize(n);
  out.offset.resize(n);
}

// One stamp a round trip: the end of one is the beginning of the next, so a sample holds one clock reading.
void measure_rtt(const Context& ctx, int src, int dst, std::size_t bytes, std::uint32_t n, Calls calls, Samples& out) {
  if (ctx.rank == src) {
    prepare(out, n);
    const std::int64_t begin = now_ns();
    std::int64_t last = begin;
    for (std::uint32_t k = 0; k < n; ++k) {
      send_back(ctx, dst, bytes, tag_data, calls);
      recv_from(ctx, dst, bytes, tag_data, calls);
      const std::int64_t now = now_ns();
      out.value[k] = static_cast<double>(now - last) * 0.5e-9;
      out.offset[k] = static_cast<float>(static_cast<double>(last - begin) * 1e-9);
      last = now;
    }
    out.t0 = static_cast<double>(begin) * 1e-9;
  } else {
    for (std::uint32_t k = 0; k < n; ++k) {
      recv_from(ctx, src, bytes, tag_data, calls);
      send_back(ctx, src, bytes, tag_data, calls);
    }
  }
}

// One message, then an empty answer, so that no message waits behind another; the sender's stamps follow
// when the burst is over, and the receiver takes the difference on rank 0's time scale.
void measure_one_way(const Context& ctx, int src, int dst, std::size_t bytes, std::uint32_t n, Calls calls,
                     Samples& out) {
  std::vector<double> stamps(n);
  if (ctx.rank == src) {
    for (std::uint32_t k = 0; k < n; ++k) {
      std::memset(ctx.send, static_cast<int>(k & 0xff), bytes);  // fresh data, as in a round trip
      stamps[k] = ctx.now();
      send_to(ctx, dst, bytes, tag_data, calls);
      recv_from(ctx, dst, 0, tag_back, calls);
    }
    for (double& t : stamps) t = ctx.clock->to_reference(t);
    polite::send(stamps.data(), static_cast<int>(n), MPI_DOUBLE, dst, tag_control, ctx.comm);
  } else {
    prepare(out, n);
    std::vector<double> arrived(n);
    out.t0 = now_s();
    const double begin = ctx.now();
    for (std::uint32_t k = 0; k < n; ++k) {
      recv_from(ctx, src, bytes, tag_data, calls);
      arrived[k] = ctx.now();
      send_to(ctx, src, 0, tag_back, calls);
    }
    polite::recv(stamps.data(), static_cast<int>(n), MPI_DOUBLE, src, tag_control, ctx.comm);
    for (std::uint32_t k = 0; k < n; ++k) {
      out.value[k] = ctx.clock->to_reference(arrived[k]) - stamps[k];
      out.offset[k] = static_cast<float>(k == 0 ? 0 : arrived[k - 1] - begin);
    }
  }
}

// The value that clustbench's one_to_one records: the time that the receiver spent in its receive. It is neither a
// one-way delay nor half a round trip; it is here for comparison with clustbench's files.
void measure_recv(const Context& ctx, int src, int dst, std::size_t bytes, std::uint32_t n, Calls calls, Samples& out) {
  if (ctx.rank == src) {
    for (std::uint32_t k = 0; k < n; ++k) send_to(ctx, dst, bytes, tag_data, calls);
    recv_from(ctx, dst, 0, tag_back, calls);  // or the next burst would meet the tail of this one
  } else {
    prepare(out, n);
    const std::int64_t begin = now_ns();
    for (std::uint32_t k = 0; k < n; ++k) {
      const std::int64_t before = now_ns();
      recv_from(ctx, src, bytes, tag_data, calls);
      const std::int64_t after = now_ns();
      out.value[k] = static_cast<double>(after - before) * 1e-9;
      out.offset[k] = static_cast<float>(static_cast<double>(before - begin) * 1e-9);
    }
    out.t0 = static_cast<double>(begin) * 1e-9;
    send_to(ctx, src, 0, tag_back, calls);
  }
}

class PingPong final : public Mode {
 public:
  PingPong(const ModeInfo& info, Calls calls) : Mode(info), calls_(calls) {}
  void pair(Context& ctx, int src, int dst, std::size_t bytes, std::uint32_t n, std::uint32_t extra,
            Samples& out) override {
    ping_pong(ctx, src, dst, bytes, n, extra, calls_, out);
  }

 private:
  Calls calls_;
};

// Message by message: src sends and dst answers, then dst sends and src answers. The two directions share
// every moment of the burst, so their difference is not one of time. Each call times the direction asked for.
class Alternating final : public Mode {
 public:
  using Mode::Mode;
  void pair(Context& ctx, int src, int dst, std::size_t bytes, std::uint32_t n, std::uint32_t extra,
            Samples& out) override {
    const bool first = ctx.rank == src;
    const int peer = first ? dst : src;
    if (first) prepare(out, n);
    std::int64_t begin = 0;
    for (std::uint32_t k = 0; k < n + extra; ++k) {
      const std::int64_t before = now_ns();
      if (k == extra) begin = before;
      turn(ctx, peer, bytes, first);
      const std::int64_t after = now_ns();
      if (first && k >= extra) {
        out.value[k - extra] = static_cast<double>(after - before) * 0.5e-9;
        out.offset[k - extra] = static_cast<float>(static_cast<double>(before - begin) * 1e-9);
      }
      turn(ctx, peer, bytes, !first);
    }
    out.t0 = static_cast<double>(begin) * 1e-9;
  }

 private:
  static void turn(const Context& ctx, int peer, std::size_t bytes, bool leads) {
    if (leads) send_back(ctx, peer, bytes, tag_data, Calls::blocking);
    recv_from(ctx, peer, bytes, tag_data, Calls::blocking);
    if (!leads) send_back(ctx, peer, bytes, tag_data, Calls::blocking);
  }
};

}  // namespace

void ping_pong(const Context& ctx, int src, int dst, std::size_t bytes, std::uint32_t n, std::uint32_t extra,
               Calls calls, Samples& out) {
  // The first exchanges after a pause find cold caches and a sleeping peer.
  for (std::uint32_t k = 0; k < extra; ++k) {
    if (ctx.rank == src) {
      send_to(ctx, dst, bytes, tag_data, calls);
      recv_from(ctx, dst, bytes, tag_data, calls);
    } else {
      recv_from(ctx, src, bytes, tag_data, calls);
      send_to(ctx, src, bytes, tag_data, calls);
    }
  }
  switch (ctx.value) {
    case Value::one_way: measure_one_way(ctx, src, dst, bytes, n, calls, out); break;
    case Value::recv_duration: measure_recv(ctx, src, dst, bytes, n, calls, out); break;
    default: measure_rtt(ctx, src, dst, bytes, n, calls, out);
  }
}

std::unique_ptr<Mode> make_ping_pong(const ModeInfo& info) {
  return std::make_unique<PingPong>(info,
                                    info.name == std::string_view("one_to_one") ? Calls::blocking : Calls::nonblocking);
}
std::unique_ptr<Mode> make_alternating(const ModeInfo& info) { return std::make_unique<Alternating>(info); }

}  // namespace sonde::net
