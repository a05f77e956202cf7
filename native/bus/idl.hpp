#pragma once
/// OMG IDL 4.2, the part that samples need: modules, structs (with a base, whose fields come first), enums, typedefs,
/// constants, sequences, arrays, strings, comments, #include "…", include guards, #pragma keylist, and the annotations
/// @key, @unit("W"), @final, @topic, @nested and, of enumerators, @value(n). Anything else is an error with its
/// name and line; unions, maps, wide characters, long double, @optional, @mutable and @appendable are not supported.
/// Any-thread.

#include <map>
#include <string>
#include <string_view>

#include "bus/types.hpp"

namespace sonde::bus {

namespace limit {
inline constexpr std::size_t idl_bytes = 4u << 20;  ///< of all files together
inline constexpr std::size_t idl_files = 256;
}  // namespace limit

/// All structures and enumerations, by scoped name; each structure has passed check(). Errors: bus.bad_idl
/// ("file.idl:12: …", what is allowed).
Result<std::map<std::string, TypePtr>> parse_idl(std::string_view text, std::string_view file = "");
/// #include "…" searches the folder of the including file; each file is read once. Errors: bus.bad_idl, bus.no_file.
Result<std::map<std::string, TypePtr>> load_idl(const std::string& path);

}  // namespace sonde::bus
