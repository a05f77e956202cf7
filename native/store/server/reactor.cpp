#include "store/server/reactor.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/clock.hpp"
#include "store/server/session.hpp"

namespace sonde::store {

namespace {

constexpr unsigned look_sample = 8;
constexpr std::int64_t stay_least_ns = 2'000'000, stay_most_ns = 1'000'000'000;

}  // namespace

Reactor::Reactor(Server& server)
    : server_(server),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spin_(server.config().link.spin_s) {
  epoll_event event{};
  event.events = EPOLLIN;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
  thread_ = std::thread([this] { run(); });
}

Reactor::~Reactor() {
  stop(Deadline::in_s(0));
  ::close(wake_);
  ::close(epoll_);
}

void Reactor::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
    if (std::exchange(woken_, true)) return;
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof one);
}

void Reactor::spawn(std::function<void()> work) {
  std::erase_if(helpers_, [](Helper& h) {
    if (!h.ended->load()) return false;
    h.thread.join();
    return true;
  });
  auto ended = std::make_shared<std::atomic<bool>>(false);
  helpers_.push_back({std::thread([work = std::move(work), ended] {
                        work();
                        ended->store(true);
                      }),
                      ended});
}

void Reactor::add(int fd) {
  count_.fetch_add(1);  // counted here, so that the acceptor sees it at once
  post([this, fd] {
    if (stopping_) {
      ::close(fd);
      count_.fetch_sub(1);
      return;
    }
    auto session = std::make_shared<Session>(*this, fd);
    sessions_.emplace(session.get(), session);
    watch(*session);
  });
}

void Reactor::watch(Session& s) {
  const auto set = [&](int fd, std::uint32_t& before, std::uint32_t now) {
    if (fd < 0 || before == now) return;
    epoll_event event{};
    event.events = now;
    event.data.ptr = &s;
    ::epoll_ctl(epoll_, before == 0 ? EPOLL_CTL_ADD : now == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD, fd, &event);
    before = now;
  };
  if (!s.alive()) return;
  // A link in the making belongs to another thread: no events of it, not even of its end.
  set(s.fd(), s.watched,
      s.upgrading()   ? 0
      : s.needs_arm() ? static_cast<std::uint32_t>(EPOLLIN)
                      : s.events() | EPOLLRDHUP);
  set(s.own_fd(), s.own_watched, s.needs_arm() ? s.events() : 0);
  if (s.needs_arm() && std::find(polled_.begin(), polled_.end(), &s) == polled_.end()) polled_.push_back(&s);
}

void Reactor::drop(Session& s) {
  if (const auto found = sessions_.find(&s); found != sessions_.end()) {
    std::erase(polled_, &s);
    if (s.watched) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, s.fd(), nullptr);
    if (s.own_watched) ::epoll_ctl(epoll_, EPOLL_CTL_DEL, s.own_fd(), nullptr);
    s.watched = s.own_watched = 0;
    dropped_.push_back(std::move(found->second));
    sessions_.erase(found);
    count_.fetch_sub(1);
  }
}

void Reactor::stop(Deadline deadline) {
  if (!thread_.joinable()) return;
  post([this, deadline] {
    stopping_ = true;
    stop_by_ = deadline;
  });
  thread_.join();
}

int Reactor::look(std::vector<epoll_event>& events) {
  if (!spin_.begin()) return 0;
  const bool sample = ++looks_ % look_sample == 0;
  const long switches = sample ? Spin::switches() : 0;
  int n = 0;
  do {
    n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 0);
    if (n > 0) break;
    bool came = false;
    asked_ = polled_;
    for (Session* s : asked_)
      if (sessions_.contains(s)) came |= s->ready();
    if (came) n = -1;
  } while (n == 0 && spin_.again());
  if (sample && n != 0) step_aside(switches);
  return n;
}

/// What was awaited came while somebody else ran on this core: most likely the client itself, which the kernel likes to
/// keep close to whom it wakes. Two that wait without sleeping are better off on two cores, if there are.
void Reactor::step_aside(long switches) {
  const std::int64_t now = now_ns();
  if (Spin::switches() == switches || now < stay_until_ns_) return;
  cpu_set_t allowed, others;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  others = allowed;
  CPU_CLR(static_cast<std::size_t>(::sched_getcpu()), &others);
  if (::sched_setaffinity(0, sizeof others, &others) == 0) ::sched_setaffinity(0, sizeof allowed, &allowed);
  // Where every core is somebody's this gains nothing: it is tried less and less often.
  stay_ns_ = now - stay_until_ns_ < 4 * stay_ns_ ? std::min(2 * stay_ns_, stay_most_ns) : stay_least_ns;
  stay_until_ns_ = now + stay_ns_;
}

void Reactor::run() {
  std::vector<epoll_event> events(256);
  std::int64_t looked_ns = now_ns();
  unsigned turns = 0;
  bool worked = false;
  for (;;) {
    dropped_.clear();
    // Whoever was served a moment ago may ask for more at once.
    int n = worked ? look(events) : 0;
    worked = n != 0;
    n = std::max(n, 0);
    if (!worked) {
      // A fabric's link is asked again and again while something goes on; once it says that it can sleep it costs
      // nothing until its descriptor wakes it. One without a descriptor of its own is looked at every 20 ms all the
      // same: its bell may be late.
      bool rest = true, deaf = false;
      for (Session* s : polled_) {
        rest &= s->arm();
        deaf |= s->own_fd() < 0;
      }
      dropped_.clear();
      const int wait_ms = !rest ? 0 : deaf ? 20 : stopping_ ? 5 : 1000;
      const std::int64_t begin = now_ns();
      n = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), wait_ms);
      worked = n > 0 || !rest;
      if (n > 0 && rest) spin_.slept(now_ns() - begin);
      if (!rest || n == 0) {
        asked_ = polled_;
        for (Session* s : asked_)
          if (sessions_.contains(s) && (n == 0 || !s->armed())) s->ready();
      }
    }
    for (int k = 0; k < n; ++k) {
      auto* s = static_cast<Session*>(events[static_cast<std::size_t>(k)].data.ptr);
      if (!s) {
        std::uint64_t count;
        (void)!::read(wake_, &count, sizeof count);
        continue;
      }
      if (sessions_.contains(s)) s->ready();
    }
    std::vector<std::function<void()>> tasks;
    {
      const std::lock_guard lock(mutex_);
      tasks.swap(posted_);
      woken_ = false;
    }
    for (auto& task : tasks) task();
    tasks.clear();
    // The clock is read when nothing is to be done, or now and then.
    const bool timely = n == 0 || ++turns % 256 == 0;
    if (const std::int64_t now = timely ? now_ns() : looked_ns; now - looked_ns > 1'000'000'000) {
      looked_ns = now;
      std::vector<Session*> late;
      for (auto& [s, own] : sessions_)
        if (s->expired(now, server_.config().hello_timeout_s)) late.push_back(s);
      for (Session* s : late) s->goodbye();
    }
    if (stopping_) {
      std::vector<Session*> idle;
      for (auto& [s, own] : sessions_)
        if (!s->busy() || stop_by_.passed()) idle.push_back(s);
      for (Session* s : idle)
        if (!s->upgrading()) s->goodbye();
      bool upgrading = false;
      for (auto& [s, own] : sessions_) upgrading |= s->upgrading();
      if (!upgrading && (sessions_.empty() || stop_by_.passed())) break;
    }
  }
  for (auto& h : helpers_) h.thread.join();
  helpers_.clear();
  polled_.clear();
  sessions_.clear();
  dropped_.clear();
}

}  // namespace sonde::store
