// sonde._power: the configuration of the power stack and its messages, read by the one parser that the daemons have.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bind/raise.hpp"
#include "power/config.hpp"
#include "power/powerd/wiring.hpp"

namespace nb = nanobind;
using namespace nb::literals;
namespace power = sonde::power;

namespace {

nb::object as_dict(const power::Config& config) {
  const std::string text = power::to_json(config);
  return nb::module_::import_("json").attr("loads")(nb::bytes(text.data(), text.size()));
}

nb::list config_keys() {
  nb::list out;
  for (const auto& key : power::config_keys()) {
    nb::dict d;
    d["section"] = key.section;
    d["key"] = key.key;
    d["type"] = key.type;
    d["default"] = key.default_value;
    d["what"] = key.what;
    out.append(d);
  }
  return out;
}

nb::list hardware_kinds() {
  nb::list out;
#ifdef SONDE_POWERD_HARDWARE
  for (const auto& kind : power::hardware_kinds()) {
    nb::dict d;
    d["kind"] = power::name_of(kind.kind);
    d["what"] = kind.what;
    d["missing"] = kind.missing;
    out.append(d);
  }
#endif
  return out;
}

std::string bus_profile(const std::string& path, const std::string& participant) {
  const auto config = sonde::value_or_raise(power::load_config(path));
  return sonde::bus::to_xml(sonde::value_or_raise(power::bus_profile(config, participant, true)));
}

}  // namespace

NB_MODULE(_power, m) {
  m.doc() = "The power stack's configuration and messages.";
  m.def("load_config", [](const std::string& path) { return as_dict(sonde::value_or_raise(power::load_config(path))); }, "path"_a,
        "The file with defaults filled in: SI numbers, None where nothing is known. Raises UsageError (file, line, what is allowed).");
  m.def("parse_config", [](const std::string& text, const std::string& path) { return as_dict(sonde::value_or_raise(power::parse_config(text, path))); }, "text"_a,
        "path"_a = "", "The same from text; `path` is for error texts, and relative paths are beside it.");
  m.def("config_keys", &config_keys, "Every key: section, key, type, default, what.");
  m.def("hardware_kinds", &hardware_kinds, "What this build can read and cap: kind, what, missing (what to install; empty: it is there).");
  m.def("idl", &power::idl, "The messages as IDL.");
  m.def("bus_profile", &bus_profile, "path"_a, "participant"_a = "",
        "The bus of a configuration as a profile's XML, with the stack's types and topics in it: what every role opens.");
}
