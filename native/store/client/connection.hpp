#pragma once
/// One connection to one server: hello, authentication, transport, and the messages under way on it.
/// The user of a connection must lock it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/store.hpp"
#include "store/trace.hpp"
#include "store/transport/tcp.hpp"

namespace sonde::store {

/// Where what is read for an operation goes.
struct Room {
  std::byte* begin = nullptr;
  std::uint64_t size = 0, got = 0;
};

/// One message: the operations of a batch for one role of one server.
struct Exchange {
  std::span<const Op> ops;  ///< of the whole batch
  std::span<Outcome> outcomes;
  std::vector<std::uint32_t> places;  ///< in the batch, of each operation of this message; empty: all of them
  std::vector<Room> rooms;            ///< by operation of the batch; empty until data comes
  std::uint64_t came = 0, taken = 0;  ///< bytes that were received for them, and taken from `arena`
  bool explained = false;             ///< the text of a failure has come
  Arena* arena = nullptr;
  Role role{};
  Safety safety{};
  double timeout_s = 0;
  std::int64_t begin_ns = 0;
  std::int64_t serialise_ns = 0;
  std::uint32_t wait_us = 0, backend_us = 0;
  std::uint64_t id = 0;
  bool failed = false;  ///< the connection broke first
  std::atomic<bool> done = false;

  /// For another message; vectors keep their memory.
  void clear() {
    ops = {};
    outcomes = {};
    places.clear();
    rooms.clear();
    came = taken = 0;
    explained = false;
    begin_ns = serialise_ns = 0;
    wait_us = backend_us = 0;
    id = 0;
    failed = false;
    done.store(false, std::memory_order_relaxed);
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(places.empty() ? ops.size() : places.size()); }
  std::uint32_t place(std::uint32_t index) const { return places.empty() ? index : places[index]; }
};

class Connection final : public Sink {
 public:
  /// Tries again, until the deadline, where the server says that it let go of this connection for another's sake.
  static Result<std::unique_ptr<Connection>> open(const Address& address, const Config& config, Deadline deadline);
  ~Connection() override;

  std::mutex mutex;

  // With the mutex held:
  /// Builds the frames and hands them to the link. Without an answer to wait for (Safety::none) it is done then.
  void start(Exchange& exchange);
  /// Moves things on until it is done or the deadline passed; a connection that ran into it is closed, as its memory is
  /// the caller's.
  void wait(Exchange& exchange, Deadline deadline);
  void flush() {
    if (open_) send_held();
    reap();
  }
  void progress();
  /// Until something may have come, or the deadline.
  void idle(Deadline deadline) {
    if (open_) await(deadline);
  }
  std::size_t in_flight() const { return exchanges_.size(); }
  bool open() const { return open_; }
  bool idle_for(double seconds) const;
  /// The server's JSON about itself.
  Result<std::string> status(Deadline deadline);
  /// Everything sent has reached the server, and how many operations under Safety::none failed since the last time.
  Result<std::uint64_t> drain(Deadline deadline);
  /// Ends it as soon as no link is at work; what was under way becomes `disconnected`.
  void close(const std::string& why);
  const Error& failure() const { return failure_; }
  /// An error of this connection, which says whose it is.
  Error named(Error error) const;
  /// The error of a server that has not answered within `seconds`. `option`: which of Config's would let it have
  /// longer.
  Error too_slow(double seconds, const char* option) const;

  // Without:
  unsigned roles() const { return roles_; }  ///< bit 1 << Role
  std::size_t credits() const { return credits_; }
  LinkInfo info() const { return link_ ? link_->info() : LinkInfo{}; }

  bool place(Link&, const wire::Header&, Bytes table, std::vector<iovec>& places) override;
  void frame(Link&, const wire::Header&, Bytes table, Bytes data, bool placed) override;
  void closed(Link&, const Error* error) override;

 private:
  Connection() = default;
  static Result<std::unique_ptr<Connection>> open_once(const Address& address, const Config& config, Deadline deadline,
                                                       bool& again);
  Result<void> greet(const Address& address, const Config& config, Deadline deadline);
  /// The reason that the other side gave, whether or not it is authenticated.
  Error said(Bytes words) const;
  /// The next frame that is no reply. `option`: what lets it be waited for longer.
  Result<wire::Text> heard(wire::Kind kind, Deadline deadline, const char* option);
  void send_message(Exchange& exchange, std::int64_t begin_ns);
  /// Lets go of what the link holds back.
  void send_held();
  void await(Deadline deadline);
  /// Frames delivered.
  int receive();
  /// Where the data of an answer to operation k goes. Null: more than was asked for, or there is no memory for it.
  std::byte* room_for(Exchange& exchange, std::uint32_t k, const wire::Answer& answer);
  void answer(Exchange& exchange, const wire::Header& header, Bytes data, bool placed);
  void settle(Exchange& exchange);
  void reap();

  std::unique_ptr<TcpLink> tcp_;
  std::unique_ptr<TcpControl> control_;
  std::shared_ptr<Transport> transport_;
  std::unique_ptr<Link> own_link_;
  Link* link_ = nullptr;
  std::unordered_map<std::uint64_t, Exchange*> exchanges_;
  std::uint64_t next_id_ = 1;
  std::uint64_t number_ = 0;  ///< trace::connection
  std::uint64_t lost_ = 0;
  unsigned roles_ = 0;
  std::size_t credits_ = 64, frame_data_ = wire::frame_data_default;
  bool checksum_ = true, gather_ = true, open_ = true;
  bool proven_ = false;                      ///< the server has proved its identity, or need not
  bool again_ = false;                       ///< the server ended it, but another attempt may succeed
  unsigned pongs_ = 0;                       ///< pongs that the network may not have accepted yet
  std::int64_t used_ns_ = 0, asked_ns_ = 0;  ///< asked: since when heard() is waited for
  std::string address_;
  std::function<bool()> stop_;  ///< Config's, while it is being made
  Error failure_;
  std::vector<wire::Answer> answers_;
  std::vector<iovec> joined_;
  wire::TableWriter table_;
  // Answers that are no replies: of the handshake, status and ping.
  wire::Kind last_kind_ = wire::Kind::request;
  std::string last_text_;
  bool heard_one_ = false;
};

}  // namespace sonde::store
