#include "core/hostlist.hpp"

#include <algorithm>
#include <cstdint>
#include <unordered_set>

#include "core/text.hpp"

namespace sonde {
namespace {

constexpr std::size_t longest_name = 255;  // RFC 1035
constexpr std::size_t longest_text = std::size_t{1} << 20;
constexpr std::size_t most_digits = 18;  // fits std::uint64_t

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool in_name(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

Error bad(std::string_view text, std::size_t at, const std::string& why) {
  return {"core.bad_hosts", "host list " + shown(text) + ", at character " + std::to_string(at + 1) + ": " + why,
          "write it like n[001-016,020],login1; ^n007 leaves n007 out"};
}

struct Range {
  std::uint64_t low, high;
  std::size_t width;  // 0: numbers are not padded
};

/// Text, then ranges, then text, ...: literals.size() == brackets.size() + 1.
struct Item {
  std::vector<std::string> literals{""};
  std::vector<std::vector<Range>> brackets;
  bool excluded = false;
};

std::string padded(std::uint64_t number, std::size_t width) {
  std::string text = std::to_string(number);
  if (text.size() < width) text.insert(0, width - text.size(), '0');
  return text;
}

/// A leading zero means that the width is part of the name.
std::size_t width_of(std::string_view digits) { return digits.size() > 1 && digits[0] == '0' ? digits.size() : 0; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<std::vector<Item>> parse() {
    if (text_.size() > longest_text) return bad(text_, longest_text, "longer than 1 MiB");
    std::vector<Item> items;
    do {
      auto item = parse_item();
      if (!item) return item.error();
      items.push_back(std::move(*item));
      if (items.size() > hostlist_limit) return bad(text_, at_, "more than 65536 items");
    } while (take(','));
    if (at_ != text_.size()) return bad(text_, at_, "unexpected " + shown(text_.substr(at_, 1)));
    return items;
  }

 private:
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  Result<Item> parse_item() {
    Item item;
    skip_blanks();
    item.excluded = take('^');
    const std::size_t begin = at_;
    while (at_ < text_.size()) {
      if (in_name(text_[at_])) {
        item.literals.back() += text_[at_++];
      } else if (text_[at_] == '[') {
        auto ranges = parse_bracket();
        if (!ranges) return ranges.error();
        item.brackets.push_back(std::move(*ranges));
        item.literals.emplace_back();
      } else {
        break;
      }
    }
    if (at_ == begin)
      return bad(text_, at_, at_ == text_.size() ? "a host name is missing" : "a host name is expected");
    skip_blanks();
    return item;
  }

  Result<std::vector<Range>> parse_bracket() {
    const std::size_t open = at_++;
    std::vector<Range> ranges;
    std::uint64_t count = 0;
    do {
      const std::size_t begin = at_;
      auto low = parse_number();
      if (!low) return low.error();
      const std::string_view low_text = text_.substr(begin, at_ - begin);
      Range range{*low, *low, width_of(low_text)};
      if (take('-')) {
        const std::size_t second = at_;
        auto high = parse_number();
        if (!high) return high.error();
        if (width_of(text_.substr(second, at_ - second)) > low_text.size())
          return bad(text_, second, "the end of a range has more leading zeros than its begin");
        range.high = *high;
        if (range.high < range.low)
          return bad(text_, begin, "range " + shown(text_.substr(begin, at_ - begin)) + " runs backwards");
      }
      if (range.high - range.low >= hostlist_limit)
        return bad(text_, begin, "range " + shown(text_.substr(begin, at_ - begin)) + " has more than 65536 hosts");
      count += range.high - range.low + 1;
      if (count > hostlist_limit) return bad(text_, begin, "more than 65536 hosts in one bracket");
      ranges.push_back(range);
    } while (take(','));
    if (!take(']')) {
      if (at_ == text_.size()) return bad(text_, open, "'[' is never closed");
      return bad(text_, at_, "unexpected " + shown(text_.substr(at_, 1)) + " in [ ]");
    }
    return ranges;
  }

  Result<std::uint64_t> parse_number() {
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    while (at_ < text_.size() && is_digit(text_[at_])) {
      if (at_ - begin == most_digits) return bad(text_, begin, "a number of more than 18 digits");
      value = value * 10 + static_cast<std::uint64_t>(text_[at_++] - '0');
    }
    if (at_ == begin) return bad(text_, at_, "a number is expected in [ ]");
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// How many names an item stands for, held at the limit + 1.
std::size_t count(const Item& item) {
  std::size_t total = 1;
  for (const auto& ranges : item.brackets) {
    std::size_t here = 0;
    for (const Range& r : ranges) here += static_cast<std::size_t>(r.high - r.low) + 1;
    total = std::min(total * here, hostlist_limit + 1);
  }
  return total;
}

void append(const Item& item, std::size_t bracket, const std::string& begun, std::vector<std::string>& out) {
  const std::string here = begun + item.literals[bracket];
  if (bracket == item.brackets.size()) {
    out.push_back(here);
    return;
  }
  for (const Range& r : item.brackets[bracket])
    for (std::uint64_t k = r.low; k <= r.high; ++k) append(item, bracket + 1, here + padded(k, r.width), out);
}

Result<std::vector<std::string>> names_of(std::string_view text, const std::vector<Item>& items, bool excluded) {
  std::vector<std::string> names;
  for (const Item& item : items) {
    if (item.excluded != excluded) continue;
    // A name is at most 255 long, checked on the longest one there can be before any is made.
    std::size_t longest = 0;
    for (const auto& literal : item.literals) longest += literal.size();
    for (const auto& ranges : item.brackets) {
      std::size_t digits = 0;
      for (const Range& r : ranges) digits = std::max({digits, r.width, padded(r.high, 0).size()});
      longest += digits;
    }
    if (longest > longest_name) return bad(text, 0, "a host name longer than 255 characters");
    if (names.size() + count(item) > hostlist_limit) return bad(text, 0, "it stands for more than 65536 hosts");
    append(item, 0, "", names);
  }
  return names;
}

struct Split {
  std::string_view prefix, digits, suffix;
};

/// Where the number to fold on is: the last one in the first label, or in an address of numbers only the last.
Split split(std::string_view name) {
  const bool address = std::all_of(name.begin(), name.end(), [](char c) { return is_digit(c) || c == '.'; });
  std::size_t end = address ? name.size() : std::min(name.find('.'), name.size());
  while (end > 0 && !is_digit(name[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && is_digit(name[begin - 1])) --begin;
  if (end - begin > most_digits) begin = end;
  return {name.substr(0, begin), name.substr(begin, end - begin), name.substr(end)};
}

std::uint64_t number_of(std::string_view digits) {
  std::uint64_t value = 0;
  for (const char c : digits) value = value * 10 + static_cast<std::uint64_t>(c - '0');
  return value;
}

}  // namespace

Result<void> hostlist_check(std::string_view text) {
  auto items = Parser(text).parse();
  if (!items) return items.error();
  for (const bool excluded : {false, true})
    if (auto names = names_of(text, *items, excluded); !names) return names.error();
  return {};
}

Result<std::vector<std::string>> hostlist_expand(std::string_view text, std::span<const std::string> within) {
  auto items = Parser(text).parse();
  if (!items) return items.error();
  auto wanted = names_of(text, *items, false);
  if (!wanted) return wanted.error();
  auto excluded = names_of(text, *items, true);
  if (!excluded) return excluded.error();

  const bool only_exclusions = std::all_of(items->begin(), items->end(), [](const Item& i) { return i.excluded; });
  if (only_exclusions) {
    if (within.empty())
      return Error{
          "core.bad_hosts",
          "host list " + shown(text) + " only leaves hosts out, and there is no list of hosts to leave them out of",
          "name the hosts as well, e.g. n[01-16]," + std::string(text.substr(0, 40))};
    wanted->assign(within.begin(), within.end());
  }
  // One set serves both ends: what is in it is not to be given (again).
  std::unordered_set<std::string> seen(excluded->begin(), excluded->end());
  std::vector<std::string> hosts;
  for (std::string& host : *wanted)
    if (seen.insert(host).second) hosts.push_back(std::move(host));
  if (hosts.empty())
    return Error{"core.bad_hosts", "host list " + shown(text) + " leaves no host", "take a ^ item out"};
  return hosts;
}

Result<std::string> hostlist_fold(std::span<const std::string> hosts) {
  std::unordered_set<std::string_view> seen;
  std::vector<std::string_view> names;
  for (const std::string& host : hosts) {
    if (host.empty() || host.size() > longest_name || !std::all_of(host.begin(), host.end(), in_name))
      return Error{"core.bad_hosts", shown(host) + " is not a host name",
                   "allowed: letters, digits, '-', '_' and '.', up to 255 characters"};
    if (seen.insert(host).second) names.push_back(host);
  }

  std::string out;
  for (std::size_t i = 0; i < names.size();) {
    const Split head = split(names[i]);
    std::size_t next = i + 1;
    std::string ranges;
    std::size_t members = 1;
    if (!head.digits.empty()) {
      std::size_t width = width_of(head.digits);
      std::uint64_t low = number_of(head.digits), last = low;
      const auto close = [&] {
        if (!ranges.empty()) ranges += ',';
        ranges += padded(low, width);
        if (last > low) ranges += '-' + padded(last, width);
      };
      for (; next < names.size(); ++next, ++members) {
        const Split s = split(names[next]);
        if (s.digits.empty() || s.prefix != head.prefix || s.suffix != head.suffix) break;
        const std::uint64_t number = number_of(s.digits);
        if (number == last + 1 && number - low < hostlist_limit && padded(number, width) == s.digits) {
          last = number;
          continue;
        }
        close();
        low = last = number;
        width = width_of(s.digits);
      }
      close();
    }
    if (!out.empty()) out += ',';
    if (members == 1) {
      out += names[i];
    } else {
      out += std::string(head.prefix) + '[' + ranges + ']' + std::string(head.suffix);
    }
    i = next;
  }
  return out;
}

}  // namespace sonde
