#include "power/powerd/bridge/store.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "core/owned_file.hpp"

namespace sonde::power::bridge {

namespace {

constexpr std::uint32_t message_mark = 0x6d716d31, ack_mark = 0x6d716131;
constexpr std::uint64_t seen_magic = 0x736f6e6465736531;

struct Head {
  std::uint32_t mark, topic, origin, payload;
  std::uint64_t number, check;
};

std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return seed ^ seed >> 29;
}
std::uint64_t check(const Head& head, std::string_view body) {
  Head plain = head;
  plain.check = 0;
  return hash(body, hash({reinterpret_cast<const char*>(&plain), sizeof plain}, 0xcbf29ce484222325u));
}

std::string record(std::uint64_t number, const Store::Message* message) {
  Head head{};
  head.number = number;
  head.mark = message ? message_mark : ack_mark;
  std::string body;
  if (message) {
    head.topic = static_cast<std::uint32_t>(message->topic.size());
    head.origin = static_cast<std::uint32_t>(message->origin.size());
    head.payload = static_cast<std::uint32_t>(message->payload.size());
    body = message->topic + message->origin + message->payload;
  }
  head.check = check(head, body);
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + body;
}

Error failed(const char* code, const std::string& path, const char* what) {
  return {code, path + ": " + what + ": " + std::strerror(errno),
          "check that [mqtt-bridge] state is a folder where the bridge may write, on a disk with free space"};
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void appends(int fd) { (void)::fcntl(fd, F_SETFL, O_APPEND); }

std::size_t cost(const Store::Message& message) {
  return sizeof(Head) + message.topic.size() + message.origin.size() + message.payload.size();
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(const std::string& path, std::size_t most_bytes) {
  std::unique_ptr<Store> store(new Store(path, most_bytes));
  const auto found = change_file(path);
  if (!found) return failed("bridge.state", path, "cannot be opened");
  store->fd_ = *found;
  appends(store->fd_);
  std::string all;
  char part[65536];
  for (;;) {
    const ssize_t n = ::read(store->fd_, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("bridge.state", path, "cannot be read");
    if (n == 0) break;
    all.append(part, static_cast<std::size_t>(n));
    if (all.size() > 4 * most_bytes + (64u << 20)) break;  // not a file of the bridge
  }
  std::string_view left = all;
  while (left.size() >= sizeof(Head)) {
    Head head;
    std::memcpy(&head, left.data(), sizeof head);
    const std::uint64_t body = std::uint64_t{head.topic} + head.origin + head.payload;
    if ((head.mark != message_mark && head.mark != ack_mark) || body > left.size() - sizeof head) break;
    const std::string_view text = left.substr(sizeof head, body);
    if (head.check != check(head, text) || head.number == 0 || head.number == UINT64_MAX) break;
    if (head.mark == message_mark) {
      Message message{std::string(text.substr(0, head.topic)), std::string(text.substr(head.topic, head.origin)),
                      std::string(text.substr(head.topic + head.origin))};
      const std::size_t bytes = cost(message);
      if (store->waiting_.emplace(head.number, std::move(message)).second) store->bytes_ += bytes;
    } else if (const auto found = store->waiting_.find(head.number); found != store->waiting_.end()) {
      store->bytes_ -= cost(found->second);
      store->waiting_.erase(found);
    }
    store->next_ = std::max(store->next_, head.number + 1);
    left.remove_prefix(sizeof head + body);
  }
  if (auto fine = store->rewrite(); !fine) return Error{"bridge.state", fine.error().what, fine.error().hint};
  return store;
}

Store::~Store() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> Store::write(const std::string& bytes) {
  if (!write_all(fd_, bytes)) {
    const Error error = failed("bridge.store_failed", path_, "cannot be written");
    (void)!::ftruncate(fd_, static_cast<off_t>(file_bytes_));  // half a record would hide the following records
    return error;
  }
  file_bytes_ += bytes.size();
  dirty_ = true;
  return {};
}

Result<void> Store::put(const Message& message, std::uint64_t& number) {
  number = 0;
  const std::size_t need = cost(message);
  if (bytes_ + need > most_bytes_)
    return Error{"bridge.store_full",
                 "control messages that the broker has not acknowledged fill " + std::to_string(bytes_) + " bytes",
                 std::to_string(most_bytes_) + " are allowed; raise [mqtt-bridge] store"};
  number = next_++;
  bytes_ += need;
  waiting_.emplace(number, message);
  if (file_bytes_ + need > 2 * most_bytes_) return rewrite();
  return write(record(number, &message));
}

Result<void> Store::sync() {
  if (!dirty_) return {};
  if (::fdatasync(fd_) != 0) return failed("bridge.store_failed", path_, "cannot be synced");
  dirty_ = false;
  return {};
}

void Store::acknowledged(std::uint64_t number) {
  const auto found = waiting_.find(number);
  if (found == waiting_.end()) return;
  bytes_ -= cost(found->second);
  waiting_.erase(found);
  if (waiting_.empty()) {
    if (::ftruncate(fd_, 0) == 0) file_bytes_ = 0;
    return;
  }
  // If this fails, the message is sent once more after a restart, and its receiver recognises it.
  (void)write(record(number, nullptr));
}

Result<void> Store::rewrite() {
  std::string beside;
  const auto made = make_part(path_, beside);
  if (!made) return failed("bridge.store_failed", beside, "cannot be made");
  const int fd = *made;
  appends(fd);
  std::size_t written = 0;
  bool fine = true;
  for (const auto& [number, message] : waiting_) {
    const std::string bytes = record(number, &message);
    fine = fine && write_all(fd, bytes);
    written += bytes.size();
  }
  if (!fine || ::fdatasync(fd) != 0 || ::rename(beside.c_str(), path_.c_str()) != 0) {
    const Error error = failed("bridge.store_failed", beside, "cannot be written");
    ::close(fd);
    ::unlink(beside.c_str());
    return error;
  }
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
  file_bytes_ = written;
  dirty_ = true;
  return {};
}

std::unique_ptr<Seen> Seen::open(const std::string& path, std::string& why) {
  std::unique_ptr<Seen> seen(new Seen);
  const auto found = change_file(path);
  const int fd = found ? *found : -1;
  // The space is allocated now: otherwise a write to the mapping would kill the process on a full disk.
  if (fd >= 0 && ::posix_fallocate(fd, 0, sizeof(File)) == 0) {
    void* at = ::mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) seen->file_ = static_cast<File*>(at), seen->mapped_ = true;
  }
  if (!seen->file_) {
    why = path + ": " + std::strerror(errno);
    seen->file_ = new File{};
  }
  if (fd >= 0) ::close(fd);
  File& file = *seen->file_;
  if (file.magic != seen_magic) {
    std::memset(static_cast<void*>(&file), 0, sizeof file);
    file.magic = seen_magic;
  }
  for (std::size_t k = 0; k < places; ++k)
    if (file.ring[k].a || file.ring[k].b) seen->enter(k);
  return seen;
}

Seen::~Seen() {
  if (mapped_) ::munmap(file_, sizeof(File));
  else delete file_;
}

void Seen::enter(std::size_t place) {
  for (std::size_t at = file_->ring[place].a % slots;; at = (at + 1) % slots) {
    if (slots_[at]) continue;
    slots_[at] = static_cast<std::uint32_t>(place + 1);
    return;
  }
}

void Seen::forget(std::size_t place) {
  std::size_t at = file_->ring[place].a % slots;
  while (slots_[at] != place + 1) {
    if (!slots_[at]) return;
    at = (at + 1) % slots;
  }
  // The following entries move up, as linear probing requires.
  slots_[at] = 0;
  for (std::size_t next = (at + 1) % slots; slots_[next]; next = (next + 1) % slots) {
    const std::size_t home = file_->ring[slots_[next] - 1].a % slots;
    const bool stays = at <= next ? (home > at && home <= next) : (home > at || home <= next);
    if (stays) continue;
    slots_[at] = std::exchange(slots_[next], 0u);
    at = next;
  }
}

Seen::Hash Seen::hash_of(std::string_view origin, std::string_view topic) {
  return {hash(topic, hash(origin, 0xcbf29ce484222325u)), hash(topic, hash(origin, 0x9e3779b97f4a7c15u)) | 1};
}

bool Seen::known(const Hash& is) const {
  for (std::size_t at = is.a % slots; slots_[at]; at = (at + 1) % slots)
    if (file_->ring[slots_[at] - 1] == is) return true;
  return false;
}

bool Seen::known(std::string_view origin, std::string_view topic) const { return known(hash_of(origin, topic)); }

void Seen::remember(std::string_view origin, std::string_view topic) {
  const Hash is = hash_of(origin, topic);
  if (known(is)) return;
  const std::size_t place = file_->next % places;
  if (file_->ring[place].a || file_->ring[place].b) forget(place);  // in the same form as open() entered it
  file_->ring[place] = is;
  file_->next = (place + 1) % places;
  enter(place);
}

}  // namespace sonde::power::bridge
