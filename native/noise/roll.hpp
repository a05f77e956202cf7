#pragma once
/// Who belongs to an agent, in memory that the keeper shares with its parent, so that the parent can end them when the
/// keeper was killed: also those that shed their environment, by which they are found otherwise. Linux only.
/// Owner-thread in each of the two.

#include <cstddef>
#include <memory>
#include <vector>

#include "noise/process_tree.hpp"

namespace sonde::noise {

class Roll {
 public:
  static constexpr std::size_t most = 4096;  ///< processes; of a larger agent the first are known

  /// Before the fork. Where there is no memory for it nobody is ever on it.
  Roll();
  void write(const std::vector<Process>& agent);
  /// Those of it that are still there, and all that is below them; no zombies.
  std::vector<Process> there() const;

 private:
  struct Page;
  struct Unmap {
    void operator()(Page* page) const;
  };
  std::unique_ptr<Page, Unmap> page_;
};

}  // namespace sonde::noise
