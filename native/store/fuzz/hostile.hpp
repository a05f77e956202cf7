#pragma once
/// Hostile clients for a server: streams of frames that are damaged in every way. Some have correct checksums, so that
/// they pass the first check. Used by the libFuzzer harness, by sonde-storefuzz and by tests. Owner-thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "store/server/server.hpp"

namespace sonde::store::fuzz {

/// A server with memory and null backends that does not listen for other clients.
std::unique_ptr<Server> target();

/// Sends `stream` to the server on a new connection, which is welcomed first if `welcomed`. Reads the answers, and
/// waits until the server has handled the stream. Returns the number of frames that came back; -1: the server did not
/// end within 10 s; -2: it sent something that is not a frame.
int attack(Server& server, Bytes stream, bool welcomed);

/// The stream for an input of the fuzzer: all bytes except the first. If the first byte is odd, the checksum of each
/// frame is corrected.
std::vector<std::byte> stream_of(Bytes input);

/// A stream of about `frames` frames made from valid ones: bits flipped, lengths changed, random tables with correct
/// checksums, frames truncated, doubled, in the wrong order, messages that never end.
std::vector<std::byte> hostile_stream(std::mt19937_64& random, std::size_t frames);

/// Whether a well-behaved client still gets answers.
bool alive(Server& server);

}  // namespace sonde::store::fuzz
