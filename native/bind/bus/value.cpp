// Values of samples, from Python and to Python.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "bind/bus/bus.hpp"

namespace sonde::bus::py {

namespace {

std::string text_of(nb::handle object) {
  Py_ssize_t n = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(object.ptr(), &n);
  if (!utf8) {
    PyErr_Clear();
    raise({"bus.bad_value", "a string holds a character that cannot be encoded as UTF-8",
           "send data that is not text as bytes, in a sequence of octets"});
  }
  return {utf8, static_cast<std::size_t>(n)};
}

Value integer(nb::handle object) {
  int overflow = 0;
  const long long small = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow == 0) return {std::int64_t{small}};
  if (overflow > 0) {
    const unsigned long long large = PyLong_AsUnsignedLongLong(object.ptr());
    if (!PyErr_Occurred()) return {std::uint64_t{large}};
    PyErr_Clear();
  }
  raise({"bus.bad_value", "a number does not fit into 64 bits", "send it as a float64 or a string"});
}

}  // namespace

Value value_of(nb::handle object, unsigned depth) {
  PyObject* p = object.ptr();
  if (depth > 2 * limit::depth)
    raise({"bus.bad_value", "the value is nested more than " + std::to_string(2 * limit::depth) + " deep",
           "types nest at most 16 deep"});
  if (p == Py_None) return {};
  if (PyBool_Check(p)) return {p == Py_True};
  if (PyLong_Check(p)) return integer(object);
  if (PyFloat_Check(p)) return {PyFloat_AS_DOUBLE(p)};
  if (PyUnicode_Check(p)) return {text_of(object)};
  if (PyBytes_Check(p) || PyByteArray_Check(p)) {
    const char* at = PyBytes_Check(p) ? PyBytes_AS_STRING(p) : PyByteArray_AS_STRING(p);
    const auto n = static_cast<std::size_t>(Py_SIZE(p));
    return {Blob(reinterpret_cast<const std::byte*>(at), reinterpret_cast<const std::byte*>(at) + n)};
  }
  if (PyDict_Check(p)) {
    Struct made;
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; PyDict_Next(p, &at, &key, &value);) {
      if (!PyUnicode_Check(key))
        raise({"bus.bad_value", std::string("a field's name is a str, not ") + Py_TYPE(key)->tp_name,
               "write {\"power_w\": 211.5}"});
      made.emplace_back(text_of(key), value_of(value, depth + 1));
    }
    return {std::move(made)};
  }
  // Everything with tolist(): numpy arrays and scalars, arrays, tuples.
  if (PyObject_HasAttrString(p, "tolist")) return value_of(nb::borrow(object).attr("tolist")(), depth + 1);
  if (PyList_Check(p) || PyTuple_Check(p)) {
    List made;
    // The conversion of an element may run code that changes the sequence, so its length is read in each step.
    for (Py_ssize_t k = 0; k < PySequence_Size(p); ++k) {
      const nb::object item = nb::steal(PySequence_GetItem(p, k));
      if (!item.is_valid()) throw nb::python_error();
      made.push_back(value_of(item, depth + 1));
    }
    return {std::move(made)};
  }
  if (PyObject_CheckBuffer(p)) {
    const nb::object bytes = nb::steal(PyBytes_FromObject(p));
    if (!bytes.is_valid()) throw nb::python_error();
    return value_of(bytes, depth + 1);
  }
  if (PyIndex_Check(p)) {
    const nb::object whole = nb::steal(PyNumber_Index(p));
    if (!whole.is_valid()) throw nb::python_error();
    return integer(whole);
  }
  if (PyNumber_Check(p)) {
    const double real = PyFloat_AsDouble(p);
    if (!PyErr_Occurred()) return {real};
    PyErr_Clear();
  }
  raise({"bus.bad_value", std::string("a value is a ") + Py_TYPE(p)->tp_name,
         "allowed: dict, list, tuple, str, bytes, numbers, bool, numpy arrays"});
}

nb::object to_python(const Value& value) {
  return std::visit(
      [](const auto& is) -> nb::object {
        using T = std::decay_t<decltype(is)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nb::none();
        } else if constexpr (std::is_same_v<T, bool>) {
          return nb::bool_(is);
        } else if constexpr (std::is_same_v<T, std::int64_t> || std::is_same_v<T, std::uint64_t>) {
          return nb::int_(is);
        } else if constexpr (std::is_same_v<T, double>) {
          return nb::float_(is);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return text(is);
        } else if constexpr (std::is_same_v<T, Blob>) {
          return nb::bytes(reinterpret_cast<const char*>(is.data()), is.size());
        } else if constexpr (std::is_same_v<T, List>) {
          nb::list made;
          for (const auto& item : is) made.append(to_python(item));
          return made;
        } else {
          nb::dict made;
          for (const auto& [name, field] : is) made[text(name)] = to_python(field);
          return made;
        }
      },
      value.is);
}

}  // namespace sonde::bus::py
