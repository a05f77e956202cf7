#pragma once
/// The ways to a file: POSIX, MPI-IO, HDF5, libgfapi. One object is one open file on one rank. Owner-thread.

#include <mpi.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "core/error.hpp"
#include "io/load/layout.hpp"
#include "io/load/options.hpp"

namespace sonde::ioload {

enum class Purpose { write, read };

class Access {
 public:
  virtual ~Access() = default;

  /// Opens, or with Purpose::write makes, the file. `owner`: whose part of it will be moved.
  virtual Result<void> open(const std::string& path, Purpose purpose, int owner) = 0;
  virtual Result<void> write(const Piece& piece, std::span<const std::uint64_t> words) = 0;
  virtual Result<void> read(const Piece& piece, std::span<std::uint64_t> words) = 0;
  virtual Result<void> sync() = 0;
  virtual Result<void> close() = 0;

  /// Opening, syncing and closing wait for the other ranks, and so does every transfer with -c.
  virtual bool opens_together() const = 0;
  /// Hints that the open file has; none where hints have no meaning.
  virtual std::map<std::string, std::string> hints() const { return {}; }
};

/// Error: ioload.no_hdf5.
Result<std::unique_ptr<Access>> make_access(const Options& options, const Layout& layout, MPI_Comm world);

/// "rank 2"'s part of the words is added by who tells them. `verb`: "write". `why`: in whose words it failed. `number`:
/// errno, or 0. The code is ioload.cannot_<verb>.
Error file_error(const std::string& verb, const std::string& path, const std::string& why, int number);

/// The same from errno.
Error file_error(const std::string& verb, const std::string& path, int number);

/// `text` without line breaks and what follows the first, and at most 200 bytes of it.
std::string first_line(std::string text);

/// pwrite and pread of all of it: what the system did not move at once it gets again, as IOR does. Errors name the
/// place.
Result<void> write_all(int fd, const std::string& path, const void* data, std::size_t bytes, std::uint64_t at);
Result<void> read_all(int fd, const std::string& path, void* data, std::size_t bytes, std::uint64_t at);

/// MPI-IO with errors in words. `file` is MPI_FILE_NULL where it is not open.
Result<void> mpi_open(MPI_File& file, MPI_Comm comm, const std::string& path, Purpose purpose,
                      const std::map<std::string, std::string>& hints);
Result<void> mpi_close(MPI_File& file, const std::string& path);
std::map<std::string, std::string> mpi_hints(MPI_File file);
MPI_Info make_info(const std::map<std::string, std::string>& hints);  ///< MPI_INFO_NULL for none; the caller frees it

/// The result of an MPI-IO call. `number`: errno after the call, which was 0 before it: both libraries that implement
/// MPI-IO leave there what the system said, and often keep it to themselves otherwise.
Result<void> mpi_judge(const std::string& verb, const std::string& path, int code, int number);
/// The same of a transfer. One that moved fewer than `bytes` without calling it an error is one: a full disk may show
/// so.
Result<void> mpi_judge(const std::string& verb, const std::string& path, int code, int number, const MPI_Status& status,
                       std::uint64_t bytes);

/// `number` where a file operation sets it, else 0: what a library did besides may have left anything in errno. Where a
/// failed `verb` writes and the number says nothing, but the disk is full, ENOSPC.
int likely_errno(const std::string& verb, const std::string& path, int number);

/// Whether the file system that `path` is on has less than `bytes` left.
bool disk_is_full(const std::string& path, std::uint64_t bytes);

std::unique_ptr<Access> make_posix(const Layout& layout);
std::unique_ptr<Access> make_mpiio(const Options& options, const Layout& layout, MPI_Comm comm);
/// Null where this program was built without a parallel HDF5 for its MPI.
std::unique_ptr<Access> make_hdf5(const Options& options, const Layout& layout, MPI_Comm comm);
/// "1.10.8", or empty.
std::string hdf5_version();

}  // namespace sonde::ioload
