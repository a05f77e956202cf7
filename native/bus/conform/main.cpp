// sonde-busconform [OPTIONS] [IMPLEMENTATION | MODULE.so]…: tests implementations of the bus against the
// promises of their interface. `sonde bus conformance` starts it. Events on standard output, one JSON object a line.
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "bus/conformance/suite.hpp"
#include "core/json.hpp"

namespace {

using namespace sonde;
using namespace sonde::bus;
using conformance::Outcome;

constexpr const char* usage =
    "sonde-busconform [OPTIONS] [IMPLEMENTATION | MODULE.so]...\n"
    "  Without a name: every installed implementation, on every transport that it supports.\n"
    "  --case PATTERN   only cases whose name matches, with '*' and '?'; long ones included\n"
    "  --profile FILE[#NAME]   with the transport, discovery and security of this profile instead\n"
    "  --list           the cases\n";

void emit(const JsonLine& line) { std::cout << line.text() << std::endl; }

int fail(const Error& e, int code) {
  emit(JsonLine().add("event", "error").add("code", e.code).add("what", e.what).add("hint", e.hint));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  if (const int code = conformance::inner(argc, argv); code >= 0) return code;
  conformance::Settings settings;
  std::vector<std::string> names;
  std::string profile_path;
  for (int k = 1; k < argc; ++k) {
    const std::string word = argv[k];
    if (word == "--help") {
      std::cout << usage;
      return 0;
    }
    if (word == "--list") {
      for (const auto& name : conformance::case_names())
        std::cout << name.name << (name.slow ? "   (only when named)" : "") << '\n';
      return 0;
    }
    if (word == "--case" || word == "--profile") {
      if (++k == argc)
        return fail({"bus.usage", word + " lacks its value",
                     word == "--case" ? "write --case 'requests*'" : "write --profile bus.xml"},
                    2);
      (word == "--case" ? settings.only : profile_path) = argv[k];
    } else if (word.starts_with("--")) {
      return fail({"bus.usage", "sonde-busconform has no option " + word, "sonde-busconform --help"}, 2);
    } else if (word.ends_with(".so")) {
      auto brought = load_module(word);
      if (!brought) return fail(brought.error(), 3);
      settings.modules.push_back(word);
      names.insert(names.end(), brought->begin(), brought->end());
    } else {
      names.push_back(word);
    }
  }
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self);
  settings.program.assign(self, n > 0 ? static_cast<std::size_t>(n) : 0);
  if (!profile_path.empty()) {
    const auto hash = profile_path.rfind('#');
    auto profile =
        load_profile(profile_path.substr(0, hash), hash == std::string::npos ? "" : profile_path.substr(hash + 1));
    if (!profile) return fail(profile.error(), 2);
    settings.variants = {{profile->name, *profile, true}};
  }
  if (names.empty()) names = implementation_names();
  std::size_t passed = 0, failed = 0, unsupported = 0;
  for (const auto& name : names) {
    const auto entry = find_implementation(name);
    if (!entry) return fail(entry.error(), 2);
    emit(JsonLine().add("event", "subject").add("subject", name).add("version", (*entry)->version()));
    settings.implementation = name;
    settings.told = [&](const conformance::Case& c) {
      const std::string subject = name + ' ' + c.variant;
      if (c.outcome == Outcome::unsupported) {
        ++unsupported;
        return emit(JsonLine()
                        .add("event", "unsupported")
                        .add("subject", subject)
                        .add("name", c.name)
                        .add("message", c.reason));
      }
      ++(c.outcome == Outcome::passed ? passed : failed);
      emit(JsonLine()
               .add("event", "check")
               .add("subject", subject)
               .add("name", c.name)
               .add("passed", c.outcome == Outcome::passed)
               .add("message", c.reason)
               .add("elapsed_s", c.elapsed_s));
    };
    if (auto all = conformance::check(settings); !all) return fail(all.error(), 3);
  }
  if (!settings.only.empty() && !passed && !failed && !unsupported)
    return fail({"bus.usage", "no case matches '" + settings.only + "'", "sonde bus conformance --list"}, 2);
  emit(JsonLine().add("event", "end").add("passed", passed).add("failed", failed).add("unsupported", unsupported));
  return failed ? 1 : 0;
}
