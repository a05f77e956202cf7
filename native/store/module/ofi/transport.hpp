#pragma once
/// The three transports: the two halves agree on a provider and make a Link. Any-thread.

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
/// The providers from list_providers() that this flavour can use; each provider once.
std::vector<Candidate> candidates_of(Flavour flavour);

/// The result of the trial of a candidate in a separate process, made once for this process.
Found probed(Flavour flavour, const Candidate& candidate, Deadline deadline);
/// The work of that process: both ends, frames of two sizes; prints "ok SECONDS MODES" or "no REASON". Returns the exit
/// code.
int probe_here(Flavour flavour, const Candidate& candidate);

const char* name_of(Flavour flavour);
Flavour flavour_of(std::string_view name);

}  // namespace sonde::store::ofi
