#pragma once
/// Host lists as Slurm writes them: "n[001-016,020],login1". The one implementation there is. Any-thread.
///
/// A list consists of items separated by commas. An item is a host name in which any number of [..] contain numbers and
/// ranges; a leading zero fixes the width ("[08-10]" is 08 09 10), and several brackets multiply, the last one running
/// fastest. An item that begins with ^ excludes its hosts, wherever it is. Names consist of letters, digits, '-', '_'
/// and '.'. The order stays, and a host counts once. Blanks around items are allowed.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace sonde {

/// No more hosts than this come out of one text, so that "n[1-1000000000]" is an error and not a full memory.
inline constexpr std::size_t hostlist_limit = 65536;

/// Whether a text is a host list at all; it may consist of exclusions only. Error: core.bad_hosts.
Result<void> hostlist_check(std::string_view text);

/// The hosts of `text`, in order. Where it has exclusions only, they are left out of `within`.
/// Errors: core.bad_hosts with the position; also when more than hostlist_limit hosts, or none, would come out.
Result<std::vector<std::string>> hostlist_expand(std::string_view text, std::span<const std::string> within = {});

/// A short text that hostlist_expand turns into the same hosts in the same order, without duplicates. Neighbours
/// that differ in the last number of their first label are joined. "" for no hosts. Error: core.bad_hosts
/// when a name holds what no host name has.
Result<std::string> hostlist_fold(std::span<const std::string> hosts);

}  // namespace sonde
