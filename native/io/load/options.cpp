#include "io/load/options.hpp"

#include <algorithm>
#include <cctype>
#include <functional>
#include <optional>
#include <utility>

#include "core/number.hpp"
#include "core/units.hpp"

namespace sonde::ioload {

const char* to_string(Api api) {
  constexpr const char* names[] = {"POSIX", "MPIIO", "HDF5", "GFAPI"};
  return names[static_cast<int>(api)];
}

const char* to_string(BtMode mode) {
  constexpr const char* names[] = {"full", "simple", "fortran", "epio"};
  return names[static_cast<int>(mode)];
}

namespace {

constexpr int either = 0, ior = 1, bt = 2;

/// Stores a value, or returns what is wrong with it: "is 'x'; allowed: …".
using Take = std::function<std::optional<std::string>(const std::string&)>;

struct Option {
  char letter;  ///< 0: only a long name
  std::string name;
  std::string value;  ///< the name of the value in --help; empty: a flag
  int of;             ///< either, ior, bt
  std::string text;
  Take take;
};

std::string upper(std::string text) {
  for (char& ch : text) ch = static_cast<char>(std::toupper(static_cast<unsigned char>(ch)));
  return text;
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

/// A size as in IOR, where one letter means a power of 1024, or as in the rest of Sonde.
Result<std::uint64_t> ior_size(const std::string& text) {
  const bool letter = text.size() > 1 && std::string_view("kmgtKMGT").find(text.back()) != std::string_view::npos;
  return parse_size(letter ? text + "iB" : text);
}

Take flag(bool& target) {
  return [&target](const std::string&) -> std::optional<std::string> {
    target = true;
    return {};
  };
}

Take size(std::uint64_t& target, std::uint64_t least) {
  return [&target, least](const std::string& v) -> std::optional<std::string> {
    const auto bytes = ior_size(v);
    if (!bytes) return "is " + quoted(v) + "; allowed: bytes, or with k, m, g or t powers of 1024";
    target = *bytes;
    if (target < least) return "is " + quoted(v) + "; allowed: " + format_size(least) + " and above";
    return {};
  };
}

Take whole(std::uint64_t& target, std::uint64_t least, std::uint64_t most) {
  return [&target, least, most](const std::string& v) -> std::optional<std::string> {
    if (number(v, target) && target >= least && target <= most) return {};
    return "is " + quoted(v) + "; allowed: whole numbers from " + std::to_string(least) +
           (most == UINT64_MAX ? " on" : " to " + std::to_string(most));
  };
}

Take seconds(double& target) {
  return [&target](const std::string& v) -> std::optional<std::string> {
    const auto parsed = parse_duration(v);
    if (!parsed) return "is " + quoted(v) + "; allowed: seconds, or a duration with its unit, up to 36525 d";
    target = *parsed;
    return {};
  };
}

Take text(std::string& target) {
  return [&target](const std::string& v) -> std::optional<std::string> {
    if (v.empty()) return std::string("is empty; a name is needed");
    target = v;
    return {};
  };
}

std::vector<Option> table(Options& o) {
  return {
      {'o', "file", "FILE", either, "test file; default testFile, of BT-IO btio.MODE.out", text(o.file)},
      {'k', "keep", "", either, "do not remove the file(s) at the end", flag(o.keep)},
      {'G', "seed", "N", either, "seed of the data and of -z; default 0", whole(o.seed, 0, UINT64_MAX)},
      {'U', "hints", "FILE", either,
       "file of MPI-IO hints, lines IOR_HINT__MPI__name=value; variables of that form count as well",
       text(o.hints_file)},
      {'H', "show-hints", "", either, "show the hints that the MPI-IO file has", flag(o.show_hints)},
      {0, "json", "FILE", either, "write all results to FILE as one JSON document", text(o.json)},
      {'h', "help", "", either, "show this and end", flag(o.help)},
      {0, "version", "", either, "show versions and end", flag(o.version)},

      {'a', "api", "API", ior, "POSIX (default), MPIIO, HDF5 or GFAPI, which is GlusterFS without a mount",
       [&o](const std::string& v) -> std::optional<std::string> {
         for (const Api api : {Api::posix, Api::mpiio, Api::hdf5, Api::gfapi})
           if (upper(v) == to_string(api)) {
             o.api = api;
             return {};
           }
         return "is " + quoted(v) + "; allowed: POSIX, MPIIO, HDF5, GFAPI";
       }},
      {0, "gfapi.volume", "VOLUME", ior, "with -a GFAPI: the volume, in which -o is a path", text(o.gfapi_volume)},
      {0, "gfapi.server", "HOST", ior, "with -a GFAPI: one of its servers; default localhost", text(o.gfapi_server)},
      {'t', "transfer", "SIZE", ior, "bytes of one call; default 256k", size(o.transfer, 8)},
      {'b', "block", "SIZE", ior, "contiguous bytes of one task in one segment; default 1m", size(o.block, 8)},
      {'s', "segments", "N", ior, "segments, each with a block of every task; default 1",
       whole(o.segments, 1, UINT64_C(1) << 40)},
      {'F', "file-per-process", "", ior, "a file for each task, FILE.00000000 and so on", flag(o.per_process)},
      {'c', "collective", "", ior, "collective calls (MPIIO, HDF5)", flag(o.collective)},
      {'V', "file-view", "", ior, "let a file view make the stride (MPIIO)", flag(o.file_view)},
      {'z', "random", "", ior, "each task does its transfers in random order", flag(o.random)},
      {'w', "write", "", ior, "write; without -w, -r, -W, -R: write and read", flag(o.write)},
      {'r', "read", "", ior, "read", flag(o.read)},
      {'W', "check-write", "", ior, "read back what was written and compare; not timed", flag(o.check_write)},
      {'R', "check-read", "", ior, "read again after reading and compare; not timed", flag(o.check_read)},
      {'C', "shift-tasks", "", ior, "read what a task of the next node wrote", flag(o.shift)},
      {'Q', "shift-nodes", "N", ior, "with -C: shift by this many nodes; default 1", whole(o.shift_nodes, 0, 1 << 30)},
      {0, "tasks-per-node", "N", ior, "with -C: count N tasks as a node; default as found",
       whole(o.tasks_per_node, 1, 1 << 30)},
      {'e', "fsync", "", ior, "fsync after writing, within the time of writing", flag(o.fsync)},
      {'i', "repetitions", "N", ior, "do all of it N times; default 1", whole(o.repetitions, 1, 1000000)},
      {'m', "multi-file", "", ior, "another file in each repetition, FILE.0, FILE.1, …", flag(o.multi_file)},
      {'d', "delay", "TIME", ior, "wait before each repetition's writing and reading", seconds(o.delay_s)},
      {'D', "stonewall", "TIME", ior, "begin no transfer after this time in a phase", seconds(o.stonewall_s)},
      {'g', "barriers", "", ior, "barriers between open, write/read and close", flag(o.barriers)},
      {'E', "use-existing", "", ior, "do not remove the file before writing", flag(o.use_existing)},
      {'K', "keep-with-error", "", ior, "keep a file in which -W or -R found an error", flag(o.keep_with_error)},

      {0, "bt-io", "", bt, "the I/O of NAS BT-IO instead of IOR's; a square number of ranks", flag(o.bt_io)},
      {0, "class", "CLASS", bt, "grid points a side: S 12 (default), W 24, A 64, B 102, C 162",
       [&o](const std::string& v) -> std::optional<std::string> {
         if (v.size() != 1 || std::string_view("SWABC").find(upper(v)[0]) == std::string_view::npos)
           return "is " + quoted(v) + "; allowed: S, W, A, B, C";
         o.problem = upper(v)[0];
         return {};
       }},
      {0, "mode", "MODE", bt, "full (default; collective), simple, fortran or epio",
       [&o](const std::string& v) -> std::optional<std::string> {
         for (const BtMode mode : {BtMode::full, BtMode::simple, BtMode::fortran, BtMode::epio})
           if (v == to_string(mode)) {
             o.mode = mode;
             return {};
           }
         return "is " + quoted(v) + "; allowed: full, simple, fortran, epio";
       }},
      {0, "niter", "N", bt, "time steps; default 60 (S) or 200", whole(o.steps, 1, 1000000000)},
      {0, "interval", "N", bt, "steps between dumps; default 5", whole(o.interval, 1, 1000000000)},
      {0, "size", "SIZE", bt, "instead of --niter: as many steps as give a file of SIZE", size(o.size, 1)},
      {0, "compute", "TIME", bt, "computing in each step, by spinning; default 0", seconds(o.compute_s)},
  };
}

/// IOR's letters that this program does not have; the error for a user of IOR names this, not an unknown option.
constexpr std::string_view only_in_ior = "ABfIJjlMNnOPpqSTuvXxYyZ";

Error bad(const std::string& what, const std::string& hint = "see sonde-ioload --help") {
  return {"ioload.bad_option", what, hint};
}

std::string shown(const Option& option) {
  return option.letter ? std::string("-") + option.letter + " (--" + option.name + ")" : "--" + option.name;
}

/// How the option may be written: "-t 256k".
std::string example(const Option& option) {
  constexpr std::pair<std::string_view, const char*> values[] = {
      {"SIZE", "1m"},     {"TIME", "30s"}, {"N", "4"},         {"API", "MPIIO"},   {"CLASS", "A"},
      {"MODE", "simple"}, {"FILE", "out"}, {"VOLUME", "data"}, {"HOST", "server1"}};
  std::string text = option.letter ? std::string("-") + option.letter : "--" + option.name;
  for (const auto& [what, value] : values)
    if (option.value == what) text += std::string(" ") + value;
  return text;
}

/// The option that `given` probably means: it begins with `given`, or differs in one letter. Empty: none.
std::string nearest(const std::string& given, const std::vector<Option>& options) {
  for (const Option& option : options)
    if (given.size() > 1 && option.name.starts_with(given)) return option.name;
  for (const Option& option : options) {
    const auto same = std::mismatch(given.begin(), given.end(), option.name.begin(), option.name.end());
    const std::string rest_given(same.first, given.end()), rest_meant(same.second, option.name.end());
    if (rest_given.size() < 1 && rest_meant.size() < 1) continue;
    const std::string less_given = rest_given.empty() ? "" : rest_given.substr(1);
    const std::string less_meant = rest_meant.empty() ? "" : rest_meant.substr(1);
    if (less_given == rest_meant || rest_given == less_meant || less_given == less_meant) return option.name;
  }
  return "";
}

/// Checks options that exclude or need each other.
std::optional<Error> contradiction(const Options& o, const std::vector<std::pair<std::string, int>>& given) {
  for (const auto& [name, of] : given) {
    if (o.bt_io && of == ior)
      return bad(name + " belongs to IOR's workload and has no meaning with --bt-io", "leave " + name + " out");
    if (!o.bt_io && of == bt)
      return bad(name + " belongs to BT-IO's workload", "add --bt-io, or leave " + name + " out");
  }
  if (o.bt_io) {
    if (o.size && o.steps) return bad("--size and --niter both set the number of steps", "give one of them");
    return {};
  }
  if (o.transfer % 8 != 0)
    return bad(
        "-t is " + std::to_string(o.transfer) + " B; allowed: multiples of 8, in which the data are made and compared",
        "use -t " + std::to_string(o.transfer / 8 * 8 + 8));
  if (o.transfer > 0x7fffffff)
    return bad("-t is " + format_size(o.transfer) + "; allowed: up to 2147483647 B, which one call can take",
               "use -t 1g");
  if (o.block % o.transfer != 0)
    return bad(
        "-b is " + std::to_string(o.block) + " B, which is not a multiple of -t, " + std::to_string(o.transfer) + " B",
        "use -b " + std::to_string((o.block / o.transfer + 1) * o.transfer) + ", or another -t");
  if (o.segments > (UINT64_C(1) << 61) / o.block)
    return bad("-s " + std::to_string(o.segments) + " blocks of " + format_size(o.block) + " are more than 2^61 B",
               "use a smaller -s");
  if (o.random && o.segments * (o.block / o.transfer) > UINT32_MAX)
    return bad("-z draws the order of a task's transfers, and these are more than " + std::to_string(UINT32_MAX),
               "use a larger -t, or leave -z out");
  if (o.collective && (o.api == Api::posix || o.api == Api::gfapi))
    return bad(std::string("-c needs an API with collective calls, and -a is ") + to_string(o.api), "add -a MPIIO");
  if (o.file_view && o.api != Api::mpiio)
    return bad(std::string("-V needs file views, which are missing in -a ") + to_string(o.api), "add -a MPIIO");
  for (const auto& [name, of] : given)
    if (name.starts_with("--gfapi.") && o.api != Api::gfapi)
      return bad(name + " has a meaning only with -a GFAPI", "add -a GFAPI, or leave " + name + " out");
  if (o.api == Api::gfapi && o.gfapi_volume.empty())
    return bad("-a GFAPI needs the name of a volume", "add --gfapi.volume data --gfapi.server server1");
  return {};
}

}  // namespace

Result<Options> parse_options(const std::vector<std::string>& args) {
  Options o;
  const auto options = table(o);
  std::vector<std::pair<std::string, int>> given;
  auto use = [&](const Option& option, const std::string& value) -> std::optional<Error> {
    given.emplace_back(option.letter ? std::string("-") + option.letter : "--" + option.name, option.of);
    if (const auto wrong = option.take(value))
      return bad(shown(option) + " " + *wrong, "write it like " + example(option));
    return {};
  };
  for (std::size_t k = 0; k < args.size(); ++k) {
    const std::string& arg = args[k];
    if (arg.size() < 2 || arg[0] != '-')
      return bad("'" + arg + "' is not an option", "the test file is named with -o " + (arg.empty() ? "FILE" : arg));
    const bool is_long = arg[1] == '-';
    const std::size_t equals = is_long ? arg.find('=') : std::string::npos;
    if (is_long) {
      const std::string name = arg.substr(2, equals == std::string::npos ? equals : equals - 2);
      const auto it =
          std::find_if(options.begin(), options.end(), [&](const Option& option) { return option.name == name; });
      if (it == options.end()) {
        const std::string meant = nearest(name, options);
        return bad("there is no option --" + name,
                   meant.empty() ? "see sonde-ioload --help" : "did you mean --" + meant + "?");
      }
      if (it->value.empty() && equals != std::string::npos)
        return bad("--" + name + " takes no value", "write --" + name);
      if (!it->value.empty() && equals == std::string::npos && k + 1 == args.size())
        return bad("--" + name + " needs a value, " + it->value, "write it like " + example(*it));
      const std::string value = it->value.empty()             ? ""
                                : equals != std::string::npos ? arg.substr(equals + 1)
                                                              : args[++k];
      if (auto error = use(*it, value)) return *error;
      continue;
    }
    // -wrk, -t 4k, -t4k, and -t=4k, which IOR accepts too
    for (std::size_t at = 1; at < arg.size(); ++at) {
      const auto it =
          std::find_if(options.begin(), options.end(), [&](const Option& option) { return option.letter == arg[at]; });
      if (it == options.end()) {
        if (only_in_ior.find(arg[at]) != std::string_view::npos)
          return bad(std::string("IOR's -") + arg[at] + " does not exist here",
                     "leave it out; sonde-ioload --help shows the options");
        return bad(std::string("there is no option -") + arg[at] + (arg.size() > 2 ? " (in " + arg + ")" : ""));
      }
      if (it->value.empty()) {
        if (auto error = use(*it, "")) return *error;
        continue;
      }
      std::string value = arg.substr(at + 1);
      if (value.starts_with('=')) value.erase(0, 1);
      if (at + 1 == arg.size()) {
        if (k + 1 == args.size())
          return bad(shown(*it) + " needs a value, " + it->value, "write it like " + example(*it));
        value = args[++k];
      }
      if (auto error = use(*it, value)) return *error;
      break;
    }
  }
  if (o.help || o.version) return o;
  if (auto error = contradiction(o, given)) return *error;
  if (!o.write && !o.read && !o.check_write && !o.check_read) o.write = o.read = true;
  if (o.file.empty()) o.file = o.bt_io ? std::string("btio.") + to_string(o.mode) + ".out" : "testFile";
  return o;
}

std::string help_text() {
  Options unused;
  constexpr std::size_t column = 26, width = 80;
  std::string out =
      "Usage: mpirun -n N sonde-ioload [options]\n"
      "\n"
      "Makes the parallel I/O of IOR, or with --bt-io that of NAS BT-IO, measures\n"
      "it and verifies the data. SIZE: 4096, 256k, 1m, 2g, powers of 1024. TIME:\n"
      "30 (seconds), 1.5s, 2min. Flags may be joined: -wrk.\n";
  const auto options = table(unused);
  for (const auto& [of, title] : {std::pair{ior, "IOR's workload"}, {bt, "BT-IO's workload"}, {either, "Both"}}) {
    out += std::string("\n") + title + ":\n";
    for (const Option& option : options) {
      if (option.of != of) continue;
      std::string line = option.letter ? std::string("  -") + option.letter + ", --" : "      --";
      line += option.name + (option.value.empty() ? "" : " " + option.value);
      if (line.size() + 2 > column) {
        out += line + "\n";
        line.clear();
      }
      line.resize(column, ' ');
      std::size_t used = line.size();
      for (std::size_t begin = 0; begin < option.text.size();) {
        const std::size_t end = std::min(option.text.find(' ', begin), option.text.size());
        const std::string word = option.text.substr(begin, end - begin);
        std::size_t columns = 0;  // the bytes of UTF-8 that are not continuation bytes
        for (const char ch : word) columns += (static_cast<unsigned char>(ch) & 0xc0) != 0x80;
        if (used + 1 + columns > width && used > column) {
          line += "\n" + std::string(column, ' ');
          used = column;
        }
        if (used > column) {
          line += ' ';
          ++used;
        }
        line += word;
        used += columns;
        begin = end + 1;
      }
      out += line + "\n";
    }
  }
  return out +
         "\n"
         "Examples:\n"
         "  mpirun -n 4 sonde-ioload -a MPIIO -c -t 1m -b 64m -s 4 -e -C -wWrR\n"
         "  mpirun -n 4 sonde-ioload -F -t 256k -b 128m -i 3 --json out.json\n"
         "  mpirun -n 4 sonde-ioload --bt-io --class A --mode simple\n"
         "\n"
         "Exit codes: 0 done, 1 wrong data found, 2 wrong usage, 3 I/O failed.\n";
}

Result<void> add_hints(const std::vector<std::string>& environment, std::string_view file_text,
                       std::string_view file_name, std::map<std::string, std::string>& hints) {
  constexpr std::string_view prefix = "IOR_HINT__MPI__", other = "IOR_HINT__GPFS__";
  auto strip = [](const std::string& text) {
    const auto first = text.find_first_not_of(" \t\r\"");
    const auto last = text.find_last_not_of(" \t\r\"");
    return first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
  };
  for (const std::string& variable : environment) {
    const std::size_t equals = variable.find('=');
    if (variable.starts_with(prefix) && equals > prefix.size() && equals != std::string::npos)
      hints[variable.substr(prefix.size(), equals - prefix.size())] = variable.substr(equals + 1);
  }
  std::size_t number = 0;
  while (!file_text.empty()) {
    const std::size_t end = std::min(file_text.find('\n'), file_text.size());
    std::string line = strip(std::string(file_text.substr(0, end)));
    file_text.remove_prefix(std::min(end + 1, file_text.size()));
    ++number;
    if (line.empty() || line[0] == '#') continue;
    if (line.starts_with("setenv ") || line.starts_with("setenv\t") || line.starts_with("export "))
      line = strip(line.substr(7));
    const std::size_t at = line.find_first_of("= \t");
    const std::string name = line.substr(0, at);
    std::string value = at == std::string::npos ? "" : strip(line.substr(at));
    if (value.starts_with('=')) value = strip(value.substr(1));
    if (name.starts_with(other)) continue;
    if (!name.starts_with(prefix) || name.size() == prefix.size() || value.empty())
      return Error{"ioload.bad_hint",
                   "line " + std::to_string(number) + " of " + std::string(file_name) + " is not a hint: '" +
                       line.substr(0, 60) + "'",
                   "write it like IOR_HINT__MPI__cb_nodes=4"};
    hints[name.substr(prefix.size())] = value;
  }
  return {};
}

}  // namespace sonde::ioload
