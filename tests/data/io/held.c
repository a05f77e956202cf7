/* A library that keeps most of its functions to itself, and programs that count what they do: see test_io_uprobes.py. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define OWN static __attribute__((noinline))

static char data[8192];
static jmp_buf back;

OWN long held_chunk(int fd, const char* from, long bytes, long offset) {
  long done = pwrite(fd, from, bytes, offset);
  __asm__ volatile("" ::: "memory");
  return done;
}

OWN int held_open(const char* path, int flags) {
  int fd = open(path, flags, 0600);
  __asm__ volatile("" ::: "memory");
  return fd;
}

OWN int held_close(int fd) {
  int failed = close(fd);
  __asm__ volatile("" ::: "memory");
  return failed;
}

/* The seventh argument and what follows are on the stack; the last is behind a pointer. */
OWN long held_many(int fd, long a, long b, long c, long d, long e, long count, int* bytes) {
  __asm__ volatile("" ::: "memory");
  return fd + a + b + c + d + e + count + *bytes;
}

OWN long held_vector(int fd, const struct iovec* of, int count) {
  long done = writev(fd, of, count);
  __asm__ volatile("" ::: "memory");
  return done;
}

OWN long held_deep(long n) {
  __asm__ volatile("" ::: "memory");
  return n == 0 ? 0 : held_deep(n - 1) + 1;
}

OWN void held_leave(int how) {
  __asm__ volatile("" ::: "memory");
  if (how) longjmp(back, 1);
}

OWN long held_null(long n) {
  __asm__ volatile("" ::: "memory");
  return n % 2;
}

/* Exported: interposed where a program calls it. */
long held_write(const char* path, int chunks) {
  int fd = held_open(path, O_RDWR | O_CREAT);
  for (int k = 0; k < chunks; ++k) held_chunk(fd, data, 4096, 4096L * k);
  struct iovec two[2] = {{data, 100}, {data, 200}};
  held_vector(fd, two, 2);
  held_close(fd);
  held_open("/nowhere/at/all", O_RDONLY);
  return chunks;
}

long held_rest(void) {
  long sum = 0;
  int bytes = 512;
  for (int k = 0; k < 3; ++k) sum += held_many(3, 1, 2, 3, 4, 5, 6 + k, &bytes);
  sum += held_deep(99);
  for (int k = 0; k < 5; ++k)
    if (setjmp(back) == 0) held_leave(1);
  held_leave(0);
  for (int k = 0; k < 7; ++k) sum += held_null(k);
  return sum;
}

#ifdef PROGRAM
/* One line in, "threads chunks path", that many chunks by each of that many threads; one line out, when they are written. */
struct work {
  const char* path;
  int chunks;
};

static void* work(void* of) {
  struct work* mine = of;
  held_write(mine->path, mine->chunks);
  return NULL;
}

int main(int count, char** words) {
  if (count > 2) return held_write(words[1], atoi(words[2])) < 0 || held_rest() < 0;
  static int kept;
  if (count > 1) kept = open(words[1], O_RDWR | O_CREAT, 0600);
  char path[512];
  int threads, chunks;
  while (scanf("%d %d %511s", &threads, &chunks, path) == 3) {
    struct work mine = {path, chunks};
    pthread_t running[16];
    for (int k = 0; k < threads; ++k) pthread_create(&running[k], NULL, work, &mine);
    for (int k = 0; k < threads; ++k) pthread_join(running[k], NULL);
    if (kept > 0) held_chunk(kept, data, 10, 0);
    puts("done");
    fflush(stdout);
  }
  return 0;
}
#endif
