#include <doctest/doctest.h>

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "../claimed.hpp"
#include "bus/conformance/suite.hpp"
#include "bus/idl.hpp"
#include "bus/request.hpp"
#include "there.hpp"

using namespace sonde;
using namespace sonde::bus;
using conformance::Case;
using conformance::Outcome;

namespace {

struct Count {
  std::size_t passed = 0, unsupported = 0;
};

/// All cases pass, or are about what it cannot do.
Count conforms(conformance::Settings settings) {
  CAPTURE(settings.implementation);
  settings.program = SONDE_TEST_BUSCONFORM;
  auto all = conformance::check(settings);
  REQUIRE(all);
  Count count;
  for (const Case& c : *all) {
    CHECK_MESSAGE(c.outcome != Outcome::failed, c.variant << ": " << c.name << ": " << c.reason);
    count.passed += c.outcome == Outcome::passed;
    count.unsupported += c.outcome == Outcome::unsupported;
  }
  return count;
}

std::string page(const std::string& path) {
  std::ifstream file(SONDE_TEST_DATA "/../../" + path);
  REQUIRE(file);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("bus conformance: null") {
  const Count count = conforms({.implementation = "null",
                                .variants = {},
                                .program = {},
                                .modules = {},
                                .only = {},
                                .told = {},
                                .patience_s = 30});
  CHECK(count.passed >= 26);
  CHECK(count.unsupported >= 8);  // it has no other processes
}

TEST_CASE("bus conformance: the example of docs/howto/bus-module.md") {
  const Count count = conforms({.implementation = "room",
                                .variants = {},
                                .program = {},
                                .modules = {SONDE_TEST_BUS_CONFORM_MODULES "/sonde-bus-room.so"},
                                .only = {},
                                .told = {},
                                .patience_s = 30});
  CHECK(count.passed >= 14);
}

TEST_CASE("bus conformance: Cyclone DDS and Fast DDS, a part of it") {
  // The whole takes minutes: sonde bus conformance.
  for (const char* name : {"cyclonedds", "fastdds"}) {
    if (!there_is(name)) continue;
    for (const char* only : {"matching*", "keys: instances whose*", "threads: four*", "processes: samples*",
                             "processes: instances*", "requests: 10 *"}) {
      auto entry = find_implementation(name);
      REQUIRE(entry);
      auto variants = conformance::variants_of((*entry)->caps(), claimed::domain());
      variants.resize(1);
      CHECK(conforms({.implementation = name,
                      .variants = variants,
                      .program = {},
                      .modules = {},
                      .only = only,
                      .told = {},
                      .patience_s = 30})
                .passed == 1);
    }
  }
}

TEST_CASE("bus conformance: every mistake is found, by the case that is about it, and stops nothing") {
  struct Mistake {
    const char *name, *only, *says;
  };
  for (const Mistake& mistake : {Mistake{"none", "reliable*", ""},
                                 {"crash", "sizes*", "signal 11"},
                                 {"crash at exit", "guids*", "signal 11"},
                                 {"hang", "sizes*", "did not end within 6 s; the last thing was: 0 B"},
                                 {"lose", "reliable*", "got sample"},
                                 {"swap", "reliable*", "got sample"},
                                 {"change", "sizes*", "100000 B came as another"},
                                 {"silent disposal", "keys: instances, and*", "was not reported"},
                                 {"uncounted", "QoS*", "did not report a peer"},
                                 {"tag", "waiter: no sample*", "another tag"},
                                 {"impatient", "waiter: deadlines*", "before its deadline"},
                                 {"deaf to partitions", "partitions: who*", "no match"},
                                 {"user data", "others*", "user data ''"},
                                 {"one domain", "domains*", "another domain"},
                                 {"leak", "reopen*", "descriptors"}}) {
    CAPTURE(mistake.name);
    setenv("SONDE_TEST_MISTAKE", mistake.name, 1);
    conformance::Settings settings;
    settings.implementation = "mistaken";
    settings.program = SONDE_TEST_BUSCONFORM;
    settings.modules = {SONDE_TEST_BUS_CONFORM_MODULES "/sonde-bus-mistaken.so"};
    settings.only = mistake.only;
    // What is waited for in vain need not be waited for long.
    for (const char* waits : {"hang", "silent disposal", "uncounted", "deaf to partitions", "leak"})
      if (std::string_view(mistake.name) == waits) settings.patience_s = 1;
    auto all = conformance::check(settings);
    unsetenv("SONDE_TEST_MISTAKE");
    REQUIRE(all);
    REQUIRE(all->size() == 1);
    const Case& c = all->front();
    CAPTURE(c.reason);
    CHECK((c.outcome == Outcome::passed) == std::string_view(mistake.says).empty());
    CHECK(c.reason.find(mistake.says) != std::string::npos);
  }
}

TEST_CASE("bus conformance: what cannot be tested is an error, not a success") {
  conformance::Settings settings;
  settings.implementation = "null";
  auto refused = conformance::check(settings);
  REQUIRE(!refused);
  CHECK(refused.error().code == "bus.conformance");
  settings.program = SONDE_TEST_BUSCONFORM;
  settings.implementation = "nul";
  CHECK(!conformance::check(settings));
  settings.implementation = "null";
  settings.modules = {"/nowhere/sonde-bus-x.so"};
  refused = conformance::check(settings);
  REQUIRE(!refused);
  CHECK(refused.error().code == "bus.bad_module");
  settings.modules.clear();
  settings.program = "/bin/true";  // says nothing: a failure of every case
  settings.only = "matching*";
  auto silent = conformance::check(settings);
  REQUIRE(silent);
  CHECK(silent->front().outcome == Outcome::failed);
}

TEST_CASE("bus conformance: the IDL of docs/reference/bus-requests.md is what requests and replies are") {
  const std::string text = page("docs/reference/bus-requests.md");
  const auto begin = text.find("```idl\n");
  REQUIRE(begin != std::string::npos);
  auto types = parse_idl(text.substr(begin + 7, text.find("\n```", begin) - begin - 7), "bus-requests.md");
  REQUIRE(types);
  REQUIRE(types->contains("sonde::bus::Request"));
  CHECK(equal(*types->at("sonde::bus::Request"), *request_type()));
  CHECK(equal(*types->at("sonde::bus::Reply"), *reply_type()));
  for (const TypePtr& type : {request_type(), reply_type()})
    for (const Field& field : type->fields)
      CHECK_MESSAGE(text.find("| `" + field.name + "` |") != std::string::npos, field.name << " is not on the page");
}
