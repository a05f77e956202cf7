#pragma once
/// Executed orders with their answers, so that an order that arrives twice is executed once. Bounded in number and in
/// bytes, because a trusted broker decides how long orders are. An order in progress is never forgotten, because a
/// second copy would be executed at the same time. Owner-thread.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

namespace sonde::power::bridge {

class Remembered {
 public:
  static constexpr std::size_t overhead_bytes = 128;  ///< of one order, besides its texts

  Remembered(std::size_t max_orders, std::size_t max_bytes) : max_orders_(max_orders), max_bytes_(max_bytes) {}

  /// The answer of a known order, empty while it is in progress; nullptr: the order is unknown.
  const std::string* find(const std::string& order) const {
    const auto found = orders_.find(order);
    return found == orders_.end() ? nullptr : &found->second;
  }
  /// Begins an unknown order. The oldest answered orders are removed to make room. False: orders in progress fill all
  /// room.
  bool begin(std::string order) {
    const std::size_t needs = order.size() + overhead_bytes;
    if (under_way_ >= max_orders_ || under_way_bytes_ + needs > max_bytes_) return false;
    const auto at = orders_.emplace(std::move(order), std::string()).first;
    order_.push_back(at);
    bytes_ += needs, under_way_bytes_ += needs, ++under_way_;
    fit();
    return true;
  }
  /// Ends a request. An empty answer is not stored.
  void answered(const std::string& order, const std::string& answer) {
    const auto at = orders_.find(order);
    if (at == orders_.end() || !at->second.empty() || answer.empty()) return;
    under_way_bytes_ -= at->first.size() + overhead_bytes, --under_way_;
    at->second = answer;
    bytes_ += answer.size();
    fit();
  }
  std::size_t bytes() const { return bytes_; }
  std::size_t size() const { return orders_.size(); }
  /// The number of removed orders: such an order is executed again if it arrives again.
  std::uint64_t forgotten() const { return forgotten_; }

 private:
  using Orders = std::map<std::string, std::string>;

  void fit() {
    for (auto at = order_.begin(); at != order_.end() && (bytes_ > max_bytes_ || orders_.size() > max_orders_);) {
      if ((*at)->second.empty()) {
        ++at;
        continue;
      }
      bytes_ -= (*at)->first.size() + (*at)->second.size() + overhead_bytes;
      orders_.erase(*at);
      at = order_.erase(at);
      ++forgotten_;
    }
  }

  const std::size_t max_orders_, max_bytes_;
  Orders orders_;
  std::deque<Orders::iterator> order_;  ///< oldest first
  std::size_t bytes_ = 0, under_way_bytes_ = 0, under_way_ = 0;
  std::uint64_t forgotten_ = 0;
};

}  // namespace sonde::power::bridge
