#pragma once
/// The bridge's data on disk, which survive its kill -9 and an absent broker: control messages that the broker has not
/// acknowledged, and a record of received messages. Owner-thread.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace sonde::power::bridge {

/// A file to which messages and acknowledgements are appended; it is rewritten when it has grown to twice its bound. A
/// record that a crash cut off at its end is ignored.
class Store {
 public:
  struct Message {
    std::string topic, origin, payload;
  };
  /// Reads what an earlier bridge left. Errors: bridge.state (the folder or file, and the reason).
  static Result<std::unique_ptr<Store>> open(const std::string& path, std::size_t most_bytes);
  ~Store();

  /// It is on disk after the next sync(). Errors: bridge.store_full (no room for more waiting messages),
  /// bridge.store_failed (the disk: the message is still stored in memory, and `number` is set).
  Result<void> put(const Message& message, std::uint64_t& number);
  /// Errors: bridge.store_failed.
  Result<void> sync();
  void acknowledged(std::uint64_t number);
  const std::map<std::uint64_t, Message>& waiting() const { return waiting_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Store(std::string path, std::size_t most_bytes) : path_(std::move(path)), most_bytes_(most_bytes) {}
  Result<void> write(const std::string& record);
  Result<void> rewrite();

  std::string path_;
  std::size_t most_bytes_;
  int fd_ = -1;
  std::map<std::uint64_t, Message> waiting_;
  std::size_t bytes_ = 0, file_bytes_ = 0;
  std::uint64_t next_ = 1;
  bool dirty_ = false;
};

/// The last 2^18 received messages, by hash: a ring in a mapped file, which outlives the process without a system call
/// for each message.
class Seen {
 public:
  /// Only in memory if the file cannot be used: then `why` gives the reason.
  static std::unique_ptr<Seen> open(const std::string& path, std::string& why);
  ~Seen();
  /// Whether it has been remembered.
  bool known(std::string_view origin, std::string_view topic) const;
  /// Call it after the message was handled, not before: a remembered message is dropped if it comes again, also by the
  /// next process.
  void remember(std::string_view origin, std::string_view topic);

 private:
  struct Hash {
    std::uint64_t a = 0, b = 0;
    bool operator==(const Hash&) const = default;
  };
  static constexpr std::size_t places = 1u << 18, slots = 1u << 20;
  struct File {
    std::uint64_t magic, next;
    Hash ring[places];
  };
  Seen() : slots_(slots) {}
  static Hash hash_of(std::string_view origin, std::string_view topic);
  bool known(const Hash& is) const;
  void enter(std::size_t place);
  void forget(std::size_t place);

  File* file_ = nullptr;
  bool mapped_ = false;
  std::vector<std::uint32_t> slots_;  ///< 1 + place; 0: none. Linear probing
};

}  // namespace sonde::power::bridge
