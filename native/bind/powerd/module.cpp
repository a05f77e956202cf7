// sonde._power: the configuration of the power stack and its messages, read by the same parser as in the daemons.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "bind/raise.hpp"
#include "power/config.hpp"
#include "power/powerd/wiring.hpp"
#include "service/munge.hpp"

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
  const auto config = sonde::py::unwrap(power::load_config(path));
  return sonde::bus::to_xml(sonde::py::unwrap(power::bus_profile(config, participant, true)));
}

/// The result of `what`, while other threads run: a daemon that hangs must not block them.
template <typename What> auto without_gil(const What& what) {
  auto out = [&] {
    const nb::gil_scoped_release released;
    return what();
  }();
  return sonde::py::unwrap(std::move(out));
}

std::string munge_credential(const std::string& payload) {
  return without_gil([&] { return sonde::munge::credential(payload); });
}

unsigned munge_user(const std::string& credential, const std::string& payload) {
  return without_gil([&] { return sonde::munge::user(credential, payload); });
}

}  // namespace

NB_MODULE(_power, m) {
  m.doc() = "The power stack's configuration and messages.";
  m.def(
      "load_config", [](const std::string& path) { return as_dict(sonde::py::unwrap(power::load_config(path))); },
      "path"_a,
      "The file with defaults filled in: SI numbers, None for unknown values. Raises UsageError (file, line, allowed "
      "values).");
  m.def(
      "parse_config",
      [](const std::string& text, const std::string& path) {
        return as_dict(sonde::py::unwrap(power::parse_config(text, path)));
      },
      "text"_a, "path"_a = "",
      "The same from text; `path` is for error texts, and relative paths start from its folder.");
  m.def("config_keys", &config_keys, "Every key: section, key, type, default, meaning.");
  m.def("hardware_kinds", &hardware_kinds,
        "The hardware that this build can read and cap: kind, description, missing (what to install; empty: present).");
  m.def("idl", &power::idl, "The messages as IDL.");
  m.def("munge_credential", &munge_credential, "payload"_a,
        "A MUNGE credential of this process. Raises EnvironmentFailure (munge.silent).");
  m.def("munge_user", &munge_user, "credential"_a, "payload"_a,
        "The uid that made the credential for this payload. Raises EnvironmentFailure (munge.silent, munge.refused).");
  m.def("munge_built", &sonde::munge::built, "Whether this build has MUNGE.");
  m.def("bus_profile", &bus_profile, "path"_a, "participant"_a = "",
        "The bus of a configuration as a profile's XML, with the stack's types and topics. Every role opens it.");
}
