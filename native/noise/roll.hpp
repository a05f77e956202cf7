#pragma once
/// The list of the processes of an agent, in memory that the supervisor shares with its parent. The parent can end them
/// after the supervisor was killed, also those without the environment variable by which they are found otherwise.
/// Linux only. Owner-thread in each of the two processes.

#include <cstddef>
#include <memory>
#include <vector>

#include "noise/process_tree.hpp"

namespace sonde::noise {

class Roll {
 public:
  static constexpr std::size_t most = 4096;  ///< processes; for a larger agent only the first are stored

  /// Call it before the fork. If there is no memory for the list, it stays empty.
  Roll();
  void write(const std::vector<Process>& agent);
  /// The processes of the list that still exist, and all their descendants, without zombies.
  std::vector<Process> there() const;

 private:
  struct Page;
  struct Unmap {
    void operator()(Page* page) const;
  };
  std::unique_ptr<Page, Unmap> page_;
};

}  // namespace sonde::noise
