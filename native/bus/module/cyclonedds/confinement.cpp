#include "bus/module/cyclonedds/confinement.hpp"

#include <arpa/inet.h>
#include <dds/ddsrt/sockets.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace sonde::bus::cyclonedds {

namespace {

thread_local Confinement* confining = nullptr;

/// Offsets of the filtered fields in the IP header.
constexpr int ip_header = SKF_NET_OFF, v4_destination = ip_header + 16, v6_destination = ip_header + 24;
constexpr std::uint32_t incoming_interface = static_cast<std::uint32_t>(SKF_AD_OFF + SKF_AD_IFINDEX);

class Program {
 public:
  void load_word(int at) { code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(at))); }
  void load_byte(int at) { code_.push_back(BPF_STMT(BPF_LD | BPF_B | BPF_ABS, static_cast<std::uint32_t>(at))); }
  void load_interface() { code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, incoming_interface)); }
  void mask(std::uint32_t bits) { code_.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits)); }
  void take() { code_.push_back(BPF_STMT(BPF_RET | BPF_K, 0xffffffff)); }
  void drop() { code_.push_back(BPF_STMT(BPF_RET | BPF_K, 0)); }
  void take_if(std::uint32_t value) {
    unless_skip(value, 1);
    take();
  }
  void drop_unless(std::uint32_t value) {
    code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0));
    drop();
  }
  /// Skips the next `instructions` unless the value is equal.
  void unless_skip(std::uint32_t value, std::uint8_t instructions) {
    code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, instructions));
  }
  std::vector<sock_filter> done() { return std::move(code_); }

 private:
  std::vector<sock_filter> code_;
};

std::uint32_t big_endian(const unsigned char* bytes) {
  return static_cast<std::uint32_t>(bytes[0]) << 24 | static_cast<std::uint32_t>(bytes[1]) << 16 |
         static_cast<std::uint32_t>(bytes[2]) << 8 | bytes[3];
}

void take_if_to(Program& program, const Address& address) {
  unsigned char bytes[16] = {};
  ::inet_pton(address.v6 ? AF_INET6 : AF_INET, address.address.c_str(), bytes);
  if (!address.v6) return program.take_if(big_endian(bytes));
  constexpr int words = 4;
  for (int k = 0; k < words; ++k) {
    program.load_word(v6_destination + 4 * k);
    // After this jump: load and jump of each remaining word, and the end.
    program.unless_skip(big_endian(bytes + 4 * k), static_cast<std::uint8_t>(2 * (words - 1 - k) + 1));
  }
  program.take();
}

std::vector<std::uint32_t> interface_indices(const std::vector<Address>& addresses, bool loopback) {
  std::vector<std::uint32_t> out;
  for (const Address& a : addresses)
    if (a.loopback == loopback && std::find(out.begin(), out.end(), a.index) == out.end()) out.push_back(a.index);
  return out;
}

}  // namespace

std::vector<sock_filter> datagram_filter(const std::vector<Address>& addresses, const std::vector<Address>& machine) {
  Program program;
  program.load_interface();
  for (const std::uint32_t index : interface_indices(machine, true)) program.take_if(index);
  if (!only_loopback(addresses)) {
    const bool v6 = addresses.front().v6;
    program.load_byte(ip_header);
    program.mask(0xf0);
    program.drop_unless(v6 ? 0x60 : 0x40);
    if (!v6) program.load_word(v4_destination);
    for (const Address& a : addresses)
      if (!a.loopback) take_if_to(program, a);
    program.load_byte(v6 ? v6_destination : v4_destination);
    program.mask(v6 ? 0xff : 0xf0);
    program.drop_unless(v6 ? 0xff : 0xe0);
    program.load_interface();
    for (const std::uint32_t index : interface_indices(addresses, false)) program.take_if(index);
  }
  program.drop();
  return program.done();
}

Confinement::Confinement(std::vector<sock_filter> filter) : filter_(std::move(filter)) { confining = this; }
Confinement::~Confinement() { confining = nullptr; }

void Confinement::before_bind(int socket) {
  if (!confining) return;
  const sock_fprog program{static_cast<unsigned short>(confining->filter_.size()), confining->filter_.data()};
  if (::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0) ++confining->sockets_;
  else confining->refused_ = std::strerror(errno);
}

}  // namespace sonde::bus::cyclonedds

/// Cyclone's calls arrive here and are passed on to its own function of this name, because symbols of a shared object
/// that dlopen() loads for this module are searched in the module first.
extern "C" __attribute__((visibility("default"))) dds_return_t ddsrt_bind(ddsrt_socket_t sock, const sockaddr* addr,
                                                                          socklen_t addrlen) {
  static const auto real = reinterpret_cast<decltype(&ddsrt_bind)>(::dlsym(RTLD_NEXT, "ddsrt_bind"));
  if (!real) return DDS_RETCODE_ERROR;
  sonde::bus::cyclonedds::Confinement::before_bind(sock);
  return real(sock, addr, addrlen);
}
