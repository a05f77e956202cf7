#include <doctest/doctest.h>

#include <unistd.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "bus/probe/talk.hpp"

using namespace sonde;
using namespace sonde::bus::probe;

TEST_CASE("bus probe talk: what is said is heard whatever it holds") {
  Talk said("ping");
  const std::string odd = "a b\n%=\t\x7f,ü\r";
  said.with("text", odd)
      .with("n", 7u)
      .with("yes", true)
      .with("times", std::vector<double>{1e-9, std::nan(""), 0.1})
      .with("ids", std::vector<std::string>{"a.b", "c"})
      .with("none", "");
  const std::string line = said.line();
  CHECK(line.find('\n') == line.size() - 1);
  const auto heard = Talk::parse(std::string_view(line).substr(0, line.size() - 1));
  REQUIRE(heard);
  CHECK(heard->verb() == "ping");
  CHECK(heard->text("text") == odd);
  CHECK(heard->number<unsigned>("n") == 7);
  CHECK(heard->number<int>("yes") == 1);
  const auto times = heard->numbers("times");
  REQUIRE(times.size() == 3);
  CHECK(times[0] == 1e-9);
  CHECK(std::isnan(times[1]));
  CHECK(times[2] == 0.1);
  CHECK(heard->words("ids") == std::vector<std::string>{"a.b", "c"});
  CHECK(heard->has("none"));
  CHECK(heard->words("none").empty());
  CHECK_FALSE(heard->has("other"));
  CHECK(heard->number<int>("other", 3) == 3);
  CHECK(heard->number<int>("text", 4) == 4);
}

TEST_CASE("bus probe talk: errors travel and nonsense is none") {
  const auto failed = Talk::failed({"bus.open", "no way", "try again"});
  const auto heard = Talk::parse(failed.line().substr(0, failed.line().size() - 1));
  REQUIRE(heard);
  REQUIRE(heard->error());
  CHECK(heard->error()->code == "bus.open");
  CHECK(heard->error()->hint == "try again");
  CHECK_FALSE(Talk::ok().error());
  for (const char* bad : {"", " a=1", "ok word", "ok a=%", "ok a=%4", "ok a=%zz", "%2 a=1"})
    CHECK_FALSE(Talk::parse(bad));
}

TEST_CASE("bus probe talk: lines come whole however they are cut and the end is told") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  LineReader reader(ends[0]);
  std::string line;
  CHECK(reader.next(line, 0) == LineReader::Got::later);
  CHECK(write_line(ends[1], "one\ntw"));
  CHECK(reader.next(line, 1000) == LineReader::Got::line);
  CHECK(line == "one");
  CHECK(reader.next(line, 0) == LineReader::Got::later);
  CHECK(write_line(ends[1], "o\nthree\n"));
  CHECK(reader.next(line, 1000) == LineReader::Got::line);
  CHECK(line == "two");
  ::close(ends[1]);
  CHECK(reader.next(line, 1000) == LineReader::Got::line);
  CHECK(line == "three");
  CHECK(reader.next(line, 1000) == LineReader::Got::end);
  ::close(ends[0]);
}
