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

/// Loads a module for the life of the process; open_backend or open_transport then know its names.
/// Errors: store.bad_module (file, reason: no such file, no symbol, another abi, a name that is taken).
Result<const Module*> load_module(const std::string& path);

/// The folders of modules that are found without being named: `store/` next to libsonde-store.so, with the modules of
/// this build (ofi, rocksdb: libraries too large to load always), then the folders in SONDE_STORE_MODULES, separated by
/// ':'. Files sonde-store-*.so there are loaded when a name is first looked up.
std::vector<std::string> module_folders();

/// The files in those folders that could not be loaded, and the folders of SONDE_STORE_MODULES without modules:
/// store.bad_module, with the file, the reason and a hint. Loads all modules.
std::vector<Error> broken_modules();

}  // namespace sonde::store
