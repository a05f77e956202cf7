#include <doctest/doctest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bus/probe/help.hpp"
#include "bus/probe/limits.hpp"
#include "bus/probe/options.hpp"

using namespace sonde;
using namespace sonde::bus;
using namespace sonde::bus::probe;

namespace {

Variant variant(std::string_view text) {
  auto v = Variant::parse(text);
  REQUIRE_MESSAGE(v, (v ? "" : v.error().what));
  return *v;
}

Case what(std::string_view text) {
  auto c = Case::parse(text);
  REQUIRE_MESSAGE(c, (c ? "" : c.error().what));
  return *c;
}

std::string refused(const Result<Variant>& v) { return v ? "" : v.error().code + " " + v.error().what; }
std::string refused(const Result<Case>& c) { return c ? "" : c.error().code + " " + c.error().what; }
bool has(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return true;
  MESSAGE("said: ", text);
  return false;
}

}  // namespace

TEST_CASE("bus probe options: a variant is a name with an implementation and what it is to use") {
  const auto v = variant(
      "mc=cyclonedds,transport=udp6,multicast=all,discovery=peers,announce=500ms,batch=50us,receive-buffer=1MiB,"
      "interfaces=eth0+10.1.0.0/16,unprotected=yes");
  CHECK(v.name == "mc");
  CHECK(v.implementation == "cyclonedds");
  CHECK(v.options ==
        "transport=udp6,multicast=all,discovery=peers,announce=500ms,batch=50us,receive-buffer=1MiB,interfaces=eth0+10."
        "1.0.0/16,unprotected=yes");
  CHECK(v.transport.kind == TransportKind::udp6);
  CHECK(v.transport.multicast == Multicast::all);
  CHECK(v.transport.receive_buffer_bytes == 1u << 20);
  CHECK(v.transport.interfaces == std::vector<std::string>{"eth0", "10.1.0.0/16"});
  CHECK(v.discovery.kind == DiscoveryKind::peers);
  CHECK(v.discovery.announce_s == doctest::Approx(0.5));
  CHECK(v.batch_s == doctest::Approx(50e-6));
  CHECK(v.unprotected);
  CHECK(v.transport_name() == "udp6-multicast");

  const auto bare = variant("fastdds");
  CHECK(bare.name == "fastdds");
  CHECK(bare.implementation == "fastdds");
  CHECK(bare.transport.multicast == Multicast::discovery);

  const auto file = variant("site=cyclonedds,profile=/etc/bus.xml#node");
  CHECK(file.profile == "/etc/bus.xml");
  CHECK(file.profile_name == "node");
}

TEST_CASE("bus probe options: what is wrong with a variant is named with what is allowed") {
  CHECK(has(refused(Variant::parse("a=cyclonedds,transprot=udp4")), "bus.bad_variant"));
  CHECK(has(refused(Variant::parse("a=cyclonedds,transprot=udp4")), "transport"));
  CHECK(has(refused(Variant::parse("a=cyclonedds,transport=udp5")), "udp4, udp6, tcp4 or shared-memory"));
  CHECK(has(refused(Variant::parse("a=cyclonedds,batch=fast")), "50us"));
  CHECK(has(refused(Variant::parse("a=cyclonedds,receive-buffer=64G")), "1 GiB"));
  CHECK(has(refused(Variant::parse("a=cyclonedds,only=latancy")), "names of tests"));
  CHECK(has(refused(Variant::parse("a=raw-ipx")), "raw-udp, raw-tcp and raw-shm"));
  CHECK(has(refused(Variant::parse("a=raw-udp,discovery=peers")), "limit of the machine"));
  CHECK(has(refused(Variant::parse("a=cyclonedds,profile=x.xml,transport=udp4")), "transport is the profile's"));
  CHECK(has(refused(Variant::parse("=cyclonedds")), "name"));
  CHECK(has(refused(Variant::parse("a=")), "implementation"));
}

TEST_CASE("bus probe options: cases have their tests' numbers and no others") {
  const auto c = what("fanout:subscribers=48,size=16KiB,reliability=best-effort");
  CHECK(c.test == Test::fanout);
  CHECK(c.size == 16384);
  CHECK(c.subscribers == 48);
  CHECK(c.processes == 8);
  CHECK(c.shown_treatment() == "best-effort");
  CHECK(c.shown_entities() == -1);
  CHECK(what("fanout:subscribers=3").processes == 3);
  CHECK(what("fanout:subscribers=3,processes=1").processes == 1);
  CHECK(what("throughput").size == 1024);

  const auto d = what("discovery:entities=96,treatment=star,within=10s,steady=0");
  CHECK(d.processes == 96);
  CHECK(d.shown_size() == -1);
  CHECK(d.shown_entities() == 96);
  CHECK(d.within_s == 10);
  CHECK(d.steady_s == 0);
  CHECK(what("discovery").shown_treatment() == "star");
  CHECK(what("discovery:treatment=all,stagger=20ms").stagger_s == doctest::Approx(0.02));

  CHECK(what("first").shown_treatment() == "first-ever");
  CHECK(what("first:treatment=prefaulted+after-lookup").shown_treatment() == "prefaulted+after-lookup");
  CHECK(what("first:treatment=pause+awake-cores,pause=20ms").shown_treatment() == "pause=20ms+awake-cores");
  CHECK(what("first:treatment=pause").shown_treatment() == "pause");
  CHECK(what("partitions:count=4").shown_treatment() == "topic");
  CHECK(what("calls:clients=100,calls=1000").shown_entities() == 100);
  CHECK(what("calls:clients=100").shown_processes() == 8);
  CHECK(what("discovery:entities=96").shown_processes() == 96);
  CHECK(what("latency").shown_processes() == -1);
  CHECK(what("first").early());
  CHECK(what("first:reliability=best-effort").early());
  CHECK_FALSE(what("first:treatment=prefaulted").early());
  CHECK_FALSE(what("latency").early());

  CHECK(has(refused(Case::parse("latancy")), "latency"));
  CHECK(has(refused(Case::parse("latency:subscribers=2")), "unknown"));
  CHECK(has(refused(Case::parse("latency:size=31")), "from 32 B to 32 MiB"));
  CHECK(what("latency:size=32").size == least_sample_bytes);
  CHECK(has(refused(Case::parse("latency:size=")), "size"));
  CHECK(has(refused(Case::parse("fanout:subscribers=0")), "from 1 to 256"));
  CHECK(has(refused(Case::parse("fanout:subscribers=2,processes=3")), "more processes"));
  CHECK(has(refused(Case::parse("first:treatment=pause+steady")), "one at a time"));
  CHECK(has(refused(Case::parse("partitions:treatment=topic+domain")), "one treatment"));
  CHECK(has(refused(Case::parse("discovery:treatment=ring")), "star, all"));
}

TEST_CASE(
    "bus probe options: every test gives something that a rule can wait for and says why a variant does not take it") {
  for (const char* text : {"latency", "fanout", "throughput", "partitions", "discovery", "first", "calls"}) {
    const auto c = what(text);
    const auto gives = c.gives(), deciding = c.deciding();
    const std::set<Q> all(gives.begin(), gives.end());
    CHECK(all.size() == gives.size());
    CHECK_FALSE(deciding.empty());
    for (const Q q : deciding) CHECK(all.count(q) == 1);
    CHECK(std::string(help).find("\n      " + std::string(text) + " ") != std::string::npos);
  }
  CHECK(variant("r=raw-udp").excludes(what("latency:size=64KiB")) != "");
  CHECK(variant("r=raw-udp").excludes(what("latency:size=32KiB")) == "");
  CHECK(variant("r=raw-tcp").excludes(what("latency:size=1MiB")) == "");
  CHECK(variant("r=raw-shm").excludes(what("latency:size=4MiB")) == "");
  CHECK(variant("r=raw-shm").excludes(what("latency:size=5MiB")) != "");
  CHECK(variant("r=raw-shm").excludes(what("discovery")) != "");
  CHECK(variant("r=raw-shm").excludes(what("first:treatment=warm-other-topic")) != "");
  CHECK(variant("a=null,only=latency+calls").excludes(what("fanout")) != "");
  CHECK(variant("a=null,only=latency+calls").excludes(what("calls")) == "");
  CHECK(variant("a=null,without=calls").excludes(what("calls")) != "");
  CHECK(variant("a=cyclonedds,profile=x.xml").excludes(what("partitions:treatment=domain")) != "");
  // What stays on a host, of several.
  for (const char* text : {"r=raw-shm", "f=fastdds,transport=shared-memory"}) {
    CHECK(variant(text).excludes(what("latency"), true) != "");
    CHECK(variant(text).excludes(what("latency")) == "");
  }
  CHECK(variant("c=cyclonedds").excludes(what("fanout"), true) != "");
  CHECK(variant("c=cyclonedds").excludes(what("throughput"), true) == "");
  CHECK(variant("m=cyclonedds,multicast=all").transport_name() == "udp4-multicast");
  CHECK(variant("m=cyclonedds").transport_name() == "udp4");
  CHECK(variant("s=fastdds,transport=shared-memory").transport_name() == "shared-memory");
  CHECK(variant("u=raw-udp,unprotected=yes").unprotected);
  CHECK(variant("a=cyclonedds").spin_s < 0);
  CHECK(variant("a=cyclonedds,spin=never").spin_s == 0);
  CHECK(variant("a=cyclonedds,spin=100us").spin_s == 100e-6);
}

TEST_CASE("bus probe options: the program's own") {
  const auto parse = [](const std::vector<std::string>& args) { return Options::parse(args, true); };
  const std::vector<std::string> enough{"--dir", "/tmp/x", "--variant", "a=null", "--case", "latency"};
  auto with = [&](std::initializer_list<std::string> more) {
    auto args = enough;
    args.insert(args.end(), more);
    return parse(args);
  };
  auto o = with({"--domains", "5-9", "--budget-s", "1.5", "--namespace", "no", "--host", "n1", "--start", "ssh",
                 "--start", "n1", "--host", "n2", "--interfaces", "eth0,10.1.0.0/16"});
  REQUIRE(o);
  CHECK(o->domain_first == 5);
  CHECK(o->domain_last == 9);
  CHECK(o->budget_s == 1.5);
  CHECK_FALSE(o->own_namespace);
  REQUIRE(o->hosts.size() == 2);
  CHECK(o->hosts[0].start == std::vector<std::string>{"ssh", "n1"});
  CHECK(o->hosts[1].name == "n2");
  CHECK(o->hosts[1].start.empty());
  CHECK(o->interfaces.size() == 2);
  CHECK(o->across());
  for (const auto& bad : {with({"--domains", "9-5"}), with({"--domains", "1-233"}), with({"--epoch-length", "0"}),
                          with({"--burst-s", "0"}), with({"--budgets", "1"}), with({"--seed"}),
                          with({"--start", "ssh"}), with({"--host", "n1", "--host", "n1"}),
                          with({"--variant", "a=raw-udp"}), with({"--case", "latency"}), parse({"--dir", "/tmp/x"})}) {
    REQUIRE_FALSE(bad);
    CHECK(bad.error().code.starts_with("bus.bad_"));
  }
  CHECK(has(with({"--budgets", "1"}).error().what, "--budget-s"));
}
