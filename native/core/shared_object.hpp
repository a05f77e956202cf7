#pragma once
/// Shared objects that are loaded by name, and the folders where they are searched: the modules of store and bus.
/// Any-thread.

#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace sonde {

/// dlopen(), for the life of the process, without changes of the program's signal handlers: libraries that are loaded
/// with the object set their own handlers, and a server would no longer stop properly at SIGTERM. All symbols are bound
/// at once, and none is visible to other objects. Error: core.bad_shared_object; `what` is only the reason, without the
/// path.
Result<void*> open_shared_object(const std::string& path);

/// The folder `name` next to the library (or program) that contains `symbol`, then the folders in the environment
/// variable, separated by ':'.
std::vector<std::string> module_folders(const void* symbol, std::string_view name, const char* variable);

struct ModuleFiles {
  struct File {
    std::string path, stem;  ///< stem: "ofi" for sonde-store-ofi.so
  };
  std::vector<File> files;  ///< sorted within each folder
  std::vector<Error>
      unusable;  ///< folders of the variable that cannot be read or are empty; the caller sets the error code
};

/// All files named <prefix>*.so in the folders. The first folder is the build's own, which may be missing; `variable`
/// names the others.
ModuleFiles module_files(const std::vector<std::string>& folders, std::string_view prefix, std::string_view variable,
                         const std::string& code);

}  // namespace sonde
