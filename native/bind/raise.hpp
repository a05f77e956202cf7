#pragma once
/// Turns a native Error into a Python exception. Owner-thread (holds the GIL).

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "core/error.hpp"

namespace sonde::py {

/// Raises the exception for the error's code: `module`.from_code(code, what, hint) chooses its class. It does not
/// return.
[[noreturn]] inline void raise_from(const char* module, const Error& error) {
  namespace nb = nanobind;
  // Bytes may come from a user or a damaged file: bytes that are not UTF-8 must not cause a second error.
  const auto text = [](const std::string& s) {
    return nb::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
  };
  const nb::object value =
      nb::module_::import_(module).attr("from_code")(text(error.code), text(error.what), text(error.hint));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())), value.ptr());
  throw nb::python_error();
}

[[noreturn]] inline void raise(const Error& error) { raise_from("sonde.core.errors", error); }

/// The value; raises the error if there is one.
template <typename T> T unwrap(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(*result);
}

}  // namespace sonde::py
