// Requests are a stream of messages; the first has a header with the lengths. Answers have no header. The best message
// length is measured at the beginning: providers differ, and the goal is the highest rate that they reach. Each end
// posts its receives in the order in which messages come: the n-th message is in the n-th receive, whenever its
// completion is reported. The server's receives use a small memory in turn, the client's the memory of its caller.
//
//   client                     server
//   'T' n style provider  -->  opens a Port
//                         <--  'A' n format address    or 'N' n reason, and the client tries its next
//   'G' address           -->  … connects …
//                         <--  'R' n                   or 'N' n reason
//   exchanges, to see whether it works, and with which messages best; 'X' --> if it does not
//
// n numbers the attempts: an answer to an attempt that was given up is ignored.
#include "store/module/ofi/raw.hpp"

#include <poll.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "store/module/ofi/transport.hpp"

namespace sonde::store::ofi {

namespace {

constexpr std::array<std::size_t, 3> pieces_tried{32u << 10, 128u << 10, 512u << 10};
constexpr std::size_t piece_max = pieces_tried.back(), window = 8;
constexpr std::size_t trial_bytes = 2u << 20, trials = 3;
constexpr std::int64_t patience_ns = 30'000'000'000;
constexpr double answer_s = 5;

struct Lengths {
  std::uint64_t out, in, piece;
};

/// A message that is posted. The provider returns the address of its first member.
struct Slot {
  Context context;
  iovec pieces[2];
  void* descriptors[2];
  std::size_t bytes = 0;  ///< received bytes
  bool busy = false;
};

// The layout of an end's memory.
constexpr std::size_t receive_bytes = piece_max + sizeof(Lengths);
constexpr std::size_t header_at = window * receive_bytes, joined_at = header_at + sizeof(Lengths),
                      send_at = joined_at + receive_bytes, own_bytes = send_at + piece_max;

/// Client or server.
class End {
 public:
  End(std::unique_ptr<Port> port, Control& control, RawBells& bells, int self)
      : port_(std::move(port)),
        control_(control),
        bells_(bells),
        self_(self),
        spin_(-1, port_->waiting() == Wait::none ? bell_spin : SpinPolicy{}) {
    own_.resize(own_bytes);
  }
  ~End() {
    port_->stop(false);
    for (Region& region : regions_) port_->strike(region);
    port_.reset();  // before the posted memory
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  Port& port() const { return *port_; }

  /// Call it when the endpoint exists.
  Result<void> prepare(MutableBytes memory) {
    if (!port_->demands().local_mr) return {};
    for (const MutableBytes bytes : {MutableBytes(own_), memory}) {
      if (bytes.empty()) continue;
      auto region = port_->enrol(bytes.data(), bytes.size(), false);
      if (!region) return region.error();
      regions_.push_back(*region);
    }
    return {};
  }

  Result<void> post_receive(Slot& slot, std::byte* at, std::size_t bytes) {
    slot.context.op = Context::Op::receive;
    slot.bytes = 0;
    return posted(slot, [&] { return port_->receive(at, bytes, region_of(at), &slot.context); });
  }

  /// head: bytes that are sent first, in the same message.
  Result<void> post_send(const std::byte* head, std::size_t head_bytes, const std::byte* at, std::size_t bytes) {
    const Demands& demands = port_->demands();
    // A small message is sent at once and needs no completion.
    std::byte small[256];
    if (head_bytes + bytes <= std::min(demands.inject, sizeof small)) {
      if (head_bytes) std::memcpy(small, head, head_bytes);
      std::memcpy(small + head_bytes, at, bytes);
      Slot none;
      auto ok = posted(none, [&] { return port_->inject(small, head_bytes + bytes); });
      ring();
      return ok;
    }
    if (auto ok = wait([&] { return sending_ < std::min(window, demands.sends / 2); }); !ok) return ok;
    Slot& slot = sends_[next_send_++ % sends_.size()];
    if (auto ok = wait([&] { return !slot.busy; }); !ok) return ok;
    if (head_bytes && demands.iovs < 2) {
      std::byte* const joined = own_.data() + joined_at;
      std::memcpy(joined, head, head_bytes);
      std::memcpy(joined + head_bytes, at, bytes);
      at = joined;
      bytes += head_bytes;
      head_bytes = 0;
    }
    std::size_t n = 0;
    for (const auto& [from, length] : {std::pair{head, head_bytes}, std::pair{at, bytes}})
      if (length) {
        slot.pieces[n] = {const_cast<std::byte*>(from), length};
        const Region* region = region_of(from);
        slot.descriptors[n++] = region ? region->descriptor : nullptr;
      }
    slot.context.op = Context::Op::send;
    auto ok = posted(slot, [&] { return port_->send(slot.pieces, slot.descriptors, n, &slot.context, true); });
    if (ok) ++sending_;
    ring();
    return ok;
  }

  Result<void> sent() {
    return wait([&] { return sending_ == 0; });
  }

  /// Polls for completions until `done`.
  template <typename Done> Result<void> wait(Done done, bool idle = false) {
    const auto over = [&] {
      collect();
      return done() || error_;
    };
    const std::int64_t begin = now_ns();
    while (!over()) {
      bool found = false;
      if (spin_.begin()) do
          found = over();
        while (!found && spin_.again());
      if (found) break;
      const std::int64_t now = now_ns();
      if (!idle && now - begin > patience_ns)
        return fail({"store.timed_out", "the other end of '" + port_->provider() + "' sent nothing for 30 s", ""});
      sleep(now - begin);
      spin_.slept(now_ns() - now);
    }
    return error_ ? Result<void>(*error_) : Result<void>();
  }

  std::byte* receive_place(std::size_t k) { return own_.data() + k % window * receive_bytes; }
  std::byte* header_place() { return own_.data() + header_at; }
  MutableBytes send_memory() { return MutableBytes(own_).subspan(send_at, piece_max); }
  Error fail(Error error) {
    error_ = std::move(error);
    return *error_;
  }

 private:
  template <typename Post> Result<void> posted(Slot& slot, Post post) {
    slot.busy = true;
    ssize_t r = -FI_EAGAIN;
    if (auto ok = wait([&] { return (r = post()) != -FI_EAGAIN; }); !ok) return ok;
    if (r == 0) return {};
    slot.busy = false;
    return fail({"store.fabric",
                 "'" + port_->provider() + "' could not accept a message: " + fabric_error(static_cast<int>(-r)),
                 "choose another provider"});
  }

  void collect() {
    std::array<Done, 16> done;
    const std::size_t n = port_->poll(done.data(), done.size());
    for (std::size_t k = 0; k < n; ++k) {
      if (done[k].error || !done[k].context) {
        (void)fail({"store.fabric", "a message over '" + port_->provider() + "' failed: " + done[k].why,
                    "choose another provider"});
        continue;
      }
      Slot& slot = *reinterpret_cast<Slot*>(done[k].context);
      slot.busy = false;
      slot.bytes = done[k].bytes;
      if (slot.context.op == Context::Op::send) --sending_;
    }
    looked_ = n == 0;
  }

  void ring() {
    if (port_->waiting() != Wait::none) return;
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the sent data is visible before the sleeper looks once more
    if (bells_.asleep[1 - self_].exchange(0)) control_.ring();
  }

  void sleep(std::int64_t waited_ns) {
    pollfd waits[2] = {{control_.fd(), POLLIN, 0}, {-1, POLLIN, 0}};
    std::int64_t most_ns = 1'000'000'000;
    if (port_->waiting() == Wait::none) {
      bells_.asleep[self_] = 1;
      std::atomic_thread_fence(std::memory_order_seq_cst);
      collect();
      if (!looked_) {
        bells_.asleep[self_] = 0;
        return;
      }
      // The provider's work on a message that is being sent rings no bell.
      most_ns = sending_ ? 1'000'000 : std::clamp<std::int64_t>(waited_ns, 1'000'000, 50'000'000);
    } else {
      if (!looked_ || !port_->may_sleep()) return;
      waits[1].fd = port_->fd();
    }
    const timespec time{most_ns / 1'000'000'000, most_ns % 1'000'000'000};
    ::ppoll(waits, 2, &time, nullptr);
    if (port_->waiting() == Wait::none) bells_.asleep[self_] = 0;
    if (!waits[0].revents) return;
    char bell[16];
    const ssize_t n = ::recv(control_.fd(), bell, sizeof bell, MSG_DONTWAIT);
    if (n == 0 || (n > 0 && bell[0] != 'r')) (void)fail({"store.disconnected", "the other end is gone", "run again"});
  }

  const Region* region_of(const std::byte* at) const {
    for (const Region& region : regions_)
      if (at >= region.base && at < region.base + region.size) return &region;
    return nullptr;
  }

  std::unique_ptr<Port> port_;
  Control& control_;
  RawBells& bells_;
  int self_;
  std::vector<std::byte> own_;
  std::vector<Region> regions_;
  std::array<Slot, window> sends_;
  std::size_t next_send_ = 0, sending_ = 0;
  Spin spin_;
  bool looked_ = false;
  std::optional<Error> error_;
};

class RawClient final : public RawEnd {
 public:
  RawClient(std::unique_ptr<Port> port, Control& control, RawBells& bells) : end_(std::move(port), control, bells, 0) {}
  End& end() { return end_; }
  const std::string& provider() const override { return end_.port().provider(); }
  std::size_t piece() const override { return piece_; }

  /// Chooses the message length with which a large exchange is fastest.
  Result<void> choose_pieces(MutableBytes memory) {
    std::array<std::int64_t, pieces_tried.size()> best_ns;
    best_ns.fill(std::numeric_limits<std::int64_t>::max());
    for (std::size_t trial = 0; trial < trials; ++trial)
      for (std::size_t k = 0; k < pieces_tried.size(); ++k) {
        piece_ = pieces_tried[k];
        const std::int64_t begin = now_ns();
        for (const auto& [out, in] : {std::pair{trial_bytes, std::size_t{64}}, std::pair{std::size_t{64}, trial_bytes}})
          if (auto ok = exchange(out, in, memory); !ok) return ok;
        best_ns[k] = std::min(best_ns[k], now_ns() - begin);
      }
    piece_ = pieces_tried[static_cast<std::size_t>(std::min_element(best_ns.begin(), best_ns.end()) - best_ns.begin())];
    return {};
  }

  Result<void> exchange(std::size_t out, std::size_t in, MutableBytes memory) override {
    // For a case of less than a message the data comes from our own memory.
    const MutableBytes from = memory.size() < std::min(out, piece_) ? end_.send_memory() : memory;
    const MutableBytes into =
        memory.size() < std::min(in, piece_) ? MutableBytes(end_.receive_place(0), piece_max) : memory;
    Way want{into, piece_}, give{from, piece_};
    std::size_t asked = 0, posted = 0, taken = 0;
    const auto ask = [&]() -> Result<void> {
      for (; asked < in && posted - taken < window; ++posted) {
        const MutableBytes piece = want.next(in - asked);
        asked += piece.size();
        if (auto ok = end_.post_receive(receives_[posted % window], piece.data(), piece.size()); !ok) return ok;
      }
      return {};
    };
    if (auto ok = ask(); !ok) return ok;
    const Lengths lengths{out, in, piece_};
    std::memcpy(end_.header_place(), &lengths, sizeof lengths);
    std::size_t head = sizeof lengths;
    for (std::size_t sent = 0; sent < out || head; head = 0) {
      const MutableBytes piece = give.next(out - sent);
      sent += piece.size();
      if (auto ok = end_.post_send(end_.header_place(), head, piece.data(), piece.size()); !ok) return ok;
    }
    for (; taken < posted; ++taken) {
      Slot& slot = receives_[taken % window];
      if (auto ok = end_.wait([&] { return !slot.busy; }); !ok) return ok;
      if (posted - taken <= window / 2) continue;
      if (auto ok = ask(); !ok) return ok;
    }
    return end_.sent();
  }

 private:
  /// Pieces of a memory, one behind the other; again from the beginning when no whole piece is left.
  struct Way {
    MutableBytes memory;
    std::size_t piece, at = 0;
    MutableBytes next(std::size_t left) {
      const std::size_t bytes = std::min(left, piece);
      if (at + bytes > memory.size()) at = 0;
      at += bytes;
      return memory.subspan(at - bytes, bytes);
    }
  };
  std::size_t piece_ = pieces_tried.front();
  std::array<Slot, window> receives_;
  End end_;  // destroyed first: the slots are posted
};

Result<void> connected(Control& control, Port& port, Event wanted, Deadline deadline) {
  for (int spoken = 0;;) {
    const Event event = port.event(nullptr);
    if (event == wanted) return {};
    if (event == Event::failed || event == Event::shutdown)
      return Error{"store.fabric", "'" + port.provider() + "' could not connect", "choose another provider"};
    if (deadline.passed())
      return Error{"store.timed_out", "'" + port.provider() + "' did not connect in time", "choose another provider"};
    pollfd wait{control.fd(), POLLIN, 0};
    if (::poll(&wait, 1, 1) <= 0) continue;
    // The peer gave up, or was connected first and reports that: then the event is on its way.
    const timespec pause{0, 1'000'000};
    ::nanosleep(&pause, nullptr);
    if (++spoken > 1000)
      return Error{"store.fabric", "the other end of '" + port.provider() + "' gave up", "choose another provider"};
  }
}

using Message = std::vector<std::byte>;

Message message(char letter, std::uint8_t attempt, Bytes more = {}) {
  Message bytes{static_cast<std::byte>(letter), std::byte{attempt}};
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

bool is(const Message& bytes, char letter) { return bytes.size() >= 2 && bytes[0] == static_cast<std::byte>(letter); }
Bytes rest(const Message& bytes) { return Bytes(bytes).subspan(2); }

PortOptions options_of(const Candidate& candidate) {
  PortOptions how;
  how.style = candidate.style;
  how.provider = candidate.provider;
  how.node = "127.0.0.1";
  return how;
}

Result<Message> answer_of(Control& control, char wanted, std::uint8_t number, Deadline deadline) {
  while (true) {
    auto answer = control.receive(deadline);
    if (!answer) return answer.error();
    if ((*answer).size() < 2 || (*answer)[1] != std::byte{number}) continue;
    if (is(*answer, 'N')) return Error{"store.fabric", std::string(text_of(rest(*answer))), ""};
    if (is(*answer, wanted)) return answer;
  }
}

Result<std::unique_ptr<RawEnd>> attempt(Control& control, RawBells& bells, const Candidate& candidate,
                                        std::uint8_t number, MutableBytes memory) {
  const Deadline deadline = Deadline::in_s(2 * answer_s);
  std::string request(1, candidate.style == Style::msg ? 'm' : 'r');
  if (auto ok = control.send(message('T', number, bytes_of(request + candidate.provider))); !ok) return ok.error();
  const auto given_up = [&](const Error& error) {
    (void)!control.send(message('X', number));
    return error;
  };
  const auto offer = answer_of(control, 'A', number, deadline);
  if (!offer) return given_up(offer.error());
  PortOptions how = options_of(candidate);
  std::uint32_t format = 0;
  if (rest(*offer).size() < sizeof format) return given_up({"store.fabric", "the other end sent an invalid offer", ""});
  std::memcpy(&format, rest(*offer).data(), sizeof format);
  const Bytes address = rest(*offer).subspan(sizeof format);
  if (candidate.style == Style::msg) {
    how.peer.assign(address.begin(), address.end());
    how.peer_format = format;
  }
  auto port = Port::open(how);
  if (!port) return given_up(port.error());
  std::vector<std::byte> own;
  if (candidate.style == Style::rdm) {
    auto name = (*port)->address();
    if (!name) return given_up(name.error());
    own = *name;
    if (auto ok = (*port)->set_peer(address); !ok) return given_up(ok.error());
  }
  auto client = std::make_unique<RawClient>(std::move(*port), control, bells);
  if (auto ok = client->end().prepare(memory); !ok) return given_up(ok.error());
  if (auto ok = control.send(message('G', number, own)); !ok) return ok.error();
  if (candidate.style == Style::msg) {
    if (auto ok = client->end().port().connect({}); !ok) return given_up(ok.error());
    if (auto ok = connected(control, client->end().port(), Event::connected, deadline); !ok)
      return given_up(ok.error());
  }
  if (const auto ready = answer_of(control, 'R', number, deadline); !ready) return given_up(ready.error());
  if (auto ok = client->choose_pieces(memory); !ok) return given_up(ok.error());
  client->end().port().settle();
  return std::unique_ptr<RawEnd>(std::move(client));
}

Result<std::unique_ptr<RawEnd>> connect(Control& control, RawBells& bells, const std::string& provider,
                                        MutableBytes memory) {
  std::vector<Candidate> candidates = candidates_of(Flavour::rdm);
  const std::vector<Candidate> more = candidates_of(Flavour::msg);
  candidates.insert(candidates.end(), more.begin(), more.end());
  std::erase_if(candidates, [&](const Candidate& c) {
    return provider.empty() ? trusts_strangers(c.provider) : c.provider != provider;
  });
  std::string whys;
  std::uint8_t number = 0;
  for (const Candidate& candidate : candidates) {
    const Flavour flavour = candidate.style == Style::msg ? Flavour::msg : Flavour::rdm;
    const Found found = probed(flavour, candidate, Deadline::in_s(answer_s));
    auto end = found.works ? attempt(control, bells, candidate, ++number, memory)
                           : Result<std::unique_ptr<RawEnd>>(Error{"store.no_provider", found.why, ""});
    if (end) return end;
    whys += (whys.empty() ? "" : "; ") + candidate.provider + ": " + end.error().what;
  }
  return Error{"store.no_provider",
               "no provider of libfabric moves bytes here" +
                   (whys.empty() ? provider.empty() ? "" : ": there is no '" + provider + "'" : ": " + whys),
               "leave raw-ofi out"};
}

/// Serves until the client is gone, or tries another provider.
Result<void> answer(Control& control, RawBells& bells, const Candidate& candidate, std::uint8_t number) {
  const Deadline deadline = Deadline::in_s(answer_s);
  auto port = Port::open(options_of(candidate));
  if (!port) return port.error();
  const auto address = (*port)->address();
  if (!address) return address.error();
  const std::uint32_t format = (*port)->address_format();
  std::vector<std::byte> offer(sizeof format);
  std::memcpy(offer.data(), &format, sizeof format);
  offer.insert(offer.end(), (*address).begin(), (*address).end());
  if (auto ok = control.send(message('A', number, offer)); !ok) return ok;
  const auto go = control.receive(deadline);
  if (!go) return go.error();
  if (!is(*go, 'G')) return {};
  if (candidate.style == Style::rdm) {
    if (auto ok = (*port)->set_peer(rest(*go)); !ok) return ok;
  } else {
    if (auto ok = connected(control, **port, Event::request, deadline); !ok) return ok;
    if (auto ok = (*port)->take_request(); !ok) return ok;
  }
  std::array<Slot, window> slots;
  End end(std::move(*port), control, bells, 1);
  if (auto ok = end.prepare({}); !ok) return ok;
  const auto post = [&](std::size_t k) {
    return end.post_receive(slots[k % window], end.receive_place(k), receive_bytes);
  };
  for (std::size_t k = 0; k < window; ++k)
    if (auto ok = post(k); !ok) return ok;
  if (candidate.style == Style::msg) {
    if (auto ok = end.port().accept(); !ok) return ok;
    if (auto ok = connected(control, end.port(), Event::connected, deadline); !ok) return ok;
  }
  if (auto ok = control.send(message('R', number)); !ok) return ok;
  std::size_t next = 0;
  const auto take = [&](bool idle) { return end.wait([&] { return !slots[next % window].busy; }, idle); };
  while (true) {
    if (auto ok = take(true); !ok) return {};
    if (next == 0) end.port().settle();
    Lengths lengths;
    std::memcpy(&lengths, end.receive_place(next), sizeof lengths);
    std::uint64_t got = slots[next % window].bytes - sizeof lengths;
    if (auto ok = post(next++); !ok) return {};
    while (got < lengths.out) {
      if (auto ok = take(false); !ok) return {};
      got += slots[next % window].bytes;
      if (auto ok = post(next++); !ok) return {};
    }
    for (std::uint64_t left = lengths.in; left;) {
      const std::size_t bytes = std::min({left, lengths.piece, std::uint64_t{piece_max}});
      if (auto ok = end.post_send(nullptr, 0, end.send_memory().data(), bytes); !ok) return {};
      left -= bytes;
    }
    if (auto ok = end.sent(); !ok) return {};
  }
}

void serve(Control& control, RawBells& bells) {
  while (true) {
    const auto request = control.receive(Deadline{});
    if (!request) return;
    if (!is(*request, 'T') || (*request).size() < 4) continue;  // a remnant of an attempt that failed
    const std::string text(text_of(rest(*request)));
    const Candidate candidate{text.substr(1), text[0] == 'm' ? Style::msg : Style::rdm};
    const auto number = std::to_integer<std::uint8_t>((*request)[1]);
    if (auto ok = answer(control, bells, candidate, number); !ok)
      (void)!control.send(message('N', number, bytes_of(ok.error().what)));
  }
}

const RawFabric raw_fabric{connect, serve};

}  // namespace

}  // namespace sonde::store::ofi

extern "C" const sonde::store::ofi::RawFabric* sonde_store_raw_fabric() { return &sonde::store::ofi::raw_fabric; }
