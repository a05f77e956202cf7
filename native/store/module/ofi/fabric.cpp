// Ports on libfabric's providers: discovery, endpoints, registration, completions.
#include "store/module/ofi/fabric.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include "store/module/ofi/region.hpp"
#include "store/module/ofi/strict.hpp"

namespace sonde::store::ofi {

namespace {

constexpr std::uint32_t api = FI_VERSION(1, 17);
constexpr std::size_t queue_entries = 512;
/// Each has 16 MiB of shared memory. The provider fills 4 to 8 MiB of it at once, whatever size is requested (1.17).
constexpr int shm_ports_max = 64;
std::atomic<int> shm_ports{0};

/// libfabric 1.18 moved the code of `net` into `tcp`.
bool is_net(const std::string& provider) {
  return provider == "net" || (provider == "tcp" && FI_VERSION_GE(fi_version(), FI_VERSION(1, 18)));
}

std::mutex& open_mutex() {
  static std::mutex mutex;
  return mutex;
}

Error failed(const std::string& provider, const char* what, int number) {
  return {"store.fabric", "the fabric provider '" + provider + "' could not " + what + ": " + fabric_error(number),
          "choose another provider, or the transport tcp"};
}

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

struct CloseFid {
  template <typename T> void operator()(T* object) const { fi_close(&object->fid); }
};
template <typename T> using Fid = std::unique_ptr<T, CloseFid>;

Info hints_for(Style style, bool rma) {
  Info hints(fi_allocinfo());
  if (!hints) return hints;
  hints->caps = FI_MSG | (rma ? FI_RMA | FI_READ | FI_REMOTE_READ : 0);
  hints->mode = FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA | FI_ASYNC_IOV;
  hints->ep_attr->type = style == Style::msg ? FI_EP_MSG : FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->tx_attr->msg_order = FI_ORDER_SAS;
  hints->rx_attr->msg_order = FI_ORDER_SAS;
  return hints;
}

std::string pid_namespace() {
  struct stat status{};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? std::to_string(status.st_ino) : "0";
}

std::string shm_stem() { return shm_prefix + std::to_string(::getuid()) + '-' + pid_namespace() + '-'; }

/// `sockets` has a thread that spins for 10 ms after each message. That is fast if cores are idle; if they are few, the
/// thread takes them from the two ends (4 ms a message on two cores). A user's own setting of the variable has
/// priority.
[[gnu::constructor]] void spare_the_cores() {
  if (::sysconf(_SC_NPROCESSORS_ONLN) < 8) ::setenv("FI_SOCKETS_PE_WAITTIME", "0", 0);
}

/// Errors are read from the queue by a separate call. A failed receive at the peer also appears here.
std::string queue_error(fid_cq* queue, const fi_cq_err_entry& entry) {
  char text[128];
  const char* more = fi_cq_strerror(queue, entry.prov_errno, entry.err_data, text, sizeof text);
  std::string why = fabric_error(entry.err);
  if (more && *more && why != more) why += std::string(" (") + more + ')';
  return why;
}

/// A copy of a peer's address with padding: libfabric reads as many bytes as its format has, or up to a string's end,
/// whatever the peer sent.
std::vector<std::byte> padded(Bytes address) {
  std::vector<std::byte> out(address.begin(), address.end());
  out.resize(std::max(out.size() + 1, sizeof(sockaddr_storage)));
  return out;
}

class FabricPort final : public Port {
 public:
  explicit FabricPort(const PortOptions& options) : options_(options), peer_address_(padded(options.peer)) {}

  ~FabricPort() override {
    const OpenLock lock;
    const KeepSignals keep;
    endpoint_.reset();
    listener_.reset();
    vector_.reset();
    queue_.reset();
    unused_.reset();
    domain_.reset();
    events_.reset();
    fabric_.reset();
    if (counted_) --shm_ports;
  }

  Result<void> open() {
    const OpenLock lock;
    const KeepSignals keep;
    if (only_local(options_.provider)) {
      counted_ = true;
      if (++shm_ports > shm_ports_max)
        return Error{"store.fabric",
                     "this process already has " + std::to_string(shm_ports_max) +
                         " connections over shared memory, each of 8 MB",
                     ""};
    }
    auto info = find();
    if (!info) return info.error();
    info_ = std::move(*info);
    read_demands();
    fid_fabric* fabric = nullptr;
    if (const int r = fi_fabric(info_->fabric_attr, &fabric, nullptr)) return failed(options_.provider, "be opened", r);
    fabric_.reset(fabric);
    if (options_.style == Style::msg) {
      fi_eq_attr eq{};
      eq.wait_obj = FI_WAIT_NONE;
      fid_eq* events = nullptr;
      int r = fi_eq_open(fabric_.get(), &eq, &events, nullptr);
      if (r != 0) {
        eq.wait_obj = FI_WAIT_UNSPEC;  // some providers have no queue without it
        r = fi_eq_open(fabric_.get(), &eq, &events, nullptr);
      }
      if (r != 0) return failed(options_.provider, "open an event queue", r);
      events_.reset(events);
    }
    if (options_.style == Style::msg && options_.peer.empty()) return listen();
    if (auto ok = open_domain(); !ok) return ok;
    return open_endpoint(info_.get());
  }

  const Demands& demands() const override { return demands_; }
  const std::string& provider() const override { return options_.provider; }
  std::uint32_t address_format() const override { return info_->addr_format; }

  Result<std::vector<std::byte>> address() override {
    std::vector<std::byte> name(512);
    std::size_t size = name.size();
    if (const int r = fi_getname(listener_ ? &listener_->fid : &endpoint_->fid, name.data(), &size))
      return failed(options_.provider, "report its address", r);
    name.resize(size);
    if (info_->addr_format == FI_ADDR_STR)
      if (const auto end = std::find(name.begin(), name.end(), std::byte{0}); end != name.end())
        name.erase(end + 1, name.end());
    return name;
  }

  Result<void> set_peer(Bytes address) override {
    if (only_local(options_.provider) && !is_own_region(region_of(address)))
      return Error{"store.no_provider", "the peer's shared memory is not this user's",
                   "use another transport, such as tcp"};
    const int n = fi_av_insert(vector_.get(), padded(address).data(), 1, &peer_, 0, nullptr);
    if (n != 1) return failed(options_.provider, "accept the peer's address", n < 0 ? n : -FI_EINVAL);
    return {};
  }

  Result<void> connect(Bytes token) override {
    if (const int r = fi_connect(endpoint_.get(), peer_address_.data(), token.data(), token.size()))
      return failed(options_.provider, "connect", r);
    return {};
  }

  Result<void> take_request() override {
    const OpenLock lock;
    const KeepSignals keep;
    listener_.reset();
    if (auto ok = open_domain(); !ok) return ok;
    return open_endpoint(request_.get());
  }

  void reject_request() override {
    if (request_ && listener_) fi_reject(listener_.get(), request_->handle, nullptr, 0);
    request_.reset();
  }

  Result<void> accept() override {
    if (const int r = fi_accept(endpoint_.get(), nullptr, 0))
      return failed(options_.provider, "accept a connection", r);
    return {};
  }

  Event event(Bytes* token) override {
    if (!events_) return Event::none;
    std::uint32_t kind = 0;
    // The entry ends in an array without a length, for the data of a request.
    alignas(fi_eq_cm_entry) std::byte space[sizeof(fi_eq_cm_entry) + 256];
    const ssize_t n = fi_eq_read(events_.get(), &kind, space, sizeof space, 0);
    if (n == -FI_EAGAIN || n == -FI_EINTR || n == 0) return Event::none;
    if (n < 0) {
      fi_eq_err_entry entry{};
      fi_eq_readerr(events_.get(), &entry, 0);
      return Event::failed;
    }
    const auto* entry = reinterpret_cast<const fi_eq_cm_entry*>(space);
    if (kind == FI_CONNREQ) {
      request_.reset(entry->info);
      const std::size_t bytes = static_cast<std::size_t>(n) > sizeof(fi_eq_cm_entry)
                                    ? static_cast<std::size_t>(n) - sizeof(fi_eq_cm_entry)
                                    : 0;
      token_.assign(space + sizeof(fi_eq_cm_entry), space + sizeof(fi_eq_cm_entry) + bytes);
      if (token) *token = token_;
      return Event::request;
    }
    if (kind == FI_CONNECTED) return Event::connected;
    if (kind == FI_SHUTDOWN) return Event::shutdown;
    return Event::none;
  }

  bool ready() const override { return endpoint_ != nullptr; }

  Result<Region> enrol(void* memory, std::size_t bytes, bool remote) override {
    Region region;
    region.base = static_cast<std::byte*>(memory);
    region.size = bytes;
    const std::uint64_t access = FI_SEND | FI_RECV | (options_.rma ? FI_READ : 0) | (remote ? FI_REMOTE_READ : 0);
    int r = -FI_ENOKEY;
    for (int tries = 0; r == -FI_ENOKEY && tries < 8; ++tries) {  // the key of another region
      const auto key = next_key();
      if (!key) return key.error();
      r = fi_mr_reg(domain_.get(), memory, bytes, access, 0, *key, 0, &region.mr, nullptr);
    }
    if (r != 0) return failed(options_.provider, ("register " + std::to_string(bytes) + " bytes of memory").c_str(), r);
    if (demands_.bind_mr) {
      r = fi_mr_bind(region.mr, &endpoint_->fid, 0);
      if (r == 0) r = fi_mr_enable(region.mr);
      if (r != 0) {
        fi_close(&region.mr->fid);
        return failed(options_.provider, "enable registered memory", r);
      }
    }
    region.descriptor = fi_mr_desc(region.mr);
    region.key = fi_mr_key(region.mr);
    return region;
  }

  void strike(Region& region) override {
    if (region.mr) fi_close(&region.mr->fid);
    region = {};
  }

  ssize_t receive(void* memory, std::size_t bytes, const Region* region, Context* context) override {
    return fi_recv(endpoint_.get(), memory, bytes, region ? region->descriptor : nullptr, FI_ADDR_UNSPEC,
                   &context->space);
  }

  ssize_t send(const iovec* pieces, void** descriptors, std::size_t n, Context* context, bool completes) override {
    fi_msg message{};
    message.msg_iov = pieces;
    message.desc = descriptors;
    message.iov_count = n;
    message.addr = peer_;
    message.context = &context->space;
    return fi_sendmsg(endpoint_.get(), &message, completes ? FI_COMPLETION : 0);
  }

  ssize_t inject(const void* memory, std::size_t bytes) override {
    return fi_inject(endpoint_.get(), memory, bytes, peer_);
  }

  ssize_t read(const iovec* pieces, void** descriptors, std::size_t n, std::uint64_t address, std::uint64_t key,
               Context* context) override {
    std::size_t bytes = 0;
    for (std::size_t k = 0; k < n; ++k) bytes += pieces[k].iov_len;
    const fi_rma_iov remote{address, bytes, key};
    fi_msg_rma message{};
    message.msg_iov = pieces;
    message.desc = descriptors;
    message.iov_count = n;
    message.addr = peer_;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    message.context = &context->space;
    return fi_readmsg(endpoint_.get(), &message, FI_COMPLETION);
  }

  std::size_t poll(Done* done, std::size_t n) override {
    std::array<fi_cq_msg_entry, 32> entries;
    const ssize_t got = fi_cq_read(queue_.get(), entries.data(), std::min(n, entries.size()));
    if (got == -FI_EAVAIL) {
      fi_cq_err_entry entry{};
      char data[128];
      entry.err_data = data;
      entry.err_data_size = sizeof data;
      if (fi_cq_readerr(queue_.get(), &entry, 0) != 1) return 0;
      done[0] = {static_cast<Context*>(entry.op_context), 0, entry.err ? entry.err : FI_EIO,
                 queue_error(queue_.get(), entry)};
      return 1;
    }
    if (got <= 0) {
      // Any result except "nothing yet" concerns the queue itself.
      if (got == 0 || got == -FI_EAGAIN || got == -FI_EINTR) return 0;
      done[0] = {nullptr, 0, static_cast<int>(-got), fabric_error(static_cast<int>(-got))};
      return 1;
    }
    for (ssize_t k = 0; k < got; ++k) {
      done[k].context = static_cast<Context*>(entries[k].op_context);
      done[k].bytes = entries[k].len;
      done[k].error = 0;
    }
    return static_cast<std::size_t>(got);
  }

  void stop(bool shared) override {
    // Memory that is bound to an endpoint must be closed before it.
    if (shared || demands_.bind_mr) return;
    const OpenLock lock;
    endpoint_.reset();
  }

  Wait waiting() const override { return waiting_; }
  int fd() const override { return fd_; }

  bool may_sleep() override {
    if (waiting_ != Wait::queue) return true;
    fid* queue = &queue_->fid;
    return fi_trywait(fabric_.get(), &queue, 1) == FI_SUCCESS;
  }

  void settle() override {
    // The region stays mapped at both ends. Without its name nothing is left behind, however the processes end. The
    // provider has extended the name that it was given.
    if (!only_local(options_.provider)) return;
    const auto own = address();
    if (!own) return;
    if (const std::string name = region_of(*own); name.starts_with(shm_prefix)) ::shm_unlink(name.c_str());
  }

 private:
  /// Anybody who reaches the endpoint can read remote memory with the key alone, so the key must be unpredictable.
  Result<std::uint64_t> next_key() {
    if (demands_.provider_key) return std::uint64_t{0};
    if (keys_left_ == 0) {
      if (auto ok = fill_random(std::as_writable_bytes(std::span(keys_))); !ok) return ok.error();
      keys_left_ = keys_.size();
    }
    const std::size_t bytes = (request_ ? request_ : info_)->domain_attr->mr_key_size;
    const std::uint64_t key = keys_[--keys_left_];
    return bytes > 0 && bytes < sizeof key ? key & ((std::uint64_t{1} << 8 * bytes) - 1) : key;
  }

  Result<Info> find() {
    Info hints = hints_for(options_.style, options_.rma);
    if (!hints) return failed(options_.provider, "be queried", -FI_ENOMEM);
    // Providers free this with free().
    hints->fabric_attr->prov_name = ::strdup(options_.provider.c_str());
    std::string name;
    const char* node = nullptr;
    std::uint64_t flags = 0;
    if (only_local(options_.provider)) {
      static std::atomic<unsigned> number{0};
      name = shm_stem() + std::to_string(::getpid()) + '-' + std::to_string(++number);
      node = name.c_str();
      flags = FI_SOURCE;
    } else if (!options_.peer.empty()) {
      hints->addr_format = options_.peer_format;
      hints->dest_addr = std::malloc(peer_address_.size());
      if (hints->dest_addr) std::memcpy(hints->dest_addr, peer_address_.data(), peer_address_.size());
      hints->dest_addrlen = hints->dest_addr ? options_.peer.size() : 0;
    } else if (!options_.node.empty()) {
      node = options_.node.c_str();
      flags = FI_SOURCE;
    }
    fi_info* found = nullptr;
    int r = fi_getinfo(api, node, nullptr, flags, hints.get(), &found);
    if (r == -FI_ENODATA && flags && !only_local(options_.provider))
      r = fi_getinfo(api, nullptr, nullptr, 0, hints.get(), &found);  // hardware whose addresses are not IP addresses
    Info list(found);
    if (r) return failed(options_.provider, "offer the features that are needed here", r);
    // A name also matches the providers layered above it.
    for (const fi_info* info = list.get(); info; info = info->next)
      if (info->fabric_attr->prov_name && options_.provider == info->fabric_attr->prov_name)
        return Info(fi_dupinfo(info));
    return failed(options_.provider, "offer the features that are needed here", -FI_ENODATA);
  }

  void read_demands() {
    const int mr = info_->domain_attr->mr_mode;
    const std::uint64_t mode = info_->mode | info_->tx_attr->mode | info_->rx_attr->mode;
    demands_.local_mr = mr & FI_MR_LOCAL;
    demands_.virtual_addr = mr & FI_MR_VIRT_ADDR;
    demands_.provider_key = mr & FI_MR_PROV_KEY;
    demands_.allocated = mr & FI_MR_ALLOCATED;
    demands_.bind_mr = mr & FI_MR_ENDPOINT;
    demands_.context = mode & (FI_CONTEXT | FI_CONTEXT2);
    demands_.receive_data = mode & FI_RX_CQ_DATA;
    // FI_ORDER_STRICT; libfabric 2 warns about that name.
    constexpr std::uint64_t strict = 0x1FF;
    // Reliable datagrams of `net` lose completions that are requested one by one (1.17).
    demands_.in_order = options_.style == Style::msg && (info_->tx_attr->comp_order & strict);
    demands_.async_iov = mode & FI_ASYNC_IOV;
    demands_.inject = info_->tx_attr->inject_size;
    demands_.iovs = std::max<std::size_t>(1, info_->tx_attr->iov_limit);
    demands_.sends = std::max<std::size_t>(2, info_->tx_attr->size);
    demands_.receives = std::max<std::size_t>(2, info_->rx_attr->size);
  }

  Result<void> listen() {
    fid_pep* listener = nullptr;
    if (const int r = fi_passive_ep(fabric_.get(), info_.get(), &listener, nullptr))
      return failed(options_.provider, "listen", r);
    listener_.reset(listener);
    if (const int r = fi_pep_bind(listener, &events_->fid, 0)) return failed(options_.provider, "listen", r);
    if (const int r = fi_listen(listener)) return failed(options_.provider, "listen", r);
    return {};
  }

  Result<void> open_domain() {
    fid_domain* domain = nullptr;
    fi_info* info = request_ ? request_.get() : info_.get();
    if (const int r = fi_domain(fabric_.get(), info, &domain, nullptr))
      return failed(options_.provider, "open a domain", r);
    domain_.reset(domain);
    fi_cq_attr attributes{};
    attributes.size = queue_entries;
    attributes.format = FI_CQ_FORMAT_MSG;
    fid_cq* queue = nullptr;
    // `net` never resets the signal of a queue with a descriptor, so a sleeper would spin (1.17, 2.1). The descriptor
    // of another queue, on which nothing ever completes, covers the domain's progress too, and costs no signal for each
    // completion.
    const bool by_progress = is_net(options_.provider) && find_progress();
    if (!by_progress) {
      attributes.wait_obj = FI_WAIT_FD;
      if (fi_cq_open(domain, &attributes, &queue, nullptr) == 0) {
        if (fi_control(&queue->fid, FI_GETWAIT, &fd_) == 0) {
          waiting_ = Wait::queue;
        } else {
          fi_close(&queue->fid);
          queue = nullptr;
        }
      } else {
        queue = nullptr;
      }
    }
    if (!queue) {
      attributes.wait_obj = FI_WAIT_NONE;
      if (const int r = fi_cq_open(domain, &attributes, &queue, nullptr))
        return failed(options_.provider, "open a completion queue", r);
      waiting_ = by_progress ? Wait::progress : Wait::none;
      fd_ = by_progress ? progress_fd_ : -1;
    }
    queue_.reset(queue);
    return {};
  }

  bool find_progress() {
    fi_cq_attr attributes{};
    attributes.size = 1;
    attributes.format = FI_CQ_FORMAT_CONTEXT;
    attributes.wait_obj = FI_WAIT_FD;
    fid_cq* queue = nullptr;
    if (fi_cq_open(domain_.get(), &attributes, &queue, nullptr) != 0) return false;
    unused_.reset(queue);
    return fi_control(&queue->fid, FI_GETWAIT, &progress_fd_) == 0;
  }

  Result<void> open_endpoint(fi_info* info) {
    fid_ep* endpoint = nullptr;
    if (const int r = fi_endpoint(domain_.get(), info, &endpoint, nullptr))
      return failed(options_.provider, "open an endpoint", r);
    endpoint_.reset(endpoint);
    if (options_.style == Style::rdm) {
      fi_av_attr attributes{};
      attributes.type = FI_AV_UNSPEC;
      attributes.count = 1;
      fid_av* vector = nullptr;
      if (const int r = fi_av_open(domain_.get(), &attributes, &vector, nullptr))
        return failed(options_.provider, "open an address vector", r);
      vector_.reset(vector);
      if (const int r = fi_ep_bind(endpoint, &vector->fid, 0))
        return failed(options_.provider, "bind its address vector", r);
    } else if (const int r = fi_ep_bind(endpoint, &events_->fid, 0)) {
      return failed(options_.provider, "bind its event queue", r);
    }
    int r;
    if (demands_.in_order) {
      r = fi_ep_bind(endpoint, &queue_->fid, FI_RECV);
      if (r == 0) r = fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
    } else {
      r = fi_ep_bind(endpoint, &queue_->fid, FI_TRANSMIT | FI_RECV);
    }
    if (r != 0) return failed(options_.provider, "bind its queue", r);
    if (const int r = fi_enable(endpoint)) return failed(options_.provider, "enable its endpoint", r);
    return {};
  }

  PortOptions options_;
  std::vector<std::byte> peer_address_;  ///< options_.peer, padded
  Info info_, request_;
  Demands demands_;
  Fid<fid_fabric> fabric_;
  Fid<fid_eq> events_;
  Fid<fid_domain> domain_;
  Fid<fid_cq> queue_, unused_;
  Fid<fid_av> vector_;
  Fid<fid_pep> listener_;
  Fid<fid_ep> endpoint_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  bool counted_ = false;
  int progress_fd_ = -1, fd_ = -1;
  Wait waiting_ = Wait::none;
  std::array<std::uint64_t, 32> keys_{};  ///< random, in stock: not every key costs a system call
  std::size_t keys_left_ = 0;
  std::vector<std::byte> token_;
};

}  // namespace

OpenLock::OpenLock() { open_mutex().lock(); }
OpenLock::~OpenLock() { open_mutex().unlock(); }

struct KeepSignals::State {
  std::array<struct sigaction, 32> before;
};

KeepSignals::KeepSignals() : state_(std::make_unique<State>()) {
  for (int s = 1; s < 32; ++s) ::sigaction(s, nullptr, &state_->before[s]);
}

KeepSignals::~KeepSignals() {
  for (int s = 1; s < 32; ++s) {
    struct sigaction now{};
    if (s == SIGKILL || s == SIGSTOP || ::sigaction(s, nullptr, &now) != 0) continue;
    if (now.sa_handler != state_->before[s].sa_handler) ::sigaction(s, &state_->before[s], nullptr);
  }
}

std::string fabric_error(int number) { return fi_strerror(number < 0 ? -number : number); }

std::string Demands::text() const {
  std::string list;
  const auto add = [&](bool on, const char* name) {
    if (on) list += (list.empty() ? "" : " ") + std::string(name);
  };
  add(local_mr, "mr_local");
  add(virtual_addr, "mr_virt_addr");
  add(allocated, "mr_allocated");
  add(provider_key, "mr_prov_key");
  add(bind_mr, "mr_endpoint");
  add(context, "context");
  add(receive_data, "rx_cq_data");
  add(async_iov, "async_iov");
  return list;
}

bool only_local(const std::string& provider) { return provider == "shm"; }

bool trusts_strangers(const std::string& provider) {
  // sm2 (libfabric 1.18 and later): all users of a host share one table in /dev/shm, and its first creator owns it.
  return provider == "sockets" || provider.starts_with("udp") || provider.starts_with("sm2") ||
         provider.find("ofi_rxd") != std::string::npos;
}

bool is_hardware(const std::string& provider) {
  for (const char* name : {"verbs", "psm", "efa", "opx", "cxi", "gni", "usnic", "bgq", "ucx", "lnx"})
    if (provider.starts_with(name)) return true;
  return false;
}

std::vector<std::string> list_providers(Style style, bool rma) {
  const OpenLock lock;
  // Under OpenLock. The query takes milliseconds, and its result does not change on a machine.
  static std::map<std::pair<Style, bool>, std::vector<std::string>> known;
  if (const auto found = known.find({style, rma}); found != known.end()) return found->second;
  const KeepSignals keep;
  const Info hints = hints_for(style, rma);
  fi_info* found = nullptr;
  if (!hints || fi_getinfo(api, nullptr, nullptr, 0, hints.get(), &found) != 0) return {};
  const Info list(found);
  std::vector<std::string> names;
  for (const fi_info* info = list.get(); info; info = info->next)
    if (const char* name = info->fabric_attr->prov_name;
        name && std::find(names.begin(), names.end(), name) == names.end())
      names.emplace_back(name);
  const auto rank = [](const std::string& name) {
    if (only_local(name)) return 0;
    if (is_hardware(name)) return 1;
    if (name == "net") return 2;
    if (name == "tcp") return 3;
    if (name == "tcp;ofi_rxm" || name == "net;ofi_rxm") return 4;
    if (name == "sockets") return 5;
    return 6;
  };
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  known[{style, rma}] = names;
  return names;
}

int sweep_shared_memory(const char* folder) {
  DIR* dir = ::opendir(folder);
  if (!dir) return 0;
  const std::string stem = shm_stem();
  int removed = 0;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(stem)) continue;
    pid_t pid = 0;
    const auto [end, why] = std::from_chars(name.data() + stem.size(), name.data() + name.size(), pid);
    if (why != std::errc{} || pid <= 0 || end == name.data() + name.size() || *end != '-') continue;
    if (::kill(pid, 0) == 0 || errno != ESRCH) continue;
    removed += ::unlinkat(::dirfd(dir), entry->d_name, 0) == 0;
  }
  ::closedir(dir);
  return removed;
}

Result<void> fill_random(MutableBytes bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::getrandom(bytes.data() + done, bytes.size() - done, 0);
    if (n > 0) done += static_cast<std::size_t>(n);
    else if (n < 0 && errno != EINTR)
      return Error{"store.fabric", std::string("the kernel gives no random numbers: ") + std::strerror(errno),
                   "choose the transport tcp"};
  }
  return {};
}

void retire(std::unique_ptr<Port> port, std::uint64_t pair) {
  // Two ends in one process share the mapping of their memory: the first to close would take it from the other.
  static std::mutex mutex;
  static std::map<std::uint64_t, std::unique_ptr<Port>> waiting;
  std::unique_ptr<Port> other;
  const std::lock_guard lock(mutex);
  const auto found = waiting.find(pair);
  if (found == waiting.end()) {
    waiting.emplace(pair, std::move(port));
    return;
  }
  other = std::move(found->second);
  waiting.erase(found);
}

Result<std::unique_ptr<Port>> Port::open(const PortOptions& options) {
  auto port = std::make_unique<FabricPort>(options);
  if (auto ok = port->open(); !ok) return ok.error();
  if (options.strict) return make_strict(std::move(port));
  return std::unique_ptr<Port>(std::move(port));
}

}  // namespace sonde::store::ofi
