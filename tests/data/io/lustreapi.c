/* Functions of Lustre's user library with the arguments and results that lustreapi.h gives them, and a program that calls them. There is
 * no Lustre behind them. With -DPROGRAM the program, else the library. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct llapi_layout;
struct lov_user_md {
  uint32_t lmm_magic;
};
struct obd_statfs {
  uint64_t os_type;
};
struct obd_uuid {
  char uuid[40];
};
enum llapi_layout_get_flags { LLAPI_LAYOUT_GET_EXPECTED = 1 };

int llapi_file_create(const char *name, unsigned long long stripe_size, int stripe_offset, int stripe_count, int stripe_pattern);
int llapi_file_open(const char *name, int flags, int mode, unsigned long long stripe_size, int stripe_offset, int stripe_count, int stripe_pattern);
int llapi_file_create_pool(const char *name, unsigned long long stripe_size, int stripe_offset, int stripe_count, int stripe_pattern, char *pool_name);
int llapi_file_open_pool(const char *name, int flags, int mode, unsigned long long stripe_size, int stripe_offset, int stripe_count, int stripe_pattern,
                         char *pool_name);
int llapi_file_get_stripe(const char *path, struct lov_user_md *lum);
int llapi_obd_statfs(char *path, uint32_t type, uint32_t index, struct obd_statfs *stat_buf, struct obd_uuid *uuid_buf);
int llapi_layout_file_open(const char *path, int open_flags, mode_t mode, const struct llapi_layout *layout);
int llapi_layout_file_create(const char *path, int open_flags, int mode, const struct llapi_layout *layout);
struct llapi_layout *llapi_layout_get_by_path(const char *path, enum llapi_layout_get_flags flags);
struct llapi_layout *llapi_layout_get_by_fd(int fd, enum llapi_layout_get_flags flags);
void llapi_layout_free(struct llapi_layout *layout);

#ifndef PROGRAM

int llapi_file_open_pool(const char *name, int flags, int mode, unsigned long long stripe_size, int stripe_offset, int stripe_count, int stripe_pattern,
                         char *pool_name) {
  const int fd = open(name, flags, mode);
  return fd < 0 ? -errno : fd;
}

int llapi_file_open(const char *name, int flags, int mode, unsigned long long stripe_size, int stripe_offset, int stripe_count, int stripe_pattern) {
  const int fd = open(name, flags, mode);
  return fd < 0 ? -errno : fd;
}

int llapi_file_create_pool(const char *name, unsigned long long stripe_size, int stripe_offset, int stripe_count, int stripe_pattern, char *pool_name) {
  const int fd = open(name, O_CREAT | O_WRONLY, 0644);
  if (fd < 0) return -errno;
  close(fd);
  return 0;
}

int llapi_file_create(const char *name, unsigned long long stripe_size, int stripe_offset, int stripe_count, int stripe_pattern) {
  const int fd = open(name, O_CREAT | O_WRONLY, 0644);
  if (fd < 0) return -errno;
  close(fd);
  return 0;
}

int llapi_file_get_stripe(const char *path, struct lov_user_md *lum) {
  lum->lmm_magic = 0x0bd10bd0;
  return access(path, R_OK) == 0 ? 0 : -errno;
}

int llapi_obd_statfs(char *path, uint32_t type, uint32_t index, struct obd_statfs *stat_buf, struct obd_uuid *uuid_buf) {
  stat_buf->os_type = type;
  strcpy(uuid_buf->uuid, "none");
  return index < 4 ? 0 : -ENODEV;
}

int llapi_layout_file_open(const char *path, int open_flags, mode_t mode, const struct llapi_layout *layout) { return open(path, open_flags, mode); }

int llapi_layout_file_create(const char *path, int open_flags, int mode, const struct llapi_layout *layout) {
  return open(path, open_flags | O_CREAT | O_EXCL, mode);
}

/* A pointer that would be a negative number if its lower half were taken for one. */
struct llapi_layout *llapi_layout_get_by_fd(int fd, enum llapi_layout_get_flags flags) {
  return fcntl(fd, F_GETFD) < 0 ? NULL : (struct llapi_layout *)0x7f00f0000000;
}

struct llapi_layout *llapi_layout_get_by_path(const char *path, enum llapi_layout_get_flags flags) {
  return access(path, R_OK) != 0 ? NULL : (struct llapi_layout *)0x7f00f0000000;
}

void llapi_layout_free(struct llapi_layout *layout) {}

#else

int main(void) {
  struct lov_user_md stripe;
  struct obd_statfs space;
  struct obd_uuid uuid;
  char data[1000] = "", mount[] = ".", pool[] = "fast";
  llapi_file_create("made", 1 << 20, -1, 4, 0);
  llapi_file_create_pool("made", 1 << 20, -1, 4, 0, pool);
  const int striped = llapi_layout_file_create("striped", O_RDWR, 0644, llapi_layout_get_by_path("made", 0));
  for (int k = 0; k < 5; ++k)
    if (write(striped, data, sizeof data) != sizeof data) return 1;
  llapi_layout_free(llapi_layout_get_by_fd(striped, 0));
  close(striped);
  const int made = llapi_file_open("made", O_RDWR, 0644, 1 << 20, -1, 4, 0);
  if (write(made, data, 10) != 10) return 1;
  close(made);
  close(llapi_file_open_pool("made", O_RDWR, 0644, 1 << 20, -1, 4, 0, pool));
  close(llapi_layout_file_open("striped", O_RDONLY, 0, NULL));
  llapi_file_get_stripe("striped", &stripe);
  llapi_obd_statfs(mount, 2, 0, &space, &uuid);
  /* What fails. */
  llapi_file_open("nowhere/f", O_RDWR, 0644, 1 << 20, -1, 4, 0);
  llapi_layout_file_create("striped", O_RDWR, 0644, NULL);
  llapi_layout_get_by_path("nowhere/f", 0);
  llapi_layout_get_by_fd(-1, 0);
  llapi_obd_statfs(mount, 2, 4, &space, &uuid);
  return 0;
}

#endif
