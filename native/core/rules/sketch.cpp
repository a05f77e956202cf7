#include "core/rules/sketch.hpp"

#include <algorithm>
#include <limits>

namespace sonde::rules {

void EpochSketch::thin(std::vector<float>& sorted) {
  if (sorted.size() <= most_values) return;
  const double step = static_cast<double>(sorted.size()) / most_values;
  const double start = random_.uniform();
  for (std::size_t i = 0; i < most_values; ++i) {
    sorted[i] = sorted[static_cast<std::size_t>((static_cast<double>(i) + start) * step)];
  }
  sorted.resize(most_values);
  sorted.shrink_to_fit();
}

EpochSketch::Block EpochSketch::merged(const Block& a, const Block& b) {
  Block out{a.samples + b.samples, a.level + 1, a.epochs + b.epochs, {}};
  const double wa = static_cast<double>(a.samples) / static_cast<double>(a.values.size());
  const double wb = static_cast<double>(b.samples) / static_cast<double>(b.values.size());
  const std::size_t kept = std::min(most_values, a.values.size() + b.values.size());
  const double step = static_cast<double>(out.samples) / static_cast<double>(kept);
  double next = random_.uniform() * step, reached = 0;
  out.values.reserve(kept);
  for (std::size_t i = 0, j = 0; i < a.values.size() || j < b.values.size();) {
    const bool from_a = j == b.values.size() || (i < a.values.size() && a.values[i] <= b.values[j]);
    const float value = from_a ? a.values[i++] : b.values[j++];
    reached += from_a ? wa : wb;
    for (; next < reached && out.values.size() < kept; next += step) out.values.push_back(value);
  }
  while (out.values.size() < kept) out.values.push_back(std::max(a.values.back(), b.values.back()));
  return out;
}

void EpochSketch::tidy() {
  while (blocks_.size() >= 2) {
    const Block& last = blocks_.back();
    const Block& before = blocks_[blocks_.size() - 2];
    if (last.level != before.level || last.level >= level_) break;
    Block both = merged(before, last);
    blocks_.pop_back();
    blocks_.back() = std::move(both);
  }
  if (blocks_.size() == most_batches && blocks_.back().level == level_) {
    for (std::size_t k = 0; k < most_batches / 2; ++k) blocks_[k] = merged(blocks_[2 * k], blocks_[2 * k + 1]);
    blocks_.resize(most_batches / 2);
    ++level_;
  }
}

void EpochSketch::add(std::span<const double> samples) {
  Block block{samples.size(), 0, 1, std::vector<float>(samples.size())};
  // Past what a float holds it would be infinite, and the difference of two of them no number.
  constexpr double most = std::numeric_limits<float>::max();
  std::transform(samples.begin(), samples.end(), block.values.begin(),
                 [most](double x) { return static_cast<float>(std::clamp(x, -most, most)); });
  std::sort(block.values.begin(), block.values.end());
  thin(block.values);
  blocks_.push_back(std::move(block));
  ++epochs_;
  samples_ += samples.size();
  tidy();
}

stats::Batches EpochSketch::view() const {
  stats::Batches out;
  // The blocks after the full batches make one batch together, or go with the last when they are few.
  std::size_t full = 0;
  std::uint32_t rest = 0;
  for (const Block& block : blocks_) block.level == level_ ? void(++full) : void(rest += block.epochs);
  const bool own = full == 0 || 2 * rest >= (1u << level_);
  for (std::size_t k = 0; k < blocks_.size(); ++k) {
    const Block& block = blocks_[k];
    if (k < full || (k == full && own)) out.batches.push_back({0, 0, 0, out.values.size(), out.values.size()});
    stats::Batches::Batch& batch = out.batches.back();
    batch.samples += block.samples;
    batch.epochs += block.epochs;
    const double weight = static_cast<double>(block.samples) / static_cast<double>(block.values.size());
    for (float value : block.values) {
      out.values.push_back({value, static_cast<std::uint32_t>(out.batches.size() - 1), weight});
    }
    batch.end = out.values.size();
  }
  out.tidy();
  return out;
}

std::size_t EpochSketch::bytes() const {
  std::size_t out = blocks_.capacity() * sizeof(Block);
  for (const Block& block : blocks_) out += block.values.capacity() * sizeof(float);
  return out;
}

}  // namespace sonde::rules
