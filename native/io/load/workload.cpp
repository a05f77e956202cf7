#include "io/load/workload.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "io/load/cleanup.hpp"
#include "io/load/files.hpp"
#include "io/load/grid.hpp"
#include "mpi/program.hpp"

namespace sonde::ioload {

namespace {

template <typename T> T reduced(T value, MPI_Datatype type, MPI_Op op, MpiTeam& team) {
  T all{};
  MPI_Request request;
  MPI_Iallreduce(&value, &all, 1, type, op, team.comm(), &request);
  team.wait(request);
  return all;
}

}  // namespace

double largest(double value, MpiTeam& team) { return reduced(value, MPI_DOUBLE, MPI_MAX, team); }
double least(double value, MpiTeam& team) { return reduced(value, MPI_DOUBLE, MPI_MIN, team); }
std::uint64_t total(std::uint64_t value, MpiTeam& team) { return reduced(value, MPI_UINT64_T, MPI_SUM, team); }

void tell(const Error& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "error: %s\n", error.what.c_str());
  if (!error.hint.empty()) std::fprintf(stderr, "  hint: %s\n", error.hint.c_str());
  std::fflush(stderr);
}

std::optional<Error> wrong_for_ranks(const Options& o, int ranks) {
  if (!o.bt_io) {
    const auto tasks = static_cast<std::uint64_t>(ranks);
    if (!o.per_process && o.block > (UINT64_C(1) << 62) / o.segments / tasks)
      return Error{"ioload.bad_option", "-b, -s and " + std::to_string(ranks) + " ranks make more than 2^62 B",
                   "use a smaller -b or -s"};
    return std::nullopt;
  }
  const int side = side_of(ranks);
  if (side == 0) {
    int below = 1;
    while ((below + 1) * (below + 1) < ranks) ++below;
    return Error{
        "ioload.bad_option",
        "BT-IO needs a square number of ranks for its grid, but there are " + std::to_string(ranks),
        "use mpirun -n " + std::to_string(below * below) + " or -n " + std::to_string((below + 1) * (below + 1))};
  }
  if (side > bt_points(o.problem))
    return Error{"ioload.bad_option",
                 std::string("class ") + o.problem + " has " + std::to_string(bt_points(o.problem)) +
                     " grid points a side, and " + std::to_string(ranks) + " ranks cut each side into " +
                     std::to_string(side),
                 "use a --class with more points, or at most " +
                     std::to_string(bt_points(o.problem) * bt_points(o.problem)) + " ranks"};
  return std::nullopt;
}

void give_up(const Error& error, MpiTeam& team, const std::function<void()>& tidy) {
  tidy();
  if (team.rank() == 0) tell(error);
  // Rank 0 has printed its text and the files are removed before any rank ends the job.
  team.barrier();
  MPI_Abort(team.comm(), exit_failed);
  std::_Exit(exit_failed);
}

void give_up_alone(const Error& error, MpiTeam& team, const std::string& path, bool removes) {
  if (!removes || ::unlink(path.c_str()) == 0)
    tell({error.code, "rank " + std::to_string(team.rank()) + ": " + error.what, error.hint});
  else ::sleep(1);  // the rank that removed it is printing, and must be able to finish
  MPI_Abort(team.comm(), exit_failed);
  std::_Exit(exit_failed);
}

Result<void> TestFile::prepare(const std::string& path) {
  path_ = path;
  std::optional<Error> error;
  int there = 0;
  if (!shared_ || team_->rank() == 0) {
    struct stat found{};
    there = files().look(path, found) == 0;
    if (there && !S_ISREG(found.st_mode))
      error = file_error("remove", path, S_ISDIR(found.st_mode) ? "it is a folder" : "it is not a regular file",
                         S_ISDIR(found.st_mode) ? EISDIR : 0);
    else if (const int number = there && !existing_ ? files().remove(path) : 0)
      error = file_error("remove", path, number);
  }
  if (shared_) {
    MPI_Request request;
    MPI_Ibcast(&there, 1, MPI_INT, 0, team_->comm(), &request);
    team_->wait(request);
  }
  mine_ = !keep_ && !(existing_ && there) && !error;
  const bool guarded = mine_ && files().has_paths();
  if (guarded && !shared_ && !existing_) guard_of_rank(path, team_->rank(), team_->size());
  else if (guarded)  // with -E a rank knows only about its own file that it did not exist before
    guard(path);
  if (error) return *error;
  return {};
}

Result<void> TestFile::remove() {
  const bool mine = std::exchange(mine_, false);
  // A shared file is removed by rank 0, after the others are done with it.
  if (const int number = remove_now(path_, mine && (!shared_ || team_->rank() == 0)))
    return file_error("remove", path_, number);
  return {};
}

void TestFile::leave() {
  mine_ = false;
  guard("");
}

Result<void> all_there(const std::string& path, std::uint64_t due_bytes) {
  struct stat found{};
  if (const int number = files().look(path, found)) return file_error("write", path, number);
  if (static_cast<std::uint64_t>(found.st_size) >= due_bytes) return {};
  const std::string lost =
      "no call failed, but of " + std::to_string(due_bytes) + " B there are " + std::to_string(found.st_size);
  const int number = likely_errno("write", path, 0);
  return file_error("write", path, number ? std::strerror(number) + (" (" + lost + ")") : lost, number);
}

int first_wrong_of_all(const std::optional<Mismatch>& mine, std::string& file, Mismatch& first, MpiTeam& team) {
  const int rank = reduced(mine ? team.rank() : team.size(), MPI_INT, MPI_MIN, team);
  if (rank == team.size()) return -1;
  if (mine) first = *mine;
  int length = static_cast<int>(file.size());
  MPI_Request request;
  MPI_Ibcast(&first, sizeof first, MPI_BYTE, rank, team.comm(), &request);
  team.wait(request);
  MPI_Ibcast(&length, 1, MPI_INT, rank, team.comm(), &request);
  team.wait(request);
  file.resize(static_cast<std::size_t>(length));
  MPI_Ibcast(file.data(), length, MPI_CHAR, rank, team.comm(), &request);
  team.wait(request);
  return rank;
}

}  // namespace sonde::ioload
