#pragma once
/// What the files of the Python module sonde._store share: names and memory of Python objects, errors. Owner-thread
/// (holds the GIL).

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "store/store.hpp"

namespace sonde::store::py {

namespace nb = nanobind;

/// Raises what sonde.store.errors makes of it. It does not return.
[[noreturn]] void raise(const Error& error);

template <typename T> T taken(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(*result);
}
inline void held_good(const Result<void>& result) {
  if (!result) raise(result.error());
}

/// A str; what is no UTF-8 in it is replaced.
nb::object text(std::string_view s);
/// Bytes from anywhere as a str: what is not UTF-8 becomes lone surrogates (PEP 383), as in names of files.
nb::object name_to_python(std::string_view name);

/// A space, key or object's name: str, or bytes for whatever is no text.
class Name {
 public:
  explicit Name(nb::handle object);
  operator std::string_view() const { return text_; }

 private:
  nb::object keep_;
  std::string_view text_;
};

/// The memory of a Python object, which cannot move or go while this lives. The GIL is held when it is made and
/// destroyed.
class Buffer {
 public:
  /// Error store.bad_buffer: no buffer, not contiguous, or, to be written to, read-only.
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
  /// Errors: store.closed; store.forked, as two processes would talk across each other on one connection.
  std::shared_ptr<Client> client() const;
  void close();
  bool closed() const { return client_ == nullptr; }

 private:
  std::shared_ptr<Client> client_;
  int pid_;
};

/// Error store.bad_safety.
Safety safety_named(const std::string& name);

/// Without the GIL, what `work` returns. Raises what a signal's handler raised meanwhile (Config::stop).
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
