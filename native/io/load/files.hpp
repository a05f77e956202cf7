#pragma once
/// What is done to files besides moving their data, where they are: in the file systems of this host, or in a volume
/// that is reached by a library. Owner-thread.

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
  /// Whether a signal's handler may remove files, for which it has the system's calls alone.
  virtual bool has_paths() const = 0;
};

/// Those of the run: this host's, until `use_files` names others, which outlive the run.
Files& files();
void use_files(Files& others);

}  // namespace sonde::ioload
