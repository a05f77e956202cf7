// The messages as C++ and as IDL: the same types.
#include <doctest/doctest.h>

#include "bus/idl.hpp"
#include "power/messages.hpp"
#include "power/powerd/wiring.hpp"

using namespace sonde;
using namespace sonde::power;

TEST_CASE("power messages: power.idl is what messages.hpp describes") {
  const auto file = bus::load_idl(SONDE_TEST_DATA "/../../src/sonde/power/stack/power.idl");
  REQUIRE_MESSAGE(file, (file ? "" : file.error().what));
  const auto own = bus::parse_idl(idl());
  REQUIRE_MESSAGE(own, (own ? "" : own.error().what));
  for (const auto& type : message_types()) {
    REQUIRE(bus::check(*type));
    REQUIRE_MESSAGE((*file).contains(type->name), type->name);
    REQUIRE_MESSAGE((*own).contains(type->name), type->name);
    CHECK_MESSAGE(bus::to_idl(*(*file).at(type->name)) == bus::to_idl(*type), type->name,
                  ": correct power.idl, with units");
    CHECK(bus::fingerprint(*(*file).at(type->name)) == bus::fingerprint(*type));
    CHECK(bus::fingerprint(*(*own).at(type->name)) == bus::fingerprint(*type));
  }
  CHECK((*own).size() == (*file).size());
}

TEST_CASE("power messages: grants and reports arrive as they were sent") {
  const Grant grant{{7, "m1"}, 12, {99, 1234567}, 15.5, 250};
  const Grant back = NodeCommand::of(grant).grant();
  CHECK(back.fence == grant.fence);
  CHECK(back.sequence == grant.sequence);
  CHECK(back.ticket == grant.ticket);
  CHECK(back.lease_s == grant.lease_s);
  CHECK(back.cap_w == grant.cap_w);
  CHECK(NodeCommand::of(grant).order == NodeOrder::SET_POWER_NODE);
  const Report report{{99, 1234}, {7, "m1"}, 12, true, 3.5, 250, 249.875};
  const Report again = LeaseState::of(report).report();
  CHECK(again.ticket == report.ticket);
  CHECK(again.seen == report.seen);
  CHECK(again.sequence == report.sequence);
  CHECK(again.leased);
  CHECK(again.left_s == report.left_s);
  CHECK(again.lease_w == report.lease_w);
  CHECK(again.cap_w == report.cap_w);
}

TEST_CASE("power messages: a profile has the stack's topics unless it declares them itself") {
  auto config = parse_config("");
  REQUIRE(config);
  const auto profile = bus_profile(*config, "me");
  REQUIRE(profile);
  CHECK((*profile).participant == "me");
  CHECK((*profile).topics.at(topic::node_telemetry).type == "sonde::power::NodeTelemetry");
  CHECK((*profile).types.contains("sonde::power::NodeCommand"));
  // A manager counts from when it hears a node; who only looks is told the past, too. A writer keeps it for both.
  CHECK((*profile).topics.at(topic::node_telemetry).writer.durability == bus::Durability::transient_local);
  CHECK((*profile).topics.at(topic::node_telemetry).reader.durability == bus::Durability::volatile_);
  CHECK((*bus_profile(*config, "me", true)).topics.at(topic::node_telemetry).reader.durability ==
        bus::Durability::transient_local);
  const auto again = bus::parse_profile(bus::to_xml(*profile));
  REQUIRE_MESSAGE(again, (again ? "" : again.error().what));
  CHECK((*again).topics.at(topic::cluster_telemetry).writer == (*profile).topics.at(topic::cluster_telemetry).writer);
}
