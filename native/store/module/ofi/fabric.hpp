#pragma once
/// The part of libfabric that a Link needs: one Port is a fabric, a domain, one completion queue and one endpoint, for
/// one peer. A provider may demand registered memory, contexts, keys or addressing from its caller: a Port handles each
/// of these, or passes it on in Demands. `strict.hpp` puts a Port under another one that demands all of them and
/// checks. Owner-thread.

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

/// Identifies an operation until it completes. The first bytes belong to the provider (FI_CONTEXT2).
struct Context {
  fi_context2 space{};
  enum class Op : std::uint8_t { receive, send, read } op = Op::send;
  bool busy = false;
};

/// Memory that is registered with the provider.
struct Region {
  fid_mr* mr = nullptr;
  void* descriptor = nullptr;
  std::uint64_t key = 0;
  const std::byte* base = nullptr;
  std::size_t size = 0;
  std::uint64_t handle = 0;  ///< used by the strict Port
};

/// The provider's demands on its caller, and its abilities.
struct Demands {
  bool local_mr = false;  ///< FI_MR_LOCAL: every send and receive buffer is registered
  bool virtual_addr =
      false;  ///< FI_MR_VIRT_ADDR: remote memory has its address as its name, else its offset in the region
  bool provider_key = false;  ///< FI_MR_PROV_KEY
  bool allocated = false;     ///< FI_MR_ALLOCATED: memory is mapped before it is registered (ours always is)
  bool bind_mr = false;       ///< FI_MR_ENDPOINT
  bool context = false;       ///< FI_CONTEXT or FI_CONTEXT2 (Context has room for the larger one)
  bool receive_data = false;  ///< FI_RX_CQ_DATA: remote data consumes a receive (none is ever sent)
  bool in_order = false;      ///< sends complete in order, and only those for which that was requested
  bool async_iov = false;     ///< FI_ASYNC_IOV: the vectors live until completion
  std::size_t inject = 0, iovs = 1, sends = 64, receives = 64;
  std::string text() const;
};

struct Done {
  Context* context = nullptr;
  std::size_t bytes = 0;
  int error = 0;  ///< positive fi_errno; 0: success
  std::string why;
};

enum class Event { none, request, connected, shutdown, failed };

/// The way to wait for a completion.
enum class Wait {
  none,      ///< no descriptor to sleep on: the peer must ring
  progress,  ///< a descriptor that is readable when the provider has something to do
  queue,     ///< the descriptor of the completion queue, after fi_trywait
};

/// A sleep without a descriptor needs a message over the Control to end: it is worth a longer spin before it.
constexpr SpinPolicy bell_spin{.most_ns = 100'000};

struct PortOptions {
  Style style = Style::msg;
  std::string provider;
  bool rma = false;
  std::string node;             ///< own address; for shm its name
  std::vector<std::byte> peer;  ///< for Style::msg: the address to connect to; empty: wait for a connection
  std::uint32_t peer_format = 0;
  bool strict = false;  ///< for tests: demand everything, and check
};

class Port {
 public:
  virtual ~Port() = default;

  /// Opens fabric, domain and queues; for Style::rdm also the endpoint, else a listener, or an endpoint that can
  /// connect.
  static Result<std::unique_ptr<Port>> open(const PortOptions& options);

  virtual const Demands& demands() const = 0;
  virtual const std::string& provider() const = 0;
  /// The address at which the peer finds this Port.
  virtual Result<std::vector<std::byte>> address() = 0;
  virtual std::uint32_t address_format() const = 0;

  /// Style::rdm: the destination of all sends.
  virtual Result<void> set_peer(Bytes address) = 0;
  /// Style::msg: `token` is sent with the request.
  virtual Result<void> connect(Bytes token) = 0;
  /// After Event::request: makes the endpoint; the caller posts receives, then accepts.
  virtual Result<void> take_request() = 0;
  virtual void reject_request() = 0;
  virtual Result<void> accept() = 0;
  virtual Event event(Bytes* token) = 0;
  /// Whether there is an endpoint that can post receives.
  virtual bool ready() const = 0;

  virtual Result<Region> enrol(void* memory, std::size_t bytes, bool remote) = 0;
  virtual void strike(Region& region) = 0;

  /// 0, or a negative fi_errno; -FI_EAGAIN: later.
  virtual ssize_t receive(void* memory, std::size_t bytes, const Region* region, Context* context) = 0;
  /// `completes`: false if Demands::in_order allows a later completion to cover this one too.
  virtual ssize_t send(const iovec* pieces, void** descriptors, std::size_t n, Context* context, bool completes) = 0;
  virtual ssize_t inject(const void* memory, std::size_t bytes) = 0;
  virtual ssize_t read(const iovec* pieces, void** descriptors, std::size_t n, std::uint64_t address, std::uint64_t key,
                       Context* context) = 0;
  /// At most n completions.
  virtual std::size_t poll(Done* done, std::size_t n) = 0;

  /// Ends the endpoint and all its operations, so that their memory may be freed. If the other end shares the endpoint,
  /// only the handling of completions ends.
  virtual void stop(bool shared) = 0;

  virtual Wait waiting() const = 0;
  virtual int fd() const = 0;
  /// Whether it is safe to sleep on fd(). Call it only after poll() returned nothing.
  virtual bool may_sleep() = 0;
  /// Call it when both ends know each other: removes names in shared file systems, so that nothing is left behind
  /// however the processes end.
  virtual void settle() = 0;
};

/// Providers that support a style here, by their full names ("tcp;ofi_rxm"), the fastest kind first. From fi_getinfo
/// only.
std::vector<std::string> list_providers(Style style, bool rma);
/// Whether it reaches only processes of this host.
bool only_local(const std::string& provider);
/// Whether any process that reaches its port can end this one, or block it permanently. `udp`, `ofi_rxd` over
/// datagrams, and `sockets` accept everything as the peer's, and trust its lengths: in libfabric 1.17 and 2.1 one
/// damaged datagram causes a segmentation fault, and one connection that ends within a message causes an endless wait.
bool trusts_strangers(const std::string& provider);
/// Whether it is for hardware that no other provider supports.
bool is_hardware(const std::string& provider);

/// Removes files in /dev/shm of processes that were killed: only Sonde's, of this user and pid namespace, whose pid is
/// not alive. Returns the number of files removed.
int sweep_shared_memory(const char* folder = "/dev/shm");

/// Fills it with random numbers from the kernel. Error: store.fabric, if the kernel gives no numbers; no other source
/// is good enough.
Result<void> fill_random(MutableBytes bytes);

/// Closes a Port when the other end's Port is here too: for two ends in one process with shared memory.
void retire(std::unique_ptr<Port> port, std::uint64_t pair);

/// Serialises the operations that libfabric's providers share: discovery, opening and closing.
class OpenLock {
 public:
  OpenLock();
  ~OpenLock();
};

/// Restores signal handlers: several providers set their own.
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
