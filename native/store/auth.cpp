#include "store/auth.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef SONDE_HAVE_MUNGE
#include <munge.h>
#endif

#include <cerrno>
#include <cstdlib>
#include <cstring>

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
#ifdef SONDE_HAVE_MUNGE
  return {"none", "token", "munge"};
#else
  return {"none", "token"};
#endif
}

Result<std::string> read_token(const std::string& path, bool server) {
  const auto bad = [&](const std::string& why) {
    // A client that made a token of its own would have one that no server knows.
    return Error{"store.bad_token", "the token file " + path + " cannot be used: " + why,
                 server ? "'sonde store token " + path + "' makes one (--force replaces it); give a copy to the clients" : "copy the server's token file there, readable by you alone: chmod 600 " + path};
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
    return Error{"store.bad_token", "the token file " + path + " cannot be used: others than its owner may read or write it", "chmod 600 " + path};
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

std::string token_proof(const std::string& token, std::string_view who, std::string_view client_nonce, std::string_view server_nonce) {
  std::string text = "sonde store 1\n";
  text.append(who).append("\n").append(client_nonce).append("\n").append(server_nonce);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()), reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &size);
  return hex(digest, size);
}

bool equal(std::string_view a, std::string_view b) { return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

#ifdef SONDE_HAVE_MUNGE

namespace {

/// Where munged listens, if SONDE_MUNGE_SOCKET says that it is not where libmunge was built to look.
struct MungeContext {
  munge_ctx_t ctx = nullptr;
  MungeContext() {
    if (const char* socket = std::getenv("SONDE_MUNGE_SOCKET"); socket && *socket) {
      ctx = ::munge_ctx_create();
      ::munge_ctx_set(ctx, MUNGE_OPT_SOCKET, socket);
    }
  }
  ~MungeContext() {
    if (ctx) ::munge_ctx_destroy(ctx);
  }
};

}  // namespace

Result<std::string> munge_credential(std::string_view server_nonce) {
  const MungeContext where;
  char* credential = nullptr;
  const munge_err_t why = ::munge_encode(&credential, where.ctx, server_nonce.data(), static_cast<int>(server_nonce.size()));
  std::string text = credential ? credential : "";
  std::free(credential);
  if (why != EMUNGE_SUCCESS)
    return Error{"store.no_munge", std::string("MUNGE gave no credential: ") + ::munge_strerror(why), "is munged running on this host? or use another --auth"};
  return text;
}

Result<unsigned> munge_user(const std::string& credential, std::string_view server_nonce) {
  void* payload = nullptr;
  int size = 0;
  uid_t user = 0;
  gid_t group = 0;
  const MungeContext where;
  const munge_err_t why = ::munge_decode(credential.c_str(), where.ctx, &payload, &size, &user, &group);
  const std::string made_for(static_cast<const char*>(payload ? payload : ""), payload ? static_cast<std::size_t>(size) : 0);
  std::free(payload);
  if (why != EMUNGE_SUCCESS)
    return Error{"store.denied", std::string("the MUNGE credential was refused: ") + ::munge_strerror(why), "do both hosts have the same MUNGE key and clocks within minutes?"};
  if (!equal(made_for, server_nonce)) return Error{"store.denied", "the MUNGE credential was made for another connection", "try again"};
  return static_cast<unsigned>(user);
}

#else

Result<std::string> munge_credential(std::string_view) {
  return Error{"store.no_munge", "this build has no MUNGE", "install libmunge-dev and build again, or use --auth token"};
}
Result<unsigned> munge_user(const std::string&, std::string_view) { return munge_credential({}).error(); }

#endif

}  // namespace sonde::store::auth
