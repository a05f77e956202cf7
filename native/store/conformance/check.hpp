#pragma once
/// One requirement on a backend or transport, and whether it was fulfilled.

#include <string>

namespace sonde::store::conformance {

struct Check {
  std::string name;  ///< "kv: an exclusive put that fails undoes its batch"
  bool passed = false;
  std::string message;  ///< the expected and the actual result; empty if it passed
};

}  // namespace sonde::store::conformance
