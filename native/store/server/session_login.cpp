#include "store/server/session.hpp"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/clock.hpp"
#include "core/units.hpp"
#include "store/auth.hpp"
#include "store/guard.hpp"
#include "store/server/session_parts.hpp"

namespace sonde::store {

namespace {

constexpr std::size_t entry_name_bytes = 128, entry_transport_bytes = 64;

}  // namespace

void Session::hello(const wire::Text& text) {
  if (server_.stopping())
    return refuse({"store.unavailable", "the server is shutting down", "connect again when it is back"}, false);
  client_ = wire::text_value(text, "client").substr(0, entry_name_bytes);
  client_nonce_ = wire::text_value(text, "nonce").substr(0, entry_name_bytes);
  number_ = trace::connection(client_nonce_);
  wanted_transport_ = wire::text_value(text, "transport").substr(0, entry_transport_bytes);
  checksum_ = wire::text_value(text, "checksum") != "head";
  link_options_ = server_.config().link;
  link_options_.frame_data = server_.config().frame_data;
  apply_style(wire::text_value(text, "link"), link_options_);
  tcp_->adopt(link_options_);
  const std::string& auth = server_.config().auth;
  if (const auto theirs = wire::text_value(text, "protocol"); auth != "none" && theirs != auth::protocol)
    return refuse({"store.version",
                   "the client authenticates with version " + std::string(theirs.empty() ? "1" : theirs.substr(0, 8)) +
                       " of the handshake, but the server requires version " + std::string(auth::protocol),
                   "run the same version of Sonde on both sides; the server's is " SONDE_VERSION},
                  false);
  nonce_ = auth::nonce();
  state_ = State::proof;
  tcp_->send(plain_frame(
      wire::Kind::challenge,
      bytes_of(wire::encode_text({{"auth", auth}, {"nonce", nonce_}, {"protocol", std::string(auth::protocol)}}))));
  tcp_->flush();
}

void Session::proof(const wire::Text& text) {
  const ServerConfig& config = server_.config();
  if (config.auth == "none") return welcome({});
  // The address that the client says it reached. A proof for another address was made for another server, and somebody
  // in between forwards it.
  auth::Endpoint reached{std::string(wire::text_value(text, "server")), std::string(wire::text_value(text, "machine")),
                         std::string(wire::text_value(text, "from"))};
  const auth::Endpoint own = auth::server_end(tcp_->wait_fd(), false);
  const bool known =
      std::find(config.known_as.begin(), config.known_as.end(), reached.address) != config.known_as.end();
  if (!known && (own.address.empty() || reached.address != own.address || reached.machine != own.machine)) {
    const bool elsewhere = reached.address == own.address;
    return refuse(
        {"store.denied",
         "the client wants the server at " + reached.address.substr(0, entry_name_bytes) +
             (elsewhere ? " of another machine or network namespace" : ", but this one is at " + own.address) +
             ": something between them forwards the connection",
         "connect to the server itself; or start it with --known-as and the address that clients use"},
        false);
  }
  if (!known && reached.client != own.client)
    return refuse({"store.denied",
                   "the client's address of this connection is " + reached.client.substr(0, entry_name_bytes) +
                       " for the client, but " + own.client +
                       " for the server: something between them "
                       "forwards the connection",
                   "connect to the server itself; where addresses are translated on the way, start it with "
                   "--known-as and the address that clients use"},
                  false);
  const auth::Handshake shake{config.auth, client_nonce_, nonce_, reached};
  if (!auth::is_nonce(client_nonce_))
    return refuse(
        {"store.bad_frame", "the client's nonce is not valid", "both sides must run the same version of Sonde"}, true);
  if (config.auth == "munge")
    return ask_munge(std::string(wire::text_value(text, "proof")), auth::statement(shake, "client"));
  if (!auth::equal(wire::text_value(text, "proof"), auth::token_proof(server_.token(), shake, "client"))) {
    const bool user = config.auth == "user";
    return refuse(
        {"store.denied",
         user ? "only the user who started the server can connect, and this client did not prove to be that user"
              : "the server did not accept the client's proof of identity",
         user ? "if the server is another user's, ask that user for a token; if it is yours, both sides need the "
                "same key, which is in the home folder: .local/state/sonde/store-key"
              : "check the token file"},
        false);
  }
  welcome(auth::token_proof(server_.token(), shake, "server"));
}

void Session::ask_munge(std::string credential, std::string payload) {
  state_ = State::checking;
  const std::weak_ptr<Session> self = weak_from_this();
  const bool asked = server_.credentials().ask(
      {std::move(credential), std::move(payload), [self] { return !self.expired(); },
       [self, &reactor = reactor_](Result<unsigned> user) {
         if (auto session = self.lock())
           reactor.post(session, [raw = session.get(), user = std::move(user)] { raw->let_in_user(user); });
       }});
  if (!asked)
    refuse({"store.unavailable", "MUNGE on the server's host is slow, and too many clients wait for it already",
            "connect again in a moment; see munged there"},
           false);
}

void Session::let_in_user(const Result<unsigned>& user) {
  if (!alive_ || state_ != State::checking) return;
  if (!user) return refuse(user.error(), false);
  const auto& users = server_.config().users;
  if (*user != 0 && *user != ::geteuid() && std::find(users.begin(), users.end(), *user) == users.end())
    return refuse({"store.denied", "the user " + std::to_string(*user) + " may not use this server",
                   "its operator can allow you with --user"},
                  false);
  welcome({});
}

void Session::welcome(const std::string& own_proof) {
  const ServerConfig& config = server_.config();
  switch (server_.gate().prove(place_)) {
    case Gate::Answer::welcome: break;
    case Gate::Answer::gone: return closed(*tcp_, nullptr);  // it was informed already
    case Gate::Answer::full:
      return refuse(
          {"store.unavailable", "the server has " + std::to_string(config.connections) + " connections, its maximum",
           "close some, or start it with a larger --connections"},
          false);
  }
  std::string roles;
  for (const Role role : {Role::data, Role::kv, Role::db})
    if (server_.lane(role)) roles += (roles.empty() ? "" : ",") + std::string(name_of(role));
  wire::Text welcome;
  if (!own_proof.empty()) welcome.emplace_back("proof", own_proof);
  welcome.emplace_back("roles", roles);
  welcome.emplace_back("credits", std::to_string(config.credits));
  welcome.emplace_back("frame_data", std::to_string(config.frame_data));
  welcome.emplace_back("version", SONDE_VERSION);
  state_ = State::ready;
  tcp_->limit_frames(0);
  tcp_->send(plain_frame(wire::Kind::welcome, bytes_of(wire::encode_text(welcome))));
  tcp_->flush();
}

void Session::upgrade(Bytes first) {
  if (!server_.serves(wanted_transport_))
    return refuse({"store.not_served", "the server does not serve the transport " + wanted_transport_,
                   "use tcp; or start the server with --transports tcp," + wanted_transport_ +
                       ", on a network whose hosts are all trusted"},
                  false);
  auto transport = open_transport(wanted_transport_);
  if (!transport) return refuse(transport.error(), false);
  transport_ = *transport;
  // The two halves exchange messages, and an event loop cannot wait for them: a thread does, once this call has
  // returned.
  first_word_.assign(first.begin(), first.end());
  upgrading_ = true;
  tcp_->receive(false);
  reactor_.watch(*this);
  reactor_.post(shared_from_this(), [this] {
    if (!reactor_.spawn(shared_from_this())) refuse_link();
  });
}

void Session::refuse_link() {
  upgrading_ = false;
  refuse({"store.unavailable", "the server has no thread to make a link over the transport " + wanted_transport_,
          "connect again in a moment, or over tcp; allow the server's user more processes: ulimit -u"},
         false);
}

void Session::make_link() noexcept {
  // This thread belongs to the server: an exception in it would end all connections.
  try {
    control_ = std::make_unique<TcpControl>(*tcp_);
    tcp_->receive(true);
    const auto accept = [&]() -> Result<std::unique_ptr<Link>> {
      try {
        return transport_->accept(*control_, first_word_, link_options_, *this,
                                  Deadline::in_s(server_.config().link_timeout_s));
      } catch (...) {
        return threw("the transport " + wanted_transport_);
      }
    };
    auto made = std::make_shared<Result<std::unique_ptr<Link>>>(accept());
    reactor_.post(shared_from_this(), [this, made] {
      upgrading_ = false;
      if (!*made) {
        tcp_->turn_to(*this);
        return refuse(made->error(), false);
      }
      own_link_ = std::move(**made);
      link_ = own_link_.get();
      reactor_.watch(*this);
      ready();
    });
  } catch (...) {
    link_lost_ = true;
    lose();
  }
}

}  // namespace sonde::store
