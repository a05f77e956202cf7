/* Preloaded: every poll, ppoll, epoll_wait and recv that had to sleep comes back LATE_NS later, as on a machine whose
 * idle processors sleep deeply, or are virtual and have to be given back first. What was there already comes at once.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#define LATE_NS 80000
/* Shorter calls did not sleep. */
#define ASLEEP_NS 3000

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

static long came(long ready, long began_ns) {
  const long end_ns = now_ns();
  if (ready > 0 && end_ns - began_ns > ASLEEP_NS)
    while (now_ns() - end_ns < LATE_NS) {}
  return ready;
}

int epoll_wait(int set, struct epoll_event* events, int most, int timeout_ms) {
  static __typeof__(&epoll_wait) next;
  if (!next) next = NEXT(epoll_wait);
  const long began_ns = now_ns();
  const int ready = next(set, events, most, timeout_ms);
  return timeout_ms ? (int)came(ready, began_ns) : ready;
}

int poll(struct pollfd* fds, nfds_t count, int timeout_ms) {
  static __typeof__(&poll) next;
  if (!next) next = NEXT(poll);
  const long began_ns = now_ns();
  const int ready = next(fds, count, timeout_ms);
  return timeout_ms ? (int)came(ready, began_ns) : ready;
}

int ppoll(struct pollfd* fds, nfds_t count, const struct timespec* timeout, const sigset_t* mask) {
  static __typeof__(&ppoll) next;
  if (!next) next = NEXT(ppoll);
  const long began_ns = now_ns();
  const int ready = next(fds, count, timeout, mask);
  return timeout && !timeout->tv_sec && !timeout->tv_nsec ? ready : (int)came(ready, began_ns);
}

ssize_t recv(int fd, void* to, size_t most, int flags) {
  static __typeof__(&recv) next;
  if (!next) next = NEXT(recv);
  const long began_ns = now_ns();
  const ssize_t got = next(fd, to, most, flags);
  return flags & MSG_DONTWAIT ? got : came(got, began_ns);
}
