// Names of implementations, the modules that contain them, and the features of each.
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "bus/null.hpp"
#include "core/nearest.hpp"
#include "core/shared_object.hpp"
#include "core/text.hpp"
#include "core/thrown.hpp"

namespace sonde::bus {

namespace {

/// The implementations of this tree, with the packages to install if one was not built.
struct Known {
  const char *name, *package;
};
constexpr Known known[] = {{"cyclonedds", "cyclonedds-dev"}, {"fastdds", "libfastrtps-dev libfastcdr-dev"}};

struct ModuleFile {
  std::string path, stem;
  bool tried = false;
};

std::mutex registry_mutex;
bool looked = false;
std::vector<ModuleFile> files;
struct Loaded {
  std::string path;
  const Module* module;
};
std::vector<Loaded> modules;
struct Broken {
  std::string stem;  ///< empty: a folder
  Error error;
};
std::vector<Broken> broken;

constexpr const char* variable = "SONDE_BUS_MODULES";

Error bad_module(const std::string& path, const std::string& why, const std::string& hint) {
  return {"bus.bad_module", "cannot load the module " + path + ": " + why, hint};
}

/// The loaded modules. Protected by registry_mutex, like all data below.
const ImplementationEntry* entry_of(std::string_view name) {
  if (name == null_implementation().name) return &null_implementation();
  for (const auto& loaded : modules)
    for (const auto& entry : loaded.module->implementations)
      if (name == entry.name) return &entry;
  return nullptr;
}

Result<void> load(const std::string& path) {
  const auto object = open_shared_object(path);
  if (!object) return bad_module(path, object.error().what, object.error().hint);
  const auto entry = reinterpret_cast<const Module* (*)()>(dlsym(*object, "sonde_bus_module"));
  const std::string as_said = "as native/bus/implementation.hpp says";
  if (!entry)
    return bad_module(path, "it has no symbol sonde_bus_module",
                      "export it, " + as_said + "; where it is no module of a bus, take it away");
  const Module* module = nullptr;
  try {
    module = entry();
  } catch (...) {
    return bad_module(path, "sonde_bus_module() threw an exception: " + text_of_exception(), "tell who wrote it");
  }
  if (!module) return bad_module(path, "sonde_bus_module() gave nothing", "have it return a Module, " + as_said);
  if (module->abi != module_abi)
    return bad_module(
        path, "it was built for interface " + std::to_string(module->abi) + ", this is " + std::to_string(module_abi),
        "build it again with this version's headers");
  for (const auto& loaded : modules)
    if (loaded.module == module) return {};
  for (const auto& e : module->implementations) {
    if (!e.name || !*e.name || !e.version || !e.caps || !e.open)
      return bad_module(path, "an implementation of it lacks its name, version, caps or open",
                        "fill them in, " + as_said);
    if (entry_of(e.name))
      return bad_module(path, "there is an implementation " + std::string(e.name) + " already",
                        "give it another name, or load one of the two");
  }
  modules.push_back({path, module});
  return {};
}

void look() {
  if (looked) return;
  looked = true;
  auto found = module_files(module_folders(reinterpret_cast<const void*>(&find_implementation), "bus", variable),
                            "sonde-bus-", variable, "bus.bad_module");
  for (auto& error : found.unusable) broken.push_back({"", std::move(error)});
  for (auto& file : found.files) files.push_back({file.path, file.stem});
}

/// Files whose stem is `stem`; empty: all. Only the named DDS is loaded, because DDS libraries start threads and take
/// memory.
void load_files(std::string_view stem) {
  look();
  for (auto& file : files) {
    if (file.tried || (!stem.empty() && file.stem != stem)) continue;
    file.tried = true;
    if (const auto loaded = load(file.path); !loaded) broken.push_back({file.stem, loaded.error()});
  }
}

std::vector<std::string> names() {
  load_files({});
  std::vector<std::string> found{null_implementation().name};
  for (const auto& loaded : modules)
    for (const auto& entry : loaded.module->implementations) found.emplace_back(entry.name);
  std::sort(found.begin(), found.end());
  return found;
}

/// A request of a profile or QoS, and the capability that it needs.
struct Need {
  bool asked;
  bool Caps::* can;
  std::string what;
};

Result<void> met(const std::vector<Need>& needs, std::string_view name, const Caps& caps) {
  for (const auto& need : needs) {
    if (!need.asked || caps.*need.can) continue;
    std::vector<std::string> able;
    for (const auto& other : implementation_names()) {
      if (other == name) continue;
      const auto entry = find_implementation(other);
      try {
        if (entry && ((*entry)->caps().*need.can)) able.push_back(other);
      } catch (...) {  // then it is not recommended
      }
    }
    return Error{"bus.unsupported", std::string(name) + " cannot do what is asked for: " + need.what,
                 able.empty() ? "leave it out; no implementation that is here can"
                              : "leave it out, or take one that can, by SONDE_BUS or the profile's implementation: " +
                                    joined(able)};
  }
  return {};
}

}  // namespace

std::vector<std::string> implementation_names() {
  const std::lock_guard lock(registry_mutex);
  return names();
}

Result<const ImplementationEntry*> find_implementation(std::string_view name) {
  const std::lock_guard lock(registry_mutex);
  if (const auto* entry = entry_of(name)) return entry;
  load_files(name);
  if (const auto* entry = entry_of(name)) return entry;
  for (const auto& bad : broken)
    if (bad.stem == name && !name.empty())
      return Error{bad.error.code, "the implementation " + std::string(name) + " is not to be had: " + bad.error.what,
                   bad.error.hint};
  const auto there = names();
  if (const auto* entry = entry_of(name)) return entry;
  std::string others = "there are: " + joined(there);
  for (const auto& bad : broken) others += "; " + bad.error.what;
  for (const auto& k : known)
    if (name == k.name)
      return Error{"bus.unknown_implementation", "the implementation " + std::string(name) + " is not in this build",
                   std::string("install it ('apt install ") + k.package +
                       "' on Debian, deploy/packages for others) and build Sonde again; " + others};
  std::vector<std::string> candidates = there;
  for (const auto& k : known) candidates.emplace_back(k.name);
  return Error{"bus.unknown_implementation", "there is no implementation " + shown(name) + nearest(name, candidates),
               others};
}

Result<std::vector<std::string>> load_module(const std::string& path) {
  const std::lock_guard lock(registry_mutex);
  // Without a slash the loader would search its own folders.
  const std::string named = path.find('/') == std::string::npos ? "./" + path : path;
  if (auto ok = load(named); !ok) return ok.error();
  std::vector<std::string> brought;
  for (const auto& loaded : modules)
    if (loaded.path == named)
      for (const auto& entry : loaded.module->implementations) brought.emplace_back(entry.name);
  return brought;
}

std::vector<Error> broken_modules() {
  const std::lock_guard lock(registry_mutex);
  load_files({});
  std::vector<Error> errors;
  for (const auto& bad : broken) errors.push_back(bad.error);
  return errors;
}

Result<void> check(const Profile& profile, std::string_view name, const Caps& caps) {
  const Transport& t = profile.transport;
  const Discovery& d = profile.discovery;
  const bool sends = caps.across_processes;  // else nothing leaves the process, by whatever transport
  const bool server = sends && d.kind == DiscoveryKind::server;
  if (auto ok = met({{sends && t.kind == TransportKind::udp4, &Caps::udp4, "transport udp4"},
                     {sends && t.kind == TransportKind::udp6, &Caps::udp6, "transport udp6"},
                     {sends && t.kind == TransportKind::tcp4, &Caps::tcp4, "transport tcp4"},
                     {sends && t.kind == TransportKind::shared_memory, &Caps::shared_memory, "transport shared-memory"},
                     {sends && t.multicast == Multicast::all, &Caps::multicast_samples,
                      "multicast=\"all\", samples sent to groups"},
                     {sends && d.kind == DiscoveryKind::peers, &Caps::peers, "discovery by a list of peers"},
                     {server, &Caps::server, "discovery by a server"},
                     {server && !d.backup.empty(), &Caps::server_backup, "a discovery server with a backup file"},
                     {profile.security.has_value(), &Caps::security, "security"}},
                    name, caps);
      !ok)
    return ok;
  for (const auto& [topic, its] : profile.topics)
    for (const Qos* qos : {&its.writer, &its.reader})
      if (auto ok = check(*qos, name, caps); !ok)
        return Error{ok.error().code, "topic " + topic + ": " + ok.error().what, ok.error().hint};
  return {};
}

Result<void> check(const Qos& qos, std::string_view name, const Caps& caps) {
  bool wildcard = false;
  for (const auto& partition : qos.partitions) wildcard |= partition.find_first_of("*?") != std::string::npos;
  return met({{qos.durability == Durability::transient_local, &Caps::durability, "durability transient-local"},
              {!qos.partitions.empty(), &Caps::partitions, "partitions"},
              {wildcard, &Caps::partition_wildcards, "partitions with '*' or '?'"},
              {qos.liveliness != Liveliness::automatic || std::isfinite(qos.lease_s), &Caps::liveliness,
               "a liveliness that is not automatic, or has a lease"},
              {std::isfinite(qos.deadline_s), &Caps::deadline, "a deadline"},
              {std::isfinite(qos.lifespan_s), &Caps::lifespan, "a lifespan"},
              {qos.ownership == Ownership::exclusive, &Caps::ownership, "exclusive ownership"},
              {qos.ownership == Ownership::exclusive && qos.reliability == Reliability::best_effort,
               &Caps::ownership_best_effort, "exclusive ownership with best effort"},
              {qos.order_by_source, &Caps::order_by_source, "order by source time"},
              {qos.latency_budget_s > 0, &Caps::latency_budget, "a latency budget"}},
             name, caps);
}

}  // namespace sonde::bus
