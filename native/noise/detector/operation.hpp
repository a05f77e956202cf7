#pragma once
/// What the detector repeats: one collective, or a halo exchange. Owner-thread.
///
/// Rooted operations change their root every iteration, so that no rank can run ahead of the others for long.
/// Lengths are bytes that one rank sends to one peer (alltoall, bcast, halo), contributes (allgather), or reduces
/// (allreduce, reduce: whole doubles, one at least).

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace sonde::noise {

enum class Op { barrier, allreduce, alltoall, bcast, reduce, allgather, halo };

const std::vector<std::string>& op_names();

class Operation {
 public:
  /// Errors: noise.unknown_op, noise.out_of_memory.
  static Result<Operation> make(const std::string& name, std::size_t bytes, MPI_Comm comm);
  Operation(Operation&&) noexcept;
  Operation& operator=(Operation&&) = delete;
  ~Operation();

  Op op() const { return op_; }
  /// Once, blocking. k counts iterations.
  void once(std::uint64_t k);
  /// Begins it; complete when the requests of pending() are. For polling.
  void begin(std::uint64_t k);
  MPI_Request* pending() { return requests_; }
  int pending_count() const { return pending_; }

 private:
  Operation(Op op, std::size_t bytes, MPI_Comm comm);
  Op op_;
  int bytes_, rank_ = 0, size_ = 1, pending_ = 0;
  int doubles_;
  MPI_Comm comm_;
  std::byte *send_ = nullptr, *recv_ = nullptr;
  MPI_Request requests_[4];
};

}  // namespace sonde::noise
