#pragma once
/// What libfabric alone does: two processes of this host move bytes there and back over a provider that is chosen as
/// the transports choose it, with no storage system between. For the bench, which finds `raw_fabric` in the module by
/// its name and so needs no libfabric itself. Owner-thread.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "store/transport.hpp"

namespace sonde::store::ofi {

/// Memory that both processes have (mapped before the fork): who sleeps where the provider has nothing to sleep on.
struct RawBells {
  std::atomic<std::uint32_t> asleep[2];  ///< client, server
};

class RawEnd {
 public:
  virtual ~RawEnd() = default;
  /// Sends a request with `out` bytes and waits for an answer of `in`: from and into `memory`, from its begin again
  /// where they are more. After an error only the end is left. Errors: store.fabric, store.disconnected,
  /// store.timed_out.
  virtual Result<void> exchange(std::size_t out, std::size_t in, MutableBytes memory) = 0;
  virtual const std::string& provider() const = 0;
  /// Bytes of a message at most.
  virtual std::size_t piece() const = 0;
};

struct RawFabric {
  /// provider: empty chooses. memory: what exchanges will use; registered once, where the provider asks for that.
  Result<std::unique_ptr<RawEnd>> (*connect)(Control& control, RawBells& bells, const std::string& provider,
                                             MutableBytes memory);
  /// The other process: answers until the Control ends.
  void (*serve)(Control& control, RawBells& bells);
};

inline constexpr const char* raw_fabric_symbol = "sonde_store_raw_fabric";  ///< extern "C" const RawFabric* (*)()

}  // namespace sonde::store::ofi
