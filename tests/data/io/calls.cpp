// What programs do to a tracer. Built with -fPIC -fsemantic-interposition where calls within it must go through its PLT.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern "C" {
struct pair_ { long a, b; };
struct wide { long word[6]; };
typedef void (*callback)(void*);
long fake_write(int, const void*, long, long);
long fake_many(long, long, long, long, long, long, long, long);
double fake_real(double, float, int);
long double fake_long_real(long double);
double _Complex fake_complex(double _Complex);
pair_ fake_pair(long, long);
wide fake_wide(long);
double fake_sum(int, ...);
void fake_call(callback, void*);
int fake_deep(int, callback, void*);
}

static char bytes[4096];

static void work(const char* path, int n, long at = 0) {
  const int fd = open(path, O_RDWR | O_CREAT, 0600);
  for (int k = 0; k < n; ++k) pwrite(fd, bytes, sizeof bytes, at + k * 4096L);
  for (int k = 0; k < n; ++k) pread(fd, bytes, sizeof bytes, at + k * 4096L);
  fsync(fd);
  close(fd);
}

static int quiet_fd;
static volatile long handled;
static void on_alarm(int) {
  write(quiet_fd, "x", 1);
  handled = handled + 1;
}

static jmp_buf back;

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  const char* path = argc > 2 ? argv[2] : "";
  const int n = argc > 3 ? std::atoi(argv[3]) : 1;
  if (mode == "plain") {
    work(path, n);
  } else if (mode == "threads") {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back(work, path, n, t * n * 4096L);
    for (auto& thread : threads) thread.join();
  } else if (mode == "fork") {
    work(path, n);
    const std::string other = std::string(path) + ".child";
    const pid_t child = fork();
    if (child == 0) {
      work(other.c_str(), n);
      _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    work(path, n);
  } else if (mode == "exit" || mode == "kill" || mode == "abort") {
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    for (int k = 0; k < n; ++k) pwrite(fd, bytes, sizeof bytes, k * 4096L);
    if (mode == "exit") _exit(7);
    if (mode == "abort") std::abort();
    raise(SIGKILL);
  } else if (mode == "stuck") {
    int ends[2];
    if (pipe(ends) != 0) return 1;
    work(path, n);
    std::puts("stuck");
    std::fflush(stdout);
    read(ends[0], bytes, 1);
  } else if (mode == "signals") {
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    quiet_fd = open("/dev/null", O_WRONLY);
    signal(SIGALRM, on_alarm);
    itimerval often{{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &often, nullptr);
    for (int k = 0; k < n; ++k) pwrite(fd, bytes, sizeof bytes, k % 64 * 4096L);
    often = {};
    setitimer(ITIMER_REAL, &often, nullptr);
    std::printf("%ld\n", handled);
  } else if (mode == "arguments") {
    double _Complex z;
    __real__ z = 1.5, __imag__ z = -2.0;
    z = fake_complex(z);
    const pair_ p = fake_pair(3, 4);
    const wide w = fake_wide(40);
    std::printf("%ld %.6f %.6Lf %.3f %.3f %ld %ld %ld %ld %.3f\n", fake_many(1, 2, 3, 4, 5, 6, 7, 8), fake_real(1.5, 2.5f, 7), fake_long_real(1.25L),
                __real__ z, __imag__ z, p.a, p.b, w.word[0], w.word[5], fake_sum(5, 1.0, 2.0, 3.0, 4.0, 5.0));
  } else if (mode == "exceptions") {
    int caught = 0;
    for (int k = 0; k < n; ++k) try {
        fake_deep(k % 7, [](void*) { throw std::runtime_error("out"); }, nullptr);
      } catch (const std::runtime_error&) {
        ++caught;
      }
    work(path, 3);
    std::printf("%d\n", caught);
  } else if (mode == "longjmp") {
    volatile int jumped = 0;
    for (int k = 0; k < n; ++k) {
      if (setjmp(back) == 0) {
        fake_deep(k % 7, [](void*) { longjmp(back, 1); }, nullptr);
      } else {
        jumped = jumped + 1;
      }
    }
    work(path, 3);
    std::printf("%d\n", jumped);
  } else if (mode == "cancel") {
    for (int k = 0; k < n; ++k) {
      std::thread thread([] {
        fake_call([](void*) { for (;;) pause(); }, nullptr);
      });
      pthread_cancel(thread.native_handle());
      thread.join();
    }
    work(path, 3);
  } else if (mode == "contexts") {
    static ucontext_t main_context, other;
    static char stack[1 << 16];
    getcontext(&other);
    other.uc_stack.ss_sp = stack;
    other.uc_stack.ss_size = sizeof stack;
    other.uc_link = &main_context;
    static const char* where;
    static int times;
    where = path;
    times = n;
    makecontext(&other, reinterpret_cast<void (*)()>(+[] { work(where, times); }), 0);
    swapcontext(&main_context, &other);
    work(path, n);
  } else if (mode == "dlopen") {
    void* library = dlopen(argv[4], RTLD_NOW);
    if (library == nullptr) return 2;
    const auto found = reinterpret_cast<long (*)(int, const void*, long, long)>(dlsym(library, "fake_write"));
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    for (int k = 0; k < n; ++k) found(fd, bytes, 512, k * 512L);
    close(fd);
    dlclose(library);
    work(path, n);
  } else if (mode == "descriptors") {
    for (int fd = 3; fd < 1024; ++fd) close(fd);
    work(path, n);
  } else if (mode == "exec") {
    work(path, n);
    execl(argv[0], argv[0], "plain", path, argv[3], nullptr);
  } else {
    return 64;
  }
}
