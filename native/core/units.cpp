#include "core/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "core/text.hpp"

namespace sonde {
namespace {

constexpr double longest_s = 36525.0 * 86400.0;
constexpr std::uint64_t largest_size = std::uint64_t{1} << 62;

bool is_blank(char c) { return c == ' ' || c == '\t'; }

std::string_view skip_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  return text;
}

/// Takes a plain decimal number off the front: no sign, no inf, no hex.
bool take_number(std::string_view& text, double& value) {
  const bool begins = !text.empty() && ((text[0] >= '0' && text[0] <= '9') ||
                                        (text[0] == '.' && text.size() > 1 && text[1] >= '0' && text[1] <= '9'));
  if (!begins) return false;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

/// Takes letters, and the bytes of a micro sign, off the front.
std::string_view take_word(std::string_view& text) {
  std::size_t n = 0;
  while (n < text.size()) {
    const auto c = static_cast<unsigned char>(text[n]);
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80)) break;
    ++n;
  }
  const std::string_view word = text.substr(0, n);
  text.remove_prefix(n);
  return word;
}

/// With a point whatever the locale says, which printf would not.
std::string fixed(double value, int decimals) {
  std::array<char, 400> buffer;  // the largest double has 309 digits
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, decimals);
  return {buffer.data(), end.ptr};
}

std::string general(double value) {
  std::array<char, 64> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::general, 3);
  return {buffer.data(), end.ptr};
}

/// Three significant digits of a value in 0.9995 .. 1024, four from 1000 on.
std::string three_digits(double value) { return fixed(value, value < 9.995 ? 2 : value < 99.95 ? 1 : 0); }

/// A unit is times / per seconds: division by a whole power of ten rounds once, so that "1.23 us" is 1.23e-6.
struct TimeUnit {
  std::string_view name;
  double times, per;
};
constexpr std::array<TimeUnit, 12> time_units{{{"ps", 1, 1e12},
                                               {"ns", 1, 1e9},
                                               {"us", 1, 1e6},
                                               {"\u00b5s", 1, 1e6},  // micro sign
                                               {"\u03bcs", 1, 1e6},  // Greek mu, which looks the same
                                               {"ms", 1, 1e3},
                                               {"s", 1, 1},
                                               {"sec", 1, 1},
                                               {"min", 60, 1},
                                               {"m", 60, 1},
                                               {"h", 3600, 1},
                                               {"d", 86400, 1}}};

Error bad_duration(std::string_view text, const std::string& why) {
  return {"core.bad_duration", shown(text) + " " + why, "write it like 60s, 2min, 1h30min or 250ms"};
}

struct SizeUnit {
  std::string_view name;  // lower case
  std::uint64_t scale;
};
constexpr std::array<SizeUnit, 11> size_units{{{"b", 1},
                                               {"kib", 1ull << 10},
                                               {"mib", 1ull << 20},
                                               {"gib", 1ull << 30},
                                               {"tib", 1ull << 40},
                                               {"pib", 1ull << 50},
                                               {"kb", 1000ull},
                                               {"mb", 1000'000ull},
                                               {"gb", 1000'000'000ull},
                                               {"tb", 1000'000'000'000ull},
                                               {"pb", 1000'000'000'000'000ull}}};
constexpr std::array<const char*, 6> binary_names{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
constexpr std::array<const char*, 6> decimal_names{"B", "kB", "MB", "GB", "TB", "PB"};

Error bad_size(std::string_view text, const std::string& why) {
  return {"core.bad_size", shown(text) + " " + why, "write it like 4096, 64KiB (1024) or 64kB (1000)"};
}

std::string trim_zeros(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

/// "1.5 KiB" when `bytes` is 1 .. 1023.99 of the unit and a whole number of its hundredths, else "".
std::string exactly(std::uint64_t bytes, std::uint64_t scale, const char* unit) {
  if (bytes < scale || bytes / scale >= 1024) return "";
  const std::uint64_t whole = bytes / scale, rest = bytes % scale;  // rest * 100 fits: scale <= 2^50
  if (rest * 100 % scale != 0) return "";
  const std::string hundredths = std::to_string(100 + rest * 100 / scale).substr(1);
  return trim_zeros(std::to_string(whole) + "." + hundredths) + " " + unit;
}

}  // namespace

std::string format_duration(double value_s) {
  if (std::isnan(value_s)) return "nan";
  if (value_s < 0) return "-" + format_duration(-value_s);
  if (std::isinf(value_s)) return "inf";
  if (value_s == 0) return "0 s";

  if (value_s >= 59.95) {
    struct Pair {
      double below_s, big_s, small_s;
      const char *big, *small;
    };
    static constexpr std::array<Pair, 3> pairs{
        {{3599.5, 60, 1, "min", "s"}, {86370, 3600, 60, "h", "min"}, {1e15, 86400, 3600, "d", "h"}}};
    for (const auto& [below_s, big_s, small_s, big, small] : pairs) {
      if (value_s >= below_s) continue;
      const double steps = std::round(value_s / small_s), per = big_s / small_s;
      const double whole = std::floor(steps / per), rest = steps - whole * per;
      std::string text = fixed(whole, 0) + " " + big;
      if (rest > 0) text += " " + fixed(rest, 0) + " " + small;
      return text;
    }
    return general(value_s) + " s";
  }
  static constexpr std::array<TimeUnit, 5> scales{
      {{"s", 1, 1}, {"ms", 1, 1e3}, {"\u00b5s", 1, 1e6}, {"ns", 1, 1e9}, {"ps", 1, 1e12}}};
  // 0.9995 and not 1, so that what rounds to 1000 of a unit shows as 1.00 of the next.
  for (const TimeUnit& unit : scales)
    if (value_s * unit.per >= 0.9995) return three_digits(value_s * unit.per) + " " + std::string(unit.name);
  return general(value_s) + " s";
}

Result<double> parse_duration(std::string_view text) {
  std::string_view rest = skip_blanks(text);
  if (rest.empty()) return bad_duration(text, "is no duration: no number is given");
  if (rest.front() == '-') return bad_duration(text, "is negative; allowed: 0 s and above");
  double total_s = 0;
  bool bare = false, first = true;
  while (!rest.empty()) {
    double value = 0;
    if (bare || !take_number(rest, value))
      return bad_duration(text, "is no duration: a number with its unit is expected at " + shown(rest));
    rest = skip_blanks(rest);
    const std::string_view word = take_word(rest);
    if (word.empty()) {
      bare = true;
      if (!first) return bad_duration(text, "has a number without a unit");
      total_s = value;
    } else {
      const TimeUnit* found = nullptr;
      for (const TimeUnit& unit : time_units)
        if (unit.name == word) found = &unit;
      if (!found) return bad_duration(text, "has the unknown unit " + shown(word) + "; allowed: ps ns us ms s min h d");
      total_s += value * found->times / found->per;
    }
    if (!(total_s <= longest_s)) return bad_duration(text, "is too long; allowed: up to 36525 d");
    rest = skip_blanks(rest);
    first = false;
  }
  return total_s;
}

std::string format_size(std::uint64_t bytes, bool exact) {
  if (exact) {
    for (std::size_t k = binary_names.size() - 1; k > 0; --k)
      if (auto text = exactly(bytes, 1ull << (10 * k), binary_names[k]); !text.empty()) return text;
    // "1000 B" stays: it stands among 900 B and 1100 B more often than alone.
    std::uint64_t scale = 1000'000'000'000'000ull;
    for (std::size_t k = decimal_names.size() - 1; k > 0 && bytes >= 10'000; --k, scale /= 1000)
      if (bytes % scale == 0) return std::to_string(bytes / scale) + " " + decimal_names[k];
    return std::to_string(bytes) + " B";
  }
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes);
  std::size_t k = 0;
  while (value >= 1023.5 && k + 1 < binary_names.size()) {
    value /= 1024;
    ++k;
  }
  return trim_zeros(three_digits(value)) + " " + binary_names[k];
}

Result<std::uint64_t> parse_size(std::string_view text) {
  std::string_view rest = skip_blanks(text);
  if (rest.empty()) return bad_size(text, "is no size: no number is given");
  if (rest.front() == '-') return bad_size(text, "is negative; allowed: 0 B and above");

  // Digits are gathered by hand: a double would lose bytes above 2^53.
  std::uint64_t mantissa = 0, denominator = 1;
  bool any = false, point = false;
  for (; !rest.empty(); rest.remove_prefix(1)) {
    const char c = rest.front();
    if (c == '.' && !point) {
      point = true;
    } else if (c >= '0' && c <= '9') {
      if (mantissa > largest_size / 10 || denominator > 1000'000'000'000ull)
        return bad_size(text, "is too large or too precise; allowed: up to 2^62 B");
      mantissa = mantissa * 10 + static_cast<std::uint64_t>(c - '0');
      if (point) denominator *= 10;
      any = true;
    } else {
      break;
    }
  }
  if (!any) return bad_size(text, "is no size: a number is expected first");
  rest = skip_blanks(rest);
  std::string unit(take_word(rest));
  const std::string written = unit;
  for (char& c : unit)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  rest = skip_blanks(rest);
  if (!rest.empty()) return bad_size(text, "is no size: " + shown(rest) + " follows it");

  std::uint64_t scale = 1;
  if (!unit.empty()) {
    const SizeUnit* found = nullptr;
    for (const SizeUnit& candidate : size_units)
      if (candidate.name == unit) found = &candidate;
    if (!found && unit.size() == 1 && std::string_view("kmgtp").find(unit) != std::string_view::npos) {
      const char upper = static_cast<char>(unit[0] - 'a' + 'A');
      const std::string number(text.substr(0, text.find_first_not_of("0123456789. \t")));
      Error error = bad_size(text, std::string("is ambiguous; allowed: ") + upper + "iB (1024) or " +
                                       (upper == 'K' ? 'k' : upper) + "B (1000)");
      error.hint = "did you mean " + trim_zeros(number) + upper + "iB?";
      return error;
    }
    if (!found)
      return bad_size(text, "has the unknown unit " + shown(written) + "; allowed: B KiB MiB GiB TiB kB MB GB TB");
    scale = found->scale;
  }
  __extension__ typedef unsigned __int128 Wide;
  const auto product = static_cast<Wide>(mantissa) * scale;
  if (product % denominator != 0) return bad_size(text, "is not a whole number of bytes");
  const auto bytes = product / denominator;
  if (bytes > largest_size) return bad_size(text, "is too large; allowed: up to 2^62 B");
  return static_cast<std::uint64_t>(bytes);
}

std::string format_power(double value_w) {
  if (std::isnan(value_w)) return "nan";
  if (value_w < 0) return "-" + format_power(-value_w);
  if (std::isinf(value_w)) return "inf";
  if (value_w == 0) return "0 W";
  static constexpr std::array<std::pair<const char*, double>, 4> scales{
      {{"MW", 1e6}, {"kW", 1e3}, {"W", 1}, {"mW", 1e-3}}};
  for (const auto& [name, scale] : scales) {
    // A value that rounds to 1000 of a unit is shown as 1 of the next.
    if (value_w < 0.99995 * scale && scale > 1e-3) continue;
    const double value = value_w / scale;
    return trim_zeros(fixed(value, value < 9.9995 ? 3 : value < 99.995 ? 2 : value < 999.95 ? 1 : 0)) + " " + name;
  }
  return "0 W";
}

Result<double> parse_power(std::string_view text) {
  const auto bad = [&](const std::string& why) {
    return Error{"core.bad_power", shown(text) + " " + why, "write it like 1500, 1500W, 1.5kW or 20MW"};
  };
  std::string_view rest = skip_blanks(text);
  if (rest.empty()) return bad("is no power: no number is given");
  if (rest.front() == '-') return bad("is negative; allowed: 0 W and above");
  double value = 0;
  if (!take_number(rest, value)) return bad("is no power: a number is expected first");
  rest = skip_blanks(rest);
  const std::string_view unit = take_word(rest);
  rest = skip_blanks(rest);
  if (!rest.empty()) return bad("is no power: " + shown(rest) + " follows it");
  if (unit == "kW") value *= 1e3;
  else if (unit == "MW") value *= 1e6;
  else if (unit == "mW") value /= 1e3;
  else if (!unit.empty() && unit != "W") return bad("has the unknown unit " + shown(unit) + "; allowed: mW W kW MW");
  if (!(value <= 1e9)) return bad("is too much; allowed: up to 1000 MW");
  return value;
}

}  // namespace sonde
