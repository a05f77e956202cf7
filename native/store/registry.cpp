// Names of backends and transports, and the modules that bring more of them.
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>

#include "store/backend/built_in.hpp"
#include "store/backend/memory.hpp"
#include "store/module.hpp"

namespace sonde::store {

namespace {

constexpr unsigned bit(Role role) { return 1u << static_cast<unsigned>(role); }

const BackendEntry built_in[] = {
    {"null", bit(Role::data) | bit(Role::kv) | bit(Role::db), open_null},
    {"memory", bit(Role::data), [](Role, const Settings& settings) { return open_memory_data(settings); }},
    {"memory", bit(Role::kv), [](Role, const Settings& settings) { return open_memory_kv(settings); }},
    {"posix", bit(Role::data), [](Role, const Settings& settings) { return open_posix(settings); }},
#ifdef SONDE_HAVE_LMDB
    {"lmdb", bit(Role::kv), [](Role, const Settings& settings) { return open_lmdb(settings); }},
#endif
#ifdef SONDE_HAVE_SQLITE
    {"memory", bit(Role::db), [](Role, const Settings& settings) { return open_sqlite_memory(settings); }},
    {"sqlite", bit(Role::db), [](Role, const Settings& settings) { return open_sqlite(settings); }},
#endif
};

struct Loaded {
  std::string path;
  const Module* module;
};

std::mutex registry_mutex;
std::vector<Loaded> modules;
bool own_modules_loaded = false;
std::string not_loaded;

Error bad_module(const std::string& path, const std::string& why) {
  return {"store.bad_module", "cannot load the module " + path + ": " + why, "build it as native/store/module.hpp says, with this version's headers"};
}

/// dlopen() that leaves the program's signal handlers alone: libraries that come along (PSM's, with libfabric) set their
/// own as they are loaded, and a server would no longer stop in order at SIGTERM.
void* open_library(const std::string& path) {
  std::array<struct sigaction, 32> before;
  for (int s = 1; s < 32; ++s) sigaction(s, nullptr, &before[s]);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (int s = 1; s < 32; ++s) {
    struct sigaction now {};
    if (s != SIGKILL && s != SIGSTOP && sigaction(s, nullptr, &now) == 0 && now.sa_handler != before[s].sa_handler) sigaction(s, &before[s], nullptr);
  }
  return library;
}

/// Registers under registry_mutex.
Result<const Module*> load(const std::string& path) {
  void* library = open_library(path);
  if (!library) return bad_module(path, dlerror());
  const auto entry = reinterpret_cast<const Module* (*)()>(dlsym(library, "sonde_store_module"));
  if (!entry) return bad_module(path, "it has no symbol sonde_store_module");
  const Module* module = entry();
  if (!module) return bad_module(path, "sonde_store_module() gave nothing");
  if (module->abi != module_abi) return bad_module(path, "it was built for interface " + std::to_string(module->abi) + ", this is " + std::to_string(module_abi));
  for (const auto& other : modules)
    if (other.module == module) return module;
  const auto taken = [&](std::string_view name, unsigned roles) {
    for (const auto& e : built_in)
      if (name == e.name && roles & e.roles) return true;
    for (const auto& other : modules)
      for (const auto& e : other.module->backends)
        if (name == e.name && roles & e.roles) return true;
    return false;
  };
  for (const auto& e : module->backends)
    if (taken(e.name, e.roles)) return bad_module(path, "there is a backend " + std::string(e.name) + " already");
  for (const auto& e : module->transports) {
    bool clash = std::string_view(e.name) == "tcp";
    for (const auto& other : modules)
      for (const auto& t : other.module->transports) clash |= std::string_view(t.name) == e.name;
    if (clash) return bad_module(path, "there is a transport " + std::string(e.name) + " already");
  }
  modules.push_back({path, module});
  return module;
}

/// Those in the folders of modules, once. One that does not load (its library was removed) is as if it were not there, until
/// somebody asks for what it may have had.
void load_own() {
  if (own_modules_loaded) return;
  own_modules_loaded = true;
  for (const auto& folder : module_folders()) {
    DIR* dir = opendir(folder.c_str());
    if (!dir) continue;
    std::vector<std::string> files;
    while (const dirent* entry = readdir(dir))
      if (const std::string_view name = entry->d_name; name.starts_with("sonde-store-") && name.ends_with(".so")) files.push_back(folder + '/' + entry->d_name);
    closedir(dir);
    std::sort(files.begin(), files.end());
    for (const auto& file : files)
      if (auto loaded = load(file); !loaded) not_loaded += "; " + loaded.error().what;
  }
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

std::vector<std::string> module_folders() {
  std::vector<std::string> folders;
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&module_folders), &info)) {
    const std::string path = info.dli_fname;
    folders.push_back(path.substr(0, path.rfind('/') + 1) + "store");
  }
  const char* more = std::getenv("SONDE_STORE_MODULES");
  for (std::string_view left = more ? more : ""; !left.empty();) {
    const std::size_t end = std::min(left.find(':'), left.size());
    if (end > 0) folders.emplace_back(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return folders;
}

Result<const Module*> load_module(const std::string& path) {
  const std::lock_guard lock(registry_mutex);
  load_own();
  return load(path.find('/') == std::string::npos ? "./" + path : path);
}

std::vector<std::string> backend_names(Role role) {
  const std::lock_guard lock(registry_mutex);
  load_own();
  std::vector<std::string> names;
  for (const auto& e : built_in)
    if (e.roles & bit(role)) names.emplace_back(e.name);
  for (const auto& m : modules)
    for (const auto& e : m.module->backends)
      if (e.roles & bit(role)) names.emplace_back(e.name);
  return names;
}

Result<std::unique_ptr<Backend>> open_backend(Role role, std::string_view name, const Settings& settings) {
  for (const auto& e : built_in)
    if (name == e.name && e.roles & bit(role)) return e.open(role, settings);
  {
    const std::lock_guard lock(registry_mutex);
    load_own();
    for (const auto& m : modules)
      for (const auto& e : m.module->backends)
        if (name == e.name && e.roles & bit(role)) return e.open(role, settings);
  }
  return Error{"store.unknown_backend", "there is no backend '" + std::string(name) + "' for the role " + std::string(name_of(role)),
               "there are: " + joined(backend_names(role)) + not_loaded};
}

std::vector<std::string> transport_names() {
  const std::lock_guard lock(registry_mutex);
  load_own();
  std::vector<std::string> names{"tcp"};
  for (const auto& m : modules)
    for (const auto& e : m.module->transports) names.emplace_back(e.name);
  return names;
}

Result<std::shared_ptr<Transport>> open_transport(std::string_view name) {
  {
    const std::lock_guard lock(registry_mutex);
    load_own();
    for (const auto& m : modules)
      for (const auto& e : m.module->transports)
        if (name == e.name) return std::shared_ptr<Transport>(e.make());
  }
  return Error{"store.unknown_transport", "there is no transport '" + std::string(name) + "'", "there are: " + joined(transport_names()) + not_loaded};
}

}  // namespace sonde::store
