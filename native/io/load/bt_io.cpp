// BT-IO's workload: the solution of the block-tridiagonal solver, five doubles a grid point, appended to a file every
// few steps.
//
// The grid is in memory as in BT: cell by cell, with two layers of ghost points around each cell. The ghost points hold
// NaN, and must not appear in the file. BT's computation between dumps is left out: values are random, and --compute
// spins.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/units.hpp"
#include "io/load/grid.hpp"
#include "io/load/layout.hpp"
#include "io/load/workload.hpp"
#include "mpi/polite.hpp"
#include "mpi/program.hpp"

namespace sonde::ioload {

namespace {

constexpr int ghosts = 2;

/// The cells of this rank in memory, and the mapping between memory and the file.
class Solution {
 public:
  Solution(int rank, int ranks, int points, std::uint64_t seed)
      : points_(static_cast<std::uint64_t>(points)), cells_(cells_of(rank, ranks, points)), pattern_(seed, 0) {
    std::uint64_t words = 0;
    for (const Cell& cell : cells_) {
      begins_.push_back(words);
      std::uint64_t grid = 1;
      for (const int size : cell.size) grid *= static_cast<std::uint64_t>(size + 2 * ghosts);
      words += grid * bt_components;
      own_points_ += static_cast<std::uint64_t>(cell.size[0]) * static_cast<std::uint64_t>(cell.size[1]) *
                     static_cast<std::uint64_t>(cell.size[2]);
    }
    values_.assign(words, std::numeric_limits<double>::quiet_NaN());
  }

  const std::vector<Cell>& cells() const { return cells_; }
  std::uint64_t own_points() const { return own_points_; }
  std::uint64_t dump_bytes() const { return points_ * points_ * points_ * bt_point_bytes; }
  std::uint64_t begin(std::size_t cell) const { return begins_[cell]; }  ///< in doubles
  double* data() { return values_.data(); }

  /// The row of a cell along x: `y`, `z` within the cell.
  double* row(std::size_t cell, int y, int z) {
    const Cell& c = cells_[cell];
    const auto x_length = static_cast<std::uint64_t>(c.size[0] + 2 * ghosts),
               y_length = static_cast<std::uint64_t>(c.size[1] + 2 * ghosts);
    return data() + begins_[cell] +
           ((static_cast<std::uint64_t>(z + ghosts) * y_length + static_cast<std::uint64_t>(y + ghosts)) * x_length +
            ghosts) *
               bt_components;
  }
  std::uint64_t row_values(std::size_t cell) const {
    return static_cast<std::uint64_t>(cells_[cell].size[0]) * bt_components;
  }

  /// The offset of that row in the shared file, B.
  std::uint64_t row_offset(std::size_t cell, int y, int z, std::uint64_t dump) const {
    const Cell& c = cells_[cell];
    const std::uint64_t plane =
        static_cast<std::uint64_t>(c.low[2] + z) * points_ + static_cast<std::uint64_t>(c.low[1] + y);
    return dump * dump_bytes() + (plane * points_ + static_cast<std::uint64_t>(c.low[0])) * bt_point_bytes;
  }

  template <typename Work> void each_row(Work&& work) {
    for (std::size_t cell = 0; cell < cells_.size(); ++cell)
      for (int z = 0; z < cells_[cell].size[2]; ++z)
        for (int y = 0; y < cells_[cell].size[1]; ++y) work(cell, y, z);
  }

  void fill(std::uint64_t dump) {
    each_row([&](std::size_t cell, int y, int z) {
      double* values = row(cell, y, z);
      const std::uint64_t at = row_offset(cell, y, z, dump);
      for (std::uint64_t k = 0; k < row_values(cell); ++k) values[k] = value(at + 8 * k);
    });
  }

  void clear() {
    each_row([&](std::size_t cell, int y, int z) { std::fill_n(row(cell, y, z), row_values(cell), 0.0); });
  }

  /// The number of values that differ from those of `fill` in any bit; `first` gets the first one, by its place in the
  /// shared file.
  std::uint64_t compare(std::uint64_t dump, std::optional<Mismatch>& first) {
    std::uint64_t wrong = 0;
    each_row([&](std::size_t cell, int y, int z) {
      const double* values = row(cell, y, z);
      const std::uint64_t at = row_offset(cell, y, z, dump);
      for (std::uint64_t k = 0; k < row_values(cell); ++k) {
        const double expected = value(at + 8 * k);
        if (std::memcmp(&expected, &values[k], sizeof expected) == 0) continue;
        ++wrong;
        if (first) continue;
        first.emplace();
        first->offset = at + 8 * k;
        std::memcpy(&first->expected, &expected, 8);
        std::memcpy(&first->found, &values[k], 8);
      }
    });
    return wrong;
  }

 private:
  /// The expected double at `offset` of the shared file: in [0, 1), from the pattern's word there.
  double value(std::uint64_t offset) const { return static_cast<double>(pattern_.word(offset) >> 11) * 0x1.0p-53; }

  std::uint64_t points_, own_points_ = 0;
  std::vector<Cell> cells_;
  std::vector<std::uint64_t> begins_;
  std::vector<double> values_;
  Pattern pattern_;
};

/// The open file in one of the modes.
class Dumps {
 public:
  virtual ~Dumps() = default;
  virtual Result<void> open(const std::string& path, Purpose purpose) = 0;
  virtual Result<void> write(std::uint64_t dump) = 0;
  virtual Result<void> read(std::uint64_t dump) = 0;
  virtual Result<void> close() = 0;
  virtual std::map<std::string, std::string> hints() const { return {}; }
};

/// full and simple: one shared file by MPI-IO.
class MpiDumps : public Dumps {
 public:
  MpiDumps(Solution& solution, const Options& o, int points, MPI_Comm comm)
      : solution_(&solution), comm_(comm), full_(o.mode == BtMode::full), wanted_(o.hints) {
    if (!full_) return;
    MPI_Type_contiguous(static_cast<int>(bt_components), MPI_DOUBLE, &point_);
    MPI_Type_commit(&point_);
    const auto& cells = solution.cells();
    std::vector<MPI_Datatype> in_memory(cells.size()), in_file(cells.size());
    std::vector<MPI_Aint> begins(cells.size()), zeros(cells.size(), 0);
    const std::vector<int> ones(cells.size(), 1);
    for (std::size_t c = 0; c < cells.size(); ++c) {
      int whole[3], part[3], low[3], inner[3];
      for (std::size_t axis = 0; axis < 3; ++axis) {
        const std::size_t from = 2 - axis;  // C's order: z is slowest
        whole[axis] = cells[c].size[from] + 2 * ghosts;
        part[axis] = cells[c].size[from];
        low[axis] = cells[c].low[from];
        inner[axis] = ghosts;
      }
      MPI_Type_create_subarray(3, whole, part, inner, MPI_ORDER_C, point_, &in_memory[c]);
      int grid[3] = {points, points, points};
      MPI_Type_create_subarray(3, grid, part, low, MPI_ORDER_C, point_, &in_file[c]);
      begins[c] = static_cast<MPI_Aint>(solution.begin(c) * sizeof(double));
    }
    // Cells ascend in z, so the file type's places ascend, too, which MPI-IO demands.
    const int count = static_cast<int>(cells.size());
    MPI_Type_create_struct(count, ones.data(), begins.data(), in_memory.data(), &memory_type_);
    MPI_Type_create_struct(count, ones.data(), zeros.data(), in_file.data(), &file_type_);
    MPI_Type_commit(&memory_type_);
    MPI_Type_commit(&file_type_);
    for (std::size_t c = 0; c < cells.size(); ++c) {
      MPI_Type_free(&in_memory[c]);
      MPI_Type_free(&in_file[c]);
    }
  }
  ~MpiDumps() override {
    for (MPI_Datatype* type : {&point_, &memory_type_, &file_type_})
      if (*type != MPI_DATATYPE_NULL) MPI_Type_free(type);
  }

  Result<void> open(const std::string& path, Purpose purpose) override {
    path_ = path;
    if (const auto opened = mpi_open(file_, comm_, path_, purpose, wanted_); !opened) return opened;
    return full_ ? mpi_judge("open", path_, MPI_File_set_view(file_, 0, point_, file_type_, "native", MPI_INFO_NULL), 0)
                 : Result<void>{};
  }

  Result<void> write(std::uint64_t dump) override {
    if (full_) {
      MPI_Status status;
      errno = 0;
      const int code = MPI_File_write_at_all(file_, in_view(dump), solution_->data(), 1, memory_type_, &status);
      return mpi_judge("write", path_, code, errno, status, solution_->own_points() * bt_point_bytes);
    }
    return rows(dump, "write", [&](MPI_Offset at, double* values, int count, MPI_Status* status) {
      return MPI_File_write_at(file_, at, values, count, MPI_DOUBLE, status);
    });
  }

  Result<void> read(std::uint64_t dump) override {
    if (full_) {
      MPI_Status status;
      errno = 0;
      const int code = MPI_File_read_at_all(file_, in_view(dump), solution_->data(), 1, memory_type_, &status);
      return mpi_judge("read", path_, code, errno, status, solution_->own_points() * bt_point_bytes);
    }
    return rows(dump, "read", [&](MPI_Offset at, double* values, int count, MPI_Status* status) {
      return MPI_File_read_at(file_, at, values, count, MPI_DOUBLE, status);
    });
  }

  Result<void> close() override { return mpi_close(file_, path_); }
  std::map<std::string, std::string> hints() const override { return mpi_hints(file_); }

 private:
  /// The offset in the file view, in points: the view contains only this rank's points.
  MPI_Offset in_view(std::uint64_t dump) const { return static_cast<MPI_Offset>(dump * solution_->own_points()); }

  template <typename Call> Result<void> rows(std::uint64_t dump, const char* verb, Call&& call) {
    Result<void> all;
    solution_->each_row([&](std::size_t cell, int y, int z) {
      if (!all) return;
      MPI_Status status;
      const std::uint64_t count = solution_->row_values(cell);
      errno = 0;
      const int code = call(static_cast<MPI_Offset>(solution_->row_offset(cell, y, z, dump)),
                            solution_->row(cell, y, z), static_cast<int>(count), &status);
      all = mpi_judge(verb, path_, code, errno, status, count * sizeof(double));
    });
    return all;
  }

  Solution* solution_;
  MPI_Comm comm_;
  bool full_;
  std::map<std::string, std::string> wanted_;
  std::string path_;
  MPI_File file_ = MPI_FILE_NULL;
  MPI_Datatype point_ = MPI_DATATYPE_NULL, memory_type_ = MPI_DATATYPE_NULL, file_type_ = MPI_DATATYPE_NULL;
};

/// fortran: one shared file, with a record for each grid point, as direct access writes it. epio: a file for each rank,
/// with a record for each cell.
class PosixDumps : public Dumps {
 public:
  PosixDumps(Solution& solution, const Options& o) : solution_(&solution), own_file_(o.mode == BtMode::epio) {}
  ~PosixDumps() override {
    if (fd_ >= 0) ::close(fd_);
  }

  Result<void> open(const std::string& path, Purpose purpose) override {
    path_ = path;
    fd_ = ::open(path.c_str(), (purpose == Purpose::write ? O_WRONLY | O_CREAT : O_RDONLY) | O_CLOEXEC, 0666);
    if (fd_ < 0) return file_error("open", path_, errno);
    return {};
  }

  Result<void> write(std::uint64_t dump) override {
    return records(dump, true, [&](double* values, std::uint64_t bytes, std::uint64_t at) {
      return write_all(fd_, path_, values, bytes, at);
    });
  }

  Result<void> read(std::uint64_t dump) override {
    return records(dump, false, [&](double* values, std::uint64_t bytes, std::uint64_t at) {
      return read_all(fd_, path_, values, bytes, at);
    });
  }

  Result<void> close() override {
    const int fd = fd_;
    fd_ = -1;
    if (fd >= 0 && ::close(fd) != 0) return file_error("close", path_, errno);
    return {};
  }

 private:
  template <typename Move> Result<void> records(std::uint64_t dump, bool writes, Move&& move_record) {
    Result<void> all;
    if (!own_file_) {
      solution_->each_row([&](std::size_t cell, int y, int z) {
        const std::uint64_t at = solution_->row_offset(cell, y, z, dump);
        for (std::uint64_t k = 0; all && k < solution_->row_values(cell); k += bt_components)
          all = move_record(solution_->row(cell, y, z) + k, bt_point_bytes, at + 8 * k);
      });
      return all;
    }
    std::uint64_t at = dump * solution_->own_points() * bt_point_bytes;
    for (std::size_t cell = 0; all && cell < solution_->cells().size(); ++cell) {
      const Cell& c = solution_->cells()[cell];
      const std::uint64_t row = solution_->row_values(cell);
      record_.resize(row * static_cast<std::uint64_t>(c.size[1]) * static_cast<std::uint64_t>(c.size[2]));
      auto rows = [&](auto&& copy) {
        double* next = record_.data();
        for (int z = 0; z < c.size[2]; ++z)
          for (int y = 0; y < c.size[1]; ++y, next += row) copy(next, solution_->row(cell, y, z));
      };
      if (writes) rows([&](double* record, const double* values) { std::copy_n(values, row, record); });
      all = move_record(record_.data(), record_.size() * sizeof(double), at);
      if (!writes && all) rows([&](const double* record, double* values) { std::copy_n(record, row, values); });
      at += record_.size() * sizeof(double);
    }
    return all;
  }

  Solution* solution_;
  bool own_file_;
  std::string path_;
  int fd_ = -1;
  std::vector<double> record_;
};

class BtRun {
 public:
  BtRun(const Options& o, const Circumstances& c, MpiTeam& team)
      : o_(o),
        c_(c),
        team_(team),
        shared_(o.mode != BtMode::epio),
        mpi_(o.mode == BtMode::full || o.mode == BtMode::simple),
        file_(o, shared_, team) {
    const int points = bt_points(o.problem);
    results_.points = points;
    const std::uint64_t dump_bytes = bt_point_bytes * static_cast<std::uint64_t>(points) *
                                     static_cast<std::uint64_t>(points) * static_cast<std::uint64_t>(points);
    results_.steps = o.size             ? ((o.size - 1) / dump_bytes + 1) * o.interval
                     : o.steps          ? o.steps
                     : o.problem == 'S' ? 60
                                        : 200;
    results_.dumps = bt_dumps(results_.steps, o.interval);
    results_.bytes = results_.dumps * dump_bytes;
    path_ = shared_ ? o.file : numbered(o.file, team.rank(), 4);
  }

  int run() {
    std::optional<Error> error;
    std::unique_ptr<Solution> solution;
    try {
      solution = std::make_unique<Solution>(team_.rank(), team_.size(), results_.points, o_.seed);
    } catch (const std::bad_alloc&) {
      error = Error{"ioload.no_memory", std::string("there is no memory for the grid of class ") + o_.problem,
                    "use more ranks or a smaller --class"};
    }
    if (auto failed = first_error(error ? &*error : nullptr, team_)) return end(*failed);
    std::unique_ptr<Dumps> dumps;
    if (mpi_) dumps = std::make_unique<MpiDumps>(*solution, o_, results_.points, team_.comm());
    else dumps = std::make_unique<PosixDumps>(*solution, o_);
    const auto prepared = file_.prepare(path_);
    if (auto failed = first_error(prepared ? nullptr : &prepared.error(), team_)) return end(*failed);
    if (team_.rank() == 0) {
      print_start(c_, path_);
      print_bt_start(o_, c_, results_);
    }
    if (auto failed = write(*solution, *dumps)) return end(*failed);
    if (auto failed = verify(*solution, *dumps)) return end(*failed);
    const auto removed = file_.remove();
    if (auto failed = first_error(removed ? nullptr : &removed.error(), team_)) return end(*failed);
    std::optional<Error> failed;
    if (team_.rank() == 0) {
      print_bt(o_, c_, results_);
      if (!o_.json.empty())
        if (const auto written = write_whole(o_.json, json_of(o_, c_, results_)); !written) failed = written.error();
    }
    if (team_.agree(failed.has_value())) return failed ? end(*failed) : exit_failed;
    return results_.rank < 0 ? exit_done : exit_wrong_data;
  }

 private:
  int end(const Error& error) {
    (void)file_.remove();
    if (team_.rank() == 0) tell(error);
    return exit_failed;
  }

  /// Opens the file; the error is the same on every rank. If it were open only on some ranks, they could not close it.
  std::optional<Error> open(Dumps& dumps, Purpose purpose) {
    Errors errors;
    const bool opened = errors.note(dumps.open(path_, purpose));
    const std::uint32_t seen = team_.agree(opened ? 1 : 2);
    if (seen == 1) return std::nullopt;
    auto failed = first_error(errors.first(), team_);
    if (seen == 3 && mpi_) give_up(*failed, team_, [&] { (void)file_.remove(); });
    return failed;
  }

  std::optional<Error> write(Solution& solution, Dumps& dumps) {
    polite::barrier(team_.comm());
    const double began_s = now_s();
    if (auto failed = open(dumps, Purpose::write)) return failed;
    double io_s = now_s() - began_s;
    if (o_.show_hints) {
      results_.hints = dumps.hints();
      if (team_.rank() == 0 && !results_.hints.empty()) print_hints(results_.hints);
    }
    Errors errors;
    std::vector<double> dump_s(results_.dumps, 0);
    for (std::uint64_t dump = 0; dump < results_.dumps; ++dump) {
      const std::uint64_t steps = std::min(o_.interval, results_.steps - dump * o_.interval);
      const double until_s = now_s() + o_.compute_s * static_cast<double>(steps);
      solution.fill(dump);
      while (now_s() < until_s) {}
      polite::barrier(team_.comm());  // BT's ranks exchange faces before each dump, so they reach it together
      const double before_s = now_s();
      // All ranks must call a collective write, also those that failed before.
      if (o_.mode == BtMode::full || !errors.any()) errors.note(dumps.write(dump));
      dump_s[dump] = now_s() - before_s;
      io_s += dump_s[dump];
      // After a dump has failed on a full disk, the others would only take time; all ranks stop together.
      if (team_.agree(errors.any())) break;
    }
    const double closing_s = now_s();
    errors.note(dumps.close());
    io_s += now_s() - closing_s;
    const double total_s = now_s() - began_s;
    if (auto failed = first_error(errors.first(), team_)) return failed;
    if (!shared_ || team_.rank() == 0)
      errors.note(all_there(path_, shared_ ? results_.bytes : results_.dumps * solution.own_points() * bt_point_bytes));
    if (auto failed = first_error(errors.first(), team_)) return failed;
    results_.io_s = largest(io_s, team_);
    results_.total_s = largest(total_s, team_);
    results_.dump_s.resize(dump_s.size());
    MPI_Request request;
    MPI_Iallreduce(dump_s.data(), results_.dump_s.data(), static_cast<int>(dump_s.size()), MPI_DOUBLE, MPI_MAX,
                   team_.comm(), &request);
    team_.wait(request);
    return std::nullopt;
  }

  std::optional<Error> verify(Solution& solution, Dumps& dumps) {
    polite::barrier(team_.comm());
    const double began_s = now_s();
    if (auto failed = open(dumps, Purpose::read)) return failed;
    Errors errors;
    std::optional<Mismatch> first;
    std::uint64_t wrong = 0;
    double comparing_s = 0;
    for (std::uint64_t dump = 0; dump < results_.dumps; ++dump) {
      const double clearing_s = now_s();
      solution.clear();
      comparing_s += now_s() - clearing_s;
      const bool well = (o_.mode == BtMode::full || !errors.any()) && errors.note(dumps.read(dump));
      const double before_s = now_s();
      if (well) wrong += solution.compare(dump, first);
      comparing_s += now_s() - before_s;
    }
    errors.note(dumps.close());
    const double verify_s = now_s() - began_s - comparing_s;
    if (auto failed = first_error(errors.first(), team_)) return failed;
    results_.verify_s = largest(verify_s, team_);
    results_.wrong_words = total(wrong, team_);
    results_.file = path_;
    if (first && !shared_) first->offset = in_own_file(solution, first->offset);
    results_.rank = first_wrong_of_all(first, results_.file, results_.first, team_);
    return std::nullopt;
  }

  /// The place in this rank's file (epio) that corresponds to `offset` in a shared file.
  static std::uint64_t in_own_file(Solution& solution, std::uint64_t offset) {
    const std::uint64_t dump = offset / solution.dump_bytes();
    std::uint64_t at = dump * solution.own_points() * bt_point_bytes, found = at;
    solution.each_row([&](std::size_t cell, int y, int z) {
      const std::uint64_t row = solution.row_offset(cell, y, z, dump),
                          bytes = solution.row_values(cell) * sizeof(double);
      if (offset >= row && offset < row + bytes) found = at + offset - row;
      at += bytes;
    });
    return found;
  }

  const Options& o_;
  const Circumstances& c_;
  MpiTeam& team_;
  bool shared_, mpi_;
  TestFile file_;
  std::string path_;
  BtResults results_;
};

}  // namespace

int run_bt_io(const Options& o, const Circumstances& c, MpiTeam& team) { return BtRun(o, c, team).run(); }

}  // namespace sonde::ioload
