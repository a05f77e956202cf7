/* Writes of 64 B: `small FILE WRITES ROUNDS` prints s a round. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  char bytes[64] = {0};
  for (int round = atoi(argv[3]); round > 0; --round) {
    const int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const double begin = now();
    for (long k = atol(argv[2]); k > 0; --k)
      if (write(fd, bytes, sizeof bytes) != sizeof bytes) return 1;
    printf("%.9f\n", now() - begin);
    close(fd);
  }
  return 0;
}
