// libFuzzer: announcements and answers of foreign participants, and texts of a profile and of a measurement. The first
// byte chooses among them.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "bus/bus.hpp"
#include "bus/network.hpp"
#include "bus/probe/counters.hpp"
#include "bus/probe/options.hpp"
#include "bus/probe/talk.hpp"
#include "core/fuzz/input.hpp"

namespace {

using namespace sonde::bus;
using sonde::fuzz::hold;

void announced(std::string_view text) {
  const auto seen = read_announcement(text);
  hold(seen.fingerprint.size() + seen.user_data.size() <= text.size(), "an announcement grew");
}

void peer(std::string_view text) {
  auto parsed = parse_peer(text);
  if (!parsed) return hold(parsed.error(), "bus.");
  hold(!parsed->host.empty(), "a peer without a host");
  Transport transport;
  transport.interfaces = {std::string(text)};
  const Address loopback{"lo", "127.0.0.1", false, true, false, 1, 8},
      other{"eth0", "fe80::1", true, false, true, 2, 64};
  if (auto chosen = chosen_addresses(transport, {loopback, other}); !chosen) hold(chosen.error(), "bus.");
}

void line(std::string_view text) {
  auto talk = probe::Talk::parse(text);
  if (!talk) return;
  const std::string written = talk->line();
  auto again = probe::Talk::parse(std::string_view(written).substr(0, written.size() - 1));
  hold(again && again->line() == written, "a line changes on its way there and back");
  for (const char* key : {"", "a", "values"}) {
    hold(talk->numbers(key).size() <= text.size() + 1, "more numbers than bytes");
    hold(talk->words(key).size() <= text.size() + 1, "more words than bytes");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  if (n < 1) return 0;
  const auto text = sonde::fuzz::text_of(bytes + 1, n - 1);
  switch (bytes[0] % 6) {
    case 0: announced(text); break;
    case 1: peer(text); break;
    case 2: line(text); break;
    case 3:
      if (const auto variant = probe::Variant::parse(text); !variant) hold(variant.error(), "bus.");
      break;
    case 4:
      if (const auto one = probe::Case::parse(text); !one) hold(one.error(), "bus.");
      break;
    default: (void)probe::read_traffic(std::string(text), std::string(text), std::string(text));
  }
  return 0;
}
