#pragma once
/// Whether this build runs under AddressSanitizer or ThreadSanitizer, by GCC or clang. Any-thread.

// GCC 13 and earlier have only the macros, clang 21 and earlier only __has_feature.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SONDE_SANITIZED
#endif
#endif
#if !defined(SONDE_SANITIZED) && (defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__))
#define SONDE_SANITIZED
#endif

namespace sonde {

#ifdef SONDE_SANITIZED
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

}  // namespace sonde

#undef SONDE_SANITIZED
