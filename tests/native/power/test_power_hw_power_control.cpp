// Which members of Redfish's PowerControl are the whole machine, answer for answer.
#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "power/hardware/power_control.hpp"

using namespace sonde;
using namespace sonde::power;

namespace {

kinds::ControlMembers members(const std::string& text) {
  const auto controls = JsonValue::parse("{\"c\":" + text + "}");
  REQUIRE_MESSAGE(controls, text);
  return kinds::control_members((*controls)["c"]);
}

const std::string parts = R"(,{"Name":"CPU","PowerConsumedWatts":99},{"Name":"Memory","PowerConsumedWatts":20}])";

}  // namespace

TEST_CASE("redfish: a total that is null or 0 is not known, and no part takes its place") {
  for (const std::string watts : {"null", "0", "\"n/a\""})
    for (const std::string id : {"\"MemberId\":\"0\",", ""}) {
      const auto now = members("[{" + id + R"("Name":"All","PowerLimit":{"LimitInWatts":400},"PowerConsumedWatts":)" +
                               watts + "}" + parts);
      CAPTURE(watts);
      CHECK(now.drawn == 0);
      CHECK(now.limited == std::optional<std::size_t>(0));
    }
  const auto unlimited = members(R"([{"Name":"All","PowerConsumedWatts":null})" + parts);
  CHECK(unlimited.drawn == 0);
  CHECK(!unlimited.limited);
  const auto last =
      members(R"([{"Name":"CPU","PowerConsumedWatts":99},{"Name":"All","PowerConsumedWatts":null,"PowerLimit":{}}])");
  CHECK(last.drawn == 1);
  CHECK(last.limited == std::optional<std::size_t>(1));
}

TEST_CASE("redfish: a limit of a part is not the whole's, while the whole is silent either") {
  const std::string cpu = R"(,{"Name":"CPU","PowerConsumedWatts":99,"PowerLimit":{"LimitInWatts":90}}])";
  const auto known = members(R"([{"Name":"All","PowerConsumedWatts":310})" + cpu);
  CHECK(known.drawn == 0);
  CHECK(!known.limited);
  CHECK(known.why_not.find("covers only a part of it") != std::string::npos);
  const auto silent = members(R"([{"Name":"All","PowerConsumedWatts":null})" + cpu);
  CHECK(silent.drawn == 0);
  CHECK(!silent.limited);
  CHECK(silent.why_not.find("may cover only a part of it") != std::string::npos);
}

TEST_CASE("redfish: the power and the limit may have a member each, and members may be null") {
  const auto split = members(R"([{"Name":"Power","PowerConsumedWatts":310},{"Name":"Limit","PowerLimit":{}}])");
  CHECK(split.drawn == 0);
  CHECK(split.limited == std::optional<std::size_t>(1));
  const auto null = members(R"([null,{"MemberId":"1","PowerConsumedWatts":310,"PowerLimit":{}}])");
  CHECK(null.drawn == 1);
  CHECK(null.limited == std::optional<std::size_t>(1));
  CHECK(members("[]").drawn == 0);
  CHECK(!members("[null,3]").limited);
  const auto highest = members(R"([{"PowerConsumedWatts":99},{"PowerConsumedWatts":320,"PowerLimit":{}}])");
  CHECK(highest.drawn == 1);
  CHECK(highest.limited == std::optional<std::size_t>(1));
}
