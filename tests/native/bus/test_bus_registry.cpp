#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <string>
#include <string_view>
#include <thread>

#include "bus/bus.hpp"
#include "bus/null.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

bool has(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return true;
  MESSAGE("said: ", text);
  return false;
}

struct Folder {
  std::string path;
  Folder() {
    path = (std::filesystem::temp_directory_path() / "sonde-bus-registry-XXXXXX").string();
    REQUIRE(mkdtemp(path.data()));
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

/// Names are looked for once in a process: what depends on the environment is a case of its own in a process of its
/// own.
void run_alone(const std::string& name, const std::string& folders) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      "SONDE_BUS_MODULES='" + folders + "' '" + self + "' --no-skip --minimal=false -tc='" + name + "' 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::string said;
  std::array<char, 4096> part;
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe)) said.append(part.data(), n);
  const int status = pclose(pipe);
  CHECK_MESSAGE((WIFEXITED(status) && WEXITSTATUS(status) == 0), said);
  CHECK_MESSAGE(std::regex_search(said, std::regex("test cases: +1 \\| +1 passed")), said);  // that it was there at all
}

Profile on_domain(std::uint32_t domain) {
  Profile profile;
  profile.domain = domain;
  return profile;
}

}  // namespace

TEST_CASE("registry: null is built in, names are sorted, and each opens by its name") {
  const auto names = implementation_names();
  CHECK(std::is_sorted(names.begin(), names.end()));
  CHECK(std::count(names.begin(), names.end(), "null") == 1);
  for (const auto& name : names) {
    const auto entry = find_implementation(name);
    REQUIRE(entry);
    CHECK(name == (*entry)->name);
    CHECK(std::string((*entry)->version()) != "");
  }
  CHECK(*find_implementation("null") == &null_implementation());
}

TEST_CASE("registry: a name that is none is told, with the nearest and what there is") {
  const auto mistyped = find_implementation("nul");
  REQUIRE(!mistyped);
  CHECK(mistyped.error().code == "bus.unknown_implementation");
  CHECK(has(mistyped.error().what, "there is no implementation 'nul' (nearest: null)"));
  CHECK(has(mistyped.error().hint, "null"));
  CHECK(!find_implementation(""));
  CHECK(!find_implementation(std::string(100000, 'x')));
}

TEST_CASE("registry: modules that are wrong are told, each with its reason, and hurt nobody") {
  run_alone("alone: wrong modules", SONDE_TEST_BUS_MODULES);
}
TEST_CASE("alone: wrong modules" * doctest::skip()) {
  const auto why = [](const std::string& stem) {
    for (const auto& error : broken_modules())
      if (error.what.find("sonde-bus-" + stem + ".so") != std::string::npos) {
        CHECK(error.code == "bus.bad_module");
        CHECK(!error.hint.empty());
        return error.what;
      }
    return std::string();
  };
  CHECK(has(why("abi"), "it was built for interface " + std::to_string(module_abi + 1) + ", this is " +
                            std::to_string(module_abi)));
  CHECK(has(why("throws"), "threw an exception: no module today"));
  CHECK(has(why("nothing"), "gave nothing"));
  CHECK(has(why("symbol"), "it has no symbol sonde_bus_module"));
  CHECK(has(why("incomplete"), "lacks its name, version, caps or open"));
  CHECK(has(why("taken"), "there is an implementation null already"));
  CHECK(why("mock") == "");
  CHECK(*find_implementation("null") == &null_implementation());
  const auto by_name = find_implementation("abi");
  REQUIRE(!by_name);
  CHECK(by_name.error().code == "bus.bad_module");
  CHECK(has(by_name.error().what, "the implementation abi is not to be had: cannot load the module"));
  const auto other = find_implementation("mokc");
  REQUIRE(!other);
  CHECK(has(other.error().what, "(nearest: mock)"));
  CHECK(has(other.error().hint, "sonde-bus-abi.so"));
}

TEST_CASE("registry: a module brings its implementation, and leaves the program's signals alone") {
  run_alone("alone: a module", SONDE_TEST_BUS_MODULES);
}
TEST_CASE("alone: a module" * doctest::skip()) {
  std::signal(SIGTERM, SIG_IGN);
  const auto entry = find_implementation("mock");
  REQUIRE(entry);
  CHECK(std::string((*entry)->version()) == "1.2.3");
  const bool still_ignored = std::signal(SIGTERM, SIG_DFL) == SIG_IGN;
  CHECK(still_ignored);
  const auto names = implementation_names();
  CHECK(std::count(names.begin(), names.end(), "mock") == 1);
}

TEST_CASE("registry: only the module that is named is loaded") {
  run_alone("alone: one module", SONDE_TEST_BUS_MODULES);
}
TEST_CASE("alone: one module" * doctest::skip()) {
  const auto loaded = [](const std::string& stem) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.find("sonde-bus-" + stem + ".so") != std::string::npos) return true;
    return false;
  };
  REQUIRE(find_implementation("null"));
  CHECK(!loaded("mock"));
  REQUIRE(find_implementation("mock"));
  CHECK(loaded("mock"));
  CHECK(!loaded("taken"));
  CHECK(!loaded("cyclonedds"));
  (void)implementation_names();
  CHECK(loaded("taken"));
}

TEST_CASE("registry: folders that have nothing are told, files that are no libraries too") {
  const Folder folder;
  std::filesystem::create_directory(folder.path + "/empty");
  std::ofstream(folder.path + "/sonde-bus-text.so") << "this is no library";
  run_alone("alone: folders",
            folder.path + ":" + folder.path + "/empty:" + folder.path + "/none::" + folder.path + "/sonde-bus-text.so");
}
TEST_CASE("alone: folders" * doctest::skip()) {
  std::string all;
  for (const auto& error : broken_modules()) {
    CHECK(error.code == "bus.bad_module");
    all += error.what + "\n";
  }
  CHECK(has(all, "/empty: nothing in it is called sonde-bus-*.so"));
  CHECK(has(all, "/none: No such file or directory"));
  CHECK(has(all, "sonde-bus-text.so: Not a directory"));
  CHECK(has(all, "sonde-bus-text.so: "));
  const auto text = find_implementation("text");
  REQUIRE(!text);
  CHECK(text.error().code == "bus.bad_module");
}

TEST_CASE("registry: what an implementation cannot do is refused, and who can is told") {
  run_alone("alone: what it cannot", SONDE_TEST_BUS_MODULES);
}
TEST_CASE("alone: what it cannot" * doctest::skip()) {
  const Caps mock = (*find_implementation("mock"))->caps();
  const auto refusal = [&](const std::function<void(Profile&)>& ask) {
    Profile profile;
    profile.types["t"] = structure("t", {{"x", primitive(Kind::octet), false, ""}});
    profile.topics["a"] = {"a", "t", {}, {}};
    CHECK(check(profile, "mock", mock));
    ask(profile);
    const auto said = check(profile, "mock", mock);
    return said ? Error{} : said.error();
  };
  CHECK(has(refusal([](Profile& p) { p.transport.kind = TransportKind::udp6; }).what,
            "mock cannot do what is asked for: transport udp6"));
  CHECK(has(refusal([](Profile& p) { p.transport.kind = TransportKind::shared_memory; }).what, "shared-memory"));
  CHECK(has(refusal([](Profile& p) { p.transport.multicast = Multicast::all; }).what, "multicast"));
  CHECK(has(refusal([](Profile& p) { p.discovery.kind = DiscoveryKind::peers; }).what, "peers"));
  CHECK(has(refusal([](Profile& p) { p.discovery.kind = DiscoveryKind::server; }).what, "server"));
  CHECK(refusal([](Profile& p) { p.transport.kind = TransportKind::tcp4; }).code == "");
  CHECK(refusal([](Profile& p) { p.security = Security{}; }).code == "");
  CHECK(refusal([](Profile& p) { p.topics["a"].writer.ownership = Ownership::exclusive; }).code == "");
  const auto durable = refusal([](Profile& p) { p.topics["a"].writer.durability = Durability::transient_local; });
  CHECK(durable.code == "bus.unsupported");
  CHECK(has(durable.what, "topic a: mock cannot do what is asked for: durability transient-local"));
  CHECK(has(durable.hint, "null"));
  CHECK(has(refusal([](Profile& p) { p.topics["a"].reader.partitions = {"a"}; }).what, "partitions"));
  CHECK(has(refusal([](Profile& p) { p.topics["a"].reader.liveliness = Liveliness::manual_by_topic; }).what,
            "liveliness"));
  CHECK(has(refusal([](Profile& p) { p.topics["a"].reader.lease_s = 3; }).what, "liveliness"));
  CHECK(has(refusal([](Profile& p) { p.topics["a"].reader.deadline_s = 3; }).what, "deadline"));
  CHECK(has(refusal([](Profile& p) { p.topics["a"].reader.lifespan_s = 3; }).what, "lifespan"));
  CHECK(has(refusal([](Profile& p) { p.topics["a"].writer.latency_budget_s = 0.1; }).what, "latency budget"));
  Caps no_wildcards = mock;
  no_wildcards.partitions = true;
  Qos qos;
  qos.partitions = {"rack"};
  CHECK(check(qos, "mock", no_wildcards));
  qos.partitions = {"rack*"};
  CHECK(!check(qos, "mock", no_wildcards));

  // within a process no transport is used, whichever is asked for; what keeps others out is
  Profile inside;
  inside.transport.kind = TransportKind::tcp4;
  inside.discovery.kind = DiscoveryKind::server;
  const Caps null = null_implementation().caps();
  CHECK(check(inside, "null", null));
  inside.security = Security{};
  const auto unguarded = check(inside, "null", null);
  REQUIRE(!unguarded);
  CHECK(has(unguarded.error().hint, "mock"));
}

TEST_CASE("registry: what a module throws, and what it does not give, are errors") {
  run_alone("alone: a module throws", SONDE_TEST_BUS_MODULES);
}
TEST_CASE("alone: a module throws" * doctest::skip()) {
  const auto thrown = Bus::open(on_domain(1), "mock");
  REQUIRE(!thrown);
  CHECK(thrown.error().code == "bus.internal");
  CHECK(has(thrown.error().what, "the implementation mock threw an exception: no domain 1"));
  const auto nothing = Bus::open(on_domain(2), "mock");
  REQUIRE(!nothing);
  CHECK(has(nothing.error().what, "returned no object"));
  const auto told = Bus::open(on_domain(3), "mock");
  REQUIRE(!told);
  CHECK(has(told.error().what,
            "participant " + std::string(program_invocation_short_name) + "-" + std::to_string(getpid())));
  auto bus = Bus::open(on_domain(0), "mock");
  REQUIRE(bus);
  const auto type = structure("t", {{"x", primitive(Kind::octet), false, ""}});
  auto writer = (*bus)->writer("a", type);
  REQUIRE(writer);
  const std::array<std::byte, 5> sample{std::byte{0}, std::byte{1}};
  const auto written = (*writer)->write(sample);
  REQUIRE(!written);
  CHECK(has(written.error().what, "of the type i, which is no std::exception"));
  CHECK(has((*writer)->dispose(sample).error().what, "no dispose"));
  CHECK((*writer)->counts().samples == 0);
  CHECK(has((*bus)->reader("a", type).error().what, "no reader today"));
  CHECK(has((*bus)->waiter().error().what, "returned no object"));
}

TEST_CASE("registry: a reader and a waiter may go at once: no reader does while a waiter that knows it ends") {
  run_alone("alone: both go", SONDE_TEST_BUS_MODULES);
}
TEST_CASE("alone: both go" * doctest::skip()) {
  auto bus = Bus::open(on_domain(4), "mock");
  REQUIRE(bus);
  const auto type = structure("t", {{"x", primitive(Kind::octet), false, ""}});
  auto writer = (*bus)->writer("a", type);
  auto reader = (*bus)->reader("a", type);
  auto waiter = (*bus)->waiter();
  REQUIRE(writer);
  REQUIRE(reader);
  REQUIRE(waiter);
  REQUIRE((*waiter)->attach(**reader, 1));
  std::thread ends([&] { waiter->reset(); });
  const Deadline deadline = Deadline::in_s(20);
  while (!(*writer)->status().alive && !deadline.passed()) std::this_thread::yield();
  CHECK((*writer)->status().alive);
  reader->reset();
  ends.join();
  CHECK((*writer)->status().lost == 0);
}

TEST_CASE(
    "registry: an interface that others reach is refused as the bus is opened, and so are files that are not there") {
  run_alone("alone: exposed", SONDE_TEST_BUS_MODULES);
}
TEST_CASE("alone: exposed" * doctest::skip()) {
  Profile profile;
  profile.transport.interfaces = {"nosuch0"};
  CHECK(Bus::open(profile, "mock").error().code == "bus.unknown_interface");
  profile.transport.interfaces = {"127.0.0.1"};
  CHECK(Bus::open(profile, "mock"));
  profile.security = Security{"/nonexistent/ca.pem", "b", "c", "d", "e", "f"};
  const auto missing = Bus::open(profile, "mock");
  REQUIRE(!missing);
  CHECK(missing.error().code == "bus.no_file");
  CHECK(has(missing.error().what, "/nonexistent/ca.pem"));
}

TEST_CASE("registry: the implementation is the argument's, the profile's, SONDE_BUS's") {
  run_alone("alone: which", SONDE_TEST_BUS_MODULES);
}
TEST_CASE("alone: which" * doctest::skip()) {
  Profile profile;
  unsetenv("SONDE_BUS");
  const auto opened = [&](std::string_view argument = {}) {
    auto bus = Bus::open(profile, argument);
    return bus ? (*bus)->implementation() : bus.error().what;
  };
  setenv("SONDE_BUS", "null", 1);
  CHECK(opened() == "null");
  CHECK(opened("mock") == "mock");
  profile.implementation = "mock";
  CHECK(opened() == "mock");
  CHECK(opened("null") == "null");
  profile.implementation = "";
  setenv("SONDE_BUS", "fastdd", 1);
  CHECK(has(opened(), "SONDE_BUS: there is no implementation 'fastdd' (nearest: fastdds)"));
  setenv("SONDE_BUS", "", 1);
  const std::string standard = opened();
  CHECK((standard == "cyclonedds" || has(standard, "cyclonedds")));
}
