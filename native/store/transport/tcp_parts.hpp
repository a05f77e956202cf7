#pragma once
/// Shared by tcp.cpp and tcp_address.cpp.

#include <sys/socket.h>

namespace sonde::store {

inline void set_option(int fd, int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof value); }

}  // namespace sonde::store
