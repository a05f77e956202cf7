#include "core/shared_object.hpp"

#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace sonde {

Result<void*> open_shared_object(const std::string& path) {
  std::array<struct sigaction, 32> before;
  for (int s = 1; s < 32; ++s) sigaction(s, nullptr, &before[s]);
  void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (int s = 1; s < 32; ++s) {
    struct sigaction now{};
    if (s != SIGKILL && s != SIGSTOP && sigaction(s, nullptr, &now) == 0 && now.sa_handler != before[s].sa_handler)
      sigaction(s, &before[s], nullptr);
  }
  if (object) return object;
  std::string why = dlerror();
  if (why.starts_with(path + ": ")) why.erase(0, path.size() + 2);
  struct stat found{};
  if (::stat(path.c_str(), &found) != 0)
    return Error{"core.bad_shared_object", std::strerror(errno), "correct its path"};
  return Error{"core.bad_shared_object", why,
               "where it is no shared object, or was built for another machine, build it again; where a library or "
               "symbol is missing, install what has it, or take the module away"};
}

std::vector<std::string> module_folders(const void* symbol, std::string_view name, const char* variable) {
  std::vector<std::string> folders;
  Dl_info info;
  if (dladdr(symbol, &info)) {
    const std::string path = info.dli_fname;
    folders.push_back(path.substr(0, path.rfind('/') + 1) + std::string(name));
  }
  const char* more = std::getenv(variable);
  for (std::string_view left = more ? more : ""; !left.empty();) {
    const std::size_t end = std::min(left.find(':'), left.size());
    if (end > 0) folders.emplace_back(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return folders;
}

ModuleFiles module_files(const std::vector<std::string>& folders, std::string_view prefix, std::string_view variable,
                         const std::string& code) {
  constexpr std::string_view after = ".so";
  const std::string pattern = std::string(prefix) + "*.so";
  ModuleFiles all;
  for (const auto& folder : folders) {
    const auto cannot_look = [&](const std::string& why, const std::string& hint) {
      if (&folder != &folders.front())
        all.unusable.push_back({code, std::string(variable) + " names " + folder + ": " + why, hint});
    };
    DIR* dir = opendir(folder.c_str());
    if (!dir) {
      cannot_look(std::strerror(errno), errno == ENOTDIR ? "name the folder that it is in, not the file"
                                                         : "name a folder that can be read, or unset the variable");
      continue;
    }
    std::vector<std::string> names;
    while (const dirent* entry = readdir(dir))
      if (const std::string_view name = entry->d_name;
          name.size() > prefix.size() + after.size() && name.starts_with(prefix) && name.ends_with(after))
        names.emplace_back(name);
    closedir(dir);
    if (names.empty())
      cannot_look("nothing in it is called " + pattern, "call the module " + std::string(prefix) + "NAME.so");
    std::sort(names.begin(), names.end());
    for (const auto& name : names)
      all.files.push_back(
          {folder + '/' + name, name.substr(prefix.size(), name.size() - prefix.size() - after.size())});
  }
  return all;
}

}  // namespace sonde
