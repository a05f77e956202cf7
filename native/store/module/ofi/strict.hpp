#pragma once
/// A Port that demands what real hardware may: registered memory with its descriptor for every piece, keys chosen by
/// the provider, virtual addresses where the one below has offsets (and offsets where it has addresses), contexts that
/// stay untouched until completion, few and small vectors, nothing injected. It checks each call and fails loudly.
///
/// For tests (setting `ofi.strict=1`); both ends must be in one process, since remote keys are looked up in a table.

#include <memory>
#include <string>
#include <vector>

#include "store/module/ofi/fabric.hpp"

namespace sonde::store::ofi {

std::unique_ptr<Port> make_strict(std::unique_ptr<Port> below);

}  // namespace sonde::store::ofi
