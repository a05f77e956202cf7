#pragma once
/// A folder as sysfs has it, for tests of what reads sysfs.

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

struct PowerTree {
  std::string root;
  PowerTree() {
    char name[] = "/tmp/sonde-power-tree-XXXXXX";
    REQUIRE(::mkdtemp(name));
    root = name;
  }
  ~PowerTree() {
    std::error_code why;
    std::filesystem::remove_all(root, why);
  }
  PowerTree(const PowerTree&) = delete;
  PowerTree& operator=(const PowerTree&) = delete;

  void put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root + "/" + path).parent_path());
    std::ofstream(root + "/" + path) << text << '\n';
  }
  std::string get(const std::string& path) const {
    std::ifstream in(root + "/" + path);
    std::string text;
    std::getline(in, text);
    return text;
  }
  void gone(const std::string& path) const { std::filesystem::remove_all(root + "/" + path); }

  /// A zone of powercap; watts.
  void zone(const std::string& folder, const std::string& name, bool limits = true, int most_w = 200) const {
    const std::string at = "class/powercap/" + folder + "/";
    put(at + "name", name);
    put(at + "energy_uj", "1000000");
    put(at + "max_energy_range_uj", "262143328850");
    put(at + "enabled", "1");
    if (!limits) return;
    put(at + "constraint_0_name", "long_term");
    put(at + "constraint_0_power_limit_uw", std::to_string(most_w) + "000000");
    put(at + "constraint_0_max_power_uw", std::to_string(most_w) + "000000");
    put(at + "constraint_1_name", "short_term");
    put(at + "constraint_1_power_limit_uw", std::to_string(most_w * 6 / 5) + "000000");
  }
};
