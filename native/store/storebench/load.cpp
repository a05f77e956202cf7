#include "store/storebench/load.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/units.hpp"
#include "store/transport/tcp.hpp"

namespace sonde::store::bench {

namespace {

constexpr double not_told = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t held_max = 64u << 20;  ///< larger batches use their memory again from the beginning

struct Known {
  const char* name;
  bool reads;
};
constexpr Known known[] = {{"object.write", false}, {"object.read", true}, {"striped.write", false}, {"striped.read", true}, {"item.write", false},
                           {"item.read", true},     {"kv.put", false},     {"kv.get", true}};

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  for (;;) {
    const std::size_t end = text.find(at);
    out.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    text.remove_prefix(end + 1);
  }
}

bool to_number(std::string_view text, std::size_t& out) {
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), out);
  return why == std::errc{} && end == text.data() + text.size();
}

Error operation_failed(const Case& what, const Batch& batch) {
  for (std::size_t k = 0; k < batch.size(); ++k)
    if (batch[k].status != Status::ok) return {"store." + std::string(name_of(batch[k].status)), what.text() + ": an operation failed: " + std::string(explain(batch[k].status)), "see the server's status"};
  return {"store.failed", what.text() + ": an operation failed", "see the server's status"};
}

class StoreLoad : public Load {
 public:
  StoreLoad(const Case& what, Client& client, std::string space, Safety safety, MutableBytes memory)
      : what_(what), client_(client), space_(std::move(space)), safety_(safety), memory_(memory.first(memory_of(what))) {
    for (std::size_t k = 0; k < what_.depth; ++k) batches_.push_back(client_.batch(safety_));
  }

  Result<void> iterate(Stages& s) override {
    for (auto& b : batches_) {
      b.clear();
      add_operations(b);
      if (what_.depth == 1) break;
      if (auto ok = b.start(); !ok) return ok;
    }
    s = {0, 0, 0};
    for (auto& b : batches_) {
      if (auto ok = what_.depth == 1 ? b.run() : b.wait(); !ok) return ok;
      if (b.failed()) return operation_failed(what_, b);
      const Timing t = b.timing();
      s.serialise_s += t.serialise_s;
      s.wait_s += t.wait_s;
      s.backend_s += t.backend_s;
    }
    return {};
  }

 protected:
  virtual void add_operations(Batch& b) = 0;
  MutableBytes room(std::size_t k) const { return memory_.subspan(k % (memory_.size() / what_.bytes) * what_.bytes, what_.bytes); }
  Bytes piece(std::size_t k) const { return room(k); }
  Result<void> all_done(Batch& b) const {
    if (auto ok = b.run(); !ok) return ok;
    return b.failed() ? Result<void>(operation_failed(what_, b)) : Result<void>();
  }

  Case what_;
  Client& client_;
  std::string space_;
  Safety safety_;
  MutableBytes memory_;
  std::vector<Batch> batches_;
};

class ObjectLoad final : public StoreLoad {
 public:
  using StoreLoad::StoreLoad;
  Result<void> prepare(bool fill) override {
    if (what_.operation == "write" || !fill) return {};
    Batch b = client_.batch();
    for (std::size_t k = 0; k < what_.batch; ++k) b.write(space_, "o", k * what_.bytes, piece(k));
    return all_done(b);
  }
  void clean() override {
    Batch b = client_.batch();
    b.remove_object(space_, "o");
    (void)!b.run();
  }

 private:
  void add_operations(Batch& b) override {
    for (std::size_t k = 0; k < what_.batch; ++k)
      if (what_.operation == "write")
        b.write(space_, "o", k * what_.bytes, piece(k));
      else
        b.read(space_, "o", k * what_.bytes, room(k));
  }
};

/// Striped objects, and items, whose bytes are one.
class StripedLoad final : public StoreLoad {
 public:
  using StoreLoad::StoreLoad;
  Result<void> prepare(bool fill) override {
    Distribution distribution;
    distribution.block_bytes = std::max<std::size_t>(what_.bytes, 64u << 10);
    if (what_.client == "item") {
      auto item = Item::open(client_, space_, "i");
      if (!item) item = Item::create(client_, space_, "i", distribution, {{"made-by", "sonde store run"}});
      if (!item) return item.error();
      object_.emplace(item->data());
    } else {
      auto object = Striped::make(client_, space_, "s", distribution);
      if (!object) return object.error();
      object_.emplace(*object);
    }
    if (what_.operation == "write" || !fill) return {};
    Batch b = client_.batch();  // one by one would take minutes where every message waits for an acknowledgement
    for (std::size_t k = 0; k < what_.batch; ++k) object_->write(b, k * what_.bytes, piece(k));
    return all_done(b);
  }
  void clean() override {
    if (what_.client == "item")
      (void)!Item::remove(client_, space_, "i");
    else if (object_)
      (void)!object_->remove();
  }

 private:
  void add_operations(Batch& b) override {
    for (std::size_t k = 0; k < what_.batch; ++k)
      if (what_.operation == "write")
        object_->write(b, k * what_.bytes, piece(k));
      else
        object_->read(b, k * what_.bytes, room(k));
  }
  std::optional<Striped> object_;
};

class KvLoad final : public StoreLoad {
 public:
  KvLoad(const Case& what, Client& client, std::string space, Safety safety, MutableBytes memory) : StoreLoad(what, client, std::move(space), safety, memory) {
    char name[32];
    for (std::size_t k = 0; k < what_.batch * what_.depth; ++k) {
      std::snprintf(name, sizeof name, "key%08zu", k);
      keys_.emplace_back(name);
    }
  }
  Result<void> prepare(bool fill) override {
    if (what_.operation == "put" || !fill) return {};
    Batch b = client_.batch();
    for (std::size_t k = 0; k < keys_.size(); ++k) b.put(space_, keys_[k], piece(k % what_.batch));
    return all_done(b);
  }
  void clean() override {
    Batch b = client_.batch();
    for (const auto& key : keys_) b.remove(space_, key);
    (void)!b.run();
  }

 private:
  void add_operations(Batch& b) override {
    const std::size_t first = static_cast<std::size_t>(&b - batches_.data()) * what_.batch;
    for (std::size_t k = 0; k < what_.batch; ++k)
      if (what_.operation == "put")
        b.put(space_, keys_[first + k], piece(k));
      else
        b.get(space_, keys_[first + k], room(k));
  }
  std::vector<std::string> keys_;
};

constexpr std::size_t answer_bytes = 96;  ///< a request or an answer without data is a frame of 64 bytes and one record

class RawLoad final : public Load {
 public:
  RawLoad(const Case& what, RawPeer& peer, MutableBytes memory) : what_(what), peer_(peer), memory_(memory.first(std::max<std::size_t>(memory_of(what), answer_bytes))) {}
  Result<void> prepare(bool) override { return {}; }
  Result<void> iterate(Stages& s) override {
    s = {not_told, not_told, not_told};
    const std::size_t bytes = what_.bytes * what_.batch * what_.depth;
    bool reads = false;
    for (const auto& k : known)
      if (what_.client + '.' + what_.operation == k.name) reads = k.reads;
    return reads ? peer_.exchange(answer_bytes, bytes, memory_) : peer_.exchange(bytes, answer_bytes, memory_);
  }

 private:
  Case what_;
  RawPeer& peer_;
  MutableBytes memory_;
};

bool read_all(int fd, void* to, std::size_t n) {
  auto* at = static_cast<char*>(to);
  while (n) {
    const ssize_t got = ::recv(fd, at, n, 0);
    if (got <= 0) return false;
    at += got;
    n -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* from, std::size_t n) {
  const auto* at = static_cast<const char*>(from);
  while (n) {
    const ssize_t sent = ::send(fd, at, n, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    n -= static_cast<std::size_t>(sent);
  }
  return true;
}

constexpr std::size_t raw_chunk = 1u << 20;

[[noreturn]] void serve_raw(int listener) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int fd;
  do fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  while (fd < 0 && (errno == EAGAIN || errno == EINTR));
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  std::vector<char> memory(raw_chunk);
  for (;;) {
    std::uint64_t sizes[2];
    if (!read_all(fd, sizes, sizeof sizes)) ::_exit(0);
    for (std::uint64_t left = sizes[0]; left;) {
      const ssize_t got = ::recv(fd, memory.data(), std::min<std::uint64_t>(left, memory.size()), 0);
      if (got <= 0) ::_exit(0);
      left -= static_cast<std::uint64_t>(got);
    }
    for (std::uint64_t left = sizes[1]; left;) {
      const std::size_t n = std::min<std::uint64_t>(left, memory.size());
      if (!write_all(fd, memory.data(), n)) ::_exit(0);
      left -= n;
    }
  }
}

}  // namespace

std::string Case::text() const { return client + '.' + operation + ':' + std::to_string(bytes) + ':' + std::to_string(batch) + ':' + std::to_string(depth); }

Result<Case> Case::parse(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    std::string names;
    for (const auto& k : known) names += (names.empty() ? "" : ", ") + std::string(k.name);
    return Error{"store.bad_case", "'" + std::string(text) + "' is no case: " + why, "write OPERATION:BYTES:BATCH:DEPTH, as object.write:4096:1:1; operations: " + names};
  };
  const auto parts = split(text, ':');
  if (parts.size() != 4) return bad("it has not four parts");
  Case c;
  bool found = false;
  for (const auto& k : known) found |= parts[0] == k.name;
  if (!found) return bad("unknown operation '" + std::string(parts[0]) + "'");
  const auto names = split(parts[0], '.');
  c.client = names[0];
  c.operation = names[1];
  if (!to_number(parts[1], c.bytes) || c.bytes < 1 || c.bytes > (1u << 30)) return bad("bytes are from 1 to 1 GiB");
  if (!to_number(parts[2], c.batch) || c.batch < 1 || c.batch > 100'000) return bad("a batch has from 1 to 100000 operations");
  if (!to_number(parts[3], c.depth) || c.depth < 1 || c.depth > 1024) return bad("from 1 to 1024 batches may be under way");
  if (c.client == "kv" && c.bytes > limit::value_bytes) return bad("a value has at most " + format_size(limit::value_bytes));
  if (c.client == "kv" && c.bytes * c.batch > limit::atomic_batch_bytes / 2) return bad("a kv batch has at most " + format_size(limit::atomic_batch_bytes / 2));
  return c;
}

Result<Variant> Variant::parse(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    return Error{"store.bad_variant", "'" + std::string(text) + "' is no variant: " + why,
                 "write NAME=TRANSPORT[,provider=P][,nodelay=no][,cork=yes][,gather=no][,await=yes][,rma=BYTES][,spin=20us][,checksum=head][,clients=object+kv]"};
  };
  Variant v;
  const std::size_t eq = text.find('=');
  v.name = text.substr(0, eq);
  bool first = true;
  for (std::string_view word : split(eq == std::string_view::npos ? text : text.substr(eq + 1), ',')) {
    if (std::exchange(first, false)) {
      v.transport = word;
      continue;
    }
    const std::size_t at = word.find('=');
    const std::string_view name = word.substr(0, at), value = at == std::string_view::npos ? std::string_view{} : word.substr(at + 1);
    const bool yes = value == "yes", no = value == "no";
    std::size_t bytes = 0;
    if (name == "provider" && !value.empty())
      v.link.provider = value;
    else if (name == "nodelay" && (yes || no))
      v.link.nodelay = yes;
    else if (name == "cork" && (yes || no))
      v.link.cork = yes;
    else if (name == "gather" && (yes || no))
      v.link.gather = yes;
    else if (name == "await" && (yes || no))
      v.link.await = yes;
    else if (name == "checksum" && (value == "all" || value == "head"))
      v.checksum = value == "all";
    else if (name == "clients" && !value.empty())
      v.clients = value;
    else if (name == "rma" && to_number(value, bytes))
      v.link.rma_from = static_cast<std::int64_t>(bytes);
    else if (name == "spin") {
      const auto s = parse_duration(value);
      if (!s) return s.error();
      v.link.spin_s = *s;
    } else
      return bad("'" + std::string(word) + "' is not known there");
  }
  if (v.name.empty() || v.transport.empty()) return bad("a name and a transport are needed");
  return v;
}

std::size_t memory_of(const Case& what) { return std::min(what.batch, std::max<std::size_t>(1, held_max / what.bytes)) * what.bytes; }

Result<std::unique_ptr<Load>> make_load(const Case& what, Client& client, const std::string& space, Safety safety, MutableBytes memory) {
  std::unique_ptr<Load> load;
  if (what.client == "object")
    load = std::make_unique<ObjectLoad>(what, client, space, safety, memory);
  else if (what.client == "kv")
    load = std::make_unique<KvLoad>(what, client, space, safety, memory);
  else
    load = std::make_unique<StripedLoad>(what, client, space, safety, memory);
  return load;
}

std::unique_ptr<Load> make_raw_load(const Case& what, RawPeer& peer, MutableBytes memory) { return std::make_unique<RawLoad>(what, peer, memory); }

Result<std::unique_ptr<RawPeer>> RawPeer::start() {
  std::uint16_t port = 0;
  auto listener = tcp_listen({"127.0.0.1", 0}, port);
  if (!listener) return listener.error();
  std::unique_ptr<RawPeer> peer(new RawPeer);
  // Before any thread is started: a fork of a threaded process could inherit locked locks.
  peer->pid_ = ::fork();
  if (peer->pid_ == 0) serve_raw(*listener);
  auto fd = tcp_connect({"127.0.0.1", port}, Deadline::in_s(5));
  ::close(*listener);
  if (!fd) return fd.error();
  peer->fd_ = *fd;
  ::fcntl(peer->fd_, F_SETFL, ::fcntl(peer->fd_, F_GETFL) & ~O_NONBLOCK);
  const int on = 1;
  ::setsockopt(peer->fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return peer;
}

RawPeer::~RawPeer() {
  if (fd_ >= 0) ::close(fd_);
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

Result<void> RawPeer::exchange(std::size_t out, std::size_t in, MutableBytes memory) {
  const Error lost{"store.disconnected", "the raw TCP peer is gone", "run again"};
  std::uint64_t sizes[2] = {out, in};
  // Its length and small ones in one call, as a single message goes.
  const std::size_t first = std::min(out, std::min(memory.size(), raw_chunk));
  iovec pieces[2] = {{sizes, sizeof sizes}, {memory.data(), first}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
  if (sent < static_cast<ssize_t>(sizeof sizes)) return lost;
  const auto through = [&](std::size_t done, std::size_t bytes, auto move) {
    while (done < bytes) {
      const std::size_t at = done % memory.size(), n = std::min({bytes - done, memory.size() - at, raw_chunk});
      if (!move(fd_, memory.data() + at, n)) return false;
      done += n;
    }
    return true;
  };
  if (!through(static_cast<std::size_t>(sent) - sizeof sizes, out, write_all) || !through(0, in, read_all)) return lost;
  return {};
}

}  // namespace sonde::store::bench
