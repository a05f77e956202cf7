// The same ping-pong and stream as raw_cyclone.c and raw_fastdds.cpp, through libsonde-bus as a C++ program uses it.
// `make bench-bus` compares them in turn.
//
// through_bus IMPLEMENTATION udp4|shared-memory ping|pong|flood|drain DOMAIN BYTES COUNT|SECONDS [keyed]
// keyed: the type, history and batching of ddsperf (a key; a ping and its answer are keep-last 1; what floods packs
// several samples into a datagram), where BYTES are of the whole sample.
// One line of JSON.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bus/typed.hpp"
#include "core/clock.hpp"

using namespace sonde::bus;
using sonde::Deadline;
using sonde::now_ns;

namespace {

struct Blob {
  std::uint64_t n = 0;
  std::vector<std::byte> data;
  static constexpr std::size_t head = 0;
};
struct Keyed {
  std::uint32_t n = 0, key = 0;
  std::vector<std::byte> data;
  static constexpr std::size_t head = 12;
};

[[noreturn]] void end(const std::string& why) {
  std::fprintf(stderr, "through_bus: %s\n", why.c_str());
  std::_Exit(1);
}
template <typename T> T must(sonde::Result<T> result) {
  if (!result) end(result.error().code + ": " + result.error().what);
  return std::move(*result);
}
void must(const sonde::Result<void>& result) {
  if (!result) end(result.error().code + ": " + result.error().what);
}

}  // namespace

template <> struct sonde::bus::Described<Blob> {
  static constexpr auto name = "raw::Blob";
  static constexpr auto fields = std::tuple{field("n", &Blob::n), field("data", &Blob::data)};
};
template <> struct sonde::bus::Described<Keyed> {
  static constexpr auto name = "raw::Keyed";
  static constexpr auto fields =
      std::tuple{field("n", &Keyed::n), key("key", &Keyed::key), field("data", &Keyed::data)};
};

namespace {

template <typename T>
void go(const std::shared_ptr<Bus>& bus, const std::string& mode, std::size_t bytes, double amount, bool keyed) {
  const bool pings = mode == "ping", pongs = mode == "pong", floods = mode == "flood";
  Qos qos;
  qos.history = keyed && (pings || pongs) ? History::keep_last : History::keep_all;
  qos.depth = 1;
  if (keyed && floods) qos.latency_budget_s = 0.1;  // ddsperf sends no sample of a stream before a datagram is full
  const char* const out = pings ? "ping" : pongs ? "pong" : floods ? "flood" : nullptr;
  const char* const in = pings ? "pong" : pongs ? "ping" : floods ? nullptr : "flood";
  const auto waiter = must(bus->waiter());
  std::unique_ptr<Publisher<T>> writer;
  std::unique_ptr<Subscriber<T>> reader;
  if (out) writer = must(Publisher<T>::open(bus, out, qos));
  if (in) {
    reader = must(Subscriber<T>::open(bus, in, qos));
    must(waiter->attach(reader->reader(), 1));
  }
  if ((writer && !writer->writer().wait_matched(1, Deadline::in_s(10))) ||
      (reader && !reader->reader().wait_matched(1, Deadline::in_s(10))))
    end("no match within 10 s");
  T sample;
  sample.data.resize(bytes > T::head ? bytes - T::head : 0);
  const auto waited = [&](double seconds) { return !waiter->wait(Deadline::in_s(seconds)).empty(); };

  if (pings) {
    const auto count = static_cast<std::size_t>(amount);
    std::vector<double> us(count);
    for (std::size_t k = 0; k < count; ++k) {
      const std::int64_t begin = now_ns();
      sample.n = static_cast<decltype(sample.n)>(k);
      must(writer->write(sample));
      for (bool got = false; !got;) {
        if (!waited(3)) end("a reply was lost");
        reader->take([&](const SampleInfo& info, const T&) { got |= info.has_data; });
      }
      us[k] = static_cast<double>(now_ns() - begin) / 1e3;
    }
    std::sort(us.begin(), us.end());
    std::printf("{\"bytes\": %zu, \"n\": %zu, \"rtt_us\": {\"min\": %.3f, \"median\": %.3f, \"p99\": %.3f}}\n", bytes,
                count, us[0], us[count / 2], us[count * 99 / 100]);
  } else if (pongs) {
    while (waited(3))
      reader->take([&](const SampleInfo& info, const T& taken) {
        if (info.has_data) must(writer->write(taken));
      });
  } else if (floods) {
    std::uint64_t sent = 0;
    const std::uint64_t per_look = bytes < 256 ? 10 : 1;  // samples between two looks at the clock, as ddsperf does
    const std::int64_t begin = now_ns();
    for (; sent % per_look || static_cast<double>(now_ns() - begin) < amount * 1e9; ++sent) {
      sample.n = static_cast<decltype(sample.n)>(sent);
      must(writer->write(sample));
    }
    writer->writer().wait_acknowledged(Deadline::in_s(5));
    const double s = static_cast<double>(now_ns() - begin) / 1e9;
    std::printf("{\"bytes\": %zu, \"sent\": %llu, \"per_s\": %.0f, \"MB_per_s\": %.1f}\n", bytes,
                static_cast<unsigned long long>(sent), static_cast<double>(sent) / s,
                static_cast<double>(sent) * static_cast<double>(bytes) / s / 1e6);
    (void)waited(0.3);
  } else {
    std::uint64_t got = 0, lost = 0, next = 0;
    std::int64_t first = 0, last = 0;
    while (waited(got ? 1 : 15)) {
      const std::uint64_t before = got;
      reader->take([&](const SampleInfo& info, const T& taken) {
        if (!info.has_data) return;
        if (got) lost += taken.n - next;
        next = taken.n + std::uint64_t{1};
        if (!got++) first = now_ns();
      });
      if (got > before) last = now_ns();
    }
    const double s = static_cast<double>(last - first) / 1e9;
    std::printf("{\"bytes\": %zu, \"got\": %llu, \"lost\": %llu, \"per_s\": %.0f, \"MB_per_s\": %.1f}\n", bytes,
                static_cast<unsigned long long>(got), static_cast<unsigned long long>(lost),
                s > 0 ? static_cast<double>(got) / s : 0,
                s > 0 ? static_cast<double>(got) * static_cast<double>(bytes) / s / 1e6 : 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  bool keyed = false, spin = false, known = argc >= 7;
  for (int k = 7; k < argc; ++k) {
    keyed |= std::string(argv[k]) == "keyed";
    spin |= std::string(argv[k]) == "spin";
    known &= std::string(argv[k]) == "keyed" || std::string(argv[k]) == "spin";
  }
  if (!known) {
    std::fprintf(stderr,
                 "usage: through_bus IMPLEMENTATION udp4|shared-memory ping|pong|flood|drain DOMAIN BYTES "
                 "COUNT|SECONDS [keyed] [spin]\n");
    return 2;
  }
  Profile profile;
  profile.name = "bench";
  profile.spin_s = spin ? -1 : 0;  // what it is compared with sleeps at once
  profile.domain = static_cast<std::uint32_t>(std::strtoul(argv[4], nullptr, 10));
  if (std::string(argv[2]) == "shared-memory") profile.transport.kind = TransportKind::shared_memory;
  const auto bus = must(Bus::open(profile, argv[1]));
  const std::size_t bytes = std::strtoul(argv[5], nullptr, 10);
  const double amount = std::strtod(argv[6], nullptr);
  keyed ? go<Keyed>(bus, argv[3], bytes, amount, true) : go<Blob>(bus, argv[3], bytes, amount, false);
}
