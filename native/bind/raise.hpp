#pragma once
/// Turns a native Error into Python's SondeError. Owner-thread (holds the GIL).

#include <nanobind/nanobind.h>

#include <string>
#include <utility>

#include "core/error.hpp"

namespace sonde {

/// Raises sonde.core.errors.<type> with the error's code, text and hint. It does not return.
[[noreturn]] inline void raise(const Error& error, const char* type = "UsageError") {
  namespace nb = nanobind;
  // Bytes may come from a user or a damaged file: bytes that are not UTF-8 must not cause a second error.
  const auto text = [](const std::string& s) {
    return nb::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
  };
  nb::object exception = nb::module_::import_("sonde.core.errors").attr(type);
  nb::object value = exception(text(error.code), text(error.what), text(error.hint));
  PyErr_SetObject(exception.ptr(), value.ptr());
  throw nb::python_error();
}

/// The value; raises the error if there is one.
template <typename T> T value_or_raise(Result<T> result, const char* type = "UsageError") {
  if (!result) raise(result.error(), type);
  return std::move(*result);
}

}  // namespace sonde
