#pragma once
/// Files in folders that another user may be able to write: made, opened and replaced so that no link, pipe or second
/// name in the folder leads a writer to another file. The twin of src/sonde/core/owned_files.py, which says why.
/// Any-thread.

#include <string>
#include <string_view>

#include "core/error.hpp"

namespace sonde {

/// A descriptor of a new file, write-only. A plain file of that name goes first: this name of it, and no other that it
/// has. Errors: core.unsafe_file (a link, a pipe, a device), core.cannot_write (no such folder, no permission),
/// core.disk_full.
Result<int> make_file(const std::string& path, unsigned mode = 0644);

/// A descriptor of a file that is appended to, and made where it is not there. Errors as of make_file; also for a file
/// with more than one name.
Result<int> append_to_file(const std::string& path, unsigned mode = 0644);

/// A descriptor of a file that is read and changed in place; `make`: made where it is not there. Errors as of
/// append_to_file, and leave errno, which is ENOENT for a file that is not there and not to be made.
Result<int> change_file(const std::string& path, unsigned mode = 0600, bool make = true);

/// A descriptor, for reading and writing, of a new file beside `path`, under a name that nobody can foresee: `part`.
/// The caller renames it to `path` when it is whole, or removes it. Errors: core.cannot_write, core.disk_full; they
/// leave errno.
Result<int> make_part(const std::string& path, std::string& part, unsigned mode = 0600);

/// Makes or replaces a file in one step: whoever reads it sees the old or the new one. A link of that name is replaced,
/// not followed. `sync`: it is on the disk before this returns. Errors: core.cannot_write, core.disk_full; they leave
/// errno, and nothing has changed then.
Result<void> write_whole(const std::string& path, std::string_view text, unsigned mode = 0644, bool sync = false);

/// The reason why somebody else than root decides what is at a path, for a process that is root: a folder or a link on
/// the way, links followed, that another user owns or may write in. Empty: nobody does, or this process is not root, or
/// is root of a user namespace alone. What is at the end is not judged, nor need it be there.
std::string who_else_decides(const std::string& path);

/// core.disk_full or core.cannot_write, for an error number of writing `path`.
Error write_error(const std::string& path, int number);

}  // namespace sonde
