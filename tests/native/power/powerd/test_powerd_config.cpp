// The configuration: every key, and what is said of mistakes.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/units.hpp"
#include "power/config.hpp"

using namespace sonde;
using namespace sonde::power;

namespace {

const std::string nodes = "[[nodes]]\nhosts = \"n[1-4]\"\nmin = 100\nmax = \"400W\"\n";

Error refused(const std::string& toml) {
  const auto config = parse_config(toml, "/etc/power.toml");
  REQUIRE_MESSAGE(!config, toml);
  return config.error();
}

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("power config: what is not said has its default") {
  const auto config = parse_config("");
  REQUIRE(config);
  CHECK((*config).cluster == "cluster");
  CHECK((*config).budget.lease_s == 15);
  CHECK(std::isnan((*config).budget.power_limit_w));
  CHECK((*config).nodes.empty());
}

TEST_CASE("power config: what is said arrives, in SI") {
  const auto config = parse_config(
      "cluster = \"demo\"\n[bus]\nprofile = \"bus.xml\"\n[budget]\npower_limit = \"1.2kW\"\nlease = 10\nrenew = "
      "\"3s\"\npolicy = \"fair\"\n" +
          nodes +
          "safe = \"0.15kW\"\nrack = \"r1\"\nmemory = \"256GiB\"\ncores = 64\n[racks.r1]\ncooling = "
          "\"15kW\"\n[node-manager]\ntelemetry = \"250ms\"\nstate = \"/var/x\"\n"
          "[[node-manager.hardware]]\nkind = \"powercap\"\n[[node-manager.hardware]]\nkind = \"simulated\"\nload = "
          "0.25\n"
          "[job-scheduler]\n[[job-scheduler.queues]]\nname = \"fast\"\nusers = [\"a\", \"b\"]\n[mqtt-bridge]\nqos = "
          "0\n[workflow-engine]\n",
      "/etc/sonde/power.toml");
  REQUIRE_MESSAGE(config, (config ? "" : config.error().what));
  const Config& c = *config;
  CHECK(c.bus_profile == "/etc/sonde/bus.xml");
  CHECK(c.budget.power_limit_w == doctest::Approx(1200));
  CHECK(c.budget.lease_s == 10);
  CHECK(c.budget.policy == "fair");
  REQUIRE(c.nodes.size() == 4);
  CHECK(c.nodes[3].member.name == "n4");
  CHECK(c.nodes[3].member.min_w == 100);
  CHECK(c.nodes[3].member.safe_w == doctest::Approx(150));
  CHECK(c.nodes[3].memory_bytes == 256ull << 30);
  CHECK(c.nodes[3].cores == 64);
  CHECK(c.racks.at("r1").cooling_w == doctest::Approx(15000));
  CHECK(std::isnan(c.racks.at("r1").power_limit_w));
  CHECK(c.node_manager.telemetry_s == doctest::Approx(0.25));
  CHECK(c.node_manager.state == "/var/x");
  REQUIRE(c.node_manager.hardware.size() == 2);
  CHECK(c.node_manager.hardware[0].kind == Source::powercap);
  CHECK(c.node_manager.hardware[1].load == 0.25);
  REQUIRE(c.scheduler.queues.size() == 1);
  CHECK(c.scheduler.queues[0].users == std::vector<std::string>{"a", "b"});
  CHECK(c.bridge.qos == 0);
}

TEST_CASE("power config: whole numbers that no double holds are refused, and ports that are none") {
  for (const std::string number : {"9007199254740993", "9223372036854775807", "-9223372036854775808"}) {
    CHECK(refused("[budget]\npower_limit = " + number + "\n").code == "power.bad_value");
    CHECK(refused("[node-manager]\ntelemetry = " + number + "\n").code == "power.bad_value");
  }
  for (const std::string at : {"a:4294967377", "a:80 ", "a:80x", "a: 80", "a:", ":80"}) {
    CHECK(refused("[monitor]\nlisten = '" + at + "'\n").code == "power.bad_value");
    CHECK(refused("[mqtt-bridge]\nmetrics = '" + at + "'\n").code == "power.bad_value");
  }
  CHECK(parse_config("[mqtt-bridge]\nmetrics = '[::1]:0'\n"));
}

TEST_CASE("power config: the safe cap is the least one unless it is said") {
  CHECK((*parse_config(nodes)).nodes[0].member.safe_w == 100);
}

TEST_CASE("power config: an unknown key is told with its line and the nearest one") {
  const auto error = refused("cluster = \"x\"\n\n[budget]\npolcy = \"fair\"\n");
  CHECK(error.code == "power.unknown_key");
  CHECK(error.what == "/etc/power.toml:4: unknown key 'polcy' in [budget] (nearest: policy)");
  CHECK(has(error.hint, "power_limit"));
  CHECK(has(refused("[node-manger]\n").what, "(nearest: node-manager)"));
  CHECK(refused("[node-manager]\n[[node-manager.hardware]]\nkind = \"nvml\"\nidel = 3\n").code == "power.unknown_key");
  CHECK(refused("[racks.r1]\ncoling = 3\n").code == "power.unknown_key");
  CHECK(refused("[job-scheduler]\n[[job-scheduler.queues]]\nname = \"x\"\nprio = 3\n").code == "power.unknown_key");
  CHECK(refused("[workflow-engine]\nx = 1\n").code == "power.unknown_key");
}

TEST_CASE("power config: a bad value is told with its line and what is allowed") {
  const auto bad = [](const std::string& toml, std::string_view line, std::string_view allowed) {
    const auto error = refused(toml);
    CHECK_MESSAGE(error.code == "power.bad_value", toml, ": ", error.code);
    CHECK_MESSAGE(has(error.what, std::string("power.toml:") + std::string(line) + ":"), error.what);
    CHECK_MESSAGE(has(error.what, allowed), error.what);
  };
  bad("[budget]\nlease = \"15 parsecs\"\n", "2", "from 100ms to 10min");
  bad("[budget]\nlease = 0\n", "2", "is 0;");
  bad("[budget]\nlease = nan\n", "2", "allowed");
  bad("[budget]\npower_limit = -5\n", "2", "from 0 W to");
  bad("[budget]\npower_limit = [1]\n", "2", "is a list");
  bad("[budget]\nrenew = 20\n", "1", "not below lease");
  bad("[budget]\nobserve = \"yes\"\n", "2", "true, false");
  bad("budget = 3\n", "1", "a table");
  bad("[mqtt-bridge]\nqos = 3\n", "2", "from 0 to 1");
  bad("[mqtt-bridge]\nqos = 1.5\n", "2", "a whole number");
  bad("[mqtt-bridge]\nnaming = \"sparkplg\"\n", "2", "(nearest: sparkplug)");
  bad("[mqtt-bridge]\nbroker = \"x\"\n", "1", "HOST:PORT");
  bad("[mqtt-bridge]\nto_mqtt = [1]\n", "2", "a list of texts");
  bad("[mqtt-bridge]\ncertificate = \"c\"\nkey = \"k\"\n", "1", "ca is missing");
  bad("[mqtt-bridge]\nca = \"a\"\ncertificate = \"c\"\n", "1", "key is missing");
  CHECK(parse_config("[mqtt-bridge]\nca = \"a\"\ncertificate = \"c\"\nkey = \"k\"\n"));
  bad("[system-manager]\naudit_size = 3\n", "2", "from 4 KiB");
  bad("[[node-manager.hardware]]\nkind = \"rapl\"\n", "2", "powercap");
  bad("[[node-manager.hardware]]\nroot = \"/x\"\n", "1", "'kind'");
  bad("[[nodes]]\nhosts = \"n1\"\nmin = 3\n", "1", "'max'");
  bad("[[nodes]]\nhosts = \"n[\"\nmin = 3\nmax = 4\n", "2", "not a host list");
  bad("cluster = \"\"\n", "1", "1 to 64");
  bad("cluster = \"a\\u0000b\"\n", "1", "control");
  bad("cluster = \"" + std::string(65, 'x') + "\"\n", "1", "at most 64");
  bad("[monitor]\ntls_key = \"k\"\n", "1", "tls_certificate");
  bad(nodes + "rack = \"r2\"\n[racks.r1]\n", "1", "(nearest: r1)");
  bad("[[job-scheduler.queues]]\nname = \"a\"\n[[job-scheduler.queues]]\nname = \"a\"\n", "3", "twice");
  bad("[[job-scheduler.queues]]\nname = \"\"\n", "1", "1 to 64");
  bad("[[job-scheduler.queues]]\nname = \"a\"\ndefault = true\n[[job-scheduler.queues]]\nname = \"b\"\ndefault = "
      "true\n",
      "4", "one queue");
  bad("[[job-scheduler.queues]]\nname = \"a\"\nmax_time = 60\ndefault_time = 61\n", "1", "above its max_time");
  bad("[[job-scheduler.shares]]\nshare = 2\n", "1", "'user'");
  bad("[[job-scheduler.shares]]\nuser = \"a\"\n[[job-scheduler.shares]]\nuser = \"a\"\n", "3", "twice");
}

TEST_CASE("power config: nodes that cannot be, and safe caps above the budget") {
  CHECK(refused("[[nodes]]\nhosts = \"a\"\nmin = 5\nmax = 4\n").code == "power.bad_node");
  CHECK(refused(nodes + "safe = 401\n").code == "power.bad_node");
  CHECK(refused(nodes + "safe = 99\n").code == "power.bad_node");
  CHECK(refused("[[nodes]]\nhosts = \"a\"\nmin = 0\nmax = 0\n").code == "power.bad_node");
  const auto twice = refused(nodes + nodes);
  CHECK(twice.code == "power.bad_node");
  CHECK(has(twice.what, "n1 is named twice"));
  CHECK(has(twice.what, "line 1"));
  const auto above = refused("[budget]\npower_limit = 399\n" + nodes);
  CHECK(above.code == "power.safe_above_budget");
  CHECK(has(above.what, "400 W"));
  CHECK(has(above.what, "399 W"));
  CHECK(parse_config("[budget]\npower_limit = 400\n" + nodes));
  CHECK(refused("[budget]\npolicy = \"far\"\n").code == "power.unknown_policy");
}

TEST_CASE("power config: what is no TOML is told with line and column") {
  const auto error = refused("cluster = \"a\"\nx = = 3\n");
  CHECK(error.code == "power.bad_toml");
  CHECK(has(error.what, "power.toml:2: column "));
  CHECK(refused(std::string(100000, '[')).code == "power.bad_toml");
  CHECK(refused("x = \"\xff\xfe\"\n").code == "power.bad_toml");
  CHECK(load_config("/nowhere/power.toml").error().code == "power.no_file");
  CHECK(load_config("/").error().code == "power.no_file");
}

TEST_CASE("power config: keys are told once each, and a file of all defaults changes nothing") {
  std::set<std::string> seen;
  std::map<std::string, std::string> sections;
  for (const auto& key : config_keys()) {
    CHECK_MESSAGE(seen.insert(key.section + "." + key.key).second, key.section, " ", key.key);
    CHECK(!key.what.empty());
    // What has no default is left out; tables of tables as well.
    const bool table = key.section == "nodes" || key.section == "racks.NAME" ||
                       key.section == "node-manager.hardware" || key.section == "job-scheduler.queues" ||
                       key.section == "job-scheduler.shares";
    if (key.default_value.empty() || table) continue;
    const bool bare = key.type == "integer" || key.type == "number" || key.type == "true or false";
    std::string quoted = '"' + key.default_value + '"';
    if (key.type == "list of texts")  // the items of a default stand behind each other as in a sentence
      for (std::size_t at = 0; (at = quoted.find(", ", at)) != std::string::npos; at += 4)
        quoted.replace(at, 2, "\", \"");
    sections[key.section] += key.key + " = " +
                             (bare                          ? key.default_value
                              : key.type == "list of texts" ? "[" + quoted + "]"
                                                            : quoted) +
                             "\n";
  }
  std::string toml = sections[""];
  for (const auto& [name, keys] : sections)
    if (!name.empty()) toml += "[" + name + "]\n" + keys;
  const auto given = parse_config(toml);
  REQUIRE_MESSAGE(given, (given ? "" : given.error().what));
  CHECK(to_json(*given) == to_json(*parse_config("")));
}
