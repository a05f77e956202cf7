#include "stranger.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace sonde::store::test {

Stranger::Stranger(Server& server, const char* from) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd_ >= 0);
  sockaddr_in own{}, to{};
  own.sin_family = to.sin_family = AF_INET;
  REQUIRE(::inet_pton(AF_INET, from, &own.sin_addr) == 1);
  REQUIRE(::bind(fd_, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(server.port());
  REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
}

}  // namespace sonde::store::test
