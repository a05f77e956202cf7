#pragma once
/// Who may talk to a server, and that it is the server that was meant.
///
///   user    both sides prove that they know the key of one user, which servers and clients of that user find by
///           themselves in a file that only the user may read: user_key(). What a server asks for unless told otherwise
///   token   the same with a shared secret in a file that both are given
///   munge   the client sends a MUNGE credential; the server takes its own user, root and the users that it was given:
///           service/munge.hpp. The server proves nothing
///   none    nobody is asked; a server allows it on loopback only, where every user of the machine gets in
///
/// A secret is never sent: a proof is an HMAC-SHA256 over statement(), and MUNGE signs the same text. It names the
/// address that the client reached, so that a server in the middle cannot pass a proof on to the real one. What follows
/// is neither encrypted nor protected against change: on a network that others can write to, use a tunnel. Any-thread.

#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "store/wire.hpp"

namespace sonde::store::auth {

/// What `auth` may be in this build.
std::vector<std::string> methods();

/// The shared secret in `path`, trailing newlines left out. Errors: store.bad_token (not there, shorter than 16 bytes,
/// readable or writable by others than its owner).
/// server: whose the file is, for what to do about it.
Result<std::string> read_token(const std::string& path, bool server);

/// 32 fresh random bytes, in hexadecimal.
std::string nonce();
bool is_nonce(std::string_view text);

/// The version of the handshake that this build speaks. Both sides send it, so that two that do not fit say so.
inline constexpr std::string_view protocol = "3";

/// One end of a connection, in the words in which both ends name it.
struct Endpoint {
  std::string address;  ///< "10.0.0.17:5440", "[fd00::17]:5440"; empty where it is no internet address
  /// What tells this machine from others that use the same address: the kernel's boot and the network namespace. Only
  /// of connections within one machine, as over loopback; else empty.
  std::string machine;
  /// The client's end, in the same words. Who takes a client's connection and passes its proof on over one of his own
  /// has another: also where he listens at the server's address before the server does.
  std::string client;
};
/// The server's end of a connected socket, as its client sees it (the peer) and as the server sees it (its own).
Endpoint server_end(int fd, bool client);

/// What a proof is made over.
struct Handshake {
  std::string_view method, client_nonce, server_nonce;
  Endpoint server;
};
/// "sonde store 3", who proves ("client", "server"), the method, both nonces, the server's address and machine, the
/// client's address, with a newline between each two.
std::string statement(const Handshake& handshake, std::string_view who);
/// HMAC-SHA256 of a statement, in hexadecimal.
std::string token_proof(const std::string& token, const Handshake& handshake, std::string_view who);
/// In time that does not depend on where they differ.
bool equal(std::string_view a, std::string_view b);

/// Where the key of this process' user is: sonde/store-key below $XDG_STATE_HOME, or ~/.local/state.
/// Error: store.no_key (neither is known).
Result<std::string> user_key_path();
/// That key. make: where there is none yet, a new one of 32 random bytes is written. Errors: store.no_key (there is
/// none, or it cannot be written); store.bad_token (the file or its folder belongs to somebody else, or others may read
/// or write it).
Result<std::string> user_key(bool make);

/// A credential for the payload. Error: store.no_munge.
Result<std::string> munge_credential(std::string_view payload);
/// The user who made it. Errors: store.no_munge; store.denied (not valid, expired, replayed, made for another payload).
Result<unsigned> munge_user(const std::string& credential, std::string_view payload);

}  // namespace sonde::store::auth
