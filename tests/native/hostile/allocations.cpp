#include "allocations.hpp"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>

// A sanitizer has these for itself: nothing is counted or refused then, and the tests that need it are left out.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SONDE_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SONDE_SANITIZED
#endif

namespace {

std::atomic<std::size_t> largest_bytes = 0, refuse_bytes = ~std::size_t{0}, refused_count = 0;
std::atomic<std::ptrdiff_t> held_bytes = 0;
std::atomic<bool> counting = false, limited = false;
std::atomic<int> threads_left = 0;
std::atomic<unsigned> threads_refused = 0;

std::ptrdiff_t held_before = 0;

}  // namespace

#ifndef SONDE_SANITIZED
namespace {

void* take(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) {
    for (std::size_t before = largest_bytes; before < bytes && !largest_bytes.compare_exchange_weak(before, bytes);) {}
    if (bytes >= refuse_bytes.load(std::memory_order_relaxed)) {
      ++refused_count;
      throw std::bad_alloc();
    }
  }
  void* memory = alignment ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                           : std::malloc(bytes ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  held_bytes.fetch_add(static_cast<std::ptrdiff_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  return memory;
}

void give_back(void* memory) {
  if (!memory) return;
  held_bytes.fetch_sub(static_cast<std::ptrdiff_t>(malloc_usable_size(memory)), std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

// The program's own come before those of the C++ library, for the shared libraries too.
void* operator new(std::size_t bytes) { return take(bytes, 0); }
void* operator new[](std::size_t bytes) { return take(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t at) { return take(bytes, static_cast<std::size_t>(at)); }
void* operator new[](std::size_t bytes, std::align_val_t at) { return take(bytes, static_cast<std::size_t>(at)); }
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*run)(void*), void* with) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (limited && threads_left.fetch_sub(1) <= 0) {
    ++threads_refused;
    return EAGAIN;
  }
  return next(thread, how, run, with);
}
#endif

namespace sonde::test {

Allocations::Allocations() {
  largest_bytes = refused_count = 0;
  refuse_bytes = ~std::size_t{0};
  held_before = held_bytes;
  counting = true;
}
Allocations::~Allocations() {
  counting = false;
  refuse_bytes = ~std::size_t{0};
}
std::size_t Allocations::largest() { return largest_bytes; }
std::size_t Allocations::held() {
  const std::ptrdiff_t more = held_bytes - held_before;
  return more > 0 ? static_cast<std::size_t>(more) : 0;
}
void Allocations::refuse_from(std::size_t bytes) { refuse_bytes = bytes; }
std::size_t Allocations::refused() { return refused_count; }

NoThreads::NoThreads(unsigned allowed) {
  threads_refused = 0;
  threads_left = static_cast<int>(allowed);
  limited = true;
}
NoThreads::~NoThreads() { limited = false; }
unsigned NoThreads::refused() { return threads_refused; }

}  // namespace sonde::test
