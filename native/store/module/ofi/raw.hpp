#pragma once
/// The cost of libfabric alone: two processes of this host exchange bytes over a provider, chosen in the same way as
/// for the transports, without a storage system in between. For the bench: it finds `raw_fabric` in the module by its
/// name, and so does not need libfabric itself. Owner-thread.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "store/transport.hpp"

namespace sonde::store::ofi {

/// Memory that both processes share (mapped before the fork). It shows which of them sleeps, for providers without a
/// descriptor.
struct RawBells {
  std::atomic<std::uint32_t> asleep[2];  ///< client, server
};

class RawEnd {
 public:
  virtual ~RawEnd() = default;
  /// Sends a request with `out` bytes and waits for an answer of `in` bytes: from and into `memory`, again from its
  /// beginning if they are more. After an error the end can only be destroyed. Errors: store.fabric,
  /// store.disconnected, store.timed_out.
  virtual Result<void> exchange(std::size_t out, std::size_t in, MutableBytes memory) = 0;
  virtual const std::string& provider() const = 0;
  /// The maximum number of bytes in a message.
  virtual std::size_t piece() const = 0;
};

struct RawFabric {
  /// provider: empty chooses one. memory: the memory of all exchanges; registered once, if the provider demands that.
  Result<std::unique_ptr<RawEnd>> (*connect)(Control& control, RawBells& bells, const std::string& provider,
                                             MutableBytes memory);
  /// The other process: answers until the Control ends.
  void (*serve)(Control& control, RawBells& bells);
};

inline constexpr const char* raw_fabric_symbol = "sonde_store_raw_fabric";  ///< extern "C" const RawFabric* (*)()

}  // namespace sonde::store::ofi
