#pragma once
/// Removes the file that this rank helps to write when a signal arrives: Ctrl-C at mpirun reaches ranks as SIGINT or
/// SIGTERM, and some seconds later as SIGKILL. Owner-thread.

#include <string>

namespace sonde::ioload {

/// From now on SIGINT and SIGTERM remove the guarded file before they end this process. Call it after MPI_Init, which
/// may set handlers. speaks: this rank reports what it removed.
void remove_when_interrupted(bool speaks);

/// From now on a signal removes `path`. If it is empty, or has 4 KiB or more, nothing is removed.
void guard(const std::string& path);

/// The same if each of `ranks` has a file, whose name ends in the rank with eight digits. Some launchers kill slow
/// ranks before they can remove their own file, so each rank also removes the next rank's, and rank 0 removes all.
void guard_of_rank(const std::string& path, int rank, int ranks);

/// Removes `path` if `is_mine`, and stops guarding. Returns 0, or the errno if an existing file could not be removed.
int remove_now(const std::string& path, bool is_mine);

}  // namespace sonde::ioload
