#pragma once
/// Transports move frames between a client and a server. They hide remote memory, registration and queues.
///
/// Every connection begins on TCP: hello, authentication and, for other transports than tcp, a few `transport` frames
/// in which the two halves exchange their addresses. Then frames go over the Link; the TCP connection
/// stays as the Control: its end is the end of the peer, even over a connectionless fabric.
///
/// A new transport in five steps: derive from Transport and Link; implement connect() for the client and accept() for
/// the server, which use Control; deliver whole frames to the Sink, in order; define in wait_fd() and arm() how to
/// wait; export a Module.

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/deadline.hpp"
#include "core/error.hpp"
#include "store/backend.hpp"
#include "store/types.hpp"
#include "store/wire.hpp"

namespace sonde::store {

using sonde::Deadline;

/// One piece of a frame's data: memory that the sender leaves alone until the frame is done.
using Segment = Bytes;

/// A frame on its way out.
struct Outgoing {
  std::vector<std::byte> head;    ///< header and table
  std::vector<Segment> segments;  ///< together header.data_bytes
  std::shared_ptr<void> keep;     ///< whatever must live until the frame is done: dropped then
  bool last = true;               ///< nothing of this message follows at once: do not hold it back
};

class Link;

/// Receives the frames of a Link. Called from within Link::progress() only, by the thread that calls it.
class Sink {
 public:
  virtual ~Sink() = default;
  /// Header and table are here, the data is not: may name memory for it (adding up to header.data_bytes) and return
  /// true, which saves a copy. A transport need not ask.
  virtual bool place(Link&, const wire::Header&, Bytes /*table*/, std::vector<iovec>& /*places*/) { return false; }
  /// A whole frame with a sound header; the body is not verified yet. `data` is in one piece and valid during the call;
  /// when it was placed, `data` is empty.
  virtual void frame(Link&, const wire::Header&, Bytes table, Bytes data, bool placed) = 0;
  /// No more frames; `error` is null when the peer ended in order. Called once.
  virtual void closed(Link&, const Error* error) = 0;
};

struct LinkInfo {
  std::string transport;  ///< "tcp", "ofi-msg", …
  std::string provider;   ///< of a fabric: "shm", "net", "tcp;ofi_rxm" …; else empty
  std::string detail;     ///< whatever helps to read a result: modes honoured, thresholds, segments by RMA
};

/// An ordered, reliable way for frames in both directions. Owner-thread: one thread at a time.
class Link {
 public:
  virtual ~Link() = default;
  /// Takes a frame; it goes out now or with flush() and progress(). Never blocks. After a failure frames are dropped.
  virtual void send(Outgoing frame) = 0;
  /// Lets go of what send() held back to send it together.
  virtual void flush() = 0;
  /// Bytes taken and not yet handed to the network: what a sender uses to stop in time.
  virtual std::size_t backlog() const = 0;
  /// The network or the peer has all that was sent, or nothing more can be: a Link let go of now loses nothing, however
  /// slow the peer is. A transport whose peer fetches data from this side's memory says so later than backlog() == 0.
  /// Call progress() meanwhile. At its end a Link waits for the rest, but not for long.
  virtual bool taken() const { return backlog() == 0; }
  /// Moves what can move without waiting, delivers frames to the sink. Number of frames delivered. A failed link says
  /// so to Sink::closed and returns 0.
  virtual int progress() = 0;
  /// For an event loop: sleep on wait_fd() for wait_events() after arm() returned true; false: call progress() first.
  /// wait_fd() < 0: nothing to sleep on; then wait() knows how.
  virtual int wait_fd() const = 0;
  virtual short wait_events() const = 0;
  virtual bool arm() = 0;
  /// Until progress() may have something to do, or the deadline. Adaptive: may spin for as long as that pays.
  virtual void wait(Deadline deadline) = 0;
  /// False: deliver nothing more until true again; the peer is slowed down.
  virtual void receive(bool on) = 0;
  virtual bool open() const = 0;
  virtual LinkInfo info() const = 0;
};

/// The TCP connection of a Link: for small messages while the Link is being made, and to wake the other side.
class Control {
 public:
  virtual ~Control() = default;
  virtual Result<void> send(Bytes message) = 0;
  /// Errors: store.timed_out, store.disconnected, and what the peer gave as its reason.
  virtual Result<std::vector<std::byte>> receive(Deadline deadline) = 0;
  /// The socket: readable when the peer rang, spoke or is gone.
  virtual int fd() const = 0;
  /// Wakes a peer that sleeps on its Control.
  virtual void ring() = 0;
  /// Takes what rang. False: the peer is gone.
  virtual bool heard() = 0;
  virtual std::string peer_host() const = 0;
  /// Both ends are on this host.
  virtual bool same_host() const = 0;
};

/// The options of a transport. Unknown settings are an error.
struct LinkOptions {
  std::string provider;  ///< of a fabric: empty chooses by place and measurement
  bool nodelay = true;   ///< tcp: TCP_NODELAY
  bool cork = false;     ///< tcp: TCP_CORK around each frame
  bool gather = true;    ///< false: header, table and each segment by its own send, to show what that costs
  bool await = false;    ///< and each awaited before the next: the `thesis` variant, for comparison only
  std::size_t frame_data = wire::frame_data_default;
  std::int64_t rma_from = -1;  ///< ofi-rma: least bytes of a frame's data that the peer reads by RMA; -1: measured
  double spin_s = -1;          ///< how long a wait may spin before it sleeps; -1: as the machine allows
  Settings more;               ///< of modules
};

/// How a client wants frames to be sent to it, for its hello: what shows the cost of a choice needs both ends to make
/// it.
std::string encode_style(const LinkOptions& options);
/// Takes those of a hello into the server's own; words that are not known are left alone.
void apply_style(std::string_view text, LinkOptions& options);

/// A provider that was tried.
struct Found {
  std::string provider;
  bool works = false;
  std::string why;               ///< it does not, or what it demands
  double half_round_trip_s = 0;  ///< of 64 bytes, by the probe
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  /// The providers that work on this machine: each is really tested, in a process of its own, with a deadline.
  virtual std::vector<Found> probe(Deadline) { return {}; }
  /// Client half. The Control outlives the Link.
  virtual Result<std::unique_ptr<Link>> connect(Control&, const LinkOptions&, Sink&, Deadline) = 0;
  /// Server half: `first` is the client's first message. Runs in a thread of its own, may block until the deadline.
  virtual Result<std::unique_ptr<Link>> accept(Control&, Bytes first, const LinkOptions&, Sink&, Deadline) = 0;
};

/// Names: ofi-msg, ofi-rma, ofi-rdm, where libfabric is; and those of modules. tcp is the Control itself and needs
/// none.
/// Error: store.unknown_transport (lists them).
Result<std::shared_ptr<Transport>> open_transport(std::string_view name);
std::vector<std::string> transport_names();

/// Messages that came over the Links of this process and were not their peers': a Link drops them, and counts them
/// here. Any-thread.
std::atomic<std::uint64_t>& foreign_messages();

}  // namespace sonde::store
