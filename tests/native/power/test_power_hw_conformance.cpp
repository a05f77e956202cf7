// The suite that hardware is held against, held against hardware with mistakes: each must be found.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "power/conformance/suite.hpp"
#include "power/hardware/json_value.hpp"
#include "power_tree.hpp"

using namespace sonde;
using namespace sonde::power;
using conformance::Outcome;

namespace {

/// A device that goes on between openings, as hardware does.
struct Device {
  double cap_w = 300, energy_j = 0;
  std::int64_t last_ns = now_ns();
};

/// 200 W where it may; right in all but the mistake that it is made with.
class Mistaken final : public Hardware {
 public:
  Mistaken(std::string mistake, Device& device, const HardwareSpec& spec)
      : mistake_(std::move(mistake)), device_(device), spec_(spec) {
    if (mistake_ == "own-cap") own_ = device_;
    if (mistake_ == "twice") names_.push_back("node");
    range_ = {std::max(100.0, std::isnan(spec.min_w) ? 0.0 : spec.min_w),
              std::min(300.0, std::isnan(spec.max_w) ? 1e9 : spec.max_w), true, ""};
    if (mistake_ == "wide") range_ = {100, 300, true, ""};
    if (spec.read_only && mistake_ != "writes") range_.settable = false, range_.why_not = "read_only";
    if (mistake_ == "mute") range_.settable = false;
  }
  Source source() const override { return mistake_ == "source" ? Source::redfish : Source::simulated; }
  const std::string& model() const override { return model_; }
  const std::vector<std::string>& domains() const override { return names_; }
  Range range(std::size_t) const override { return range_; }
  Result<std::vector<DomainReading>> read() override {
    auto& d = device();
    const std::int64_t now = now_ns();
    const double w = mistake_ == "disobeys" ? 200 : std::min(200.0, d.cap_w);
    d.energy_j += w * static_cast<double>(now - d.last_ns) * 1e-9;
    d.last_ns = now;
    DomainReading out;
    out.power_w = mistake_ == "negative" ? -1 : mistake_ == "silent" ? unknown : w;
    out.energy_j = mistake_ == "falls" && ++reads_ % 5 == 0 ? 0 : mistake_ == "energy" ? 2 * d.energy_j : d.energy_j;
    out.cap_w = d.cap_w;
    if (mistake_ == "short") return std::vector<DomainReading>{};
    return std::vector<DomainReading>(names_.size(), out);
  }
  Result<double> cap(std::size_t domain, double cap_w) override {
    if (domain >= names_.size() && mistake_ != "any-domain") return Error{"power.unknown_domain", "", ""};
    if (!range_.settable) return Error{"power.read_only", "", ""};
    const bool outside = !(cap_w >= range_.min_w && cap_w <= range_.max_w);
    if (outside && mistake_ == "writes-first") device().cap_w = 111;
    if (outside && mistake_ != "takes-all")
      return Error{mistake_ == "code" ? "power.wrong" : "power.out_of_range", "", ""};
    (void)read();
    device().cap_w = mistake_ == "off" ? cap_w - 5 : cap_w;
    return mistake_ == "believes" ? cap_w + 3 : device().cap_w;
  }
  Result<std::vector<Sensor>> sensors() override {
    if (mistake_ == "sensor") return std::vector<Sensor>{{"cold", SensorKind::temperature, -400}};
    return std::vector<Sensor>{};
  }
  Result<std::vector<Original>> originals() override {
    if (mistake_ == "no-originals") return std::vector<Original>{};
    return std::vector<Original>{{"node", "cap", std::to_string(device().cap_w)}};
  }
  Result<void> restore(const std::vector<Original>& originals) override {
    Result<void> out;
    for (const auto& one : originals) {
      if (one.domain == "node" && one.setting == "cap" && mistake_ != "forgets") {
        device().cap_w = std::stod(one.value);
      } else if (mistake_ != "silent-restore") {
        out = Error{"power.bad_original", one.domain, ""};
        if (mistake_ == "gives-up") return out;
      }
    }
    return out;
  }

 private:
  Device& device() { return mistake_ == "own-cap" ? own_ : device_; }
  std::string mistake_, model_ = "mistaken";
  Device& device_;
  Device own_;
  HardwareSpec spec_;
  std::vector<std::string> names_{"node"};
  Range range_;
  int reads_ = 0;
};

std::map<std::string, conformance::Case> tried(const std::string& mistake, const std::string& only) {
  Device device;
  conformance::Settings settings;
  settings.spec.kind = Source::simulated;
  settings.spec.root = "/a/folder";  // its caps are to be the hardware's
  settings.patience_s = 0.2;
  settings.only = only;
  settings.open = [&](const HardwareSpec& spec) -> Result<std::unique_ptr<Hardware>> {
    if (!spec.domains.empty() && mistake != "any-pattern")
      return Error{"power.unknown_domain", "none", mistake == "tells-none" ? "" : "there are: node"};
    return std::unique_ptr<Hardware>(new Mistaken(mistake, device, spec));
  };
  auto all = conformance::check(settings);
  std::map<std::string, conformance::Case> out;
  if (!all) {
    CHECK_MESSAGE(mistake == "forgets", all.error().what);  // nor what was there at the beginning is put back
    return out;
  }
  for (const auto& one : *all) out[one.name] = one;
  if (mistake.empty() && only.empty()) CHECK(device.cap_w == 300);
  return out;
}

}  // namespace

TEST_CASE("power conformance: who makes no mistake passes everything, and gets back what was there") {
  const auto all = tried("", "");
  CHECK(all.size() == conformance::case_names().size());
  for (const auto& [name, one] : all) CHECK_MESSAGE(one.outcome == Outcome::passed, (name + ": " + one.reason));
}

TEST_CASE("power conformance: each mistake is found") {
  const std::pair<const char*, const char*> found[] = {{"twice", "domains: each has*"},
                                                       {"source", "source:*"},
                                                       {"mute", "range:*"},
                                                       {"negative", "reading:*"},
                                                       {"silent", "reading:*"},
                                                       {"short", "reading:*"},
                                                       {"falls", "energy: it does not*"},
                                                       {"energy", "energy: it grows*"},
                                                       {"sensor", "sensors:*"},
                                                       {"any-pattern", "domains: one*"},
                                                       {"tells-none", "domains: one*"},
                                                       {"any-domain", "domains: one*"},
                                                       {"off", "cap: what is set*"},
                                                       {"believes", "cap: what is set*"},
                                                       {"takes-all", "cap: out of*"},
                                                       {"writes-first", "cap: out of*"},
                                                       {"code", "cap: out of*"},
                                                       {"own-cap", "cap: the hardware*"},
                                                       {"writes", "cap: read_only*"},
                                                       {"wide", "cap: the configuration*"},
                                                       {"disobeys", "cap: it is obeyed*"},
                                                       {"no-originals", "originals: another*"},
                                                       {"silent-restore", "originals: what is*"},
                                                       {"gives-up", "originals: what is*"}};
  for (const auto& [mistake, pattern] : found) {
    CAPTURE(mistake);
    const auto all = tried(mistake, pattern);
    REQUIRE(all.size() == 1);
    CHECK(all.begin()->second.outcome == Outcome::failed);
    CHECK(!all.begin()->second.reason.empty());
    // The same cases pass without the mistake: above.
  }
}

TEST_CASE("power conformance: a simulated node keeps its promises") {
  const PowerTree tree;
  conformance::Settings settings;
  settings.spec.kind = Source::simulated;
  settings.spec.root = tree.root;
  settings.spec.noise_w = 0.5;
  settings.spec.lag_s = 0.05;
  settings.spec.load = 1;
  auto all = conformance::check(settings);
  REQUIRE(all);
  for (const auto& one : *all) CHECK_MESSAGE(one.outcome == Outcome::passed, (one.name + ": " + one.reason));
  settings.set = false;
  all = conformance::check(settings);
  REQUIRE(all);
  int left_out = 0;
  for (const auto& one : *all) left_out += one.outcome == Outcome::unsupported;
  CHECK(left_out == 8);
  settings.only = "no such case";
  CHECK(conformance::check(settings).error().code == "power.conformance");
}

TEST_CASE("power conformance: energy is not compared with a power that was not told") {
  const auto all = tried("silent", "energy: it grows*");
  REQUIRE(all.size() == 1);
  CHECK(all.begin()->second.outcome == Outcome::unsupported);
  CHECK(all.begin()->second.reason.find("no domain reports its power") != std::string::npos);
}

TEST_CASE("json: what services send, and what they should not") {
  auto parsed =
      JsonValue::parse(R"( {"a": [1, -2.5e2, true, null, "x\u00e9\ud83d\ude00\n"], "b": {"c": {}}, "a b": 0} )");
  REQUIRE(parsed);
  const JsonValue& v = *parsed;
  CHECK(v["a"].size() == 5);
  CHECK(v["a"][1].number() == -250);
  CHECK(std::isnan(v["a"][2].number()));
  CHECK(v["a"][3].is_null());
  CHECK(v["a"][4].text() == "x\xc3\xa9\xf0\x9f\x98\x80\n");
  CHECK(v["b"]["c"].object());
  CHECK(v["no"]["such"][3]["path"].is_null());
  CHECK(std::isnan(v["b"].number()));
  for (const char* bad :
       {"",   "{",     "[1,]",       "{\"a\":}", "{\"a\" 1}", "{a:1}",   "01",          "1.",          "1.e3",
        "-",  "+1",    ".5",         "1e",       "nul",       "\"\\x\"", "\"\\ud800\"", "\"\\udc00\"", "\"a\nb\"",
        "\"", "[1] 2", "{\"a\":1,}", "NaN",      "Infinity",  "1e999",   "'a'"}) {
    CAPTURE(std::string(bad));
    CHECK(!JsonValue::parse(bad));
  }
  CHECK(!JsonValue::parse(std::string(100000, '[')));
  CHECK(JsonValue::parse(std::string(50, '[') + std::string(50, ']')));
}
