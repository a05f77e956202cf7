#include "core/owned_file.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "core/text.hpp"

namespace sonde {

namespace {

constexpr int make_flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

Error unsafe(const std::string& path, const char* why) {
  return {"core.unsafe_file", shown(path, 400) + " " + why + ": it may lead to another file, so it was not touched",
          "only a plain file is allowed there: move it out of the folder, or choose another with --output"};
}

/// A random name next to `path`.
std::string part_of(const std::string& path) {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) {
    // If the kernel gives no random numbers, O_EXCL refuses an existing file.
    number = static_cast<std::uint64_t>(::getpid());
  }
  char end[32];
  std::snprintf(end, sizeof end, ".%016llx.part", static_cast<unsigned long long>(number));
  return path + end;
}

/// The descriptor of an opened file, if the file is plain and has one name.
Result<int> checked(int fd, const std::string& path) {
  struct stat found;
  const char* why = nullptr;
  if (::fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) why = "is not a plain file";
  else if (found.st_nlink > 1) why = "has several names (hard links)";
  if (why == nullptr) return fd;
  ::close(fd);
  errno = EPERM;
  return unsafe(path, why);
}

/// Wait until a new name has reached the disk. Errors leave errno.
bool sync_folder_of(const std::string& path) {
  const auto end = path.rfind('/');
  const std::string folder = end == std::string::npos ? "." : end == 0 ? "/" : path.substr(0, end);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool fine = ::fsync(fd) == 0 || errno == EINVAL;  // some network file systems cannot
  const int why = errno;
  ::close(fd);
  errno = why;
  return fine;
}

}  // namespace

Error write_error(const std::string& path, int number) {
  if (number == ENOSPC || number == EDQUOT)
    return {"core.disk_full", "cannot write " + path + ": " + std::strerror(number),
            "free space there, or choose another folder with --output"};
  return {"core.cannot_write", "cannot write " + path + ": " + std::strerror(number),
          "check that the folder exists and is writable, or choose another with --output"};
}

Result<int> make_file(const std::string& path, unsigned mode) {
  for (int attempt = 0; attempt < 16; ++attempt) {
    const int fd = ::open(path.c_str(), make_flags, mode);
    if (fd >= 0) return fd;
    if (errno != EEXIST) return write_error(path, errno);
    struct stat found;
    if (::lstat(path.c_str(), &found) != 0) {
      if (errno == ENOENT) continue;
      return write_error(path, errno);
    }
    if (S_ISLNK(found.st_mode)) return unsafe(path, "is a link");
    if (S_ISDIR(found.st_mode)) return write_error(path, EISDIR);
    if (!S_ISREG(found.st_mode)) return unsafe(path, "is not a plain file");
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) return write_error(path, errno);
  }
  return unsafe(path, "is created repeatedly by another program");
}

Result<int> append_to_file(const std::string& path, unsigned mode) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode);
  if (fd < 0) return errno == ELOOP ? unsafe(path, "is a link") : write_error(path, errno);
  return checked(fd, path);
}

Result<int> change_file(const std::string& path, unsigned mode, bool make) {
  const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (make ? O_CREAT : 0);
  const int fd = ::open(path.c_str(), flags, mode);
  if (fd < 0) return errno == ELOOP ? unsafe(path, "is a link") : write_error(path, errno);
  return checked(fd, path);
}

Result<int> make_part(const std::string& path, std::string& part, unsigned mode) {
  part = part_of(path);
  const int fd = ::open(part.c_str(), (make_flags & ~O_WRONLY) | O_RDWR, mode);
  if (fd < 0) return write_error(path, errno);
  return fd;
}

Result<void> write_whole(const std::string& path, std::string_view text, unsigned mode, bool sync) {
  std::string part;
  const auto made = make_part(path, part, mode);
  if (!made) return made.error();
  const int fd = *made;
  int wrong = 0;
  while (!text.empty() && wrong == 0) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n >= 0) text.remove_prefix(static_cast<std::size_t>(n));
    else if (errno != EINTR) wrong = errno;
  }
  if (sync && wrong == 0 && ::fsync(fd) != 0) wrong = errno;
  if (::close(fd) != 0 && wrong == 0) wrong = errno;
  if (wrong == 0 && ::rename(part.c_str(), path.c_str()) != 0) wrong = errno;
  if (wrong == 0 && (!sync || sync_folder_of(path))) return {};
  if (wrong == 0) wrong = errno;
  ::unlink(part.c_str());
  errno = wrong;
  return write_error(path, wrong);
}

namespace {

/// The machine's root: if a user namespace begins at another user, root there has only that user's rights.
bool is_root() {
  if (::geteuid() != 0) return false;
  std::ifstream map("/proc/self/uid_map");
  std::uint64_t inside = 0, outside = 0, count = 0;
  return !(map >> inside >> outside >> count) || (outside == 0 && count >= 0xffffffff);
}

/// The reason why another user controls the content of a folder, or the target of a link.
std::string fault_of(const std::string& place, const struct stat& found) {
  if (found.st_uid != 0) return "'" + place + "' on the way to it belongs to user " + std::to_string(found.st_uid);
  // In a sticky folder nobody can rename files of others.
  if (S_ISLNK(found.st_mode) || found.st_mode & S_ISVTX) return "";
  if (found.st_mode & S_IWOTH) return "everybody may write in '" + place + "' on the way to it";
  // With an access list, the group's bits limit all users and groups that it names: acl(5).
  if (found.st_mode & S_IWGRP && ::lgetxattr(place.c_str(), "system.posix_acl_access", nullptr, 0) >= 0)
    return "whoever its access list names may write in '" + place + "' on the way to it";
  if (found.st_mode & S_IWGRP && found.st_gid != 0)
    return "the group " + std::to_string(found.st_gid) + " may write in '" + place + "' on the way to it";
  return "";
}

/// The parts of a path that are still to be passed, the next one last.
void add_parts(std::vector<std::string>& left, std::string_view path) {
  for (std::size_t end = path.size(); end != std::string_view::npos && end > 0;) {
    const std::size_t slash = path.rfind('/', end - 1);
    const std::size_t from = slash == std::string_view::npos ? 0 : slash + 1;
    left.emplace_back(path.substr(from, end - from));
    end = slash;
  }
}

}  // namespace

std::string who_else_decides(const std::string& path) {
  if (!is_root()) return "";
  constexpr int most_links = 40;  // the kernel's limit, path_resolution(7)
  std::string at;                 // "" is "/"
  std::vector<std::string> left;
  add_parts(left, path);
  if (!path.starts_with('/')) {
    char here[PATH_MAX];
    if (!::getcwd(here, sizeof here)) return std::string("the current folder: ") + std::strerror(errno);
    add_parts(left, here);
  }
  int links = 0;
  for (;;) {
    struct stat folder;
    if (::lstat(at.empty() ? "/" : at.c_str(), &folder) != 0) return "";  // a later open fails in the same way
    while (!left.empty() && (left.back().empty() || left.back() == ".")) left.pop_back();
    if (left.empty()) return "";
    if (std::string why = fault_of(at.empty() ? "/" : at, folder); !why.empty()) return why;
    const std::string name = std::move(left.back());
    left.pop_back();
    if (name == "..") {
      at.resize(at.empty() ? 0 : at.rfind('/'));
      continue;
    }
    const std::string there = at + '/' + name;
    struct stat found;
    if (::lstat(there.c_str(), &found) != 0) return "";
    if (!S_ISLNK(found.st_mode)) {
      at = there;
      continue;
    }
    if (std::string why = fault_of(there, found); !why.empty()) return why;
    char target[PATH_MAX];
    const ssize_t n = ++links > most_links ? -1 : ::readlink(there.c_str(), target, sizeof target);
    if (n <= 0) return "";
    add_parts(left, {target, static_cast<std::size_t>(n)});
    if (target[0] == '/') at.clear();
  }
}

Result<void> make_folders_to(const std::string& path) {
  const auto checked_way = [&]() -> Result<void> {
    const std::string why = who_else_decides(path);
    if (why.empty()) return {};
    return Error{"core.folder_of_others", shown(path, 400) + ": " + why + ", and could put another folder in its place",
                 "as root, name a folder that only root controls, as in /var/lib"};
  };
  if (auto fine = checked_way(); !fine) return fine;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  return checked_way();  // in a folder like /tmp another user may have made one of them meanwhile
}

}  // namespace sonde
