#include "power/conformance/suite.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <stdexcept>

#include "core/clock.hpp"
#include "core/deadline.hpp"
#include "core/text.hpp"
#include "core/thrown.hpp"

namespace sonde::power::conformance {

namespace {

/// End a case; neither leaves the suite.
struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void expect(bool good, const std::string& what) {
  if (!good) throw Failed(what);
}
std::string told(const Error& e) { return e.code + ": " + e.what; }
std::string watts(double w) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g W", w);
  return text;
}
template <typename T> T need(Result<T> result, const std::string& what) {
  if (!result) throw Failed(what + ": " + told(result.error()));
  return std::move(*result);
}
void need(const Result<void>& result, const std::string& what) {
  if (!result) throw Failed(what + ": " + told(result.error()));
}
void pause(double s) { sleep_until(now_s() + s); }

/// Nothing that computes draws more.
constexpr double most_w = 1e6;

struct Scene {
  const Settings& settings;
  Hardware& hardware;

  std::unique_ptr<Hardware> another(const std::function<void(HardwareSpec&)>& change = {}) const {
    HardwareSpec spec = settings.spec;
    if (change) change(spec);
    return need(settings.open(spec), "a second opening");
  }
  std::vector<DomainReading> read() const {
    auto all = need(hardware.read(), "read()");
    expect(all.size() == hardware.domains().size(), "read() gave " + std::to_string(all.size()) + " readings of " +
                                                        std::to_string(hardware.domains().size()) + " domains");
    return all;
  }
  std::vector<std::size_t> settable() const {
    if (!settings.set) throw Unsupported("setting caps was not asked for");
    std::vector<std::size_t> out;
    for (std::size_t k = 0; k < hardware.domains().size(); ++k)
      if (hardware.range(k).settable) out.push_back(k);
    if (out.empty()) throw Unsupported("no domain can be capped: " + hardware.range(0).why_not);
    return out;
  }
  /// Within the range, a share of the way from its least to its highest, in whole watts.
  double within(std::size_t domain, double share) const {
    const Range r = hardware.range(domain);
    return std::clamp(std::round(r.min_w + share * (r.max_w - r.min_w)), r.min_w, r.max_w);
  }
  const std::string& name(std::size_t domain) const { return hardware.domains()[domain]; }
  double set(std::size_t domain, double cap_w) const {
    const double back = need(hardware.cap(domain, cap_w), name(domain) + ": cap(" + watts(cap_w) + ")");
    expect(std::abs(back - cap_w) <= settings.tolerance_w,
           name(domain) + " was set to " + watts(cap_w) + ", and cap() read back " + watts(back));
    return back;
  }
  void refused(std::size_t domain, double cap_w, const std::string& code) const {
    const double before = read()[domain].cap_w;
    const auto back = hardware.cap(domain, cap_w);
    expect(!back, name(domain) + ": cap(" + watts(cap_w) + ") was taken");
    expect(back.error().code == code,
           name(domain) + ": cap(" + watts(cap_w) + ") gave " + told(back.error()) + "; expected " + code);
    const double after = read()[domain].cap_w;
    expect(before == after || (std::isnan(before) && std::isnan(after)), name(domain) + ": cap(" + watts(cap_w) +
                                                                             ") was refused, and the cap went from " +
                                                                             watts(before) + " to " + watts(after));
  }
};

void names(const Scene& s) {
  expect(!s.hardware.domains().empty(), "it has no domains");
  std::set<std::string> all(s.hardware.domains().begin(), s.hardware.domains().end());
  expect(all.size() == s.hardware.domains().size(), "two domains have one name: " + joined(s.hardware.domains()));
  expect(!all.contains(""), "a domain has no name");
  expect(!s.hardware.model().empty(), "it has no model");
}

void source(const Scene& s) {
  expect(s.hardware.source() == s.settings.spec.kind, std::string("it says ") + name_of(s.hardware.source()) +
                                                          " and was opened as " + name_of(s.settings.spec.kind));
}

void range(const Scene& s) {
  for (std::size_t k = 0; k < s.hardware.domains().size(); ++k) {
    const Range r = s.hardware.range(k);
    if (!r.settable) {
      expect(!r.why_not.empty(), s.name(k) + " cannot be capped, and why is not told");
      continue;
    }
    expect(std::isfinite(r.min_w) && std::isfinite(r.max_w) && r.min_w >= 0 && r.min_w <= r.max_w,
           s.name(k) + " can be capped from " + watts(r.min_w) + " to " + watts(r.max_w));
  }
}

void reading(const Scene& s) {
  (void)s.read();
  pause(0.02);
  bool any = false;
  const auto all = s.read();
  for (std::size_t k = 0; k < all.size(); ++k) {
    for (const double w : {all[k].power_w, all[k].cap_w})
      expect(std::isnan(w) || (w >= 0 && w <= most_w), s.name(k) + " reads " + watts(w));
    expect(!std::isnan(all[k].power_w) || !all[k].trouble.empty(), s.name(k) + " has no power, and why is not told");
    any = any || std::isfinite(all[k].power_w);
  }
  expect(any, "no domain tells its power: " + all[0].trouble);
}

void energy(const Scene& s) {
  auto last = s.read();
  for (int turn = 0; turn < 10; ++turn) {
    pause(0.02);
    auto now = s.read();
    for (std::size_t k = 0; k < now.size(); ++k) {
      expect(std::isfinite(now[k].energy_j), s.name(k) + " tells no energy");
      expect(now[k].energy_j >= last[k].energy_j, s.name(k) + ": energy fell from " + std::to_string(last[k].energy_j) +
                                                      " J to " + std::to_string(now[k].energy_j) + " J");
    }
    last = std::move(now);
  }
}

void energy_is_power(const Scene& s) {
  const auto begin = s.read();
  const double from = now_s();
  std::vector<double> low(begin.size(), most_w), high(begin.size(), 0);
  std::vector<DomainReading> end;
  for (int turn = 0; turn < 15; ++turn) {
    pause(0.03);
    end = s.read();
    for (std::size_t k = 0; k < end.size(); ++k) {
      if (!std::isfinite(end[k].power_w)) continue;
      low[k] = std::min(low[k], end[k].power_w);
      high[k] = std::max(high[k], end[k].power_w);
    }
  }
  const double passed = now_s() - from;
  bool any = false;
  for (std::size_t k = 0; k < end.size(); ++k) {
    if (low[k] > high[k]) continue;  // it reported no power
    any = true;
    // The power of each piece of time lies between the lowest and the highest reported value, but for the resolution of
    // the reports.
    const double mean = (end[k].energy_j - begin[k].energy_j) / passed, room = 5 + 0.25 * high[k];
    expect(mean >= low[k] - room && mean <= high[k] + room, s.name(k) + ": energy grew by " + watts(mean) +
                                                                " on average, and power was told from " +
                                                                watts(low[k]) + " to " + watts(high[k]));
  }
  if (!any) throw Unsupported("no domain reports its power: " + end[0].trouble);
}

void sensors(const Scene& s) {
  for (const auto& one : need(s.hardware.sensors(), "sensors()")) {
    expect(!one.name.empty(), "a sensor has no name");
    const double least = one.kind == SensorKind::temperature ? -273.15
                         : one.kind == SensorKind::voltage   ? -1e3
                                                             : 0,
                 most = one.kind == SensorKind::utilisation ? 1 : most_w;
    expect(std::isnan(one.value) || (one.value >= least && one.value <= most),
           one.name + " (" + name_of(one.kind) + ") is " + std::to_string(one.value));
  }
}

void caps(const Scene& s) {
  for (const auto k : s.settable()) {
    for (const double share : {1.0, 0.5, 0.0, 0.75}) {
      const double back = s.set(k, s.within(k, share)), now = s.read()[k].cap_w;
      expect(std::abs(now - back) <= s.settings.tolerance_w,
             s.name(k) + ": cap() read back " + watts(back) + ", and read() tells " + watts(now));
    }
  }
}

void out_of_range(const Scene& s) {
  for (const auto k : s.settable()) {
    const Range r = s.hardware.range(k);
    (void)s.set(k, s.within(k, 0.5));
    for (const double w : {99999.0, r.max_w + 2, r.min_w - 2, -1.0, 0.0, 1e300, unknown, static_cast<double>(INFINITY)})
      if (!(w >= r.min_w && w <= r.max_w)) s.refused(k, w, "power.out_of_range");
  }
}

void held_by_hardware(const Scene& s) {
  if (s.settings.spec.kind == Source::simulated && s.settings.spec.root == HardwareSpec{}.root)
    throw Unsupported("a simulated node without a folder keeps its cap in its process");
  for (const auto k : s.settable()) {
    const double back = s.set(k, s.within(k, 0.25));
    const auto other = need(s.another()->read(), "read() of a second opening");
    expect(k < other.size() && std::abs(other[k].cap_w - back) <= s.settings.tolerance_w,
           s.name(k) + " was set to " + watts(back) + ", and a second opening reads " +
               watts(k < other.size() ? other[k].cap_w : unknown));
  }
}

void put_back(const Scene& s) {
  const auto domains = s.settable();
  for (const auto k : domains) (void)s.set(k, s.within(k, 0.75));
  const auto before = s.read();
  const auto saved = need(s.hardware.originals(), "originals()");
  expect(!saved.empty(), "it can be capped, and has no originals");
  for (const auto k : domains) (void)s.set(k, s.within(k, 0.25));
  // As after a crash: by who did not set the cap.
  const bool in_process = s.settings.spec.kind == Source::simulated && s.settings.spec.root == HardwareSpec{}.root;
  std::unique_ptr<Hardware> other;
  if (!in_process) other = s.another();
  need((other ? *other : s.hardware).restore(saved), "restore()");
  const auto after = s.read();
  for (const auto k : domains)
    expect(std::abs(after[k].cap_w - before[k].cap_w) <= s.settings.tolerance_w,
           s.name(k) + " was at " + watts(before[k].cap_w) + ", and was put back to " + watts(after[k].cap_w));
}

void all_else_is_put_back(const Scene& s) {
  const auto k = s.settable().front();
  (void)s.set(k, s.within(k, 0.75));
  const double before = s.read()[k].cap_w;
  auto saved = need(s.hardware.originals(), "originals()");
  saved.insert(saved.begin(), {"no-such-domain", "cap", "1"});
  saved.push_back({s.name(k), "../../no-such-setting", "1"});
  (void)s.set(k, s.within(k, 0.25));
  const auto done = s.hardware.restore(saved);
  expect(!done, "restore() says nothing of a domain and a setting that are not there");
  const double after = s.read()[k].cap_w;
  expect(std::abs(after - before) <= s.settings.tolerance_w,
         s.name(k) + " was at " + watts(before) + ", and was put back to " + watts(after) + " beside what cannot be");
}

void read_only(const Scene& s) {
  const auto domains = s.settable();
  const auto other = s.another([](HardwareSpec& spec) { spec.read_only = true; });
  for (const auto k : domains) {
    (void)s.set(k, s.within(k, 0.5));
    expect(!other->range(k).settable && !other->range(k).why_not.empty(),
           s.name(k) + " can be capped where read_only is said");
    const auto done = other->cap(k, s.within(k, 0.25));
    expect(!done && done.error().code == "power.read_only",
           s.name(k) + ": cap() of read_only gave " + (done ? watts(*done) : told(done.error())));
    const double now = s.read()[k].cap_w;
    expect(std::abs(now - s.within(k, 0.5)) <= s.settings.tolerance_w,
           s.name(k) + " was capped at " + watts(now) + " by who is read_only");
  }
}

void narrower(const Scene& s) {
  const auto k = s.settable().front();
  const double low = s.within(k, 0.25), high = s.within(k, 0.75);
  const auto other = s.another([&](HardwareSpec& spec) {
    spec.min_w = low;
    spec.max_w = high;
  });
  const Range r = other->range(k);
  expect(r.settable && r.min_w == low && r.max_w == high, s.name(k) + " was narrowed to " + watts(low) + " to " +
                                                              watts(high) + ", and says " + watts(r.min_w) + " to " +
                                                              watts(r.max_w));
  if (high + 2 > s.hardware.range(k).max_w) return;
  const auto done = other->cap(k, high + 2);
  expect(!done && done.error().code == "power.out_of_range",
         s.name(k) + ": a cap above the configuration's highest gave " + (done ? watts(*done) : told(done.error())));
}

void unknown_domain(const Scene& s) {
  HardwareSpec spec = s.settings.spec;
  spec.domains = "no-such-domain-*";
  const auto opened = s.settings.open(spec);
  expect(!opened && opened.error().code == "power.unknown_domain",
         "opening no-such-domain-* gave " + (opened ? "hardware" : told(opened.error())));
  expect(opened.error().hint.find(s.name(0)) != std::string::npos || !s.settings.spec.domains.empty(),
         "which domains there are is not told: " + opened.error().hint);
  const auto done = s.hardware.cap(s.hardware.domains().size(), 100);
  expect(!done, "a domain that is not there was capped");
}

void obeyed(const Scene& s) {
  const auto domains = s.settable();
  for (const auto k : domains) (void)s.set(k, s.within(k, 0));
  const Deadline deadline = Deadline::in_s(s.settings.patience_s);
  std::string above;
  do {
    pause(0.05);
    const auto now = s.read();
    above.clear();
    for (const auto k : domains)
      if (!(now[k].power_w <= now[k].cap_w * 1.05 + s.settings.tolerance_w))
        above = s.name(k) + " draws " + watts(now[k].power_w) + " under a cap of " + watts(now[k].cap_w);
  } while (!above.empty() && !deadline.passed());
  expect(above.empty(), above + " after " + std::to_string(static_cast<int>(s.settings.patience_s)) + " s");
}

struct Entry {
  const char* name;
  void (*run)(const Scene& scene);
};
constexpr Entry cases[] = {
    {"domains: each has a name of its own", names},
    {"source: it is what was asked for", source},
    {"range: limits, or why there are none", range},
    {"reading: powers that can be, or why there are none", reading},
    {"energy: it does not fall", energy},
    {"energy: it grows as power says", energy_is_power},
    {"sensors: names and values that can be", sensors},
    {"domains: one that is not there is refused, with those that are", unknown_domain},
    {"cap: what is set is read back", caps},
    {"cap: out of range it is refused, and nothing is written", out_of_range},
    {"cap: the hardware has it, not the process", held_by_hardware},
    {"cap: read_only sets nothing", read_only},
    {"cap: the configuration narrows the range", narrower},
    {"cap: it is obeyed", obeyed},
    {"originals: another process puts them back", put_back},
    {"originals: what is damaged does not keep the rest from being put back", all_else_is_put_back},
};

}  // namespace

std::vector<std::string> case_names() {
  std::vector<std::string> out;
  for (const auto& one : cases) out.emplace_back(one.name);
  return out;
}

Result<std::vector<Case>> check(const Settings& settings) {
  auto opened = settings.open(settings.spec);
  if (!opened) return opened.error();
  Hardware& hardware = **opened;
  std::vector<Original> before;
  if (settings.set) {
    auto saved = hardware.originals();
    if (!saved) return saved.error();
    before = std::move(*saved);
  }
  std::vector<Case> out;
  for (const auto& one : cases) {
    if (!settings.only.empty() && ::fnmatch(settings.only.c_str(), one.name, FNM_NOESCAPE) != 0) continue;
    if (settings.ended && settings.ended()) break;
    Case now;
    now.name = one.name;
    const double from = now_s();
    try {
      one.run({settings, hardware});
      now.outcome = Outcome::passed;
    } catch (const Unsupported& e) {
      now.outcome = Outcome::unsupported;
      now.reason = e.what();
    } catch (...) {
      now.reason = text_of_exception();
    }
    now.elapsed_s = now_s() - from;
    if (settings.told) settings.told(now);
    out.push_back(std::move(now));
  }
  if (out.empty() && !(settings.ended && settings.ended()))
    return Error{"power.conformance", "no case fits " + shown(settings.only), "sonde-powerconform --list"};
  if (!before.empty())
    if (const auto done = hardware.restore(before); !done) return done.error();
  return out;
}

}  // namespace sonde::power::conformance
