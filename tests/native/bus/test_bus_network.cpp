#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "bus/network.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

/// A machine that has a bit of everything.
const std::vector<Address> machine{
    {"lo", "127.0.0.1", false, true, false, 1, 8},
    {"eth0", "10.1.2.3", false, false, false, 2, 16},
    {"eth0", "10.9.2.3", false, false, false, 2, 24},
    {"ib0", "192.168.7.1", false, false, false, 3, 24},
    {"lo", "::1", true, true, false, 1, 128},
    {"eth0", "fd00::3", true, false, false, 2, 64},
    {"eth0", "fe80::a:b", true, false, true, 2, 64},
    {"wg0", "fe80::c:d", true, false, true, 4, 64},
    {"v4only", "172.16.0.1", false, false, false, 5, 20},
};

Transport over(TransportKind kind, std::vector<std::string> words) {
  Transport transport;
  transport.kind = kind;
  transport.interfaces = std::move(words);
  return transport;
}

std::vector<std::string> chosen(TransportKind kind, std::vector<std::string> words) {
  const auto found = chosen_addresses(over(kind, std::move(words)), machine);
  REQUIRE_MESSAGE(found, found.error().what);
  std::vector<std::string> texts;
  for (const auto& a : *found) texts.push_back(a.scoped());
  return texts;
}

Error refused(TransportKind kind, const std::string& word) {
  const auto found = chosen_addresses(over(kind, {word}), machine);
  REQUIRE(!found);
  return found.error();
}

bool has(const std::string& text, std::string_view part) {
  if (text.find(part) != std::string::npos) return true;
  MESSAGE("said: ", text);
  return false;
}

using Texts = std::vector<std::string>;
constexpr auto udp4 = TransportKind::udp4, udp6 = TransportKind::udp6, tcp4 = TransportKind::tcp4;

}  // namespace

TEST_CASE("names, addresses and networks mean this machine's addresses, each once and in the order of the words") {
  CHECK(chosen(udp4, {}) == Texts{"127.0.0.1"});
  CHECK(chosen(udp6, {}) == Texts{"::1"});
  CHECK(chosen(tcp4, {}) == Texts{"127.0.0.1"});
  CHECK(chosen(TransportKind::shared_memory, {}).empty());
  CHECK(chosen(udp4, {"eth0"}) == Texts{"10.1.2.3", "10.9.2.3"});
  CHECK(chosen(udp4, {"10.1.0.0/16"}) == Texts{"10.1.2.3"});
  CHECK(chosen(udp4, {"10.1.2.3"}) == Texts{"10.1.2.3"});
  CHECK(chosen(udp4, {"ib0", "10.0.0.0/8", "eth0"}) == Texts{"192.168.7.1", "10.1.2.3", "10.9.2.3"});
  CHECK(chosen(udp4, {"0.0.0.0/0"}).size() == 5);
}

TEST_CASE("of IPv6, addresses that need a scope are taken only where they are named, or there is nothing else") {
  CHECK(chosen(udp6, {"eth0"}) == Texts{"fd00::3"});
  CHECK(chosen(udp6, {"fd00::/8"}) == Texts{"fd00::3"});
  CHECK(chosen(udp6, {"::/0"}) == Texts{"::1", "fd00::3"});
  CHECK(chosen(udp6, {"wg0"}) == Texts{"fe80::c:d%wg0"});
  CHECK(chosen(udp6, {"fe80::a:b"}) == Texts{"fe80::a:b%eth0"});
  CHECK(chosen(udp6, {"FD00:0:0::3"}) == Texts{"fd00::3"});
}

TEST_CASE("a word that means nothing here is told, with what there is") {
  const auto mistyped = refused(udp4, "eht0");
  CHECK(mistyped.code == "bus.unknown_interface");
  CHECK(has(mistyped.what, "there is no interface 'eht0' on this machine that is up (nearest: eth0)"));
  CHECK(has(mistyped.hint, "eth0 (10.1.2.3/16)"));
  CHECK(has(mistyped.hint, "ib0 (192.168.7.1/24)"));
  CHECK(mistyped.hint.find("fd00") == std::string::npos);
  CHECK(has(refused(udp4, "10.2.0.0/16").what, "has an address in 10.2.0.0/16"));
  CHECK(has(refused(udp4, "10.2.0.1").what, "has the address 10.2.0.1"));
  CHECK(has(refused(udp6, "v4only").what, "the interface v4only has no address of IPv6"));
  CHECK(has(refused(udp6, "10.1.2.3").what, "is of IPv4, the transport is of IPv6"));
  CHECK(has(refused(udp4, "fd00::/8").what, "is of IPv6, the transport is of IPv4"));
}

TEST_CASE("what is no name, address or network is told") {
  for (const char* word : {"10.1.0.0/33", "10.1.0.0/", "10.1.0.0/x", "10.1.0.0/-1", "fd00::/129", "/8", "eth0/8", "",
                           "a-name-that-is-too-long", "fe80::1%eth0", "1:2"}) {
    CAPTURE(word);
    CHECK(refused(udp4, word).code == "bus.bad_profile");
  }
}

TEST_CASE("this machine has a loopback interface, and its words lead to it") {
  const auto here = machine_addresses();
  REQUIRE(here);
  const auto lo =
      std::find_if((*here).begin(), (*here).end(), [](const Address& a) { return a.address == "127.0.0.1"; });
  REQUIRE(lo != (*here).end());
  CHECK(lo->loopback);
  CHECK(lo->prefix == 8);
  CHECK(lo->index > 0);
  for (const std::string& word : {lo->interface, lo->address, std::string("127.0.0.0/8")}) {
    auto found = chosen_addresses(over(udp4, {word}));
    REQUIRE(found);
    CHECK(only_loopback(*found));
    CHECK(std::find(found->begin(), found->end(), *lo) != found->end());
  }
  const auto none = chosen_addresses(over(udp4, {"no-such-one"}));
  REQUIRE(!none);
  CHECK(has(none.error().hint, "127.0.0.1"));
}

TEST_CASE("only loopback is private") {
  CHECK(only_loopback({}));
  CHECK(only_loopback({machine[0], machine[4]}));
  CHECK(!only_loopback({machine[0], machine[1]}));
}

TEST_CASE("other interfaces than loopback need security, or that one says so") {
  Profile profile;
  profile.name = "open";
  CHECK(check_exposure(profile, {machine[0]}));
  const auto refusal = check_exposure(profile, {machine[0], machine[1]});
  REQUIRE(!refusal);
  CHECK(refusal.error().code == "bus.unprotected");
  CHECK(has(refusal.error().what, "eth0 (10.1.2.3)"));
  CHECK(has(refusal.error().hint, "unprotected=\"yes\""));
  profile.unprotected = true;
  CHECK(check_exposure(profile, {machine[0], machine[1]}));
  profile.unprotected = false;
  profile.security = Security{};
  CHECK(check_exposure(profile, {machine[0], machine[1]}));
}

TEST_CASE("a peer elsewhere cannot be reached from loopback alone") {
  Profile profile;
  profile.discovery.kind = DiscoveryKind::peers;
  profile.discovery.peers = {"localhost:4", "127.0.0.7", "[::1]", "n001"};
  CHECK(check_exposure(profile, {machine[0]}));
  profile.discovery.peers.push_back("10.1.2.9:2");
  const auto refusal = check_exposure(profile, {machine[0]});
  REQUIRE(!refusal);
  CHECK(has(refusal.error().what, "'10.1.2.9:2' is not on this machine"));
  profile.unprotected = true;
  CHECK(check_exposure(profile, {machine[1]}));
  profile.discovery = {};
  profile.discovery.kind = DiscoveryKind::server;
  profile.discovery.servers = {"10.1.2.9:11811"};
  CHECK(!check_exposure(profile, {machine[0]}));
}

TEST_CASE("without groups simple discovery is for one machine") {
  Profile profile;
  profile.unprotected = true;
  profile.transport.multicast = Multicast::none;
  CHECK(check_exposure(profile, {machine[0]}));
  const auto refusal = check_exposure(profile, {machine[1]});
  REQUIRE(!refusal);
  CHECK(has(refusal.error().what, "simple discovery finds nobody on other machines"));
  profile.transport.multicast = Multicast::discovery;
  CHECK(check_exposure(profile, {machine[1]}));
  profile.transport.kind = TransportKind::tcp4;
  CHECK(has(check_exposure(profile, {machine[1]}).error().what, "by kind=\"tcp4\""));
  profile.discovery.kind = DiscoveryKind::peers;
  profile.discovery.peers = {"10.1.2.9"};
  CHECK(check_exposure(profile, {machine[1]}));
}

TEST_CASE("peers are hosts or addresses, with a number where one is meant") {
  const auto parsed = [](std::string_view word) {
    auto peer = parse_peer(word);
    REQUIRE_MESSAGE(peer, word);
    return *peer;
  };
  CHECK(parsed("n001") == Peer{"n001", 0, false, false});
  CHECK(parsed("n001.cluster:4") == Peer{"n001.cluster", 4, false, false});
  CHECK(parsed("10.1.2.3:11811") == Peer{"10.1.2.3", 11811, true, false});
  CHECK(parsed("fd00::1") == Peer{"fd00::1", 0, true, true});
  CHECK(parsed("[fd00::1]:2") == Peer{"fd00::1", 2, true, true});
  CHECK(parsed("[::1]") == Peer{"::1", 0, true, true});
  for (const char* word : {"", ":4", "n001:", "n001:0", "n001:65536", "n001:-1", "n001:x", "n 1", "-n", "[10.1.2.3]:4",
                           "[fd00::1", "[fd00::1]4", "[n001]:4", "1.2.3", "10.1.2.300", "n001;rm", "a:b:c"}) {
    CAPTURE(word);
    const auto peer = parse_peer(word);
    REQUIRE(!peer);
    CHECK(peer.error().code == "bus.bad_profile");
  }
}

TEST_CASE("hosts become addresses of the transport's kind") {
  const auto address = [](const char* word, bool v6) { return address_of(*parse_peer(word), v6); };
  CHECK(*address("10.1.2.3:4", false) == "10.1.2.3");
  CHECK(*address("[fd00::1]:4", true) == "fd00::1");
  CHECK(*address("localhost", false) == "127.0.0.1");
  const auto other = address("10.1.2.3", true);
  REQUIRE(!other);
  CHECK(has(other.error().what, "is an address of IPv4, the transport is of IPv6"));
  const auto unknown = address("no-such-host.invalid", false);
  REQUIRE(!unknown);
  CHECK(unknown.error().code == "bus.unknown_host");
  CHECK(has(unknown.error().what, "no-such-host.invalid"));
}
