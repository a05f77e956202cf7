#pragma once
/// Who may talk to a server, and that it is the server that was meant.
///
///   none    nobody is asked; a server allows it on loopback only
///   token   both sides prove that they know a shared secret: HMAC-SHA256 over both sides' fresh nonces. The secret
///           itself
///           is never sent
///   munge   the client sends a MUNGE credential made for this connection's nonce; the server takes its own user, root
///           and
///           the users it was told of: service/munge.hpp
/// What follows is not encrypted: on a network that others can write to, use a tunnel. Any-thread.

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

/// HMAC-SHA256 in hexadecimal of "sonde store 1", who proves ("client", "server") and both nonces.
std::string token_proof(const std::string& token, std::string_view who, std::string_view client_nonce,
                        std::string_view server_nonce);
/// In time that does not depend on where they differ.
bool equal(std::string_view a, std::string_view b);

/// A credential for the server's nonce. Error: store.no_munge.
Result<std::string> munge_credential(std::string_view server_nonce);
/// The user who made it. Errors: store.no_munge; store.denied (not valid, expired, replayed, made for another nonce).
Result<unsigned> munge_user(const std::string& credential, std::string_view server_nonce);

}  // namespace sonde::store::auth
