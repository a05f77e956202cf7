#include "power/powerd/kept.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/owned_file.hpp"

namespace sonde::power {

namespace {

/// FNV-1a: detects a file that was cut or edited.
std::uint64_t sum_of(const std::string& text) {
  std::uint64_t sum = 0xcbf29ce484222325ull;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return sum;
}

constexpr std::size_t max_kept_bytes = 4096;                 // several times what save() writes
constexpr double longest_s = 1e9;                            // some 30 years
constexpr std::int64_t last_ns = 8'000'000'000'000'000'000;  // in the year 2223; clocks of 64 bits end in 2262

/// Whether a value can be a budget, or is unknown.
bool is_power(double value_w) { return std::isnan(value_w) || (value_w >= 0 && std::isfinite(value_w)); }

Error failed(const std::string& path, const std::string& what) {
  return {"power.state", "the manager's state " + path + " " + what,
          "free some space there, or set another folder in [system-manager] state"};
}

}  // namespace

std::string kept_path(const std::string& folder, const std::string& manager) {
  std::string name = manager;
  for (char& c : name)
    if (c == '/' || c == '\0') c = '_';
  return folder + "/system-manager-" + name + ".state";
}

Result<void> save(const std::string& path, const Kept& kept, std::int64_t realtime_ns) {
  if (const auto fine = make_folders_to(path); !fine) return failed(path, "cannot be written: " + fine.error().what);
  const std::int64_t ends =
      std::isnan(kept.shed_w) ? 0 : realtime_ns + static_cast<std::int64_t>(kept.shed_left_s * 1e9);
  char text[512];
  std::snprintf(text, sizeof text,
                "sonde-system-manager 1\nepoch %llu\nbudget_version %llu\nbudget_w %.17g\nconfigured_w %.17g\nshed_w "
                "%.17g\nshed_ends_ns %lld\nlease_s %.17g\n",
                static_cast<unsigned long long>(kept.epoch), static_cast<unsigned long long>(kept.budget_version),
                kept.budget_w, kept.configured_w, kept.shed_w, static_cast<long long>(ends), kept.lease_s);
  const std::string body = text;
  if (!write_whole(path, body + "sum " + std::to_string(sum_of(body)) + "\n", 0640, true))
    return failed(path, std::string("cannot be written: ") + std::strerror(errno));
  return {};
}

Result<std::optional<Kept>> load_kept(const std::string& path, std::int64_t realtime_ns) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::error_code why;
    if (!std::filesystem::exists(path, why) && !why) return std::optional<Kept>{};
    return failed(path, std::string("cannot be read: ") + std::strerror(errno));
  }
  std::string text(max_kept_bytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  const auto damaged = [&] {
    return Error{"power.state", "the manager's state " + path + " is damaged: the last budget is unknown",
                 "compare it with the audit log; remove it to start with the configured budget"};
  };
  const auto sum_at = text.rfind("sum ");
  unsigned long long sum = 0, epoch = 0, version = 0;
  long long ends = 0;
  Kept kept;
  if (text.size() == max_kept_bytes || sum_at == std::string::npos ||
      std::sscanf(text.c_str() + sum_at, "sum %llu", &sum) != 1 || sum != sum_of(text.substr(0, sum_at)))
    return damaged();
  // Files of older versions have no lease_s.
  if (std::sscanf(text.c_str(),
                  "sonde-system-manager 1 epoch %llu budget_version %llu budget_w %lf configured_w %lf shed_w %lf "
                  "shed_ends_ns %lld lease_s %lf",
                  &epoch, &version, &kept.budget_w, &kept.configured_w, &kept.shed_w, &ends, &kept.lease_s) < 6)
    return damaged();
  if (!is_power(kept.budget_w) || !is_power(kept.configured_w) || !is_power(kept.shed_w) ||
      !(kept.lease_s >= 0 && kept.lease_s <= longest_s) || ends < 0 || ends > last_ns)
    return damaged();
  kept.epoch = epoch, kept.budget_version = version;
  kept.shed_left_s = std::max(0.0, static_cast<double>(ends - realtime_ns) / 1e9);
  if (!std::isnan(kept.shed_w) && kept.shed_left_s <= 0) kept.shed_w = unknown;
  if (std::isnan(kept.shed_w)) kept.shed_left_s = 0;
  return std::optional<Kept>(kept);
}

}  // namespace sonde::power
