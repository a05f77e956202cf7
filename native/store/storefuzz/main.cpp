// sonde-storefuzz FRAMES [SEED]: attacks a server in this process with at least FRAMES hostile frames, and prints the
// result.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "core/clock.hpp"
#include "core/json.hpp"
#include "store/fuzz/hostile.hpp"

namespace {

std::uint64_t resident_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) return std::strtoull(line.c_str() + 6, nullptr, 10);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sonde::store;
  const std::uint64_t frames = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (frames == 0) {
    std::puts("sonde-storefuzz FRAMES [SEED]: hostile frames for a server in this process");
    return 2;
  }
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  std::mt19937_64 random(seed);
  const auto server = fuzz::target();
  if (!server) return 3;
  const double began = sonde::now_s();
  std::uint64_t sent = 0, streams = 0, answers = 0, first_kib = 0, most_kib = 0;
  bool well = true;
  const auto seen = [&] { return server->metrics().frames.load() + server->metrics().bad_frames.load(); };
  while (seen() < frames && well) {
    const std::size_t n = 1 + random() % 64;
    const auto stream = fuzz::hostile_stream(random, n);
    const int got = fuzz::attack(*server, stream, random() % 16 != 0);
    well = got >= 0;
    answers += static_cast<std::uint64_t>(std::max(got, 0));
    sent += n;
    if (++streams % 256 == 0) {
      well = well && fuzz::alive(*server);
      most_kib = std::max(most_kib, resident_kib());
      if (first_kib == 0) first_kib = most_kib;
    }
  }
  well = well && fuzz::alive(*server);
  std::puts(sonde::JsonLine()
                .add("event", "end")
                .add("frames", seen())
                .add("sent", sent)
                .add("connections", streams)
                .add("answers", answers)
                .add("alive", well)
                .add("seed", seed)
                .add("bad_frames", server->metrics().bad_frames.load())
                .add("rss_first_kib", first_kib)
                .add("rss_most_kib", most_kib)
                .add("elapsed_s", sonde::now_s() - began)
                .text()
                .c_str());
  return well ? 0 : 1;
}
