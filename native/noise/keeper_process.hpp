#pragma once
/// The supervisor's side of keeper.hpp: the code of the forked child, and the protocol between the two processes.
///
/// A request and its answer are one packet each on a SOCK_SEQPACKET pair. Both ends are the same program, so a packet
/// has its fields one after the other, without names. Owner-thread.

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
/// The error with which the supervisor reports that it ends, and with which its parent reports that it has ended.
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

/// Reads a packet of Packer; after its end it gives zeros and empty texts.
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

/// Checks a spec. Error: noise.agent_bad_option.
Result<void> check_spec(const AgentSpec& spec);

/// Removes a scratch folder and its content.
void remove_folder(const std::string& folder);

/// The last lines of a log after position `from`, each on its own line and indented; "" where there are no lines.
std::string log_tail(const std::string& path, std::int64_t from);

/// Serves requests until the socket ends. stderr_fd: for the messages of a failing supervisor; -1: no file. roll: the
/// list of started processes for the parent. It never returns.
[[noreturn]] void keep(int socket, int stderr_fd, Roll& roll);

}  // namespace sonde::noise
