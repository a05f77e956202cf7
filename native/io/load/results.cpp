#include "io/load/results.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "core/json.hpp"
#include "core/owned_file.hpp"
#include "core/stats/moments.hpp"
#include "core/units.hpp"
#include "io/load/files.hpp"
#include "io/load/layout.hpp"

namespace sonde::ioload {

namespace {

constexpr double MiB = 1048576.0;

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

/// A number for a column of ten characters, with as many digits as are meaningful.
std::string cell(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value >= 10000 ? "%.0f" : value >= 1 ? "%.2f" : "%.6f", value);
  return text;
}

void line(const char* key, const std::string& value) { std::printf("%-20s: %s\n", key, value.c_str()); }

std::string hex(std::uint64_t word) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(word));
  return text;
}

struct Spread {
  double most, least, mean, sd;
};

/// Standard deviation with the divisor n, as in IOR.
Spread spread(const std::vector<double>& values) {
  const double mean = stats::mean(values);
  return {*std::max_element(values.begin(), values.end()), *std::min_element(values.begin(), values.end()), mean,
          std::sqrt(stats::variance_about(values, mean))};
}

struct Operation {
  const char* name;
  std::vector<double> rates, transfers, times;  ///< B/s, 1/s, s
};

std::vector<Operation> operations(const IorResults& r) {
  std::vector<Operation> out;
  for (const bool write : {true, false}) {
    Operation operation{write ? "write" : "read", {}, {}, {}};
    for (const Phase& phase : r.phases) {
      if (phase.write != write) continue;
      operation.rates.push_back(phase.rate_B_per_s());
      operation.transfers.push_back(phase.per_s(phase.total_s));
      operation.times.push_back(phase.total_s);
    }
    if (!operation.rates.empty()) out.push_back(std::move(operation));
  }
  return out;
}

std::string list(const std::vector<std::string>& documents) {
  std::string out = "[";
  for (const std::string& document : documents) out += (out.size() > 1 ? "," : "") + document;
  return out + "]";
}

std::string object(const std::map<std::string, std::string>& texts) {
  JsonLine out;
  for (const auto& [name, value] : texts) out.add(name, value);
  return out.text();
}

JsonLine head(const char* kind, const Circumstances& c) {
  JsonLine out;
  out.add("schema", "ioload/1")
      .add("program", "sonde-ioload")
      .add("version", SONDE_VERSION)
      .add("workload", kind)
      .add("command", c.command)
      .add("began_utc", c.began_utc)
      .add("finished_utc", utc_now())
      .add("host", c.host)
      .add("mpi", c.mpi)
      .add("mpi_version", c.mpi_version)
      .add("tasks", c.tasks)
      .add("nodes", c.nodes)
      .add("tasks_per_node", c.tasks_per_node)
      .add("oversubscribed", c.oversubscribed);
  return out;
}

std::string first_wrong(int rank, const std::string& file, const Mismatch& first) {
  if (rank < 0) return "null";
  return JsonLine()
      .add("rank", rank)
      .add("file", file)
      .add("offset_B", first.offset)
      .add("expected", hex(first.expected))
      .add("found", hex(first.found))
      .text();
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

void print_start(const Circumstances& c, const std::string& file) {
  std::printf("sonde-ioload %s\n\n", SONDE_VERSION);
  utsname system{};
  uname(&system);
  line("Began", c.began_utc);
  line("Command line", joined(c.command));
  line("Machine", std::string(system.sysname) + " " + system.nodename);
  line("MPI", c.mpi_version);
  line("Path", file);
  struct statvfs space{};
  if (files().space(folder_of(file), space) == 0 && space.f_blocks > 0) {
    const double blocks = static_cast<double>(space.f_blocks);
    char used[32];
    std::snprintf(used, sizeof used, "%.1f", 100 * (blocks - static_cast<double>(space.f_bfree)) / blocks);
    line("FS", format_size(static_cast<std::uint64_t>(space.f_blocks) * space.f_frsize) + "   Used FS: " + used + "%");
  }
  std::printf("\n");
}

void print_options(const Options& o, const Circumstances& c, const IorResults& r) {
  std::printf("Options:\n");
  line("api", to_string(o.api));
  if (o.api == Api::gfapi) line("volume", o.gfapi_volume + " of " + o.gfapi_server);
  line("test filename", o.file);
  line("access", o.per_process ? "file-per-process" : "single-shared-file");
  line("type", o.collective ? "collective" : "independent");
  line("segments", std::to_string(o.segments));
  line("ordering in a file", o.random ? "random" : "sequential");
  line("ordering inter file", o.shift ? "constant task offset" : "no tasks offsets");
  if (o.shift) line("task offset", std::to_string(r.shift));
  line("nodes", std::to_string(c.nodes));
  line("tasks", std::to_string(c.tasks));
  line("clients per node", std::to_string(c.tasks_per_node));
  line("repetitions", std::to_string(o.repetitions));
  line("xfersize", format_size(o.transfer, true));
  line("blocksize", format_size(o.block, true));
  line("aggregate filesize", format_size(r.file_bytes, true));
  if (o.stonewall_s > 0) line("stonewalling time", cell(o.stonewall_s) + " s");
  std::printf(
      "\nResults:\n\n"
      "access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   close(s)   total(s)   "
      "iter\n"
      "------    ---------  ----       ----------  ---------- ---------  --------   --------   --------   --------   "
      "----\n");
  std::fflush(stdout);
}

void print_hints(const std::map<std::string, std::string>& hints) {
  std::printf("Hints of the open file:\n");
  for (const auto& [name, value] : hints) std::printf("  %s = %s\n", name.c_str(), value.c_str());
  std::fflush(stdout);
}

void print_phase(const Options& o, const Phase& p) {
  std::printf("%-9s %-10s %-10s %-11s %-10s %-10s %-10s %-10s %-10s %-10s %-4llu\n", p.write ? "write" : "read",
              cell(p.rate_B_per_s() / MiB).c_str(), cell(p.per_s(p.move_s)).c_str(), cell(p.latency_s).c_str(),
              cell(static_cast<double>(o.block) / 1024).c_str(), cell(static_cast<double>(o.transfer) / 1024).c_str(),
              cell(p.open_s).c_str(), cell(p.move_s).c_str(), cell(p.close_s).c_str(), cell(p.total_s).c_str(),
              static_cast<unsigned long long>(p.iteration));
  std::fflush(stdout);
}

void print_check(const Check& check) {
  const char* after = check.write ? "writing" : "reading";
  if (check.rank < 0) {
    std::printf("verified  %s after %s: all as it should be\n", format_size(check.bytes).c_str(), after);
  } else {
    std::printf(
        "verified  %s after %s: %llu WRONG 8-byte words; first %s at byte %llu (rank %d): expected %s, found %s\n",
        format_size(check.bytes).c_str(), after, static_cast<unsigned long long>(check.wrong_words), check.file.c_str(),
        static_cast<unsigned long long>(check.first.offset), check.rank, hex(check.first.expected).c_str(),
        hex(check.first.found).c_str());
  }
  std::fflush(stdout);
}

void print_summary(const Options& o, const Circumstances& c, const IorResults& r) {
  const auto found = operations(r);
  if (!found.empty()) std::printf("\n");
  for (const Operation& operation : found) {
    const double most = spread(operation.rates).most;
    std::printf("%-11s%.2f MiB/sec (%.2f MB/sec)\n", operation.name[0] == 'w' ? "Max Write:" : "Max Read:", most / MiB,
                most / 1e6);
  }
  if (!found.empty())
    std::printf(
        "\nSummary of all tests:\n"
        "Operation   Max(MiB)   Min(MiB)  Mean(MiB)     StdDev   Max(OPs)   Min(OPs)  Mean(OPs)     StdDev    Mean(s) "
        "Stonewall(s) "
        "Stonewall(MiB) #Tasks tPN reps fPP reord reordoff segcnt   blksiz    xsize aggs(MiB)   API\n");
  for (const Operation& operation : found) {
    const Spread rate = spread(operation.rates), transfers = spread(operation.transfers);
    std::uint64_t bytes = 0;
    for (const Phase& phase : r.phases)
      if (phase.write == (operation.name[0] == 'w')) bytes = std::max(bytes, phase.bytes);
    const bool wall = o.stonewall_s > 0;
    std::printf("%-9s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f %10.5f ", operation.name, rate.most / MiB,
                rate.least / MiB, rate.mean / MiB, rate.sd / MiB, transfers.most, transfers.least, transfers.mean,
                transfers.sd, stats::mean(operation.times));
    std::printf("%12s %14s ", wall ? cell(o.stonewall_s).c_str() : "NA",
                wall ? cell(static_cast<double>(bytes) / MiB).c_str() : "NA");
    std::printf("%6d %3d %4llu %3d %5d %8llu %6llu %8llu %8llu %9.1f %5s\n", c.tasks, c.tasks_per_node,
                static_cast<unsigned long long>(o.repetitions), o.per_process, o.shift,
                static_cast<unsigned long long>(o.shift_nodes), static_cast<unsigned long long>(o.segments),
                static_cast<unsigned long long>(o.block), static_cast<unsigned long long>(o.transfer),
                static_cast<double>(r.file_bytes) / MiB, to_string(o.api));
  }
  std::printf("\n");
  line("Finished", utc_now());
  std::fflush(stdout);
}

void print_bt_start(const Options& o, const Circumstances& c, const BtResults& r) {
  std::printf("BT-IO:\n");
  line("Class", std::string(1, o.problem));
  line("Size", std::to_string(r.points) + "x" + std::to_string(r.points) + "x" + std::to_string(r.points));
  line("mode", to_string(o.mode));
  line("tasks", std::to_string(c.tasks));
  line("Iterations", std::to_string(r.steps));
  line("write interval", std::to_string(o.interval));
  line("dumps", std::to_string(r.dumps) + " of " + format_size(r.bytes / r.dumps, true));
  line("aggregate filesize", format_size(r.bytes, true));
  line("computation", o.compute_s > 0 ? "spinning " + format_duration(o.compute_s) + " a step" : "left out");
  std::printf("\n");
  std::fflush(stdout);
}

void print_bt(const Options& o, const Circumstances& c, const BtResults& r) {
  if (r.rank >= 0)
    std::printf("%llu WRONG 8-byte words; first %s at byte %llu (rank %d): expected %s, found %s\n",
                static_cast<unsigned long long>(r.wrong_words), r.file.c_str(),
                static_cast<unsigned long long>(r.first.offset), r.rank, hex(r.first.expected).c_str(),
                hex(r.first.found).c_str());
  const double megabytes = static_cast<double>(r.bytes) / 1e6;
  std::printf("BTIO -- statistics:\n");
  auto number = [](const char* name, double value) { std::printf("   %-24s: %14.6f\n", name, value); };
  number("I/O timing in seconds", r.io_s);
  number("I/O timing percentage", r.total_s > 0 ? 100 * r.io_s / r.total_s : 0);
  number("I/O timing in verify", r.verify_s);
  number("Total data written (MB)", megabytes);
  number("I/O data rate  (MB/sec)", r.io_s > 0 ? megabytes / r.io_s : 0);
  const std::string side = std::to_string(r.points);
  std::printf("\nBT-IO completed.\n");
  auto text = [](const char* name, const std::string& value) { std::printf(" %-16s= %24s\n", name, value.c_str()); };
  text("Class", std::string(1, o.problem));
  text("Size", side + "x" + side + "x" + side);
  text("Iterations", std::to_string(r.steps));
  text("Time in seconds", cell(r.total_s));
  text("Total processes", std::to_string(c.tasks));
  text("Verification", r.rank < 0 ? "SUCCESSFUL" : "FAILED");
  std::printf("\n");
  line("Finished", utc_now());
  std::fflush(stdout);
}

std::string json_of(const Options& o, const Circumstances& c, const IorResults& r) {
  JsonLine out = head("ior", c);
  JsonLine options;
  options.add("api", to_string(o.api))
      .add("file", o.file)
      .add("transfer_B", o.transfer)
      .add("block_B", o.block)
      .add("segments", o.segments)
      .add("aggregate_B", r.file_bytes)
      .add("file_per_process", o.per_process)
      .add("collective", o.collective)
      .add("file_view", o.file_view)
      .add("random", o.random)
      .add("shift_tasks", o.shift)
      .add("shift_ranks", r.shift)
      .add("fsync", o.fsync)
      .add("barriers", o.barriers)
      .add("multi_file", o.multi_file)
      .add("use_existing", o.use_existing)
      .add("keep", o.keep)
      .add("repetitions", o.repetitions)
      .add("seed", o.seed)
      .add("delay_s", o.delay_s);
  if (o.stonewall_s > 0) options.add("stonewall_s", o.stonewall_s);
  else options.raw("stonewall_s", "null");
  options.raw("hints", object(o.hints));
  if (o.show_hints) options.raw("hints_of_file", object(r.hints));
  if (o.api == Api::gfapi) options.add("gfapi_volume", o.gfapi_volume).add("gfapi_server", o.gfapi_server);
  out.raw("options", options.text());

  std::vector<std::string> rows;
  for (const Phase& p : r.phases)
    rows.push_back(JsonLine()
                       .add("access", p.write ? "write" : "read")
                       .add("iteration", p.iteration)
                       .add("bytes", p.bytes)
                       .add("transfers", p.transfers)
                       .add("bandwidth_MiB_per_s", p.rate_B_per_s() / MiB)
                       .add("transfers_per_s", p.per_s(p.move_s))
                       .add("latency_s", p.latency_s)
                       .add("open_s", p.open_s)
                       .add("move_s", p.move_s)
                       .add("close_s", p.close_s)
                       .add("total_s", p.total_s)
                       .add("filling_s", p.filling_s)
                       .text());
  out.raw("iterations", list(rows));

  std::uint64_t wrong = 0;
  rows.clear();
  for (const Check& check : r.checks) {
    wrong += check.wrong_words;
    rows.push_back(JsonLine()
                       .add("after", check.write ? "write" : "read")
                       .add("iteration", check.iteration)
                       .add("bytes", check.bytes)
                       .add("wrong_words", check.wrong_words)
                       .raw("first", first_wrong(check.rank, check.file, check.first))
                       .text());
  }
  out.raw("checks", list(rows));

  rows.clear();
  for (const Operation& operation : operations(r)) {
    const Spread rate = spread(operation.rates), transfers = spread(operation.transfers);
    rows.push_back(JsonLine()
                       .add("access", operation.name)
                       .add("max_MiB_per_s", rate.most / MiB)
                       .add("min_MiB_per_s", rate.least / MiB)
                       .add("mean_MiB_per_s", rate.mean / MiB)
                       .add("sd_MiB_per_s", rate.sd / MiB)
                       .add("max_transfers_per_s", transfers.most)
                       .add("min_transfers_per_s", transfers.least)
                       .add("mean_transfers_per_s", transfers.mean)
                       .add("sd_transfers_per_s", transfers.sd)
                       .add("mean_s", stats::mean(operation.times))
                       .text());
  }
  out.raw("summary", list(rows));
  out.add("wrong_words", wrong);
  return out.text() + "\n";
}

std::string json_of(const Options& o, const Circumstances& c, const BtResults& r) {
  JsonLine out = head("bt-io", c);
  JsonLine options;
  options.add("class", std::string(1, o.problem))
      .add("mode", to_string(o.mode))
      .add("file", o.file)
      .add("points", r.points)
      .add("steps", r.steps)
      .add("interval_steps", o.interval)
      .add("compute_s", o.compute_s)
      .add("keep", o.keep)
      .add("seed", o.seed)
      .raw("hints", object(o.hints));
  if (o.show_hints) options.raw("hints_of_file", object(r.hints));
  out.raw("options", options.text());
  std::vector<std::string> rows;
  for (std::size_t k = 0; k < r.dump_s.size(); ++k)
    rows.push_back(JsonLine()
                       .add("dump", k)
                       .add("step", std::min((k + 1) * o.interval, r.steps))
                       .add("write_s", r.dump_s[k])
                       .text());
  out.raw("dumps", list(rows));
  out.add("bytes", r.bytes)
      .add("total_s", r.total_s)
      .add("io_s", r.io_s)
      .add("verify_s", r.verify_s)
      .add("rate_MB_per_s", r.io_s > 0 ? static_cast<double>(r.bytes) / 1e6 / r.io_s : 0)
      .add("verification", r.rank < 0 ? "SUCCESSFUL" : "FAILED")
      .add("wrong_words", r.wrong_words)
      .raw("first", first_wrong(r.rank, r.file, r.first));
  return out.text() + "\n";
}

Result<void> write_whole(const std::string& path, const std::string& text) {
  auto done = sonde::write_whole(path, text);
  if (done) return {};
  return Error{"ioload.cannot_write", done.error().what, "name another file with --json"};
}

}  // namespace sonde::ioload
