#include "store/auth.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pwd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/owned_file.hpp"
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

/// A socket's address. IPv4 that came in by a socket of IPv6 reads as IPv4, as at the other end.
struct Place {
  std::string host;
  unsigned port = 0;
  bool loopback = false;
};

Place place_of(const sockaddr_storage& from) {
  Place place;
  char text[INET6_ADDRSTRLEN] = "";
  in_addr four{};
  if (from.ss_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &from, sizeof in);
    four = in.sin_addr;
    place.port = ntohs(in.sin_port);
  } else if (from.ss_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &from, sizeof in);
    place.port = ntohs(in.sin6_port);
    if (!IN6_IS_ADDR_V4MAPPED(&in.sin6_addr)) {
      ::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
      place.host = '[' + std::string(text) + ']';
      place.loopback = IN6_IS_ADDR_LOOPBACK(&in.sin6_addr);
      return place;
    }
    std::memcpy(&four, in.sin6_addr.s6_addr + 12, sizeof four);
  } else {
    return place;
  }
  ::inet_ntop(AF_INET, &four, text, sizeof text);
  place.host = text;
  place.loopback = ntohl(four.s_addr) >> 24 == 127;
  return place;
}

/// This machine since it booted, and the network namespace: loopback leads no further.
std::string this_machine() {
  char boot[64] = "", space[64] = "";
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    const ssize_t n = ::read(fd, boot, sizeof boot - 1);
    ::close(fd);
    boot[n > 0 ? n : 0] = 0;
    boot[std::strcspn(boot, "\n")] = 0;
  }
  const ssize_t n = ::readlink("/proc/self/ns/net", space, sizeof space - 1);
  return std::string(boot) + ' ' + std::string(space, n > 0 ? static_cast<std::size_t>(n) : 0);
}

constexpr std::size_t token_least = 16, token_most = 4095;

/// The text of an open token file without its last newlines; what is wrong with it goes to `why`.
std::string token_in(int fd, std::string& why) {
  char text[token_most + 1];
  const ssize_t n = ::read(fd, text, sizeof text);
  if (n < 0) why = "it cannot be read";
  else if (n == static_cast<ssize_t>(sizeof text)) why = "it is longer than " + std::to_string(token_most) + " bytes";
  std::string token(text, why.empty() ? static_cast<std::size_t>(n) : 0);
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (why.empty() && token.size() < token_least)
    why =
        "it holds " + std::to_string(token.size()) + " bytes; at least " + std::to_string(token_least) + " are needed";
  return token;
}

constexpr const char* without_key =
    "use a secret of its own: 'sonde store token FILE' makes one for --auth token --token-file FILE";

/// Makes what is missing of a folder's path, for this user alone.
void make_folders(const std::string& path) {
  for (std::size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
    ::mkdir(path.substr(0, at).c_str(), 0700);
  ::mkdir(path.c_str(), 0700);
}

/// A new key in the folder, unless another process was quicker: then that one's stays. Under a name of its own first,
/// so that no program reads half of it.
Result<void> make_key(int folder, const std::string& path) {
  const std::string part = "store-key." + nonce().substr(0, 16) + ".part";
  const int fd = ::openat(folder, part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return write_error(path, errno);
  const std::string text = nonce() + '\n';
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  int number = written ? 0 : errno;
  ::close(fd);
  if (written && ::linkat(folder, part.c_str(), folder, "store-key", 0) != 0 && errno != EEXIST) {
    // A file system without second names.
    if (::renameat2(folder, part.c_str(), folder, "store-key", RENAME_NOREPLACE) != 0 && errno != EEXIST)
      number = errno;
  }
  ::unlinkat(folder, part.c_str(), 0);
  if (number) return write_error(path, number);
  return {};
}

}  // namespace

std::vector<std::string> methods() {
  if (munge::built()) return {"none", "user", "token", "munge"};
  return {"none", "user", "token"};
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
  std::string why;
  if (::fstat(fd, &info) != 0) why = "it cannot be read";
  std::string token = why.empty() ? token_in(fd, why) : "";
  ::close(fd);
  if (info.st_mode & 077)
    return Error{"store.bad_token",
                 "the token file " + path + " cannot be used: users other than its owner can read or write it",
                 "chmod 600 " + path};
  if (!why.empty()) return bad(why);
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

Endpoint server_end(int fd, bool client) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0)
    return {};
  const Place here = place_of(own), there = place_of(peer);
  const Place &server = client ? there : here, &from = client ? here : there;
  if (server.host.empty()) return {};
  Endpoint end{server.host + ':' + std::to_string(server.port), {}, from.host + ':' + std::to_string(from.port)};
  if (server.loopback || here.host == there.host) end.machine = this_machine();
  return end;
}

std::string statement(const Handshake& h, std::string_view who) {
  std::string text = "sonde store " + std::string(protocol);
  for (const std::string_view part : {who, h.method, h.client_nonce, h.server_nonce, std::string_view(h.server.address),
                                      std::string_view(h.server.machine), std::string_view(h.server.client)})
    text.append("\n").append(part);
  return text;
}

std::string token_proof(const std::string& token, const Handshake& handshake, std::string_view who) {
  const std::string text = statement(handshake, who);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), digest, &size);
  return hex(digest, size);
}

Result<std::string> user_key_path() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state && *state == '/')
    return std::string(state) + "/sonde/store-key";
  std::string home;
  if (const char* text = std::getenv("HOME"); text && *text == '/') {
    home = text;
  } else {
    passwd entry{}, *found = nullptr;
    std::vector<char> text_of_it(16384);
    if (::getpwuid_r(::geteuid(), &entry, text_of_it.data(), text_of_it.size(), &found) == 0 && found && entry.pw_dir)
      home = entry.pw_dir;
  }
  if (home.empty() || home[0] != '/')
    return Error{"store.no_key", "no folder is known for the key of this user: neither HOME nor XDG_STATE_HOME is set",
                 std::string("set one of them, or ") + without_key};
  return home + "/.local/state/sonde/store-key";
}

Result<std::string> user_key(bool make) {
  auto where = user_key_path();
  if (!where) return where.error();
  const std::string& path = *where;
  const std::string folder_path = path.substr(0, path.rfind('/'));
  const auto bad = [&](const std::string& what, const std::string& why, const std::string& hint) {
    return Error{"store.bad_token", what + " cannot be trusted with the key of this user: " + why, hint};
  };
  const auto none = [&](int number) {
    return Error{"store.no_key",
                 "this user has no key for servers of the store: " + path + ": " + std::strerror(number),
                 make ? "make that folder writable, set XDG_STATE_HOME, or " + std::string(without_key)
                      : "'sonde store serve' of the same user makes it; if the server is another user's, or on a "
                        "host without this home folder, ask its owner for a token: --token-file FILE"};
  };
  if (make) make_folders(folder_path);
  const int folder = ::open(folder_path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return none(errno);
  struct stat info{};
  Result<std::string> key = none(ENOENT);
  if (::fstat(folder, &info) != 0 || info.st_uid != ::geteuid()) {
    key = bad("the folder " + folder_path, "it belongs to uid " + std::to_string(info.st_uid),
              std::string("set HOME or XDG_STATE_HOME to a folder of your own, or ") + without_key);
  } else if (info.st_mode & 022) {
    key = bad("the folder " + folder_path, "other users can write in it", "chmod go-w " + folder_path);
  } else {
    constexpr int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    int fd = ::openat(folder, "store-key", flags);
    if (fd < 0 && errno == ENOENT && make) {
      if (auto made = make_key(folder, path); !made) key = Error{"store.no_key", made.error().what, none(0).hint};
      else fd = ::openat(folder, "store-key", flags);
    } else if (fd < 0) {
      key = none(errno);
    }
    if (fd >= 0) {
      std::string why;
      if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) why = "it is not a plain file";
      else if (info.st_uid != ::geteuid()) why = "it belongs to uid " + std::to_string(info.st_uid);
      else if (info.st_mode & 077) why = "users other than its owner can read or write it";
      const std::string text = why.empty() ? token_in(fd, why) : "";
      ::close(fd);
      if (why.empty()) key = text;
      else
        key = bad("the file " + path, why,
                  "remove it: your next server makes a new one, and your running servers must then be restarted");
    }
  }
  ::close(folder);
  return key;
}

bool equal(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Result<std::string> munge_credential(std::string_view payload) {
  auto made = munge::credential(payload);
  if (made) return made;
  return Error{"store.no_munge", made.error().what,
               made.error().hint + (munge::built() ? " or use another --auth" : ", or use --auth token")};
}

Result<unsigned> munge_user(const std::string& credential, std::string_view payload) {
  auto user = munge::user(credential, payload);
  if (user) return user;
  return Error{user.error().code == "munge.silent" ? "store.no_munge" : "store.denied", user.error().what,
               user.error().hint};
}

}  // namespace sonde::store::auth
