#include "io/watch/spec.hpp"

#include <initializer_list>
#include <iostream>
#include <sstream>
#include <type_traits>

#include "core/number.hpp"
#include "core/text.hpp"

namespace sonde::io {

namespace {

bool one_of(std::string_view word, std::initializer_list<std::string_view> allowed, auto& out) {
  std::uint8_t k = 0;
  for (const std::string_view one : allowed) {
    if (one == word) {
      out = static_cast<std::remove_reference_t<decltype(out)>>(k);
      return true;
    }
    ++k;
  }
  return false;
}

bool part(std::string_view word, Part& out) {
  if (word == "-") return true;
  if (word == "r") {
    out.from = Part::result;
    return true;
  }
  if (const std::size_t colon = word.find(':'); colon != word.npos) {
    if (!one_of(word.substr(colon + 1), {"i32", "u32", "i64"}, out.width)) return false;
    word = word.substr(0, colon);
  }
  if (word.size() < 2 || word[0] != '@' || !number(word.substr(1), out.at) || out.at > 4096) return false;
  out.from = Part::entry;
  return true;
}

bool where(std::string_view word, Where& out) {
  const std::size_t times = word.find('*');
  if (times == word.npos) return part(word, out.part);
  return part(word.substr(0, times), out.part) && part(word.substr(times + 1), out.factor) &&
         out.part.from != Part::none && out.factor.from == Part::entry;
}

bool watched(std::istringstream& words, Watched& out) {
  std::string size, offset, file;
  return words >> size >> offset >> file && where(size, out.size) && part(offset, out.offset) && part(file, out.file);
}

bool probe(std::istringstream& words, Spec& spec) {
  Watched one;
  std::string scope, seen, result, fails, path;
  if (!(words >> one.function >> scope >> seen >> one.entry_stack >> one.exit_stack >> result >> fails) ||
      !watched(words, one) || !(words >> path))
    return false;
  Part text;
  if (!one_of(scope, {"all", "attached"}, one.attached_only) || !one_of(seen, {"both", "entry"}, one.entry_only) ||
      !one_of(fails, {"never", "negative", "nonzero", "null"}, one.fails) || !part(result, one.result) ||
      one.result.from == Part::result || !part(path, text) || text.from == Part::result)
    return false;
  one.path = text.at;
  spec.probes[one.function] = one;
  return true;
}

bool event(std::istringstream& words, std::map<std::uint32_t, std::uint32_t>& into) {
  std::uint32_t number = 0, at = 0;
  if (!(words >> number >> at)) return false;
  into[number] = at;
  return true;
}

bool take(std::istringstream& words, Spec& spec) {
  std::string word;
  words >> word;
  // Another user may have chosen this name, for example of a program: a line break in it must not begin a new line.
  const auto named = [&](std::string& into) {
    std::string encoded;
    return words >> encoded && (words >> std::ws).eof() && percent_decoded(encoded, into);
  };
  // The caller writes each of these lines once; a second one would not come from the caller.
  const auto once = [&](std::string& into) { return into.empty() && named(into); };
  if (word == "tracing") return once(spec.tracing);
  if (word == "folder") return once(spec.folder);
  if (word == "host") return once(spec.host);
  if (word == "most") return static_cast<bool>(words >> spec.most_bytes);
  if (word == "skip") {
    std::string name;
    if (!named(name)) return false;
    spec.skipped.insert(name);
    return true;
  }
  if (word == "calls") return static_cast<bool>(words >> spec.enter >> spec.exit);
  if (word == "task") return static_cast<bool>(words >> spec.task >> spec.task_pid >> spec.task_flags);
  if (word == "exec") return static_cast<bool>(words >> spec.exec >> spec.exec_name);
  std::int32_t thread = 0, process = 0;
  if (word == "attached") return words >> process && named(spec.attached[process]);
  if (word == "thread") {
    if (!(words >> thread >> process)) return false;
    spec.threads[thread] = process;
    return true;
  }
  if (word == "call") {
    Watched one;
    std::int64_t call = 0;
    if (!(words >> one.function >> call) || !watched(words, one)) return false;
    spec.calls[call] = one;
    return true;
  }
  if (word == "entry") return event(words, spec.entries);
  if (word == "exit") return event(words, spec.exits);
  return word == "probe" && probe(words, spec);
}

}  // namespace

Result<Spec> parse_spec(std::string_view text) {
  Spec spec;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    std::istringstream words(line);
    if (!take(words, spec)) return Error{"io.bad_spec", "'" + line + "' is not understood", "sonde io run starts it"};
  }
  if (spec.tracing.empty() || spec.folder.empty() || spec.host.empty())
    return Error{"io.bad_spec", "tracing, folder and host are required", "sonde io run starts it"};
  return spec;
}

}  // namespace sonde::io
