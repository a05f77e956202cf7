#include "power/powerd/state.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <span>

#include "core/block.hpp"
#include "core/number.hpp"
#include "core/owned_file.hpp"

namespace sonde::power {

namespace {

constexpr std::size_t slot_bytes = 512;  // a sector: what a disk writes whole or not at all
constexpr std::size_t most_bytes = 16u << 20;
constexpr std::string_view fence_word = "sonde-fence", originals_word = "sonde-originals 1";

std::string checksum(std::string_view text) { return std::to_string(crc32(std::as_bytes(std::span(text)))); }

/// A word without blanks or line ends, whatever it is of: what others send as a name is written to disk too.
std::string escaped(std::string_view text) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out = "=";
  for (const unsigned char c : text) {
    if (c > 0x20 && c < 0x7f && c != '%') out += static_cast<char>(c);
    else out += {'%', digits[c >> 4], digits[c & 15]};
  }
  return out;
}

bool plain(std::string_view word, std::string& out) {
  out.clear();
  if (word.empty() || word[0] != '=') return false;
  for (std::size_t k = 1; k < word.size(); ++k) {
    if (word[k] != '%') {
      out += word[k];
      continue;
    }
    unsigned byte = 0;
    const char* begin = word.data() + k + 1;
    if (k + 2 >= word.size()) return false;
    if (const auto [end, why] = std::from_chars(begin, begin + 2, byte, 16); why != std::errc{} || end != begin + 2)
      return false;
    out += static_cast<char>(byte);
    k += 2;
  }
  return true;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> out;
  while (!line.empty()) {
    const auto blank = line.find(' ');
    if (blank != 0) out.push_back(line.substr(0, blank));
    if (blank == std::string_view::npos) break;
    line.remove_prefix(blank + 1);
  }
  return out;
}

struct Slot {
  std::uint64_t serial = 0;
  Fence fence;
};

std::string written(const Slot& slot) {
  std::string text = std::string(fence_word) + ' ' + std::to_string(slot.serial) + ' ' +
                     std::to_string(slot.fence.epoch) + ' ' + escaped(slot.fence.manager);
  text += ' ' + checksum(text);
  text.resize(slot_bytes - 1, ' ');
  return text + '\n';
}

std::optional<Slot> read_slot(std::string_view text) {
  const auto words = words_of(text.substr(0, text.find('\n')));
  Slot slot;
  if (words.size() != 5 || words[0] != fence_word || !number(words[1], slot.serial) ||
      !number(words[2], slot.fence.epoch) || !plain(words[3], slot.fence.manager))
    return {};
  const auto from = static_cast<std::size_t>(words[0].data() - text.data());
  const auto to = static_cast<std::size_t>(words[3].data() - text.data()) + words[3].size();
  const std::string_view covered = text.substr(from, to - from);
  if (words[4] != checksum(covered)) return {};
  return slot;
}

bool write_at(int fd, std::string_view text, off_t at) {
  while (!text.empty()) {
    const ssize_t n = ::pwrite(fd, text.data(), text.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
    at += n;
  }
  return true;
}

bool sync_folder(const std::string& path) {
  const int fd = ::open(std::filesystem::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool fine = ::fsync(fd) == 0;
  ::close(fd);
  return fine;
}

/// Errors leave errno. The file's whole content, up to most_bytes.
std::optional<std::string> content(int fd) {
  std::string text;
  std::array<char, 65536> part;
  for (;;) {
    const ssize_t n = ::pread(fd, part.data(), part.size(), static_cast<off_t>(text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return {};
    if (n == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(n));
    if (text.size() > most_bytes) {
      errno = EFBIG;
      return {};
    }
  }
}

}  // namespace

Error NodeState::wrong(const std::string& what, const std::string& file) const {
  return {"power.state", file + ": " + what + (errno ? std::string(": ") + std::strerror(errno) : ""),
          "the node manager needs its own folder with a few KiB of free space: `state` of [node-manager]"};
}

Result<std::unique_ptr<NodeState>> NodeState::open(const std::string& folder, const std::string& node) {
  std::error_code why;
  const std::string path = (std::filesystem::absolute(folder) / ("node-" + node)).string();
  if (const auto fine = make_folders_to(path); !fine) return fine.error();
  std::filesystem::create_directories(folder, why);
  std::unique_ptr<NodeState> state(new NodeState(path, -1));
  errno = why.value();
  if (why) return state->wrong("cannot be made", folder);
  const auto lock = change_file(path + ".lock");
  if (!lock) return state->wrong("cannot be opened", path + ".lock");
  state->lock_ = *lock;
  if (::flock(state->lock_, LOCK_EX | LOCK_NB) != 0) {
    const auto owner = content(state->lock_);
    return Error{"power.already_running",
                 "a node manager of " + node + " already runs" +
                     (owner && !owner->empty() ? ": process " + owner->substr(0, owner->find('\n')) : "") + " (" +
                     path + ".lock)",
                 "end that one, or set another `state` for this one"};
  }
  // For whoever finds it taken; that it cannot be written is no reason not to hold power.
  if (::ftruncate(state->lock_, 0) == 0) (void)write_at(state->lock_, std::to_string(::getpid()) + "\n", 0);
  return state;
}

NodeState::~NodeState() {
  if (slots_ >= 0) ::close(slots_);
  if (lock_ >= 0) ::close(lock_);
}

Result<Fence> NodeState::fence() {
  const std::string file = path_ + ".fence";
  if (slots_ < 0)
    if (const auto found = change_file(file, 0600, false)) slots_ = *found;
  if (slots_ < 0 && errno == ENOENT) return Fence{};
  if (slots_ < 0) return wrong("cannot be opened", file);
  const auto text = content(slots_);
  if (!text) return wrong("cannot be read", file);
  std::optional<Slot> last;
  for (std::size_t k = 0; k < 2 && text->size() > k * slot_bytes; ++k)
    if (auto slot = read_slot(std::string_view(*text).substr(k * slot_bytes, slot_bytes));
        slot && (!last || slot->serial > last->serial))
      last = slot;
  if (!last)
    return Error{"power.state", file + " is damaged: it is unknown which system manager this node must obey",
                 "remove it as soon as no system manager of an earlier epoch can still run"};
  serial_ = last->serial;
  return last->fence;
}

Result<void> NodeState::keep(const Fence& fence) {
  const std::string file = path_ + ".fence";
  const std::string text = written({serial_ + 1, fence});
  if (slots_ < 0) {
    // Both slots at once, so that later writes need no new place.
    if (auto made = replace(file, text + text); !made) return made;
    if (const auto found = change_file(file, 0600, false)) slots_ = *found;
    if (slots_ < 0) return wrong("cannot be opened", file);
  } else if (!write_at(slots_, text, static_cast<off_t>((serial_ + 1) % 2 * slot_bytes)) || ::fdatasync(slots_) != 0) {
    return wrong("cannot be written", file);
  }
  ++serial_;
  return {};
}

Result<void> NodeState::replace(const std::string& file, std::string_view text) const {
  if (!sonde::write_whole(file, text, 0600, true)) return wrong("cannot be written", file);
  return {};
}

Result<std::optional<std::vector<Original>>> NodeState::originals() const {
  const std::string file = path_ + ".originals";
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return std::optional<std::vector<Original>>();
  if (fd < 0) return wrong("cannot be opened", file);
  const auto text = content(fd);
  ::close(fd);
  if (!text) return wrong("cannot be read", file);
  std::vector<Original> out;
  std::string_view rest = *text;
  const auto damaged = [&] {
    return Error{"power.state", file + " is damaged: the hardware's settings from before the first cap are unknown",
                 "remove it; then the hardware's present settings count as the original ones"};
  };
  const auto last = rest.rfind("\nend ");
  if (!rest.starts_with(originals_word) || last == std::string_view::npos ||
      rest.substr(last + 1) != "end " + checksum(rest.substr(0, last + 1)) + "\n")
    return damaged();
  rest = rest.substr(0, last + 1);
  rest.remove_prefix(rest.find('\n') + 1);
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    const auto words = words_of(rest.substr(0, end));
    Original original;
    if (words.size() != 3 || !plain(words[0], original.domain) || !plain(words[1], original.setting) ||
        !plain(words[2], original.value))
      return damaged();
    out.push_back(std::move(original));
    rest.remove_prefix(end + 1);
  }
  return std::optional(std::move(out));
}

Result<void> NodeState::keep(const std::vector<Original>& originals) {
  std::string text = std::string(originals_word) + "\n";
  for (const auto& original : originals)
    text += escaped(original.domain) + ' ' + escaped(original.setting) + ' ' + escaped(original.value) + '\n';
  return replace(path_ + ".originals", text + "end " + checksum(text) + "\n");
}

Result<void> NodeState::forget_originals() {
  const std::string file = path_ + ".originals";
  if (::unlink(file.c_str()) != 0 && errno != ENOENT) return wrong("cannot be removed", file);
  if (!sync_folder(file)) return wrong("cannot be synced to disk", file);
  return {};
}

}  // namespace sonde::power
