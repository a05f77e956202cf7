// sonde-powerfuzz MUTATIONS [SEED]: damages what strangers hand to the power stack, and prints what became of it; 1:
// something was judged wrong, which then is in the file sonde-powerfuzz.input. --seeds FOLDER: writes what the
// libFuzzer harness begins with.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>

#include "core/clock.hpp"
#include "core/json.hpp"
#include "core/number.hpp"
#include "power/fuzz/hostile.hpp"

namespace {

bool write(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bool(out.flush());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sonde::power;
  if (argc == 3 && std::string_view(argv[1]) == "--seeds") {
    int number = 0;
    for (const auto& seed : fuzz::seeds())
      if (!write(std::string(argv[2]) + "/seed-" + std::to_string(number++), fuzz::input_of(seed))) {
        std::fprintf(stderr, "sonde-powerfuzz: cannot write into %s\n", argv[2]);
        return 2;
      }
    return 0;
  }
  std::uint64_t mutations = 0, random_seed = 1;
  if (argc < 2 || argc > 3 || !sonde::number(argv[1], mutations) ||
      (argc > 2 && !sonde::number(argv[2], random_seed))) {
    std::fputs(
        "sonde-powerfuzz MUTATIONS [SEED] | --seeds FOLDER: damaged configurations, messages and commands for the "
        "power stack\n",
        stderr);
    return 2;
  }
  const double began = sonde::now_s();
  const auto tally = fuzz::attack(mutations, random_seed);
  if (!tally.wrong.empty()) write("sonde-powerfuzz.input", tally.input);
  std::puts(sonde::JsonLine()
                .add("event", "end")
                .add("inputs", tally.inputs)
                .add("sound", tally.sound)
                .add("wrong", tally.wrong)
                .add("seed", random_seed)
                .add("elapsed_s", sonde::now_s() - began)
                .text()
                .c_str());
  return tally.wrong.empty() ? 0 : 1;
}
