#pragma once
/// A folder that belongs to one backend of one process: its marker file names the backend, and a lock shows that it is
/// in use.
///
/// The marker `sonde-store` has one line, "sonde-store <kind> <version>". A missing folder is created (0700). A folder
/// with other files and without a marker is refused, so that a mistyped path cannot damage files. Owner-thread.

#include <string>
#include <string_view>
#include <utility>

#include "core/error.hpp"
#include "store/types.hpp"

namespace sonde::store {

class Folder {
 public:
  /// Errors store.cannot_open: not a folder, no permission, not empty and not ours, another kind or version, a marker
  /// that is damaged, in use by another backend (of this process or another).
  static Result<Folder> open(const std::string& path, std::string_view kind, unsigned version);

  Folder(Folder&& other) noexcept;
  Folder& operator=(Folder&& other) noexcept;
  ~Folder();

  int fd() const { return folder_; }
  const std::string& path() const { return path_; }

 private:
  Folder(std::string path, int folder, int marker) : path_(std::move(path)), folder_(folder), marker_(marker) {}
  std::string path_;
  int folder_ = -1, marker_ = -1;
};

/// store.cannot_open: "cannot open <path>: <why>".
Error cannot_open(const std::string& path, const std::string& why, std::string hint = {});

/// The status for an errno of a file operation: ENOSPC and EDQUOT no_space, EACCES, EPERM and EROFS denied,
/// EFBIG too_large, EMFILE, ENFILE and ENOMEM unavailable, anything else io_error.
Status status_of_errno(int error);

/// The text of an errno, from any thread.
std::string errno_text(int error);

}  // namespace sonde::store
