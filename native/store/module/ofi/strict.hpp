#pragma once
/// A Port that demands what real hardware may: registered memory with its descriptor for every piece, keys chosen by
/// the provider, virtual addresses where the one below has offsets (and offsets where it has addresses), contexts that
/// stay untouched until completion, few and small vectors, nothing injected. It checks each call and fails loudly.
///
/// For tests (settings `ofi.strict=1`, and `ofi.lie=N` to spoil a field of the tenth message); both ends must be in one
/// process, since remote keys are looked up in a table.

#include <memory>
#include <string>
#include <vector>

#include "store/module/ofi/fabric.hpp"

namespace sonde::store::ofi {

std::unique_ptr<Port> make_strict(std::unique_ptr<Port> below, const PortOptions& options);

}  // namespace sonde::store::ofi
