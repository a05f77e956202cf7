#pragma once
/// Shared objects that are loaded when they are named, and the folders where they are looked for: the modules of store
/// and bus. Any-thread.

#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace sonde {

/// dlopen(), for the life of the process, that leaves the program's signal handlers alone: libraries that come along
/// set their own as they are loaded, and a server would no longer stop in order at SIGTERM. All symbols are bound at
/// once, none is given to others.
/// Error: core.bad_shared_object; `what` is the reason alone, without the path.
Result<void*> open_shared_object(const std::string& path);

/// The folder `name` beside the library (or program) that has `symbol`, then those that the environment variable has,
/// ':' between them.
std::vector<std::string> module_folders(const void* symbol, std::string_view name, const char* variable);

struct ModuleFiles {
  struct File {
    std::string path, stem;  ///< of sonde-store-ofi.so "ofi"
  };
  std::vector<File> files;  ///< sorted within each folder
  std::vector<Error>
      unusable;  ///< folders of the variable that cannot be read or have nothing to load; its code is the caller's
};

/// All that is called <prefix>*.so in the folders. The first is the build's own, which need not be there; the others
/// `variable` names.
ModuleFiles module_files(const std::vector<std::string>& folders, std::string_view prefix, std::string_view variable,
                         const std::string& code);

}  // namespace sonde
