// Python module sonde._store: the storage client without copies. sonde.store.client is its public interface.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "bind/store/store.hpp"
#include "store/auth.hpp"
#include "store/module.hpp"
#include "store/transport/tcp.hpp"

namespace sonde::store::py {

namespace {

Role role_named(const std::string& name) {
  for (const Role role : {Role::data, Role::kv, Role::db})
    if (name == name_of(role)) return role;
  raise({"store.bad_role", "'" + name + "' is not a role", "the roles are data, kv, db"});
}

}  // namespace

nb::object text(std::string_view s) {
  return nb::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
}

Safety safety_named(const std::string& name) {
  for (const Safety s : {Safety::none, Safety::network, Safety::storage})
    if (name == name_of(s)) return s;
  raise({"store.bad_safety", "'" + name + "' is not a safety level", "the levels are none, network and storage"});
}

nb::object name_to_python(std::string_view name) {
  nb::object made =
      nb::steal(PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "surrogateescape"));
  if (!made.is_valid()) throw nb::python_error();
  return made;
}

Name::Name(nb::handle object) : keep_(nb::borrow(object)) {
  if (PyUnicode_Check(object.ptr())) {
    Py_ssize_t n = 0;
    if (const char* utf8 = PyUnicode_AsUTF8AndSize(object.ptr(), &n)) {
      text_ = {utf8, static_cast<std::size_t>(n)};
      return;
    }
    PyErr_Clear();  // a name from a list that was not UTF-8
    keep_ = nb::steal(PyUnicode_AsEncodedString(object.ptr(), "utf-8", "surrogateescape"));
    if (!keep_.is_valid()) {
      PyErr_Clear();
      raise({"store.bad_name", "a name contains a character that cannot be encoded", "give it as bytes"});
    }
  }
  if (!PyBytes_Check(keep_.ptr()))
    raise({"store.bad_name", std::string("a name is a str or bytes, not ") + Py_TYPE(object.ptr())->tp_name,
           "write it as \"runs\" or b\"runs\""});
  text_ = {PyBytes_AS_STRING(keep_.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(keep_.ptr()))};
}

/// Whether its memory contains pointers to Python objects, which have no meaning outside this process.
static bool of_objects(nb::handle object) {
  if (PyMemoryView_Check(object.ptr())) {
    const char* format = PyMemoryView_GET_BUFFER(object.ptr())->format;
    return format && std::strcmp(format, "O") == 0;
  }
  return std::strncmp(Py_TYPE(object.ptr())->tp_name, "numpy.", 6) == 0 && nb::hasattr(object, "dtype") &&
         nb::cast<bool>(object.attr("dtype").attr("hasobject"));
}

Buffer::Buffer(nb::handle object, bool writable) {
  if (PyObject_GetBuffer(object.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) == 0) {
    if (!of_objects(object)) return;
    PyBuffer_Release(&view_);
    view_ = {};
    raise({"store.bad_buffer", "an array of Python objects has no bytes of its own",
           "convert it to another type, such as array.astype('f8'), or pickle it"});
  }
  PyErr_Clear();
  view_ = {};
  const std::string type = Py_TYPE(object.ptr())->tp_name;
  if (PyUnicode_Check(object.ptr())) raise({"store.bad_buffer", "data is bytes, not str", "encode it: text.encode()"});
  if (!PyObject_CheckBuffer(object.ptr()))
    raise({"store.bad_buffer", "data cannot be " + type + ": it has no buffer",
           "use bytes, bytearray, memoryview or a numpy array"});
  Py_buffer probe{};
  if (writable && PyObject_GetBuffer(object.ptr(), &probe, PyBUF_SIMPLE) == 0) {
    PyBuffer_Release(&probe);
    raise({"store.bad_buffer", "data cannot be read into a read-only " + type,
           "use a bytearray or a writable numpy array"});
  }
  PyErr_Clear();
  raise({"store.bad_buffer", "the memory of the " + type + " is not contiguous", "use numpy.ascontiguousarray(array)"});
}

}  // namespace sonde::store::py

NB_MODULE(_store, m) {
  using namespace sonde::store;
  using namespace sonde::store::py;
  m.doc() = "Sonde's native storage client. Use it through sonde.store.";
  bind_client(m);
  bind_batch(m);
  bind_items(m);
  bind_tables(m);
  m.def(
      "backends", [](const std::string& role) { return backend_names(role_named(role)); }, nb::arg("role"),
      "Names of the backends for a role in this build and the loaded modules.");
  m.def(
      "transports",
      [] {
        std::vector<std::string> names{"tcp"};
        for (auto& name : transport_names())
          if (name != "tcp") names.push_back(name);
        return names;
      },
      "Names of the transports in this build and the loaded modules.");
  m.def(
      "providers",
      [](const std::string& transport, double seconds) {
        std::vector<Found> found;
        if (transport != "tcp") {
          auto opened = unwrap(open_transport(transport));
          found = away([&] { return opened->probe(Deadline::in_s(seconds)); });
        }
        nb::list out;
        for (const Found& one : found) {
          nb::dict row;
          row["provider"] = one.provider;
          row["works"] = one.works;
          row["why"] = text(one.why);
          row["half_round_trip_s"] = one.half_round_trip_s;
          out.append(row);
        }
        return out;
      },
      nb::arg("transport"), nb::arg("seconds"), "Providers of a transport, each tried here.");
  m.def("auth_methods", &auth::methods, "The values of `auth` that this build supports.");
  m.def(
      "try_munge", [] { unwrap(away([] { return auth::munge_credential("sonde doctor"); })); },
      "Has munged make a credential. Raises StoreError store.no_munge if it does not.");
  m.def(
      "load_module",
      [](const std::string& path) {
        unwrap([&]() -> sonde::Result<void> {
          auto module = load_module(path);
          if (!module) return module.error();
          return {};
        }());
      },
      nb::arg("path"), "Loads backends and transports from a shared object, for the life of the process.");
  m.def(
      "check_backend",
      [](const std::string& role, const std::string& text) {
        auto spec = unwrap(parse_backend(role_named(role), text));
        nb::dict settings;
        for (const auto& [name, value] : spec.settings) settings[name.c_str()] = value;
        return nb::make_tuple(spec.name, settings);
      },
      nb::arg("role"), nb::arg("text"), "NAME[,SETTING=VALUE…] as (name, {setting: value}).");
  m.def(
      "check_address",
      [](const std::string& text) {
        const auto address = unwrap(parse_address(text));
        return nb::make_tuple(address.host, address.port);
      },
      nb::arg("text"), "HOST:PORT as (host, port).");
  m.def(
      "placement",
      [](nb::handle space, nb::handle key, std::size_t servers) {
        if (servers == 0) raise({"store.bad_value", "there are 0 servers", "give 1 or more"});
        return placement(Name(space), Name(key), servers);
      },
      nb::arg("space"), nb::arg("key"), nb::arg("servers"),
      "The index of the server that has a key or object, if there are `servers` of them.");
  nb::dict limits;
  limits["space_bytes"] = limit::space_bytes;
  limits["key_bytes"] = limit::key_bytes;
  limits["object_name_bytes"] = limit::object_name_bytes;
  limits["value_bytes"] = limit::value_bytes;
  limits["batch_ops"] = limit::batch_ops;
  limits["atomic_batch_bytes"] = limit::atomic_batch_bytes;
  m.attr("LIMITS") = limits;
  m.attr("CONNECT_S") = Config{}.connect_timeout_s;
}
