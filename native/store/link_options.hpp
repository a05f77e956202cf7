#pragma once
/// LinkOptions as words: "nodelay=no", "spin=20us", as command lines and the HDF5 connector's settings write them.
/// Any-thread.

#include <string>
#include <string_view>

#include "store/transport.hpp"

namespace sonde::store {

/// provider, nodelay, cork, gather, await (yes or no), rma (bytes), spin (a duration). False: no such option, or no
/// such value of it; `options` is then as it was.
bool set_link_option(LinkOptions& options, std::string_view name, std::string_view value);

/// Those that differ from the default, as set_link_option reads them back, each followed by `end`.
std::string link_option_words(const LinkOptions& options, char end);

/// "provider=P,nodelay=no,…": what there is, for a hint.
inline constexpr std::string_view link_option_names =
    "provider=P nodelay=yes|no cork=yes|no gather=yes|no await=yes|no rma=BYTES spin=DURATION";

}  // namespace sonde::store
