/* A library that no map of Sonde knows, with every way of passing arguments and of leaving a function. */
#include <complex.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

struct pair { long a, b; };
struct wide { long word[6]; };
typedef void (*callback)(void*);

long fake_write(int handle, const void* bytes, long count, long offset) { return pwrite(handle, bytes, count, offset); }
long fake_many(long a, long b, long c, long d, long e, long f, long g, long h) { return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h; }
double fake_real(double x, float y, int n) { return x * y + n; }
long double fake_long_real(long double x) { return x * 3; }
double complex fake_complex(double complex z) { return z * z; }
struct pair fake_pair(long a, long b) { return (struct pair){b, a}; }
struct wide fake_wide(long first) {
  struct wide w;
  for (int k = 0; k < 6; ++k) w.word[k] = first + k;
  return w;
}
double fake_sum(int n, ...) {
  va_list list;
  va_start(list, n);
  double sum = 0;
  for (int k = 0; k < n; ++k) sum += va_arg(list, double);
  va_end(list);
  return sum;
}
void fake_call(callback call, void* what) { call(what); }
int fake_deep(int depth, callback call, void* what) {
  if (depth == 0) {
    call(what);
    return 0;
  }
  return 1 + fake_deep(depth - 1, call, what);
}
