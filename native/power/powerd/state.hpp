#pragma once
/// What a node manager has on its disk: the highest fence that it obeyed, and what the hardware had before the first
/// cap. One folder serves the node managers of several nodes; of one node only one runs. Owner-thread.
///
/// The fence is in a file of two slots that are written in turn, in place: a write that a crash tears leaves the other
/// slot, and a disk that has become full does not keep a node from obeying who took over. Originals are written to a
/// new file that is renamed.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "power/hardware/hardware.hpp"
#include "power/lease.hpp"

namespace sonde::power {

class NodeState {
 public:
  /// Makes the folder where it is missing, and takes the node's lock. Errors: power.already_running (which process,
  /// where it says so), power.state (what, where).
  static Result<std::unique_ptr<NodeState>> open(const std::string& folder, const std::string& node);
  ~NodeState();

  /// What the disk has, {} where it has none. Errors: power.state: damaged, or it cannot be read. Whose word counts is
  /// then not known.
  Result<Fence> fence();
  /// On stable storage when it returns. Errors: power.state.
  Result<void> keep(const Fence& fence);

  /// Nothing where none are kept. Errors: power.state.
  Result<std::optional<std::vector<Original>>> originals() const;
  /// On stable storage when it returns. Errors: power.state; what was kept before stands.
  Result<void> keep(const std::vector<Original>& originals);
  Result<void> forget_originals();

 private:
  NodeState(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  /// The file has `text`, or is as it was.
  Result<void> replace(const std::string& file, std::string_view text) const;
  Error wrong(const std::string& what, const std::string& file) const;

  std::string path_;  ///< without the end of the name
  int lock_ = -1, slots_ = -1;
  std::uint64_t serial_ = 0;  ///< of the slot that was written last
};

}  // namespace sonde::power
