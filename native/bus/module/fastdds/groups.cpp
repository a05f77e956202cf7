#include "bus/module/fastdds/groups.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <filesystem>
#include <string>
#include <system_error>

namespace sonde::bus::fastdds {

void take_joined_groups_only() {
  std::error_code failed;
  for (auto at = std::filesystem::directory_iterator("/proc/self/fd", failed);
       !failed && at != std::filesystem::directory_iterator(); at.increment(failed)) {
    const std::string name = at->path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    sockaddr_in bound{};
    socklen_t size = sizeof bound;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0 || bound.sin_family != AF_INET ||
        !IN_MULTICAST(ntohl(bound.sin_addr.s_addr)))
      continue;
    const int all = 0;
    ::setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &all, sizeof all);
  }
}

}  // namespace sonde::bus::fastdds
