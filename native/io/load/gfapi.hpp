#pragma once
/// GlusterFS by its client library, without a mount. The library is loaded when it is asked for: Sonde is neither built
/// nor shipped with it. Owner-thread.

#include <memory>

#include "io/load/access.hpp"

namespace sonde::ioload {

/// Connects this process to the volume that the options name; from then on `files()` are those of the volume. What has
/// to come before `make_gfapi`, once. Error: ioload.no_gfapi, ioload.cannot_connect.
Result<void> gfapi_connect(const Options& options);

std::unique_ptr<Access> make_gfapi(const Layout& layout);

}  // namespace sonde::ioload
