#pragma once
/// OMG IDL 4.2, the part that samples need: modules, structs (with a base), enums, typedefs, constants, sequences, arrays, strings, @key,
/// @unit, @final, @topic, comments, #pragma keylist. Anything else is an error that names it and its line; unions, maps, wide characters,
/// long double, @optional, @mutable and @appendable are not carried. Any-thread.

#include <map>

#include "bus/types.hpp"

namespace sonde::bus {

/// All structures and enumerations, by scoped name. Errors: bus.bad_idl ("file.idl:12: …", what is allowed).
Result<std::map<std::string, TypePtr>> parse_idl(std::string_view text, std::string_view file = "");
/// #include "…" is looked for beside the file. Errors: bus.bad_idl, bus.no_file.
Result<std::map<std::string, TypePtr>> load_idl(const std::string& path);

}  // namespace sonde::bus
