#pragma once
/// Damages samples and declarations in many ways, and checks whether all readers agree about them. Used by the
/// libFuzzer harness, by sonde-busfuzz and by tests. Owner-thread.

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bus/types.hpp"

namespace sonde::bus::fuzz {

/// A valid sample, which is then damaged.
struct Seed {
  std::string idl;
  std::string type;
  std::vector<std::byte> payload;
};
/// The samples of tests/data/bus/golden.txt: both byte orders of each case. Empty: the file cannot be read.
std::vector<Seed> seeds(const std::string& golden);

/// The error of this library with a payload for a type that check() accepts: verify() and Checker differ, a verified
/// payload does not decode, or its encoding differs. Empty: no error, whether the payload is a sample or not.
std::string judge_sample(const TypePtr& type, Bytes payload);
/// The same for IDL: its declarations do not pass check(), or differ from those of its own to_idl(). An error without a
/// text is wrong too.
std::string judge_idl(std::string_view idl);

/// Judges an input of libFuzzer: IDL, a NUL, and a payload of the last declared structure.
std::string judge(Bytes input);
std::vector<std::byte> input_of(const Seed& seed);

void spoil(std::mt19937_64& random, std::vector<std::byte>& payload);
void spoil(std::mt19937_64& random, std::string& idl);

struct Tally {
  std::uint64_t samples = 0, verified = 0;  ///< verified: still valid samples
  std::uint64_t declarations = 0, declared = 0;
  std::string wrong;  ///< the message of judge() for `input`; empty: no error
  std::vector<std::byte> input;
};
/// `mutations` of the seeds, one in sixteen of their IDL; ends at the first that is judged wrong.
Tally attack(const std::vector<Seed>& seeds, std::uint64_t mutations, std::uint64_t random_seed);

}  // namespace sonde::bus::fuzz
