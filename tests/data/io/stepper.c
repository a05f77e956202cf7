/* A signal after each single instruction of two traced calls: for k = 0, 1, 2 … a child is stepped k instructions on and then handed
 * a signal, whose handler makes a traced call and looks whether main is found up the stack. Prints how many children there were; ends
 * with 1 where one did not end well. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

static int quiet, data;
static volatile int handled, found;
int main(int argc, char** argv);

static _Unwind_Reason_Code look(struct _Unwind_Context* context, void* nothing) {
  (void)nothing;
  found |= _Unwind_FindEnclosingFunction((void*)_Unwind_GetIP(context)) == (void*)main;
  return _URC_NO_REASON;
}

static void handler(int number) {
  (void)number;
  _Unwind_Backtrace(look, 0);
  write(quiet, "x", 1);
  handled = handled + 1;
}

int main(int argc, char** argv) {
  if (argc < 2) return 64;
  data = open(argv[1], O_RDWR | O_CREAT, 0600);
  char name[512];
  snprintf(name, sizeof name, "%s.quiet", argv[1]);
  quiet = open(name, O_WRONLY | O_CREAT, 0600);
  signal(SIGUSR1, handler);
  for (int k = 0;; ++k) {
    const pid_t child = fork();
    if (child == 0) {
      pwrite(data, "w", 1, 0); /* its files are made here: that is not looked into */
      ptrace(PTRACE_TRACEME, 0, 0, 0);
      raise(SIGSTOP);
      pwrite(data, "a", 1, 0);
      pwrite(data, "b", 1, 1);
      raise(SIGSTOP);
      _exit(handled != 1 ? 1 : found ? 0 : 2);
    }
    int status;
    waitpid(child, &status, 0);
    int over = 0;
    for (int step = 0; step < k && !over; ++step) {
      ptrace(PTRACE_SINGLESTEP, child, 0, 0);
      waitpid(child, &status, 0);
      over = !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP;
    }
    if (over) { /* both calls were */
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      printf("%d\n", k);
      return 0;
    }
    ptrace(PTRACE_CONT, child, 0, SIGUSR1);
    waitpid(child, &status, 0);
    ptrace(PTRACE_CONT, child, 0, 0);
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      fprintf(stderr, "after %d instructions: status %#x\n", k, status);
      return 1;
    }
  }
}
