#include "power/hardware/cpufreq.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "core/clock.hpp"
#include "core/nearest.hpp"
#include "core/text.hpp"
#include "power/hardware/kinds.hpp"

namespace sonde::power {

namespace {

namespace fs = std::filesystem;

double hz_in(const std::string& path) {
  const auto khz = kinds::read_number(path);
  return khz ? *khz * 1e3 : unknown;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

std::string told_hz(double hz) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g GHz", hz * 1e-9);
  return text;
}

}  // namespace

Result<Cpufreq> Cpufreq::open(const std::string& root) {
  Cpufreq out;
  out.folder_ = root + "/devices/system/cpu/cpufreq/";
  std::error_code why;
  for (const auto& entry : fs::directory_iterator(out.folder_, why)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("policy")) out.policies_.push_back(name);
  }
  std::sort(out.policies_.begin(), out.policies_.end(),
            [](const auto& a, const auto& b) { return ::strverscmp(a.c_str(), b.c_str()) < 0; });
  for (const auto& name : out.policies_) {
    const std::string at = out.folder_ + name + "/";
    Frequency one;
    one.name = name;
    one.least_hz = hz_in(at + "cpuinfo_min_freq");
    one.most_hz = hz_in(at + "cpuinfo_max_freq");
    if (const auto governors = kinds::read_text(at + "scaling_available_governors"))
      one.governors = words_of(*governors);
    if (const auto cores = kinds::read_text(at + "related_cpus"))
      for (const auto& word : words_of(*cores)) one.cores.push_back(std::atoi(word.c_str()));
    out.known_.push_back(std::move(one));
  }
  return out;
}

Result<std::vector<Frequency>> Cpufreq::read() {
  const std::int64_t now = now_ns();
  const bool limits = limits_ns_ == 0 || now - limits_ns_ >= 10'000'000'000;
  if (limits) limits_ns_ = 0;
  for (auto& one : known_) {
    const std::string at = folder_ + one.name + "/";
    one.current_hz = hz_in(at + "scaling_cur_freq");
    // Each policy has limits: if they are gone, so is the policy. Not every driver reports the present frequency.
    if (!limits && !std::isnan(one.current_hz)) continue;
    const auto most = kinds::read_number(at + "scaling_max_freq");
    if (!most) return most.error();
    one.max_hz = *most * 1e3;
    one.min_hz = hz_in(at + "scaling_min_freq");
    if (auto governor = kinds::read_text(at + "scaling_governor")) one.governor = *governor;
  }
  if (limits) limits_ns_ = now;
  return known_;
}

Result<void> Cpufreq::set(const std::string& policy, double min_hz, double max_hz, const std::string& governor) {
  const auto named = std::find(policies_.begin(), policies_.end(), policy);
  if (named == policies_.end())
    return Error{"power.unknown_policy", "there is no frequency policy " + shown(policy) + nearest(policy, policies_),
                 "there are: " + joined(policies_)};
  const Frequency& fixed = known_[static_cast<std::size_t>(named - policies_.begin())];
  const std::string at = folder_ + policy + "/";
  for (const double hz : {min_hz, max_hz}) {
    if (std::isnan(hz)) continue;
    const bool known = std::isfinite(fixed.least_hz) && std::isfinite(fixed.most_hz);
    if (!known) return Error{"power.read_only", policy + " does not report its range of frequencies", ""};
    if (!(hz >= fixed.least_hz && hz <= fixed.most_hz))
      return Error{"power.out_of_range", policy + " cannot have " + told_hz(hz),
                   "use " + told_hz(fixed.least_hz) + " to " + told_hz(fixed.most_hz)};
  }
  if (!governor.empty() && std::find(fixed.governors.begin(), fixed.governors.end(), governor) == fixed.governors.end())
    return Error{"power.unknown_governor",
                 policy + " has no governor " + shown(governor) + nearest(governor, fixed.governors),
                 "use one of " + joined(fixed.governors)};
  const auto max_now = kinds::read_number(at + "scaling_max_freq");
  if (!max_now) return max_now.error();
  const auto min_now = kinds::read_number(at + "scaling_min_freq");
  if (!min_now) return min_now.error();
  const double least = std::isnan(min_hz) ? *min_now * 1e3 : min_hz,
               most = std::isnan(max_hz) ? *max_now * 1e3 : max_hz;
  if (least > most)
    return Error{"power.out_of_range", policy + " cannot have a range from " + told_hz(least) + " to " + told_hz(most),
                 "give both limits"};
  limits_ns_ = 0;
  const auto put = [&](const char* file, double hz) {
    return kinds::write_text(at + file, std::to_string(std::llround(hz * 1e-3)));
  };
  // The kernel refuses a lowest frequency above the highest, also between two writes.
  const bool highest_first = most >= *max_now * 1e3;
  for (int turn = 0; turn < 2; ++turn) {
    const bool highest = (turn == 0) == highest_first;
    if (std::isnan(highest ? max_hz : min_hz)) continue;
    if (const auto done = put(highest ? "scaling_max_freq" : "scaling_min_freq", highest ? most : least); !done)
      return done.error();
  }
  if (!governor.empty()) return kinds::write_text(at + "scaling_governor", governor);
  return {};
}

}  // namespace sonde::power
