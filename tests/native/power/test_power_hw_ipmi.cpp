// IPMI over a script in ipmitool's place.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "power/hardware/kinds.hpp"
#include "power_tree.hpp"

using namespace sonde;
using namespace sonde::power;

namespace {

/// A BMC that reports what the files `watts` and `state` have. No limit is active.
struct Bmc {
  PowerTree tree;
  std::string path = std::getenv("PATH") ? std::getenv("PATH") : "";
  Bmc(const std::string& watts, const std::string& state) {
    tree.put("ipmitool", "#!/bin/sh\ncd " + tree.root + R"sh(
case "$*" in
*"power reading"*)
  echo "    Instantaneous power reading:     $(cat watts) Watts"
  echo "    Power reading state is:          $(cat state)" ;;
*get_limit*)
  echo "    Current Limit State: No Active Power Limit"
  echo "    Power Limit:         0 Watts" ;;
esac)sh");
    ::chmod((tree.root + "/ipmitool").c_str(), 0755);
    tell(watts);
    tree.put("state", state);
    ::setenv("PATH", (tree.root + ":" + path).c_str(), 1);
  }
  ~Bmc() { ::setenv("PATH", path.c_str(), 1); }
  void tell(const std::string& watts) const { tree.put("watts", watts); }
  std::unique_ptr<Hardware> opened() const {
    HardwareSpec spec;
    spec.kind = Source::ipmi;
    auto out = open_hardware(spec);
    REQUIRE_MESSAGE(out, (out ? "" : out.error().what));
    return std::move(*out);
  }
};

DomainReading read(Hardware& hardware) {
  auto out = hardware.read();
  REQUIRE_MESSAGE(out, (out ? "" : out.error().what));
  return out->front();
}

}  // namespace

TEST_CASE("ipmi: what a BMC says of its measurement is its claim: a reading that changes is believed") {
  const Bmc bmc("319", "deactivated");
  const auto hardware = bmc.opened();
  for (int look = 0; look < 2; ++look) {
    const auto now = read(*hardware);
    CHECK(std::isnan(now.power_w));
    CHECK_MESSAGE(now.trouble.find("the BMC says that its power measurement is deactivated") != std::string::npos,
                  now.trouble);
  }
  bmc.tell("322");
  CHECK(read(*hardware).power_w == 322);
  const auto again = read(*hardware);
  CHECK(again.power_w == 322);
  CHECK(again.trouble == "");
  bmc.tell("0");
  CHECK(std::isnan(read(*hardware).power_w));
}

TEST_CASE("ipmi: 0 W is no power of a machine that runs") {
  const Bmc bmc("0", "activated");
  const auto hardware = bmc.opened();
  auto now = read(*hardware);
  CHECK(std::isnan(now.power_w));
  CHECK_MESSAGE(now.trouble.find("reports 0 W, which no machine that runs draws") != std::string::npos, now.trouble);
  bmc.tell("310");
  now = read(*hardware);
  CHECK(now.power_w == 310);
  CHECK(now.trouble == "");
}
