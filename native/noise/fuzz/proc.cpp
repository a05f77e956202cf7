// libFuzzer: tables of /proc, lists of CPUs, and URLs to scrape. The first byte selects one of them.
#include <cstdint>
#include <set>
#include <string>

#include "core/fuzz/input.hpp"
#include "noise/detour.hpp"
#include "noise/keeper.hpp"
#include "noise/scrape.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  using namespace sonde;
  using fuzz::hold;
  if (n < 2) return 0;
  const auto text = fuzz::text_of(bytes + 2, n - 2);
  const int cpu = bytes[1];
  switch (bytes[0] % 6) {
    case 0: {
      const auto counts = noise::parse_counts(text, cpu);
      hold(counts.rows.size() <= n && counts.devices.size() <= n, "more rows than bytes");
      break;
    }
    case 1: (void)noise::parse_steal(text, cpu); break;
    case 2: hold(noise::parse_run_delay(text) >= -1, "a delay below -1"); break;
    case 3:
      if (const auto cpus = noise::parse_cpus(std::string(text)); !cpus) hold(cpus.error(), "noise.");
      else
        for (const int one : *cpus) hold(one >= 0, "a CPU below 0");
      break;
    case 4:
      if (const auto cpus = noise::parse_cpus(text); !cpus) hold(cpus.error(), "noise.");
      else
        for (const int one : *cpus) hold(one >= 0, "a CPU below 0");
      break;
    default:
      if (auto target = noise::parse_target(text); !target) {
        hold(target.error(), "noise.");
      } else {
        hold(target->port > 0 && target->port < 65536, "a port out of its bounds");
        for (const char c : target->host + target->path)
          hold(static_cast<unsigned char>(c) > ' ', "a blank or line end goes into the request");
      }
  }
  return 0;
}
