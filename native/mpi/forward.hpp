#pragma once
/// Where a rank's blocks go: a file of its own in the run's folder, or, when it does not see rank 0's folder,
/// to rank 0, between epochs. Rank 0 holds one rank's blocks at a time. Owner-thread.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/block.hpp"
#include "mpi/team.hpp"

namespace sonde {

class Forwarding {
 public:
  /// Finds out which ranks see `dir` as rank 0 does. Collective. force: none but rank 0 does.
  /// Errors, on every rank: core.cannot_write when rank 0 itself cannot write there.
  static Result<Forwarding> open(const std::string& dir, MpiTeam& team, bool force);

  /// The sink of this rank. Collective in effect: every rank calls it once.
  Result<BlockSink*> sink();

  /// Moves what waits here to rank 0. Collective; a no-op when no rank needs it.
  Result<void> drain();

  int forwarding_ranks() const { return static_cast<int>(senders_.size()); }

 private:
  Forwarding(std::string dir, MpiTeam& team) : dir_(std::move(dir)), team_(&team) {}
  std::string path_of(int rank) const;

  struct Waiting final : BlockSink {
    std::vector<std::byte> bytes;
    Result<void> put(std::span<const std::byte> more) override;
    Result<void> sync() override { return {}; }
  };

  std::string dir_;
  MpiTeam* team_;
  bool forwards_ = false;
  std::vector<int> senders_;  ///< ascending; the same on every rank
  std::unique_ptr<FileSink> file_;
  std::unique_ptr<Waiting> waiting_;
};

}  // namespace sonde
