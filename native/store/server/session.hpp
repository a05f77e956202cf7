#pragma once
/// One connection: its identity, and its messages from the first frame to the answer. Belongs to its reactor's thread.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/server/reactor.hpp"
#include "store/server/server.hpp"
#include "store/trace.hpp"

namespace sonde::store {

/// A message that is being received, and its answer so far.
struct Message {
  wire::Header header;  ///< of its first frame
  std::uint32_t parts = 0;
  std::atomic<std::int64_t> arrived_ns = 0;  ///< its last frame; the lane may be executing an earlier one
  std::int64_t wait_ns = -1, backend_ns = 0;
  bool sync_all = false;  ///< the message contains Code::sync
  bool queued = false;    ///< goes through the lane's queue: all of its frames do
  std::atomic<bool> complete = false;
  Status refused = Status::ok;  ///< status of the whole message: no backend, shutting down, a damaged frame, too large
  wire::TableWriter answers;
  std::vector<Segment> segments;
  std::uint32_t data = 0;
  std::uint32_t part_out = 0;
  std::shared_ptr<Arena> arena;
  std::uint64_t failed = 0;

  // A kv or db batch in several frames, and everything that must wait, is stored here.
  struct Held {
    wire::Header header;
    std::vector<std::byte> table, data;
    std::vector<wire::Record> records;  ///< of objects; those of a batch are read from the table when all of it is here
    /// Bytes that it takes, and about what the allocator takes for it.
    std::size_t bytes() const { return sizeof *this + 64 + table.size() + data.size(); }
  };
  std::vector<std::unique_ptr<Held>> held;
  std::size_t held_bytes = 0;

  /// For another message; vectors keep their memory.
  void clear();
};

/// The operations of a frame, in place.
struct FrameView {
  std::span<const wire::Record> records;
  Bytes data;
  const Message::Held* held = nullptr;  ///< its records have to be read from there first
  std::size_t operations() const { return held ? held->header.ops : records.size(); }
};

/// How far the operations of a frame have been executed.
struct Position {
  std::size_t record = 0;
  std::uint64_t done = 0;  ///< bytes of that record's read
  std::size_t data = 0;    ///< bytes of the frame's data that earlier records had
};

class Session final : public Sink, public std::enable_shared_from_this<Session> {
 public:
  /// Takes the socket, and its place at the gate; where this throws, neither.
  Session(Reactor& reactor, int fd, std::uint64_t place);
  ~Session() override;

  /// The approximate memory of a connection before it has received anything.
  static constexpr std::size_t entry_bytes = 8u << 10;
  /// The error for a request or a connection that is refused because the memory for clients is used up.
  static Error no_room(const Budget& budget);

  /// Reads and writes what is possible. Returns whether a frame was received.
  bool ready();
  /// For a fabric's link: whether it may sleep now. This is then valid until ready().
  bool arm();
  bool armed() const { return armed_; }
  bool needs_arm() const { return own_link_ != nullptr; }
  /// Descriptors to watch; -1 for none.
  int fd() const { return tcp_ ? tcp_->wait_fd() : -1; }
  int own_fd() const { return own_link_ && own_link_->wait_fd() != fd() ? own_link_->wait_fd() : -1; }
  std::uint32_t events() const;
  bool alive() const { return alive_; }
  bool upgrading() const { return upgrading_; }
  /// Makes the link between the transport's two halves, in the calling thread; the result goes back to the reactor.
  void make_link() noexcept;
  /// Ends the connection because there is no thread for make_link().
  void refuse_link();
  /// After an exception, in the reactor's thread and its handler: the connection ends, and nothing else.
  void broke() noexcept;
  /// Marks the connection as broken because another thread lost a part of it. Any-thread, allocates no memory.
  void lose() noexcept;
  bool lost() const { return lost_.load(std::memory_order_relaxed); }
  /// Ends the connection if it is marked as broken.
  void drop_lost() noexcept;
  /// Called once a second: ends a connection that did not prove its identity in time, or does not finish a message.
  void look_after(std::int64_t now_ns);
  bool busy() const {
    return queued_ || !jobs_.empty() || message_ != nullptr || upgrading_ || (link_ && link_->backlog());
  }
  void goodbye();

  std::uint32_t watched = 0;  ///< what the reactor last asked epoll for
  std::uint32_t own_watched = 0;

  void frame(Link&, const wire::Header&, Bytes table, Bytes data, bool placed) override;
  void closed(Link&, const Error* error) override;

 private:
  enum class State { hello, proof, checking, ready };
  /// Frames to send: to the link at once, or, off the reactor's thread, collected.
  using Emit = std::function<void(Outgoing)>;

  void refuse(const Error& error, bool fault);
  /// For the status: an error of a client, or the refusal of an unauthenticated connection.
  void failed(const Error& error);
  void hello(const wire::Text& text);
  void proof(const wire::Text& text);
  /// Has MUNGE asked in another thread, which ends in welcome() or refuse().
  void ask_munge(std::string credential, std::string payload);
  void let_in_user(const Result<unsigned>& user);
  /// own_proof: the server's; empty where it makes none.
  void welcome(const std::string& own_proof);
  void request(const wire::Header&, Bytes table, Bytes data);
  /// A request's frame, whose table was read into records_ as well as it could be.
  void serve(const wire::Header&, Bytes table, Bytes data, const Result<void>& read, std::int64_t now_ns);
  /// An answer, to the link.
  void reply(Outgoing out);
  /// Sends the frames that the link has buffered.
  void flush();
  std::uint64_t number_of(const Message& message) const { return trace::request(number_, message.header.id); }
  void hold(Message& message, const wire::Header& header, Bytes table, Bytes data);
  /// With the records, which pointed into `table`.
  void hold_with_records(Message& message, const wire::Header& header, Bytes table, Bytes data);
  void end_broken(const char* what) noexcept;
  void finish_frame(const std::shared_ptr<Message>& message);
  void enqueue(const std::shared_ptr<Message>& message);
  void pump();
  /// Schedules another turn, after those of others.
  void soon();

  struct Scratch {
    std::vector<Op> ops;
    std::vector<Outcome> outcomes;
    std::vector<std::uint32_t> indexes;
    std::vector<std::uint8_t> seen;
    std::vector<FrameView> frames;
    std::vector<wire::Record> records;
    /// A batch of several frames may be followed by none like it: its memory is given back.
    void trim() {
      if (ops.capacity() > wire::frame_ops_max || frames.capacity() > wire::frame_ops_max) *this = {};
    }
  };
  /// Releases the backend at the end of the scope.
  class Turn {
   public:
    explicit Turn(Lane& lane) : lane_(lane) {}
    Turn(const Turn&) = delete;
    ~Turn() { lane_.leave(); }

   private:
    Lane& lane_;
  };
  /// Something that came in part, and how much had come on the connection when it began.
  struct Begun {
    std::int64_t since_ns = 0;
    std::uint64_t received = 0, frames = 0;
  };
  bool run_data(Message&, std::span<const wire::Record>, Bytes data, Position&, Scratch&, const Emit&, bool bounded);
  /// Read data go into the message's arena, which may be shared with others of the turn. False: the batch would block
  /// the reactor for too long, was undone, and must be executed in its lane (never with in_lane).
  bool run_atomic(Message&, std::span<const FrameView> frames, Scratch&, const Emit&, bool in_lane);
  /// From the frames that the message holds.
  bool run_held(Message&, Scratch&, const Emit&, bool in_lane);
  /// The time by which the message's batch has to be done.
  Deadline deadline_of(const Message& message, bool in_lane) const;
  /// Whether it is known beforehand that the frame just read may take long in its backend.
  bool takes_long(const Message& message) const;
  std::uint64_t received() const { return tcp_->bytes_in() + received_; }
  bool overdue(const Begun& begun, std::int64_t now_ns) const;
  void refuse_all(Message&, Status, const Emit&);
  void answer(Message&, std::uint32_t index, const Op& op, const Outcome& outcome, const Emit&);
  void emit_reply(Message&, bool last, const Emit&);
  std::shared_ptr<Message> take_message();
  /// An arena for the next message, used by this thread only, never by a lane. Its read data are freed as soon as they
  /// are sent.
  void reuse(const std::shared_ptr<Message>& message);
  std::shared_ptr<Arena> take_arena();
  /// For a message of one frame: the same for all of a turn, up to a size.
  std::shared_ptr<Arena> turn_arena();
  /// An arena from the pool, which belongs to the reactor's thread, or a new one.
  std::shared_ptr<Arena> take_fresh(bool pooled) { return pooled ? take_arena() : std::make_shared<Arena>(16u << 10); }
  bool needs_sync(Message& message) const;
  bool too_late(const Message& message) const;
  void upgrade(Bytes first);
  void give_back(std::size_t bytes);
  /// Memory used for its peer: received data that wait, and answers that were not read.
  std::size_t holds() const;
  /// Counts the memory that it uses, and `more` that it is about to use. False: the server has no room for this, so the
  /// connection ends.
  bool has_room(std::size_t more);

  Reactor& reactor_;
  Server& server_;
  std::unique_ptr<TcpLink> tcp_;
  std::unique_ptr<TcpControl> control_;
  std::unique_ptr<Link> own_link_;
  std::shared_ptr<Transport> transport_;
  Link* link_ = nullptr;
  State state_ = State::hello;
  bool alive_ = true, upgrading_ = false, checksum_ = true, receiving_ = true, posted_ = false, armed_ = false;
  std::int64_t since_ns_;
  LinkOptions link_options_;
  std::string client_, client_nonce_, nonce_, wanted_transport_;
  std::vector<std::byte> first_word_;  ///< of the client's half of the transport
  const std::uint64_t place_;
  Budget::Share share_;
  std::atomic<bool> lost_ = false, link_lost_ = false;
  std::uint64_t number_ = 0;  ///< trace::connection

  std::shared_ptr<Message> message_;  ///< whose frames are coming in
  std::shared_ptr<Message> spare_;    ///< one that was dealt with in this thread, to be used again
  Begun message_begun_, frame_begun_;
  std::uint64_t received_ = 0, frames_ = 0;  ///< bytes on its own link; frames in all
  struct Job {
    std::shared_ptr<Message> message;
    std::unique_ptr<Message::Held> frame;
    Position position;
  };
  std::deque<Job> jobs_;                           ///< reads that wait for the client to take what was read before
  std::array<unsigned, role_count> lane_tasks_{};  ///< queued in each lane
  unsigned queued_ = 0;
  std::size_t queued_bytes_ = 0;
  std::vector<std::uint64_t> pings_;  ///< to be answered when the queue is empty
  std::uint32_t lost_ops_ = 0;
  Scratch scratch_;
  std::vector<wire::Record> records_;
  std::vector<std::shared_ptr<Arena>> arenas_;
  std::shared_ptr<Arena> turn_arena_;
};

}  // namespace sonde::store
