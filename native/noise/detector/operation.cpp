#include "noise/detector/operation.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sonde::noise {

namespace {

constexpr int tag_halo = 90;

std::byte* touched(std::size_t bytes) {
  void* p = nullptr;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 64) + 4095) / 4096 * 4096;
  if (posix_memalign(&p, 4096, rounded) != 0) return nullptr;
  std::memset(p, 0, rounded);  // a reduction of zeros has no denormals
  return static_cast<std::byte*>(p);
}

}  // namespace

const std::vector<std::string>& op_names() {
  static const std::vector<std::string> names{"barrier", "allreduce", "alltoall", "bcast",
                                              "reduce",  "allgather", "halo"};
  return names;
}

Operation::Operation(Op op, std::size_t bytes, MPI_Comm comm)
    : op_(op),
      bytes_(static_cast<int>(bytes)),
      doubles_(std::max(1, static_cast<int>(bytes / sizeof(double)))),
      comm_(comm) {
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

Operation::Operation(Operation&& other) noexcept
    : op_(other.op_),
      bytes_(other.bytes_),
      rank_(other.rank_),
      size_(other.size_),
      doubles_(other.doubles_),
      comm_(other.comm_),
      send_(std::exchange(other.send_, nullptr)),
      recv_(std::exchange(other.recv_, nullptr)) {}

Operation::~Operation() {
  std::free(send_);
  std::free(recv_);
}

Result<Operation> Operation::make(const std::string& name, std::size_t bytes, MPI_Comm comm) {
  const auto& names = op_names();
  const auto at = std::find(names.begin(), names.end(), name);
  if (at == names.end())
    return Error{"noise.unknown_op", "there is no operation '" + name + "'", "see sonde noise run --help"};
  Operation made(static_cast<Op>(at - names.begin()), bytes, comm);
  const std::size_t room = std::max<std::size_t>(bytes, sizeof(double)) * static_cast<std::size_t>(made.size_);
  made.send_ = touched(room);
  made.recv_ = touched(std::max(room, 2 * bytes));
  if (!made.send_ || !made.recv_)
    return Error{"noise.out_of_memory", "no memory for two buffers of " + std::to_string(room) + " B",
                 "use shorter messages with --size"};
  return made;
}

void Operation::once(std::uint64_t k) {
  const int root = static_cast<int>(k % static_cast<std::uint64_t>(size_));
  switch (op_) {
    case Op::barrier: MPI_Barrier(comm_); break;
    case Op::allreduce: MPI_Allreduce(send_, recv_, doubles_, MPI_DOUBLE, MPI_SUM, comm_); break;
    case Op::alltoall: MPI_Alltoall(send_, bytes_, MPI_BYTE, recv_, bytes_, MPI_BYTE, comm_); break;
    case Op::bcast: MPI_Bcast(send_, bytes_, MPI_BYTE, root, comm_); break;
    case Op::reduce: MPI_Reduce(send_, recv_, doubles_, MPI_DOUBLE, MPI_SUM, root, comm_); break;
    case Op::allgather: MPI_Allgather(send_, bytes_, MPI_BYTE, recv_, bytes_, MPI_BYTE, comm_); break;
    case Op::halo: begin(k); MPI_Waitall(pending_, requests_, MPI_STATUSES_IGNORE);
  }
}

void Operation::begin(std::uint64_t k) {
  const int root = static_cast<int>(k % static_cast<std::uint64_t>(size_));
  pending_ = 1;
  switch (op_) {
    case Op::barrier: MPI_Ibarrier(comm_, requests_); break;
    case Op::allreduce: MPI_Iallreduce(send_, recv_, doubles_, MPI_DOUBLE, MPI_SUM, comm_, requests_); break;
    case Op::alltoall: MPI_Ialltoall(send_, bytes_, MPI_BYTE, recv_, bytes_, MPI_BYTE, comm_, requests_); break;
    case Op::bcast: MPI_Ibcast(send_, bytes_, MPI_BYTE, root, comm_, requests_); break;
    case Op::reduce: MPI_Ireduce(send_, recv_, doubles_, MPI_DOUBLE, MPI_SUM, root, comm_, requests_); break;
    case Op::allgather: MPI_Iallgather(send_, bytes_, MPI_BYTE, recv_, bytes_, MPI_BYTE, comm_, requests_); break;
    case Op::halo: {  // a ring: every rank has two neighbours, which may be the same rank
      const int left = (rank_ + size_ - 1) % size_, right = (rank_ + 1) % size_;
      MPI_Irecv(recv_, bytes_, MPI_BYTE, left, tag_halo, comm_, &requests_[0]);
      MPI_Irecv(recv_ + bytes_, bytes_, MPI_BYTE, right, tag_halo + 1, comm_, &requests_[1]);
      MPI_Isend(send_, bytes_, MPI_BYTE, right, tag_halo, comm_, &requests_[2]);
      MPI_Isend(send_, bytes_, MPI_BYTE, left, tag_halo + 1, comm_, &requests_[3]);
      pending_ = 4;
    }
  }
}

}  // namespace sonde::noise
