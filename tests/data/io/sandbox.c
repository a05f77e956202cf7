/* Locks itself behind a filter of system calls, as sandboxed programs do, and writes N records of 64 B to FILE then.
 *   sandbox HOW WHO FILE N
 * HOW: what the filter is: strict (mode 1: read, write, exit), only (kills what it does not know), errno (refuses it),
 * trap (a signal for it), deny (knows what the program must not do: open, start programs), open (allows everything).
 * WHO: by which call it is installed: prctl, syscall, twice (a second one after some writes); and who writes then: thread, child. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOAD BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define IS(number, action) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, action)
#define ALLOW(number) IS(number, SECCOMP_RET_ALLOW)

static int file;
static long count;

static void* records(void* from) {
  char record[64];
  memset(record, 'x', sizeof record);
  for (long k = (long)from; k < count; ++k)
    if (write(file, record, sizeof record) != sizeof record) return (void*)1;
  return 0;
}

static int install(const char* how, const char* who) {
  const int strict = strcmp(how, "strict") == 0;
  const unsigned other = strcmp(how, "errno") == 0  ? SECCOMP_RET_ERRNO | 1
                         : strcmp(how, "trap") == 0 ? SECCOMP_RET_TRAP
                                                    : SECCOMP_RET_KILL_PROCESS;
  struct sock_filter only[] = {
      LOAD,           ALLOW(__NR_write), ALLOW(__NR_read),         ALLOW(__NR_exit),  ALLOW(__NR_exit_group),
      ALLOW(__NR_close), ALLOW(__NR_lseek), ALLOW(__NR_rt_sigreturn), ALLOW(__NR_brk),
      BPF_STMT(BPF_RET | BPF_K, other)};
  struct sock_filter deny[] = {LOAD, IS(__NR_openat, SECCOMP_RET_KILL_PROCESS), IS(__NR_socket, SECCOMP_RET_KILL_PROCESS),
                               IS(__NR_execve, SECCOMP_RET_KILL_PROCESS), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_filter open[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {sizeof only / sizeof *only, only};
  if (strcmp(how, "deny") == 0) program = (struct sock_fprog){sizeof deny / sizeof *deny, deny};
  if (strcmp(how, "open") == 0) program = (struct sock_fprog){sizeof open / sizeof *open, open};
  if (!strict && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 91;
  if (strcmp(who, "syscall") == 0)
    return syscall(SYS_seccomp, strict ? SECCOMP_SET_MODE_STRICT : SECCOMP_SET_MODE_FILTER, 0, strict ? 0 : &program) != 0
               ? 92
               : 0;
  return prctl(PR_SET_SECCOMP, strict ? SECCOMP_MODE_STRICT : SECCOMP_MODE_FILTER, &program) != 0 ? 93 : 0;
}

int main(int n, char** words) {
  if (n != 5) return 90;
  const char *how = words[1], *who = words[2];
  file = open(words[3], O_CREAT | O_TRUNC | O_WRONLY, 0644);
  count = atol(words[4]);
  /* A thing that is no filter must not count as one. */
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, 0);
  if (strcmp(who, "twice") == 0) {
    const int first = install("open", "prctl");
    if (first != 0) return first;
  }
  const int failed = install(how, who);
  if (failed != 0) return failed;
  if (strcmp(who, "thread") == 0) {
    pthread_t other;
    void* result;
    if (pthread_create(&other, 0, records, 0) != 0) return 94;
    pthread_join(other, &result);
    return result ? 7 : 5;
  }
  if (strcmp(who, "child") == 0) {
    const pid_t child = fork();
    if (child == 0) _exit(records(0) ? 7 : 5);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 95;
  }
  syscall(SYS_exit, records(0) ? 7 : 5);
}
