#pragma once
/// sonde-net's command line. It is an interface between Sonde's Python and its probe, not for people: one form
/// per option, no defaults guessed from the machine. Any-thread.

#include <string>
#include <vector>

#include "core/error.hpp"
#include "net/probe.hpp"

namespace sonde::net {

/// Parses what follows the program's name. Errors: net.bad_option.
Result<Options> parse_options(const std::vector<std::string>& args);

}  // namespace sonde::net
