/* Lives near a limit that it sets itself, or that it was started with.
 *   limited size BYTES: may write no longer files than that; a thread reads then, and one that it starts later, too
 *   limited threads N: N threads have a file each open at once
 *   limited all: opens files until no descriptor is left, and prints how many there were
 *   limited rewrite N: N writes to the beginning of a file */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static pthread_barrier_t barrier;
static int failed;

static void* reads(void* at) {
  char bytes[64];
  long n = 0;
  for (int k = 0; k < 1000; ++k) n += pread(*(int*)at, bytes, sizeof bytes, 0) == sizeof bytes;
  printf("read %ld times\n", n);
  return 0;
}

static void* opens(void* number) {
  char name[40];
  sprintf(name, "file.%ld", (long)number);
  const int file = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (file < 0) __atomic_fetch_add(&failed, 1, 5);
  pthread_barrier_wait(&barrier);
  if (file >= 0) {
    write(file, "x", 1);
    close(file);
  }
  return 0;
}

int main(int n, char** words) {
  const long count = n > 2 ? atol(words[2]) : 0;
  if (strcmp(words[1], "size") == 0) {
    int file = open("/proc/self/exe", O_RDONLY);
    const struct rlimit most = {count, count};
    pthread_t thread;
    reads(&file);
    setrlimit(RLIMIT_FSIZE, &most);
    for (int k = 0; k < 2; ++k) {
      pthread_create(&thread, 0, reads, &file);
      pthread_join(thread, 0);
    }
    reads(&file);
    return 0;
  }
  if (strcmp(words[1], "threads") == 0) {
    pthread_t* threads = calloc(count, sizeof *threads);
    pthread_barrier_init(&barrier, 0, count);
    for (long k = 0; k < count; ++k)
      if (pthread_create(threads + k, 0, opens, (void*)k) != 0) return 3;
    for (long k = 0; k < count; ++k) pthread_join(threads[k], 0);
    printf("%d of %ld failed\n", failed, count);
    return failed != 0;
  }
  if (strcmp(words[1], "all") == 0) {
    int opened = 0, last = -1;
    for (int file; (file = open("/dev/null", O_WRONLY)) >= 0; last = file) ++opened;
    for (int k = 0; k < 1000; ++k) write(last, "x", 1);
    printf("%d, the last is %d\n", opened, last);
    return 0;
  }
  const int file = open("rewritten", O_CREAT | O_TRUNC | O_RDWR, 0644);
  char bytes[512] = {0};
  for (long k = 0; k < count; ++k)
    if (pwrite(file, bytes, sizeof bytes, 0) != sizeof bytes) return 7;
  return 5;
}
