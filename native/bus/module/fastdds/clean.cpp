#include "bus/module/fastdds/clean.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

namespace sonde::bus::fastdds {

namespace {

constexpr std::string_view prefix = "fastrtps_", port_prefix = "fastrtps_port";

bool is_lock(std::string_view name) { return name.starts_with(prefix) && (name.ends_with("_el") || name.ends_with("_sl")); }

double age_of(const struct stat& file) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec - file.st_ctim.tv_sec) + static_cast<double>(now.tv_nsec - file.st_ctim.tv_nsec) * 1e-9;
}

std::size_t removed(const std::filesystem::path& path) { return unlink(path.c_str()) == 0 ? 1 : 0; }

/// A segment or port, what guards it, and the lock file last: who is cut off before leaves it to the next.
std::size_t remove_all(const std::filesystem::path& in, const std::string& name, const std::string& lock) {
  std::size_t files = removed(in / name);
  if (name.starts_with(port_prefix)) files += removed(in / ("sem." + name + "_mutex"));
  if (!lock.empty()) files += removed(in / lock);
  return files;
}

/// Names of Fast DDS' files that processes have mapped, of those that show what they map.
std::set<std::string> mapped_names() {
  std::set<std::string> names;
  std::error_code failed;
  for (auto at = std::filesystem::directory_iterator("/proc", failed); !failed && at != std::filesystem::directory_iterator(); at.increment(failed)) {
    if (at->path().filename().string().find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream maps(at->path() / "maps");
    for (std::string line; std::getline(maps, line);)
      if (const auto found = line.find(prefix); found != std::string::npos) names.insert(line.substr(found, line.find(' ', found) - found));
  }
  return names;
}

}  // namespace

std::size_t clean(double age_s, const std::string& folder) {
  const std::filesystem::path in(folder);
  std::set<std::string> locks, others;
  std::error_code failed;
  for (auto at = std::filesystem::directory_iterator(folder, failed); !failed && at != std::filesystem::directory_iterator(); at.increment(failed))
    if (const std::string name = at->path().filename().string(); is_lock(name)) locks.insert(name);
    else if (name.starts_with(prefix)) others.insert(name);
  std::size_t files = 0;
  for (const std::string& lock : locks) {
    const int fd = open((in / lock).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    struct stat opened{}, named{};
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &opened) == 0 && stat((in / lock).c_str(), &named) == 0 && opened.st_ino == named.st_ino && age_of(opened) >= age_s)
      files += remove_all(in, lock.substr(0, lock.size() - 3), lock);
    close(fd);
  }
  std::erase_if(others, [&](const std::string& name) {
    struct stat file{};
    return locks.contains(name + "_el") || locks.contains(name + "_sl") || stat((in / name).c_str(), &file) != 0 || age_of(file) < age_s || (geteuid() != 0 && file.st_uid != geteuid());
  });
  if (others.empty()) return files;
  const auto mapped = mapped_names();
  for (const std::string& name : others)
    if (!mapped.contains(name)) files += remove_all(in, name, "");
  return files;
}

}  // namespace sonde::bus::fastdds
