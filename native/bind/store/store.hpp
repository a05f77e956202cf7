#pragma once
/// Shared declarations for the files of the Python module sonde._store: names and memory of Python objects, errors.
/// Owner-thread (holds the GIL).

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bind/raise.hpp"
#include "core/error.hpp"
#include "store/store.hpp"

namespace sonde::store::py {

namespace nb = nanobind;

/// Raises the exception that sonde.store.errors makes from the error. It does not return.
[[noreturn]] inline void raise(const Error& error) { sonde::py::raise_from("sonde.store.errors", error); }

template <typename T> T unwrap(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(*result);
}
inline void unwrap(const Result<void>& result) {
  if (!result) raise(result.error());
}

/// A str; bytes that are not UTF-8 are replaced.
nb::object text(std::string_view s);
/// Any bytes as a str: bytes that are not UTF-8 become lone surrogates (PEP 383), as in names of files.
nb::object name_to_python(std::string_view name);

/// The name of a space, key or object: str, or bytes if it is not text.
class Name {
 public:
  explicit Name(nb::handle object);
  operator std::string_view() const { return text_; }

 private:
  nb::object keep_;
  std::string_view text_;
};

/// The memory of a Python object, which cannot move or be freed while this exists. The GIL is held when it is made and
/// destroyed.
class Buffer {
 public:
  /// Error store.bad_buffer: no buffer, not contiguous, or read-only although it is to be written.
  Buffer(nb::handle object, bool writable);
  Buffer(Buffer&& other) noexcept : view_(std::exchange(other.view_, {})) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(view_, other.view_);
    return *this;
  }
  ~Buffer() {
    if (view_.obj) PyBuffer_Release(&view_);
  }
  Bytes bytes() const { return {static_cast<const std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)}; }
  MutableBytes room() const { return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)}; }

 private:
  Py_buffer view_{};
};

/// A client that may be closed while another thread is in one of its calls.
class ClientHolder {
 public:
  ClientHolder(std::vector<std::string> servers, const std::vector<std::pair<std::string, std::string>>& embedded,
               const nb::dict& options);
  /// Errors: store.closed; store.forked, because two processes on one connection would mix up their messages.
  std::shared_ptr<Client> client() const;
  void close();
  bool closed() const { return client_ == nullptr; }

 private:
  std::shared_ptr<Client> client_;
  int pid_;
};

/// Error store.bad_safety.
Safety safety_named(const std::string& name);

/// Runs `work` without the GIL, and returns its result. Raises the exception of a signal handler that ran meanwhile
/// (Config::stop).
template <typename Work> auto away(Work&& work) {
  auto result = [&] {
    const nb::gil_scoped_release release;
    return work();
  }();
  if (PyErr_Occurred()) throw nb::python_error();
  return result;
}

void bind_client(nb::module_& m);
void bind_batch(nb::module_& m);
void bind_items(nb::module_& m);
void bind_tables(nb::module_& m);

}  // namespace sonde::store::py
