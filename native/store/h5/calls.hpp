#pragma once
/// The functions that HDF5 calls through its tables, and the place where failures become entries of HDF5's error stack.

#include <exception>
#include <new>

#include "store/h5/handle.hpp"

namespace sonde::store::h5 {

extern const H5VL_attr_class_t attribute_calls;
extern const H5VL_dataset_class_t dataset_calls;
extern const H5VL_datatype_class_t datatype_calls;
extern const H5VL_file_class_t file_calls;
extern const H5VL_group_class_t group_calls;
extern const H5VL_link_class_t link_calls;
extern const H5VL_object_class_t object_calls;

/// Pushes one entry; `major` is HDF5's identifier for the kind of object that failed.
void push_error(const char* function, hid_t major, Why why, const char* text);

/// The depth of nested calls from HDF5 on this thread: an operation may cause HDF5 to call again.
inline thread_local int call_depth = 0;

/// Runs a call. An exception becomes an entry of the error stack, and the call returns `bad` to HDF5.
template <typename R, typename F> R guarded(const char* function, hid_t major, R bad, F&& call) noexcept {
  R result = bad;
  ++call_depth;
  auto run = [&](auto&& part) {
    try {
      part();
    } catch (const Failure& failure) {
      result = bad;
      push_error(function, major, failure.why(), failure.what());
    } catch (const std::bad_alloc&) {
      result = bad;
      push_error(function, major, Why::io, "out of memory");
    } catch (const std::exception& failure) {
      result = bad;
      push_error(function, major, Why::invalid, failure.what());
    }
  };
  run([&] { result = call(); });
  if (--call_depth == 0) {
    close_unclaimed();
  }
  return result;
}

template <typename F> herr_t guarded_status(const char* function, hid_t major, F&& call) noexcept {
  return guarded<herr_t>(function, major, -1, [&]() -> herr_t {
    call();
    return 0;
  });
}

}  // namespace sonde::store::h5
