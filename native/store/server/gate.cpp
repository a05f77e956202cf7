#include "store/server/gate.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "core/clock.hpp"

namespace sonde::store {

namespace {

constexpr std::int64_t undisturbed_ns = 50'000'000;  // a handshake takes two round trips
constexpr std::size_t unproven_least = 16, unproven_most = 1024, unproven_share = 8, memory_share = 4;

}  // namespace

Gate::Gate(std::size_t connections, std::size_t memory)
    : connections_(connections),
      unproven_max_(std::clamp(std::min(connections / unproven_share, memory / memory_share / place_bytes),
                               unproven_least, unproven_most)) {}

void Gate::erase(Places::const_iterator place) {
  if (const auto count = by_address_.find(place->second.address); --count->second == 0) by_address_.erase(count);
  places_.erase(place);
}

Gate::Places::const_iterator Gate::next_to_go() const {
  std::size_t most = 0;
  for (const auto& [address, n] : by_address_) most = std::max(most, n);
  return std::find_if(places_.begin(), places_.end(),
                      [&](const auto& p) { return by_address_.at(p.second.address) == most; });
}

int Gate::crowded_ms() const {
  const std::lock_guard lock(mutex_);
  if (places_.size() < unproven_max_) return 0;
  const std::int64_t left_ns = next_to_go()->second.since_ns + undisturbed_ns - now_ns();
  return left_ns <= 0 ? 0 : static_cast<int>(left_ns / 1'000'000) + 1;
}

std::uint64_t Gate::enter(int fd, std::string address, std::string_view last_words, bool& room) {
  const std::lock_guard lock(mutex_);
  room = places_.size() >= unproven_max_;
  if (room) {
    const auto oldest = next_to_go();
    // Its session leaves before it closes the socket, so the descriptor is still the same one's.
    (void)!::send(oldest->second.fd, last_words.data(), last_words.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    ::shutdown(oldest->second.fd, SHUT_RDWR);
    erase(oldest);
  }
  const std::uint64_t number = ++last_;
  const auto count = by_address_.try_emplace(address, 0).first;
  try {
    places_.emplace(number, Place{fd, std::move(address), now_ns()});
  } catch (...) {
    if (count->second == 0) by_address_.erase(count);
    throw;
  }
  ++count->second;
  return number;
}

Gate::Answer Gate::prove(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(number);
  if (place == places_.end()) return Answer::gone;
  if (proven_.size() >= connections_) return Answer::full;
  proven_.insert(number);
  erase(place);
  return Answer::welcome;
}

void Gate::leave(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (const auto place = places_.find(number); place != places_.end()) erase(place);
  proven_.erase(number);
}

std::size_t Gate::unproven() const {
  const std::lock_guard lock(mutex_);
  return places_.size();
}

}  // namespace sonde::store
