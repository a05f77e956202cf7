#include "core/schedule.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/random.hpp"

namespace sonde {

Schedule::Schedule(std::uint32_t cells, std::uint32_t variants, std::uint32_t epochs, std::uint32_t samples,
                   std::uint64_t seed)
    : variants_(variants),
      epochs_(epochs),
      samples_(samples),
      active_(cells),
      state_(seed),
      order_(std::size_t{cells} * variants),
      retired_(cells, false) {
  std::iota(order_.begin(), order_.end(), 0u);
  shuffle();
}

void Schedule::shuffle() {
  Random random(state_);
  for (std::size_t k = order_.size(); k > 1; --k) std::swap(order_[k - 1], order_[random.below(k)]);
  state_ = random.next();
}

std::optional<Step> Schedule::next() {
  while (active_ > 0 && epoch_ < epochs_) {
    for (; at_ < order_.size(); ++at_) {
      const std::uint32_t cell = order_[at_] / variants_, variant = order_[at_] % variants_;
      if (retired_[cell]) continue;
      ++at_;
      return Step{cell, variant, epoch_, samples_};
    }
    at_ = 0;
    ++epoch_;
    shuffle();
  }
  return std::nullopt;
}

void Schedule::retire(std::uint32_t cell) {
  if (!retired_[cell]) {
    retired_[cell] = true;
    --active_;
  }
}

}  // namespace sonde
