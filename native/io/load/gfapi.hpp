#pragma once
/// GlusterFS through its client library, without a mount. The library is loaded on demand: Sonde is neither built nor
/// shipped with it. Owner-thread.

#include <memory>

#include "io/load/access.hpp"

namespace sonde::ioload {

/// Connects this process to the volume in the options; from then on `files()` are those of the volume. Call it once,
/// before `make_gfapi`. Error: ioload.no_gfapi, ioload.cannot_connect.
Result<void> gfapi_connect(const Options& options);

std::unique_ptr<Access> make_gfapi(const Layout& layout);

}  // namespace sonde::ioload
