#include "bus/typed.hpp"

namespace sonde::bus::detail {

Result<void> same_type(const std::string& topic, const Type& declared, const Type& described) {
  if (equal(declared, described)) return {};
  return Error{"bus.bad_type",
               "topic '" + topic + "' carries " + declared.name + ", which is not what the program describes as " +
                   described.name,
               "give the profile the types of the program:\n" + to_idl(described)};
}

}  // namespace sonde::bus::detail
