// sonde-powerd: the daemons of the power stack. `sonde power serve ROLE` starts them; a user or systemd starts them
// with the same arguments. Standard output carries events, one JSON object a line; standard error the log.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "core/nearest.hpp"
#include "power/powerd/roles.hpp"
#include "power/powerd/tell.hpp"
#include "service/daemon.hpp"

namespace {

using namespace sonde;
using namespace sonde::power;

constexpr const char* usage = R"(sonde-powerd: the daemons of Sonde's power stack

  sonde-powerd ROLE --config FILE [options]
  sonde-powerd release --config FILE [--restore] [--name NAME]

roles
  node-manager      one on each node: reads and caps its hardware
  system-manager    one for the cluster, plus standbys: keeps the cluster within its budget
  mqtt-bridge       transfers samples and requests to and from an MQTT broker
  job-scheduler, resource-manager, job-manager, workflow-engine, monitor
                    are started as `sonde power serve ROLE` (SONDE_COMMAND names the program sonde)
  release           not a daemon: sets the safe cap, in case a killed node manager did not; with --restore,
                    restores the hardware's settings from before the first cap

options
  --config FILE     the power stack's configuration
  --name NAME       the name of this role, instead of the name in the file
  --observe         system-manager: report what would be set, and set nothing;
                    node-manager: do not change the hardware
  --restore         node-manager, release: restore the hardware's settings from before the first cap
  --with-parent     end when standard input ends
  --list            print the roles and the hardware of this build as JSON
  --version         print the version
)";

constexpr const char* python_roles[] = {"job-scheduler", "resource-manager", "job-manager", "workflow-engine",
                                        "monitor"};

Error bad_usage(const std::string& what) { return {"power.usage", what, "see sonde-powerd --help"}; }

[[maybe_unused]] int not_built(const char* role, const char* hint) {
  return fail({"power.not_built", "this build has no " + std::string(role), hint});
}

/// Becomes `sonde power serve …`. Signals are not claimed yet: the new program would inherit their mask.
int become_sonde(char** argv) {
  const char* command = std::getenv("SONDE_COMMAND");
  if (!command || !*command) command = "sonde";
  std::vector<char*> words{const_cast<char*>(command), const_cast<char*>("power"), const_cast<char*>("serve")};
  for (char** word = argv + 1; *word; ++word) words.push_back(*word);
  words.push_back(nullptr);
  ::execvp(command, words.data());
  return fail({"power.no_command", std::string("cannot start ") + command + ": " + std::strerror(errno),
               "set SONDE_COMMAND to the program `sonde`, or add its folder to PATH"});
}

int list() {
  JsonLine line;
  line.add("version", SONDE_VERSION);
  std::vector<std::string> roles;
#ifdef SONDE_POWERD_NODE
  roles.push_back("node-manager");
#endif
#ifdef SONDE_POWERD_SYSTEM
  roles.push_back("system-manager");
#endif
#ifdef SONDE_POWERD_BRIDGE
  roles.push_back("mqtt-bridge");
#endif
  line.add("roles", roles);
#ifdef SONDE_POWERD_HARDWARE
  std::string kinds;
  for (const auto& kind : hardware_kinds())
    kinds += (kinds.empty() ? "" : ",") +
             JsonLine().add("kind", name_of(kind.kind)).add("what", kind.what).add("missing", kind.missing).text();
  line.raw("hardware", "[" + kinds + "]");
#endif
  std::cout << line.text() << '\n' << std::flush;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string role;
  Options options;
  for (int k = 1; k < argc; ++k) {
    const std::string_view word = argv[k];
    std::string_view name = word, value;
    bool has_value = false;
    if (const auto eq = word.find('='); word.starts_with("--") && eq != std::string_view::npos) {
      name = word.substr(0, eq);
      value = word.substr(eq + 1);
      has_value = true;
    }
    const auto need = [&] {
      if (!has_value && k + 1 < argc) value = argv[++k], has_value = true;
      return has_value;
    };
    if (name == "--help" || name == "-h") {
      std::cout << usage;
      return 0;
    } else if (name == "--version") {
      std::cout << SONDE_VERSION << "\n";
      return 0;
    } else if (name == "--list") {
      return list();
    } else if (name == "--config" || name == "--name") {
      if (!need()) return fail(bad_usage(std::string(name) + " needs a value"));
      (name == "--config" ? options.config_path : options.name) = value;
    } else if (word == "--observe") {
      options.observe = true;
    } else if (word == "--restore") {
      options.restore = true;
    } else if (word == "--with-parent") {
      options.with_parent = true;
    } else if (role.empty() && !word.starts_with("-")) {
      role = word;
      // These roles check their arguments themselves.
      if (std::find(std::begin(python_roles), std::end(python_roles), role) != std::end(python_roles))
        return become_sonde(argv);
    } else {
      return fail(bad_usage("unknown option '" + std::string(word) + "'"));
    }
  }
  std::vector<std::string> roles{"node-manager", "system-manager", "mqtt-bridge", "release"};
  if (std::find(roles.begin(), roles.end(), role) == roles.end()) {
    roles.insert(roles.end(), std::begin(python_roles), std::end(python_roles));
    return fail(bad_usage(role.empty() ? "no role was given" : "unknown role '" + role + "'" + nearest(role, roles)));
  }
  if (options.config_path.empty()) return fail(bad_usage(role + " needs --config FILE"));
  if (options.observe && role != "system-manager" && role != "node-manager")
    return fail(bad_usage("only system-manager and node-manager have --observe"));
  if (options.restore && role != "node-manager" && role != "release")
    return fail(bad_usage("only node-manager and release have --restore"));
  auto config = load_config(options.config_path);
  if (!config) return fail(config.error());
  // An observer sets no safe cap either, because that would slow down the observed cluster. Restoring is an order of
  // its own: `release --restore`.
  if ((options.observe || config->budget.observe) && !(role == "release" && options.restore))
    for (auto& hardware : config->node_manager.hardware) hardware.read_only = true;
  // Before any thread. A write beyond the process's file size limit then returns an error and does not end the process.
  options.signals = service::claim_signals();
  std::signal(SIGXFSZ, SIG_IGN);
  if (options.signals < 0)
    return fail({"power.no_descriptor", std::string("cannot wait for signals: ") + std::strerror(errno),
                 "raise the limit of descriptors: ulimit -n"});
  if (role == "node-manager") {
#ifdef SONDE_POWERD_NODE
    return run_node_manager(*config, options);
#else
    return not_built("node-manager", "this source tree does not contain it");
#endif
  }
  if (role == "release") {
#ifdef SONDE_POWERD_NODE
    return release(*config, options, options.restore);
#else
    return not_built("release", "this source tree does not contain it");
#endif
  }
  if (role == "system-manager") {
#ifdef SONDE_POWERD_SYSTEM
    return run_system_manager(*config, options);
#else
    return not_built("system-manager", "this source tree does not contain it");
#endif
  }
#ifdef SONDE_POWERD_BRIDGE
  return run_mqtt_bridge(*config, options);
#else
  return not_built("mqtt-bridge", "install libmosquitto-dev, and build again");
#endif
}
