#include "bus/probe/talk.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

namespace sonde::bus::probe {

namespace {

constexpr std::size_t most_line = std::size_t{64} << 20;

bool plain(char ch) { return static_cast<unsigned char>(ch) > 0x20 && ch != '%' && ch != 0x7f; }

void append(std::string& out, std::string_view text) {
  for (const char ch : text) {
    if (plain(ch)) {
      out += ch;
    } else {
      char code[4];
      std::snprintf(code, sizeof code, "%%%02x", static_cast<unsigned char>(ch));
      out += code;
    }
  }
}

bool unescape(std::string_view text, std::string& out) {
  for (std::size_t k = 0; k < text.size(); ++k) {
    if (text[k] != '%') {
      out += text[k];
      continue;
    }
    unsigned value = 0;
    if (k + 2 >= text.size()) return false;
    const auto [end, why] = std::from_chars(text.data() + k + 1, text.data() + k + 3, value, 16);
    if (why != std::errc{} || end != text.data() + k + 3) return false;
    out += static_cast<char>(value);
    k += 2;
  }
  return true;
}

}  // namespace

Talk& Talk::with(std::string_view key, const std::vector<double>& values) {
  std::string list;
  for (const double v : values) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", v);
    if (!list.empty()) list += ',';
    list += text;
  }
  return with(key, std::string_view(list));
}

Talk& Talk::with(std::string_view key, const std::vector<std::string>& words) {
  std::string list;
  for (const auto& w : words) list += (list.empty() ? "" : ",") + w;
  return with(key, std::string_view(list));
}

const std::string& Talk::text(std::string_view key) const {
  static const std::string none;
  const auto it = values_.find(key);
  return it == values_.end() ? none : it->second;
}

std::vector<std::string> Talk::words(std::string_view key) const {
  std::vector<std::string> out;
  const std::string& list = text(key);
  for (std::size_t at = 0; at < list.size();) {
    const auto comma = std::min(list.find(',', at), list.size());
    out.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

std::vector<double> Talk::numbers(std::string_view key) const {
  std::vector<double> out;
  for (const auto& word : words(key)) {
    double value = std::nan("");
    if (!sonde::number(std::string_view(word), value)) value = std::nan("");
    out.push_back(value);
  }
  return out;
}

std::string Talk::line() const {
  std::string out;
  append(out, verb_);
  for (const auto& [key, value] : values_) {
    out += ' ';
    append(out, key);
    out += '=';
    append(out, value);
  }
  return out + '\n';
}

std::optional<Talk> Talk::parse(std::string_view line) {
  Talk talk;
  bool first = true;
  while (!line.empty() || first) {
    const auto blank = std::min(line.find(' '), line.size());
    const auto word = line.substr(0, blank);
    line.remove_prefix(std::min(blank + 1, line.size()));
    if (first) {
      first = false;
      if (word.empty() || !unescape(word, talk.verb_)) return std::nullopt;
      continue;
    }
    const auto eq = word.find('=');
    std::string key, value;
    if (eq == std::string_view::npos || !unescape(word.substr(0, eq), key) || !unescape(word.substr(eq + 1), value))
      return std::nullopt;
    talk.values_.insert_or_assign(std::move(key), std::move(value));
  }
  return talk;
}

std::optional<Error> Talk::error() const {
  if (verb_ == "ok") return std::nullopt;
  return Error{has("code") ? text("code") : "bus.internal", text("what"), text("hint")};
}

LineReader::Got LineReader::next(std::string& line, int wait_ms) {
  const Deadline deadline = wait_ms < 0 ? Deadline{} : Deadline::in_s(wait_ms * 1e-3);
  for (;;) {
    if (const auto end = held_.find('\n'); end != std::string::npos) {
      line = held_.substr(0, end);
      held_.erase(0, end + 1);
      return Got::line;
    }
    pollfd fd{fd_, POLLIN, 0};
    const int ready = ::poll(&fd, 1, deadline.left_ms());
    if (ready < 0 && errno == EINTR) return Got::later;
    if (ready == 0) return Got::later;
    char text[65536];
    const ssize_t n = ::read(fd_, text, sizeof text);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0 || held_.size() > most_line) return Got::end;
    held_.append(text, static_cast<std::size_t>(n));
  }
}

bool write_line(int fd, std::string_view line) {
  while (!line.empty()) {
    const ssize_t n = ::write(fd, line.data(), line.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    line.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace sonde::bus::probe
