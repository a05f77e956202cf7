#pragma once
/// Mutual authentication of client and server.
///
///   user    both sides prove that they know the key of one user. Servers and clients of that user find it by
///   themselves
///           in a file that only the user can read: user_key(). This is the default of a server
///   token   the same with a shared secret in a file that both sides are given
///   munge   the client sends a MUNGE credential; the server accepts its own user, root and the users that it was
///   given:
///           service/munge.hpp. The server proves nothing
///   none    no authentication; a server allows it on loopback only, where every user of the machine can connect
///
/// A secret is never sent: a proof is an HMAC-SHA256 over statement(), and MUNGE signs the same text. The text names
/// the address that the client reached, so that a server in the middle cannot pass a proof on to the real one. The data
/// that follow are neither encrypted nor protected against change: on a network that others can write to, use a tunnel.
/// Any-thread.

#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "store/wire.hpp"

namespace sonde::store::auth {

/// The values of `auth` in this build.
std::vector<std::string> methods();

/// The shared secret in `path`, without trailing newlines. Errors: store.bad_token (the file does not exist, is shorter
/// than 16 bytes, or users other than its owner can read or write it).
/// server: whether this is the server, for the hint.
Result<std::string> read_token(const std::string& path, bool server);

/// 32 fresh random bytes, in hexadecimal.
std::string nonce();
bool is_nonce(std::string_view text);

/// The version of the handshake in this build. Both sides send it, so that a mismatch is reported.
inline constexpr std::string_view protocol = "3";

/// One end of a connection, in a form that is the same on both ends.
struct Endpoint {
  std::string address;  ///< "10.0.0.17:5440", "[fd00::17]:5440"; empty when it is not an internet address
  /// Distinguishes this machine from others with the same address: the kernel's boot id and the network namespace. Only
  /// for connections within one machine, as over loopback; else empty.
  std::string machine;
  /// The client's end, in the same form. An attacker that accepts a client's connection, and forwards its proof over a
  /// connection of its own, has another one; also when it listens at the server's address before the server does.
  std::string client;
};
/// The server's end of a connected socket, as its client sees it (the peer) and as the server sees it (its own).
Endpoint server_end(int fd, bool client);

/// The data that a proof covers.
struct Handshake {
  std::string_view method, client_nonce, server_nonce;
  Endpoint server;
};
/// The text of a proof: "sonde store 3", the prover ("client", "server"), the method, both nonces, the server's address
/// and machine, the client's address, separated by newlines.
std::string statement(const Handshake& handshake, std::string_view who);
/// HMAC-SHA256 of a statement, in hexadecimal.
std::string token_proof(const std::string& token, const Handshake& handshake, std::string_view who);
/// Whether both are equal, in a time that does not depend on where they differ.
bool equal(std::string_view a, std::string_view b);

/// The path of the key of this process' user: sonde/store-key below $XDG_STATE_HOME, or ~/.local/state.
/// Error: store.no_key (neither is known).
Result<std::string> user_key_path();
/// The key of this process' user. make: whether to write a new one of 32 random bytes when there is no key yet. Errors:
/// store.no_key (there is no key, or it cannot be written); store.bad_token (the file or its folder belongs to another
/// user, or other users can read or write it).
Result<std::string> user_key(bool make);

/// A credential for the payload. Error: store.no_munge.
Result<std::string> munge_credential(std::string_view payload);
/// The user of a credential. Errors: store.no_munge; store.denied (not valid, expired, replayed, for another payload).
Result<unsigned> munge_user(const std::string& credential, std::string_view payload);

}  // namespace sonde::store::auth
