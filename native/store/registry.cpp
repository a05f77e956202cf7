// Names of backends and transports, and the modules that bring more of them.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/shared_object.hpp"
#include "core/text.hpp"
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
/// A file in the folders that was not loaded; `stem`: "ofi" for sonde-store-ofi.so, empty for a folder.
struct NotLoaded {
  std::string stem;
  Error error;
};
std::vector<NotLoaded> not_loaded;

constexpr const char* variable = "SONDE_STORE_MODULES";
constexpr const char* build_again =
    "build it again with this version's headers: 'sonde store conformance --flags' shows their place";

Error bad_module(const std::string& path, const std::string& why, const std::string& hint = build_again) {
  return {"store.bad_module", "cannot load the module " + path + ": " + why, hint};
}

/// Registers under registry_mutex.
Result<const Module*> load(const std::string& path) {
  const auto library = open_shared_object(path);
  if (!library) return bad_module(path, library.error().what, library.error().hint);
  const auto entry = reinterpret_cast<const Module* (*)()>(dlsym(*library, "sonde_store_module"));
  if (!entry)
    return bad_module(path, "it has no symbol sonde_store_module",
                      "export it as described in native/store/module.hpp; remove the file if it is not a store module");
  const Module* module = nullptr;
  try {
    module = entry();
  } catch (...) {
    return bad_module(path, threw("sonde_store_module()").what, "report it to its author");
  }
  if (!module)
    return bad_module(path, "sonde_store_module() returned nothing",
                      "it must return a Module, as described in native/store/module.hpp");
  if (module->abi != module_abi)
    return bad_module(
        path, "it was built for interface " + std::to_string(module->abi) + ", this is " + std::to_string(module_abi));
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
    if (taken(e.name, e.roles))
      return bad_module(path, "there is a backend " + std::string(e.name) + " already",
                        "give it another name, or load one of the two");
  for (const auto& e : module->transports) {
    bool clash = std::string_view(e.name) == "tcp";
    for (const auto& other : modules)
      for (const auto& t : other.module->transports) clash |= std::string_view(t.name) == e.name;
    if (clash)
      return bad_module(path, "there is a transport " + std::string(e.name) + " already",
                        "give it another name, or load one of the two");
  }
  modules.push_back({path, module});
  return module;
}

/// Loads the modules in the folders, once. Failures are stored for broken_modules(), or for the lookup of a name that
/// it may have had.
void load_own() {
  if (own_modules_loaded) return;
  own_modules_loaded = true;
  auto found = module_files(module_folders(), "sonde-store-", variable, "store.bad_module");
  for (auto& error : found.unusable) not_loaded.push_back({"", std::move(error)});
  for (auto& file : found.files)
    if (auto loaded = load(file.path); !loaded) not_loaded.push_back({file.stem, loaded.error()});
}

/// Why there is no such backend or transport: the module that should have it, or what there is and what did not load.
Error unknown(const char* code, const std::string& what, std::string_view name, const std::vector<std::string>& names) {
  for (const auto& bad : not_loaded)
    if (!bad.stem.empty() && (name == bad.stem || name.starts_with(bad.stem + '-')))
      return {bad.error.code, what + ": " + bad.error.what, bad.error.hint};
  std::string hint = "there are: " + joined(names);
  for (const auto& bad : not_loaded) hint += "; " + bad.error.what;
  return {code, what, hint};
}

/// Opens it, whatever its code throws.
Result<std::unique_ptr<Backend>> open(const BackendEntry& entry, const std::string& path, Role role,
                                      const Settings& settings) {
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
  return sonde::module_folders(reinterpret_cast<const void*>(&store::module_folders), "store", variable);
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
  return unknown("store.unknown_backend",
                 "there is no backend '" + std::string(name) + "' for the role " + std::string(name_of(role)), name,
                 names);
}

std::vector<std::string> transport_names() {
  const std::lock_guard lock(registry_mutex);
  load_own();
  std::vector<std::string> names{"tcp"};
  for (const auto& m : modules)
    for (const auto& e : m.module->transports) names.emplace_back(e.name);
  return names;
}

std::atomic<std::uint64_t>& foreign_messages() {
  static std::atomic<std::uint64_t> number = 0;
  return number;
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
