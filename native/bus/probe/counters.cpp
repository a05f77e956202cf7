#include "bus/probe/counters.hpp"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

namespace sonde::bus::probe {

namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> out;
  while (!line.empty()) {
    const auto begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) break;
    line.remove_prefix(begin);
    const auto end = std::min(line.find_first_of(" \t"), line.size());
    out.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return out;
}

std::vector<std::string_view> lines(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::optional<std::uint64_t> whole(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (why != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Reads a counter from a file that has a line of names and then a line of numbers, both with the table's name.
std::optional<std::uint64_t> of_table(std::string_view text, std::string_view table, std::string_view name) {
  const auto all = lines(text);
  for (std::size_t k = 0; k + 1 < all.size(); ++k) {
    const auto names = words(all[k]), numbers = words(all[k + 1]);
    if (names.empty() || numbers.size() != names.size() || names[0] != table || numbers[0] != table) continue;
    if (const auto at = std::find(names.begin(), names.end(), name); at != names.end())
      return whole(numbers[static_cast<std::size_t>(at - names.begin())]);
    ++k;
  }
  return std::nullopt;
}

/// Reads a counter from a file with a name and a number in each line.
std::uint64_t of_list(std::string_view text, std::string_view name) {
  for (const auto line : lines(text))
    if (const auto pair = words(line); pair.size() == 2 && pair[0] == name) return whole(pair[1]).value_or(0);
  return 0;
}

Error no_namespace(const std::string& what) {
  return {"bus.no_namespace", what + ": " + std::strerror(errno),
          "run it as root, or allow user namespaces (sysctl user.max_user_namespaces, "
          "kernel.apparmor_restrict_unprivileged_userns)"};
}

bool write_file(const char* path, const std::string& text) {
  const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return ok;
}

}  // namespace

Instructions::Instructions() {
  perf_event_attr what{};
  what.size = sizeof what;
  what.type = PERF_TYPE_HARDWARE;
  what.config = PERF_COUNT_HW_INSTRUCTIONS;
  what.exclude_hv = 1;
  state_ = "counted";
  const auto open = [&] {
    return static_cast<int>(::syscall(SYS_perf_event_open, &what, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
  };
  fd_ = open();
  if (fd_ < 0 && (errno == EACCES || errno == EPERM)) {
    what.exclude_kernel = 1;
    state_ = "counted in user mode";
    fd_ = open();
  }
  if (fd_ < 0) {
    const int why = errno;
    state_ = "not counted: ";
    if (why == ENOENT || why == EOPNOTSUPP || why == ENODEV)
      state_ += "this machine has no counter of instructions (virtual machines often hide it)";
    else if (why == EACCES || why == EPERM) state_ += "the user has no permission (sysctl kernel.perf_event_paranoid)";
    else if (why == ENOSYS) state_ += "the kernel was built without perf_event_open()";
    else state_ += std::string("perf_event_open(): ") + std::strerror(why);
    return;
  }
  own_ = UINT64_MAX;
  for (int k = 0; k < 32; ++k) {
    const std::uint64_t a = read(), b = read();
    own_ = std::min(own_, b - a);
  }
}

Instructions::~Instructions() {
  if (fd_ >= 0) ::close(fd_);
}

std::uint64_t Instructions::read() const {
  std::uint64_t value = 0;
  return fd_ >= 0 && ::read(fd_, &value, sizeof value) == sizeof value ? value : 0;
}

std::optional<Traffic> read_traffic(const std::string& snmp, const std::string& netstat, const std::string& snmp6) {
  const auto sent = of_table(snmp, "Udp:", "OutDatagrams"), full = of_table(snmp, "Udp:", "RcvbufErrors"),
             bytes = of_table(netstat, "IpExt:", "OutOctets");
  if (!sent || !full || !bytes) return std::nullopt;
  return Traffic{*sent + of_list(snmp6, "Udp6OutDatagrams"), *bytes + of_list(snmp6, "Ip6OutOctets"),
                 *full + of_list(snmp6, "Udp6RcvbufErrors")};
}

Result<Traffic> traffic() {
  const auto all = read_traffic(contents("/proc/self/net/snmp"), contents("/proc/self/net/netstat"),
                                contents("/proc/self/net/snmp6"));
  if (!all)
    return Error{"bus.failed", "/proc/self/net/snmp and netstat have no counters of sent data",
                 "check that /proc is mounted"};
  return *all;
}

Usage usage(int who) {
  rusage u{};
  ::getrusage(who, &u);
  const auto s = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return {s(u.ru_utime) + s(u.ru_stime), static_cast<std::uint64_t>(u.ru_minflt + u.ru_majflt),
          static_cast<std::uint64_t>(u.ru_nvcsw + u.ru_nivcsw)};
}

Result<void> enter_new_namespace() {
  const std::string user = std::to_string(::getuid()), group = std::to_string(::getgid());
  if (::unshare(CLONE_NEWNET) != 0) {
    if (errno != EPERM) return no_namespace("no separate network namespace");
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return no_namespace("no separate network namespace");
    if (!write_file("/proc/self/setgroups", "deny") || !write_file("/proc/self/uid_map", user + " " + user + " 1") ||
        !write_file("/proc/self/gid_map", group + " " + group + " 1"))
      return no_namespace("no separate user namespace");
  }
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  // Also enables multicast, which every DDS needs for discovery.
  request.ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK | IFF_MULTICAST;
  const bool up = fd >= 0 && ::ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  const auto why = no_namespace("the loopback interface of a namespace could not be set up");
  if (fd >= 0) ::close(fd);
  if (!up) return why;
  return {};
}

Result<void> enter_namespace_of(int pid) {
  const auto enter = [pid](const char* kind, int flag) {
    const std::string path = "/proc/" + std::to_string(pid) + "/ns/" + kind;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool ok = ::setns(fd, flag) == 0;
    const int why = errno;
    ::close(fd);
    errno = why;
    return ok;
  };
  // setns() into the current user namespace fails. Then the network namespace is accessible already, or not allowed.
  if (enter("net", CLONE_NEWNET)) return {};
  if (!enter("user", CLONE_NEWUSER) || !enter("net", CLONE_NEWNET))
    return no_namespace("the network namespace of process " + std::to_string(pid) + " cannot be entered");
  return {};
}

}  // namespace sonde::bus::probe
