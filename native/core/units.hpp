#pragma once
/// Durations and sizes as people write and read them. Any-thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace sonde {

/// Three significant digits and an engineering unit: "1.23 µs", "450 ms", "12 s"; from a minute on two whole
/// units: "2 min 5 s", "1 h 30 min", "3 d 4 h". Any sign. NaN: "nan"; infinity: "inf" or "-inf"; zero: "0 s".
/// parse_duration reads every text for a value >= 0 back, to the digits shown. UTF-8.
std::string format_duration(double value_s);

/// Seconds, up to 36525 days, from numbers with units that add up: "60s", "1.5 ms", "1h30min"; a bare number is
/// seconds.
/// Units: ps ns us µs ms s min (m) h d. Blanks anywhere between. Error: core.bad_duration.
Result<double> parse_duration(std::string_view text);

/// Binary units and three significant digits (four above 999): "64 KiB", "1.43 MiB", "1000 B". With `exact`, the
/// shortest of bytes, KiB.. and kB.. that parse_size reads back to the same number: 65536 "64 KiB", 10000 "10 kB",
/// 10010 "10010 B".
std::string format_size(std::uint64_t bytes, bool exact = false);

/// Bytes, 0 .. 2^62, from "64KiB" (binary), "64kB" (decimal), "1.5 MiB" or a bare number. Case does not matter.
/// K, M, G, T alone are refused, for half the world reads them as 1000 and half as 1024. A fraction must come to
/// whole bytes. Error: core.bad_size.
Result<std::uint64_t> parse_size(std::string_view text);

/// "0 W", "350 mW", "250 W", "1.25 kW", "20 MW": up to four significant digits, no trailing zeros. Any sign. NaN:
/// "nan"; "inf" or "-inf".
std::string format_power(double value_w);

/// Watts, 0 .. 10^9, from "1500", "1.5 kW", "20MW", "350 mW". Case matters, for mW is not MW. Error: core.bad_power.
Result<double> parse_power(std::string_view text);

}  // namespace sonde
