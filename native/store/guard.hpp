#pragma once
/// What keeps exceptions of a backend, of whoever wrote it, from ending the process that uses it. Any-thread.

#include <memory>
#include <string>

#include "store/backend.hpp"

namespace sonde::store {

/// Of the exception being caught: "the backend mine of the module ./mine.so threw an exception: map::at".
/// store.internal.
Error threw(const std::string& who);

/// A backend whose calls throw nothing. `who`: how it is called where one would have.
/// Error: store.internal, for one that throws as it is asked what it can do.
Result<std::unique_ptr<Backend>> guarded(std::unique_ptr<Backend> backend, std::string who);

}  // namespace sonde::store
