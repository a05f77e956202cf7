#pragma once
/// The two workloads, and what they share: agreeing on errors, removing files. Collective where nothing else is said.
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

/// "error: …" and "  hint: …" on stderr. Rank 0 alone speaks.
void tell(const Error& error);

/// A mistake in the command line that needs the number of ranks to be seen; nothing: there is none. The same on every
/// rank.
std::optional<Error> wrong_for_ranks(const Options& o, int ranks);

/// Run a workload to its end and print its results. Return the exit code, the same on every rank. An error is printed,
/// and files that were made here are removed, but with -k.
int run_ior(const Options& o, const Circumstances& c, MpiTeam& team);
int run_bt_io(const Options& o, const Circumstances& c, MpiTeam& team);

/// The errors of one stretch of work on this rank, of which the first counts.
class Errors {
 public:
  /// Notes what went wrong. True: nothing did, now.
  template <typename T> bool note(const Result<T>& result) {
    if (!result && !first_) first_ = result.error();
    return static_cast<bool>(result);
  }
  const Error* first() const { return first_ ? &*first_ : nullptr; }
  bool any() const { return first_.has_value(); }

 private:
  std::optional<Error> first_;
};

/// Ends the job where a file is open on some ranks and not on others, or where HDF5 failed on some: closing waits for
/// all, so nobody can go on. The last resort. Rank 0 prints `error`. `tidy` removes files.
[[noreturn]] void give_up(const Error& error, MpiTeam& team, const std::function<void()>& tidy);

/// The same by one rank alone, where the others wait in a call of HDF5's for this one, which HDF5 has let return with
/// an error. Of several such ranks the one that removes `path` tells; where it stays (`removes` is false) each does.
[[noreturn]] void give_up_alone(const Error& error, MpiTeam& team, const std::string& path, bool removes);

/// The file that one rank, or all together, make, and whose removal is seen to.
class TestFile {
 public:
  TestFile(const Options& o, bool shared, MpiTeam& team)
      : keep_(o.keep), existing_(o.use_existing), shared_(shared), team_(&team) {}

  /// Before writing: removes what is there but with -E, and guards the file against signals where it will be this
  /// program's to remove. Error: it cannot be removed, or is no regular file.
  Result<void> prepare(const std::string& path);
  /// At the end, and after an error: removes what `prepare` guards; nothing with -k.
  Result<void> remove();
  /// From now on it stays.
  void leave();
  /// Whether `remove` would remove it.
  bool is_mine() const { return mine_; }

 private:
  bool keep_, existing_, shared_, mine_ = false;
  MpiTeam* team_;
  std::string path_;
};

/// An MPI library may lose the error of a full disk; the length of the file then tells. Of this rank alone, after
/// closing, where no rank has another error.
Result<void> all_there(const std::string& path, std::uint64_t due_bytes);

/// The first wrong word that any rank found: of the lowest rank that found one. -1 and unchanged arguments where none
/// did.
int first_wrong_of_all(const std::optional<Mismatch>& mine, std::string& file, Mismatch& first, MpiTeam& team);

/// Waiting that lets others of this core run, where there are too many ranks.
double largest(double value, MpiTeam& team);
double least(double value, MpiTeam& team);
std::uint64_t total(std::uint64_t value, MpiTeam& team);

}  // namespace sonde::ioload
