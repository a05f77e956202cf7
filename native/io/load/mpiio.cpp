// The file through MPI-IO: explicit offsets, or with -V a file view that leaves out the other tasks' blocks.

#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "io/load/access.hpp"

namespace sonde::ioload {

namespace {

class MpiIo final : public Access {
 public:
  MpiIo(const Options& o, const Layout& layout, MPI_Comm comm)
      : layout_(layout), comm_(comm), collective_(o.collective), view_(o.file_view), block_(o.block), hints_(o.hints) {
    int size = 1;
    MPI_Comm_size(comm, &size);
    together_ = size > 1;
  }

  Result<void> open(const std::string& path, Purpose purpose, int owner) override {
    path_ = path;
    owner_ = owner;
    if (const auto opened = mpi_open(file_, comm_, path_, purpose, hints_); !opened) return opened;
    return view_ ? mpi_judge("open", path_, set_view(), 0) : Result<void>{};
  }

  Result<void> write(const Piece& piece, std::span<const std::uint64_t> words) override {
    const int bytes = static_cast<int>(words.size_bytes());
    MPI_Status status;
    errno = 0;
    int code;
    if (view_) {
      MPI_File_seek(file_, in_view(piece), MPI_SEEK_SET);
      code = collective_ ? MPI_File_write_all(file_, words.data(), bytes, MPI_BYTE, &status)
                         : MPI_File_write(file_, words.data(), bytes, MPI_BYTE, &status);
    } else {
      const auto at = static_cast<MPI_Offset>(layout_.offset(piece, owner_));
      code = collective_ ? MPI_File_write_at_all(file_, at, words.data(), bytes, MPI_BYTE, &status)
                         : MPI_File_write_at(file_, at, words.data(), bytes, MPI_BYTE, &status);
    }
    return mpi_judge("write", path_, code, errno, status, words.size_bytes());
  }

  Result<void> read(const Piece& piece, std::span<std::uint64_t> words) override {
    const int bytes = static_cast<int>(words.size_bytes());
    MPI_Status status;
    errno = 0;
    int code;
    if (view_) {
      MPI_File_seek(file_, in_view(piece), MPI_SEEK_SET);
      code = collective_ ? MPI_File_read_all(file_, words.data(), bytes, MPI_BYTE, &status)
                         : MPI_File_read(file_, words.data(), bytes, MPI_BYTE, &status);
    } else {
      const auto at = static_cast<MPI_Offset>(layout_.offset(piece, owner_));
      code = collective_ ? MPI_File_read_at_all(file_, at, words.data(), bytes, MPI_BYTE, &status)
                         : MPI_File_read_at(file_, at, words.data(), bytes, MPI_BYTE, &status);
    }
    return mpi_judge("read", path_, code, errno, status, words.size_bytes());
  }

  Result<void> sync() override {
    errno = 0;
    const int code = MPI_File_sync(file_);
    return mpi_judge("sync", path_, code, errno);
  }

  Result<void> close() override {
    if (type_ != MPI_DATATYPE_NULL) MPI_Type_free(&type_);
    return mpi_close(file_, path_);
  }

  bool opens_together() const override { return together_; }

  std::map<std::string, std::string> hints() const override { return mpi_hints(file_); }

 private:
  /// The view contains the owner's block of each segment. The element is a byte, so that offsets in the view are bytes.
  int set_view() {
    MPI_Datatype block;
    MPI_Type_contiguous(static_cast<int>(block_ / 8), MPI_UINT64_T, &block);
    MPI_Type_create_resized(block, 0, static_cast<MPI_Aint>(layout_.segment_bytes()), &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&block);
    return MPI_File_set_view(file_, static_cast<MPI_Offset>(layout_.place(owner_)) * static_cast<MPI_Offset>(block_),
                             MPI_BYTE, type_, "native", MPI_INFO_NULL);
  }

  MPI_Offset in_view(const Piece& piece) const {
    return static_cast<MPI_Offset>(piece.segment) * static_cast<MPI_Offset>(block_) +
           static_cast<MPI_Offset>(piece.within);
  }

  Layout layout_;
  MPI_Comm comm_;
  bool collective_, view_, together_ = false;
  std::uint64_t block_;
  std::map<std::string, std::string> hints_;
  std::string path_;
  int owner_ = 0;
  MPI_File file_ = MPI_FILE_NULL;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

}  // namespace

std::unique_ptr<Access> make_mpiio(const Options& options, const Layout& layout, MPI_Comm comm) {
  return std::make_unique<MpiIo>(options, layout, comm);
}

}  // namespace sonde::ioload
