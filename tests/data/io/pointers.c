/* Calls a function of libfake by its name and by its address. A program that is linked to a fixed place (-no-pie) has an address of
 * its own for it: that of the way there in its table. */
#include <stdio.h>

long fake_many(long a, long b, long c, long d, long e, long f, long g, long h);

__attribute__((noinline)) static long by_address(long (*what)(long, long, long, long, long, long, long, long), long a) {
  return what(a, 0, 0, 0, 0, 0, 0, 0);
}

int main(void) {
  long sum = 0;
  for (long k = 0; k < 10; ++k) sum += fake_many(k, 0, 0, 0, 0, 0, 0, 0);
  for (long k = 0; k < 5; ++k) sum += by_address(fake_many, k);
  printf("%ld\n", sum);
  return 0;
}
