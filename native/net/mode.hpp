#pragma once
/// Modes: how the ranks exchange messages, and what one sample is. One file per mode (mode_*.cpp).
///
/// Adding one: a class in its own file, its line in mode_table.cpp and in make_mode() (modes.cpp), its row in
/// tests/mpi/test_mpi_modes.py and in docs/reference/net-modes.md. Owner-thread.

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/clocksync.hpp"
#include "core/error.hpp"
#include "net/mode_table.hpp"

namespace sonde::net {

/// Samples of one direction, taken by the rank that measures; untouched on the other.
struct Samples {
  double t0 = 0;              ///< s on this rank's clock
  std::vector<double> value;  ///< s
  std::vector<float> offset;  ///< s after t0
};

/// The input of a mode: this rank's view of the run.
struct Context {
  MPI_Comm comm;
  int rank, size;
  std::byte* send;  ///< page-aligned, as long as the longest message
  std::byte* recv;  ///< for `everyone`: room for one message from each rank, recv_stride apart
  std::size_t recv_stride;
  Value value = Value::rtt_half;
  /// This rank's clock: the host's, or one with an error put in by --inject-clock.
  double clock_ahead_s = 0, clock_fast = 0;
  const ClockModel* clock = nullptr;  ///< towards rank 0
  std::size_t noise_bytes = 0;
  int noise_ranks = 0;
  std::uint64_t seed = 0;

  double now() const;
};

class Mode {
 public:
  explicit Mode(const ModeInfo& info) : info_(info) {}
  virtual ~Mode() = default;
  const ModeInfo& info() const { return info_; }
  /// Before the first and after the last step; collective. Windows are made here.
  virtual void open(Context&) {}
  virtual void close(Context&) {}

  /// n samples of src -> dst; called by these two (pairs), by all (one_pair). `extra` untimed exchanges come first.
  virtual void pair(Context&, int src, int dst, std::size_t bytes, std::uint32_t n, std::uint32_t extra, Samples& out);
  /// n samples of the whole pattern; out[p] are the samples about rank p (rooted: p = root only).
  virtual void all(Context&, int root, std::size_t bytes, std::uint32_t n, std::uint32_t extra,
                   std::vector<Samples>& out);

 private:
  const ModeInfo& info_;
};

std::unique_ptr<Mode> make_mode(std::string_view name);

constexpr int tag_data = 71, tag_back = 72, tag_control = 73, tag_clock = 74, tag_noise = 75, tag_noise_end = 76;

}  // namespace sonde::net
