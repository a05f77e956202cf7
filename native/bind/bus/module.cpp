// Python module sonde._bus: samples as Python values. sonde.bus.client is its public interface.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bind/bus/bus.hpp"

namespace sonde::bus::py {

nb::object text(std::string_view s) {
  return nb::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
}

TypePtr type_named(const Bus& bus, const std::string& name) {
  const auto& types = bus.profile().types;
  if (const auto found = types.find(name); found != types.end()) return found->second;
  std::string there;
  for (const auto& [known, type] : types) there += (there.empty() ? "" : ", ") + known;
  raise({"bus.unknown_type", "the profile has no type '" + name + "'",
         there.empty() ? "declare it: <types idl=\"FILE\"/>, or open(idl=...)" : "it has: " + there});
}

namespace {

nb::dict caps_of(const Caps& c) {
  nb::dict d;
  const auto put = [&d](const char* name, bool value) { d[name] = value; };
  put("udp4", c.udp4), put("udp6", c.udp6), put("tcp4", c.tcp4), put("shared_memory", c.shared_memory);
  put("multicast_samples", c.multicast_samples), put("peers", c.peers), put("server", c.server),
      put("server_backup", c.server_backup);
  put("security", c.security), put("partitions", c.partitions), put("partition_wildcards", c.partition_wildcards);
  put("across_processes", c.across_processes), put("durability", c.durability), put("liveliness", c.liveliness),
      put("deadline", c.deadline);
  put("lifespan", c.lifespan), put("latency_budget", c.latency_budget);
  put("ownership", c.ownership), put("ownership_best_effort", c.ownership_best_effort),
      put("order_by_source", c.order_by_source);
  return d;
}

/// Opening communicates with the machine: it runs without the GIL, and so does its cleanup.
BusHolder opened(const Profile& profile, const std::string& implementation) {
  return BusHolder(unwrap(without_gil([&] { return Bus::open(profile, implementation); })));
}

nb::list participants(const BusHolder& self) {
  nb::list all;
  for (const auto& p : without_gil([bus = self.bus()] { return bus->peers(); })) {
    nb::dict d;
    d["guid"] = p.guid.text();
    d["name"] = text(p.name);
    d["host"] = text(p.host);
    d["pid"] = p.pid;
    all.append(d);
  }
  return all;
}

nb::list endpoints(const BusHolder& self) {
  nb::list all;
  for (const auto& e : without_gil([bus = self.bus()] { return bus->endpoints(); })) {
    nb::dict d;
    d["guid"] = e.guid.text();
    d["participant"] = e.participant.text();
    d["writes"] = e.writes;
    d["topic"] = text(e.topic);
    d["type"] = text(e.type);
    nb::list partitions;
    for (const auto& p : e.partitions) partitions.append(text(p));
    d["partitions"] = partitions;
    d["reliable"] = e.reliability == Reliability::reliable;
    d["transient_local"] = e.durability == Durability::transient_local;
    all.append(d);
  }
  return all;
}

}  // namespace

NB_MODULE(_bus, m) {
  m.doc() = "The data-distribution bus. See sonde.bus.client.";
  // At exit Python leaves objects of running programs behind; that is normal, and not an error of this module.
  nb::set_leak_warnings(false);

  m.def("implementations", [] { return implementation_names(); }, "Names that can be opened here, sorted.");
  m.def(
      "broken_modules",
      [] {
        std::vector<std::string> all;
        for (const auto& error : broken_modules()) all.push_back(error.what);
        return all;
      },
      "Implementations that could not be loaded, and the reasons.");
  m.def(
      "caps",
      [](const std::string& name) {
        const auto* entry = unwrap(find_implementation(name));
        nb::dict d = caps_of(entry->caps());
        d["version"] = text(entry->version());
        return d;
      },
      nb::arg("name"), "The abilities of an implementation. Error: bus.unknown_implementation.");
  m.def(
      "clean",
      [](const std::string& name) {
        const auto* entry = unwrap(find_implementation(name));
        return entry->clean ? without_gil([&] { return entry->clean(); }) : std::size_t{0};
      },
      nb::arg("name"), "Removes the remains of killed participants from this machine. Returns how many.");

  nb::class_<BusHolder>(m, "Bus")
      .def("close", [](BusHolder& self) { self.close(); })
      .def_prop_ro("closed", &BusHolder::closed)
      .def_prop_ro("implementation", [](const BusHolder& self) { return self.bus()->implementation(); })
      .def_prop_ro("version", [](const BusHolder& self) { return self.bus()->version(); })
      .def_prop_ro("guid", [](const BusHolder& self) { return self.bus()->guid().text(); })
      .def_prop_ro("domain", [](const BusHolder& self) { return self.bus()->profile().domain; })
      .def_prop_ro("port", [](const BusHolder& self) { return self.bus()->port(); })
      .def("caps", [](const BusHolder& self) { return caps_of(self.bus()->caps()); })
      .def("topics",
           [](const BusHolder& self) {
             std::vector<std::string> names;
             const auto bus = self.bus();
             for (const auto& [name, topic] : bus->profile().topics) names.push_back(name);
             return names;
           })
      .def("types",
           [](const BusHolder& self) {
             nb::dict d;
             const auto bus = self.bus();
             for (const auto& [name, type] : bus->profile().types) d[text(name)] = text(to_idl(*type));
             return d;
           })
      .def("peers", &participants)
      .def("endpoints", &endpoints);

  m.def(
      "open",
      [](const std::string& path, const std::string& name, const std::string& implementation) {
        return opened(unwrap(load_profile(path, name)), implementation);
      },
      nb::arg("path"), nb::arg("name") = "", nb::arg("implementation") = "", "A profile from a file.");
  m.def(
      "open_text",
      [](const std::string& xml, const std::string& name, const std::string& folder,
         const std::string& implementation) {
        return opened(unwrap(parse_profile(xml, name, folder)), implementation);
      },
      nb::arg("xml"), nb::arg("name") = "", nb::arg("folder") = ".", nb::arg("implementation") = "",
      "A profile from text.");

  bind_endpoints(m);
  bind_requests(m);
}

}  // namespace sonde::bus::py
