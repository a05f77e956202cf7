// libFuzzer: host lists, durations, sizes, powers and percent-encoded words, which occur in options and in files of
// others. The first byte selects one.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/fuzz/input.hpp"
#include "core/hostlist.hpp"
#include "core/text.hpp"
#include "core/units.hpp"

namespace {

using sonde::fuzz::hold;

void host_list(std::string_view text) {
  const bool sound = bool(sonde::hostlist_check(text));
  auto hosts = sonde::hostlist_expand(text);
  if (!hosts) return hold(hosts.error(), "core.");
  hold(sound, "a host list that expands does not pass hostlist_check()");
  hold(!hosts->empty() && hosts->size() <= sonde::hostlist_limit, "more hosts than the limit, or none");
  const auto folded = sonde::hostlist_fold(*hosts);
  hold(bool(folded), "the hosts of a list do not fold");
  auto again = sonde::hostlist_expand(*folded);
  hold(again && *again == *hosts, "folded hosts expand to others");
}

void duration(std::string_view text) {
  const auto value_s = sonde::parse_duration(text);
  if (!value_s) return hold(value_s.error(), "core.");
  hold(*value_s >= 0 && *value_s <= 36525 * 86400.0, "a duration out of its bounds");
  hold(bool(sonde::parse_duration(sonde::format_duration(*value_s))), "a duration is written as what is none");
}

void size(std::string_view text) {
  const auto bytes = sonde::parse_size(text);
  if (!bytes) return hold(bytes.error(), "core.");
  hold(*bytes <= std::uint64_t{1} << 62, "a size out of its bounds");
  auto again = sonde::parse_size(sonde::format_size(*bytes, true));
  hold(again && *again == *bytes, "a size changes on its way there and back");
}

void power(std::string_view text) {
  const auto value_w = sonde::parse_power(text);
  if (!value_w) return hold(value_w.error(), "core.");
  hold(*value_w >= 0 && *value_w <= 1e9, "a power out of its bounds");
  hold(bool(sonde::parse_power(sonde::format_power(*value_w))), "a power is written as what is none");
}

void word(std::string_view text) {
  std::string out;
  if (sonde::percent_decoded(text, out)) hold(out.size() <= text.size(), "decoding made a word longer");
  for (const char c : sonde::shown(text))
    hold(static_cast<unsigned char>(c) >= ' ' && c != 0x7f, "a control byte is shown");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  if (n == 0) return 0;
  const auto text = sonde::fuzz::text_of(bytes + 1, n - 1);
  switch (bytes[0] % 5) {
    case 0: host_list(text); break;
    case 1: duration(text); break;
    case 2: size(text); break;
    case 3: power(text); break;
    default: word(text); break;
  }
  return 0;
}
