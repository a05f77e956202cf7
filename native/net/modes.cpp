#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "net/mode.hpp"

namespace sonde::net {

std::unique_ptr<Mode> make_ping_pong(const ModeInfo& info);
std::unique_ptr<Mode> make_alternating(const ModeInfo& info);
std::unique_ptr<Mode> make_noise(const ModeInfo& info);
std::unique_ptr<Mode> make_all_to_all(const ModeInfo& info);
std::unique_ptr<Mode> make_bcast(const ModeInfo& info);
std::unique_ptr<Mode> make_one_sided(const ModeInfo& info);

std::unique_ptr<Mode> make_mode(std::string_view name) {
  const ModeInfo* info = find_mode(name);
  if (info == nullptr) return nullptr;
  if (name == "send_recv_and_recv_send") return make_alternating(*info);
  if (name == "noise" || name == "noise_blocking") return make_noise(*info);
  if (name == "all_to_all") return make_all_to_all(*info);
  if (name == "bcast") return make_bcast(*info);
  if (name == "put" || name == "get") return make_one_sided(*info);
  return make_ping_pong(*info);
}

double Context::now() const {
  const double t = now_s();
  return t + clock_ahead_s + clock_fast * t;
}

// A mode overrides the one that its pattern needs; the probe never calls the other.
void Mode::pair(Context&, int, int, std::size_t, std::uint32_t, std::uint32_t, Samples&) {}
void Mode::all(Context&, int, std::size_t, std::uint32_t, std::uint32_t, std::vector<Samples>&) {}

}  // namespace sonde::net
