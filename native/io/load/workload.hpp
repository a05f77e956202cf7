#pragma once
/// The two workloads, and what they share: agreeing on errors, removing files. Functions are collective unless noted.
/// Owner-thread.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "io/load/access.hpp"
#include "io/load/options.hpp"
#include "io/load/pattern.hpp"
#include "io/load/results.hpp"
#include "mpi/team.hpp"

namespace sonde::ioload {

constexpr int exit_done = 0, exit_wrong_data = 1, exit_usage = 2, exit_failed = 3;

/// Prints "error: …" and "  hint: …" on stderr. Only rank 0 prints.
void tell(const Error& error);

/// An error in the command line that shows only with the number of ranks; nothing if there is none. The same on every
/// rank.
std::optional<Error> wrong_for_ranks(const Options& o, int ranks);

/// Run a workload to its end and print its results. Return the exit code, the same on every rank. An error is printed,
/// and files created here are removed, except with -k.
int run_ior(const Options& o, const Circumstances& c, MpiTeam& team);
int run_bt_io(const Options& o, const Circumstances& c, MpiTeam& team);

/// The errors of one section of work on this rank; the first counts.
class Errors {
 public:
  /// Notes an error. True: this result has none.
  template <typename T> bool note(const Result<T>& result) {
    if (!result && !first_) first_ = result.error();
    return static_cast<bool>(result);
  }
  const Error* first() const { return first_ ? &*first_ : nullptr; }
  bool any() const { return first_.has_value(); }

 private:
  std::optional<Error> first_;
};

/// Ends the job if a file is open on some ranks and not on others, or if HDF5 failed on some: closing waits for all
/// ranks, so none can continue. The last resort. Rank 0 prints `error`. `tidy` removes files.
[[noreturn]] void give_up(const Error& error, MpiTeam& team, const std::function<void()>& tidy);

/// The same by one rank alone, if HDF5 returned an error on this rank while the others wait for it in a call of HDF5.
/// Of several such ranks, the one that removes `path` prints; if the file stays (`removes` is false), each of them
/// prints.
[[noreturn]] void give_up_alone(const Error& error, MpiTeam& team, const std::string& path, bool removes);

/// The file that one rank, or all together, write, and which is removed in the end.
class TestFile {
 public:
  TestFile(const Options& o, bool shared, MpiTeam& team)
      : keep_(o.keep), existing_(o.use_existing), shared_(shared), team_(&team) {}

  /// Call it before writing: removes an existing file, except with -E, and from then on a signal removes the file if it
  /// belongs to this program. Error: it cannot be removed, or is not a regular file.
  Result<void> prepare(const std::string& path);
  /// Call it at the end, and after an error: removes the guarded file; with -k nothing.
  Result<void> remove();
  /// From now on the file stays.
  void leave();
  /// Whether `remove` would remove it.
  bool is_mine() const { return mine_; }

 private:
  bool keep_, existing_, shared_, mine_ = false;
  MpiTeam* team_;
  std::string path_;
};

/// An MPI library may lose the error of a full disk; then the length of the file shows it. For this rank alone, after
/// closing, if no rank has another error.
Result<void> all_there(const std::string& path, std::uint64_t due_bytes);

/// The first wrong word that any rank found, taken from the lowest rank with one. -1 and unchanged arguments if there
/// is none.
int first_wrong_of_all(const std::optional<Mismatch>& mine, std::string& file, Mismatch& first, MpiTeam& team);

/// The largest value of all ranks. It waits without blocking the core if there are too many ranks.
double largest(double value, MpiTeam& team);
double least(double value, MpiTeam& team);
std::uint64_t total(std::uint64_t value, MpiTeam& team);

}  // namespace sonde::ioload
