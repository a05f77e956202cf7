// libFuzzer: a profile of the bus, in XML.
#include <cstddef>
#include <cstdint>
#include <string>

#include "bus/profile.hpp"
#include "core/fuzz/input.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  using namespace sonde::bus;
  using sonde::fuzz::hold;
  // Files of the profile are searched in a folder without files.
  const std::string folder = "/proc/self/fdinfo";
  auto profile = parse_profile(sonde::fuzz::text_of(bytes, n), "", folder);
  if (!profile) {
    hold(profile.error(), "bus.");
    return 0;
  }
  hold(bool(check(*profile)), "what was parsed does not pass check()");
  const std::string written = to_xml(*profile);
  auto again = parse_profile(written, profile->name, folder);
  if (!again) hold("to_xml() writes what parse_profile() refuses: " + again.error().what + "\n" + written);
  hold(to_xml(*again) == written, "a profile changes on its way there and back");
  return 0;
}
