#pragma once
/// Frames over a Port. The frames are a byte stream, cut into messages that each begin with a MessageHeader. A message
/// holds several small frames or a piece of a large one. Owner-thread.
///
/// Receives. A fixed number of buffers is always posted. Each side counts the buffers that the other has returned, so
/// no message ever reaches an endpoint without a buffer. The counts are in every message; if half of the buffers are
/// not yet reported, a message is sent for that purpose.
/// Memory. The buffers for copies and for receives are registered once, for the life of the Link. Memory of the caller
/// is registered for each operation, if the provider demands that: no registration outlives the mapping that it was
/// made for (a provider's own cache of registrations watches the mappings, and makes this cheap).
/// Remote memory. A frame with at least `rma_from` bytes of data can be announced instead: the peer reads the data and
/// confirms it by a count.
/// Tags. With some providers any process that finds the endpoint can send to it. So each message has a tag that only
/// the peer can make, with a key that the two halves exchanged over the Control. A message with another tag is not the
/// peer's: it is dropped and counted (foreign_messages()), with no other effect. The tag covers the header, the
/// message's number in 64 bits, and the part of the content that `sealed` gives: the bytes that are copied anyway, up
/// to sealed_most, and in an announcement everything that names memory. A longer tag would cost more than it protects:
/// an attacker who cannot read the traffic has no message with a tag to put other data into, and one who can read it
/// also reads the keys on the Control.
/// Sleep. If the provider has no descriptor to sleep on, a sleeper announces its sleep in a message, then looks once
/// more. The peer looks at its queue once after each flush. One of the two sees the other, and the peer rings the
/// Control.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/spin.hpp"
#include "store/module/ofi/fabric.hpp"
#include "store/module/ofi/message.hpp"
#include "store/transport.hpp"

namespace sonde::store::ofi {

/// The values that both halves agreed on over the Control.
struct Agreement {
  std::string transport;        ///< "ofi-msg" …
  std::size_t own_buffers = 0;  ///< receives that this side always has posted
  std::size_t own_bytes = 0;    ///< and their size
  std::size_t peer_buffers = 0;
  std::size_t peer_bytes = 0;
  std::uint64_t token = 0;       ///< for a connection, and for retire()
  SipKey own_key{}, peer_key{};  ///< for sent messages, and for received ones
  Style style = Style::msg;
  int lie = 0;                 ///< for tests: which field of the tenth message to spoil; 0: none
  bool one_process = false;    ///< both ends are in this process, and share memory
  std::size_t frame_data = 0;  ///< usual maximum of a frame's data
  std::int64_t rma_from = -1;  ///< -1: never
};

struct BufferPlan {
  std::size_t count, bytes;
};
/// Number and size of the receives: large ones if untouched memory costs nothing, small ones if memory is pinned.
BufferPlan plan_buffers(const Demands& demands, std::size_t frame_data);

/// The smallest sizes from which the peer reads data faster by RMA than from messages; -1: it never does.
struct Thresholds {
  std::int64_t used = -1;    ///< used in place, as a server uses written data
  std::int64_t placed = -1;  ///< copied to its place, as a client does with read data
};

class OfiLink final : public Link {
 public:
  OfiLink(std::unique_ptr<Port> port, Control& control, const LinkOptions& options, Sink& sink);
  ~OfiLink() override;
  OfiLink(const OfiLink&) = delete;
  OfiLink& operator=(const OfiLink&) = delete;

  /// Allocates, registers and posts the receive buffers. The endpoint must exist, and not be connected yet.
  Result<void> prepare(const Agreement& agreement);
  /// Both ends say hello; then the Link is open. Client and server call it at the same time.
  Result<void> greet(Deadline deadline);
  /// From here to leave_trial() frames belong to the trial. Both ends call it before they greet each other.
  void enter_trial();
  /// Client: moves data in both directions, by messages and by remote reads, as normal use does; the server must
  /// serve(). Error: the connection broke, or the deadline passed; the Link is unusable then.
  Result<Thresholds> measure_rma(Deadline deadline);
  /// Server: answers the client's trial. One step, without waiting. Messages after the trial are left for progress().
  void serve();
  /// Server: whether the trial is over, or the connection broken.
  bool served() const;
  /// Client: informs the server that the trial is over, also if nothing was tried. Error: as above.
  Result<void> end_trial(Deadline deadline);
  /// From here frames go to the Sink again.
  void leave_trial();
  void set_rma_from(std::int64_t bytes) { agreement_.rma_from = bytes; }
  std::int64_t rma_from() const { return agreement_.rma_from; }
  Port& port() { return *port_; }

  void send(Outgoing frame) override;
  void flush() override;
  std::size_t backlog() const override { return queued_bytes_; }
  bool taken() const override { return failure_ || closed_ || peer_gone_ns_ || nothing_under_way(); }
  int progress() override;
  int wait_fd() const override;
  short wait_events() const override;
  bool arm() override;
  void wait(Deadline deadline) override;
  void receive(bool on) override { receiving_ = on; }
  bool open() const override { return !closed_; }
  LinkInfo info() const override;

 private:
  struct Buffer;
  struct Frame;
  struct Message;
  struct Reading;
  struct Memory;

  Result<void> allocate(Memory& memory, std::size_t bytes, bool remote = false);
  void free_memory(Memory& memory);
  bool post_receive(Buffer& buffer);

  // sending
  void pump();
  Message* build();
  void build_copies(Message& message);
  void build_large(Message& message, std::size_t most);
  bool build_announcement(Message& message);
  void frame_done(Message& message);
  bool post(Message* message);
  bool say(MessageKind kind);
  /// Writes the header into the message, with a tag over both.
  void seal(Message& message);
  /// Wakes a peer that has announced its sleep.
  void rouse();
  Message* take_message(bool control);
  void recycle(Message* message);
  void drop_released();
  bool credit_left(bool control) const;

  // receiving
  std::size_t collect();
  void arrived(Buffer& buffer, std::size_t bytes);
  LinkCounts counts() const { return {sent_, announced_, taken_, agreement_.own_buffers}; }
  bool is_peers(const Buffer& buffer, std::size_t bytes) const;
  void drop(Buffer& buffer);
  void in_turn(Buffer& buffer);
  int deliver();
  int move();
  bool take_stream(Buffer& buffer, int& frames);
  bool take_announcement(Buffer& buffer, int& frames);
  bool continue_part(Buffer& buffer, int& frames);
  void post_reads();
  void give_back(Buffer& buffer);

  void fail(Error error);
  void lose(const std::string& why);
  void close_now(const Error* error);
  void shut();
  void look_after();
  bool nothing_under_way() const { return queue_.empty() && !stalled_ && !in_flight_ && announcements_.empty(); }
  void say_goodbye();
  bool anything_to_deliver() const;
  Result<void> trial_until(const bool& flag, Deadline deadline);
  Outgoing trial_frame(std::size_t bytes, std::size_t from, std::uint64_t id);
  void trial_send(std::size_t bytes, bool by_rma);

  std::unique_ptr<Port> port_;
  Control& control_;
  LinkOptions options_;
  Sink* sink_;
  Agreement agreement_;
  Demands demands_;
  std::string provider_;

  // receives
  std::unique_ptr<Memory> receive_memory_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::deque<Buffer*> arrived_;  ///< in order of sequence, without gaps
  std::vector<Buffer*> early_;   ///< out of order, waiting for their turn
  std::vector<Buffer*> unposted_;
  std::uint32_t next_sequence_ = 0;  ///< sequence of the next message in arrived_
  std::uint64_t taken_ = 0;          ///< the same, in 64 bits
  std::uint32_t given_ = 0, given_told_ = 0;
  std::uint32_t released_ = 0, released_told_ = 0;
  bool receiving_ = true;
  std::vector<std::byte> part_;  ///< header, table and perhaps data of an incomplete frame
  bool part_known_ = false, part_placed_ = false;
  wire::Header part_header_;
  std::size_t part_need_ = 0;
  std::vector<iovec> places_;
  std::size_t place_at_ = 0, place_left_ = 0;
  std::unique_ptr<Reading> reading_;
  std::unique_ptr<Memory> read_memory_;

  // sends
  std::deque<std::shared_ptr<Frame>> queue_;
  std::size_t queued_bytes_ = 0;
  std::vector<std::unique_ptr<Message>> messages_;
  std::vector<Message*> idle_;
  std::vector<Message*> silent_;  ///< posted without a completion of their own, since the last one with a completion
  Message* stalled_ = nullptr;    ///< built, but the provider was full
  std::size_t in_flight_ = 0;
  std::unique_ptr<Memory> send_memory_;
  std::uint32_t sent_ = 0;  ///< messages, hello included
  std::uint32_t peer_given_ = 0;
  std::uint32_t peer_released_ = 0, announced_ = 0;
  std::deque<Message*> announcements_;  ///< the peer has not read their data yet
  std::int64_t last_sent_ns_ = 0;

  // state
  bool closed_ = false, said_bye_ = false, peer_said_bye_ = false, bye_seen_ = false;
  bool hello_ = false;
  bool peer_asleep_ = false, asleep_told_ = false, armed_ = false, control_spoke_ = false;
  bool looked_ = false;  ///< the queue was empty, and nothing was posted since
  std::int64_t peer_gone_ns_ = 0;
  std::optional<Error> failure_;
  bool poisoned_ = false;
  unsigned turns_ = 0;
  Spin spin_;
  std::int64_t untold_ns_ = 0;  ///< since then the peer reads nothing, and cannot be informed of a sleep
  std::uint32_t received_ = 0;  ///< messages taken from the queue
  std::uint64_t frames_sent_ = 0, frames_by_rma_ = 0;
  std::uint64_t messages_sent_ = 0;  ///< sent_, in 64 bits
  std::uint64_t dropped_ = 0;

  // the trial
  struct Trial;
  std::unique_ptr<Trial> trial_;
};

}  // namespace sonde::store::ofi
