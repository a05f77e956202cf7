// Checks of the role db.
#include "store/conformance/suite.hpp"

namespace sonde::store::conformance {

void check_db(Suite&) {}

}  // namespace sonde::store::conformance
