#pragma once
/// Who a process on another host is, by MUNGE: its daemon there signs what it is handed, with the user that the kernel
/// says the process has. Both hosts have one MUNGE key, and clocks within minutes. SONDE_MUNGE_SOCKET names the
/// daemon's socket where it is not the usual one. Any-thread; a daemon that hangs is waited for some seconds.

#include <string>
#include <string_view>

#include "core/error.hpp"

namespace sonde::munge {

/// Whether this build has it.
bool built();

/// A credential of this process for `payload`. Error: munge.silent (not built, no daemon).
Result<std::string> credential(std::string_view payload);

/// The user (uid) who made it, once: a second time it is refused. Errors: munge.silent; munge.refused (not valid,
/// expired, decoded before, made for another payload).
Result<unsigned> user(const std::string& credential, std::string_view payload);

}  // namespace sonde::munge
