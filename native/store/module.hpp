#pragma once
/// The door for backends and transports from outside this tree: one shared object, one symbol.
///
///   extern "C" const sonde::store::Module* sonde_store_module();
///
/// It is loaded by `--module ./mine.so`, or from a folder that SONDE_STORE_MODULES names. The interface is C++: build
/// it with the headers it will run under; `abi` is checked before anything else is touched. docs/howto/store-module.md
/// has an example of each.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "store/backend.hpp"
#include "store/transport.hpp"

namespace sonde::store {

inline constexpr unsigned module_abi = 2;

struct BackendEntry {
  const char* name;  ///< what it is called on the command line: letters, digits, '-'
  unsigned roles;    ///< bit 1 << Role for each role that it serves
  Result<std::unique_ptr<Backend>> (*open)(Role role, const Settings& settings);
};

struct TransportEntry {
  const char* name;
  std::unique_ptr<Transport> (*make)();
};

struct Module {
  unsigned abi = module_abi;
  const char* name = "";
  std::span<const BackendEntry> backends;
  std::span<const TransportEntry> transports;
};

/// Loads a module for the life of the process; its name is then one that open_backend or open_transport knows.
/// Errors: store.bad_module (file, reason: no such file, no symbol, another abi, a name that is taken).
Result<const Module*> load_module(const std::string& path);

/// Where modules are that nobody need name: `store/` beside libsonde-store.so, which has this build's own (ofi,
/// rocksdb: libraries too heavy for everyone), then the folders in SONDE_STORE_MODULES, with ':' between them. All that
/// is called sonde-store-*.so there is loaded when a name is first looked for.
std::vector<std::string> module_folders();

/// What in those folders could not be loaded, and folders of SONDE_STORE_MODULES that have nothing to load:
/// store.bad_module, with the file, the reason and what to do. Loads all that is there.
std::vector<Error> broken_modules();

}  // namespace sonde::store
