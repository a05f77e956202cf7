#pragma once
/// Files in folders that another user may be able to write: created, opened and replaced so that no link, pipe or
/// second name in the folder leads a writer to another file. The twin of src/sonde/core/owned_files.py, which gives the
/// reasons. Any-thread.

#include <string>
#include <string_view>

#include "core/error.hpp"

namespace sonde {

/// A descriptor of a new file, write-only. A plain file of that name is removed first: only this name of it, not others
/// that it has. Errors: core.unsafe_file (a link, a pipe, a device), core.cannot_write (no such folder, no permission),
/// core.disk_full.
Result<int> make_file(const std::string& path, unsigned mode = 0644);

/// A descriptor of a file for appending, which is created if it does not exist. Errors as for make_file; also for a
/// file with more than one name.
Result<int> append_to_file(const std::string& path, unsigned mode = 0644);

/// A descriptor of a file that is read and changed in place; `make`: create it if it does not exist. Errors as for
/// append_to_file; they leave errno, which is ENOENT for a missing file that is not to be created.
Result<int> change_file(const std::string& path, unsigned mode = 0600, bool make = true);

/// A descriptor, for reading and writing, of a new file next to `path`, under an unpredictable name: `part`. The caller
/// renames it to `path` when it is complete, or removes it. Errors: core.cannot_write, core.disk_full; they leave
/// errno.
Result<int> make_part(const std::string& path, std::string& part, unsigned mode = 0600);

/// Creates or replaces a file in one step: readers see the old or the new one. A link of that name is replaced, not
/// followed. `sync`: it is on the disk before this returns. Errors: core.cannot_write, core.disk_full; they leave
/// errno, and nothing has changed then.
Result<void> write_whole(const std::string& path, std::string_view text, unsigned mode = 0644, bool sync = false);

/// The reason why a user other than root controls what is at a path, for a process of root: a folder or a link on the
/// way, links followed, that another user owns or can write in. Empty: nobody does, or this process is not root, or is
/// root only of a user namespace. The end of the path is not judged and need not exist.
std::string who_else_decides(const std::string& path);

/// Creates the folders on the way to a file that are missing, for programs that reach the file by its path again.
/// Errors only: core.folder_of_others, because a user other than root could change where the path leads
/// (who_else_decides). A folder that cannot be created is no error here: opening the file then fails.
Result<void> make_folders_to(const std::string& path);

/// core.disk_full or core.cannot_write, for an error number of writing `path`.
Error write_error(const std::string& path, int number);

}  // namespace sonde
