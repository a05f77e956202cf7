#pragma once
/// The three transports: how two halves agree on a provider and make a Link. Any-thread.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "store/module/ofi/fabric.hpp"
#include "store/transport.hpp"

namespace sonde::store::ofi {

/// ofi-msg: connected endpoints. ofi-rdm: datagram endpoints made reliable by the provider. ofi-rma: either, and remote
/// reads.
enum class Flavour { msg, rdm, rma };

std::unique_ptr<Transport> make_transport(Flavour flavour);

struct Candidate {
  std::string provider;
  Style style;
};
/// Of those that list_providers gives, by what a flavour needs; each provider once.
std::vector<Candidate> candidates_of(Flavour flavour);

/// The result of trying a candidate in a process of its own, made once for this process.
Found probed(Flavour flavour, const Candidate& candidate, Deadline deadline);
/// What that process does: both ends, frames of two sizes; prints "ok SECONDS MODES" or "no REASON". Exit code.
int probe_here(Flavour flavour, const Candidate& candidate);

const char* name_of(Flavour flavour);
Flavour flavour_of(std::string_view name);

}  // namespace sonde::store::ofi
