#pragma once
/// System calls by name, with this processor's numbers in Linux: those that move bytes, name files or wait. The
/// numbers are those of <sys/syscall.h>, and a call that this system does not have is left out.

#include <sys/syscall.h>

#include <utility>

namespace sonde::io {

inline constexpr std::pair<const char*, long> known_calls[] = {
#ifdef SYS_read
    {"read", SYS_read},
#endif
#ifdef SYS_write
    {"write", SYS_write},
#endif
#ifdef SYS_pread64
    {"pread64", SYS_pread64},
#endif
#ifdef SYS_pwrite64
    {"pwrite64", SYS_pwrite64},
#endif
#ifdef SYS_readv
    {"readv", SYS_readv},
#endif
#ifdef SYS_writev
    {"writev", SYS_writev},
#endif
#ifdef SYS_preadv
    {"preadv", SYS_preadv},
#endif
#ifdef SYS_pwritev
    {"pwritev", SYS_pwritev},
#endif
#ifdef SYS_preadv2
    {"preadv2", SYS_preadv2},
#endif
#ifdef SYS_pwritev2
    {"pwritev2", SYS_pwritev2},
#endif
#ifdef SYS_open
    {"open", SYS_open},
#endif
#ifdef SYS_openat
    {"openat", SYS_openat},
#endif
#ifdef SYS_openat2
    {"openat2", SYS_openat2},
#endif
#ifdef SYS_creat
    {"creat", SYS_creat},
#endif
#ifdef SYS_close
    {"close", SYS_close},
#endif
#ifdef SYS_close_range
    {"close_range", SYS_close_range},
#endif
#ifdef SYS_lseek
    {"lseek", SYS_lseek},
#endif
#ifdef SYS_fsync
    {"fsync", SYS_fsync},
#endif
#ifdef SYS_fdatasync
    {"fdatasync", SYS_fdatasync},
#endif
#ifdef SYS_sync
    {"sync", SYS_sync},
#endif
#ifdef SYS_syncfs
    {"syncfs", SYS_syncfs},
#endif
#ifdef SYS_sync_file_range
    {"sync_file_range", SYS_sync_file_range},
#endif
#ifdef SYS_msync
    {"msync", SYS_msync},
#endif
#ifdef SYS_mmap
    {"mmap", SYS_mmap},
#endif
#ifdef SYS_munmap
    {"munmap", SYS_munmap},
#endif
#ifdef SYS_truncate
    {"truncate", SYS_truncate},
#endif
#ifdef SYS_ftruncate
    {"ftruncate", SYS_ftruncate},
#endif
#ifdef SYS_fallocate
    {"fallocate", SYS_fallocate},
#endif
#ifdef SYS_stat
    {"stat", SYS_stat},
#endif
#ifdef SYS_fstat
    {"fstat", SYS_fstat},
#endif
#ifdef SYS_lstat
    {"lstat", SYS_lstat},
#endif
#ifdef SYS_newfstatat
    {"newfstatat", SYS_newfstatat},
#endif
#ifdef SYS_statx
    {"statx", SYS_statx},
#endif
#ifdef SYS_access
    {"access", SYS_access},
#endif
#ifdef SYS_faccessat
    {"faccessat", SYS_faccessat},
#endif
#ifdef SYS_faccessat2
    {"faccessat2", SYS_faccessat2},
#endif
#ifdef SYS_mkdir
    {"mkdir", SYS_mkdir},
#endif
#ifdef SYS_mkdirat
    {"mkdirat", SYS_mkdirat},
#endif
#ifdef SYS_rmdir
    {"rmdir", SYS_rmdir},
#endif
#ifdef SYS_unlink
    {"unlink", SYS_unlink},
#endif
#ifdef SYS_unlinkat
    {"unlinkat", SYS_unlinkat},
#endif
#ifdef SYS_rename
    {"rename", SYS_rename},
#endif
#ifdef SYS_renameat
    {"renameat", SYS_renameat},
#endif
#ifdef SYS_renameat2
    {"renameat2", SYS_renameat2},
#endif
#ifdef SYS_link
    {"link", SYS_link},
#endif
#ifdef SYS_linkat
    {"linkat", SYS_linkat},
#endif
#ifdef SYS_symlink
    {"symlink", SYS_symlink},
#endif
#ifdef SYS_symlinkat
    {"symlinkat", SYS_symlinkat},
#endif
#ifdef SYS_readlink
    {"readlink", SYS_readlink},
#endif
#ifdef SYS_readlinkat
    {"readlinkat", SYS_readlinkat},
#endif
#ifdef SYS_getdents
    {"getdents", SYS_getdents},
#endif
#ifdef SYS_getdents64
    {"getdents64", SYS_getdents64},
#endif
#ifdef SYS_chmod
    {"chmod", SYS_chmod},
#endif
#ifdef SYS_fchmod
    {"fchmod", SYS_fchmod},
#endif
#ifdef SYS_fchmodat
    {"fchmodat", SYS_fchmodat},
#endif
#ifdef SYS_chown
    {"chown", SYS_chown},
#endif
#ifdef SYS_fchown
    {"fchown", SYS_fchown},
#endif
#ifdef SYS_fchownat
    {"fchownat", SYS_fchownat},
#endif
#ifdef SYS_utimensat
    {"utimensat", SYS_utimensat},
#endif
#ifdef SYS_statfs
    {"statfs", SYS_statfs},
#endif
#ifdef SYS_fstatfs
    {"fstatfs", SYS_fstatfs},
#endif
#ifdef SYS_setxattr
    {"setxattr", SYS_setxattr},
#endif
#ifdef SYS_fsetxattr
    {"fsetxattr", SYS_fsetxattr},
#endif
#ifdef SYS_getxattr
    {"getxattr", SYS_getxattr},
#endif
#ifdef SYS_fgetxattr
    {"fgetxattr", SYS_fgetxattr},
#endif
#ifdef SYS_listxattr
    {"listxattr", SYS_listxattr},
#endif
#ifdef SYS_flistxattr
    {"flistxattr", SYS_flistxattr},
#endif
#ifdef SYS_removexattr
    {"removexattr", SYS_removexattr},
#endif
#ifdef SYS_fremovexattr
    {"fremovexattr", SYS_fremovexattr},
#endif
#ifdef SYS_sendfile
    {"sendfile", SYS_sendfile},
#endif
#ifdef SYS_copy_file_range
    {"copy_file_range", SYS_copy_file_range},
#endif
#ifdef SYS_splice
    {"splice", SYS_splice},
#endif
#ifdef SYS_tee
    {"tee", SYS_tee},
#endif
#ifdef SYS_vmsplice
    {"vmsplice", SYS_vmsplice},
#endif
#ifdef SYS_io_setup
    {"io_setup", SYS_io_setup},
#endif
#ifdef SYS_io_submit
    {"io_submit", SYS_io_submit},
#endif
#ifdef SYS_io_getevents
    {"io_getevents", SYS_io_getevents},
#endif
#ifdef SYS_io_pgetevents
    {"io_pgetevents", SYS_io_pgetevents},
#endif
#ifdef SYS_io_destroy
    {"io_destroy", SYS_io_destroy},
#endif
#ifdef SYS_io_cancel
    {"io_cancel", SYS_io_cancel},
#endif
#ifdef SYS_io_uring_setup
    {"io_uring_setup", SYS_io_uring_setup},
#endif
#ifdef SYS_io_uring_enter
    {"io_uring_enter", SYS_io_uring_enter},
#endif
#ifdef SYS_io_uring_register
    {"io_uring_register", SYS_io_uring_register},
#endif
#ifdef SYS_fcntl
    {"fcntl", SYS_fcntl},
#endif
#ifdef SYS_flock
    {"flock", SYS_flock},
#endif
#ifdef SYS_ioctl
    {"ioctl", SYS_ioctl},
#endif
#ifdef SYS_fadvise64
    {"fadvise64", SYS_fadvise64},
#endif
#ifdef SYS_readahead
    {"readahead", SYS_readahead},
#endif
#ifdef SYS_sendto
    {"sendto", SYS_sendto},
#endif
#ifdef SYS_recvfrom
    {"recvfrom", SYS_recvfrom},
#endif
#ifdef SYS_sendmsg
    {"sendmsg", SYS_sendmsg},
#endif
#ifdef SYS_recvmsg
    {"recvmsg", SYS_recvmsg},
#endif
#ifdef SYS_sendmmsg
    {"sendmmsg", SYS_sendmmsg},
#endif
#ifdef SYS_recvmmsg
    {"recvmmsg", SYS_recvmmsg},
#endif
#ifdef SYS_connect
    {"connect", SYS_connect},
#endif
#ifdef SYS_accept
    {"accept", SYS_accept},
#endif
#ifdef SYS_accept4
    {"accept4", SYS_accept4},
#endif
#ifdef SYS_socket
    {"socket", SYS_socket},
#endif
#ifdef SYS_bind
    {"bind", SYS_bind},
#endif
#ifdef SYS_listen
    {"listen", SYS_listen},
#endif
#ifdef SYS_shutdown
    {"shutdown", SYS_shutdown},
#endif
#ifdef SYS_poll
    {"poll", SYS_poll},
#endif
#ifdef SYS_ppoll
    {"ppoll", SYS_ppoll},
#endif
#ifdef SYS_select
    {"select", SYS_select},
#endif
#ifdef SYS_pselect6
    {"pselect6", SYS_pselect6},
#endif
#ifdef SYS_epoll_wait
    {"epoll_wait", SYS_epoll_wait},
#endif
#ifdef SYS_epoll_pwait
    {"epoll_pwait", SYS_epoll_pwait},
#endif
#ifdef SYS_futex
    {"futex", SYS_futex},
#endif
#ifdef SYS_pipe
    {"pipe", SYS_pipe},
#endif
#ifdef SYS_pipe2
    {"pipe2", SYS_pipe2},
#endif
#ifdef SYS_dup
    {"dup", SYS_dup},
#endif
#ifdef SYS_dup2
    {"dup2", SYS_dup2},
#endif
#ifdef SYS_dup3
    {"dup3", SYS_dup3},
#endif
#ifdef SYS_memfd_create
    {"memfd_create", SYS_memfd_create},
#endif
#ifdef SYS_process_vm_readv
    {"process_vm_readv", SYS_process_vm_readv},
#endif
#ifdef SYS_process_vm_writev
    {"process_vm_writev", SYS_process_vm_writev},
#endif
};

}  // namespace sonde::io
