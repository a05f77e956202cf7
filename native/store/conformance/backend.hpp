#pragma once
/// What types.hpp and backend.hpp promise, as checks that any backend can be held against: those of this tree, in its
/// tests, and yours, by `sonde store conformance ./mine.so`. The backend must be empty when they begin. Owner-thread.

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/backend.hpp"
#include "store/conformance/check.hpp"

namespace sonde::store::conformance {

/// Opens the backend over what is there, with these settings besides its own. It is called again after the one before
/// was settled and destroyed, and must then find what that left if its caps() say durable.
using Open = std::function<Result<std::unique_ptr<Backend>>(const Settings& besides)>;

/// Runs every check of a role. A check that cannot go on is failed, never skipped; what a backend's caps() leave out is
/// not asked of it. `begin`, where given, is called with a check's name before it runs.
std::vector<Check> check_backend(Role role, const Open& open, const std::function<void(std::string_view)>& begin = {});

}  // namespace sonde::store::conformance
