// The engine of all ofi transports: its life, credits, waiting and the goodbye.
#include "store/module/ofi/link.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "core/clock.hpp"
#include "store/module/ofi/link_parts.hpp"

namespace sonde::store::ofi {

namespace {

constexpr std::int64_t gone_grace_ns = 100'000'000;  ///< time for a dead peer's last messages to arrive
constexpr std::int64_t linger_ns = 250'000'000,
                       linger_most_ns =
                           1'000'000'000;  ///< at the end: for a peer that reads nothing; for one that reads
constexpr std::int64_t recent_ns = 1'000'000'000;
constexpr std::int64_t bell_poll_first_ns = 10'000'000, bell_poll_most_ns = 50'000'000;
constexpr unsigned look_every = 256;
constexpr std::int64_t untold_most_ns = 5'000'000;

}  // namespace

BufferPlan plan_buffers(const Demands& demands, std::size_t frame_data) {
  // Pinned memory is scarce, and a thousand connections share it. With other providers a page that no message ever
  // filled uses no memory.
  const std::size_t most = std::clamp<std::size_t>(demands.receives / 2, 4, 16);
  if (demands.local_mr) return {most, 32u << 10};
  // A frame of the usual size fits into one buffer. There are few large buffers, because they are filled in turn and
  // should stay in a cache.
  const std::size_t bytes = std::min(frame_data, wire::data_bytes_max) + (16u << 10);
  return {std::min(most, std::max<std::size_t>(6, (2u << 20) / bytes)), bytes};
}

OfiLink::OfiLink(std::unique_ptr<Port> port, Control& control, const LinkOptions& options, Sink& sink)
    : port_(std::move(port)),
      control_(control),
      options_(options),
      sink_(&sink),
      demands_(port_->demands()),
      provider_(port_->provider()),
      spin_(options.spin_s, port_->waiting() == Wait::none ? bell_spin : SpinPolicy{}) {}

OfiLink::~OfiLink() {
  if (port_ && !closed_ && hello_) say_goodbye();
  shut();
}

void OfiLink::shut() {
  if (!port_) return;
  // Some providers read a peer's memory even when it is no longer the announced memory. A peer that reads from now on
  // must see that this end is closed, and its announcements with it.
  if (!announcements_.empty()) ::shutdown(control_.fd(), SHUT_WR);
  // The order is: operations, then the registrations that they use, then the domain of these, then the memory.
  port_->stop(agreement_.one_process);
  for (auto& message : messages_) {
    for (Region& region : message->regions) port_->strike(region);
    port_->strike(message->large.region);
  }
  if (reading_)
    for (auto& step : reading_->steps) port_->strike(step->region);
  for (Memory* memory : {receive_memory_.get(), send_memory_.get(), read_memory_.get()})
    if (memory) port_->strike(memory->region);
  if (agreement_.one_process) retire(std::move(port_), agreement_.token);
  else port_.reset();
  for (auto& message : messages_) free_memory(message->large);
  for (Memory* memory : {receive_memory_.get(), send_memory_.get(), read_memory_.get()})
    if (memory) free_memory(*memory);
  arrived_.clear();
  early_.clear();
  unposted_.clear();
  idle_.clear();
  announcements_.clear();
  silent_.clear();
  stalled_ = nullptr;
  reading_.reset();
  buffers_.clear();
  messages_.clear();
  queue_.clear();
  queued_bytes_ = in_flight_ = 0;
}

Result<void> OfiLink::allocate(Memory& memory, std::size_t bytes, bool remote) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED)
    return Error{"store.no_memory", "no memory for " + std::to_string(bytes) + " bytes of buffers",
                 "close other connections, or raise the memory limit"};
  memory.base = static_cast<std::byte*>(base);
  memory.size = bytes;
  if (demands_.local_mr || remote) {
    auto region = port_->enrol(base, bytes, remote);
    if (!region) {
      free_memory(memory);
      return region.error();
    }
    memory.region = *region;
  }
  return {};
}

void OfiLink::free_memory(Memory& memory) {
  if (memory.base) ::munmap(memory.base, memory.size);
  memory = {};
}

Result<void> OfiLink::prepare(const Agreement& agreement) {
  agreement_ = agreement;
  receive_memory_ = std::make_unique<Memory>();
  send_memory_ = std::make_unique<Memory>();
  if (auto ok = allocate(*receive_memory_, agreement_.own_buffers * agreement_.own_bytes); !ok) return ok;
  if (auto ok = allocate(*send_memory_, (messages_max + messages_for_control) * slot_bytes); !ok) return ok;
  for (std::size_t k = 0; k < agreement_.own_buffers; ++k) {
    auto& buffer = buffers_.emplace_back(std::make_unique<Buffer>());
    buffer->context.op = Context::Op::receive;
    buffer->at = receive_memory_->base + k * agreement_.own_bytes;
    if (!post_receive(*buffer))
      return Error{"store.fabric", "'" + provider_ + "' accepts no more than " + std::to_string(k) + " receives",
                   "choose another provider"};
  }
  return {};
}

bool OfiLink::post_receive(Buffer& buffer) {
  buffer.taken = 0;
  looked_ = false;
  return port_->receive(buffer.at, agreement_.own_bytes, demands_.local_mr ? &receive_memory_->region : nullptr,
                        &buffer.context) == 0;
}

Result<void> OfiLink::greet(Deadline deadline) {
  bool said = false;
  while (true) {
    if (!said) said = say(MessageKind::hello);
    collect();
    if (failure_) return *failure_;
    if (said && hello_) break;
    while (true) {
      const Event event = port_->event(nullptr);
      if (event == Event::none) break;
      if (event == Event::shutdown || event == Event::failed)
        return lost(provider_, "the peer hung up during the greeting");
    }
    if (deadline.passed())
      return Error{"store.timed_out", "no greeting over '" + provider_ + "' in time",
                   "the provider may be blocked between these hosts; try another"};
    // It is not known yet which side has a core, so the wait is gentle.
    const timespec pause{0, 20'000};
    ::nanosleep(&pause, nullptr);
  }
  port_->settle();
  return {};
}

/// The stream is invalid from here: nothing more of it is delivered.
void OfiLink::fail(Error error) {
  poisoned_ = true;
  if (!failure_) failure_ = std::move(error);
}

/// The connection is broken: messages received before that count.
void OfiLink::lose(const std::string& why) {
  if (!failure_) failure_ = lost(provider_, why);
}

void OfiLink::close_now(const Error* error) {
  if (closed_) return;
  closed_ = true;
  queue_.clear();
  queued_bytes_ = 0;
  sink_->closed(*this, error);
}

void OfiLink::look_after() {
  for (Event event; (event = port_->event(nullptr)) != Event::none;)
    if ((event == Event::shutdown || event == Event::failed) && !peer_gone_ns_) peer_gone_ns_ = now_ns();
  if (!peer_gone_ns_ && !control_.heard()) peer_gone_ns_ = now_ns();
}

/// Delivers received messages, and sends those that this made possible. Returns the number of frames delivered.
int OfiLink::move() {
  for (std::size_t k = unposted_.size(); k-- > 0;)
    if (post_receive(*unposted_[k])) {
      given_ += unposted_[k]->owed;
      unposted_.erase(unposted_.begin() + static_cast<std::ptrdiff_t>(k));
    }
  const int frames = deliver();
  if (closed_) return frames;
  pump();
  // Half of the buffers that the peer waits for are reported by a message of their own, if no other message reported
  // them. The rest is reported before a sleep.
  if (given_ - given_told_ >= std::max<std::size_t>(1, agreement_.own_buffers / 2) ||
      released_ - released_told_ >= announcements_max / 2)
    say(MessageKind::credit);
  return frames;
}

int OfiLink::progress() {
  if (closed_) return 0;
  const std::size_t got = collect();
  // After a sleep that no completion ended; if a bell may have ended it; and now and then.
  if ((armed_ && (got == 0 || port_->waiting() == Wait::none)) || control_spoke_ || ++turns_ % look_every == 0 ||
      failure_) {
    look_after();
    collect();
  }
  armed_ = control_spoke_ = false;
  const int frames = move();
  if (closed_) {
    shut();
    return frames;
  }
  if (port_->waiting() == Wait::none && in_flight_) collect();
  if (failure_ && (poisoned_ || arrived_.empty() || reading_)) {
    const Error error = *failure_;
    close_now(&error);
    shut();
    // A read of a peer's memory may never complete after the peer is gone (libfabric 2.1, over tcp).
  } else if (peer_gone_ns_ && (arrived_.empty() || reading_) && now_ns() - peer_gone_ns_ > gone_grace_ns) {
    const Error error = lost(provider_, "the peer ended without a goodbye");
    close_now(&error);
    shut();
  }
  return frames;
}

bool OfiLink::anything_to_deliver() const {
  if (poisoned_) return true;
  if (arrived_.empty()) return failure_ || peer_gone_ns_;
  return receiving_ && !(reading_ && reading_->outstanding && !failure_);
}

int OfiLink::wait_fd() const {
  if (!port_) return -1;
  return port_->waiting() == Wait::none ? control_.fd() : port_->fd();
}

short OfiLink::wait_events() const { return POLLIN; }

bool OfiLink::arm() {
  if (closed_) return true;
  armed_ = true;
  // A descriptor shows everything that comes from the peer, but not operations that completed while they were posted.
  if (((port_->waiting() == Wait::none || !looked_) && collect()) || anything_to_deliver()) return false;
  if (stalled_) pump();
  if (port_->waiting() != Wait::none) {
    if (released_told_ != released_) say(MessageKind::credit);
    return port_->may_sleep();
  }
  if (!asleep_told_) {
    asleep_told_ = say(MessageKind::asleep);
    if (collect() || anything_to_deliver()) return false;
  }
  if (asleep_told_ && !stalled_) {
    untold_ns_ = 0;
    return true;
  }
  // If the peer does not know that this side sleeps, only chance ends the sleep. A peer that reads nothing for so long
  // has stopped, or is hostile.
  const std::int64_t now = now_ns();
  if (!untold_ns_) untold_ns_ = now;
  return now - untold_ns_ > untold_most_ns;
}

void OfiLink::wait(Deadline deadline) {
  if (closed_ || (anything_to_deliver() && !peer_gone_ns_)) return;
  if (!peer_gone_ns_ && spin_.begin(deadline.at_ns)) {
    do {
      if (collect()) {
        if (!queue_.empty() || stalled_) pump();
        return;
      }
    } while (spin_.again());
    if (deadline.passed()) return;
  }
  const std::int64_t slept = now_ns();
  std::int64_t bell_poll = bell_poll_first_ns;
  while (!deadline.passed()) {
    if (!arm() && !peer_gone_ns_) break;
    pollfd waits[2] = {{control_.fd(), POLLIN, 0}, {port_->waiting() == Wait::none ? -1 : port_->fd(), POLLIN, 0}};
    std::int64_t most = port_->waiting() == Wait::none ? bell_poll : 1'000'000'000;
    if (peer_gone_ns_) {
      waits[0].fd = -1;  // its end stays readable for ever
      most = 5'000'000;
    }
    if (deadline.at_ns) most = std::min(most, deadline.at_ns - now_ns());
    const timespec time{std::max<std::int64_t>(most, 0) / 1'000'000'000,
                        std::max<std::int64_t>(most, 0) % 1'000'000'000};
    const int ready = ::ppoll(waits, 2, &time, nullptr);
    control_spoke_ |= waits[0].revents != 0;
    if (ready > 0 || peer_gone_ns_) break;
    if (ready < 0 && errno != EINTR) break;
    if (collect()) break;
    bell_poll = std::min(2 * bell_poll, bell_poll_most_ns);
  }
  spin_.slept(now_ns() - slept);
}

void OfiLink::say_goodbye() {
  const std::int64_t begin = now_ns();
  const bool recent = begin - last_sent_ns_ < recent_ns;
  std::int64_t moved = begin;
  bool said = false;
  // Accepted frames must arrive, if the peer reads them; and a socket that closes with unread data discards what it had
  // sent. An idle connection has neither.
  for (unsigned turn = 0;; ++turn) {
    if (collect()) moved = now_ns();
    if (failure_ || peer_gone_ns_) return;
    for (Buffer* buffer : arrived_) peer_said_bye_ |= static_cast<MessageKind>(buffer->header.kind) == MessageKind::bye;
    if (peer_said_bye_ && queue_.empty() && !in_flight_) break;
    pump();
    const bool drained = nothing_under_way();
    if (drained && !said) {
      said = said_bye_ = say(MessageKind::bye);
      continue;
    }
    if (said && drained && (bye_seen_ || !recent)) break;
    // Buffers that wait here for a delivery that never comes are credits that the peer may need to continue.
    for (Buffer* buffer : arrived_) give_back(*buffer);
    arrived_.clear();
    if (given_ - given_told_ >= std::max<std::size_t>(1, agreement_.own_buffers / 2)) say(MessageKind::credit);
    if (turn % 16 == 0) look_after();
    if (const std::int64_t now = now_ns(); now - moved > linger_ns || now - begin > linger_most_ns) break;
    if (turn < 64) {
      ::sched_yield();
    } else {
      const timespec pause{0, 50'000};
      ::nanosleep(&pause, nullptr);
    }
  }
}

LinkInfo OfiLink::info() const {
  std::string detail =
      std::to_string(agreement_.own_buffers) + " receives of " + std::to_string(agreement_.own_bytes >> 10) + " KiB";
  detail += ", inject " + std::to_string(demands_.inject) + " B, " + std::to_string(demands_.iovs) + " vectors";
  if (const std::string modes = demands_.text(); !modes.empty()) detail += ", supports " + modes;
  if (agreement_.transport == "ofi-rma") {
    detail +=
        agreement_.rma_from < 0 ? ", never by RMA" : ", by RMA from " + std::to_string(agreement_.rma_from) + " B";
    if (agreement_.rma_from >= 0 && frames_sent_)
      detail += " (" + std::to_string(frames_by_rma_) + " of " + std::to_string(frames_sent_) + " frames)";
  }
  if (dropped_) detail += ", " + std::to_string(dropped_) + " messages from other processes dropped";
  if (!options_.gather)
    detail += options_.await ? ", one send for each piece, each awaited" : ", one send for each piece";
  return {agreement_.transport, provider_, detail};
}

}  // namespace sonde::store::ofi
