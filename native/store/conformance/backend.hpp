#pragma once
/// Checks that a backend fulfils the promises of types.hpp and backend.hpp: for the backends of this tree, in its
/// tests, and for yours, by `sonde store conformance ./mine.so`. The backend must be empty at the start. Owner-thread.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/backend.hpp"
#include "store/conformance/check.hpp"

namespace sonde::store::conformance {

/// Opens the backend on its present state, with these settings in addition to its own. It is called again after the
/// previous backend was settled and destroyed, and must then find that backend's data if its caps() include durable.
using Open = std::function<Result<std::unique_ptr<Backend>>(const Settings& besides)>;

/// Runs every check of a role. A check that cannot continue counts as failed, never as skipped. Features that a
/// backend's caps() exclude are not checked. `begin`, if given, is called with a check's name before it runs.
std::vector<Check> check_backend(Role role, const Open& open, const std::function<void(std::string_view)>& begin = {});

}  // namespace sonde::store::conformance
