/* random_calls SEED CALLS MODE: does CALLS random I/O calls, the same for the same words, and ends in a random way.
   MODE: "plain" only calls that are one system call each, no limits, one thread; "all" also stdio, threads, children,
   exec, limits and closed streams. What it does goes to the current folder, and a line for each call to its output. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { slots = 6, names = 4, longest = 5000 };

struct work {
  unsigned long long state;
  int fds[slots];
  FILE* streams[slots];
  char prefix[16];
  unsigned long long sum; /* of all results */
};

static int all_kinds, verbose, few_files;

static unsigned draw(struct work* w, unsigned n) {
  w->state ^= w->state << 13, w->state ^= w->state >> 7, w->state ^= w->state << 17;
  return (unsigned)(w->state >> 20) % n;
}

static void note(struct work* w, const char* what, long result) {
  int error = result < 0 ? errno : 0;
  w->sum = w->sum * 31 + (unsigned long long)result + (unsigned long long)error;
  if (!verbose) return;
  char line[80];
  int n = snprintf(line, sizeof line, "%s %s %ld %d\n", w->prefix, what, result, error);
  if (write(1, line, n) < 0) return;
}

static const char* name_of(struct work* w, char* to) {
  sprintf(to, "%sf%u", w->prefix, draw(w, names));
  return to;
}

static void one(struct work* w, int depth);

static void* in_thread(void* arg) {
  struct work* w = arg;
  for (int k = 0; k < 15; ++k) one(w, 9);
  return 0;
}

static struct work begun(struct work* by, const char* tag) {
  struct work w;
  memset(&w, 0, sizeof w);
  w.state = 1 + draw(by, 1u << 30) * 2654435761ull;
  snprintf(w.prefix, sizeof w.prefix, "%s%s", tag, by->prefix);
  for (int k = 0; k < slots; ++k) w.fds[k] = -1;
  return w;
}

static void end_of(struct work* w) {
  for (int k = 0; k < slots; ++k) {
    if (w->streams[k]) fclose(w->streams[k]);
    if (w->fds[k] >= 0) close(w->fds[k]);
  }
}

static void more(struct work* w, int depth) {
  char name[40], other[40], text[longest];
  int k = draw(w, slots);
  switch (draw(w, 9)) {
    case 0:
      if (w->streams[k]) note(w, "fclose", fclose(w->streams[k]));
      w->streams[k] = fopen(name_of(w, name), draw(w, 2) ? "a+" : "w+");
      return note(w, "fopen", w->streams[k] ? 0 : -1);
    case 1:
      if (!w->streams[k]) return;
      memset(text, 'a' + k, sizeof text);
      return note(w, "fwrite", (long)fwrite(text, 1, draw(w, longest), w->streams[k]));
    case 2:
      if (!w->streams[k]) return;
      return note(w, "fflush", fflush(w->streams[k]));
    case 3:
      if (!w->streams[k]) return;
      rewind(w->streams[k]);
      return note(w, "fread", (long)fread(text, 1, draw(w, longest), w->streams[k]));
    case 4: {
      if (depth > 1) return;
      struct work child = begun(w, "c");
      fflush(0);
      pid_t pid = fork();
      if (pid == 0) {
        w->sum = 0;
        for (int n = 0; n < 10; ++n) one(&child, depth + 1);
        end_of(&child);
        _exit((int)(child.sum % 100));
      }
      int status = 0;
      waitpid(pid, &status, 0);
      return note(w, "child", status);
    }
    case 5: {
      if (depth > 0 || few_files) return; /* which of two gets the last descriptor is chance */
      struct work two[2] = {begun(w, "s"), begun(w, "t")};
      pthread_t threads[2];
      int before = verbose;
      verbose = 0; /* whose line comes first is nobody's */
      for (int n = 0; n < 2; ++n)
        if (pthread_create(&threads[n], 0, in_thread, &two[n])) threads[n] = 0;
      for (int n = 0; n < 2; ++n) {
        if (threads[n]) pthread_join(threads[n], 0);
        end_of(&two[n]);
      }
      verbose = before;
      return note(w, "threads", (long)((two[0].sum + two[1].sum) % 1000));
    }
    case 6: {
      int fd = w->fds[k];
      struct stat about;
      if (fd < 0 || fstat(fd, &about) || about.st_size < 64) return;
      char* at = mmap(0, 64, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (at == MAP_FAILED) return note(w, "mmap", -1);
      at[draw(w, 64)] = 'm';
      msync(at, 64, MS_SYNC);
      return note(w, "mmap", munmap(at, 64));
    }
    case 7: return note(w, "rename", rename(name_of(w, name), name_of(w, other)));
    default: return note(w, "unlink", unlink(name_of(w, name)));
  }
}

static void one(struct work* w, int depth) {
  char name[40], text[longest];
  int k = draw(w, slots), fd = w->fds[k];
  long size = draw(w, longest), at = draw(w, 9000);
  static const int flags[] = {O_RDWR | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC, O_RDONLY, O_RDWR | O_CREAT | O_APPEND};
  if (all_kinds && draw(w, 3) == 0) return more(w, depth);
  memset(text, 'A' + k, sizeof text);
  struct iovec parts[2] = {{text, (size_t)(size / 2)}, {text, (size_t)(size - size / 2)}};
  switch (draw(w, 14)) {
    case 0:
    case 1:
      if (fd >= 0) note(w, "close", close(fd));
      w->fds[k] = open(name_of(w, name), flags[draw(w, 4)] | (draw(w, 2) ? O_CLOEXEC : 0), 0644);
      return note(w, "open", w->fds[k] < 0 ? -1 : 0);
    case 2: return note(w, "write", write(fd, text, size));
    case 3: return note(w, "pwrite", pwrite(fd, text, size, at));
    case 4: return note(w, "read", read(fd, text, size));
    case 5: return note(w, "pread", pread(fd, text, size, at));
    case 6: return note(w, "writev", writev(fd, parts, 2));
    case 7: return note(w, "readv", readv(fd, parts, 2));
    case 8: return note(w, "lseek", lseek(fd, at, SEEK_SET));
    case 9: return note(w, "fsync", fsync(fd));
    case 10: return note(w, "fdatasync", fdatasync(fd));
    case 11: return note(w, "ftruncate", ftruncate(fd, at));
    case 12: {
      int other = dup(fd);
      note(w, "dup", other < 0 ? -1 : 0);
      if (other < 0) return;
      note(w, "write", write(other, text, size));
      return note(w, "close", close(other));
    }
    default:
      if (fd < 0) return;
      w->fds[k] = -1;
      return note(w, "close", close(fd));
  }
}

int main(int n, char** words) {
  struct work w;
  memset(&w, 0, sizeof w);
  w.state = strtoull(words[1], 0, 10) * 0x9e3779b97f4a7c15ull + 1;
  for (int k = 0; k < slots; ++k) w.fds[k] = -1;
  int calls = atoi(words[2]), again = n > 4;
  all_kinds = !strcmp(words[3], "all");
  verbose = 1;
  for (int k = 0; k < 5; ++k) draw(&w, 2);
  unsigned begins = all_kinds ? draw(&w, 12) : 99, ends = all_kinds ? draw(&w, 9) : draw(&w, 3);
  if (begins < 3) close((int)begins);
  if (begins == 3 || begins == 4) {
    struct rlimit limit = {6000, 6000};
    if (begins == 3) signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  if (begins == 5) {
    struct rlimit limit = {8, 8};
    setrlimit(RLIMIT_NOFILE, &limit);
    few_files = 1;
  }
  if (begins == 6) {
    struct rlimit limit = {256ul << 20, 256ul << 20};
    setrlimit(RLIMIT_AS, &limit);
  }
  for (int k = 0; k < calls; ++k) one(&w, 0);
  switch (ends) {
    case 0: return (int)(w.sum % 90);
    case 1: exit(3);
    case 2: _exit(4);
    case 3: raise(SIGTERM); return 5;
    case 4: raise(SIGKILL); return 6;
    case 5: {
      struct rlimit none = {0, 0};
      setrlimit(RLIMIT_CORE, &none);
      abort();
    }
    case 6:
      if (!again) execl(words[0], words[0], words[2], words[2], "plain", "again", (char*)0);
      return 7;
    case 7: pthread_exit(0);
    default: return 0;
  }
}
