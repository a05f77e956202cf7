/* A function in two versions, of which the later takes another argument; as a library (-DLIBRARY), and as a program that was linked
 * when there was only the first: its slot is not resolved before the first call. */
#ifdef LIBRARY
int fake_first(int x) { return x + 1; }
int fake_second(int x, int* also) { return *also = x + 2; }
__asm__(".symver fake_first,fake_versioned@FAKE_1");
__asm__(".symver fake_second,fake_versioned@@FAKE_2");
#else
#include <stdio.h>
int fake_versioned(int x);
__asm__(".symver fake_versioned,fake_versioned@FAKE_1");
int main(void) {
  printf("%d\n", fake_versioned(40));
  return 0;
}
#endif
