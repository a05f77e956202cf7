#pragma once
/// The promises of implementation.hpp as test cases for any implementation: those of this tree, in its tests, and your
/// own, with `sonde bus conformance ./mine.so`. Each case runs in a separate process with a time limit, so that crashes
/// and hangs of an implementation do not stop the suite. Owner-thread.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bus/implementation.hpp"

namespace sonde::bus::conformance {

enum class Outcome { passed, failed, unsupported };

struct Case {
  std::string variant;  ///< "udp4"
  std::string name;     ///< "reliable: all samples of all writers reach all readers in order"
  Outcome outcome = Outcome::failed;
  std::string reason;  ///< expected and observed results, or the missing feature; empty if it passed
  double elapsed_s = 0;
};

/// A configuration with which all cases run.
struct Variant {
  std::string name;
  Profile profile;
  bool whole = true;  ///< false: only the cases that depend on the kind of discovery
};

/// Every supported transport, then each kind of discovery, and sending to groups, on the first transport. Uses `domain`
/// and the next one.
std::vector<Variant> variants_of(const Caps& caps, std::uint32_t domain);

struct Settings {
  std::string implementation;
  std::vector<Variant> variants;     ///< empty: those of variants_of() with a new domain each time
  std::string program;               ///< sonde-busconform, or a program whose main() begins with inner(); required
  std::vector<std::string> modules;  ///< modules to load in addition to those found
  std::string only;                  ///< pattern for names of cases, with '*' and '?'; empty: all but the long ones
  std::function<void(const Case&)> told;  ///< called with each case at its end
  double patience_s = 30;  ///< how long anything may take that should come soon: machines are slow and shared. A case
                           ///< ends after 4 to 30 times that
};

/// All cases of all variants, in order. Errors: those of find_implementation(); bus.conformance (the program cannot be
/// started).
Result<std::vector<Case>> check(const Settings& settings);

struct Name {
  std::string name;
  bool slow = false;  ///< runs only if it is named
};
std::vector<Name> case_names();

/// Call it first in the program's main(): it runs a case, or a peer of a case, and returns the exit code; -1: a user
/// started the program.
int inner(int argc, char** argv);

}  // namespace sonde::bus::conformance
