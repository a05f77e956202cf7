#pragma once
/// What went wrong inside the HDF5 connector. Thrown within it only: connector.cpp catches all at HDF5's border and
/// pushes the text on HDF5's error stack. Any-thread.

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

/// The store's own error, with what to do about it.
[[noreturn]] inline void fail(const Error& error, const std::string& doing) {
  fail(Why::io,
       doing + ": " + error.what + " [" + error.code + "]" + (error.hint.empty() ? "" : "; hint: " + error.hint));
}

}  // namespace sonde::store::h5
