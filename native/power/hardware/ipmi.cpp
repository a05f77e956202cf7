// A node's BMC through IPMI's DCMI commands and the program ipmitool: one child process with a time limit for each
// exchange.
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/deadline.hpp"
#include "core/number.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "power/hardware/kinds.hpp"

extern char** environ;

namespace sonde::power::kinds {

namespace {

constexpr std::size_t most_said = 256u << 10;
constexpr double most_w = 1e6, longest_correction_ms = 600e3;
/// A reading of a measurement that is said to be switched off is believed for this time after it has changed.
constexpr double believed_s = 300;

struct Said {
  int status = 0;  // exit code; 128 + signal
  std::string out, err;
};

std::string program_path() {
  const char* path = std::getenv("PATH");
  std::string folders = path ? path : "";
  folders += ":/usr/sbin:/sbin:/usr/bin:/usr/local/bin";  // daemons often do not search these folders
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    const std::string file = folders.substr(at, end - at) + "/ipmitool";
    // A relative folder depends on the current folder, which another user may have created.
    if (file.front() == '/' && end > at && ::access(file.c_str(), X_OK) == 0) return file;
    at = end + 1;
  }
  return "";
}

/// Runs it; kills it when its time is over. Errors: power.bmc_timeout, power.hardware_failed (it could not be started).
Result<Said> run(const std::vector<std::string>& words, const Deadline& deadline) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0)
    return Error{"power.hardware_failed", std::string("cannot create a pipe for ipmitool: ") + std::strerror(errno),
                 ""};
  if (::pipe2(err, O_CLOEXEC) != 0) {
    const int why = errno;
    ::close(out[0]);
    ::close(out[1]);
    return Error{"power.hardware_failed", std::string("cannot create a pipe for ipmitool: ") + std::strerror(why), ""};
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err[1], STDERR_FILENO);
  // A process group of its own, so that a Ctrl-C on the terminal does not interrupt an exchange; and default signal
  // handling, as a program expects.
  posix_spawnattr_t how;
  posix_spawnattr_init(&how);
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  for (const int s : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) sigaddset(&usual, s);
  posix_spawnattr_setsigmask(&how, &none);
  posix_spawnattr_setsigdefault(&how, &usual);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> env;
  for (char** one = environ; *one; ++one)
    if (std::strncmp(*one, "LC_", 3) != 0 && std::strncmp(*one, "LANG", 4) != 0 && std::strncmp(*one, "IPMI_", 5) != 0)
      env.push_back(*one);
  char plain[] = "LC_ALL=C";  // its output is parsed
  env.push_back(plain);
  env.push_back(nullptr);
  pid_t child = -1;
  const int failed = ::posix_spawn(&child, words[0].c_str(), &files, &how, argv.data(), env.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&how);
  ::close(out[1]);
  ::close(err[1]);
  Said said;
  if (failed) {
    ::close(out[0]);
    ::close(err[0]);
    return Error{"power.hardware_failed", words[0] + ": " + std::strerror(failed), ""};
  }
  std::array<pollfd, 2> ends{{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  bool late = false, too_much = false;
  while (!late && !too_much && (ends[0].fd >= 0 || ends[1].fd >= 0)) {
    const int ready = ::poll(ends.data(), ends.size(), deadline.left_ms());
    if (ready < 0 && errno == EINTR) continue;
    late = ready <= 0;
    for (std::size_t k = 0; k < 2 && !late; ++k) {
      if (ends[k].fd < 0 || !ends[k].revents) continue;
      char text[4096];
      const ssize_t n = ::read(ends[k].fd, text, sizeof text);
      auto& to = k == 0 ? said.out : said.err;
      if (n > 0) to.append(text, static_cast<std::size_t>(n));
      else if (n == 0 || errno != EINTR) ends[k].fd = -1;
      too_much = to.size() > most_said;
    }
  }
  int status = 0;
  // It may have closed its output and still hang.
  while (!late && !too_much && ::waitpid(child, &status, WNOHANG) == 0) {
    if (deadline.passed()) late = true;
    else sleep_until(now_s() + 1e-3);
  }
  if (late || too_much) {
    ::kill(-child, SIGKILL);
    ::kill(child, SIGKILL);
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  }
  ::close(out[0]);
  ::close(err[0]);
  if (late)
    return Error{"power.bmc_timeout", "ipmitool " + words.back() + " did not end in time",
                 "raise `timeout` in the hardware's configuration, or check the BMC"};
  if (too_much)
    return Error{"power.hardware_failed",
                 "ipmitool " + words.back() + " printed more than " + std::to_string(most_said) + " bytes", ""};
  said.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return said;
}

/// The text after "name:" in a line of `text`, without surrounding blanks; empty: there is no such line.
std::string after(const std::string& text, std::string_view name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    at = end + 1;
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t' || line.front() == ':')) line.remove_prefix(1);
    while (!line.empty() && static_cast<unsigned char>(line.back()) <= ' ') line.remove_suffix(1);
    return std::string(line);
  }
  return "";
}

/// The reason of a failure comes last in its output.
std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "";
  const std::size_t begin = text.find_last_of('\n', end);
  const std::string line = text.substr(begin + 1, end - begin);
  return line.substr(std::min(line.find_first_not_of(" \t\r"), line.size()));
}

double first_number(const std::string& text) {
  double out = 0;
  return number(std::string_view(text).substr(0, text.find(' ')), out) && out >= 0 && out <= most_w ? out : unknown;
}

std::vector<std::string> fields(const std::string& line) {
  std::vector<std::string> out(1);
  for (const char c : line) {
    if (c == ',') out.emplace_back();
    else out.back() += c;
  }
  return out;
}

struct Limit {
  double set_w = unknown;   // NaN: none is active
  double kept_w = unknown;  // what it would be if it were active
  bool active = false;
  std::string action;                                // in ipmitool's words, of set_limit
  std::uint32_t correction_ms = 1000, sample_s = 1;  // where it does not tell them, what most BMCs have
};

class Dcmi final : public Hardware {
 public:
  explicit Dcmi(const HardwareSpec& spec) : spec_(spec) {}

  Result<void> begin() {
    const auto bad = [](const std::string& what, const std::string& hint) {
      return Error{"power.bad_hardware", what, hint};
    };
    base_ = {program_path()};
    if (base_[0].empty())
      return Error{"power.not_built", "the program ipmitool is not installed",
                   std::string("install ") + ipmi_missing()};
    if (!spec_.url.empty()) {
      std::string host = spec_.url;
      if (host.starts_with("ipmi://")) host.erase(0, 7);
      std::string port;
      if (const auto colon = host.rfind(':'); colon != std::string::npos && host.find(':') == colon) {
        port = host.substr(colon + 1);
        host.resize(colon);
      }
      unsigned checked = 623;
      const bool plain = !host.empty() && host.front() != '-' && host.find_first_of("/@ ") == std::string::npos;
      if (!plain || (!port.empty() && (!number(std::string_view(port), checked) || checked == 0 || checked > 65535)))
        return bad(shown(spec_.url) + " is not the host of a BMC", "write the host like bmc17, or bmc17:623");
      if (spec_.user.empty() || spec_.password_file.empty())
        return bad("a BMC over the network needs user and password_file",
                   "give both; the password stands in a file with mode 600 (chmod 600)");
      if (auto password = password_in(spec_.password_file); !password) return password.error();
      // The password goes through a file, because everyone can read arguments.
      for (const auto& word :
           {std::string("-I"), std::string("lanplus"), std::string("-H"), host, std::string("-p"),
            std::to_string(checked), std::string("-U"), spec_.user, std::string("-f"), spec_.password_file,
            std::string("-N"), std::string("1"), std::string("-R"), std::string("3")})
        base_.push_back(word);
      remote_ = true;
    } else if (!spec_.user.empty() || !spec_.password_file.empty()) {
      return bad("the BMC of this machine takes no user and password_file",
                 "remove both, or give `url` for the BMC of another machine");
    }
    const Deadline deadline = Deadline::in_s(4 * spec_.timeout_s);
    auto power = ask({"dcmi", "power", "reading"}, deadline);
    // Lowest privilege first, and the better cipher: 17 is SHA-256, 3 SHA-1. Trying finds out faster than asking which
    // of them a BMC has.
    for (int turn = 0; remote_ && !power && turn < 2; ++turn) {
      if (power.error().code == "power.bmc_denied" &&
          power.error().what.find("nsufficient privilege") != std::string::npos && level_ == "OPERATOR")
        level_ = "ADMINISTRATOR";
      else if (power.error().code == "power.bmc_cipher" && cipher_ == "17") cipher_ = "3";
      else break;
      power = ask({"dcmi", "power", "reading"}, deadline);
    }
    if (!power) {
      if (power.error().code != "power.hardware_failed") return power.error();
      return Error{"power.no_hardware", "no BMC reports its power by DCMI: " + power.error().what,
                   "'ipmitool dcmi discover' shows what the BMC can do; the BMC of this machine needs 'modprobe "
                   "ipmi_si ipmi_devintf'"};
    }
    Range range;
    range.settable = true;
    if (auto limit = limit_now(deadline); !limit) {
      if (limit.error().code != "power.hardware_failed") return limit.error();
      range.settable = limited_ = false;
      range.why_not = limit.error().what;
    }
    range_ = narrowed(range, spec_);
    auto info = ask({"mc", "info"}, deadline);
    if (info) {
      const std::string maker = after(*info, "Manufacturer Name"), product = after(*info, "Product Name");
      model_ = "IPMI BMC" + (maker.empty() ? "" : " of " + maker.substr(0, 60)) +
               (product.empty() ? "" : " " + product.substr(0, 60));
    }
    if (auto named = chosen(spec_.domains, names_, [](const std::string&) { return true; }); !named)
      return named.error();
    return {};
  }

  Source source() const override { return Source::ipmi; }
  const std::string& model() const override { return model_; }
  const std::vector<std::string>& domains() const override { return names_; }
  Range range(std::size_t domain) const override { return domain == 0 ? range_ : Range{}; }

  Result<std::vector<DomainReading>> read() override {
    const Deadline deadline = Deadline::in_s(spec_.timeout_s);
    DomainReading out;
    auto said = ask({"dcmi", "power", "reading"}, deadline);
    if (!said) return said.error();
    const std::string now = after(*said, "Instantaneous power reading");
    out.power_w = first_number(now);
    if (std::isfinite(reported_w_) && out.power_w != reported_w_) moved_s_ = now_s();
    reported_w_ = out.power_w;
    // A measurement that is switched off has 0, or the last value. Some BMCs say so of one that runs: it changes.
    const bool said_off = after(*said, "Power reading state is") == "deactivated";
    const auto not_known = [&](const std::string& why) {
      out.power_w = unknown;
      out.trouble = "power.hardware_failed: " + why;
    };
    if (std::isnan(out.power_w)) {
      not_known("ipmitool reports no power, but " + shown(now));
    } else if (said_off && !(out.power_w > 0 && now_s() - moved_s_ <= believed_s)) {
      not_known("the BMC says that its power measurement is deactivated, and its reading of " +
                format_power(out.power_w) + " does not change: it is not used");
    } else if (out.power_w == 0) {
      not_known("the BMC reports 0 W, which no machine that runs draws: its power is not known");
    }
    count(out.power_w);
    out.energy_j = energy_j_;
    if (limited_) {
      if (auto limit = limit_now(deadline)) out.cap_w = limit->set_w;
      else if (out.trouble.empty()) out.trouble = told(limit.error());
    }
    return std::vector{out};
  }

  Result<double> cap(std::size_t domain, double cap_w) override {
    if (domain != 0) return Error{"power.unknown_domain", "there is no domain " + std::to_string(domain), ""};
    if (const auto may = may_set(range_, names_[0], cap_w); !may) return may.error();
    const Deadline deadline = Deadline::in_s(4 * spec_.timeout_s);  // at most four exchanges
    auto before = limit_now(deadline);
    if (!before) return before.error();
    // DCMI counts in watts: rounded down, so that the sum stays below the budget.
    const double whole = std::floor(cap_w) >= range_.min_w ? std::floor(cap_w) : std::ceil(cap_w);
    // Many BMCs are preset to switch a node off that is above its limit for a second.
    const bool mild = before->action == "no_action" || before->action == "sel_logging";
    if (before->active) {
      if (!mild)
        if (const auto made = set_action("sel_logging", deadline); !made) return made.error();
      if (const auto set = set_limit(whole, deadline); !set) return set.error();
    } else {
      if (const auto set = set_all(mild ? before->action : "sel_logging", whole, *before, deadline); !set)
        return set.error();
      if (const auto on = switched(true, deadline); !on) return on.error();
    }
    auto back = limit_now(deadline);
    if (!back) return back.error();
    if (std::isnan(back->set_w))
      return Error{"power.hardware_failed", "the BMC accepted a cap, but none is active",
                   "its power management may be switched off, or may need a licence"};
    return back->set_w;
  }

  Result<std::vector<Sensor>> sensors() override {
    auto said = ask({"-c", "sdr", "list", "full"}, Deadline::in_s(4 * spec_.timeout_s));
    if (!said) return said.error();
    std::vector<Sensor> out;
    for (std::size_t at = 0; at < said->size();) {
      const std::size_t end = std::min(said->find('\n', at), said->size());
      const auto one = fields(said->substr(at, end - at));
      at = end + 1;
      double value = 0;
      if (one.size() < 4 || !number(std::string_view(one[1]), value)) continue;
      if (one[2] == "degrees C") out.push_back({one[0], SensorKind::temperature, value});
      if (one[2] == "Volts") out.push_back({one[0], SensorKind::voltage, value});
      if (one[2] == "RPM") out.push_back({one[0], SensorKind::fan, value});
      if (one[2] == "Watts") out.push_back({one[0], SensorKind::power, value});
    }
    return out;
  }

  Result<std::vector<Original>> originals() override {
    if (!range_.settable) return std::vector<Original>{};
    auto now = limit_now(Deadline::in_s(spec_.timeout_s));
    if (!now) return now.error();
    std::vector<Original> out;
    if (std::isfinite(now->kept_w)) out.push_back({names_[0], "limit", std::to_string(std::llround(now->kept_w))});
    if (!now->action.empty()) out.push_back({names_[0], "action", now->action});
    out.push_back({names_[0], "active", now->active ? "1" : "0"});
    return out;
  }

  Result<void> restore(const std::vector<Original>& originals) override {
    const Deadline deadline = Deadline::in_s(4 * spec_.timeout_s);
    std::optional<Error> first;
    std::optional<std::uint32_t> limit;
    std::optional<bool> active;
    std::string action;
    for (const auto& one : originals) {
      std::optional<Error> wrong;
      std::uint32_t watts = 0;
      if (one.domain != names_[0]) wrong = Error{"power.unknown_domain", one.domain + " does not exist any more", ""};
      else if (one.setting == "limit" && number(one.value, watts) && watts <= 65535) limit = watts;
      else if (one.setting == "action" &&
               (one.value == "no_action" || one.value == "power_off" || one.value == "sel_logging"))
        action = one.value;
      else if (one.setting == "active" && (one.value == "0" || one.value == "1")) active = one.value == "1";
      else
        wrong = Error{"power.bad_original",
                      one.domain + " has no setting " + shown(one.setting) + " that can be " + shown(one.value), ""};
      if (wrong && !first) first = wrong;
    }
    if (const auto done = put_back(limit, action, active, deadline); !done) return done.error();
    if (first) return *first;
    return {};
  }

 private:
  Result<std::string> ask(const std::vector<std::string>& words, const Deadline& deadline) const {
    std::vector<std::string> line = base_;
    if (remote_) line.insert(line.end(), {"-C", cipher_, "-L", level_});
    line.insert(line.end(), words.begin(), words.end());
    auto said = run(line, deadline);
    if (!said) return said.error();
    // After some failures it ends with 0, and only prints them.
    std::string why = last_line(said->err);
    const bool failed = said->status != 0 || said->err.find("request failed") != std::string::npos ||
                        said->out.find("request failed") != std::string::npos;
    if (!failed) return said->out;
    if (why.empty()) why = last_line(said->out);
    std::string all = said->err + said->out;
    // It prints the reason of a failed session only in verbose mode.
    if (remote_ && all.find("Unable to establish") != std::string::npos && !deadline.passed()) {
      line.insert(line.begin() + 1, "-v");
      if (auto more = run(line, deadline)) all += more->err + more->out;
    }
    const auto has = [&](const char* part) { return all.find(part) != std::string::npos; };
    std::string asked;
    for (const auto& word : words) asked += " " + word;
    const std::string what = "ipmitool" + asked + ": " + shown(why, 200);
    if (has("authentication algorithm") || has("integrity algorithm") || has("onfidentiality algorithm") ||
        has("cipher suite"))
      return Error{"power.bmc_cipher", what, "the BMC has neither cipher suite 17 nor 3 for this user"};
    if (has("HMAC is invalid") || has("unauthorized name") || has("Insufficient privilege") ||
        has("insufficient privilege") || has("(d4)"))
      return Error{"power.bmc_denied", what, "check `user` and `password_file`, and the user's privilege in the BMC"};
    if (has("Unable to establish"))
      return Error{"power.bmc_timeout", what, "check the BMC's address, its user and its password"};
    return Error{"power.hardware_failed", what, ""};
  }

  Result<void> order(const std::vector<std::string>& words, const Deadline& deadline) const {
    auto said = ask(words, deadline);
    if (!said) return said.error();
    return {};
  }
  // Each call first reads the BMC's settings, and sends them back with the one value changed.
  Result<void> set_limit(double watts, const Deadline& deadline) const {
    return order({"dcmi", "power", "set_limit", "limit", std::to_string(std::llround(watts))}, deadline);
  }
  Result<void> set_action(const std::string& action, const Deadline& deadline) const {
    return order({"dcmi", "power", "set_limit", "action", action}, deadline);
  }
  /// So ipmitool calls an answer of the code 80h, "no limit is active", without more. In brackets it has 80 or, over
  /// the network, any number. Who does not know the command answers another code, which it tells.
  static bool tells_none(const Error& error) {
    return error.what.find("A valid DCMI command was not returned") != std::string::npos;
  }
  /// In one request that needs no answer before it: some BMCs tell no limit that is not active.
  Result<void> set_all(const std::string& action, double watts, const Limit& now, const Deadline& deadline) const {
    auto done = order({"dcmi", "power", "set_limit", "action", action, "limit", std::to_string(std::llround(watts)),
                       "correction", std::to_string(now.correction_ms), "sample", std::to_string(now.sample_s)},
                      deadline);
    // It asks for the limit after it has set it.
    if (!done && !tells_none(done.error())) return done;
    return {};
  }
  Result<void> switched(bool on, const Deadline& deadline) const {
    return order({"dcmi", "power", on ? "activate" : "deactivate"}, deadline);
  }

  /// The order to switch the node off never stands beside a cap of ours that is active: it comes last, and not where
  /// what is before it failed.
  Result<void> put_back(const std::optional<std::uint32_t>& limit, const std::string& action,
                        const std::optional<bool>& active, const Deadline& deadline) const {
    const bool off = active && !*active;
    if (off)
      if (const auto done = switched(false, deadline); !done) return done;
    // 0: it had none, and BMCs refuse to be given that. Nobody misses it where no limit is active.
    const bool has_limit = limit && !(off && *limit == 0);
    bool both = false;
    if (has_limit && active && *active) {
      auto now = limit_now(deadline);
      if (!now) return now.error();
      both = std::isnan(now->kept_w);
      if (both)
        if (const auto done = set_all(action.empty() ? "sel_logging" : action, *limit, *now, deadline); !done)
          return done;
    }
    if (has_limit && !both)
      if (const auto done = set_limit(*limit, deadline); !done) return done;
    if (!action.empty() && !both)
      if (const auto done = set_action(action, deadline); !done) return done;
    if (active && *active) return switched(true, deadline);
    return {};
  }

  Result<Limit> limit_now(const Deadline& deadline) const {
    auto said = ask({"dcmi", "power", "get_limit"}, deadline);
    if (!said && tells_none(said.error())) return Limit{};
    if (!said) return said.error();
    Limit out;
    const std::string state = after(*said, "Current Limit State");
    out.active = state == "Power Limit Active";
    // ipmitool prints what its memory holds behind an answer that ends after its code: at times a time that nobody
    // has set.
    const double correction_ms = first_number(after(*said, "Correction time")),
                 sample_s = first_number(after(*said, "Sampling period"));
    if (!state.empty() && !out.active && !(correction_ms <= longest_correction_ms)) return Limit{};
    if (correction_ms <= longest_correction_ms) out.correction_ms = static_cast<std::uint32_t>(correction_ms);
    if (sample_s <= 65535) out.sample_s = static_cast<std::uint32_t>(sample_s);
    out.kept_w = first_number(after(*said, "Power Limit"));
    if (out.active) out.set_w = out.kept_w;
    const std::string action = after(*said, "Exception actions");
    // A maker's own action has no word to be set again by.
    if (action.find("Hard Power Off") != std::string::npos) out.action = "power_off";
    else if (action == "Log Event to SEL") out.action = "sel_logging";
    else if (action == "No Action") out.action = "no_action";
    if (state.empty()) return Error{"power.hardware_failed", "ipmitool reports no limit, but " + shown(*said, 100), ""};
    return out;
  }

  void count(double power_w) {
    if (!std::isfinite(power_w)) return;
    const std::int64_t now = now_ns();
    if (std::isfinite(last_w_)) energy_j_ += (last_w_ + power_w) / 2 * static_cast<double>(now - last_ns_) * 1e-9;
    last_w_ = power_w;
    last_ns_ = now;
  }

  HardwareSpec spec_;
  std::vector<std::string> base_;
  bool remote_ = false;
  std::string cipher_ = "17", level_ = "OPERATOR";
  std::string model_ = "IPMI BMC";
  std::vector<std::string> names_{"node"};
  Range range_;
  bool limited_ = true;
  double energy_j_ = 0, last_w_ = unknown;
  double reported_w_ = unknown, moved_s_ = -INFINITY;  // the last reading, believed or not, and when it changed
  std::int64_t last_ns_ = 0;
};

}  // namespace

const char* ipmi_missing() {
  static const bool there = !program_path().empty();
  return there ? "" : "ipmitool";
}

Opened open_ipmi(const HardwareSpec& spec) {
  if (spec.kind == Source::ipmi && program_path().empty())
    return Error{"power.not_built", "the program ipmitool is not installed", "install ipmitool"};
  auto out = std::make_unique<Dcmi>(spec);
  if (const auto begun = out->begin(); !begun) return begun.error();
  return Opened(std::move(out));
}

}  // namespace sonde::power::kinds
