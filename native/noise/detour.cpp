#include "noise/detour.hpp"

#include <algorithm>
#include <cctype>
#include <functional>

#include "core/number.hpp"

namespace sonde::noise {

namespace {

/// Limit for the CPUs in a list. A list may repeat ranges, and each repetition counts.
constexpr std::size_t most_cpus_listed = 1u << 17;

std::string_view next_word(std::string_view& line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) {
    line = {};
    return {};
  }
  const std::size_t end = std::min(line.find_first_of(" \t", begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

std::string_view next_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

}  // namespace

std::uint64_t quantum(std::uint64_t n, std::uint64_t seed) {
  std::uint64_t x = seed | 1;
  for (std::uint64_t k = 0; k < n; ++k) x = x * 0x5851f42d4c957f2dull + 0x14057b7ef767814full;
  return x;
}

Counts parse_counts(std::string_view text, int cpu) {
  Counts out;
  std::string_view head = next_line(text);
  std::string wanted("CPU");
  wanted.append(std::to_string(cpu));
  int column = -1, columns = 0;
  for (std::string_view word = next_word(head); !word.empty(); word = next_word(head), ++columns)
    if (word == wanted) column = columns;
  if (column < 0) return out;
  while (!text.empty()) {
    std::string_view line = next_line(text);
    std::string_view name = next_word(line);
    if (name.empty() || name.back() != ':') continue;
    name.remove_suffix(1);
    std::uint64_t value = 0;
    int at = 0;
    bool found = false;
    for (; at < columns; ++at) {  // ERR and MIS have one number for all CPUs
      std::string_view rest = line;
      std::uint64_t v = 0;
      if (!number(next_word(rest), v)) break;
      line = rest;
      if (at == column) value = v, found = true;
    }
    if (!found || at < columns) continue;
    if (!name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char ch) { return std::isdigit(ch); })) {
      std::string_view last;
      for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) last = word;
      std::string full(name);
      if (!last.empty()) full.append(1, ' ').append(last);
      out.devices[full] = value;
      out.rows["DEV"] += value;
    } else {
      out.rows[std::string(name)] = value;
    }
  }
  return out;
}

std::uint64_t parse_steal(std::string_view text, int cpu) {
  std::string wanted("cpu");
  wanted.append(std::to_string(cpu));
  while (!text.empty()) {
    std::string_view line = next_line(text);
    if (next_word(line) != wanted) continue;
    std::uint64_t value = 0;
    for (int field = 0; field < 8; ++field) {  // user nice system idle iowait irq softirq steal
      value = 0;
      if (!number(next_word(line), value)) return 0;
    }
    return value;
  }
  return 0;
}

std::int64_t parse_run_delay(std::string_view text) {
  std::string_view line = next_line(text);
  (void)next_word(line);
  std::int64_t value = 0;
  return number(next_word(line), value) && value >= 0 ? value : -1;
}

Result<std::vector<int>> parse_cpus(const std::string& text) {
  std::vector<int> out;
  std::size_t begin = 0, listed = 0;
  auto bad = [&] {
    return Error{"noise.bad_cpus", "'" + text + "' is not a list of CPUs", "write numbers and ranges: 0,2-3"};
  };
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = std::string_view(text).substr(begin, end - begin);
    const std::size_t dash = item.find('-');
    int first = 0, last = 0;
    if (!number(item.substr(0, dash), first) || first < 0) return bad();
    last = first;
    if (dash != std::string_view::npos && (!number(item.substr(dash + 1), last) || last < first || last > 1 << 16))
      return bad();
    listed += static_cast<std::size_t>(last - first) + 1;
    if (listed > most_cpus_listed) return bad();
    for (int cpu = first; cpu <= last; ++cpu) out.push_back(cpu);
    begin = end + 1;
    if (begin == text.size()) return bad();  // a comma at the end
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Result<DetourOptions> parse_detour_options(const std::vector<std::string>& args) {
  DetourOptions o;
  Error cpus_error;
  using Take = std::function<bool(const std::string&)>;
  auto positive = [](double& target) {
    return Take([&target](const std::string& v) { return number(v, target) && target > 0; });
  };
  const std::map<std::string, Take> known{
      {"--cpus",
       [&](const std::string& v) {
         auto list = parse_cpus(v);
         if (list) o.cpus = *list;
         else cpus_error = list.error();
         return static_cast<bool>(list);
       }},
      {"--duration-s", positive(o.duration_s)},
      {"--window-s", positive(o.window_s)},
      {"--quantum-s", positive(o.quantum_s)},
      {"--threshold-s", [&](const std::string& v) { return number(v, o.threshold_s) && o.threshold_s >= 0; }},
      {"--method",
       [&](const std::string& v) {
         o.detour = v != "fwq";
         o.fwq = v != "detour";
         return v == "detour" || v == "fwq" || v == "both";
       }},
      {"--dir",
       [&](const std::string& v) {
         o.dir = v;
         return !v.empty();
       }},
      {"--host",
       [&](const std::string& v) {
         o.host = v;
         return !v.empty();
       }},
      {"--cap-bytes", [&](const std::string& v) { return number(v, o.cap_bytes); }},
  };
  for (std::size_t k = 0; k < args.size(); ++k) {
    if (args[k] == "--check") {
      o.check = true;
      continue;
    }
    const auto it = known.find(args[k]);
    const bool has_value = k + 1 < args.size();
    if (it == known.end() || !has_value || !it->second(args[k + 1])) {
      if (!cpus_error.code.empty()) return cpus_error;
      return Error{"noise.bad_option",
                   "sonde-detour does not understand '" + args[k] +
                       (it != known.end() && has_value ? " " + args[k + 1] : "") + "'",
                   "use `sonde noise host`, which starts this program"};
    }
    ++k;
  }
  if (o.dir.empty() && !o.check)
    return Error{"noise.bad_option", "sonde-detour needs --dir", "use `sonde noise host`, which starts this program"};
  return o;
}

}  // namespace sonde::noise
