#include "net/options.hpp"

#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "core/number.hpp"

namespace sonde::net {

namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(at, begin)) != std::string::npos; begin = end + 1)
    out.push_back(text.substr(begin, end - begin));
  out.push_back(text.substr(begin));
  return out;
}

}  // namespace

Result<Options> parse_options(const std::vector<std::string>& args) {
  Options o;
  using Take = std::function<bool(const std::string&)>;
  auto into = [](auto& target) { return Take([&target](const std::string& v) { return number(v, target); }); };
  const std::map<std::string, Take> known{
      {"--dir",
       [&](const std::string& v) {
         o.dir = v;
         return !v.empty();
       }},
      {"--modes",
       [&](const std::string& v) {
         o.modes = split(v, ',');
         return true;
       }},
      {"--rule",
       [&](const std::string& v) {
         o.rule = v;
         return true;
       }},
      {"--seed", into(o.seed)},
      {"--cap", into(o.cap)},
      {"--cap-bytes", into(o.cap_bytes)},
      {"--epochs", into(o.epochs)},
      {"--epoch-length", into(o.epoch_length)},
      {"--warmup", into(o.warmup)},
      {"--least", into(o.least)},
      {"--budget-s", into(o.budget_s)},
      {"--burst-s", into(o.burst_s)},
      {"--gap-s", into(o.gap_s)},
      {"--noise-bytes", into(o.noise_bytes)},
      {"--noise-ranks", into(o.noise_ranks)},
      {"--forward",
       [&](const std::string& v) {
         o.forward = v == "yes";
         return v == "yes" || v == "no";
       }},
      {"--pairing",
       [&](const std::string& v) {
         o.pairing = v == "serial" ? Pairing::serial : v == "parallel" ? Pairing::parallel : Pairing::automatic;
         return v == "serial" || v == "parallel" || v == "auto";
       }},
      {"--value",
       [&](const std::string& v) {
         for (const Value value : {Value::rtt_half, Value::one_way, Value::recv_duration})
           if (v == to_string(value)) o.value = value;
         return o.value.has_value();
       }},
      {"--sizes",
       [&](const std::string& v) {
         for (const auto& text : split(v, ',')) {
           std::size_t bytes = 0;
           if (!number(text, bytes) || bytes > 0x7fffffff) return false;
           o.sizes.push_back(bytes);
         }
         return true;
       }},
      {"--pairs",
       [&](const std::string& v) {
         for (const auto& text : split(v, ',')) {
           const auto ends = split(text, '-');
           std::pair<int, int> pair;
           if (ends.size() != 2 || !number(ends[0], pair.first) || !number(ends[1], pair.second)) return false;
           o.pairs.push_back(pair);
         }
         return true;
       }},
      {"--inject-clock",
       [&](const std::string& v) {
         for (const auto& text : split(v, ',')) {
           const auto part = split(text, ':');
           std::pair<int, std::pair<double, double>> error;
           if (part.size() != 3 || !number(part[0], error.first) || !number(part[1], error.second.first) ||
               !number(part[2], error.second.second))
             return false;
           o.inject_clock.push_back(error);
         }
         return true;
       }},
      {"--inject-slow",
       [&](const std::string& v) {
         for (const auto& text : split(v, ',')) {
           const auto part = split(text, ':');
           std::pair<std::pair<int, int>, double> slow;
           if (part.size() != 3 || !number(part[0], slow.first.first) || !number(part[1], slow.first.second) ||
               !number(part[2], slow.second))
             return false;
           o.inject_slow.push_back(slow);
         }
         return true;
       }},
  };
  for (std::size_t k = 0; k < args.size(); k += 2) {
    const auto it = known.find(args[k]);
    if (it == known.end() || k + 1 == args.size() || !it->second(args[k + 1]))
      return Error{"net.bad_option",
                   "sonde-net does not understand '" + args[k] + (k + 1 < args.size() ? " " + args[k + 1] : "") + "'",
                   "this program is started by `sonde net run`, which should be used instead"};
  }
  for (const auto& [name, missing] :
       {std::pair{"--dir", o.dir.empty()}, {"--modes", o.modes.empty()}, {"--sizes", o.sizes.empty()}})
    if (missing)
      return Error{"net.bad_option", std::string("sonde-net needs ") + name,
                   "this program is started by `sonde net run`, which should be used instead"};
  if (o.epoch_length < 1 || o.epoch_length > 100000 || !(o.burst_s > 0) || !(o.budget_s >= 0))
    return Error{"net.bad_option", "epoch length must be 1 to 100000 samples, burst and budget positive times", ""};
  return o;
}

}  // namespace sonde::net
