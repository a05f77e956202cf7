#include "noise/detector/options.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>

#include "core/number.hpp"

namespace sonde::noise {

namespace {

const char* const not_for_people = "use `sonde noise run`, which starts this program";

template <typename T> bool numbers(const std::string& text, std::vector<T>& out) {
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    T value{};
    if (!number(text.substr(begin, end - begin), value)) return false;
    out.push_back(value);
    begin = end + 1;
  }
  return true;
}

bool yes_no(const std::string& text, bool& out) {
  out = text == "yes";
  return out || text == "no";
}

}  // namespace

Result<Options> parse_options(const std::vector<std::string>& args) {
  Options o;
  using Take = std::function<bool(const std::string&)>;
  auto into = [](auto& target) { return Take([&target](const std::string& v) { return number(v, target); }); };
  auto text = [](std::string& target) {
    return Take([&target](const std::string& v) {
      target = v;
      return true;
    });
  };
  auto flag = [](bool& target) { return Take([&target](const std::string& v) { return yes_no(v, target); }); };
  // Sets a value of the last variant.
  auto own = [&o](auto take) {
    return Take([&o, take](const std::string& v) { return !o.variants.empty() && take(o.variants.back(), v); });
  };
  auto own_number = [&](auto Variant::* member) {
    return own([member](Variant& it, const std::string& v) { return number(v, it.*member); });
  };
  const std::map<std::string, Take> known{
      {"--dir", text(o.dir)},
      {"--op", text(o.op)},
      {"--size", into(o.bytes)},
      {"--block-s", into(o.block_s)},
      {"--settle-s", into(o.settle_s)},
      {"--periods", [&](const std::string& v) { return numbers(v, o.periods_s); }},
      {"--fold-weight", into(o.fold_weight)},
      {"--every", into(o.every)},
      {"--budget-s", into(o.budget_s)},
      {"--stall-s", into(o.stall_s)},
      {"--seed", into(o.seed)},
      {"--cap-bytes", into(o.cap_bytes)},
      {"--rounds", [&](const std::string& v) { return numbers(v, o.rounds); }},
      {"--spend", [&](const std::string& v) { return numbers(v, o.spend); }},
      {"--alpha", into(o.alpha)},
      {"--fresh-rounds", into(o.fresh_rounds)},
      {"--permutations", into(o.permutations)},
      {"--poll", flag(o.poll)},
      {"--keep", flag(o.keep)},
      {"--forward", flag(o.forward)},
      {"--variant",
       [&](const std::string& v) {
         o.variants.push_back({});
         o.variants.back().name = v;
         return !v.empty();
       }},
      {"--share", own_number(&Variant::share)},
      {"--cpus", own([](Variant& it, const std::string& v) { return numbers(v, it.cpus); })},
  };
  constexpr std::string_view agents = "--agent-";
  for (std::size_t k = 0; k < args.size(); k += 2) {
    if (args[k].starts_with(agents) && k + 1 < args.size() && !o.variants.empty()) {
      auto taken = read_agent_flag(o.variants.back().agent, args[k].substr(agents.size()), args[k + 1]);
      if (!taken) return taken.error();
      if (*taken) continue;
    }
    const auto it = known.find(args[k]);
    if (it == known.end() || k + 1 == args.size() || !it->second(args[k + 1]))
      return Error{"noise.bad_option",
                   "sonde-noise does not understand '" + args[k] + (k + 1 < args.size() ? " " + args[k + 1] : "") + "'",
                   not_for_people};
  }
  if (o.dir.empty() || o.variants.empty() || o.rounds.empty())
    return Error{"noise.bad_option", "sonde-noise needs --dir, --rounds and a --variant", not_for_people};
  if (!o.spend.empty() && (o.spend.size() != o.rounds.size() || o.variants.size() != 2))
    return Error{"noise.bad_option", "--spend needs a share for every segment, and two variants", not_for_people};
  if (!(o.block_s > 0) || !(o.settle_s >= 0) || !(o.budget_s >= 0) || !(o.alpha > 0 && o.alpha < 1) ||
      !(o.fold_weight > 0 && o.fold_weight < 1) || o.every > 16 || (o.every & (o.every - 1)) != 0 ||
      o.bytes > 0x7fffffff)
    return Error{"noise.bad_option", "a length of time, --alpha, --fold-weight, --every or --size is out of range",
                 not_for_people};
  return o;
}

}  // namespace sonde::noise
