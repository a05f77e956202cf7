#pragma once
/// The keeper's own side of keeper.hpp: what the forked child runs, and how the two talk.
///
/// A request and its answer are one packet each on a SOCK_SEQPACKET pair; both ends are one program, so that fields
/// stand one behind the other without names. Owner-thread.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "noise/keeper.hpp"
#include "noise/roll.hpp"

namespace sonde::noise {

enum class Request : std::uint8_t { start, pause, resume, stop, place, usage };

inline constexpr std::size_t packet_bytes = 160u << 10;  ///< the kernel's default send buffer takes 208 KiB
inline constexpr std::size_t command_bytes = 100'000;    ///< execve takes 128 KiB for one argument
inline constexpr std::size_t drives_kept = 2048, pids_told = 256;
inline constexpr double kill_deadline_s = 5, settle_s = 1, pause_deadline_s = 3;
inline constexpr const char* folder_prefix = "sonde-agent-";
/// The error by which the keeper says that it leaves, and by which its parent says that it has left.
inline constexpr const char* keeper_died = "noise.agent_keeper_died";

class Packer {
 public:
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  Packer& put(const T& value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Packer& put(const std::string& value) {
    put(static_cast<std::uint32_t>(value.size()));
    text_ += value;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Reads what Packer wrote; past the end it gives zeros and empty texts.
class Unpacker {
 public:
  explicit Unpacker(std::string_view text) : text_(text) {}
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  Unpacker& get(T& value) {
    if (text_.size() < sizeof value) {
      value = T{};
      text_ = {};
    } else {
      text_.copy(reinterpret_cast<char*>(&value), sizeof value);
      text_.remove_prefix(sizeof value);
    }
    return *this;
  }
  Unpacker& get(std::string& value) {
    std::uint32_t size = 0;
    get(size);
    value = text_.substr(0, size);
    text_.remove_prefix(value.size());
    return *this;
  }

 private:
  std::string_view text_;
};

/// Whether a spec can be carried out at all. Error: noise.agent_bad_option.
Result<void> check_spec(const AgentSpec& spec);

/// Removes a scratch folder with all in it.
void remove_folder(const std::string& folder);

/// The last lines of a log, each below the other and indented, of what was written behind `from`; "" where nothing was.
std::string log_tail(const std::string& path, std::int64_t from);

/// Serves requests until the socket ends. stderr_fd: where what a failing keeper may print goes; -1: nowhere. roll:
/// where it tells its parent whom it has started. Never returns.
[[noreturn]] void keep(int socket, int stderr_fd, Roll& roll);

}  // namespace sonde::noise
