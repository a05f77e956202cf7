#pragma once
/// Access to a file through POSIX, MPI-IO, HDF5 or libgfapi. One object is one open file on one rank. Owner-thread.

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

  /// Opens the file, or creates it with Purpose::write. `owner`: the task whose part of it will be moved.
  virtual Result<void> open(const std::string& path, Purpose purpose, int owner) = 0;
  virtual Result<void> write(const Piece& piece, std::span<const std::uint64_t> words) = 0;
  virtual Result<void> read(const Piece& piece, std::span<std::uint64_t> words) = 0;
  virtual Result<void> sync() = 0;
  virtual Result<void> close() = 0;

  /// Opening, syncing and closing wait for the other ranks, and so does every transfer with -c.
  virtual bool opens_together() const = 0;
  /// The hints of the open file; empty if hints have no meaning.
  virtual std::map<std::string, std::string> hints() const { return {}; }
};

/// Error: ioload.no_hdf5.
Result<std::unique_ptr<Access>> make_access(const Options& options, const Layout& layout, MPI_Comm world);

/// The error of a file operation; the caller adds the rank. `verb`: such as "write". `why`: the library's reason.
/// `number`: errno, or 0. The code is ioload.cannot_<verb>.
Error file_error(const std::string& verb, const std::string& path, const std::string& why, int number);

/// The same from errno.
Error file_error(const std::string& verb, const std::string& path, int number);

/// The first line of `text`, at most 200 bytes.
std::string first_line(std::string text);

/// pwrite and pread of all bytes: after a partial transfer they continue with the rest, as IOR does. Errors name the
/// place.
Result<void> write_all(int fd, const std::string& path, const void* data, std::size_t bytes, std::uint64_t at);
Result<void> read_all(int fd, const std::string& path, void* data, std::size_t bytes, std::uint64_t at);

/// MPI-IO with errors as text. `file` is MPI_FILE_NULL if it is not open.
Result<void> mpi_open(MPI_File& file, MPI_Comm comm, const std::string& path, Purpose purpose,
                      const std::map<std::string, std::string>& hints);
Result<void> mpi_close(MPI_File& file, const std::string& path);
std::map<std::string, std::string> mpi_hints(MPI_File file);
MPI_Info make_info(const std::map<std::string, std::string>& hints);  ///< MPI_INFO_NULL for none; the caller frees it

/// The result of an MPI-IO call. `number`: errno after the call, which was 0 before it. Both implementations of MPI-IO
/// leave the system's error there, and often do not report it otherwise.
Result<void> mpi_judge(const std::string& verb, const std::string& path, int code, int number);
/// The same for a transfer. Fewer bytes than `bytes` without an error count as an error, because a full disk may appear
/// this way.
Result<void> mpi_judge(const std::string& verb, const std::string& path, int code, int number, const MPI_Status& status,
                       std::uint64_t bytes);

/// `number` if a file operation can set it, else 0, because other work of a library may have left anything in errno.
/// ENOSPC if a failed `verb` writes, the number is useless, and the disk is full.
int likely_errno(const std::string& verb, const std::string& path, int number);

/// Whether the file system that `path` is on has less than `bytes` left.
bool disk_is_full(const std::string& path, std::uint64_t bytes);

std::unique_ptr<Access> make_posix(const Layout& layout);
std::unique_ptr<Access> make_mpiio(const Options& options, const Layout& layout, MPI_Comm comm);
/// Null if this program was built without a parallel HDF5 for its MPI.
std::unique_ptr<Access> make_hdf5(const Options& options, const Layout& layout, MPI_Comm comm);
/// "1.10.8", or empty.
std::string hdf5_version();

}  // namespace sonde::ioload
