#include "net/mode_table.hpp"

#include <array>

namespace sonde::net {

namespace {

constexpr std::array<ModeInfo, 9> modes{{
    {"one_to_one", "blocking ping-pong; the other pairs are silent unless proved harmless", Pattern::pairs,
     Value::rtt_half, false, true},
    {"all_to_all", "every rank sends to all at once; a stamp as each message arrives", Pattern::everyone,
     Value::completion, true, false},
    {"async_one_to_one", "ping-pong with Isend, Irecv and Wait", Pattern::pairs, Value::rtt_half, false, true},
    {"send_recv_and_recv_send", "ping-pong whose two directions take turns message by message", Pattern::pairs,
     Value::rtt_half, false, false},
    {"noise", "one pair's ping-pong while other ranks exchange Isend/Irecv traffic", Pattern::one_pair, Value::rtt_half,
     false, true},
    {"noise_blocking", "one pair's ping-pong while other ranks exchange blocking traffic", Pattern::one_pair,
     Value::rtt_half, false, true},
    {"bcast", "broadcast from each root in turn; a stamp as it completes on each rank", Pattern::rooted,
     Value::completion, true, false},
    {"put", "one-sided MPI_Put and flush; measured by the origin", Pattern::pairs, Value::completion, false, false},
    {"get", "one-sided MPI_Get and flush; measured by the origin, which receives", Pattern::pairs, Value::completion,
     true, false},
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

const ModeInfo* find_mode(std::string_view name) {
  for (const ModeInfo& info : modes)
    if (name == info.name) return &info;
  return nullptr;
}

const char* to_string(Pattern pattern) {
  switch (pattern) {
    case Pattern::pairs: return "pairs";
    case Pattern::one_pair: return "one_pair";
    case Pattern::everyone: return "everyone";
    case Pattern::rooted: return "rooted";
  }
  return "unknown";
}

}  // namespace sonde::net
