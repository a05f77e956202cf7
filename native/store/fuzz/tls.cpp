// libFuzzer: a peer of a TCP link that offers or begins TLS, and sends anything: before the handshake, within it, and
// after it under the right keys, so that each kind of record is reached. The first byte selects the attacked side and
// its settings. A link may refuse (store.*) and close. Its memory must be bounded, and it must deliver no data that
// came without TLS if TLS is required.
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/fuzz/input.hpp"
#include "store/transport.hpp"
#include "store/transport/tcp.hpp"
#include "store/transport/tls.hpp"

// NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizer's name
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();

namespace {

using namespace sonde::store;
using sonde::fuzz::hold;
using sonde::fuzz::Input;
using Stream = std::vector<std::byte>;
using Secret = std::array<unsigned char, 32>;

const std::string secret = "a secret that both of them know";
constexpr std::size_t own_max = 1u << 20;   // frames that the attacked side itself has to send
constexpr std::size_t held_max = 8u << 20;  // memory for incomplete frames

/// RFC 8446, section 7.1, with SHA-256 and no context. Up to 32 bytes.
std::vector<unsigned char> expanded(const Secret& from, std::string_view label, std::size_t bytes) {
  std::vector<unsigned char> info{0, static_cast<unsigned char>(bytes), static_cast<unsigned char>(6 + label.size())};
  for (const char c : "tls13 " + std::string(label)) info.push_back(static_cast<unsigned char>(c));
  info.push_back(0);
  info.push_back(1);  // for HKDF-Expand: its first block
  std::vector<unsigned char> out(EVP_MAX_MD_SIZE);
  unsigned size = 0;
  HMAC(EVP_sha256(), from.data(), from.size(), info.data(), info.size(), out.data(), &size);
  out.resize(bytes);
  return out;
}

/// A record on the wire, with any contents: RFC 8446, section 5.1.
Stream record(unsigned type, Bytes content) {
  Stream out{static_cast<std::byte>(type), std::byte{3}, std::byte{3}, static_cast<std::byte>(content.size() >> 8),
             static_cast<std::byte>(content.size())};
  out.insert(out.end(), content.begin(), content.end());
  return out;
}

/// The other side, which knows the secret: uses OpenSSL until the end of the handshake, then makes its own records.
class Peer {
 public:
  explicit Peer(bool server) : server_(server) {
    static SSL_CTX* const contexts[2] = {context(false), context(true)};
    ssl_ = SSL_new(contexts[server]);
    in_ = BIO_new(BIO_s_mem());
    out_ = BIO_new(BIO_s_mem());
    SSL_set_bio(ssl_, in_, out_);
    SSL_set_app_data(ssl_, this);
    if (server) SSL_set_accept_state(ssl_);
    else SSL_set_connect_state(ssl_);
  }
  ~Peer() { SSL_free(ssl_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void hears(Bytes bytes) {
    if (!bytes.empty() && !SSL_is_init_finished(ssl_)) BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
  }
  /// The next bytes of its handshake.
  Stream flight() {
    SSL_do_handshake(ssl_);
    Stream out(static_cast<std::size_t>(BIO_pending(out_)));
    if (!out.empty()) BIO_read(out_, out.data(), static_cast<int>(out.size()));
    return out;
  }
  bool shaken() const { return SSL_is_init_finished(ssl_) && known_; }

  /// A record under this connection's keys, with this type and content after decryption.
  Stream sealed(unsigned type, Bytes content) {
    if (!shaken()) return record(type, content);
    Stream plain(content.begin(), content.end());
    plain.push_back(static_cast<std::byte>(type));
    Stream out(5 + plain.size() + 16);
    const std::size_t length = plain.size() + 16;
    const unsigned char head[5] = {23, 3, 3, static_cast<unsigned char>(length >> 8),
                                   static_cast<unsigned char>(length)};
    std::memcpy(out.data(), head, sizeof head);
    const auto key = expanded(keys_, "key", 16);
    auto nonce = expanded(keys_, "iv", 12);
    for (std::size_t k = 0; k < 8; ++k) nonce[4 + k] ^= static_cast<unsigned char>(number_ >> 8 * (7 - k));
    ++number_;
    EVP_CIPHER_CTX* cipher = EVP_CIPHER_CTX_new();
    auto* to = reinterpret_cast<unsigned char*>(out.data()) + 5;
    int n = 0;
    EVP_EncryptInit_ex(cipher, EVP_aes_128_gcm(), nullptr, key.data(), nonce.data());
    EVP_EncryptUpdate(cipher, nullptr, &n, head, sizeof head);
    EVP_EncryptUpdate(cipher, to, &n, reinterpret_cast<const unsigned char*>(plain.data()),
                      static_cast<int>(plain.size()));
    EVP_EncryptFinal_ex(cipher, to + n, &n);
    EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, 16, to + plain.size());
    EVP_CIPHER_CTX_free(cipher);
    return out;
  }
  /// A KeyUpdate (RFC 8446, section 4.6.3). This side's keys are changed after it.
  Stream key_update(unsigned asks) {
    const unsigned char message[5] = {24, 0, 0, 1, static_cast<unsigned char>(asks)};
    Stream out = sealed(22, std::as_bytes(std::span(message)));
    const auto next = expanded(keys_, "traffic upd", 32);
    std::copy(next.begin(), next.end(), keys_.begin());
    number_ = 0;
    return out;
  }

 private:
  static SSL_SESSION* session(SSL* ssl) {
    static constexpr unsigned char suite[] = {0x13, 0x01};
    static constexpr char purpose[] = "sonde store tls 1";
    unsigned char key[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), reinterpret_cast<const unsigned char*>(purpose),
         sizeof purpose - 1, key, &size);
    SSL_SESSION* made = SSL_SESSION_new();
    SSL_SESSION_set1_master_key(made, key, size);
    SSL_SESSION_set_cipher(made, SSL_CIPHER_find(ssl, suite));
    SSL_SESSION_set_protocol_version(made, TLS1_3_VERSION);
    return made;
  }
  static int offer(SSL* ssl, const EVP_MD*, const unsigned char** id, std::size_t* id_bytes, SSL_SESSION** made) {
    static constexpr unsigned char identity[] = {'s', 'o', 'n', 'd', 'e'};
    *id = identity;
    *id_bytes = sizeof identity;
    *made = session(ssl);
    return 1;
  }
  static int take(SSL* ssl, const unsigned char*, std::size_t, SSL_SESSION** made) {
    *made = session(ssl);
    return 1;
  }
  /// Parses the lines of SSLKEYLOGFILE: a name, the client's random number, the secret.
  static void learn(const SSL* ssl, const char* text) {
    auto* peer = static_cast<Peer*>(SSL_get_app_data(ssl));
    const std::string_view line = text;
    if (!line.starts_with(peer->server_ ? "SERVER_TRAFFIC_SECRET_0 " : "CLIENT_TRAFFIC_SECRET_0 ")) return;
    const std::string_view hex = line.substr(line.rfind(' ') + 1);
    for (std::size_t k = 0; k < peer->keys_.size() && 2 * k + 1 < hex.size(); ++k)
      peer->keys_[k] = static_cast<unsigned char>(std::stoul(std::string(hex.substr(2 * k, 2)), nullptr, 16));
    peer->known_ = true;
  }
  static SSL_CTX* context(bool server) {
    SSL_CTX* made = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    hold(made && SSL_CTX_set_min_proto_version(made, TLS1_3_VERSION) == 1, "OpenSSL has no TLS 1.3");
    SSL_CTX_set_ciphersuites(made, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set_num_tickets(made, 0);
    SSL_CTX_set_keylog_callback(made, learn);
    if (server) SSL_CTX_set_psk_find_session_callback(made, take);
    else SSL_CTX_set_psk_use_session_callback(made, offer);
    return made;
  }

  bool server_, known_ = false;
  SSL* ssl_ = nullptr;
  BIO *in_ = nullptr, *out_ = nullptr;
  Secret keys_{};
  std::uint64_t number_ = 0;
};

class Reader final : public Sink {
 public:
  explicit Reader(bool only_tls) : only_tls_(only_tls) {}
  void frame(Link& link, const wire::Header& h, Bytes table, Bytes data, bool) override {
    hold(!ended, "a frame after the end");
    const bool last_words = h.kind == wire::Kind::goodbye;  // from a server that cannot begin TLS
    hold(!only_tls_ || last_words || static_cast<TcpLink&>(link).secured(), "a frame that came without TLS");
    hold(table.size() == h.table_bytes && data.size() == h.data_bytes, "a frame whose size is not its header's");
    for (const std::byte b : data) sum += std::to_integer<unsigned>(b);
  }
  void closed(Link&, const sonde::Error* error) override {
    hold(!ended, "the end of a link is reported twice");
    if (error) hold(*error, "store.");
    ended = true;
  }
  bool ended = false;
  std::uint64_t sum = 0;

 private:
  bool only_tls_;
};

struct Scene {
  int fd;  // the peer's
  Peer peer;
  TcpLink& link;
  bool deaf = false;

  void hear() {
    std::byte text[16384];
    for (ssize_t n; (n = ::recv(fd, text, sizeof text, MSG_DONTWAIT)) > 0;)
      peer.hears({text, static_cast<std::size_t>(n)});
  }
  void say(Bytes bytes) {
    for (int turn = 0; !bytes.empty() && turn < 1000; ++turn) {
      const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
      else if (errno != EAGAIN) return;
      turn_of_link();
      if (!link.open()) return;
    }
  }
  void turn_of_link() {
    link.progress();
    hold(link.backlog() <= own_max + (256u << 10), "data that the peer does not read piles up");
    hold(link.room_in() <= 8u << 20, "memory is allocated for data that did not come");
    if (!deaf) hear();
  }
  /// Continues the handshake as far as possible; the input may change a byte from the peer.
  void shake(Input& input) {
    const auto flights = 1 + input.next<std::uint8_t>() % 4;
    const auto damaged = input.next<std::uint8_t>();
    for (int k = 0; k < flights && !peer.shaken(); ++k) {
      hear();
      Stream said = peer.flight();
      if (damaged == k + 1 && !said.empty())
        said[input.next<std::uint16_t>() % said.size()] ^= static_cast<std::byte>(input.next<std::uint8_t>());
      say(said);
      turn_of_link();
    }
  }
};

void step(Input& input, Scene& scene) {
  const auto what = input.next<std::uint8_t>();
  switch (what % 12) {
    case 0: scene.say(input.take(input.next<std::uint8_t>())); break;
    case 1: {
      const unsigned type = what & 128 ? input.next<std::uint8_t>() : 20 + what / 12 % 4;
      scene.say(record(type, input.take(input.next<std::uint8_t>())));
      break;
    }
    case 2:
    case 3: scene.shake(input); break;
    case 4: {
      const unsigned type = what & 128 ? input.next<std::uint8_t>() : 20 + what / 12 % 4;
      scene.say(scene.peer.sealed(type, input.take(input.next<std::uint8_t>())));
      break;
    }
    case 5: {  // the longest records, and longer ones
      const Stream content(input.next<std::uint16_t>() % 16'500, std::byte{1});
      scene.say(scene.peer.sealed(20 + what / 12 % 4, content));
      break;
    }
    case 6: {
      Stream all;
      for (unsigned n = input.next<std::uint8_t>() % 64; n--;) {
        const Stream one = scene.peer.key_update(what / 12 % 3);
        all.insert(all.end(), one.begin(), one.end());
      }
      scene.say(all);
      break;
    }
    case 7: {
      const Outgoing frame =
          plain_frame(wire::Kind::ping, Stream(input.next<std::uint16_t>() % 20'000, std::byte{2}), 1);
      const Bytes whole(frame.head);
      for (std::size_t at = 0; at < whole.size(); at += 16'000)
        scene.say(scene.peer.sealed(23, whole.subspan(at, std::min<std::size_t>(16'000, whole.size() - at))));
      break;
    }
    case 8: {  // a frame whose header comes from the input, with a correct checksum
      wire::Header h;
      h.kind = static_cast<wire::Kind>(1 + input.next<std::uint8_t>() % 12);
      h.data_bytes = input.next<std::uint32_t>() % (wire::data_bytes_max + 1);
      Stream head(wire::header_bytes);
      wire::encode(h, head.data());
      scene.say(scene.peer.sealed(23, head));
      break;
    }
    case 9: {
      const std::size_t n = std::size_t{input.next<std::uint8_t>()} << 9;
      if (scene.link.backlog() + n < own_max) scene.link.send(plain_frame(wire::Kind::pong, Stream(n, std::byte{3})));
      scene.link.flush();
      break;
    }
    case 10:
      scene.deaf = what & 16;
      if ((what & 224) == 224) ::shutdown(scene.fd, SHUT_WR);
      break;
    default: scene.turn_of_link();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  Input input(bytes, n);
  const auto how = input.next<std::uint8_t>();
  const bool attacks_client = how & 1, only = how & 2;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 0;
  const std::size_t before = __sanitizer_get_current_allocated_bytes();
  {
    Reader reader(attacks_client || only);
    TcpLink link(ends[1], {}, reader);
    if (how & 4) link.limit_frames(4096);
    if (attacks_client) {
      auto tls = Tls::make(Tls::Side::client, secret);
      hold(bool(tls), "TLS cannot begin");
      link.secure(std::move(*tls));
    } else {
      link.offer_tls(secret, only);
    }
    Scene scene{ends[0], Peer(attacks_client), link};
    for (int steps = 0; steps < 200 && !input.empty() && link.open(); ++steps) step(input, scene);
    int turns = 0;
    for (scene.turn_of_link(); link.undelivered() && turns < 100'000; ++turns) scene.turn_of_link();
    hold(turns < 100'000, "a link endlessly has data to read, although the peer sends nothing");
    hold(__sanitizer_get_current_allocated_bytes() < before + held_max, "a peer makes this side use much memory");
    (void)link.info();
  }
  ::close(ends[0]);
  return 0;
}
