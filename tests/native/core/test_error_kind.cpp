#include <doctest/doctest.h>

#include "core/error_kind.hpp"

using namespace sonde;

TEST_CASE("error kind: from the code, whatever the text") {
  CHECK(kind_of({"store.not_found", "no such object", ""}) == ErrorKind::not_found);
  CHECK(kind_of({"core.bad_size", "12 parsecs", ""}) == ErrorKind::usage);
  CHECK(kind_of({"bus.timed_out", "", ""}) == ErrorKind::timed_out);
}

TEST_CASE("error kind: a code that is not listed is no fault of the user's") {
  CHECK(!listed_kind("power.of_a_newer_version"));
  CHECK(!listed_kind(""));
  CHECK(!listed_kind("core"));
  CHECK(kind_of({"power.of_a_newer_version", "", ""}) == ErrorKind::environment);
}

TEST_CASE("error kind: each has its own name") {
  CHECK(name_of(ErrorKind::environment) == "environment");
  CHECK(name_of(ErrorKind::usage) == "usage");
  CHECK(name_of(ErrorKind::denied) == "denied");
}

TEST_CASE("error kind: the exit status is 2 where the request is wrong, 3 where the machine is") {
  CHECK(exit_status({"power.usage", "", ""}) == 2);
  CHECK(exit_status({"power.hardware_failed", "", ""}) == 3);
  CHECK(exit_status({"store.not_found", "", ""}) == 3);
  CHECK(exit_status({"power.of_a_newer_version", "", ""}) == 3);
}
