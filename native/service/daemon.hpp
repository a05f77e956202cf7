#pragma once
/// The common part of every daemon: wait for its end, report that it is ready, and not outlive its parent.
/// Owner-thread.

#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace sonde::service {

/// Before any thread is started: SIGTERM, SIGINT and SIGHUP reach wait_for_end() alone, SIGPIPE nobody. Returns the
/// descriptor for wait_for_end(), or -1: made now, because a busy daemon may have none left later.
inline int claim_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, s);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return ::signalfd(-1, &set, SFD_CLOEXEC);
}

/// Returns the signal, or 0 when standard input ended or said `stop` (with_parent: the daemon must not outlive it).
inline int wait_for_end(int fd, bool with_parent) {
  std::string heard;
  for (;;) {
    pollfd ready[2] = {{fd, POLLIN, 0}, {with_parent ? STDIN_FILENO : -1, POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0) continue;
    if (ready[0].revents) {
      signalfd_siginfo info{};
      (void)!::read(fd, &info, sizeof info);
      ::close(fd);
      return static_cast<int>(info.ssi_signo);
    }
    char text[256];
    const ssize_t n = ::read(STDIN_FILENO, text, sizeof text);
    if (n > 0) heard.append(text, static_cast<std::size_t>(n));
    if (heard.size() > 4096) heard.erase(0, heard.size() - 8);
    if (n <= 0 || heard.find("stop\n") != std::string::npos) {
      ::close(fd);
      return 0;
    }
  }
}

/// systemd's Type=notify: "READY=1", "STOPPING=1". Nothing where NOTIFY_SOCKET is not set.
inline void notify(const char* state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (!path || !*path) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  const std::size_t n = std::strlen(path);
  if (n >= sizeof to.sun_path) return;
  std::memcpy(to.sun_path, path, n);
  if (path[0] == '@') to.sun_path[0] = '\0';
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  (void)!::sendto(fd, state, std::strlen(state), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&to),
                  static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + n));
  ::close(fd);
}

}  // namespace sonde::service
