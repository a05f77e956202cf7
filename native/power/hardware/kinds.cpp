#include "power/hardware/kinds.hpp"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>

#include "core/nearest.hpp"
#include "core/number.hpp"
#include "core/text.hpp"
#include "core/units.hpp"

namespace sonde::power::kinds {

namespace {

constexpr std::size_t most_bytes = 4096;  // sysfs gives a page at most
/// Below this time the difference of two counts is mostly the counter's own step (RAPL: 1 ms).
constexpr std::int64_t least_ns = 5'000'000;
/// A counter that has not moved for this time is ignored: a running machine never draws 0 W.
constexpr std::int64_t still_ns = 1'000'000'000;

Error failed(const std::string& path, int why) {
  const bool gone = why == ENOENT || why == ENODEV || why == ENXIO || why == ENOTDIR;
  return {gone ? "power.hardware_gone" : "power.hardware_failed", path + ": " + std::strerror(why),
          why == EACCES || why == EPERM ? "run it as root, or give the file to its user with a udev rule" : ""};
}

}  // namespace

std::string told(const Error& error) { return error.code + ": " + error.what; }

Result<std::string> read_text(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed(path, errno);
  char text[most_bytes];
  ssize_t n;
  do n = ::read(fd, text, sizeof text);
  while (n < 0 && errno == EINTR);
  const int why = errno;
  ::close(fd);
  if (n < 0) return failed(path, why);
  std::string out(text, static_cast<std::size_t>(n));
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ' || out.back() == '\0')) out.pop_back();
  return out;
}

Result<double> read_number(const std::string& path) {
  auto text = read_text(path);
  if (!text) return text.error();
  double out = 0;
  if (!number(*text, out) || !std::isfinite(out))
    return Error{"power.hardware_failed", path + " has " + shown(*text) + ", which is not a number", ""};
  return out;
}

Result<std::uint64_t> read_count(const std::string& path) {
  auto text = read_text(path);
  if (!text) return text.error();
  std::uint64_t out = 0;
  if (!number(*text, out))
    return Error{"power.hardware_failed", path + " has " + shown(*text) + ", which is not a count", ""};
  return out;
}

Result<void> write_text(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (fd >= 0) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    const int why = n < 0 ? errno : EIO;
    ::close(fd);
    if (n == static_cast<ssize_t>(text.size())) return {};
    errno = why;
  }
  Error e = failed(path, errno);
  if (errno == EACCES || errno == EPERM || errno == EROFS) e.code = "power.read_only";
  if (fd >= 0) e.what += " (" + shown(text) + " was written)";
  return e;
}

Result<std::vector<std::size_t>> chosen(const std::string& pattern, const std::vector<std::string>& names,
                                        const std::function<bool(const std::string&)>& usual) {
  std::vector<std::size_t> out;
  for (std::size_t k = 0; k < names.size(); ++k)
    if (pattern.empty() ? usual(names[k]) : ::fnmatch(pattern.c_str(), names[k].c_str(), FNM_NOESCAPE) == 0)
      out.push_back(k);
  if (!out.empty()) return out;
  if (pattern.empty())
    return Error{"power.unknown_domain", "no domain is used by default; available: " + joined(names),
                 "name domains with `domains` in the configuration"};
  return Error{"power.unknown_domain", "no domain is called " + shown(pattern) + nearest(pattern, names),
               "there are: " + joined(names)};
}

Range narrowed(Range range, const HardwareSpec& spec) {
  if (std::isfinite(spec.min_w))
    range.min_w = std::isfinite(range.min_w) ? std::max(range.min_w, spec.min_w) : spec.min_w;
  if (std::isfinite(spec.max_w))
    range.max_w = std::isfinite(range.max_w) ? std::min(range.max_w, spec.max_w) : spec.max_w;
  const auto no = [&](const std::string& why) {
    range.settable = false;
    range.why_not = why;
  };
  if (spec.read_only) no("read_only is set in the configuration");
  else if (range.settable && !std::isfinite(range.min_w))
    no("the hardware does not report its lowest cap: set `min` in the configuration");
  else if (range.settable && !std::isfinite(range.max_w))
    no("the hardware does not report its highest cap: set `max` in the configuration");
  else if (range.settable && range.min_w > range.max_w)
    no("the lowest cap, " + format_power(range.min_w) + ", is above the highest, " + format_power(range.max_w));
  return range;
}

Result<void> may_set(const Range& range, const std::string& domain, double cap_w) {
  if (!range.settable) return Error{"power.read_only", domain + " cannot be capped: " + range.why_not, ""};
  if (cap_w >= range.min_w && cap_w <= range.max_w) return {};
  return Error{"power.out_of_range", domain + " cannot be capped at " + format_power(cap_w),
               "use " + format_power(range.min_w) + " to " + format_power(range.max_w)};
}

std::string unlike(const std::string& name, std::set<std::string>& used) {
  std::string out = name;
  for (int again = 2; !used.insert(out).second; ++again) out = name + "#" + std::to_string(again);
  return out;
}

std::string exact(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

Result<std::string> password_in(const std::string& path) {
  const auto bad = [&](const std::string& why, const std::string& hint) {
    return Error{"power.bad_hardware", "the password file " + path + " " + why, hint};
  };
  struct stat is{};
  if (::stat(path.c_str(), &is) != 0) return bad(std::string("cannot be read: ") + std::strerror(errno), "");
  if (is.st_mode & S_IRWXO) return bad("is open to everyone", "chmod 600 " + path);
  auto text = read_text(path);
  if (!text) return bad("cannot be read: " + text.error().what, "");
  const std::string line = text->substr(0, text->find('\n'));
  if (line.empty()) return bad("is empty", "write the password into its first line");
  return line;
}

void EnergyCounter::add(std::uint64_t count, std::int64_t now_ns) {
  if (!begun_) {
    begun_ = true;
    last_ = count;
    last_ns_ = moved_ns_ = now_ns;
    return;
  }
  const std::int64_t passed = now_ns - last_ns_;
  if (passed < least_ns) return;
  const double s = static_cast<double>(passed) * 1e-9, most_j = most_w_ * s;
  double grown = unknown;
  if (count >= last_) grown = static_cast<double>(count - last_) * unit_j_;
  // It wrapped, or it was reset: then a wrap would mean more energy than can have been used.
  else if (range_ >= last_) grown = static_cast<double>(range_ - last_ + count + 1) * unit_j_;
  const bool whole = std::isfinite(grown) && grown <= most_j;
  if (!whole) {  // reset to 0 at most: the count since then was used, if that is possible
    const double since = static_cast<double>(count) * unit_j_;
    grown = count < last_ && since <= most_j ? since : 0;
  }
  energy_j_ += grown;
  if (count != last_) moved_ns_ = now_ns;
  power_w_ = whole && now_ns - moved_ns_ < still_ns ? grown / s : unknown;
  last_ = count;
  last_ns_ = now_ns;
}

void Mirror::add(std::uint64_t first, std::uint64_t second, std::uint64_t first_again, std::int64_t now_ns) {
  if (first != first_again) return;  // it moved between the two: they cannot be compared
  const std::uint64_t grown = first - first_, other = second - second_;
  const bool moved = begun_ && (grown || other);
  const std::int64_t passed_ns = now_ns - moved_ns_;
  if (!begun_ || moved) moved_ns_ = now_ns;
  begun_ = true;
  first_ = first, second_ = second;
  if (!moved) return;
  const bool alike = grown == other;
  const double between = static_cast<double>(std::max(first, second) - std::min(first, second)),
               drawn = static_cast<double>(grown) * static_cast<double>(between_ns) / static_cast<double>(passed_ns);
  const bool equal = passed_ns > 0 && between <= drawn;
  alike_ = alike ? alike_ + 1 : 0;
  if (!equal) equal_ = 0;
  else if (++equal_ == 1) equal_since_ns_ = now_ns;
  apart_ = alike || equal ? 0 : apart_ + 1;
  if (alike_ >= several || (equal_ > several && now_ns - equal_since_ns_ >= equal_for_ns)) same_ = true;
  if (apart_ >= several) same_ = false;
}

std::vector<Sensor> hwmon_sensors(const std::string& root) {
  namespace fs = std::filesystem;
  struct Kind {
    const char* prefix;
    SensorKind kind;
    double unit;
  };
  static constexpr Kind kinds[] = {{"temp", SensorKind::temperature, 1e-3},
                                   {"fan", SensorKind::fan, 1},
                                   {"in", SensorKind::voltage, 1e-3},
                                   {"power", SensorKind::power, 1e-6}};
  struct Chip {
    fs::path path;
    std::string name;
  };
  std::vector<Sensor> out;
  std::vector<Chip> chips;
  std::map<std::string, int> named;
  std::error_code why;
  for (const auto& chip : fs::directory_iterator(root + "/class/hwmon", why)) {
    const auto name = read_text(chip.path() / "name");
    if (!name) continue;
    chips.push_back({chip.path(), *name});
    ++named[*name];
  }
  for (const auto& chip : chips) {
    std::string chip_name = chip.name;
    if (named[chip.name] > 1) {
      // Numbers of hwmon change at each start, the device stays.
      const fs::path device = fs::read_symlink(chip.path / "device", why);
      chip_name += "@" + (device.empty() ? chip.path : device).filename().string();
    }
    for (const auto& file : fs::directory_iterator(chip.path, why)) {
      const std::string name = file.path().filename();
      if (!name.ends_with("_input")) continue;
      const std::string channel = name.substr(0, name.size() - 6);
      for (const auto& kind : kinds) {
        const std::size_t digits = std::strlen(kind.prefix);
        if (!channel.starts_with(kind.prefix) || channel.find_first_not_of("0123456789", digits) != std::string::npos)
          continue;
        const auto value = read_number(file.path());
        if (!value) break;
        auto label = read_text(chip.path / (channel + "_label"));
        out.push_back({chip_name + "/" + (label && !label->empty() ? *label : channel), kind.kind, *value * kind.unit});
        break;
      }
    }
  }
  std::sort(out.begin(), out.end(), [](const Sensor& a, const Sensor& b) { return a.name < b.name; });
  return out;
}

}  // namespace sonde::power::kinds
