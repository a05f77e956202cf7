#include "net/mode.hpp"

#include <array>

#include "core/clock.hpp"

namespace sonde::net {

std::unique_ptr<Mode> make_ping_pong(std::string_view name);
std::unique_ptr<Mode> make_noise(std::string_view name);
std::unique_ptr<Mode> make_all_to_all();
std::unique_ptr<Mode> make_bcast();
std::unique_ptr<Mode> make_one_sided(std::string_view name);

namespace {

constexpr std::array<ModeInfo, 9> modes{{
    {"one_to_one", "blocking ping-pong; the other pairs are silent unless proved harmless", Pattern::pairs, Value::rtt_half, false},
    {"all_to_all", "every rank sends to all at once; a stamp as each message arrives", Pattern::everyone, Value::completion, true},
    {"async_one_to_one", "ping-pong with Isend, Irecv and Wait", Pattern::pairs, Value::rtt_half, false},
    {"send_recv_and_recv_send", "ping-pong whose two directions take turns message by message", Pattern::pairs, Value::rtt_half, false},
    {"noise", "one pair's ping-pong while other ranks exchange Isend/Irecv traffic", Pattern::one_pair, Value::rtt_half, false},
    {"noise_blocking", "one pair's ping-pong while other ranks exchange blocking traffic", Pattern::one_pair, Value::rtt_half, false},
    {"bcast", "broadcast from each root in turn; a stamp as it completes on each rank", Pattern::rooted, Value::completion, true},
    {"put", "one-sided MPI_Put and flush; measured by the origin", Pattern::pairs, Value::completion, false},
    {"get", "one-sided MPI_Get and flush; measured by the origin, which receives", Pattern::pairs, Value::completion, true},
}};

}  // namespace

const char* to_string(Value value) {
  switch (value) {
    case Value::rtt_half: return "rtt_half";
    case Value::one_way: return "one_way";
    case Value::recv_duration: return "recv_duration";
    case Value::completion: return "completion";
  }
  return "unknown";
}

std::span<const ModeInfo> mode_list() { return modes; }

std::unique_ptr<Mode> make_mode(std::string_view name) {
  if (name == "one_to_one" || name == "async_one_to_one" || name == "send_recv_and_recv_send") return make_ping_pong(name);
  if (name == "noise" || name == "noise_blocking") return make_noise(name);
  if (name == "all_to_all") return make_all_to_all();
  if (name == "bcast") return make_bcast();
  if (name == "put" || name == "get") return make_one_sided(name);
  return nullptr;
}

double Context::now() const {
  const double t = now_s();
  return t + clock_ahead_s + clock_fast * t;
}

// A mode overrides the one that its pattern needs; the probe never calls the other.
void Mode::pair(Context&, int, int, std::size_t, std::uint32_t, std::uint32_t, Samples&) {}
void Mode::all(Context&, int, std::size_t, std::uint32_t, std::uint32_t, std::vector<Samples>&) {}

}  // namespace sonde::net
