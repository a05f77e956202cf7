#pragma once
/// The message of an exception from foreign code. Any-thread.

#include <cxxabi.h>

#include <exception>
#include <string>
#include <typeinfo>

namespace sonde {

/// The message of the current exception: "map::at", or "of the type i, which is no std::exception".
inline std::string text_of_exception() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return std::string("of the type ") + (type ? type->name() : "?") + ", which is no std::exception";
  }
}

}  // namespace sonde
