// sonde-busfuzz GOLDEN MUTATIONS [SEED]: damages samples and declarations of a golden file, and prints the results;
// exit status 1: a wrong result, with its input in the file sonde-busfuzz.input. --seeds FOLDER GOLDEN: writes the
// seeds of the libFuzzer harness.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "bus/fuzz/hostile.hpp"
#include "core/clock.hpp"
#include "core/json.hpp"
#include "core/number.hpp"

namespace {

bool write(const std::string& path, sonde::bus::Bytes bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bool(out.flush());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sonde::bus;
  const bool make_seeds = argc == 4 && std::string_view(argv[1]) == "--seeds";
  std::uint64_t mutations = 0, random_seed = 1;
  if (!make_seeds && (argc < 3 || argc > 4 || !sonde::number(argv[2], mutations) ||
                      (argc > 3 && !sonde::number(argv[3], random_seed)))) {
    std::fputs(
        "sonde-busfuzz GOLDEN MUTATIONS [SEED] | --seeds FOLDER GOLDEN: damaged samples and declarations for "
        "libsonde-bus\n",
        stderr);
    return 2;
  }
  const std::string golden = argv[make_seeds ? 3 : 1];
  const auto seeds = fuzz::seeds(golden);
  if (seeds.empty()) {
    std::fprintf(stderr, "sonde-busfuzz: no samples in %s; tests/data/bus/golden.txt has some\n", golden.c_str());
    return 2;
  }
  if (make_seeds) {
    for (std::size_t k = 0; k < seeds.size(); ++k)
      if (!write(std::string(argv[2]) + "/golden-" + std::to_string(k), fuzz::input_of(seeds[k]))) {
        std::fprintf(stderr, "sonde-busfuzz: cannot write into %s\n", argv[2]);
        return 2;
      }
    return 0;
  }
  const double began = sonde::now_s();
  const auto tally = fuzz::attack(seeds, mutations, random_seed);
  if (!tally.wrong.empty()) write("sonde-busfuzz.input", tally.input);
  std::puts(sonde::JsonLine()
                .add("event", "end")
                .add("samples", tally.samples)
                .add("verified", tally.verified)
                .add("declarations", tally.declarations)
                .add("declared", tally.declared)
                .add("wrong", tally.wrong)
                .add("seed", random_seed)
                .add("elapsed_s", sonde::now_s() - began)
                .text()
                .c_str());
  return tally.wrong.empty() ? 0 : 1;
}
