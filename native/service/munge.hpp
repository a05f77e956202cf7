#pragma once
/// The identity of a process on another host, by MUNGE: its daemon there signs a payload together with the user that
/// the kernel reports for the process. Both hosts have one MUNGE key, and clocks that agree within minutes.
/// SONDE_MUNGE_SOCKET names the daemon's socket if it is not the usual one. Any-thread; the wait for a daemon that
/// hangs takes some seconds.

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
