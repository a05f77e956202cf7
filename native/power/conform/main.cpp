// sonde-powerconform KIND [OPTIONS]: tests whether the power hardware of this machine keeps the promises of its
// interface.
#include <poll.h>

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error_kind.hpp"
#include "core/json.hpp"
#include "core/number.hpp"
#include "core/units.hpp"
#include "power/conformance/suite.hpp"
#include "power/hardware/guardian.hpp"
#include "service/daemon.hpp"

namespace {

using namespace sonde;
using namespace sonde::power;
using conformance::Outcome;

constexpr const char* usage =
    "sonde-powerconform KIND [OPTIONS]      KIND: powercap, nvml, redfish, ipmi, simulated\n"
    "  Tests whether power hardware does what Sonde expects of it. Sets caps within their range and restores the\n"
    "  former settings, also after kill -9. With --no-set it only reads.\n"
    "  --root DIR         the folder of sysfs; for a simulated node, a folder that stores its cap\n"
    "  --url U --user U --password-file F --ca F     the access to a BMC\n"
    "  --domains PATTERN  test only these domains\n"
    "  --min W --max W    limits inside those of the hardware, or for hardware that reports none\n"
    "  --timeout S        the longest time of one exchange with a BMC\n"
    "  --load-file F      the load of a simulated node\n"
    "  --patience S       how long it may take until the power is below the cap (default 10)\n"
    "  --tolerance W      allowed difference between a cap and its read-back (default 1)\n"
    "  --no-set           leave out the cases that set a cap\n"
    "  --case PATTERN     only cases whose name matches, with '*' and '?'\n"
    "  --json             print events, one JSON object a line\n"
    "  --list             list the cases\n"
    "  --kinds            list the kinds of this build, and what each of them lacks\n"
    "Exit code: 0 all promises kept, 1 not all, 2 what was asked is wrong, 3 the hardware cannot be opened.\n";

bool as_json = false;
constexpr double originals_within_s = 60;

/// Restores the former settings when this program is killed. It read them itself before anything was set.
class PutsBack {
 public:
  explicit PutsBack(HardwareSpec spec) : spec_(std::move(spec)) {}
  Guardian::Did act(Guardian::Why why) {
    auto hardware = open_hardware(spec_);
    if (!hardware) return told(hardware.error());
    if (why == Guardian::Why::armed) {
      auto all = (*hardware)->originals();
      if (!all) return told(all.error());
      originals_ = std::move(*all);
      return Guardian::Did::nothing;
    }
    const auto done = (*hardware)->restore(originals_);
    if (!done) return told(done.error());
    std::fputs("sonde-powerconform was killed; the former settings of the hardware were restored\n", stderr);
    return Guardian::Did::set;
  }

 private:
  static Guardian::Did told(const Error& e) {
    std::fprintf(stderr, "%s: %s\n", e.code.c_str(), e.what.c_str());
    return Guardian::Did::failed;
  }
  HardwareSpec spec_;
  std::vector<Original> originals_;
};

int fail(const Error& e) {
  if (as_json)
    std::printf(
        "%s\n",
        JsonLine().add("event", "error").add("code", e.code).add("what", e.what).add("hint", e.hint).text().c_str());
  else
    std::fprintf(stderr, "%s: %s\n%s%s%s", e.code.c_str(), e.what.c_str(),
                 e.hint.empty() ? "" : "  hint: ", e.hint.c_str(), e.hint.empty() ? "" : "\n");
  return exit_status(e);
}

}  // namespace

int main(int argc, char** argv) {
  // Claimed, so that Ctrl-C ends between two cases and what was there is put back.
  const int signals = service::claim_signals();
  conformance::Settings settings;
  HardwareSpec& spec = settings.spec;
  const auto text = [](std::string& to) {
    return [&to](const std::string& value) {
      to = value;
      return true;
    };
  };
  const auto watts = [](double& to) {
    return [&to](const std::string& value) {
      const auto parsed = parse_power(value);
      if (parsed) to = *parsed;
      return static_cast<bool>(parsed);
    };
  };
  const auto seconds = [](double& to) {
    return [&to](const std::string& value) { return number(std::string_view(value), to) && to > 0 && to <= 3600; };
  };
  const std::map<std::string, std::function<bool(const std::string&)>> options{
      {"--root", text(spec.root)},
      {"--url", text(spec.url)},
      {"--user", text(spec.user)},
      {"--password-file", text(spec.password_file)},
      {"--ca", text(spec.ca)},
      {"--domains", text(spec.domains)},
      {"--min", watts(spec.min_w)},
      {"--max", watts(spec.max_w)},
      {"--timeout", seconds(spec.timeout_s)},
      {"--load-file", text(spec.load_file)},
      {"--patience", seconds(settings.patience_s)},
      {"--tolerance", watts(settings.tolerance_w)},
      {"--case", text(settings.only)}};
  for (int k = 1; k < argc; ++k)
    if (std::string_view(argv[k]) == "--json") as_json = true;
  std::string kind;
  for (int k = 1; k < argc; ++k) {
    const std::string word = argv[k];
    if (word == "--json") continue;
    if (word == "--no-set") {
      settings.set = false;
    } else if (word == "--help") {
      std::fputs(usage, stdout);
      return 0;
    } else if (word == "--list") {
      for (const auto& name : conformance::case_names()) {
        if (as_json) std::printf("%s\n", JsonLine().add("event", "case").add("name", name).text().c_str());
        else std::printf("%s\n", name.c_str());
      }
      return 0;
    } else if (word == "--kinds") {
      for (const auto& one : hardware_kinds()) {
        if (as_json)
          std::printf("%s\n", JsonLine()
                                  .add("event", "kind")
                                  .add("kind", name_of(one.kind))
                                  .add("what", one.what)
                                  .add("missing", one.missing)
                                  .text()
                                  .c_str());
        else std::printf("%-10s %s%s%s\n", name_of(one.kind), one.what, *one.missing ? "; missing: " : "", one.missing);
      }
      return 0;
    } else if (const auto option = options.find(word); option != options.end()) {
      if (++k == argc) return fail({"power.usage", word + " needs a value", "sonde-powerconform --help"});
      if (!option->second(argv[k]))
        return fail({"power.usage", word + " cannot be '" + argv[k] + "'", "sonde-powerconform --help"});
    } else if (word.starts_with("-")) {
      return fail({"power.usage", "sonde-powerconform has no option " + word, "sonde-powerconform --help"});
    } else if (!kind.empty()) {
      return fail({"power.usage", "two kinds were given: " + kind + " and " + word, "give one kind"});
    } else {
      kind = word;
    }
  }
  if (kind.empty()) return fail({"power.usage", "no kind of hardware was given", "sonde-powerconform --kinds"});
  const auto source = source_named(kind);
  if (!source || *source == Source::none)
    return fail({"power.usage", "there is no kind '" + kind + "'", "sonde-powerconform --kinds"});
  spec.kind = *source;
  settings.ended = [&] {
    pollfd one{signals, POLLIN, 0};
    return ::poll(&one, 1, 0) > 0;
  };
  std::size_t passed = 0, failed = 0, unsupported = 0;
  settings.told = [&](const conformance::Case& c) {
    ++(c.outcome == Outcome::passed ? passed : c.outcome == Outcome::failed ? failed : unsupported);
    const char* word = c.outcome == Outcome::passed   ? "passed"
                       : c.outcome == Outcome::failed ? "failed"
                                                      : "unsupported";
    if (as_json)
      std::printf("%s\n", JsonLine()
                              .add("event", "case")
                              .add("kind", kind)
                              .add("name", c.name)
                              .add("outcome", word)
                              .add("reason", c.reason)
                              .add("elapsed_s", c.elapsed_s)
                              .text()
                              .c_str());
    else
      std::printf("%-12s %s%s%s\n", word, c.name.c_str(), c.reason.empty() ? "" : "\n             ", c.reason.c_str());
    std::fflush(stdout);
  };
  std::unique_ptr<Guardian> guardian;
  if (settings.set) {
    // Before anything is opened here.
    auto made = Guardian::start(
        [puts_back = std::make_shared<PutsBack>(spec)](Guardian::Why why) { return puts_back->act(why); });
    if (!made) return fail(made.error());
    guardian = std::move(*made);
    if (!guardian->arm(originals_within_s)) {
      // The cases report what is wrong with it.
      std::fputs("the hardware's settings cannot be saved: they are not restored if this program is killed\n", stderr);
      guardian->dismiss();
      guardian.reset();
    }
  }
  const auto all = conformance::check(settings);
  if (guardian) guardian->dismiss();
  if (!all) return fail(all.error());
  if (as_json)
    std::printf("%s\n", JsonLine()
                            .add("event", "end")
                            .add("passed", passed)
                            .add("failed", failed)
                            .add("unsupported", unsupported)
                            .text()
                            .c_str());
  else std::printf("%zu passed, %zu failed, %zu unsupported\n", passed, failed, unsupported);
  return failed || settings.ended() ? 1 : 0;
}
