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
  std::string reason;  ///< what was expected and what was seen, or what it cannot do; empty where it passed
  double elapsed_s = 0;
};

/// A way on which all is tried.
struct Variant {
  std::string name;
  Profile profile;
  bool whole = true;  ///< false: only the cases that another way to find each other can change
};

/// Each transport that it can, then each kind of discovery and sending to groups on its first. In `domain` and the one
/// after it.
std::vector<Variant> variants_of(const Caps& caps, std::uint32_t domain);

struct Settings {
  std::string implementation;
  std::vector<Variant> variants;          ///< empty: variants_of() a domain that is chosen each time
  std::string program;                    ///< sonde-busconform, or another whose main() begins with inner(); needed
  std::vector<std::string> modules;       ///< modules to load in addition to those found
  std::string only;                       ///< names of cases, '*' and '?' allowed; empty: all but the long ones
  std::function<void(const Case&)> told;  ///< each case, when it is over
  double patience_s = 30;  ///< how long anything may take that should come soon: machines are slow and shared. A case
                           ///< ends after 4 to 30 times that
};

/// All cases of all variants, in order. Errors: those of find_implementation(); bus.conformance (the program cannot be
/// started).
Result<std::vector<Case>> check(const Settings& settings);

struct Name {
  std::string name;
  bool slow = false;  ///< only when it is named
};
std::vector<Name> case_names();

/// The first thing in the program's main(): a case, or a peer of a case, is run and its exit code given; -1: it was
/// started by a user.
int inner(int argc, char** argv);

}  // namespace sonde::bus::conformance
