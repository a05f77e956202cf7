#include "io/load/access.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "io/load/files.hpp"
#include "io/load/gfapi.hpp"

namespace sonde::ioload {

namespace {

std::string hint_for(int number, const std::string& path) {
  const std::string folder = folder_of(path);
  switch (number) {
    case ENOSPC: return "free some space in " + folder + ", or write less: -b, -s, -n of mpirun";
    case EDQUOT: return "remove some of your files in " + folder + ", or write less: -b, -s, -n of mpirun";
    case ENOENT: return "check that " + folder + " and the file exist on every node, or name another file with -o";
    case ENOTDIR: return "name a file in a folder with -o";
    case EISDIR: return "name a file, not a folder, with -o";
    case EACCES:
    case EPERM:
    case EROFS: return "name a file with -o that you may use, or change its permissions";
    case ENOTCONN:
    case ETIMEDOUT: return "check that all servers of the file system are up";
    case EFBIG: return "raise the limit (ulimit -f), or write less: -b, -s";
    default: return "name another file with -o, or see the system's log";
  }
}

/// The errno of an error class of MPI-IO; 0 if it has none.
int errno_of(int error_class) {
  switch (error_class) {
    case MPI_ERR_NO_SPACE: return ENOSPC;
    case MPI_ERR_QUOTA: return EDQUOT;
    case MPI_ERR_NO_SUCH_FILE: return ENOENT;
    case MPI_ERR_FILE_EXISTS: return EEXIST;
    case MPI_ERR_ACCESS: return EACCES;
    case MPI_ERR_READ_ONLY: return EROFS;
    default: return 0;
  }
}

}  // namespace

std::string first_line(std::string text) {
  text = text.substr(0, text.find('\n'));
  return text.size() > 200 ? text.substr(0, 200) + "..." : text;
}

Error file_error(const std::string& verb, const std::string& path, const std::string& why, int number) {
  return {"ioload.cannot_" + verb, "cannot " + verb + " " + path + ": " + why, hint_for(number, path)};
}

Error file_error(const std::string& verb, const std::string& path, int number) {
  return file_error(verb, path, std::strerror(number), number);
}

bool disk_is_full(const std::string& path, std::uint64_t bytes) {
  struct statvfs space{};
  return files().space(folder_of(path), space) == 0 && space.f_bavail * space.f_frsize < bytes;
}

int likely_errno(const std::string& verb, const std::string& path, int number) {
  constexpr int of_files[] = {ENOSPC, EDQUOT, EFBIG,    ENOENT,       ENOTDIR, EISDIR, EACCES, EPERM,
                              EROFS,  EIO,    ENOTCONN, ENAMETOOLONG, ELOOP,   ESTALE, EMFILE, ENFILE};
  if (std::find(std::begin(of_files), std::end(of_files), number) != std::end(of_files)) return number;
  return verb != "read" && disk_is_full(path, 4096) ? ENOSPC : 0;
}

Result<void> mpi_judge(const std::string& verb, const std::string& path, int code, int number) {
  if (code == MPI_SUCCESS) return {};
  int error_class = MPI_ERR_OTHER;
  MPI_Error_class(code, &error_class);
  if (const int meant = errno_of(error_class)) number = meant;
  number = likely_errno(verb, path, number);
  if (number != 0) return file_error(verb, path, number);
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return file_error(verb, path, first_line(std::string(text, static_cast<std::size_t>(length))), 0);
}

Result<void> mpi_judge(const std::string& verb, const std::string& path, int code, int number, const MPI_Status& status,
                       std::uint64_t bytes) {
  if (code != MPI_SUCCESS) return mpi_judge(verb, path, code, number);
  MPI_Count moved = 0;
  MPI_Get_elements_x(&status, MPI_BYTE, &moved);
  if (moved >= 0 && static_cast<std::uint64_t>(moved) == bytes) return {};
  const std::string part = std::to_string(moved) + " of " + std::to_string(bytes) + " B were moved";
  number = verb == "read" ? 0 : likely_errno(verb, path, number);  // the end of a file sets no errno
  return file_error(verb, path, number ? std::strerror(number) + (" (" + part + ")") : part, number);
}

Result<void> mpi_open(MPI_File& file, MPI_Comm comm, const std::string& path, Purpose purpose,
                      const std::map<std::string, std::string>& hints) {
  MPI_Info info = make_info(hints);
  errno = 0;
  const int code = MPI_File_open(
      comm, path.c_str(), purpose == Purpose::write ? MPI_MODE_WRONLY | MPI_MODE_CREATE : MPI_MODE_RDONLY, info, &file);
  const int number = errno;
  if (info != MPI_INFO_NULL) MPI_Info_free(&info);
  if (code != MPI_SUCCESS) file = MPI_FILE_NULL;
  return mpi_judge("open", path, code, number);
}

Result<void> mpi_close(MPI_File& file, const std::string& path) {
  if (file == MPI_FILE_NULL) return {};
  errno = 0;
  const int code = MPI_File_close(&file), number = errno;
  file = MPI_FILE_NULL;
  return mpi_judge("close", path, code, number);
}

MPI_Info make_info(const std::map<std::string, std::string>& hints) {
  if (hints.empty()) return MPI_INFO_NULL;
  MPI_Info info;
  MPI_Info_create(&info);
  for (const auto& [name, value] : hints) MPI_Info_set(info, name.c_str(), value.c_str());
  return info;
}

std::map<std::string, std::string> mpi_hints(MPI_File file) {
  std::map<std::string, std::string> hints;
  MPI_Info info;
  int count = 0;
  if (MPI_File_get_info(file, &info) != MPI_SUCCESS || info == MPI_INFO_NULL) return hints;
  MPI_Info_get_nkeys(info, &count);
  for (int k = 0; k < count; ++k) {
    char name[MPI_MAX_INFO_KEY + 1] = {};
    MPI_Info_get_nthkey(info, k, name);
    int length = 0, found = 0;
    MPI_Info_get_valuelen(info, name, &length, &found);
    if (!found) continue;
    std::string value(static_cast<std::size_t>(length) + 1, '\0');
    MPI_Info_get(info, name, length, value.data(), &found);
    value.resize(static_cast<std::size_t>(length));
    hints[name] = value;
  }
  MPI_Info_free(&info);
  return hints;
}

Result<std::unique_ptr<Access>> make_access(const Options& options, const Layout& layout, MPI_Comm world) {
  const MPI_Comm comm = options.per_process ? MPI_COMM_SELF : world;
  if (options.api == Api::posix) return make_posix(layout);
  if (options.api == Api::gfapi) return make_gfapi(layout);
  if (options.api == Api::mpiio) return make_mpiio(options, layout, comm);
  if (auto access = make_hdf5(options, layout, comm)) return access;
  return Error{"ioload.no_hdf5",
               "-a HDF5: sonde-ioload was built without a parallel HDF5 for this MPI, " SONDE_MPI_FLAVOUR,
               "install libhdf5-" SONDE_MPI_FLAVOUR "-dev (Fedora: hdf5-" SONDE_MPI_FLAVOUR
               "-devel) and build Sonde again, or use -a MPIIO"};
}

}  // namespace sonde::ioload
