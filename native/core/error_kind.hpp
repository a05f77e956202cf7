#pragma once
/// The kind of a failure, from an error's code. The exit status of Sonde's programs and the exception class in Python
/// follow from it. One table (error_kind.cpp) lists each code that the native code makes, and those of Python that
/// share a room's exceptions; a test finds a code that is not listed. Any-thread.

#include <optional>
#include <string_view>

#include "core/error.hpp"

namespace sonde {

enum class ErrorKind {
  environment,  // the machine, a server, a library or a file is at fault
  usage,        // the request itself is wrong: it will fail the same way again
  data,         // an array or a file is not what it must be
  not_found,
  exists,
  unreachable,  // no peer answers, or the connection was lost
  timed_out,
  denied,
};

/// The listed kind of a code such as "store.not_found"; none for a code that the table does not list.
std::optional<ErrorKind> listed_kind(std::string_view code);

/// The kind of an error; environment for a code that the table does not list.
ErrorKind kind_of(const Error& error);

/// "environment", "usage", …
std::string_view name_of(ErrorKind kind);

/// The exit status of a program that ends with this error: 2 for kind usage, 3 for any other.
int exit_status(const Error& error);

}  // namespace sonde
