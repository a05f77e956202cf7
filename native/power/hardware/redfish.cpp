// A node's BMC through Redfish: EnvironmentMetrics and Controls if it has them, otherwise the older resource Power.
// Long because: one BMC in its several dialects, which share one session and one cache of resources.
#include "power/hardware/kinds.hpp"

#ifdef SONDE_HAVE_CURL

#include <curl/curl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>

#include "core/deadline.hpp"
#include "core/json.hpp"
#include "core/number.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "power/hardware/json_value.hpp"
#include "power/hardware/power_control.hpp"

namespace sonde::power::kinds {

namespace {

constexpr std::size_t most_answer = 1u << 20, most_chassis = 64, most_members = 1024, most_controls = 256;
constexpr int max_redirects = 3, max_pages = 64;
constexpr int attempts_of_one_form =
    3;  ///< attempts with one form of ETag, because another program may be changing the resource
/// Some BMCs count in milliwatts without a unit that shows it: no node draws this many times its highest cap.
constexpr double implausible_factor = 20;
/// The time between two requests to a chassis that failed.
constexpr double ill_again_s = 30;
/// The time between two readings while a BMC has not applied a setting yet.
constexpr double look_again_s = 0.2;
/// Two chassis are one if their power changed by at least `moved_w` and was then equal, `moved_as_one` times in a row.
constexpr double moved_w = 3, equal_w = 0.5;
constexpr int moved_as_one = 8, moved_apart = 3;
constexpr double step_w = 1;  ///< BMCs have whole watts
/// How long the limit of a chassis with the same power may take to follow if it is the same limit.
constexpr double follows_s = 1;
/// A reading of a machine that is said to be off is believed for this time after it has changed.
constexpr double believed_s = 300;
constexpr double coarse_after_s = 1;  ///< a BMC that still shows the former cap then, and a near one, has coarse steps

struct Answer {
  JsonValue body;
  std::string etag;       ///< from the header, unchanged; empty: the header had none
  std::string body_etag;  ///< @odata.etag
  std::string path;       ///< the path after all redirects
};

/// RFC 9110: "…" or W/"…", without a quote inside.
bool is_etag(std::string_view tag) {
  if (tag.starts_with("W/")) tag.remove_prefix(2);
  return tag.size() >= 2 && tag.front() == '"' && tag.back() == '"' &&
         tag.substr(1, tag.size() - 2).find('"') == std::string_view::npos;
}

/// The forms of If-Match to try, the likeliest first. Some BMCs quote the header's tag twice, send no tag, compare weak
/// tags, which RFC 9110 forbids, or refuse every If-Match. An empty form: send no If-Match.
std::vector<std::string> etags_of(const Answer& answer) {
  std::vector<std::string> out;
  const auto add = [&](const std::string& tag) {
    if (std::find(out.begin(), out.end(), tag) == out.end()) out.push_back(tag);
  };
  if (is_etag(answer.etag)) add(answer.etag);
  if (!answer.body_etag.empty()) add(answer.body_etag);
  if (!answer.etag.empty()) add(answer.etag);
  for (const auto& tag : std::vector<std::string>(out))
    if (tag.starts_with("W/") && is_etag(tag)) add(tag.substr(2));
  if (!out.empty()) add("*");
  add("");
  return out;
}

class Bmc {
 public:
  static Result<std::unique_ptr<Bmc>> connect(const HardwareSpec& spec) {
    static std::once_flag once;
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    const auto bad = [](const std::string& what, const std::string& hint) {
      return Error{"power.bad_hardware", what, hint};
    };
    if (!spec.url.starts_with("https://"))
      return bad("redfish needs url = \"https://…\", but has " + shown(spec.url),
                 "a password is never sent without encryption");
    auto out = std::unique_ptr<Bmc>(new Bmc);
    out->base_ = spec.url;
    while (out->base_.ends_with('/')) out->base_.pop_back();
    const std::string host = out->base_.substr(8);
    if (host.empty() || host.find_first_of("/@?# ") != std::string::npos)
      return bad(shown(spec.url) + " is more than a host and a port",
                 "write https://bmc17 or https://bmc17:8443; user and password have keys of their own");
    if (!spec.user.empty() && spec.password_file.empty())
      return bad("redfish has a user but no password_file", "name a file with the password, with mode 600 (chmod 600)");
    if (spec.user.empty() && !spec.password_file.empty())
      return bad("redfish has a password_file but no user", "set `user`");
    if (spec.user.find(':') != std::string::npos)
      return bad("the user's name contains a ':'", "HTTP Basic authentication cannot transfer such a name");
    out->curl_ = curl_easy_init();
    if (!out->curl_) return Error{"power.hardware_failed", "libcurl cannot start", ""};
    if (!spec.user.empty()) {
      auto password = password_in(spec.password_file);
      if (!password) return password.error();
      out->user_ = spec.user;
      out->password_ = *password;
    }
    out->ca_ = spec.ca;
    return out;
  }
  Bmc(const Bmc&) = delete;
  Bmc& operator=(const Bmc&) = delete;
  ~Bmc() {
    if (curl_) curl_easy_cleanup(curl_);
  }

  /// Follows redirects, for example to the same path with a '/' at its end, but only to paths of this BMC.
  Result<Answer> get(const std::string& path, const Deadline& deadline) {
    std::string at = path;
    for (int turn = 0;; ++turn) {
      std::string to;
      auto answer = exchange(at, nullptr, "", deadline, &to);
      if (!answer || to.empty()) {
        if (answer) answer->path = at;
        return answer;
      }
      const std::string next = own_path(to);
      if (next.empty())
        return Error{"power.hardware_failed",
                     base_ + at + " redirects to " + shown(to, 200) + ", which is not this BMC",
                     "if that is the BMC, give this address in `url`: the password is sent to no other host"};
      if (turn == max_redirects)
        return Error{"power.hardware_failed", base_ + path + " redirects too often, last to " + shown(to, 200),
                     "see what it has: curl -L " + base_ + path};
      at = next;
    }
  }
  Result<Answer> patch(const std::string& path, const std::string& body, const std::string& etag,
                       const Deadline& deadline) {
    std::string to;
    auto answer = exchange(path, &body, etag, deadline, &to);
    if (answer && !to.empty())
      return Error{"power.hardware_failed", base_ + path + " redirects a PATCH to " + shown(to, 200),
                   "changes are not sent to another place; give this address in `url`"};
    return answer;
  }
  const std::string& base() const { return base_; }
  /// The path of a link on this BMC; empty: the link leads elsewhere.
  std::string own_path(std::string to) const {
    if (to.starts_with(base_) && to.size() > base_.size() && to[base_.size()] == '/') to.erase(0, base_.size());
    const bool good =
        to.starts_with("/redfish/") && to.size() < 1024 &&
        std::all_of(to.begin(), to.end(), [](char c) { return c > ' ' && c < 0x7f && c != '\\' && c != '#'; });
    return good ? to : "";
  }

 private:
  Bmc() = default;

  static std::size_t body_came(char* data, std::size_t one, std::size_t many, void* to) {
    auto& out = *static_cast<std::string*>(to);
    if (out.size() + one * many > most_answer) return 0;
    out.append(data, one * many);
    return one * many;
  }
  struct Headers {
    std::string etag, location;
  };
  static std::size_t header_came(char* data, std::size_t one, std::size_t many, void* to) {
    std::string_view line(data, one * many);
    auto& out = *static_cast<Headers*>(to);
    const auto take = [&](std::string_view name, std::size_t max, std::string& value) {
      const bool named = line.size() > name.size() &&
                         std::equal(name.begin(), name.end(), line.begin(),
                                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
      if (!named) return;
      auto rest = line.substr(name.size());
      while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
      while (!rest.empty() && static_cast<unsigned char>(rest.back()) <= ' ') rest.remove_suffix(1);
      if (rest.size() <= max) value = rest;
    };
    take("etag:", 256, out.etag);
    take("location:", 2048, out.location);
    return one * many;
  }

  /// `redirect`: the target of a redirect, unchanged; the answer is then empty.
  Result<Answer> exchange(const std::string& path, const std::string* patch, const std::string& etag,
                          const Deadline& deadline, std::string* redirect) {
    const std::string url = base_ + path;
    const int left = deadline.left_ms();
    const auto late = [&] {
      return Error{"power.bmc_timeout", url + " did not answer in time",
                   "raise `timeout` in the hardware's configuration, or check the BMC"};
    };
    if (left == 0) return late();
    Answer answer;
    Headers came;
    std::string body;
    char why[CURL_ERROR_SIZE] = "";
    curl_slist* headers = curl_slist_append(nullptr, "Accept: application/json");
    headers = curl_slist_append(headers, "OData-Version: 4.0");
    curl_easy_reset(curl_);
    const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(curl_, option, value); };
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_NOSIGNAL, 1L);
#if LIBCURL_VERSION_NUM >= 0x075500
    set(CURLOPT_PROTOCOLS_STR, "https");
#else
    set(CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTPS));
#endif
    set(CURLOPT_PROXY, "");  // a BMC is in the local network, and a proxy would see its password
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_SSL_VERIFYPEER, 1L);
    set(CURLOPT_SSL_VERIFYHOST, 2L);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(left));
    set(CURLOPT_ERRORBUFFER, why);
    set(CURLOPT_WRITEFUNCTION, &body_came);
    set(CURLOPT_WRITEDATA, &body);
    set(CURLOPT_HEADERFUNCTION, &header_came);
    set(CURLOPT_HEADERDATA, &came);
    set(CURLOPT_ACCEPT_ENCODING, "");  // some BMCs compress whatever is requested
    if (!ca_.empty()) set(CURLOPT_CAINFO, ca_.c_str());
    if (!user_.empty()) {
      set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BASIC));
      set(CURLOPT_USERNAME, user_.c_str());
      set(CURLOPT_PASSWORD, password_.c_str());
    }
    if (patch) {
      headers = curl_slist_append(headers, "Content-Type: application/json");
      if (!etag.empty()) headers = curl_slist_append(headers, ("If-Match: " + etag).c_str());
      set(CURLOPT_CUSTOMREQUEST, "PATCH");
      set(CURLOPT_POSTFIELDS, patch->c_str());
    }
    set(CURLOPT_HTTPHEADER, headers);
    const CURLcode code = curl_easy_perform(curl_);
    curl_slist_free_all(headers);
    if (code == CURLE_OPERATION_TIMEDOUT) return late();
    if (code == CURLE_WRITE_ERROR)
      return Error{"power.hardware_failed", url + " answered with more than " + std::to_string(most_answer) + " bytes",
                   ""};
    if (code != CURLE_OK) {
      const bool trust = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
      return Error{"power.hardware_failed", url + ": " + (*why ? why : curl_easy_strerror(code)),
                   trust ? "set `ca` to a file with the authority that signed the BMC's certificate" : ""};
    }
    long status = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
    if (status == 401 || status == 403)
      return Error{"power.bmc_denied", url + " refused (" + std::to_string(status) + ")",
                   "check `user` and `password_file`, and the user's role in the BMC"};
    if (status == 404 || status == 410)
      return Error{"power.hardware_gone", url + " does not exist (" + std::to_string(status) + ")", ""};
    if (status == 412 || status == 428)
      return Error{"power.bmc_changed", url + " refused the ETag" + words_of(body), "try again"};
    if ((status == 301 || status == 302 || status == 307 || status == 308) && !came.location.empty()) {
      *redirect = came.location;
      return answer;
    }
    if (status < 200 || status > 299)
      return Error{"power.hardware_failed", url + " answered " + std::to_string(status) + words_of(body),
                   patch ? "its power limit may be switched off, or may need a licence: check it in the BMC's web "
                           "page, or activate it with 'ipmitool dcmi power activate'"
                         : "try it by hand: curl " + url};
    answer.etag = came.etag;
    if (body.starts_with("\xef\xbb\xbf")) body.erase(0, 3);  // a byte order mark
    if (body.empty() && patch) return answer;
    auto parsed = JsonValue::parse(body);
    if (!parsed && patch) return answer;  // only the status of a PATCH counts: its effect is read back
    if (!parsed) return Error{"power.hardware_failed", url + " did not answer with JSON: " + parsed.error().what, ""};
    if (!parsed->object()) return Error{"power.hardware_failed", url + " answered with JSON that is not an object", ""};
    answer.body = std::move(*parsed);
    answer.body_etag = answer.body["@odata.etag"].text().substr(0, 256);
    for (auto* tag : {&answer.etag, &answer.body_etag})
      if (std::any_of(tag->begin(), tag->end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }))
        tag->clear();
    return answer;
  }

  /// The message in a BMC's refusal.
  static std::string words_of(const std::string& body) {
    const auto parsed = JsonValue::parse(body);
    if (!parsed) return "";
    const auto& error = (*parsed)["error"];
    const std::string& more = error["@Message.ExtendedInfo"][std::size_t{0}]["Message"].text();
    const std::string& said = more.empty() ? error["message"].text() : more;
    return said.empty() ? "" : ": " + shown(said, 200);
  }

  CURL* curl_ = nullptr;
  std::string base_, user_, password_, ca_;
};

/// The range in a text like "150:600" of @Redfish.AllowableNumbers; {NaN, NaN}: no such range.
std::pair<double, double> allowable(const JsonValue& numbers) {
  const std::string& text = numbers[std::size_t{0}].text();
  const auto colon = text.find(':');
  double low = unknown, high = unknown;
  if (colon == std::string::npos || !number(text.substr(0, colon), low)) low = unknown;
  if (colon == std::string::npos || !number(text.substr(colon + 1), high)) high = unknown;
  return {sane(low, most_w), sane(high, most_w)};
}

/// The resource that sets the cap of a chassis.
enum class Way { none, metrics, control, power_control };

struct Chassis {
  std::string name, id;
  std::string path, within;                      // path: of this chassis; within: of the chassis that contains it
  std::string metrics, control, power, thermal;  // paths; empty: not present
  Way way = Way::none;
  std::size_t index = 0;  // in PowerControl: the position of the limit, as last read
  double unit_w = 1;      // the unit of a Control's numbers
  Range told;             // as reported, before the limits of the configuration
  double energy_j = 0, last_w = unknown;
  std::int64_t last_ns = 0;
  double reported_w = unknown;         // the last reading, believed or not
  bool off = false;                    // as last asked: PowerState "Off"
  double moved_off_s = -INFINITY;      // when the reading last changed while it was said to be off
  std::optional<double> seen_cap_w;    // the last limit in force, once it was read
  std::optional<std::size_t> repeats;  // the chassis that this one is under another name
  std::vector<std::string> also;       // ids of chassis that link to the same resource
};

/// The comparison of two chassis so far: whether they are one machine under two names.
struct Twins {
  int alike = 0, apart = 0;
  bool same = false;                             // and by which sign:
  bool one_limit = false;                        // a cap that was set for one was then that of the other
  bool distinct = false;                         // a cap that was set for one was not that of the other
  double first_w = unknown, second_w = unknown;  // at the last look
};

/// The present state of the resource that sets a cap.
struct Limit {
  double set_w = unknown;   // NaN: no limit is in force
  double kept_w = unknown;  // the stored limit, in force or not
  std::string mode;         // in the newer schema
  std::string exception;    // in the older schema: the action above the limit
  std::size_t index = 0;    // in PowerControl
  Range range;
  double power_w = unknown;  // if the same resource reports it
  std::vector<std::string> etags;
};

class Redfish final : public Hardware {
 public:
  Redfish(const HardwareSpec& spec, std::unique_ptr<Bmc> bmc) : spec_(spec), bmc_(std::move(bmc)) {}

  Result<void> find() {
    const Deadline deadline = Deadline::in_s(4 * spec_.timeout_s);
    auto root = bmc_->get("/redfish/v1/", deadline);
    if (!root) return root.error();
    const auto none = [&](const std::string& what) {
      return Error{"power.no_hardware", bmc_->base() + what,
                   "see what it has: curl " + bmc_->base() + "/redfish/v1/Chassis"};
    };
    const std::string collection = link(root->body["Chassis"]);
    if (collection.empty()) return none(" has no Chassis");
    auto members = members_of(collection, most_members, deadline);
    if (!members) return members.error();
    const auto& paths = *members;
    std::vector<std::string> ends;
    for (const auto& path : paths) ends.push_back(end_of(path));
    // The domains mostly match the paths: then only these chassis are read. Otherwise they match the Id, which must be
    // read from each chassis.
    if (auto meant = chosen(spec_.domains, ends, [](const std::string&) { return true; });
        meant && meant->size() < paths.size()) {
      std::vector<std::string> some;
      for (const auto k : *meant) some.push_back(paths[k]);
      auto found = look_at(some);
      if (!found) return found.error();
      if (take(std::move(*found))) return {};
    }
    auto found = look_at(paths);
    if (!found) return found.error();
    if (found->empty() && !ill_.empty()) return ill_.front().error;
    if (found->empty())
      return none(" has no chassis that reports its power: " + std::to_string(paths.size()) +
                  " have neither PowerControl in Power, nor PowerWatts or PowerLimitWatts in EnvironmentMetrics");
    // A single chassis with power is the node; several are parts of the machine that the BMC serves.
    if (found->size() == 1) found->front().name = "node";
    return take(std::move(*found));
  }

  Source source() const override { return Source::redfish; }
  const std::string& model() const override { return model_; }
  const std::vector<std::string>& domains() const override { return names_; }
  Range range(std::size_t domain) const override {
    return domain < chassis_.size() ? narrowed(chassis_[domain].told, spec_) : Range{};
  }

  Result<std::vector<DomainReading>> read() override {
    const Deadline deadline = Deadline::in_s(spec_.timeout_s);
    std::vector<DomainReading> out;
    std::optional<Error> first;
    bool any = false;
    for (auto& one : chassis_) {
      auto now = read_one(one, deadline);
      if (now) {
        any = true;
        out.push_back(*now);
        continue;
      }
      if (!first) first = now.error();
      DomainReading nothing;
      nothing.energy_j = one.energy_j;
      nothing.trouble = told(now.error());
      out.push_back(nothing);
    }
    if (!any && first) return *first;
    // No machine that runs draws 0 W. A part of it may.
    const bool zero = std::none_of(out.begin(), out.end(), [](const DomainReading& r) { return r.power_w > 0; });
    for (std::size_t k = 0; k < out.size(); ++k) {
      if (zero && out[k].power_w == 0) {
        out[k].power_w = unknown;
        out[k].trouble = told({"power.hardware_failed",
                               bmc_->base() + chassis_[k].path +
                                   " reports 0 W, which no machine that runs draws: its "
                                   "power is not known",
                               ""});
      }
      count(chassis_[k], out[k].power_w);
      out[k].energy_j = chassis_[k].energy_j;
      chassis_[k].seen_cap_w = out[k].cap_w;
    }
    compare(out);
    if (const std::string ill = ask_the_ill(); !ill.empty() && out.front().trouble.empty()) out.front().trouble = ill;
    return out;
  }

  std::string repeats(std::size_t domain) const override {
    if (domain >= chassis_.size() || !chassis_[domain].repeats) return "";
    return told({"power.hardware_failed",
                 "the power and the limit of the chassis " + names_[*chassis_[domain].repeats] + " and " +
                     names_[domain] + " change as one, so they are one machine: " + names_[domain] +
                     " is not counted (name one of them in `domains`)",
                 ""});
  }

  Result<double> cap(std::size_t domain, double cap_w) override {
    if (domain >= chassis_.size())
      return Error{"power.unknown_domain", "there is no domain " + std::to_string(domain), ""};
    auto& one = chassis_[domain];
    if (const auto may = may_set(range(domain), one.name, cap_w); !may) return may.error();
    // Many BMCs accept only whole watts. Rounded down, so that the sum stays below the budget.
    const double whole = std::floor(cap_w) >= range(domain).min_w ? std::floor(cap_w) : cap_w;
    Deadline deadline = Deadline::in_s(spec_.timeout_s);
    auto before = limit_of(one, deadline);
    if (!before) return before.error();
    if (const std::string odd = implausible(one, before->power_w); !odd.empty())
      return Error{"power.hardware_failed", one.name + ": " + odd + ": no cap is set",
                   "set read_only = true for this hardware, and cap the node through another kind"};
    if (!mild(before->exception)) {
      // As for IPMI, before a limit is set: a BMC that accepts this without effect gets no limit.
      if (const auto made = patch(one, "\"LimitException\":\"LogEventOnly\"", deadline); !made) return made.error();
      auto now = settled(one, [](const Limit& l) { return mild(l.exception); });
      if (!now) return now.error();
      if (!mild(now->exception))
        return Error{"power.hardware_failed",
                     one.name + ": the BMC keeps LimitException " + shown(now->exception) + ": no cap is set",
                     "set it to LogEventOnly in the BMC"};
      before = std::move(now);
      deadline = Deadline::in_s(spec_.timeout_s);
    }
    const bool switched_off = before->mode == "Disabled";
    if (const auto put = patch(one,
                               json_quote(setting_of(one)) + ":" + exact(whole / one.unit_w) +
                                   (switched_off ? ",\"ControlMode\":\"Automatic\"" : ""),
                               deadline, before->etags);
        !put)
      return put.error();
    // A limit that differs from the former one is the BMC's version of the cap. So is an unchanged limit, if it is the
    // cap rounded down in coarse steps.
    const double steps_s = now_s() + coarse_after_s;
    auto back = settled(one, [&](const Limit& now) {
      if (std::abs(now.set_w - whole) < 1 ||
          (std::isfinite(now.set_w) && now.set_w != before->set_w && now.set_w != before->kept_w))
        return true;
      return now_s() >= steps_s && now.set_w <= whole && whole - now.set_w <= std::max(10.0, 0.05 * whole);
    });
    if (!back) return back.error();
    if (std::isnan(back->set_w))
      return Error{"power.hardware_failed",
                   one.name + ": the BMC accepted a cap of " + format_power(whole) + ", but reports no limit in force",
                   "its power limit may be switched off, or may need a licence: check it in the BMC's web page, or "
                   "activate it with 'ipmitool dcmi power activate'"};
    one.seen_cap_w = back->set_w;
    find_followers(domain);
    return back->set_w;
  }

  Result<std::vector<Sensor>> sensors() override {
    const Deadline deadline = Deadline::in_s(spec_.timeout_s);
    std::vector<Sensor> out;
    const auto add = [&](const std::string& name, SensorKind kind, const JsonValue& value) {
      if (const double number = number_of(value); std::isfinite(number)) out.push_back({name, kind, number});
    };
    for (const auto& one : chassis_) {
      if (!one.metrics.empty()) {
        auto now = bmc_->get(one.metrics, deadline);
        if (!now) return now.error();
        add(one.name, SensorKind::temperature, now->body["TemperatureCelsius"]["Reading"]);
        const auto& fans = now->body["FanSpeedsPercent"];
        for (std::size_t k = 0; k < std::min<std::size_t>(fans.size(), 64); ++k) {
          const std::string& name = fans[k]["DeviceName"].text();
          // Newer BMCs report revolutions per minute, which is SensorKind::fan.
          add(name.empty() ? "fan " + std::to_string(k) : name, SensorKind::fan, fans[k]["SpeedRPM"]);
        }
      }
      if (!one.power.empty()) {
        auto now = bmc_->get(one.power, deadline);
        if (!now) return now.error();
        const auto& volts = now->body["Voltages"];
        for (std::size_t k = 0; k < std::min<std::size_t>(volts.size(), 256); ++k)
          add(volts[k]["Name"].text(), SensorKind::voltage, volts[k]["ReadingVolts"]);
      }
      if (!one.thermal.empty()) {
        auto now = bmc_->get(one.thermal, deadline);
        if (!now) return now.error();
        const auto &warm = now->body["Temperatures"], &fans = now->body["Fans"];
        for (std::size_t k = 0; k < std::min<std::size_t>(warm.size(), 256); ++k)
          add(warm[k]["Name"].text(), SensorKind::temperature, warm[k]["ReadingCelsius"]);
        for (std::size_t k = 0; k < std::min<std::size_t>(fans.size(), 256); ++k) {
          const std::string& name = fans[k]["Name"].text();
          if (fans[k]["ReadingUnits"].text() != "Percent")
            add(name.empty() ? fans[k]["FanName"].text() : name, SensorKind::fan, fans[k]["Reading"]);
        }
      }
    }
    return out;
  }

  Result<std::vector<Original>> originals() override {
    const Deadline deadline = Deadline::in_s(spec_.timeout_s);
    std::vector<Original> out;
    for (std::size_t k = 0; k < chassis_.size(); ++k) {
      if (!range(k).settable) continue;
      auto now = limit_of(chassis_[k], deadline);
      if (!now) return now.error();
      if (!now->mode.empty()) out.push_back({names_[k], "ControlMode", now->mode});
      const double as_it_counts = now->kept_w / chassis_[k].unit_w;
      out.push_back({names_[k], setting_of(chassis_[k]), std::isnan(as_it_counts) ? "null" : exact(as_it_counts)});
      // After the limit, so that it is also restored after the limit.
      if (!mild(now->exception)) out.push_back({names_[k], "LimitException", now->exception});
    }
    return out;
  }

  Result<void> restore(const std::vector<Original>& originals) override {
    std::optional<Error> first;
    bool silent = false;                   // one exchange timed out: do not wait for it again
    std::vector<std::string> off, capped;  // off: no limit was in force; capped: our limit is still in force
    for (const auto& one : originals)
      if (one.setting == "ControlMode" && one.value == "Disabled") off.push_back(one.domain);
    const auto among = [](const std::vector<std::string>& all, const std::string& name) {
      return std::find(all.begin(), all.end(), name) != all.end();
    };
    for (const auto& one : originals) {
      // Each setting gets its own time: a chassis of many nodes is slow, and a setting that is not restored stays.
      const Deadline deadline = Deadline::in_s(silent ? 0 : 2 * spec_.timeout_s);
      Result<void> done;
      double value = 0;
      const std::size_t at = called(one.domain);
      if (at == names_.size()) {
        done = Error{"power.unknown_domain", one.domain + " does not exist any more", ""};
      } else if (one.setting == "ControlMode" && (one.value == "Automatic" || one.value == "Override" ||
                                                  one.value == "Manual" || one.value == "Disabled")) {
        done = set_mode(chassis_[at], one.value, deadline);
      } else if (one.setting == setting_of(chassis_[at]) &&
                 (one.value == "null" ||
                  (number(one.value, value) && value >= 0 && value * chassis_[at].unit_w <= most_w))) {
        // BMCs refuse a limit of "none"; it is not needed if no limit was in force.
        if (value > 0 || !among(off, one.domain))
          done = patch(chassis_[at], json_quote(one.setting) + ":" + one.value, deadline);
        if (!done) capped.push_back(one.domain);
      } else if (one.setting == "LimitException" && chassis_[at].way == Way::power_control &&
                 (one.value == "NoAction" || one.value == "HardPowerOff" || one.value == "LogEventOnly" ||
                  one.value == "Oem")) {
        // Not while our cap is in force.
        if (!among(capped, one.domain))
          done = patch(chassis_[at], "\"LimitException\":" + json_quote(one.value), deadline);
      } else {
        done = Error{"power.bad_original",
                     one.domain + " has no setting " + shown(one.setting) + " that can be " + shown(one.value), ""};
      }
      silent = silent || (!done && done.error().code == "power.bmc_timeout");
      if (!done && !first) first = done.error();
    }
    if (first) return *first;
    return {};
  }

 private:
  struct Ill {
    std::string path;
    Error error;
  };

  static std::string bare(std::string path) {
    while (path.ends_with('/')) path.pop_back();
    return path;
  }
  static std::string end_of(const std::string& path) {
    const std::string at = bare(path);
    return at.substr(at.rfind('/') + 1);
  }
  std::string link(const JsonValue& to) const { return bmc_->own_path(to["@odata.id"].text()); }

  /// By the name or the Id: a chassis that was once the only one had another name, but is the same.
  std::size_t called(const std::string& name) const {
    const auto at = static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
    if (at < names_.size()) return at;
    for (std::size_t k = 0; k < chassis_.size(); ++k)
      if (chassis_[k].id == name || (name == "node" && chassis_.size() == 1) ||
          std::find(chassis_[k].also.begin(), chassis_[k].also.end(), name) != chassis_[k].also.end())
        return k;
    return names_.size();
  }

  /// The members of a collection, over all its pages.
  Result<std::vector<std::string>> members_of(const std::string& collection, std::size_t max,
                                              const Deadline& deadline) {
    std::vector<std::string> out;
    std::string path = collection;
    for (int page = 0; !path.empty() && page < max_pages && out.size() < max; ++page) {
      auto answer = bmc_->get(path, deadline);
      if (!answer) return answer.error();
      const auto& list = answer->body["Members"];
      for (std::size_t k = 0; k < list.size() && out.size() < max; ++k)
        if (const std::string member = link(list[k]); !member.empty()) out.push_back(member);
      const auto& next = answer->body["Members@odata.nextLink"];
      path = next.object() ? link(next) : bmc_->own_path(next.text());
    }
    return out;
  }

  /// A report on chassis that failed; "": all work.
  std::string ask_the_ill() {
    if (ill_.empty()) return "";
    if (now_s() - ill_asked_s_ >= ill_again_s) {
      ill_asked_s_ = now_s();
      const Deadline deadline = Deadline::in_s(spec_.timeout_s);
      const std::string path = ill_.front().path;
      auto body = bmc_->get(path, deadline);
      if (!body && body.error().code == "power.hardware_gone") {
        ill_.erase(ill_.begin());
      } else if (!body) {
        ill_.front().error = body.error();
      } else if (auto one = look(body->body, deadline); !one) {
        ill_.front().error = one.error();
      } else if (one->metrics.empty() && one->power.empty()) {
        ill_.erase(ill_.begin());
      } else {  // this report causes all hardware to be opened again
        return "power.hardware_gone: the chassis " + end_of(path) + " answers again; it was left out until now";
      }
    }
    if (ill_.empty()) return "";
    return told({ill_.front().error.code,
                 "the chassis " + end_of(ill_.front().path) +
                     " is left out, and its power is not counted: " + ill_.front().error.what,
                 ""});
  }

  /// Why the power is not plausible; "": it is.
  std::string implausible(const Chassis& one, double power_w) const {
    const double max_w = narrowed(one.told, spec_).max_w;
    if (!(std::isfinite(power_w) && power_w > implausible_factor * max_w)) return "";
    return "it reports " + format_power(power_w) + ", but its highest cap is " + format_power(max_w) +
           ": it may report milliwatts";
  }

  /// The chassis that report their power. Each gets its own time, because there may be many.
  Result<std::vector<Chassis>> look_at(const std::vector<std::string>& paths) {
    std::vector<Chassis> found;
    ill_.clear(), ill_asked_s_ = now_s();
    int late = 0;
    // A chassis that fails does not affect the others: its error is reported until it works.
    const auto is_ill = [&](const std::string& path, const Error& error) {
      if (error.code == "power.bmc_timeout" && (++late > 2 || found.empty())) return false;
      if (chosen(spec_.domains, {end_of(path)}, [](const std::string&) { return true; })) ill_.push_back({path, error});
      return true;
    };
    for (std::size_t k = 0; k < std::min(paths.size(), most_chassis); ++k) {
      const Deadline deadline = Deadline::in_s(4 * spec_.timeout_s);  // about four exchanges
      auto body = bmc_->get(paths[k], deadline);
      if (!body && body.error().code == "power.hardware_gone") continue;
      if (!body && is_ill(paths[k], body.error())) continue;
      if (!body) return body.error();
      auto one = look(body->body, deadline);
      if (!one && is_ill(paths[k], one.error())) continue;
      if (!one) return one.error();
      within_[bare(body->path)] = bare(link(body->body["Links"]["ContainedBy"]));
      if (one->metrics.empty() && one->power.empty()) continue;
      one->path = bare(body->path);
      one->name = body->body["Id"].text();
      if (one->name.empty()) one->name = end_of(paths[k]);
      one->id = one->name;
      const std::string model = body->body["Manufacturer"].text() + " " + body->body["Model"].text();
      if (model_.empty()) model_ = model == " " ? "Redfish" : shown(model, 90).substr(1, shown(model, 90).size() - 2);
      const auto same =
          std::find_if(found.begin(), found.end(), [&](const Chassis& c) { return one_resource(c, *one); });
      if (same == found.end()) {
        found.push_back(std::move(*one));
        continue;
      }
      if (same->way == Way::none && one->way != Way::none) std::swap(*same, *one);
      same->also.push_back(one->id);
      same->also.insert(same->also.end(), one->also.begin(), one->also.end());
      also_at_[one->path] = same->path;
    }
    return found;
  }

  /// Two chassis that link to one meter or to one limit are one domain.
  static bool one_resource(const Chassis& a, const Chassis& b) {
    const auto one = [](const std::string& x, const std::string& y) { return !x.empty() && bare(x) == bare(y); };
    return one(a.metrics, b.metrics) || one(a.power, b.power) || one(a.control, b.control);
  }

  /// Neither is a part of the other.
  bool siblings(std::size_t a, std::size_t b) const {
    return names_[a].find('/') == std::string::npos && names_[b].find('/') == std::string::npos;
  }

  /// Readings of one meter, at slightly different times, may differ by this.
  static double near(double power_w) { return std::fmax(5, 0.05 * power_w); }

  /// The one that reports more is the machine.
  void join(std::size_t a, std::size_t b) {
    const auto main_of = [&](std::size_t k) { return chassis_[k].repeats.value_or(k); };
    a = main_of(a), b = main_of(b);
    if (a == b) return;
    if (chassis_[b].reported_w > chassis_[a].reported_w + near(chassis_[a].reported_w)) std::swap(a, b);
    for (std::size_t k = 0; k < chassis_.size(); ++k)
      if (k == b || chassis_[k].repeats == b) chassis_[k].repeats = a;
  }

  void judge() {
    for (auto& one : chassis_) one.repeats.reset();
    for (const auto& [pair, seen] : twins_)
      if (seen.same) join(pair.first, pair.second);
  }

  /// Two that are one machine have one limit: what is set as one's, the other shows, too.
  void find_followers(std::size_t domain) {
    const double has_w = chassis_[domain].seen_cap_w.value_or(unknown);
    std::vector<std::size_t> asked;
    bool likely = false;
    for (std::size_t k = 0; k < chassis_.size(); ++k) {
      if (k == domain || chassis_[k].way == Way::none || !siblings(k, domain)) continue;
      const auto& seen = twins_[std::minmax(k, domain)];
      const auto& before = chassis_[k].seen_cap_w;
      if (seen.same || seen.distinct || !before || std::abs(*before - has_w) < step_w) continue;
      asked.push_back(k);
      likely = likely || std::abs(chassis_[k].reported_w - chassis_[domain].reported_w) <= near(has_w);
    }
    const Deadline deadline = Deadline::in_s(std::min(spec_.timeout_s, likely ? follows_s : spec_.timeout_s));
    while (!asked.empty()) {
      for (std::size_t i = 0; i < asked.size();) {
        const std::size_t k = asked[i];
        auto now = limit_of(chassis_[k], deadline);
        const bool follows = now && std::abs(now->set_w - has_w) < step_w;
        auto& seen = twins_[std::minmax(k, domain)];
        if (follows) seen.same = seen.one_limit = true;
        if (now && !follows) ++i;
        else asked.erase(asked.begin() + static_cast<std::ptrdiff_t>(i));
      }
      if (!likely || deadline.left_ms() <= look_again_s * 1e3) break;
      sleep_until(now_s() + look_again_s);
    }
    for (const auto k : asked) twins_[std::minmax(k, domain)].distinct = true;
    judge();
  }

  /// Siblings whose readings change as one, and whose limits are equal all the time, are one machine.
  void compare(const std::vector<DomainReading>& now) {
    for (std::size_t b = 0; b < now.size(); ++b)
      for (std::size_t a = 0; a < b; ++a) {
        if (!siblings(a, b)) continue;
        auto& seen = twins_[{a, b}];
        const double first_w = now[a].power_w, second_w = now[b].power_w;
        if (!std::isfinite(first_w) || !std::isfinite(second_w)) continue;
        const bool caps_apart = std::abs(now[a].cap_w - now[b].cap_w) >= step_w ||
                                std::isfinite(now[a].cap_w) != std::isfinite(now[b].cap_w);
        const bool apart = caps_apart || (!seen.one_limit && std::abs(first_w - second_w) > near(first_w));
        seen.apart = apart ? seen.apart + 1 : 0;
        if (apart || !(std::abs(first_w - second_w) < equal_w)) seen.alike = 0;
        else if (std::abs(first_w - seen.first_w) >= moved_w && std::abs(second_w - seen.second_w) >= moved_w)
          ++seen.alike;
        if (seen.alike >= moved_as_one && !seen.distinct) seen.same = true;
        if (seen.apart >= moved_apart) seen.same = seen.one_limit = false;
        seen.first_w = first_w, seen.second_w = second_w;
      }
    judge();
  }

  Result<void> take(std::vector<Chassis> found) {
    std::vector<std::string> names;
    for (const auto& one : found) names.push_back(one.name);
    auto taken = chosen(spec_.domains, names, [](const std::string&) { return true; });
    if (!taken) return taken.error();
    for (const auto k : *taken) {
      chassis_.push_back(std::move(found[k]));
      names_.push_back(names[k]);
    }
    // A chassis inside another whose power is also read is a part of it, which its name shows.
    for (std::size_t k = 0; k < chassis_.size(); ++k) {
      const auto next = [&](const std::string& path) {
        const std::string outer = within_[path];
        const auto other = also_at_.find(outer);
        return other == also_at_.end() ? outer : other->second;
      };
      std::string outer = next(chassis_[k].path);
      for (std::size_t depth = 0; !outer.empty() && depth < 8; ++depth, outer = next(outer)) {
        const auto at =
            std::find_if(chassis_.begin(), chassis_.end(), [&](const Chassis& c) { return c.path == outer; });
        if (at == chassis_.end() || at == chassis_.begin() + static_cast<std::ptrdiff_t>(k)) continue;
        chassis_[k].name = names_[k] = at->id + "/" + chassis_[k].id;
        break;
      }
    }
    return {};
  }

  /// Finds the resources that report the power of a chassis and set its cap.
  Result<Chassis> look(const JsonValue& body, const Deadline& deadline) {
    Chassis out;
    out.thermal = link(body["Thermal"]);
    // A link to what is not there (404) is common; every other failure is reported.
    const auto get = [&](const std::string& path) -> Result<std::unique_ptr<Answer>> {
      if (path.empty()) return std::unique_ptr<Answer>();
      auto answer = bmc_->get(path, deadline);
      if (answer) return std::make_unique<Answer>(std::move(*answer));
      if (answer.error().code == "power.hardware_gone") return std::unique_ptr<Answer>();
      return answer.error();
    };
    auto metrics = get(link(body["EnvironmentMetrics"]));
    if (!metrics) return metrics.error();
    if (*metrics && (*metrics)->body["PowerWatts"].object()) out.metrics = (*metrics)->path;
    auto power = get(link(body["Power"]));
    if (!power) return power.error();
    if (*power && (*power)->body["PowerControl"].size() > 0) out.power = (*power)->path;
    if (*metrics && (*metrics)->body["PowerLimitWatts"].object()) {
      out.metrics = (*metrics)->path;
      out.way = Way::metrics;
    } else if (const std::string controls = link(body["Controls"]); !controls.empty()) {
      auto list = members_of(controls, most_controls, deadline);
      if (!list && list.error().code != "power.hardware_gone") return list.error();
      if (list) {
        for (std::size_t k = 0; k < list->size() && out.way == Way::none; ++k) {
          auto control = get((*list)[k]);
          if (!control) return control.error();
          const std::string units = *control ? (*control)->body["SetPointUnits"].text() : "";
          const double unit_w = units == "W" ? 1 : units == "mW" ? 1e-3 : units == "kW" ? 1e3 : unknown;
          const bool of_all = *control && (*control)->body["ControlType"].text() == "Power" && std::isfinite(unit_w) &&
                              ((*control)->body["PhysicalContext"].is_null() ||
                               (*control)->body["PhysicalContext"].text() == "Chassis");
          if (!of_all || (*control)->body["Enabled"].is_false()) continue;
          out.way = Way::control;
          out.control = (*control)->path;
          out.unit_w = unit_w;
        }
      }
    }
    if (!out.power.empty()) choose_control(out, (*power)->body["PowerControl"]);
    if (out.way == Way::none) {
      if (out.told.why_not.empty())
        out.told.why_not = "the BMC has neither PowerLimitWatts, nor a Control for power, nor a PowerLimit";
      return out;
    }
    auto limit = limit_of(out, deadline);
    if (!limit) return limit.error();
    out.told = limit->range;
    return out;
  }

  /// Whether the older resource has the limit of the whole chassis.
  static void choose_control(Chassis& out, const JsonValue& controls) {
    const auto members = control_members(controls);
    if (out.way != Way::none) return;
    out.told.why_not = members.why_not;
    if (!members.limited) return;
    out.way = Way::power_control;
    out.index = *members.limited;
  }

  static const std::string& path_of(const Chassis& one) {
    return one.way == Way::metrics ? one.metrics : one.way == Way::control ? one.control : one.power;
  }
  static const char* setting_of(const Chassis& one) {
    return one.way == Way::power_control ? "LimitInWatts" : "SetPoint";
  }

  static Limit limit_in(const Chassis& one, const Answer& answer) {
    Limit out;
    out.etags = etags_of(answer);
    out.range.settable = true;
    const auto narrow = [&](double low, double high) {
      if (std::isfinite(low)) out.range.min_w = std::fmax(out.range.min_w, low);
      if (high > 0) out.range.max_w = std::fmin(out.range.max_w, high);
    };
    if (one.way == Way::power_control) {
      const auto& controls = answer.body["PowerControl"];
      const auto members = control_members(controls);
      out.index = members.limited.value_or(one.index);
      const auto& control = controls[out.index];
      out.power_w = sane(controls[members.drawn]["PowerConsumedWatts"]);
      out.kept_w = sane(control["PowerLimit"]["LimitInWatts"]);
      out.exception = control["PowerLimit"]["LimitException"].text().substr(0, 32);
      narrow(unknown, sane(control["PowerCapacityWatts"]));
      const auto [low, high] = allowable(control["PowerLimit"]["LimitInWatts@Redfish.AllowableNumbers"]);
      narrow(low, high);
      const auto& cray = control["Oem"]["Cray"]["PowerLimit"];
      narrow(sane(cray["Min"]), sane(cray["Max"]));
    } else {
      const auto& limit = one.way == Way::metrics ? answer.body["PowerLimitWatts"] : answer.body;
      const auto watts = [&](const char* name) { return sane(number_of(limit[name]) * one.unit_w, most_w); };
      out.mode = limit["ControlMode"].text().substr(0, 32);
      out.kept_w = watts("SetPoint");
      if (one.way == Way::metrics) out.power_w = sane(answer.body["PowerWatts"]["Reading"]);
      out.range.min_w = watts("AllowableMin");
      if (const double max_w = watts("AllowableMax"); max_w > 0) out.range.max_w = max_w;
      narrow(watts("SettingMin"), watts("SettingMax"));
    }
    // Some BMCs report 0 W if no limit is in force.
    if (out.mode != "Disabled" && out.kept_w > 0) out.set_w = out.kept_w;
    return out;
  }

  Result<Limit> limit_of(Chassis& one, const Deadline& deadline) {
    auto answer = bmc_->get(path_of(one), deadline);
    if (!answer) return answer.error();
    Limit out = limit_in(one, *answer);
    one.index = out.index;
    return out;
  }

  /// Whether the action above the limit is harmless; "": none is reported.
  static bool mild(const std::string& exception) {
    return exception.empty() || exception == "NoAction" || exception == "LogEventOnly";
  }

  /// The limit as soon as `good` is true for it, or the present limit after the time of an exchange: some BMCs show the
  /// former limit for a moment.
  template <typename Good> Result<Limit> settled(Chassis& one, const Good& good) {
    const Deadline deadline = Deadline::in_s(spec_.timeout_s);
    std::optional<Limit> last;
    for (;;) {
      auto now = limit_of(one, deadline);
      if (!now && last && now.error().code == "power.bmc_timeout") return *last;
      if (!now || good(*now)) return now;
      last = std::move(*now);
      if (deadline.left_ms() <= look_again_s * 1e3) return *last;
      sleep_until(now_s() + look_again_s);
    }
  }

  static std::string around(const Chassis& one, const std::string& fields) {
    if (one.way == Way::metrics) return "{\"PowerLimitWatts\":{" + fields + "}}";
    if (one.way == Way::control) return "{" + fields + "}";
    std::string out = "{\"PowerControl\":[";
    for (std::size_t k = 0; k < one.index; ++k) out += "{},";
    return out + "{\"PowerLimit\":{" + fields + "}}]}";
  }

  /// `etags`: those of the last reading; if empty, they are read first.
  Result<void> patch(const Chassis& one, const std::string& fields, const Deadline& deadline,
                     std::vector<std::string> etags = {}) {
    // A refusal means that another program changed the resource, or that this BMC does not accept this form of the tag.
    std::optional<Deadline> again;
    std::string last;
    std::size_t other = 0;
    for (int turn = 0;; ++turn) {
      const Deadline& until = again ? *again : deadline;
      if (turn > 0 || etags.empty()) {
        auto now = bmc_->get(path_of(one), until);
        if (!now) return now.error();
        etags = etags_of(*now);
      }
      std::size_t form = std::min(etag_form_, etags.size() - 1);
      if (turn >= attempts_of_one_form) {
        if (other == etag_form_) ++other;
        if (other >= etags.size())
          return Error{"power.hardware_failed", last + ", in each of " + std::to_string(turn) + " attempts",
                       "another program may set this limit all the time, or the BMC needs newer firmware"};
        form = other++;
      }
      const auto done = bmc_->patch(path_of(one), around(one, fields), etags[form], until);
      if (done) {
        etag_form_ = form;
        return {};
      }
      if (done.error().code != "power.bmc_changed") return done.error();
      last = done.error().what;
      if (!again) again = Deadline::in_s(spec_.timeout_s);
    }
  }
  Result<void> set_mode(const Chassis& one, const std::string& mode, const Deadline& deadline) {
    if (one.way == Way::power_control) return Error{"power.bad_original", one.name + " has no ControlMode", ""};
    return patch(one, "\"ControlMode\":" + json_quote(mode), deadline);
  }

  Result<DomainReading> read_one(Chassis& one, const Deadline& deadline) {
    DomainReading out;
    std::string path = one.metrics.empty() ? one.power : one.metrics;
    auto answer = bmc_->get(path, deadline);
    if (!answer) return answer.error();
    const auto whole = [](const Answer& from) -> const JsonValue& {
      const auto& controls = from.body["PowerControl"];
      return controls[control_members(controls).drawn]["PowerConsumedWatts"];
    };
    const JsonValue* reported = one.metrics.empty() ? &whole(*answer) : &answer->body["PowerWatts"]["Reading"];
    // Some BMCs have the newer resource without a value in it.
    std::optional<Answer> older;
    if (!one.metrics.empty() && !one.power.empty() && !(sane(reported->number(), most_w) > 0)) {
      auto other = bmc_->get(one.power, deadline);
      if (other) older = std::move(*other);
      if (other && whole(*older).number() > 0) reported = &whole(*older), path = one.power;
    }
    // A text does not count as power, because the cap is checked against this value.
    out.power_w = sane(reported->number(), most_w);
    if (std::isnan(out.power_w)) {
      const std::string instead = !std::isnan(reported->number()) ? exact(reported->number()) + " W"
                                  : reported->text().empty()      ? ""
                                                                  : "the text " + shown(reported->text(), 32);
      out.trouble = "power.hardware_failed: " + bmc_->base() + path + " reports no power" +
                    (instead.empty() ? "" : ", but " + instead);
    }
    if (const std::string odd = implausible(one, out.power_w); !odd.empty()) {
      out.power_w = unknown;
      out.trouble = "power.hardware_failed: " + bmc_->base() + path + ": " + odd;
    }
    if (is_stale(one, out.power_w, deadline)) {
      out.trouble = "power.hardware_failed: " + bmc_->base() + path + " reports " + format_power(out.power_w) +
                    ", but the BMC says that the machine is off, and the reading does not change: it is not used";
      out.power_w = unknown;
    }
    if (one.way != Way::none) {
      const Answer* known = path_of(one) == (one.metrics.empty() ? one.power : one.metrics) ? &*answer
                            : older && path_of(one) == one.power                            ? &*older
                                                                                            : nullptr;
      auto limit = known ? Result<Limit>(limit_in(one, *known)) : limit_of(one, deadline);
      if (!limit) return limit.error();
      one.index = limit->index;
      out.cap_w = limit->set_w;
    }
    out.energy_j = one.energy_j;
    return out;
  }

  /// Whether the reading is a former one of a machine that is off. A BMC may also call a machine off that runs: then
  /// its reading changes, and is believed.
  bool is_stale(Chassis& one, double power_w, const Deadline& deadline) {
    if (!std::isfinite(power_w)) return false;
    const bool moved = std::isfinite(one.reported_w) && power_w != one.reported_w;
    one.reported_w = power_w;
    if (moved && one.off) one.moved_off_s = now_s();
    if (!moved) {
      auto body = bmc_->get(one.path, deadline);
      if (!body) return false;
      one.off = body->body["PowerState"].text() == "Off";
    }
    return !moved && one.off && now_s() - one.moved_off_s > believed_s;
  }

  /// BMCs count kWh, which is too coarse: energy is the mean power of two readings times the time between them.
  static void count(Chassis& one, double power_w) {
    if (!std::isfinite(power_w)) return;
    const std::int64_t now = now_ns();
    if (std::isfinite(one.last_w))
      one.energy_j += (one.last_w + power_w) / 2 * static_cast<double>(now - one.last_ns) * 1e-9;
    one.last_w = power_w;
    one.last_ns = now;
  }

  HardwareSpec spec_;
  std::unique_ptr<Bmc> bmc_;
  std::string model_;
  std::vector<std::string> names_;
  std::vector<Chassis> chassis_;
  std::vector<Ill> ill_;
  double ill_asked_s_ = 0;
  std::map<std::string, std::string> within_;                   // chassis -> the chassis that contains it
  std::map<std::string, std::string> also_at_;                  // chassis -> the one that has the same resources
  std::map<std::pair<std::size_t, std::size_t>, Twins> twins_;  // the first is the lower
  std::size_t etag_form_ = 0;  // index in etags_of() of the form that was accepted last
};

}  // namespace

const char* redfish_missing() { return ""; }

Opened open_redfish(const HardwareSpec& spec) {
  auto bmc = Bmc::connect(spec);
  if (!bmc) return bmc.error();
  auto out = std::make_unique<Redfish>(spec, std::move(*bmc));
  if (const auto found = out->find(); !found) return found.error();
  return Opened(std::move(out));
}

}  // namespace sonde::power::kinds

#else

namespace sonde::power::kinds {

const char* redfish_missing() { return "libcurl (libcurl4-openssl-dev), then build again"; }

Opened open_redfish(const HardwareSpec&) {
  return Error{"power.not_built", "this build has no Redfish", std::string("install ") + redfish_missing()};
}

}  // namespace sonde::power::kinds

#endif
