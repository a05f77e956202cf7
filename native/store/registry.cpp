// Names of backends and transports, and the modules that bring more of them.
#include <dirent.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "store/backend/built_in.hpp"
#include "store/backend/memory.hpp"
#include "store/guard.hpp"
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
/// What the folders have that was not loaded; `stem`: of sonde-store-ofi.so "ofi", empty for a folder.
struct NotLoaded {
  std::string stem;
  Error error;
};
std::vector<NotLoaded> not_loaded;

constexpr const char* build_again = "build it again with this version's headers: 'sonde store conformance --flags' names them";

Error bad_module(const std::string& path, const std::string& why, const std::string& hint = build_again) {
  return {"store.bad_module", "cannot load the module " + path + ": " + why, hint};
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
  if (!library) {
    std::string why = dlerror();
    if (why.starts_with(path + ": ")) why.erase(0, path.size() + 2);
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0) return bad_module(path, std::strerror(errno), "correct its path");
    return bad_module(path, why, "where it is no shared object, or was built for another machine, build it again; where a library or symbol is missing, install what has it, or take the module away");
  }
  const auto entry = reinterpret_cast<const Module* (*)()>(dlsym(library, "sonde_store_module"));
  if (!entry) return bad_module(path, "it has no symbol sonde_store_module", "export it as native/store/module.hpp says; where it is no module of a store, take it away");
  const Module* module = nullptr;
  try {
    module = entry();
  } catch (...) {
    return bad_module(path, threw("sonde_store_module()").what, "tell who wrote it");
  }
  if (!module) return bad_module(path, "sonde_store_module() gave nothing", "have it return a Module, as native/store/module.hpp says");
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
    if (taken(e.name, e.roles)) return bad_module(path, "there is a backend " + std::string(e.name) + " already", "give it another name, or load one of the two");
  for (const auto& e : module->transports) {
    bool clash = std::string_view(e.name) == "tcp";
    for (const auto& other : modules)
      for (const auto& t : other.module->transports) clash |= std::string_view(t.name) == e.name;
    if (clash) return bad_module(path, "there is a transport " + std::string(e.name) + " already", "give it another name, or load one of the two");
  }
  modules.push_back({path, module});
  return module;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Those in the folders of modules, once. What does not load is kept for whoever asks: broken_modules(), or a name that it may
/// have had.
void load_own() {
  if (own_modules_loaded) return;
  own_modules_loaded = true;
  constexpr std::string_view before = "sonde-store-", after = ".so";
  const auto folders = module_folders();
  for (const auto& folder : folders) {
    const bool named = &folder != &folders.front();  // the first is this build's own, which need not be there
    const auto cannot_look = [&](const std::string& why, const std::string& hint) {
      if (named) not_loaded.push_back({"", {"store.bad_module", "SONDE_STORE_MODULES names " + folder + ": " + why, hint}});
    };
    DIR* dir = opendir(folder.c_str());
    if (!dir) {
      cannot_look(std::strerror(errno), errno == ENOTDIR ? "name the folder that it is in; a server takes one file by --module" : "name a folder that can be read, or unset the variable");
      continue;
    }
    std::vector<std::string> names;
    while (const dirent* entry = readdir(dir))
      if (const std::string_view name = entry->d_name; name.size() > before.size() + after.size() && name.starts_with(before) && name.ends_with(after)) names.emplace_back(name);
    closedir(dir);
    if (names.empty()) cannot_look("nothing in it is called sonde-store-*.so", "call the module sonde-store-NAME.so");
    std::sort(names.begin(), names.end());
    for (const auto& name : names)
      if (auto loaded = load(folder + '/' + name); !loaded)
        not_loaded.push_back({name.substr(before.size(), name.size() - before.size() - after.size()), loaded.error()});
  }
}

/// Why there is no such backend or transport: the module that should have it, or what there is and what did not load.
Error unknown(const char* code, const std::string& what, std::string_view name, const std::vector<std::string>& names) {
  for (const auto& bad : not_loaded)
    if (!bad.stem.empty() && (name == bad.stem || name.starts_with(bad.stem + '-'))) return {bad.error.code, what + ": " + bad.error.what, bad.error.hint};
  std::string hint = "there are: " + joined(names);
  for (const auto& bad : not_loaded) hint += "; " + bad.error.what;
  return {code, what, hint};
}

/// Opens it, whatever its code throws.
Result<std::unique_ptr<Backend>> open(const BackendEntry& entry, const std::string& path, Role role, const Settings& settings) {
  const std::string who = "the backend " + std::string(entry.name) + (path.empty() ? "" : " of the module " + path);
  try {
    auto opened = entry.open(role, settings);
    if (!opened) return opened.error();
    return guarded(std::move(*opened), who);
  } catch (...) {
    return threw(who);
  }
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
    if (name == e.name && e.roles & bit(role)) return open(e, "", role, settings);
  const std::vector<std::string> names = backend_names(role);
  const std::lock_guard lock(registry_mutex);
  for (const auto& m : modules)
    for (const auto& e : m.module->backends)
      if (name == e.name && e.roles & bit(role)) return open(e, m.path, role, settings);
  return unknown("store.unknown_backend", "there is no backend '" + std::string(name) + "' for the role " + std::string(name_of(role)), name, names);
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
  const std::vector<std::string> names = transport_names();
  const std::lock_guard lock(registry_mutex);
  for (const auto& m : modules)
    for (const auto& e : m.module->transports)
      if (name == e.name) {
        try {
          return std::shared_ptr<Transport>(e.make());
        } catch (...) {
          return threw("the transport " + std::string(name) + " of the module " + m.path);
        }
      }
  return unknown("store.unknown_transport", "there is no transport '" + std::string(name) + "'", name, names);
}

std::vector<Error> broken_modules() {
  const std::lock_guard lock(registry_mutex);
  load_own();
  std::vector<Error> errors;
  for (const auto& bad : not_loaded) errors.push_back(bad.error);
  return errors;
}

}  // namespace sonde::store
