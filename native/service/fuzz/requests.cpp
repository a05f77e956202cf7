// libFuzzer: what a stranger sends to the page for scrapers, with a token and without one. The first byte says which.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "core/fuzz/input.hpp"
#include "service/http.hpp"

namespace {

std::unique_ptr<sonde::service::Http> page(const char* token) {
  sonde::service::HttpConfig config;
  config.token = token;
  auto out = sonde::service::Http::start(
      config, [] { return std::string("# TYPE a counter\n# UNIT a s\na_total 1\n# TYPE b gauge\nb 2\n# EOF\n"); });
  if (!out) std::abort();
  return std::move(*out);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  static const auto open = page(""), closed = page("0123456789abcdef");
  if (n < 1) return 0;
  const bool asks = bytes[0] & 1;
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons((asks ? closed : open)->port());
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // Ports of connections that are closed in order stay taken for a minute: closed at once, they do not run out.
  const linger at_once{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) {
    (void)!::send(fd, bytes + 1, n - 1, MSG_NOSIGNAL);
    ::shutdown(fd, SHUT_WR);
    std::string answer;
    char text[4096];
    for (ssize_t got; (got = ::recv(fd, text, sizeof text, 0)) > 0;) answer.append(text, static_cast<std::size_t>(got));
    const auto sent = sonde::fuzz::text_of(bytes + 1, n - 1);
    sonde::fuzz::hold(answer.empty() || answer.starts_with("HTTP/1.1 "), "an answer that is no HTTP");
    sonde::fuzz::hold(!asks || answer.find("a_total") == answer.npos || sent.find("0123456789abcdef") != sent.npos,
                      "the page is shown without the token");
  }
  ::close(fd);
  return 0;
}
