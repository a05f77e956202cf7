#pragma once
/// A Port with all the demands that real hardware may have: registered memory with its descriptor for every piece, keys
/// chosen by the provider, virtual addresses if the Port below has offsets (and offsets if it has addresses), contexts
/// that stay unchanged until completion, few and small vectors, no injected messages. It checks each call and fails
/// loudly.
///
/// For tests (setting `ofi.strict=1`); both ends must be in one process, because remote keys are looked up in a table.

#include <memory>
#include <string>
#include <vector>

#include "store/module/ofi/fabric.hpp"

namespace sonde::store::ofi {

std::unique_ptr<Port> make_strict(std::unique_ptr<Port> below);

}  // namespace sonde::store::ofi
