#pragma once
/// The roles of sonde-powerd that are C++; main.cpp chooses. Each returns the exit code: 0 ended as asked, 2 what was
/// asked is wrong, 3 the machine or the bus is. Events go to standard output, one JSON object a line ("ready" first),
/// the log to standard error.

#include <string>

#include "power/config.hpp"

namespace sonde::power {

struct Options {
  std::string config_path;
  std::string name;          ///< instead of the role's in the file
  bool with_parent = false;  ///< end when standard input ends
  bool observe = false;  ///< system-manager: tell what would be set, set nothing. Of a node manager main.cpp makes the
                         ///< hardware read-only
  bool restore = false;  ///< node-manager: at its end, the values from before the first cap instead of the safe cap
  int signals = -1;      ///< of service::claim_signals()
};

int run_node_manager(const Config& config, const Options& options);
int run_system_manager(const Config& config, const Options& options);
int run_mqtt_bridge(const Config& config, const Options& options);
/// What a node manager that was killed left: the safe cap is set, or with `restore` the values from before the first
/// cap.
int release(const Config& config, const Options& options, bool restore);

}  // namespace sonde::power
