/* A function that does nothing, called a million times a round through the table of imports: `many ROUNDS` prints ns a
 * call. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int nothing(int);

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char** argv) {
  const int calls = 1000000;
  for (int round = argc > 1 ? atoi(argv[1]) : 1; round > 0; --round) {
    const double begin = now();
    int x = 0;
    for (int k = 0; k < calls; ++k) x = nothing(x);
    printf("%.3f\n", (now() - begin) / calls);
  }
  return 0;
}
