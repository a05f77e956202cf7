#pragma once
/// Decides which regions of /dev/shm another process may have this one map over the provider shm. Pure except for the
/// check of one region.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string>

namespace sonde::store::ofi {

constexpr const char* shm_prefix = "sonde-ofi-";

/// The name of the region that an address of the provider points to.
inline std::string region_of(std::span<const std::byte> address) {
  if (address.empty()) return {};
  const auto* text = reinterpret_cast<const char*>(address.data());
  std::string name(text, ::strnlen(text, address.size()));
  if (const std::size_t scheme = name.find("://"); scheme != std::string::npos) name.erase(0, scheme + 3);
  return name;
}

/// Whether it is this user's, and of the form that the other end of this transport makes. The provider maps the region
/// for writing, and trusts its contents, including the number of the process whose memory it reads: with another user's
/// region this process would lend that user its rights.
inline bool is_own_region(const std::string& name) {
  if (!name.starts_with(shm_prefix) || name.find('/') != std::string::npos) return false;
  const int fd = ::open(("/dev/shm/" + name).c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  struct stat facts{};
  const bool own = ::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() &&
                   (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  ::close(fd);
  return own;
}

}  // namespace sonde::store::ofi
