#pragma once
/// The operation that the detector repeats: one collective, or a halo exchange. Owner-thread.
///
/// Rooted operations change their root in every iteration, so that no rank can run ahead of the others for long.
/// Sizes are the bytes that one rank sends to one peer (alltoall, bcast, halo), contributes (allgather), or reduces
/// (allreduce, reduce: whole doubles, at least one).

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
  /// Runs it once, blocking. k counts iterations.
  void once(std::uint64_t k);
  /// Begins it, for polling; it is complete when the requests of pending() are complete.
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
