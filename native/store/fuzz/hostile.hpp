#pragma once
/// Hostile clients for a server: streams of frames that are damaged in every way, some with checksums that fit, so that
/// they get past the first gate. Used by the libFuzzer harness, by sonde-storefuzz and by tests. Owner-thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "store/server/server.hpp"

namespace sonde::store::fuzz {

/// A server with memory and null backends, not listening for anyone else.
std::unique_ptr<Server> target();

/// Sends `stream` to the server on a fresh connection, which is welcomed first if `welcomed`, reads whatever comes
/// back, and waits until the server has dealt with it. The number of frames that came back; -1: the server did not end
/// within 10 s; -2: it sent something that is no frame.
int attack(Server& server, Bytes stream, bool welcomed);

/// The stream that an input of the fuzzer stands for: all but its first byte, where that byte is odd with the checksum
/// of each frame mended.
std::vector<std::byte> stream_of(Bytes input);

/// A stream of about `frames` frames made from valid ones: bits flipped, lengths changed, tables of nonsense under
/// right checksums, frames cut, doubled, in the wrong order, messages that never end.
std::vector<std::byte> hostile_stream(std::mt19937_64& random, std::size_t frames);

/// Whether a well-behaved client is still served.
bool alive(Server& server);

}  // namespace sonde::store::fuzz
