#pragma once
/// Operations on files other than data transfer: in the file systems of this host, or in a volume that a library
/// accesses. Owner-thread.

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <string>

namespace sonde::ioload {

class Files {
 public:
  virtual ~Files() = default;
  /// Each returns 0, or errno.
  virtual int look(const std::string& path, struct stat& found) = 0;  ///< lstat
  virtual int remove(const std::string& path) = 0;
  virtual int space(const std::string& folder, struct statvfs& found) = 0;
  /// Whether a signal handler can remove the files, which it can only with system calls.
  virtual bool has_paths() const = 0;
};

/// The files of the run: those of this host, unless `use_files` sets others, which must outlive the run.
Files& files();
void use_files(Files& others);

}  // namespace sonde::ioload
