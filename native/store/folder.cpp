#include "store/folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/owned_file.hpp"

namespace sonde::store {

namespace {

constexpr const char* marker_name = "sonde-store";

/// 1 when it holds anything but the marker, 0 when not, -1 with errno.
int holds_other_things(int folder) {
  const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (again < 0) return -1;
  DIR* dir = fdopendir(again);
  if (!dir) {
    close(again);
    return -1;
  }
  int found = 0;
  errno = 0;
  while (const dirent* entry = readdir(dir)) {
    const std::string_view name = entry->d_name;
    // mkfs leaves lost+found in the root of a new file system, which is as good as empty.
    if (name != "." && name != ".." && name != marker_name && name != "lost+found") found = 1;
  }
  if (errno) found = -1;
  closedir(dir);
  return found;
}

/// Why this path is not controlled by this user alone; "" when it is. A user who can write into a folder chooses what a
/// backend opens there: the links, and the files that it goes on with.
std::string why_not_own(const std::string& path, int folder) {
  struct stat link{}, facts{};
  if (lstat(path.c_str(), &link) != 0 || fstat(folder, &facts) != 0) return errno_text(errno);
  if (S_ISLNK(link.st_mode) && link.st_uid != geteuid() && link.st_uid != 0)
    return "it is a link of user " + std::to_string(link.st_uid);
  if (facts.st_uid != geteuid())
    return "it belongs to user " + std::to_string(facts.st_uid) + ", and this is user " + std::to_string(geteuid());
  if (facts.st_mode & (S_IWGRP | S_IWOTH)) return "other users can write into it";
  return "";
}

bool is_own_file(int file) {
  struct stat facts{};
  return fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == geteuid() && facts.st_nlink == 1;
}

}  // namespace

std::string errno_text(int error) { return std::generic_category().message(error); }

Error cannot_open(const std::string& path, const std::string& why, std::string hint) {
  return {"store.cannot_open", "cannot open " + path + ": " + why, std::move(hint)};
}

Status status_of_errno(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return Status::no_space;
    case EACCES:
    case EPERM:
    case EROFS: return Status::denied;
    case EFBIG: return Status::too_large;
    case EMFILE:
    case ENFILE:
    case ENOMEM: return Status::unavailable;
    default: return Status::io_error;
  }
}

Result<Folder> Folder::open(const std::string& path, std::string_view kind, unsigned version) {
  if (path.empty())
    return Error{"store.bad_setting", "the setting 'path' is missing",
                 "give the folder: --backend <role>=" + std::string(kind) + ",path=/some/folder"};
  // Backends open the folder's content by its path: no other user may be able to change where this path leads. Checked
  // again when the folder exists: another user may have created it meanwhile.
  const auto another_s = [&]() -> Result<void> {
    const std::string why = who_else_decides(path);
    if (why.empty()) return {};
    return cannot_open(path, why, "root's store must be in a folder that only root controls, as in /var/lib");
  };
  if (auto ok = another_s(); !ok) return ok.error();
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return cannot_open(
        path, errno_text(errno),
        errno == ENOENT ? "create its parent folder first" : "choose another path, or change its permissions");
  Folder folder(path, ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC), -1);
  if (folder.folder_ < 0)
    return cannot_open(path, errno_text(errno), "the path must be a folder that this user can read and write");
  if (auto ok = another_s(); !ok) return ok.error();
  if (const std::string why = why_not_own(path, folder.folder_); !why.empty())
    return cannot_open(path, why,
                       "give a folder of your own that no other user can write into (chmod go-w), or a new one");

  folder.marker_ = openat(folder.folder_, marker_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (folder.marker_ < 0 && errno == ENOENT) {
    const int others = holds_other_things(folder.folder_);
    if (others < 0) return cannot_open(path, errno_text(errno), "");
    if (others)
      return cannot_open(path, "it is not empty and has no marker file 'sonde-store', so it is not a store",
                         "name an empty or a new folder");
    folder.marker_ = openat(folder.folder_, marker_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  }
  if (folder.marker_ < 0)
    return cannot_open(path + '/' + marker_name, errno_text(errno),
                       "the path must be a folder that this user can read and write");
  if (!is_own_file(folder.marker_))
    return cannot_open(path + '/' + marker_name, "it is not a regular file that this user owns, with one link",
                       "name an empty or a new folder");
  if (flock(folder.marker_, LOCK_EX | LOCK_NB) != 0)
    return errno == EWOULDBLOCK
               ? cannot_open(path, "another server or client has it open", "stop that program, or give another folder")
               : cannot_open(path, "it cannot be locked: " + errno_text(errno),
                             "give a folder on a file system with file locks");

  const std::string line = "sonde-store " + std::string(kind) + ' ' + std::to_string(version) + '\n';
  char text[128];
  const ssize_t n = pread(folder.marker_, text, sizeof text, 0);
  if (n < 0) return cannot_open(path + '/' + marker_name, errno_text(errno), "");
  const std::string_view found(text, static_cast<std::size_t>(n));
  if (found == line) return folder;

  // A crash while the marker was first written leaves a part of it, and no other file.
  if (!line.starts_with(found) || holds_other_things(folder.folder_) != 0) {
    const std::string_view start = "sonde-store ";
    if (!found.starts_with(start) || !found.ends_with('\n'))
      return cannot_open(path, "its marker file 'sonde-store' is damaged",
                         "if the folder is surely a " + std::string(kind) + " backend's, write '" +
                             line.substr(0, line.size() - 1) + "' into it");
    return cannot_open(path,
                       "it is the folder of '" +
                           std::string(found.substr(start.size(), found.size() - start.size() - 1)) + "', not of '" +
                           line.substr(start.size(), line.size() - start.size() - 1) + "' (backend and version)",
                       "give another folder, or use the backend that created it");
  }
  if (pwrite(folder.marker_, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size()) ||
      fsync(folder.marker_) != 0 || fsync(folder.folder_) != 0)
    return cannot_open(path + '/' + marker_name, "it cannot be written: " + errno_text(errno), "");
  return folder;
}

Folder::Folder(Folder&& other) noexcept
    : path_(std::move(other.path_)),
      folder_(std::exchange(other.folder_, -1)),
      marker_(std::exchange(other.marker_, -1)) {}

Folder& Folder::operator=(Folder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(folder_, other.folder_);
  std::swap(marker_, other.marker_);
  return *this;
}

Folder::~Folder() {
  if (marker_ >= 0) close(marker_);  // the lock goes with it
  if (folder_ >= 0) close(folder_);
}

}  // namespace sonde::store
