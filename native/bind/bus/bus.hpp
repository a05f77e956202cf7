#pragma once
/// Shared declarations for the files of the Python module sonde._bus. Owner-thread (holds the GIL).

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "bind/raise.hpp"
#include "bus/bus.hpp"
#include "bus/value.hpp"

namespace sonde::bus::py {

namespace nb = nanobind;

/// Raises the exception that sonde.bus.errors makes from the error. It does not return.
[[noreturn]] inline void raise(const Error& error) { sonde::py::raise_from("sonde.bus.errors", error); }

template <typename T> T unwrap(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(*result);
}
inline void unwrap(const Result<void>& result) {
  if (!result) raise(result.error());
}

/// A str; bytes that are not UTF-8 are replaced.
nb::object text(std::string_view s);

/// dict, list, tuple, bytes, str, int, float, bool, None and numpy's numbers and arrays. Error: bus.bad_value.
Value value_of(nb::handle object, unsigned depth = 0);
nb::object to_python(const Value& value);

/// Waits in slices without the GIL until `step` reports the end or the time is up, so that Ctrl-C works. step(Deadline)
/// -> bool. `still` is called after each slice, with the GIL; it raises if another thread has closed the object that is
/// waited for. timeout_s below 0: without end. False: the time was up.
template <typename Step, typename Still> bool wait_for(double timeout_s, Step&& step, Still&& still) {
  const Deadline end = timeout_s < 0 ? Deadline{} : Deadline::in_s(timeout_s);
  for (;;) {
    bool over = false;
    {
      const nb::gil_scoped_release release;
      Deadline slice = Deadline::in_s(0.1);
      if (end.at_ns && end.at_ns < slice.at_ns) slice = end;
      over = step(slice);
    }
    if (over) return true;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    still();
    if (end.passed()) return false;
  }
}

/// Calls into the bus without the GIL, and also destroys the call's captures there. A DDS may hold a lock while a
/// writer waits for readers, and these readers may be threads of Python.
template <typename Call> auto without_gil(Call call) {
  const nb::gil_scoped_release release;
  Call own = std::move(call);
  return own();
}

/// A bus object that any thread may close while others use it: each of them has a share, taken with the GIL, and the
/// last one ends the object. It ends without the GIL: a DDS's own threads may have to end first.
template <typename T> class Shared {
 public:
  Shared(const char* what, const char* hint) : what_(what), hint_(hint) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  void hold(std::unique_ptr<T> object) {
    object_ = std::shared_ptr<T>(object.release(), [](T* last) {
      if (!PyGILState_Check()) {
        delete last;
        return;
      }
      const nb::gil_scoped_release release;
      delete last;
    });
  }
  /// Error: bus.closed.
  std::shared_ptr<T> get() const {
    if (!object_) raise({"bus.closed", std::string("this ") + what_ + " is closed", hint_});
    return object_;
  }
  /// The object, for the thread that closes it; null: it was closed already.
  std::shared_ptr<T> close() { return std::exchange(object_, nullptr); }

 private:
  const char *what_, *hint_;
  std::shared_ptr<T> object_;
};

/// The bus of one open() in Python. After close() it raises instead of working on.
class BusHolder {
 public:
  explicit BusHolder(std::shared_ptr<Bus> bus) : bus_(std::move(bus)) {}
  BusHolder(BusHolder&&) = default;
  ~BusHolder() { close(); }
  /// A share: another thread may close the bus meanwhile.
  std::shared_ptr<Bus> bus() const {
    if (!bus_) raise({"bus.closed", "this bus is closed", "open it again"});
    return bus_;
  }
  void close() {
    if (bus_) without_gil([last = std::move(bus_)] {});
  }
  bool closed() const { return !bus_; }

 private:
  std::shared_ptr<Bus> bus_;
};

/// The type with this name in the bus's profile. Error: bus.unknown_type.
TypePtr type_named(const Bus& bus, const std::string& name);

void bind_endpoints(nb::module_& m);
void bind_requests(nb::module_& m);

}  // namespace sonde::bus::py
