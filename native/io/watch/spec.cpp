#include "io/watch/spec.hpp"

#include <sstream>

#include "core/number.hpp"

namespace sonde::io {

namespace {

bool where(const std::string& word, Where& out) {
  if (word == "-") return true;
  if (word == "r") {
    out.from = Where::result;
    return true;
  }
  if (word.size() < 2 || word[0] != '@' || !number(std::string_view(word).substr(1), out.at) || out.at > 4096) return false;
  out.from = Where::entry;
  return true;
}

bool watched(std::istringstream& words, Watched& out) {
  std::string size, offset, file;
  return words >> size >> offset >> file && where(size, out.size) && where(offset, out.offset) && where(file, out.file);
}

bool take(std::istringstream& words, Spec& spec) {
  std::string word;
  words >> word;
  const auto rest = [&](std::string& into) { return static_cast<bool>(std::getline(words >> std::ws, into)); };
  if (word == "tracing") return rest(spec.tracing);
  if (word == "folder") return rest(spec.folder);
  if (word == "host") return rest(spec.host);
  if (word == "most") return static_cast<bool>(words >> spec.most_bytes);
  if (word == "skip") {
    std::string name;
    if (!rest(name)) return false;
    spec.skipped.insert(name);
    return true;
  }
  if (word == "calls") return static_cast<bool>(words >> spec.enter >> spec.exit);
  if (word == "task") return static_cast<bool>(words >> spec.task >> spec.task_pid >> spec.task_flags);
  if (word == "exec") return static_cast<bool>(words >> spec.exec >> spec.exec_name);
  Watched one;
  if (word == "call") {
    std::int64_t call = 0;
    if (!(words >> one.function >> call) || !watched(words, one)) return false;
    spec.calls[call] = one;
    return true;
  }
  if (word == "probe") {
    std::uint32_t enter = 0, exit = 0;
    if (!(words >> one.function >> enter >> exit) || !watched(words, one)) return false;
    spec.entries[enter] = one;
    spec.exits[exit] = one;
    return true;
  }
  return false;
}

}  // namespace

Result<Spec> parse_spec(std::string_view text) {
  Spec spec;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    std::istringstream words(line);
    if (!take(words, spec)) return Error{"io.bad_spec", "'" + line + "' is not understood", "start it by sonde io run --kernel"};
  }
  if (spec.tracing.empty() || spec.folder.empty() || spec.host.empty())
    return Error{"io.bad_spec", "tracing, folder and host must be told", "start it by sonde io run --kernel"};
  return spec;
}

}  // namespace sonde::io
