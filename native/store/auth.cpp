#include "store/auth.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "service/munge.hpp"

namespace sonde::store::auth {

namespace {

std::string hex(const unsigned char* bytes, std::size_t n) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t k = 0; k < n; ++k) {
    text += digits[bytes[k] >> 4];
    text += digits[bytes[k] & 15];
  }
  return text;
}

}  // namespace

std::vector<std::string> methods() {
  if (munge::built()) return {"none", "token", "munge"};
  return {"none", "token"};
}

Result<std::string> read_token(const std::string& path, bool server) {
  const auto bad = [&](const std::string& why) {
    // A client that made a token of its own would have one that no server knows.
    return Error{"store.bad_token", "the token file " + path + " cannot be used: " + why,
                 server ? "'sonde store token " + path + "' makes one (--force replaces it); give a copy to the clients"
                        : "copy the server's token file there, readable by you alone: chmod 600 " + path};
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return bad(std::strerror(errno));
  struct stat info{};
  char text[4096];
  const bool seen = ::fstat(fd, &info) == 0;
  const ssize_t n = ::read(fd, text, sizeof text);
  ::close(fd);
  if (!seen || n < 0) return bad("it cannot be read");
  if (info.st_mode & 077)
    return Error{"store.bad_token",
                 "the token file " + path + " cannot be used: others than its owner may read or write it",
                 "chmod 600 " + path};
  if (n == static_cast<ssize_t>(sizeof text)) return bad("it is longer than 4095 bytes");
  std::string token(text, static_cast<std::size_t>(n));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.size() < 16) return bad("it holds " + std::to_string(token.size()) + " bytes; at least 16 are needed");
  return token;
}

std::string nonce() {
  unsigned char bytes[32];
  for (std::size_t got = 0; got < sizeof bytes;) {
    const ssize_t n = ::getrandom(bytes + got, sizeof bytes - got, 0);
    if (n > 0) got += static_cast<std::size_t>(n);
  }
  return hex(bytes, sizeof bytes);
}

bool is_nonce(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string token_proof(const std::string& token, std::string_view who, std::string_view client_nonce,
                        std::string_view server_nonce) {
  std::string text = "sonde store 1\n";
  text.append(who).append("\n").append(client_nonce).append("\n").append(server_nonce);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), digest, &size);
  return hex(digest, size);
}

bool equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Result<std::string> munge_credential(std::string_view server_nonce) {
  auto made = munge::credential(server_nonce);
  if (made) return made;
  return Error{"store.no_munge", made.error().what,
               made.error().hint + (munge::built() ? " or use another --auth" : ", or use --auth token")};
}

Result<unsigned> munge_user(const std::string& credential, std::string_view server_nonce) {
  auto user = munge::user(credential, server_nonce);
  if (user) return user;
  return Error{user.error().code == "munge.silent" ? "store.no_munge" : "store.denied", user.error().what,
               user.error().hint};
}

}  // namespace sonde::store::auth
