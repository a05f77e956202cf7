#include "store/server/reactor.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/clock.hpp"
#include "store/server/session.hpp"

namespace sonde::store {

namespace {

constexpr unsigned look_sample = 8;
constexpr std::int64_t look_every_ns = 1'000'000'000;  // at those whose time may be over
constexpr unsigned helpers_of_server = 32;  // threads that make links: each is held by a client for as long as it likes
constexpr std::int64_t stay_least_ns = 2'000'000, stay_most_ns = 1'000'000'000;

}  // namespace

Reactor::Reactor(Server& server)
    : server_(server),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      spin_(server.config().link.spin_s),
      events_(256),
      helpers_max_(std::max(2u, helpers_of_server / std::max(1u, server.config().threads))) {
  epoll_event event{};
  event.events = EPOLLIN;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    ::close(wake_);
    ::close(epoll_);
    throw;
  }
}

Reactor::~Reactor() {
  stop(Deadline::in_s(0));
  ::close(wake_);
  ::close(epoll_);
}

void Reactor::wake() noexcept {
  const std::uint64_t one = 1;
  (void)!::write(wake_, &one, sizeof one);
}

void Reactor::post(std::shared_ptr<Session> session, std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back({std::move(session), std::move(task)});
    if (std::exchange(woken_, true)) return;
  }
  wake();
}

void Reactor::drop_lost() noexcept {
  lost_ = true;
  wake();
}

template <typename F> auto Reactor::guarded(Session& session, F&& call) -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    session.broke();
    return decltype(call())();
  }
}

bool Reactor::ready(Session& s) {
  return guarded(s, [&] { return s.ready(); });
}

bool Reactor::spawn(std::shared_ptr<Session> session) {
  std::erase_if(helpers_, [](Helper& h) {
    if (!h.ended->load()) return false;
    h.thread.join();
    return true;
  });
  helpers_.reserve(helpers_.size() + 1);
  auto ended = std::make_shared<std::atomic<bool>>(false);
  const std::lock_guard lock(helpers_mutex_);
  waiting_.push_back({std::move(session), now_ns()});
  if (helping_ >= helpers_max_) return true;
  try {
    helpers_.push_back({std::thread([this, ended] {
                          make_links();
                          ended->store(true);
                        }),
                        ended});
  } catch (const std::system_error&) {
    if (helping_ > 0) return true;  // one of those takes it
    waiting_.pop_back();
    return false;
  }
  ++helping_;
  return true;
}

void Reactor::make_links() {
  for (;;) {
    std::shared_ptr<Session> session;
    {
      const std::lock_guard lock(helpers_mutex_);
      if (waiting_.empty()) {
        --helping_;
        return;
      }
      session = std::move(waiting_.front().session);
      waiting_.pop_front();
    }
    session->make_link();
  }
}

void Reactor::refuse_waiting() {
  const std::int64_t now = now_ns();
  for (;;) {
    std::shared_ptr<Session> session;
    {
      const std::lock_guard lock(helpers_mutex_);
      if (waiting_.empty()) return;
      const double waited_s = static_cast<double>(now - waiting_.front().since_ns) * 1e-9;
      if (!stopping_ && waited_s <= server_.config().link_timeout_s) return;
      session = std::move(waiting_.front().session);
      waiting_.pop_front();
    }
    guarded(*session, [&] { session->refuse_link(); });
  }
}

void Reactor::add(int fd, std::uint64_t place) {
  count_.fetch_add(1);  // counted here, so that the acceptor sees it at once
  try {
    post(nullptr, [this, fd, place] { take(fd, place); });
  } catch (...) {
    count_.fetch_sub(1);
    throw;
  }
}

void Reactor::take(int fd, std::uint64_t place) {
  std::shared_ptr<Session> session;
  try {
    if (!stopping_) {
      // For drop(), which must not need memory.
      if (dropped_.capacity() < sessions_.size() + 1) dropped_.reserve(2 * (sessions_.size() + 1));
      session = std::make_shared<Session>(*this, fd, place);
      sessions_.emplace(session.get(), session);
    }
  } catch (...) {
    server_.metrics().dropped.fetch_add(1);
    count_.fetch_sub(1);
    if (session) return;  // which closes what it has
    server_.gate().leave(place);
    ::close(fd);
    return;
  }
  if (!session) {
    count_.fetch_sub(1);
    server_.gate().leave(place);
    ::close(fd);
    return;
  }
  guarded(*session, [&] { watch(*session); });
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
  // While a session does not receive, the end of its peer would be an event at each turn. It is found once it does.
  const std::uint32_t events = s.events(), wanted = events & EPOLLIN ? events | EPOLLRDHUP : events;
  // A link in the making belongs to another thread: no events of it, not even of its end.
  set(s.fd(), s.watched, s.upgrading() ? 0 : s.needs_arm() ? static_cast<std::uint32_t>(EPOLLIN) : wanted);
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
  {
    const std::lock_guard lock(mutex_);
    stop_by_ = deadline;
    told_to_stop_ = true;
  }
  wake();
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
      if (sessions_.contains(s)) came |= ready(*s);
    if (came) n = -1;
  } while (n == 0 && spin_.again());
  if (sample && n != 0) step_aside(switches);
  return n;
}

/// The awaited data came while another thread ran on this core: most likely the client itself, which the kernel likes
/// to keep close to whom it wakes. Two that wait without sleeping are better off on two cores, if there are.
void Reactor::step_aside(long switches) {
  const std::int64_t now = now_ns();
  if (Spin::switches() == switches || now < stay_until_ns_) return;
  cpu_set_t allowed, others;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  others = allowed;
  CPU_CLR(static_cast<std::size_t>(::sched_getcpu()), &others);
  if (::sched_setaffinity(0, sizeof others, &others) == 0) ::sched_setaffinity(0, sizeof allowed, &allowed);
  // When every core is busy this has no advantage: it is tried less and less often.
  stay_ns_ = now - stay_until_ns_ < 4 * stay_ns_ ? std::min(2 * stay_ns_, stay_most_ns) : stay_least_ns;
  stay_until_ns_ = now + stay_ns_;
}

void Reactor::run() {
  looked_ns_ = now_ns();
  do {
    try {
      turn();
    } catch (...) {  // out of memory for what belongs to no session: the next turn may have some
      server_.failed("a thread of the server ran out of memory; it continues");
    }
  } while (!ended());
  for (auto& h : helpers_) h.thread.join();
  helpers_.clear();
  polled_.clear();
  sessions_.clear();
  dropped_.clear();
}

void Reactor::turn() {
  dropped_.clear();
  // A client that was served a moment ago may send more at once.
  int n = worked_ ? look(events_) : 0;
  worked_ = n != 0;
  n = std::max(n, 0);
  if (!worked_) {
    // A fabric's link is asked again and again while something goes on; once it says that it can sleep it costs
    // nothing until its descriptor wakes it. One without a descriptor of its own is looked at every 20 ms all the
    // same: its bell may be late.
    bool rest = true, deaf = false;
    asked_ = polled_;
    for (Session* s : asked_) {
      rest &= guarded(*s, [&] { return s->arm(); });
      deaf |= s->own_fd() < 0;
    }
    dropped_.clear();
    const int wait_ms = !rest ? 0 : deaf ? 20 : stopping_ ? 5 : 1000;
    const std::int64_t begin = now_ns();
    n = ::epoll_wait(epoll_, events_.data(), static_cast<int>(events_.size()), wait_ms);
    worked_ = n > 0 || !rest;
    if (n > 0 && rest) spin_.slept(now_ns() - begin);
    if (!rest || n == 0) {
      asked_ = polled_;
      for (Session* s : asked_)
        if (sessions_.contains(s) && (n == 0 || !s->armed())) ready(*s);
    }
  }
  for (int k = 0; k < n; ++k) {
    auto* s = static_cast<Session*>(events_[static_cast<std::size_t>(k)].data.ptr);
    if (!s) {
      std::uint64_t count;
      (void)!::read(wake_, &count, sizeof count);
      continue;
    }
    if (sessions_.contains(s)) ready(*s);
    dropped_.clear();  // or a turn holds the memory of all that it ended
  }
  std::vector<Posted> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(posted_);
    woken_ = false;
    stopping_ |= told_to_stop_;
  }
  for (auto& task : tasks) {
    if (task.session) guarded(*task.session, task.run);
    else task.run();
  }
  tasks.clear();
  if (lost_.exchange(false)) {
    std::vector<std::shared_ptr<Session>> lost;
    for (auto& [s, own] : sessions_)
      if (s->lost()) lost.push_back(own);
    for (auto& s : lost) s->drop_lost();
  }
  // The clock is read when nothing is to be done, or now and then.
  const bool timely = n == 0 || ++turns_ % 256 == 0;
  if (const std::int64_t now = timely ? now_ns() : looked_ns_; now - looked_ns_ > look_every_ns) {
    looked_ns_ = now;
    look_after();
  }
}

/// Those whose time is over.
void Reactor::look_after() {
  std::vector<std::shared_ptr<Session>> all;
  for (auto& [s, own] : sessions_) all.push_back(own);
  for (auto& s : all) guarded(*s, [&] { s->look_after(looked_ns_); });
  refuse_waiting();
}

/// Sends goodbye to all connections when the server ends. Returns whether none is left.
bool Reactor::ended() {
  if (!stopping_) return false;
  try {
    refuse_waiting();
    std::vector<Session*> idle;
    for (auto& [s, own] : sessions_)
      if (!s->busy() || stop_by_.passed()) idle.push_back(s);
    for (Session* s : idle)
      if (!s->upgrading()) guarded(*s, [&] { s->goodbye(); });
    bool upgrading = false;
    for (auto& [s, own] : sessions_) upgrading |= s->upgrading();
    return !upgrading && (sessions_.empty() || stop_by_.passed());
  } catch (...) {
    return stop_by_.passed();
  }
}

}  // namespace sonde::store
