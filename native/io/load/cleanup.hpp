#pragma once
/// The file that this rank helps to make, which a signal shall remove: Ctrl-C at mpirun reaches ranks as SIGINT or
/// SIGTERM, and some seconds later as SIGKILL. Owner-thread.

#include <string>

namespace sonde::ioload {

/// From now on SIGINT and SIGTERM remove the guarded file before they end this process. After MPI_Init, which may set
/// handlers. speaks: this rank tells what it removed.
void remove_when_interrupted(bool speaks);

/// `path` is removed by a signal from now on; an empty one, or one of 4 KiB and more: nothing is.
void guard(const std::string& path);

/// The same where each of `ranks` has a file, whose names have the rank for their last eight digits. Some launchers
/// kill ranks that are late before they come to their own: so each removes the next one's, too, and rank 0 all of them.
void guard_of_rank(const std::string& path, int rank, int ranks);

/// Removes `path` where `is_mine`, and guards nothing any more. Returns 0, or the errno of a file that was there and
/// could not be removed.
int remove_now(const std::string& path, bool is_mine);

}  // namespace sonde::ioload
