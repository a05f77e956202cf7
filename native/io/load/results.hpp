#pragma once
/// The results of a run and their output: tables with IOR's columns for people, one JSON document for programs. Rank 0
/// alone prints. Owner-thread.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "io/load/options.hpp"
#include "io/load/pattern.hpp"

namespace sonde::ioload {

/// The host of each rank.
struct Circumstances {
  std::vector<std::string> command;
  std::string began_utc, mpi, mpi_version, host;
  int tasks = 1, nodes = 1, tasks_per_node = 1;
  bool filled = true;  ///< ranks fill one node after another: the first two ranks share a node, which IOR also checks
  bool oversubscribed = false;
};

/// One timed phase. Times begin at a barrier and exclude the time for making the data.
struct Phase {
  bool write = false;
  std::uint64_t iteration = 0, bytes = 0, transfers = 0;
  double open_s = 0, move_s = 0, close_s = 0, total_s = 0;
  double latency_s = 0;  ///< mean over ranks of the time of one transfer
  double filling_s = 0;  ///< the longest time in which a rank made data, not included above

  double rate_B_per_s() const { return total_s > 0 ? static_cast<double>(bytes) / total_s : 0; }
  double per_s(double duration_s) const { return duration_s > 0 ? static_cast<double>(transfers) / duration_s : 0; }
};

/// One comparison of the file's content with the expected data.
struct Check {
  bool write = false;  ///< after writing, else after reading
  std::uint64_t iteration = 0, bytes = 0, wrong_words = 0;
  int rank = -1;  ///< the rank that found the first error; -1: no error
  std::string file;
  Mismatch first{};
};

struct IorResults {
  int shift = 0;                             ///< of -C, in ranks
  std::uint64_t file_bytes = 0;              ///< of all files of one repetition
  std::map<std::string, std::string> hints;  ///< of the open file; empty unless requested
  std::vector<Phase> phases;
  std::vector<Check> checks;
};

struct BtResults {
  int points = 0;
  std::uint64_t steps = 0, dumps = 0, bytes = 0;
  double total_s = 0, io_s = 0, verify_s = 0;
  std::vector<double> dump_s;
  std::map<std::string, std::string> hints;
  std::uint64_t wrong_words = 0;
  int rank = -1;
  std::string file;
  Mismatch first{};
};

void print_start(const Circumstances& c, const std::string& file);
void print_options(const Options& o, const Circumstances& c, const IorResults& r);
void print_hints(const std::map<std::string, std::string>& hints);
void print_phase(const Options& o, const Phase& phase);
void print_check(const Check& check);
void print_summary(const Options& o, const Circumstances& c, const IorResults& r);
void print_bt_start(const Options& o, const Circumstances& c, const BtResults& r);
void print_bt(const Options& o, const Circumstances& c, const BtResults& r);

std::string json_of(const Options& o, const Circumstances& c, const IorResults& r);
std::string json_of(const Options& o, const Circumstances& c, const BtResults& r);

/// Writes `text` to `path` at once or not at all. Error: ioload.cannot_write.
Result<void> write_whole(const std::string& path, const std::string& text);

/// "2026-11-22T08:00:00Z"
std::string utc_now();

}  // namespace sonde::ioload
