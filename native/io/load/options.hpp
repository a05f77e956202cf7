#pragma once
/// sonde-ioload's command line, which people type: IOR's letters with IOR's defaults, and long names. One table makes
/// the parser and --help. Any-thread.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace sonde::ioload {

enum class Api { posix, mpiio, hdf5, gfapi };
enum class BtMode { full, simple, fortran, epio };

const char* to_string(Api api);      ///< as IOR writes it: "POSIX"
const char* to_string(BtMode mode);  ///< "full"

struct Options {
  bool help = false, version = false;

  // options of both workloads
  std::string file;  ///< empty: the workload's own default
  std::string json;
  std::string hints_file;
  std::map<std::string, std::string> hints;  ///< for MPI_Info, from IOR_HINT__MPI__ variables and hints_file
  bool show_hints = false, keep = false;
  std::uint64_t seed = 0;

  // options of IOR's workload
  Api api = Api::posix;
  std::string gfapi_volume, gfapi_server = "localhost";
  std::uint64_t transfer = 262144, block = 1048576, segments = 1;  ///< B, B
  bool per_process = false, collective = false, file_view = false, random = false;
  bool write = false, read = false, check_write = false, check_read = false;
  bool shift = false;
  std::uint64_t shift_nodes = 1, tasks_per_node = 0;  ///< tasks_per_node 0: as found
  bool fsync = false, multi_file = false, barriers = false, use_existing = false, keep_with_error = false;
  std::uint64_t repetitions = 1;
  double delay_s = 0, stonewall_s = 0;

  // options of BT-IO's workload
  bool bt_io = false;
  char problem = 'S';
  BtMode mode = BtMode::full;
  std::uint64_t steps = 0, interval = 5,
                size = 0;  ///< steps 0: the number of the class; size 0: by steps, else B to reach
  double compute_s = 0;
};

/// Parses the arguments after the program's name. The error is about the first wrong one. Error: ioload.bad_option.
Result<Options> parse_options(const std::vector<std::string>& args);

/// The text of --help, at most 80 columns wide.
std::string help_text();

/// Adds to `hints` those of `environment` ("NAME=VALUE" each) and of the text of a hints file, which has priority. A
/// line of the file has IOR's form: `setenv IOR_HINT__MPI__name value` or `IOR_HINT__MPI__name=value`; '#' begins a
/// comment. Hints for GPFS, which IOR also knows, are left out. Error: ioload.bad_hint.
Result<void> add_hints(const std::vector<std::string>& environment, std::string_view file_text,
                       std::string_view file_name, std::map<std::string, std::string>& hints);

}  // namespace sonde::ioload
