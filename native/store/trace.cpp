#include "store/trace.hpp"

#include "store/wire.hpp"

// Each has to stay a function of its own: neither put into its callers, nor taken together with the others, which it
// equals.
#if defined(__clang__)
#define SONDE_STORE_APART __attribute__((noinline))
#else
#define SONDE_STORE_APART __attribute__((noipa))
#endif

#define SONDE_STORE_TRACE_POINT(name)                                                                        \
  SONDE_STORE_APART void sonde_store_##name(void (*body)(void*), void* what, std::uint64_t, std::uint64_t) { \
    body(what);                                                                                              \
  }
SONDE_STORE_TRACE_POINTS(SONDE_STORE_TRACE_POINT)

namespace sonde::store::trace {

std::uint64_t connection(std::string_view nonce) { return wire::crc32c(bytes_of(nonce)); }

}  // namespace sonde::store::trace
