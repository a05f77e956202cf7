#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bus/profile.hpp"

using namespace sonde;
using namespace sonde::bus;

namespace {

const std::string with_types =
    R"(<types><struct name="t::Power"><field name="node" type="string" key="yes"/><field name="power_w" type="double" unit="W"/></struct></types>)";

std::string around(const std::string& body, const std::string& attributes = "") {
  return "<sonde-bus version=\"1\">\n<profile name=\"p\" " + attributes + ">\n" + body + "\n</profile>\n</sonde-bus>\n";
}

Profile parsed(const std::string& xml, std::string_view name = "") {
  auto profile = parse_profile(xml, name, ".", "bus.xml");
  REQUIRE_MESSAGE(profile, profile.error().what << " (" << profile.error().hint << ")");
  return *profile;
}

Error refused(const std::string& xml, std::string_view name = "") {
  auto profile = parse_profile(xml, name, ".", "bus.xml");
  REQUIRE_MESSAGE(!profile, xml.substr(0, 500));
  return profile.error();
}

/// `part` has to be in what was said, `hint` in what to do.
void refuses(const std::string& xml, std::string_view code, std::string_view part, std::string_view hint = "") {
  const Error error = refused(xml);
  CAPTURE(error.what);
  CAPTURE(error.hint);
  CHECK(error.code == code);
  CHECK(error.what.find(part) != std::string::npos);
  CHECK(error.hint.find(hint) != std::string::npos);
  CHECK(!error.hint.empty());
}

bool same(const Profile& a, const Profile& b) {
  const auto same_types = [&] {
    return a.types.size() == b.types.size() && std::all_of(a.types.begin(), a.types.end(), [&](const auto& entry) {
             const auto at = b.types.find(entry.first);
             return at != b.types.end() && equal(*entry.second, *at->second);
           });
  };
  const auto same_topics = [&] {
    return a.topics.size() == b.topics.size() && std::all_of(a.topics.begin(), a.topics.end(), [&](const auto& entry) {
             const auto at = b.topics.find(entry.first);
             return at != b.topics.end() && at->second.name == entry.second.name &&
                    at->second.type == entry.second.type && at->second.writer == entry.second.writer &&
                    at->second.reader == entry.second.reader;
           });
  };
  CHECK(a.name == b.name);
  CHECK(a.implementation == b.implementation);
  CHECK(a.domain == b.domain);
  CHECK(a.participant == b.participant);
  CHECK(a.transport == b.transport);
  CHECK(a.discovery == b.discovery);
  CHECK(a.security == b.security);
  CHECK(a.spin_s == b.spin_s);
  CHECK(a.unprotected == b.unprotected);
  return same_types() && same_topics();
}

/// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "sonde-bus-profile-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("a profile has what its XML says") {
  const Profile p = parsed(
      around(R"(
    <transport kind="udp4" multicast="all" interfaces="10.1.0.0/16 eth1" receive-buffer="1MiB" send-buffer="64kB" max-message="1400"/>
    <discovery kind="peers" peers="n001 n[002-004]:2 [fd00::1]:3" announce="500ms" lease="1min 30s"/>
    <types>
      <enum name="t::Mode"><value name="off"/><value name="low" value="5"/><value name="high"/></enum>
      <struct name="t::Power">
        <field name="node" type="string" bound="64" key="yes"/>
        <field name="power_w" type="double" unit="W"/>
        <field name="mode" type="t::Mode"/>
        <field name="cores" type="uint16" sequence="100"/>
        <field name="log" type="string" sequence="unbounded"/>
        <field name="limits" type="float" array="2"/>
      </struct>
    </types>
    <topic name="Monitor/power:1" type="t::Power" reliability="best-effort" depth="1" partitions="Node* rack-1" user-data="hello there">
      <writer latency-budget="2 ms" ownership="exclusive" strength="-3"/>
      <reader reliability="reliable" deadline="1.5 s" lifespan="forever" durability="transient-local" ownership="exclusive"/>
    </topic>)",
             R"(implementation="fastdds" domain="232" participant="node manager" spin="100us" unprotected="yes")"));
  CHECK(p.name == "p");
  CHECK(p.implementation == "fastdds");
  CHECK(p.domain == 232);
  CHECK(p.participant == "node manager");
  CHECK(p.spin_s == 100e-6);
  CHECK(parsed(around("")).spin_s < 0);
  CHECK(parsed(around("", "spin=\"never\"")).spin_s == 0);
  CHECK(parsed(around("", "spin=\"auto\"")).spin_s < 0);
  CHECK(p.unprotected);
  CHECK(p.transport.kind == TransportKind::udp4);
  CHECK(p.transport.multicast == Multicast::all);
  CHECK(p.transport.interfaces == std::vector<std::string>{"10.1.0.0/16", "eth1"});
  CHECK(p.transport.receive_buffer_bytes == 1u << 20);
  CHECK(p.transport.send_buffer_bytes == 64000);
  CHECK(p.transport.max_message_bytes == 1400);
  CHECK(p.discovery.kind == DiscoveryKind::peers);
  CHECK(p.discovery.peers == std::vector<std::string>{"n001", "n002:2", "n003:2", "n004:2", "[fd00::1]:3"});
  CHECK(p.discovery.announce_s == 0.5);
  CHECK(p.discovery.lease_s == 90);
  CHECK(!p.security);

  const Type& power = *p.types.at("t::Power");
  REQUIRE(power.fields.size() == 6);
  CHECK(power.fields[0].key);
  CHECK(power.fields[0].type->bound == 64);
  CHECK(power.fields[1].unit == "W");
  REQUIRE(power.fields[2].type->enumerators.size() == 3);
  CHECK(power.fields[2].type->enumerators[2].value == 6);
  CHECK(equal(*structure("x", {{"f", power.fields[3].type, false, ""}}),
              *structure("x", {{"f", sequence_of(primitive(Kind::uint16), 100), false, ""}})));
  CHECK(power.fields[4].type->kind == Kind::sequence);
  CHECK(power.fields[4].type->bound == 0);
  CHECK(power.fields[5].type->kind == Kind::array);
  CHECK(power.fields[5].type->bound == 2);

  const TopicProfile& topic = p.topics.at("Monitor/power:1");
  CHECK(topic.type == "t::Power");
  CHECK(topic.writer.reliability == Reliability::best_effort);
  CHECK(topic.writer.depth == 1);
  CHECK(topic.writer.latency_budget_s == 0.002);
  CHECK(topic.writer.strength == -3);
  CHECK(topic.writer.deadline_s == forever);
  CHECK(topic.reader.reliability == Reliability::reliable);
  CHECK(topic.reader.depth == 1);
  CHECK(topic.reader.deadline_s == 1.5);
  CHECK(topic.reader.lifespan_s == forever);
  CHECK(topic.reader.durability == Durability::transient_local);
  CHECK(topic.reader.latency_budget_s == 0);
  CHECK(topic.reader.partitions == std::vector<std::string>{"Node*", "rack-1"});
  CHECK(topic.reader.user_data == "hello there");
}

TEST_CASE("what is left out is as the headers say") {
  const Profile p = parsed(around(""));
  Profile plain;
  plain.name = "p";
  CHECK(same(p, plain));
  const Profile q = parsed(around(with_types + R"(<topic name="a" type="t::Power"/>)"));
  CHECK(q.topics.at("a").writer == Qos{});
  CHECK(q.topics.at("a").reader == Qos{});
}

TEST_CASE("who a program is, its environment may say") {
  const auto certificate = [](const char* security) {
    ::setenv("SONDE_BUS_IDENTITY", "operator", 1);
    const Profile p = parsed(around(security));
    ::unsetenv("SONDE_BUS_IDENTITY");
    REQUIRE(p.security);
    return p.security->certificate;
  };
  CHECK(certificate(R"(<security folder="/etc/keys" identity="node-manager"/>)") == "/etc/keys/operator/cert.pem");
  CHECK(certificate(R"(<security folder="/etc/keys"/>)") == "/etc/keys/operator/cert.pem");
  CHECK(certificate(R"(<security folder="/etc/keys" identity="node-manager" certificate="/own.pem"/>)") == "/own.pem");
  for (const char* bad : {"../x", ".x", "a b"}) {
    ::setenv("SONDE_BUS_IDENTITY", bad, 1);
    const Error why = refused(around(R"(<security folder="/etc/keys" identity="node-manager"/>)"));
    ::unsetenv("SONDE_BUS_IDENTITY");
    CHECK(why.code == "bus.bad_profile");
    CHECK(why.what.find("SONDE_BUS_IDENTITY") != std::string::npos);
  }
}

TEST_CASE("security is six files, or a folder and who in it") {
  const Profile p =
      parsed(around(R"(<security folder="/etc/keys" identity="node-manager" private-key="/root/key.pem"/>)"));
  REQUIRE(p.security);
  CHECK(p.security->identity_ca == "/etc/keys/identity_ca.pem");
  CHECK(p.security->permissions_ca == "/etc/keys/permissions_ca.pem");
  CHECK(p.security->governance == "/etc/keys/governance.p7s");
  CHECK(p.security->certificate == "/etc/keys/node-manager/cert.pem");
  CHECK(p.security->private_key == "/root/key.pem");
  CHECK(p.security->permissions == "/etc/keys/node-manager/permissions.p7s");
  auto beside = parse_profile(around(R"(<security folder="keys" identity="a"/>)"), "", "/etc/sonde");
  REQUIRE(beside);
  CHECK(beside->security->certificate == "/etc/sonde/keys/a/cert.pem");
  refuses(around(R"(<security folder="/etc/keys"/>)"), "bus.bad_profile",
          "bus.xml:3: <security> has a folder but no identity");
  refuses(around(R"(<security identity="a"/>)"), "bus.bad_profile", "an identity but no folder");
  refuses(around(R"(<security certificate="c"/>)"), "bus.bad_profile", "<security> has no identity-ca");
  refuses(around(R"(<security folder="/k" identity="../root"/>)"), "bus.bad_profile", "is not a valid identity");
  refuses(around(R"(<security folder="/k" identity=".."/>)"), "bus.bad_profile", "is not a valid identity");
  refuses(around(R"(<security folder="/k" identity="i"/>)", "domain=\"231\""), "bus.bad_profile",
          "domain 231 cannot be secured: DDS Security is defined for domains 0 to 230", "choose one of these");
}

TEST_CASE("what is not known is named, with its line, what is near and what there is") {
  refuses(around("<transport kind=\"udp4\"\n  interface=\"eth0\"/>"), "bus.unknown_key",
          "bus.xml:4: <transport> has no attribute 'interface' (nearest: interfaces)", "kind, multicast, interfaces");
  refuses(around("\n\n<transprot kind=\"udp4\"/>"), "bus.unknown_key",
          "bus.xml:5: <profile> has no element 'transprot' (nearest: transport)",
          "it has: transport, discovery, security, types, topic");
  refuses(around("<transport kind=\"UDP4\"/>"), "bus.bad_profile",
          "bus.xml:3: <transport> kind: 'UDP4' is unknown (nearest: udp4)", "allowed: udp4, udp6, tcp4, shared-memory");
  refuses(around("", "dmain=\"3\""), "bus.unknown_key",
          "bus.xml:2: <profile> has no attribute 'dmain' (nearest: domain)");
  refuses(around(with_types + R"(<topic name="a" type="t::Power" reliabilty="reliable"/>)"), "bus.unknown_key",
          "'reliabilty' (nearest: reliability)");
  refuses(around(with_types + R"(<topic name="a" type="t::Power"><writer reliability="besteffort"/></topic>)"),
          "bus.bad_profile", "<writer> reliability: 'besteffort' is unknown (nearest: best-effort)");
  refuses(around(with_types + R"(<topic name="a" type="t::power"/>)"), "bus.bad_profile",
          "there is no structure 't::power' (nearest: t::Power)", "t::Power");
  refuses(around(with_types + R"(<topic name="a" type="t::Power"><field name="x" type="octet"/></topic>)"),
          "bus.unknown_key", "<topic> has no element 'field'", "<field> belongs in <struct>");
  refuses(around(R"(<types><struct name="S"><field name="x" type="dubble"/></struct></types>)"), "bus.bad_profile",
          "'dubble' is not declared before this field (nearest: double)");
  refuses("<sonde-bus version=\"1\" language=\"en\"><profile name=\"p\"/></sonde-bus>", "bus.unknown_key",
          "bus.xml:1: <sonde-bus> has no attribute 'language'");
  refuses("<dds version=\"1\"/>", "bus.unknown_key", "the first element is 'dds'", "<sonde-bus version=\"1\">");
  refuses(around("<transport kind=\"udp4\"><locator/></transport>"), "bus.unknown_key",
          "<transport> has no element 'locator'", "it has no elements");
}

TEST_CASE("values out of bounds are named, with what is allowed") {
  const auto topic = [](const std::string& qos) {
    return around(with_types + "<topic name=\"a\" type=\"t::Power\" " + qos + "/>");
  };
  refuses(around("", "domain=\"233\""), "bus.bad_profile", "<profile> domain: '233'", "0 to 232");
  refuses(around("", "domain=\"-1\""), "bus.bad_profile", "'-1'");
  refuses(around("", "domain=\"1.5\""), "bus.bad_profile", "'1.5'");
  refuses(around("", "unprotected=\"true\""), "bus.bad_profile", "'true' is unknown", "yes, no");
  for (const char* wrong : {"spin=\"yes\"", "spin=\"1s\"", "spin=\"-1us\""})
    refuses(around("", wrong), "bus.bad_profile", "not a valid time to poll", "100us");
  refuses(around("<transport kind=\"udp4\" receive-buffer=\"1M\"/>"), "bus.bad_profile", "ambiguous", "1MiB");
  refuses(around("<transport kind=\"udp4\" receive-buffer=\"100\"/>"), "bus.bad_profile",
          "outside of the allowed range", "1 KiB");
  refuses(around("<transport kind=\"udp4\" max-message=\"70000\"/>"), "bus.bad_profile", "outside of the allowed range",
          "65500 B");
  refuses(around("<transport kind=\"tcp4\" port=\"65536\"/>"), "bus.bad_profile", "'65536'", "1 to 65535");
  refuses(around("<transport/>"), "bus.bad_profile", "<transport> has no kind; allowed: udp4", "kind=\"udp4\"");
  refuses(around("<discovery kind=\"simple\" lease=\"0s\"/>"), "bus.bad_profile", "lease of 0s");
  refuses(around("<discovery kind=\"simple\" lease=\"5\" announce=\"5s\"/>"), "bus.bad_profile", "too seldom");
  refuses(around("<discovery kind=\"simple\" lease=\"forever\"/>"), "bus.bad_profile", "<discovery> lease");
  refuses(topic("depth=\"0\""), "bus.bad_profile", "<topic> depth: '0'");
  refuses(topic("depth=\"2147483648\""), "bus.bad_profile", "'2147483648'");
  refuses(topic("deadline=\"0s\""), "bus.bad_profile", "deadline of 0s");
  refuses(topic("deadline=\"soon\""), "bus.bad_profile", "'soon'", "or forever");
  refuses(topic("latency-budget=\"forever\""), "bus.bad_profile", "latency-budget");
  refuses(topic("max-samples=\"5\""), "bus.bad_profile", "max-samples needs history keep-all");
  refuses(topic("strength=\"5\""), "bus.bad_profile", "strength needs ownership exclusive");
  refuses(topic("partitions=\"Node[0-9]\""), "bus.bad_profile", "'Node[0-9]'");
  refuses(topic("user-data=\"" + std::string(213, 'x') + "\""), "bus.bad_profile", "213 B", "212");
  CHECK(parsed(topic("user-data=\"" + std::string(212, 'x') + "\"")).topics.at("a").writer.user_data.size() == 212);
  refuses(around(with_types + "<topic name=\"a b\" type=\"t::Power\"/>"), "bus.bad_name", "'a b'", "letters");
  refuses(around(with_types + "<topic name=\"" + std::string(256, 'a') + "\" type=\"t::Power\"/>"), "bus.bad_profile",
          "256 B");
  refuses("<sonde-bus version=\"2\"><profile name=\"p\"/></sonde-bus>", "bus.bad_profile", "<sonde-bus> version: '2'");
  refuses("<sonde-bus><profile name=\"p\"/></sonde-bus>", "bus.bad_profile", "<sonde-bus> has no version");
}

TEST_CASE("what excludes each other is told") {
  refuses(around("<transport kind=\"tcp4\" multicast=\"all\"/>"), "bus.bad_profile",
          "multicast=\"all\" needs udp4 or udp6");
  refuses(around("<transport kind=\"udp4\" port=\"7000\"/>"), "bus.bad_profile", "only tcp4 has a port");
  refuses(around("<transport kind=\"shared-memory\" interfaces=\"eth0\"/>"), "bus.bad_profile",
          "shared memory has no interfaces");
  refuses(around("<discovery kind=\"simple\" peers=\"n1\"/>"), "bus.bad_profile",
          "peers belongs to discovery kind=\"peers\"");
  refuses(around("<discovery kind=\"peers\"/>"), "bus.bad_profile", "needs a list of peers", "localhost:8");
  refuses(around("<discovery kind=\"peers\" peers=\"n1:121\"/>"), "bus.bad_profile", "121 participants");
  refuses(around("<discovery kind=\"peers\" peers=\"n1:x\"/>"), "bus.bad_profile", "'n1:x'");
  refuses(around("<discovery kind=\"server\"/>"), "bus.bad_profile", "needs a list of servers");
  refuses(around("<discovery kind=\"server\" servers=\"n1\"/>"), "bus.bad_profile", "'n1' has no port", "n1:11811");
  refuses(around("<discovery kind=\"server\" servers=\"n1:11811\" backup=\"b\"/>"), "bus.bad_profile",
          "only a discovery server has a backup file");
  refuses(around("<discovery kind=\"peers\" peers=\"n1\" serve=\"yes\"/>"), "bus.bad_profile",
          "serve belongs to discovery kind=\"server\"");
  refuses(
      around(
          "<types><struct name=\"S\"><field name=\"x\" type=\"octet\" array=\"2\" sequence=\"3\"/></struct></types>"),
      "bus.bad_profile", "is an array and a sequence");
  refuses(around("<types><struct name=\"S\"><field name=\"x\" type=\"octet\" bound=\"2\"/></struct></types>"),
          "bus.bad_profile", "bound", "sequence=\"2\"");
}

TEST_CASE("twice is once too often") {
  refuses(around("<transport kind=\"udp4\"/><transport kind=\"udp4\"/>"), "bus.bad_profile",
          "<profile> has <transport> twice");
  refuses(around("<transport kind=\"udp4\" kind=\"udp6\"/>"), "bus.bad_profile", "<transport> has kind twice");
  refuses(around(with_types + "<topic name=\"a\" type=\"t::Power\"/><topic name=\"a\" type=\"t::Power\"/>"),
          "bus.bad_profile", "the topic a is declared twice");
  refuses(around(with_types + "<topic name=\"a\" type=\"t::Power\"><reader/><reader/></topic>"), "bus.bad_profile",
          "<topic> has <reader> twice");
  refuses(around(with_types + "<types><struct name=\"t::Power\"><field name=\"x\" type=\"octet\"/></struct></types>"),
          "bus.bad_profile", "'t::Power' is declared twice, with different fields");
  CHECK(parsed(around(with_types + with_types)).types.size() == 1);
  refuses("<sonde-bus version=\"1\"><profile name=\"p\"/><profile name=\"p\"/></sonde-bus>", "bus.bad_profile",
          "the profile p is defined twice");
}

TEST_CASE("one of several profiles is chosen by its name; what stands beside them belongs to all") {
  const std::string two = "<sonde-bus version=\"1\">" + with_types +
                          "<topic name=\"all\" type=\"t::Power\"/><profile name=\"node\" domain=\"1\"><topic "
                          "name=\"own\" type=\"t::Power\"/></profile><profile name=\"manager\" domain=\"2\"/>";
  CHECK(parsed(two + "</sonde-bus>", "node").domain == 1);
  CHECK(parsed(two + "</sonde-bus>", "manager").domain == 2);
  CHECK(parsed(two + "</sonde-bus>", "node").topics.size() == 2);
  CHECK(parsed(two + "</sonde-bus>", "manager").topics.size() == 1);
  CHECK(parsed(two + "<profile name=\"default\" domain=\"3\"/></sonde-bus>").domain == 3);
  CHECK(refused(two + "</sonde-bus>").code == "bus.no_profile");
  CHECK(refused(two + "</sonde-bus>").hint.find("manager, node") != std::string::npos);
  const auto mistyped = refused(two + "</sonde-bus>", "nod");
  CHECK(mistyped.code == "bus.no_profile");
  CHECK(mistyped.what.find("(nearest: node)") != std::string::npos);
  CHECK(refused("<sonde-bus version=\"1\"/>").code == "bus.no_profile");
  // an error in the profile that was not asked for is an error of the file
  CHECK(!parse_profile(two + "<profile name=\"bad\" domain=\"999\"/></sonde-bus>", "node"));
}

TEST_CASE("what is no XML is refused, with the line") {
  refuses("", "bus.bad_profile", "has no element");
  refuses("nothing", "bus.bad_profile", "text outside of the elements");
  refuses("<sonde-bus version=\"1\">\n<profile name=\"p\">\n</sonde-bus>", "bus.bad_profile",
          "bus.xml:3: not valid XML");
  refuses("<sonde-bus version=\"1\"", "bus.bad_profile", "not valid XML");
  refuses("<sonde-bus version=\"1\"><profile name=\"p\"/></sonde-bus><sonde-bus version=\"1\"/>", "bus.bad_profile",
          "a second element");
  refuses(around("some text"), "bus.bad_profile", "<profile> has text: ");
  refuses(around("<![CDATA[some text]]>"), "bus.bad_profile", "<profile> has text: 'some text'");
  refuses(around(std::string("a\0b", 3)), "bus.bad_profile", "NUL");
  for (const char* bytes :
       {"\xff", "\xc3", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\x80"})
    refuses(around("<!-- " + std::string(bytes) + " -->"), "bus.bad_profile", "UTF-8");
  refuses(around("", "participant=\"a&#10;b\""), "bus.bad_profile", "control character");
  CHECK(parsed("\xef\xbb\xbf<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- & &x; -->" +
               around("<!-- <transprot/> -->", "participant=\"&lt;&amp;&#233;\u20ac\U0001f600\""))
            .participant == "<&\u00e9\u20ac\U0001f600");
}

TEST_CASE("hostile XML is refused, or harmless") {
  const std::string bomb = "<!DOCTYPE a [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>\n";
  const Error expanded = refused(bomb + around("", "participant=\"&b;\""));
  CHECK(expanded.code == "bus.bad_profile");
  refuses("<!DOCTYPE a SYSTEM \"file:///etc/passwd\">" + around(""), "bus.bad_profile", "a DOCTYPE is not allowed");
  refuses(around("", "participant=\"&xxe;\""), "bus.bad_profile", "bus.xml:2: the entity &xxe is unknown");
  refuses(around("", "participant=\"a & b\""), "bus.bad_profile", "entity");
  std::string deep;
  for (int k = 0; k < 100000; ++k) deep += "<a>";
  CHECK(refused(around(deep)).code == "bus.bad_profile");
  for (int k = 0; k < 100000; ++k) deep += "</a>";
  refuses(around(deep), "bus.unknown_key", "<profile> has no element 'a'");
  refuses(around("", "participant=\"" + std::string(900000, 'x') + "\""), "bus.bad_profile", "900000 B");
  refuses(around("<transport kind=\"udp4\" " + std::string(500000, 'k') + "=\"1\"/>"), "bus.unknown_key",
          "<transport> has no attribute 'kkkk");
  CHECK(refused(around("<transport kind=\"udp4\" " + std::string(500000, 'k') + "=\"1\"/>")).what.size() < 300);
  refuses(around("<!--" + std::string(2 << 20, 'x') + "-->"), "bus.bad_profile", "allowed: up to 1 MiB");
  refuses(around("<discovery kind=\"peers\" peers=\"n[1-60000]\"/>"), "bus.bad_profile", "more than 4096 peers");
  refuses(around("<discovery kind=\"peers\" peers=\"n[1-1000000000]\"/>"), "bus.bad_profile", "<discovery> peers");
  std::string many;
  for (int k = 0; k < 65; ++k) many += "p" + std::to_string(k) + " ";
  refuses(around("<transport kind=\"udp4\" interfaces=\"" + many + "\"/>"), "bus.bad_profile", "65 words");
}

TEST_CASE("no cut or changed profile does more than be refused") {
  const std::string whole = around(
      with_types +
      R"(<transport kind="udp4" interfaces="eth0"/><discovery kind="peers" peers="n[1-4]:2" lease="5s"/><topic name="a" type="t::Power" depth="3"><writer deadline="1s"/></topic><!-- c --><security folder="k" identity="i"/>)");
  REQUIRE(parse_profile(whole));
  std::size_t refusals = 0;
  for (std::size_t n = 0; n < whole.size(); ++n) refusals += !parse_profile(whole.substr(0, n));
  CHECK(refusals >= whole.size() - 1);  // the last byte is a line's end
  std::mt19937 random(7);
  std::size_t accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string changed = whole;
    for (unsigned k = 0; k <= random() % 4; ++k) changed[random() % changed.size()] = static_cast<char>(random());
    const auto profile = parse_profile(changed);
    if (profile) ++accepted;
    else CHECK(!profile.error().hint.empty());
  }
  MESSAGE("of 3000 changed profiles ", accepted, " still were profiles");
  CHECK(accepted < 3000);
}

TEST_CASE("a profile's XML makes the same profile") {
  const auto round_trip = [](const Profile& profile) {
    const std::string xml = to_xml(profile);
    CAPTURE(xml);
    CHECK(same(parsed(xml), profile));
    CHECK(to_xml(parsed(xml)) == xml);
  };
  round_trip(Profile{});
  Profile p;
  p.name = "all";
  p.implementation = "cyclonedds";
  p.domain = 42;
  p.participant = "a <b> & \"c\" 'd' \u00e9";
  p.unprotected = true;
  p.transport = {TransportKind::tcp4, Multicast::none, {"eth0", "10.0.0.0/8"}, 123457, 65537, 1400, 7400};
  p.discovery = {DiscoveryKind::server, {}, {"n1:11811", "[fd00::1]:11811"}, true, "/var/lib/sonde/backup.db", 0.1,
                 0.30000000000000004};
  p.security = Security{"/a", "/b", "/c", "/d", "/e", "/f"};
  Qos writer;
  writer.reliability = Reliability::best_effort;
  writer.max_blocking_s = forever;
  writer.durability = Durability::transient_local;
  writer.history = History::keep_all;
  writer.max_samples = 7;
  writer.deadline_s = 1e-9;
  writer.lifespan_s = 1.0 / 3;
  writer.latency_budget_s = 0.0020000000000000005;
  writer.liveliness = Liveliness::manual_by_topic;
  writer.lease_s = 36525.0 * 86400;
  writer.ownership = Ownership::exclusive;
  writer.strength = -2147483647 - 1;
  writer.order_by_source = true;
  writer.partitions = {"a*", "b?/c"};
  writer.user_data = "x=1 y=2";
  const auto inner = structure("t::Inner", {{"x", primitive(Kind::octet), false, ""}});
  const auto mode = enumeration("t::Mode", {{"off", 0}, {"on", 5}});
  const auto outer = structure("t::Outer", {{"name", string_type(), true, ""},
                                            {"in", sequence_of(inner, 4), false, ""},
                                            {"mode", mode, false, ""},
                                            {"w", primitive(Kind::float64), false, "W"}});
  p.types = {{"t::Inner", inner}, {"t::Outer", outer}, {"t::Mode", mode}};
  p.topics["same"] = {"same", "t::Outer", writer, writer};
  p.topics["differ"] = {"differ", "t::Inner", writer, Qos{}};
  p.topics["plain"] = {"plain", "t::Inner", {}, {}};
  round_trip(p);
}

TEST_CASE("a profile made in a program is held to the same") {
  const auto wrong = [](const std::function<void(Profile&)>& change) {
    Profile p;
    p.types["t"] = structure("t", {{"x", primitive(Kind::octet), false, ""}});
    p.topics["a"] = {"a", "t", {}, {}};
    REQUIRE(check(p));
    change(p);
    const auto refusal = check(p);
    return refusal ? std::string() : refusal.error().code;
  };
  CHECK(wrong([](Profile& p) { p.domain = 233; }) == "bus.bad_profile");
  CHECK(wrong([](Profile& p) { p.name = ""; }) == "bus.bad_profile");
  CHECK(wrong([](Profile& p) { p.participant = "a\nb"; }) == "bus.bad_profile");
  CHECK(wrong([](Profile& p) { p.security = Security{}; }) == "bus.bad_profile");
  CHECK(wrong([](Profile& p) { p.types["u"] = p.types["t"]; }) == "bus.bad_profile");
  CHECK(wrong([](Profile& p) { p.types["t"] = nullptr; }) == "bus.bad_profile");
  CHECK(wrong([](Profile& p) { p.types["t"] = structure("t", {}); }) == "bus.bad_type");
  CHECK(wrong([](Profile& p) { p.topics["a"].type = "u"; }) == "bus.bad_profile");
  CHECK(wrong([](Profile& p) { p.topics["b c"] = p.topics["a"]; }) == "bus.bad_name");
  CHECK(wrong([](Profile& p) { p.topics["b"] = p.topics["a"]; }) == "bus.bad_profile");
  CHECK(wrong([](Profile& p) { p.topics["a"].reader.depth = 0; }) == "bus.bad_qos");
  CHECK(wrong([](Profile& p) { p.topics["a"].reader.deadline_s = std::nan(""); }) == "bus.bad_qos");
  CHECK(wrong([](Profile& p) { p.topics["a"].reader.partitions = {""}; }) == "bus.bad_qos");
  CHECK(wrong([](Profile& p) { p.topics["a"].writer.user_data = std::string("a\0b", 3); }) == "bus.bad_qos");
  CHECK(wrong([](Profile& p) { p.discovery.lease_s = forever; }) == "bus.bad_profile");
}

TEST_CASE("files are read beside the profile, and told when they are not there") {
  const Folder folder;
  folder.write("power.idl", "module t { struct Power { @key string node; @unit(\"W\") double power_w; }; };");
  const std::string body =
      "<types idl=\"power.idl\"/><discovery kind=\"server\" servers=\"localhost:11811\" serve=\"yes\" "
      "backup=\"b.db\"/><security folder=\"keys\" identity=\"i\"/><topic name=\"a\" type=\"t::Power\"/>";
  auto loaded = load_profile(folder.write("bus.xml", around(body)));
  REQUIRE_MESSAGE(loaded, loaded.error().what);
  CHECK(equal(*loaded->types.at("t::Power"), *parsed(around(with_types)).types.at("t::Power")));
  CHECK(loaded->discovery.backup == folder.path() + "/b.db");
  CHECK(loaded->security->certificate == folder.path() + "/keys/i/cert.pem");

  const auto missing = load_profile(folder.path() + "/none.xml");
  REQUIRE(!missing);
  CHECK(missing.error().code == "bus.no_file");
  CHECK(missing.error().what.find("none.xml") != std::string::npos);
  CHECK(load_profile(folder.path()).error().code == "bus.no_file");
  REQUIRE(mkfifo((folder.path() + "/fifo").c_str(), 0600) == 0);
  CHECK(load_profile(folder.path() + "/fifo").error().code == "bus.no_file");
  const auto no_idl = load_profile(folder.write("c.xml", around("\n<types idl=\"nowhere.idl\"/>")));
  REQUIRE(!no_idl);
  CHECK(no_idl.error().code == "bus.no_file");
  CHECK(no_idl.error().what.find("c.xml:4: ") != std::string::npos);
  folder.write("bad.idl", "module t {\n struct Power { union u; };\n};");
  const auto bad_idl = load_profile(folder.write("d.xml", around("<types idl=\"bad.idl\"/>")));
  REQUIRE(!bad_idl);
  CHECK(bad_idl.error().code == "bus.bad_idl");
  CHECK(bad_idl.error().what.find("bad.idl:2") != std::string::npos);
}

TEST_CASE("types may stand in the profile as IDL") {
  const Profile p =
      parsed(around("<types><idl><![CDATA[struct S { sequence<double> x; };]]></idl><idl>struct T { "
                    "sequence&lt;long&gt; x; };</idl></types><topic name=\"a\" type=\"S\"/>"));
  CHECK(p.types.size() == 2);
  CHECK(p.types.at("S")->fields[0].type->element->kind == Kind::float64);
  const Error bad = refused(around("<types><idl>struct S { nothing x; };</idl></types>"));
  CHECK(bad.code == "bus.bad_idl");
  refuses(around("<types><idl>struct S { <b/> };</idl></types>"), "bus.unknown_key", "<idl> has no element 'b'",
          "CDATA");
}

TEST_CASE("the manual and the parser know the same elements, attributes and words") {
  std::ifstream file(std::string(SONDE_TEST_DATA) + "/../../docs/reference/bus-profile.md");
  REQUIRE(file);
  std::stringstream all;
  all << file.rdbuf();
  const std::string page = all.str();
  // Of each section "## <name>" (or several names): the first cells of its tables, and those rows.
  std::map<std::string, std::map<std::string, std::string>> sections;
  std::vector<std::string> now;
  std::stringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## ")) {
      now.clear();
      const std::regex element("`<([a-z-]+)>`");
      for (std::sregex_iterator at(line.begin(), line.end(), element), end; at != end; ++at) {
        now.push_back((*at)[1]);
        sections[(*at)[1]];
      }
    }
    std::smatch row;
    if (std::regex_search(line, row, std::regex("^\\| `([a-z-]+)`")))
      for (const auto& name : now) sections[name][row[1]] = line;
  }
  const auto elements = profile_elements();
  CHECK(elements.size() >= 14);
  std::set<std::string> known;
  for (const auto& element : elements) {
    CAPTURE(element.name);
    known.insert(element.name);
    REQUIRE(sections.contains(element.name));
    std::set<std::string> attributes;
    for (const auto& attribute : element.attributes) {
      CAPTURE(attribute.name);
      attributes.insert(attribute.name);
      REQUIRE(sections[element.name].contains(attribute.name));
      const std::string& row = sections[element.name][attribute.name];
      for (const auto& value : attribute.values)
        CHECK_MESSAGE(row.find("`" + value + "`") != std::string::npos, value, " is not in: ", row);
      CHECK_MESSAGE((row.find("required") != std::string::npos) == attribute.required, row);
    }
    for (const auto& [name, row] : sections[element.name])
      CHECK_MESSAGE(attributes.contains(name), "the page has ", name);
  }
  for (const auto& [name, rows] : sections) CHECK_MESSAGE(known.contains(name), "the page has <", name, ">");
}

TEST_CASE("the examples of the manual are profiles") {
  std::ifstream file(std::string(SONDE_TEST_DATA) + "/../../docs/reference/bus-profile.md");
  std::stringstream all;
  all << file.rdbuf();
  const std::string page = all.str();
  const Folder folder;
  folder.write("power.idl", "module regale { struct NodeTelemetry { @key string node; double power_w; }; };");
  std::size_t examples = 0;
  const std::regex block("```xml\n([^`]*)```");
  for (std::sregex_iterator at(page.begin(), page.end(), block), end; at != end; ++at) {
    std::string text = (*at)[1];
    if (text.find("<sonde-bus") == std::string::npos) text = around(text);
    const std::string path = folder.write("example.xml", text);
    auto any = load_profile(path);
    if (!any && any.error().code == "bus.no_profile") any = load_profile(path, "node");
    CHECK_MESSAGE(any, any.error().what);
    ++examples;
  }
  CHECK(examples >= 2);
}
