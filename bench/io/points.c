/* What a place for tracers in the store costs when nobody traces: ns a call of nothing through one, less a call of
 * nothing. */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

typedef void (*body_t)(void*);
typedef void (*point_t)(body_t, void*, unsigned long, unsigned long);

static void nothing(void* what) { ++*(volatile long*)what; }

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char** argv) {
  enum { calls = 20000000 };
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : 0;
  volatile point_t point = library ? (point_t)dlsym(library, "sonde_store_link_wait") : 0;
  volatile body_t body = nothing;
  long count = 0;
  if (!point) return 1;
  for (int round = 0; round < 9; ++round) {
    double begin = now();
    for (long k = 0; k < calls; ++k) body(&count);
    double middle = now();
    for (long k = 0; k < calls; ++k) point(body, &count, k, k);
    printf("%g\n", (now() - middle - (middle - begin)) / calls);
  }
  return 0;
}
