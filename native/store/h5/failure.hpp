#pragma once
/// The exception of the HDF5 connector. It is used only inside the connector: connector.cpp catches every exception
/// before it returns to HDF5, and pushes its text on HDF5's error stack. Any-thread.

#include <stdexcept>
#include <string>

#include "core/error.hpp"

namespace sonde::store::h5 {

enum class Why { not_found, exists, read_only, io, invalid, unsupported, in_use, type };

class Failure : public std::runtime_error {
 public:
  Failure(Why why, const std::string& text) : std::runtime_error(text), why_(why) {}
  Why why() const { return why_; }

 private:
  Why why_;
};

[[noreturn]] inline void fail(Why why, const std::string& text) { throw Failure(why, text); }

/// Throws the store's own error, with its hint.
[[noreturn]] inline void fail(const Error& error, const std::string& doing) {
  fail(Why::io,
       doing + ": " + error.what + " [" + error.code + "]" + (error.hint.empty() ? "" : "; hint: " + error.hint));
}

}  // namespace sonde::store::h5
