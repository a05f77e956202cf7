#pragma once
/// Catches all exceptions of a backend, so that they do not end the process that uses it. Any-thread.

#include <memory>
#include <string>

#include "store/backend.hpp"

namespace sonde::store {

/// The error of the exception being caught: "the backend mine of the module ./mine.so threw an exception: map::at".
/// store.internal. who: the name for the message.
Error threw(const std::string& who);

/// A wrapped backend whose calls throw nothing. `who`: its name in the errors of exceptions.
/// Error: store.internal, when caps() throws.
Result<std::unique_ptr<Backend>> guarded(std::unique_ptr<Backend> backend, const std::string& who);

}  // namespace sonde::store
