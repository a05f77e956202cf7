#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/hostlist.hpp"
#include "core/random.hpp"

using namespace sonde;
using Names = std::vector<std::string>;

TEST_CASE("a host list becomes names in the order written") {
  CHECK(*hostlist_expand("n[001-003,020],login1") == Names{"n001", "n002", "n003", "n020", "login1"});
  CHECK(*hostlist_expand(" b , a ") == Names{"b", "a"});
  CHECK(*hostlist_expand("n[9-11]") == Names{"n9", "n10", "n11"});
  CHECK(*hostlist_expand("n[08-10].c1") == Names{"n08.c1", "n09.c1", "n10.c1"});
  CHECK(*hostlist_expand("n[98-100]") == Names{"n98", "n99", "n100"});
  CHECK(*hostlist_expand("n[0]") == Names{"n0"});
}

TEST_CASE("several brackets multiply, the last turning fastest") {
  CHECK(*hostlist_expand("r[1-2]n[1-2]") == Names{"r1n1", "r1n2", "r2n1", "r2n2"});
}

TEST_CASE("a host counts once") { CHECK(*hostlist_expand("n[1-2],n2,n1") == Names{"n1", "n2"}); }

TEST_CASE("an exclusion holds wherever it stands") {
  CHECK(*hostlist_expand("^n2,n[1-3]") == Names{"n1", "n3"});
  CHECK(*hostlist_expand("n[1-9],^n[2-8]") == Names{"n1", "n9"});
  CHECK(*hostlist_expand("n1,^m7") == Names{"n1"});
}

TEST_CASE("exclusions alone are taken from the hosts there are") {
  const Names there{"n1", "n2", "n3"};
  CHECK(*hostlist_expand("^n2", there) == Names{"n1", "n3"});
  CHECK(*hostlist_expand("n7", there) == Names{"n7"});
  CHECK(hostlist_expand("^n2").error().what.find("only leaves hosts out") != std::string::npos);
  CHECK(hostlist_check("^n2"));
}

TEST_CASE("a list that leaves nobody is an error") {
  CHECK(hostlist_expand("n1,^n1").error().code == "core.bad_hosts");
  CHECK(hostlist_expand("^n[1-2]", Names{"n1", "n2"}).error().code == "core.bad_hosts");
}

TEST_CASE("what is no host list is refused with the position") {
  for (const char* text :
       {"",      " ",     ",",     "a,,b",     "a,",     "^",       "n[",        "n[]",
        "n[1",   "n[1-]", "n[-1]", "n[1-3-5]", "n[3-1]", "n]",      "n[a]",      "n[1,]",
        "n[1][", "a b",   "a;b",   "a/b",      "n[1 ]",  "n[1-02]", "n[01-012]", "n[1234567890123456789]",
        "^^n1"}) {
    CAPTURE(text);
    const auto got = hostlist_expand(text);
    REQUIRE_FALSE(got);
    CHECK(got.error().code == "core.bad_hosts");
    CHECK(got.error().what.find("at character") != std::string::npos);
    CHECK_FALSE(hostlist_check(text));
  }
}

TEST_CASE("a text that stands for too many hosts is refused before any is made") {
  for (const char* text :
       {"n[1-1000000000]", "n[1-65537]", "n[0-999999999999999999]", "[1-300][1-300]", "n[1-65536],m",
        "n[1-40000,1-40000]", "[1-60000][1-60000][1-60000][1-60000][1-60000]", "^n[1-1000000000],m"}) {
    CAPTURE(text);
    CHECK(hostlist_expand(text).error().what.find("more than 65536 hosts") != std::string::npos);
  }
  CHECK(hostlist_expand("n[1-65536]")->size() == hostlist_limit);
  std::string deep;
  for (int k = 0; k < 100000; ++k) deep += "[1]";
  CHECK(hostlist_expand(deep).error().code == "core.bad_hosts");
  CHECK(hostlist_expand(std::string(2 << 20, 'n')).error().code == "core.bad_hosts");
}

TEST_CASE("names are folded where neighbours differ in one number") {
  const auto fold = [](Names names) { return *hostlist_fold(names); };
  CHECK(fold({"n001", "n002", "n003", "n020", "login1"}) == "n[001-003,020],login1");
  CHECK(fold({"n9", "n10", "n11"}) == "n[9-11]");
  CHECK(fold({"n08", "n09", "n10"}) == "n[08-10]");
  CHECK(fold({"n99", "n100"}) == "n[99-100]");
  CHECK(fold({"n09", "n010"}) == "n[09,010]");
  CHECK(fold({"b1.site1.org", "b2.site1.org"}) == "b[1-2].site1.org");
  CHECK(fold({"10.0.0.1", "10.0.0.2"}) == "10.0.0.[1-2]");
  CHECK(fold({"n2", "n1"}) == "n[2,1]");
  CHECK(fold({"n1", "n1"}) == "n1");
  CHECK(fold({"login"}) == "login");
  CHECK(fold({}) == "");
}

TEST_CASE("a name that no host has is not folded") {
  for (const std::string& name : {std::string("a,b"), std::string("n[1]"), std::string(""), std::string(256, 'n')})
    CHECK(hostlist_fold(Names{name}).error().code == "core.bad_hosts");
}

TEST_CASE("folding loses nothing: order, width and distinct names survive") {
  Random random(4);
  const Names heads{"n", "n0", "rack1-", "", "a.b"}, tails{"", ".x1", "-ib"};
  for (int k = 0; k < 3000; ++k) {
    Names names;
    for (auto left = 1 + random.below(12); left > 0; --left) {
      std::string number = std::to_string(random.below(14));
      number.insert(0, random.below(3), '0');
      names.push_back(heads[random.below(heads.size())] + number + tails[random.below(tails.size())]);
    }
    Names once;
    std::set<std::string> seen;
    for (const auto& name : names)
      if (seen.insert(name).second) once.push_back(name);
    const std::string text = *hostlist_fold(names);
    CAPTURE(text);
    const auto back = hostlist_expand(text);
    REQUIRE(back);
    CHECK(*back == once);
  }
}

TEST_CASE("random bytes are expanded or refused, never more") {
  Random random(5);
  const std::string letters = "nn01239[[]],,-^. ";
  for (int k = 0; k < 100000; ++k) {
    std::string text(random.below(16), ' ');
    for (char& c : text)
      c = random.below(20) ? letters[random.below(letters.size())] : static_cast<char>(random.below(256));
    auto hosts = hostlist_expand(text, Names{"n1", "m"});
    if (!hosts) continue;
    CHECK(!hosts->empty());
    CHECK(hosts->size() <= hostlist_limit);
    CHECK(std::set(hosts->begin(), hosts->end()).size() == hosts->size());
    CHECK(*hostlist_expand(*hostlist_fold(*hosts)) == *hosts);
  }
}
