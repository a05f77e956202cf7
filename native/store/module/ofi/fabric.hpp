#pragma once
/// libfabric, as far as a Link needs it: one Port is a fabric, a domain, one completion queue and one endpoint, for one
/// peer. Everything that a provider may demand of its caller (registered memory, contexts, keys, addressing) is settled
/// here or handed on in Demands; `strict.hpp` puts a Port under another that demands it all and checks. Owner-thread.

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/spin.hpp"
#include "store/transport.hpp"

namespace sonde::store::ofi {

enum class Style { msg, rdm };

/// What an operation is known by until it completes. The first bytes belong to the provider (FI_CONTEXT2).
struct Context {
  fi_context2 space{};
  enum class Op : std::uint8_t { receive, send, read } op = Op::send;
  bool busy = false;
};

/// Memory that the provider knows.
struct Region {
  fid_mr* mr = nullptr;
  void* descriptor = nullptr;
  std::uint64_t key = 0;
  const std::byte* base = nullptr;
  std::size_t size = 0;
  std::uint64_t handle = 0;  ///< of the strict Port
};

/// What the provider asks of its caller, and what it can do.
struct Demands {
  bool local_mr = false;  ///< FI_MR_LOCAL: every buffer that is sent from or received into is registered
  bool virtual_addr =
      false;  ///< FI_MR_VIRT_ADDR: remote memory is named by its address, else by its offset in the region
  bool provider_key = false;  ///< FI_MR_PROV_KEY
  bool allocated = false;     ///< FI_MR_ALLOCATED: memory is there before it is registered (ours always is)
  bool bind_mr = false;       ///< FI_MR_ENDPOINT
  bool context = false;       ///< FI_CONTEXT or FI_CONTEXT2 (Context has room for the larger one)
  bool receive_data = false;  ///< FI_RX_CQ_DATA: remote data consumes a receive (none is ever sent)
  bool in_order = false;      ///< sends complete in order, and only those that are asked to
  bool async_iov = false;     ///< FI_ASYNC_IOV: the vectors live until completion
  std::size_t inject = 0, iovs = 1, sends = 64, receives = 64;
  std::string text() const;
};

struct Done {
  Context* context = nullptr;
  std::size_t bytes = 0;
  int error = 0;  ///< positive fi_errno; 0: it worked
  std::string why;
};

enum class Event { none, request, connected, shutdown, failed };

/// How to wait for a completion.
enum class Wait {
  none,      ///< nothing to sleep on: the peer must ring
  progress,  ///< a descriptor that is readable when the provider has something to do
  queue,     ///< that of the completion queue, after fi_trywait
};

/// Sleeping without a descriptor ends with a message over the Control: worth a longer look before it.
constexpr SpinPolicy bell_spin{.most_ns = 100'000};

struct PortOptions {
  Style style = Style::msg;
  std::string provider;
  bool rma = false;
  std::string node;             ///< own address; of shm its name
  std::vector<std::byte> peer;  ///< of Style::msg: where to connect to; empty: wait to be connected to
  std::uint32_t peer_format = 0;
  bool strict = false;  ///< for tests: demand everything, and check
};

class Port {
 public:
  virtual ~Port() = default;

  /// Opens fabric, domain, queues; of Style::rdm the endpoint, else what listens, or an endpoint that can connect.
  static Result<std::unique_ptr<Port>> open(const PortOptions& options);

  virtual const Demands& demands() const = 0;
  virtual const std::string& provider() const = 0;
  /// Where the peer finds this one.
  virtual Result<std::vector<std::byte>> address() = 0;
  virtual std::uint32_t address_format() const = 0;

  /// Style::rdm: who all sends go to.
  virtual Result<void> set_peer(Bytes address) = 0;
  /// Style::msg: `token` comes with the request.
  virtual Result<void> connect(Bytes token) = 0;
  /// After Event::request: makes the endpoint; the caller posts receives, then accepts.
  virtual Result<void> take_request() = 0;
  virtual void reject_request() = 0;
  virtual Result<void> accept() = 0;
  virtual Event event(Bytes* token) = 0;
  /// An endpoint that can post receives is there.
  virtual bool ready() const = 0;

  virtual Result<Region> enrol(void* memory, std::size_t bytes, bool remote) = 0;
  virtual void strike(Region& region) = 0;

  /// 0, or a negative fi_errno; -FI_EAGAIN: later.
  virtual ssize_t receive(void* memory, std::size_t bytes, const Region* region, Context* context) = 0;
  /// `completes`: false where Demands::in_order makes a later completion tell of this one too.
  virtual ssize_t send(const iovec* pieces, void** descriptors, std::size_t n, Context* context, bool completes) = 0;
  virtual ssize_t inject(const void* memory, std::size_t bytes) = 0;
  virtual ssize_t read(const iovec* pieces, void** descriptors, std::size_t n, std::uint64_t address, std::uint64_t key,
                       Context* context) = 0;
  /// Completions, at most n.
  virtual std::size_t poll(Done* done, std::size_t n) = 0;

  /// Ends the endpoint and all operations on it, so that their memory may go; of one that the other end shares, only
  /// what is done with completions ends.
  virtual void stop(bool shared) = 0;

  virtual Wait waiting() const = 0;
  virtual int fd() const = 0;
  /// It is safe to sleep on fd(). Only after poll() gave nothing.
  virtual bool may_sleep() = 0;
  /// Both ends know each other: names in shared file systems may go, and nothing is left behind however the processes
  /// end.
  virtual void settle() = 0;
};

/// Providers that can do a style here, by their full names ("tcp;ofi_rxm"), the fastest kind first. From fi_getinfo
/// only.
std::vector<std::string> list_providers(Style style, bool rma);
/// Does it reach only processes of this host?
bool only_local(const std::string& provider);
/// Can any process that reaches its port end this one, or hold it up for good? `udp`, what `ofi_rxd` makes of
/// datagrams, and `sockets` take whatever comes for a peer's, and its lengths for true: of libfabric 1.17 and 2.1 one
/// damaged datagram is a segmentation fault, and one connection that ends within a message is waited for without end.
bool trusts_strangers(const std::string& provider);
/// Is it for hardware that only it can drive?
bool is_hardware(const std::string& provider);

/// Removes what processes that were killed left in /dev/shm: only ours, of this user and pid namespace, of no living
/// pid. Number of files removed.
int sweep_shared_memory(const char* folder = "/dev/shm");

/// Fills it with random numbers of the kernel's. Error: store.fabric, it has none; nothing else will do.
Result<void> fill_random(MutableBytes bytes);

/// Closes a Port once that of the other end is here too: for two ends in one process over memory that they share.
void retire(std::unique_ptr<Port> port, std::uint64_t pair);

/// Serialises what libfabric's providers share: discovery, opening and closing.
class OpenLock {
 public:
  OpenLock();
  ~OpenLock();
};

/// Puts handlers of signals back to what they were: several providers set their own.
class KeepSignals {
 public:
  KeepSignals();
  ~KeepSignals();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string fabric_error(int number);

}  // namespace sonde::store::ofi
