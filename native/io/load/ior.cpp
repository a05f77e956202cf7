// IOR's workload: phases of opening, moving data and closing, each timed on every rank from a common barrier.

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "io/load/cleanup.hpp"
#include "io/load/workload.hpp"
#include "mpi/polite.hpp"
#include "mpi/program.hpp"

namespace sonde::ioload {

namespace {

/// Time since a barrier, without the time in which this rank makes data, so that only I/O is measured.
class Stopwatch {
 public:
  explicit Stopwatch(MPI_Comm comm) {
    polite::barrier(comm);
    began_s_ = now_s();
  }
  double now() const { return now_s() - began_s_ - out_s_; }
  template <typename Work> void leave_out(Work&& work) {
    const double before = now_s();
    work();
    out_s_ += now_s() - before;
  }
  double left_out_s() const { return out_s_; }

 private:
  double began_s_ = 0, out_s_ = 0;
};

class IorRun {
 public:
  IorRun(const Options& o, const Circumstances& c, MpiTeam& team)
      : o_(o),
        c_(c),
        team_(team),
        layout_(o, team.size()),
        file_(o, !o.per_process, team),
        moved_(static_cast<std::size_t>(team.size()), layout_.pieces()) {
    const auto on_node = o.tasks_per_node ? o.tasks_per_node : static_cast<std::uint64_t>(c.tasks_per_node);
    const bool filled = o.tasks_per_node || c.filled;
    if (o.shift) {
      read_shift_ = task_shift(o.shift_nodes, on_node, filled, team.size());
      check_shift_ =
          task_shift(2, on_node, filled, team.size());  // neither the writer nor the reader has these in its cache
    }
    results_.shift = read_shift_;
    results_.file_bytes = layout_.file_bytes() * (o.per_process ? static_cast<std::uint64_t>(team.size()) : 1);
  }

  int run() {
    const bool speaks = team_.rank() == 0;
    if (const auto made = make_access(o_, layout_, team_.comm()); !made) return end(made.error());
    if (auto failed = all_have_buffer()) return end(*failed);
    if (speaks) {
      print_start(c_, file_name(o_, 0, 0));
      print_options(o_, c_, results_);
      if (o_.shift && read_shift_ == 0 && team_.size() > 1)
        std::fprintf(stderr,
                     "warning: -C shifts by 0 of %d ranks: with all ranks on one node each reads what it wrote\n"
                     "  hint: count each rank as a node with --tasks-per-node 1, or use -Q\n",
                     team_.size());
    }
    std::uint64_t wrong = 0;
    for (std::uint64_t repetition = 0; repetition < o_.repetitions; ++repetition) {
      std::uint64_t wrong_here = 0;
      std::optional<Error> failed;
      if (o_.write) {
        delay();
        failed = write(repetition);
      }
      if (!failed && o_.check_write) failed = check(true, repetition, check_shift_, wrong_here);
      if (!failed && o_.read) {
        delay();
        failed = phase(Purpose::read, repetition, read_shift_);
      }
      if (!failed && o_.check_read) failed = check(false, repetition, read_shift_, wrong_here);
      polite::barrier(team_.comm());  // no rank still reads the file that is removed now
      if (wrong_here && o_.keep_with_error) file_.leave();
      const auto removed = file_.remove();
      if (!failed) failed = first_error(removed ? nullptr : &removed.error(), team_);
      if (failed) return end(*failed);
      wrong += wrong_here;
    }
    std::optional<Error> failed;
    if (speaks) {
      print_summary(o_, c_, results_);
      if (!o_.json.empty())
        if (const auto written = write_whole(o_.json, json_of(o_, c_, results_)); !written) failed = written.error();
    }
    if (team_.agree(failed.has_value())) {
      if (failed) tell(*failed);
      return exit_failed;
    }
    return wrong ? exit_wrong_data : exit_done;
  }

 private:
  int end(const Error& error) {
    if (team_.rank() == 0) tell(error);
    return exit_failed;
  }

  void delay() {
    if (o_.delay_s > 0) sleep_until(now_s() + o_.delay_s);
  }

  std::optional<Error> all_have_buffer() {
    std::optional<Error> error;
    try {
      buffer_.resize(o_.transfer / 8);
      if (o_.random) order_.resize(layout_.pieces());
    } catch (const std::bad_alloc&) {
      error = Error{"ioload.no_memory", "there is no memory for -t " + std::to_string(o_.transfer) + " B",
                    "use a smaller -t, or with -z a larger one"};
    }
    return first_error(error ? &*error : nullptr, team_);
  }

  std::optional<Error> write(std::uint64_t repetition) {
    const auto prepared = file_.prepare(file_name(o_, repetition, team_.rank()));
    if (auto failed = first_error(prepared ? nullptr : &prepared.error(), team_)) return failed;
    std::fill(moved_.begin(), moved_.end(), layout_.pieces());
    return phase(Purpose::write, repetition, 0);
  }

  /// All pieces that `owner` has, in the order in which they are moved.
  void put_in_order(int owner) {
    if (o_.random) draw_order(order_, o_.seed, owner);
  }
  Piece piece(std::uint64_t k) const { return layout_.piece(o_.random ? order_[k] : k); }

  /// Opens the file on this rank. False: it is not open here, or on no rank if all open it together.
  bool open(Access& access, const std::string& path, Purpose purpose, int owner, Errors& errors) {
    const bool opened = errors.note(access.open(path, purpose, owner));
    if (!access.opens_together()) return opened;
    const std::uint32_t seen = team_.agree(opened ? 1 : 2);
    if (seen == 3)
      if (const auto failed = first_error(errors.first(), team_))
        give_up(*failed, team_, [&] { (void)file_.remove(); });
    return opened;
  }

  /// Whether the stonewall time is over. With collective calls all ranks must make the same number, so rank 0 decides.
  bool over(double began_s, bool together) {
    if (!(o_.stonewall_s > 0)) return false;
    int past = now_s() - began_s >= o_.stonewall_s;
    if (together) polite::bcast(&past, 1, MPI_INT, 0, team_.comm());
    return past != 0;
  }

  /// Closes the file. HDF5 waits for all ranks while closing, and may not get there if one rank's data are lost.
  void close(Access& access, Errors& errors) {
    if (o_.api == Api::hdf5 && access.opens_together())
      if (const auto failed = first_error(errors.first(), team_))
        give_up(*failed, team_, [&] { (void)file_.remove(); });
    errors.note(access.close());
  }

  /// One timed phase. The error, if any, is the same on every rank.
  std::optional<Error> phase(Purpose purpose, std::uint64_t repetition, int shift) {
    const bool writes = purpose == Purpose::write;
    const int owner = (team_.rank() + shift) % team_.size();
    const std::string path = file_name(o_, repetition, owner);
    const Pattern pattern(o_.seed, o_.per_process ? static_cast<std::uint64_t>(owner) : 0);
    put_in_order(owner);
    auto made = make_access(o_, layout_, team_.comm());  // `run` has checked that it is possible
    Access& access = **made;
    Errors errors;

    Stopwatch watch(team_.comm());
    const double open_begin = watch.now();
    const bool opened = open(access, path, purpose, owner, errors);
    const double open_end = watch.now();
    if (o_.show_hints && opened && results_.hints.empty()) {
      watch.leave_out([&] {
        results_.hints = access.hints();
        if (team_.rank() == 0 && !results_.hints.empty()) print_hints(results_.hints);
      });
    }
    if (o_.barriers) polite::barrier(team_.comm());

    const double move_begin = watch.now(), wall_begin = now_s();
    const bool together = o_.collective && access.opens_together();
    const std::uint64_t pieces = moved_[static_cast<std::size_t>(owner)];
    std::uint64_t moved = 0;
    for (std::uint64_t k = 0; opened && k < pieces; ++k) {
      if (over(wall_begin, together)) break;
      const Piece next = piece(k);
      bool well;
      if (writes) {
        watch.leave_out([&] { pattern.fill(buffer_, layout_.offset(next, owner)); });
        well = errors.note(access.write(next, buffer_));
      } else {
        well = errors.note(access.read(next, buffer_));
      }
      moved += well;
      if (!well && together && o_.api == Api::hdf5) give_up_alone(*errors.first(), team_, path, file_.is_mine());
      if (!well && !together) break;
    }
    if (writes && o_.fsync && opened && (access.opens_together() || !errors.any())) errors.note(access.sync());
    const double move_end = watch.now();
    if (o_.barriers) polite::barrier(team_.comm());
    const double close_begin = watch.now();
    if (opened) close(access, errors);
    const double close_end = watch.now();

    auto failed = first_error(errors.first(), team_);
    if (!failed && writes) {
      share(moved);
      failed = lost(repetition, path);
    }
    if (failed) {
      (void)file_.remove();
      return failed;
    }

    Phase result;
    result.write = writes;
    result.iteration = repetition;
    result.transfers = total(moved, team_);
    result.bytes = result.transfers * o_.transfer;
    result.open_s = largest(open_end, team_) - least(open_begin, team_);
    result.move_s = largest(move_end, team_) - least(move_begin, team_);
    result.close_s = largest(close_end, team_) - least(close_begin, team_);
    result.total_s = largest(close_end, team_) - least(open_begin, team_);
    result.filling_s = largest(watch.left_out_s(), team_);
    const double ranks = static_cast<double>(total(moved > 0, team_));
    double latency = moved ? (move_end - move_begin) / static_cast<double>(moved) : 0, sum = 0;
    MPI_Request request;
    MPI_Iallreduce(&latency, &sum, 1, MPI_DOUBLE, MPI_SUM, team_.comm(), &request);
    team_.wait(request);
    result.latency_s = ranks > 0 ? sum / ranks : 0;
    results_.phases.push_back(result);
    if (team_.rank() == 0) print_phase(o_, result);
    return std::nullopt;
  }

  /// Sends every rank the number of pieces that each rank wrote: with -D not all of them.
  void share(std::uint64_t moved) {
    MPI_Request request;
    MPI_Iallgather(&moved, 1, MPI_UINT64_T, moved_.data(), 1, MPI_UINT64_T, team_.comm(), &request);
    team_.wait(request);
  }

  /// Checks for data that was written but is missing, although no call failed, because libraries lose errors of a full
  /// disk. The file may be too short; HDF5 files, with a format of their own, never show that, nor does any file with
  /// -D. So if the disk is full, everything is read back.
  std::optional<Error> lost(std::uint64_t repetition, const std::string& path) {
    Errors errors;
    if (o_.api != Api::hdf5 && !(o_.stonewall_s > 0) && (o_.per_process || team_.rank() == 0))
      errors.note(all_there(path, layout_.file_bytes()));
    if (auto failed = first_error(errors.first(), team_)) return failed;
    if (!team_.agree(disk_is_full(path, o_.transfer))) return std::nullopt;
    Check found;
    found.iteration = repetition;
    if (auto failed = compare(found, 0)) return failed;
    if (found.rank < 0) return std::nullopt;
    auto error = file_error("write", found.file,
                            std::strerror(ENOSPC) + (" (no call failed, but " + std::to_string(found.wrong_words) +
                                                     " words of 8 B are missing)"),
                            ENOSPC);
    error.what = "rank " + std::to_string(found.rank) + ": " + error.what;
    return error;
  }

  /// Reads the written or read data again and compares; not timed.
  std::optional<Error> check(bool after_write, std::uint64_t repetition, int shift, std::uint64_t& wrong) {
    Check result;
    result.write = after_write;
    result.iteration = repetition;
    if (auto failed = compare(result, shift)) {
      (void)file_.remove();
      return failed;
    }
    results_.checks.push_back(result);
    if (team_.rank() == 0) print_check(result);
    wrong += result.wrong_words;
    return std::nullopt;
  }

  std::optional<Error> compare(Check& result, int shift) {
    const int owner = (team_.rank() + shift) % team_.size();
    result.file = file_name(o_, result.iteration, owner);
    const Pattern pattern(o_.seed, o_.per_process ? static_cast<std::uint64_t>(owner) : 0);
    put_in_order(owner);
    auto made = make_access(o_, layout_, team_.comm());
    Access& access = **made;
    Errors errors;
    const bool opened = open(access, result.file, Purpose::read, owner, errors);
    const bool together = o_.collective && access.opens_together();
    const std::uint64_t pieces = moved_[static_cast<std::size_t>(owner)];
    std::optional<Mismatch> first;
    std::uint64_t wrong_words = 0, read = 0;
    for (std::uint64_t k = 0; opened && k < pieces; ++k) {
      const Piece next = piece(k);
      const bool well = errors.note(access.read(next, buffer_));
      if (!well && together && o_.api == Api::hdf5) give_up_alone(*errors.first(), team_, result.file, file_.is_mine());
      if (!well && !together) break;
      if (!well) continue;
      ++read;
      wrong_words += pattern.compare(buffer_, layout_.offset(next, owner), first);
    }
    if (opened) close(access, errors);
    if (auto failed = first_error(errors.first(), team_)) return failed;
    result.bytes = total(read, team_) * o_.transfer;
    result.wrong_words = total(wrong_words, team_);
    result.rank = first_wrong_of_all(first, result.file, result.first, team_);
    return std::nullopt;
  }

  const Options& o_;
  const Circumstances& c_;
  MpiTeam& team_;
  Layout layout_;
  TestFile file_;
  std::vector<std::uint64_t> moved_;  ///< pieces that each rank wrote, the first in its order
  int read_shift_ = 0, check_shift_ = 0;
  std::vector<std::uint64_t> buffer_;
  std::vector<std::uint32_t> order_;
  IorResults results_;
};

}  // namespace

int run_ior(const Options& o, const Circumstances& c, MpiTeam& team) { return IorRun(o, c, team).run(); }

}  // namespace sonde::ioload
