// The engine of all ofi transports: the trial of messages and remote reads, which decides between both.
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>

#include "core/clock.hpp"
#include "store/module/ofi/link_parts.hpp"
#include "store/module/ofi/threshold.hpp"

namespace sonde::store::ofi {

namespace {

/// For the trial: rounds, the first of which does not count; operations in a row; the most time in all, and the time
/// after which no further round begins.
constexpr int trial_rounds = 12, trial_rounds_min = 4, trial_row = 2;
constexpr std::int64_t trial_usual_ns = 30'000'000, trial_longest_ns = 1'000'000'000;

}  // namespace

// The trial sends frames in the same way as normal use: cut in the same way, announced and registered one by one,
// delivered by the same turns, with data that the peer has just written. A shorter test, such as a read of memory that
// both ends prepared once, would omit the costs that decide between the two ways where they are close.

void OfiLink::Trial::frame(Link&, const wire::Header& h, Bytes, Bytes bytes, bool placed) {
  if (h.id == taken) {
    done = true;
  } else if (h.id == over) {
    left = true;
    own.receiving_ = false;
  } else if (h.id == fetch_by_message || h.id == fetch_by_rma) {
    if (h.timeout_ms > memory->size()) return own.fail(bad_message("a trial of too many bytes"));
    if (own.queued_bytes_) return own.fail(too_early());
    // Written again, as a backend does: then the data is in this core's cache, and not in the peer's.
    std::memset(memory->data(), ++fill, h.timeout_ms);
    own.trial_send(h.timeout_ms, h.id == fetch_by_rma);
  } else if (h.id == data || h.id == data_end) {
    if (!fits(h)) return own.fail(bad_message("a trial of too many bytes"));
    if (!placed && h.data_bytes) std::memcpy(memory->data() + got, bytes.data(), h.data_bytes);
    got += h.data_bytes;
    if (h.id == data) return;
    got = 0;
    if (asks) {
      done = true;
    } else if (own.queued_bytes_) {
      own.fail(too_early());
    } else {
      own.send(own.trial_frame(0, 0, taken));
      own.flush();
    }
  }
}

Outgoing OfiLink::trial_frame(std::size_t bytes, std::size_t from, std::uint64_t id) {
  wire::Header h;
  h.kind = wire::Kind::ping;
  h.id = id;
  h.data_bytes = static_cast<std::uint32_t>(bytes);
  Outgoing out;
  out.head.resize(wire::header_bytes);
  wire::encode(h, out.head.data());
  if (bytes) {
    out.segments.push_back(Bytes(*trial_->memory).subspan(from, bytes));
    out.keep = trial_->memory;
  }
  return out;
}

void OfiLink::trial_send(std::size_t bytes, bool by_rma) {
  agreement_.rma_from = by_rma ? 0 : -1;
  for (std::size_t at = 0; at < bytes;) {
    const std::size_t n = std::min(bytes - at, agreement_.frame_data);
    send(trial_frame(n, at, at + n == bytes ? Trial::data_end : Trial::data));
    at += n;
  }
  flush();
}

void OfiLink::enter_trial() {
  trial_ = std::make_unique<Trial>(*this, sink_);
  sink_ = trial_.get();
}

void OfiLink::serve() {
  collect();
  if (trial_) move();
  else if (stalled_) pump();
}

bool OfiLink::served() const { return !trial_ || trial_->left || failure_ || closed_; }

Result<void> OfiLink::trial_until(const bool& flag, Deadline deadline) {
  while (!flag) {
    collect();
    move();
    if (failure_) return *failure_;
    if (closed_) return lost(provider_, "the peer ended it");
    if (deadline.passed())
      return Error{"store.timed_out", "no answer over '" + provider_ + "' in time",
                   "the provider may be blocked between these hosts; try another"};
    ::sched_yield();
  }
  return {};
}

Result<Thresholds> OfiLink::measure_rma(Deadline deadline) {
  static constexpr std::array<std::uint32_t, 4> sizes{16u << 10, 64u << 10, 256u << 10, 1u << 20};
  trial_->asks = true;
  const auto try_one = [&](bool fetch, std::uint32_t bytes, bool by_rma) -> Result<void> {
    trial_->done = false;
    if (fetch) {
      Outgoing out = trial_frame(0, 0, by_rma ? Trial::fetch_by_rma : Trial::fetch_by_message);
      wire::Header h = *wire::decode(out.head.data());
      h.timeout_ms = bytes;
      wire::encode(h, out.head.data());
      send(std::move(out));
      flush();
    } else {
      trial_send(bytes, by_rma);
    }
    return trial_until(trial_->done, deadline);
  };
  // For used and placed.
  std::array<std::array<Tried, sizes.size()>, 2> tried;
  const std::int64_t begin = now_ns();
  const auto enough = [&](int round) {
    return now_ns() - begin > (round < trial_rounds_min ? trial_longest_ns : trial_usual_ns);
  };
  // The first round faults memory in. Where processors are few, both ends get their own in it.
  for (int round = 0; round < trial_rounds && !enough(round); ++round)
    for (int fetch = 0; fetch < 2; ++fetch)
      for (std::size_t s = 0; s < sizes.size() && !enough(round); ++s) {
        std::array<std::int64_t, 2> took{};
        // The order changes, so that no result depends on it. Each way runs several times in a row, as in use; its
        // first run fills the caches.
        for (int k = 0; k < 2; ++k) {
          const bool by_rma = (k + round) % 2;
          if (auto ok = try_one(fetch, sizes[s], by_rma); !ok) return ok.error();
          const std::int64_t from = now_ns();
          for (int n = 0; n < trial_row; ++n)
            if (auto ok = try_one(fetch, sizes[s], by_rma); !ok) return ok.error();
          took[by_rma] = now_ns() - from;
        }
        Tried& t = tried[static_cast<std::size_t>(fetch)][s];
        t.bytes = sizes[s];
        if (round)
          t.ratios.push_back(static_cast<double>(took[1]) / static_cast<double>(std::max<std::int64_t>(1, took[0])));
      }
  return Thresholds{least_regret(tried[0], agreement_.frame_data), least_regret(tried[1], agreement_.frame_data)};
}

Result<void> OfiLink::end_trial(Deadline deadline) {
  send(trial_frame(0, 0, Trial::over));
  flush();
  // The server frees its announcements when it gets this.
  bool sent = false;
  while (!(sent = queue_.empty() && !stalled_)) {
    collect();
    move();
    if (failure_ || closed_ || deadline.passed()) break;
    ::sched_yield();
  }
  if (auto ok = trial_until(sent, deadline); !ok) return ok.error();
  return {};
}

void OfiLink::leave_trial() {
  if (!trial_) return;
  sink_ = trial_->users;
  trial_.reset();
  receiving_ = true;
  frames_sent_ = frames_by_rma_ = 0;
}

}  // namespace sonde::store::ofi
