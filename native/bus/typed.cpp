#include "bus/typed.hpp"

namespace sonde::bus::detail {

Result<void> same_type(const std::string& topic, const Type& declared, const Type& described) {
  if (equal(declared, described)) return {};
  return Error{"bus.bad_type",
               "topic '" + topic + "' carries " + declared.name + ", but the program describes a different type, " +
                   described.name,
               "declare the program's types in the profile:\n" + to_idl(described)};
}

}  // namespace sonde::bus::detail
