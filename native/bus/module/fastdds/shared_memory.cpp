#include "bus/module/fastdds/shared_memory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <thread>

namespace sonde::bus::fastdds {

namespace {

constexpr std::string_view prefix = "fastrtps_", port_prefix = "fastrtps_port";

/// Whether it is the common port of a domain, where all participants listen (DDSI-RTPS).
bool is_group(std::string_view name) {
  unsigned port = 0;
  if (!name.starts_with(port_prefix)) return false;
  std::from_chars(name.data() + port_prefix.size(), name.data() + name.size(), port);
  return port >= 7400 && (port - 7400) % 250 == 0;
}

bool is_lock(std::string_view name) {
  return name.starts_with(prefix) && (name.ends_with("_el") || name.ends_with("_sl"));
}

double age_of(const struct stat& file) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec - file.st_ctim.tv_sec) +
         static_cast<double>(now.tv_nsec - file.st_ctim.tv_nsec) * 1e-9;
}

std::size_t removed(const std::filesystem::path& path) { return unlink(path.c_str()) == 0 ? 1 : 0; }

/// Removes a segment or port and its guards, and the lock file last, so that an interrupted removal can be continued.
std::size_t remove_all(const std::filesystem::path& in, const std::string& name, const std::string& lock) {
  std::size_t files = removed(in / name);
  if (name.starts_with(port_prefix)) files += removed(in / ("sem." + name + "_mutex"));
  if (!lock.empty()) files += removed(in / lock);
  return files;
}

/// The names of Fast DDS files that processes have mapped, as far as their mappings are readable.
std::set<std::string> mapped_names() {
  std::set<std::string> names;
  std::error_code failed;
  for (auto at = std::filesystem::directory_iterator("/proc", failed);
       !failed && at != std::filesystem::directory_iterator(); at.increment(failed)) {
    if (at->path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream maps(at->path() / "maps");
    for (std::string line; std::getline(maps, line);)
      if (const auto found = line.find(prefix); found != std::string::npos)
        names.insert(line.substr(found, line.find(' ', found) - found));
  }
  return names;
}

}  // namespace

Cleaned clean(double age_s, const std::string& folder) {
  const std::filesystem::path in(folder);
  std::set<std::string> locks, subjects;  // segments and ports that are or were locked
  std::error_code failed;
  for (auto at = std::filesystem::directory_iterator(folder, failed);
       !failed && at != std::filesystem::directory_iterator(); at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (is_lock(name)) locks.insert(name);
    else if (name.starts_with(prefix)) subjects.insert(name);
    else if (name.starts_with("sem.fastrtps_port") && name.ends_with("_mutex"))
      subjects.insert(name.substr(4, name.size() - 4 - 6));
  }
  std::size_t files = 0, young = 0;
  std::set<std::string> doubtful;
  for (const std::string& lock : locks) {
    const std::string of = lock.substr(0, lock.size() - 3);
    subjects.erase(of);
    // Opening a pipe of that name would block until another program writes.
    const int fd = open((in / lock).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    struct stat opened{}, named{};
    if (fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
        stat((in / lock).c_str(), &named) == 0 && opened.st_ino == named.st_ino) {
      if (age_of(opened) < age_s) ++young;
      else if (lock.ends_with("_el")) files += remove_all(in, of, lock);
      else doubtful.insert(lock);
    }
    close(fd);
  }
  const auto may_go = [&](const std::string& name) {
    struct stat file{};
    if (stat((in / name).c_str(), &file) != 0) return true;
    if (geteuid() != 0 && file.st_uid != geteuid()) return false;
    if (age_of(file) >= age_s) return true;
    ++young;
    return false;
  };
  std::erase_if(subjects, [&](const std::string& name) { return !may_go(name) || !may_go("sem." + name + "_mutex"); });
  std::erase_if(subjects, [&](const std::string& name) {
    if (is_group(name) || !std::filesystem::exists(in / name, failed)) return false;
    files += remove_all(in, name, "");
    return true;
  });
  if (doubtful.empty() && subjects.empty()) return {files, young};
  const auto mapped = mapped_names();
  for (const std::string& lock : doubtful)
    if (const std::string of = lock.substr(0, lock.size() - 3); !mapped.contains(of)) files += remove_all(in, of, lock);
  for (const std::string& name : subjects)
    if (!mapped.contains(name) && !mapped.contains(name + "_mutex")) files += remove_all(in, name, "");
  return {files, young};
}

GroupLock::GroupLock(std::uint32_t group_port, const std::string& folder)
    : path_(folder + "/" + std::string(port_prefix) + std::to_string(group_port) + "_sl") {
  for (int tries = 0; tries < 100 && fd_ < 0; ++tries) {
    fd_ = open(path_.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (fd_ < 0) return;
    struct stat opened{}, named{};
    // Somebody may look whether it is locked by locking it, or remove it meanwhile. Who keeps it locked, as each user
    // of the machine may, holds up nobody: this one goes without.
    if (fstat(fd_, &opened) == 0 && S_ISREG(opened.st_mode) && flock(fd_, LOCK_SH | LOCK_NB) == 0 &&
        stat(path_.c_str(), &named) == 0 && opened.st_ino == named.st_ino)
      return;
    close(fd_);
    fd_ = -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

GroupLock::~GroupLock() {
  if (fd_ < 0) return;
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) unlink(path_.c_str());  // this was the last one
  close(fd_);
}

std::uint64_t room(const std::string& folder) {
  struct statvfs of{};
  return statvfs(folder.c_str(), &of) == 0 ? static_cast<std::uint64_t>(of.f_bavail) * of.f_frsize : UINT64_MAX;
}

}  // namespace sonde::bus::fastdds
