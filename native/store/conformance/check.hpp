#pragma once
/// One thing that a backend or transport has to keep, and whether it did.

#include <string>

namespace sonde::store::conformance {

struct Check {
  std::string name;  ///< "kv: an exclusive put that fails undoes its batch"
  bool passed = false;
  std::string message;  ///< what was expected and what was seen; empty where it passed
};

}  // namespace sonde::store::conformance
