// A node's BMC by Redfish: EnvironmentMetrics and Controls where it has them, the older Power resource else.
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

namespace sonde::power::kinds {

namespace {

constexpr std::size_t most_answer = 1u << 20, most_chassis = 64, most_members = 1024, most_controls = 256;
constexpr int max_redirects = 3, max_pages = 64;
constexpr int attempts_of_one_form = 3;  ///< of an ETag, while somebody else may be changing the resource
/// Some BMCs count in milliwatts and do not say so: no node draws that much more than it can be set to.
constexpr double implausible_factor = 20;
/// A chassis that was ill is asked again so often.
constexpr double ill_again_s = 30;
/// No node draws more: a BMC that says so talks nonsense.
constexpr double most_w = 1e6;
/// Between two looks at what a BMC has not taken over yet.
constexpr double look_again_s = 0.2;
constexpr double coarse_after_s = 1;  ///< who still shows the former cap then, and that is near, takes no finer steps

struct Answer {
  JsonValue body;
  std::string etag;       ///< of the header, as it came; empty: it had none
  std::string body_etag;  ///< @odata.etag
  std::string path;       ///< where it was found at last
};

/// RFC 9110: "…" or W/"…", and no quote within.
bool is_etag(std::string_view tag) {
  if (tag.starts_with("W/")) tag.remove_prefix(2);
  return tag.size() >= 2 && tag.front() == '"' && tag.back() == '"' &&
         tag.substr(1, tag.size() - 2).find('"') == std::string_view::npos;
}

/// The forms of If-Match, the likeliest first: BMCs quote the header's tag twice, send none, compare weak tags as RFC
/// 9110 forbids, or refuse each If-Match. Empty: no If-Match at all.
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
      return bad("redfish needs url = \"https://…\", and has " + shown(spec.url), "a password never travels in clear");
    auto out = std::unique_ptr<Bmc>(new Bmc);
    out->base_ = spec.url;
    while (out->base_.ends_with('/')) out->base_.pop_back();
    const std::string host = out->base_.substr(8);
    if (host.empty() || host.find_first_of("/@?# ") != std::string::npos)
      return bad(shown(spec.url) + " is more than a host and a port",
                 "write https://bmc17 or https://bmc17:8443; user and password_file have their own keys");
    if (!spec.user.empty() && spec.password_file.empty())
      return bad("redfish has a user and no password_file", "a file with the password, chmod 600");
    if (spec.user.empty() && !spec.password_file.empty())
      return bad("redfish has a password_file and no user", "give `user`");
    if (spec.user.find(':') != std::string::npos)
      return bad("a user with a ':'", "HTTP's Basic authentication cannot tell it");
    out->curl_ = curl_easy_init();
    if (!out->curl_) return Error{"power.hardware_failed", "libcurl cannot begin", ""};
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

  /// Follows a redirect to another path of this BMC, as to the same with a '/' at its end; to nowhere else.
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
        return Error{
            "power.hardware_failed", base_ + at + " redirects to " + shown(to, 200) + ", which is not this BMC",
            "give the address in `url` that it redirects to, if that is the BMC: its password goes to no other"};
      if (turn == max_redirects)
        return Error{"power.hardware_failed", base_ + path + " redirects again and again, last to " + shown(to, 200),
                     "look what it has: curl -L " + base_ + path};
      at = next;
    }
  }
  Result<Answer> patch(const std::string& path, const std::string& body, const std::string& etag,
                       const Deadline& deadline) {
    std::string to;
    auto answer = exchange(path, &body, etag, deadline, &to);
    if (answer && !to.empty())
      return Error{"power.hardware_failed", base_ + path + " redirects a PATCH to " + shown(to, 200),
                   "a change is sent nowhere else; give the address in `url` that it redirects to"};
    return answer;
  }
  const std::string& base() const { return base_; }
  /// The path of a link, where that is on this BMC; empty: nowhere that may be asked.
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

  /// `redirect`: where a redirect leads, as it came; then the answer has nothing else.
  Result<Answer> exchange(const std::string& path, const std::string* patch, const std::string& etag,
                          const Deadline& deadline, std::string* redirect) {
    const std::string url = base_ + path;
    const int left = deadline.left_ms();
    const auto late = [&] {
      return Error{"power.bmc_timeout", url + " did not answer in time", "`timeout` of the hardware's configuration"};
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
    set(CURLOPT_PROXY, "");  // a BMC is near; a proxy would see its password
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_SSL_VERIFYPEER, 1L);
    set(CURLOPT_SSL_VERIFYHOST, 2L);
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(left));
    set(CURLOPT_ERRORBUFFER, why);
    set(CURLOPT_WRITEFUNCTION, &body_came);
    set(CURLOPT_WRITEDATA, &body);
    set(CURLOPT_HEADERFUNCTION, &header_came);
    set(CURLOPT_HEADERDATA, &came);
    set(CURLOPT_ACCEPT_ENCODING, "");  // some compress whatever is asked for
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
      return Error{"power.hardware_failed", url + " answers more than " + std::to_string(most_answer) + " bytes", ""};
    if (code != CURLE_OK) {
      const bool trust = code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE;
      return Error{"power.hardware_failed", url + ": " + (*why ? why : curl_easy_strerror(code)),
                   trust ? "`ca`: the file with the authority's certificate that signed the BMC's" : ""};
    }
    long status = 0;
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &status);
    if (status == 401 || status == 403)
      return Error{"power.bmc_denied", url + " refused (" + std::to_string(status) + ")",
                   "look at `user` and `password_file`, and at the user's role in the BMC"};
    if (status == 404 || status == 410)
      return Error{"power.hardware_gone", url + " is not there (" + std::to_string(status) + ")", ""};
    if (status == 412 || status == 428)
      return Error{"power.bmc_changed", url + " refused the ETag" + words_of(body), "again"};
    if ((status == 301 || status == 302 || status == 307 || status == 308) && !came.location.empty()) {
      *redirect = came.location;
      return answer;
    }
    if (status < 200 || status > 299)
      return Error{"power.hardware_failed", url + " answered " + std::to_string(status) + words_of(body),
                   patch ? "its power limit may be switched off, or need a licence: look in the BMC's own page, or "
                           "activate it by 'ipmitool dcmi power activate'"
                         : "ask it by hand: curl " + url};
    answer.etag = came.etag;
    if (body.starts_with("\xef\xbb\xbf")) body.erase(0, 3);  // a byte order mark
    if (body.empty() && patch) return answer;
    auto parsed = JsonValue::parse(body);
    if (!parsed && patch)
      return answer;  // what a PATCH says beside its status has no use: what came of it is read back
    if (!parsed) return Error{"power.hardware_failed", url + " answered nonsense: " + parsed.error().what, ""};
    if (!parsed->object())
      return Error{"power.hardware_failed", url + " answered nonsense: JSON that is no object", ""};
    answer.body = std::move(*parsed);
    answer.body_etag = answer.body["@odata.etag"].text().substr(0, 256);
    for (auto* tag : {&answer.etag, &answer.body_etag})
      if (std::any_of(tag->begin(), tag->end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }))
        tag->clear();
    return answer;
  }

  /// What a BMC says of its refusal.
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

/// Some BMCs write numbers as texts. NaN: it is no number.
double number_of(const JsonValue& value) {
  double out = unknown;
  return value.text().empty() || !number(value.text(), out) ? value.number() : out;
}

/// NaN: none, or nonsense.
double sane(double value, double most) { return value >= 0 && value <= most ? value : unknown; }
double sane(const JsonValue& value) { return sane(number_of(value), most_w); }

/// "150:600" of @Redfish.AllowableNumbers; {NaN, NaN}: it has no such range.
std::pair<double, double> allowable(const JsonValue& numbers) {
  const std::string& text = numbers[std::size_t{0}].text();
  const auto colon = text.find(':');
  double low = unknown, high = unknown;
  if (colon == std::string::npos || !number(text.substr(0, colon), low)) low = unknown;
  if (colon == std::string::npos || !number(text.substr(colon + 1), high)) high = unknown;
  return {sane(low, most_w), sane(high, most_w)};
}

/// How the cap of a chassis is held.
enum class Way { none, metrics, control, power_control };

struct Chassis {
  std::string name, id;
  std::string path, within;                      // its own; of the chassis that contains it
  std::string metrics, control, power, thermal;  // paths; empty: there is none
  Way way = Way::none;
  std::size_t index = 0;  // in PowerControl: of the limit,
  std::size_t drawn = 0;  // and of the power
  double unit_w = 1;      // of a Control's numbers
  Range told;             // as it says itself, before the configuration
  double energy_j = 0, last_w = unknown;
  std::int64_t last_ns = 0;
};

/// What holds a cap as the BMC has it now.
struct Limit {
  double set_w = unknown;   // NaN: none is in force
  double kept_w = unknown;  // what it would be if it were
  std::string mode;         // of the newer schema
  std::string exception;    // of the older: what is done above the limit
  Range range;
  double power_w = unknown;  // where the same resource has it
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
                   "look what it has: curl " + bmc_->base() + "/redfish/v1/Chassis"};
    };
    const std::string collection = link(root->body["Chassis"]);
    if (collection.empty()) return none(" has no Chassis");
    auto members = members_of(collection, most_members, deadline);
    if (!members) return members.error();
    const auto& paths = *members;
    std::vector<std::string> ends;
    for (const auto& path : paths) ends.push_back(end_of(path));
    // By its path most often, and only those that are meant are asked. Else by the Id, which a chassis has to be asked
    // for.
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
    // One chassis with power is the node; of several each is a part of what the BMC serves.
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
    if (const std::string ill = ask_the_ill(); !ill.empty() && out.front().trouble.empty()) out.front().trouble = ill;
    return out;
  }

  Result<double> cap(std::size_t domain, double cap_w) override {
    if (domain >= chassis_.size())
      return Error{"power.unknown_domain", "there is no domain " + std::to_string(domain), ""};
    auto& one = chassis_[domain];
    if (const auto may = may_set(range(domain), one.name, cap_w); !may) return may.error();
    // BMCs take whole watts, many nothing else; down, so that the sum stays below the budget.
    const double whole = std::floor(cap_w) >= range(domain).min_w ? std::floor(cap_w) : cap_w;
    Deadline deadline = Deadline::in_s(spec_.timeout_s);
    auto before = limit_of(one, deadline);
    if (!before) return before.error();
    if (const std::string odd = implausible(one, before->power_w); !odd.empty())
      return Error{"power.hardware_failed", one.name + ": " + odd + ": no cap is set",
                   "read_only = true for this hardware, and another kind to cap the node by"};
    if (!mild(before->exception)) {
      // As for IPMI, and before there is a limit: who takes that for done and does nothing is not given one.
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
    // Something else than before is what it made of the cap; also what was there before, where that is the cap in
    // coarse steps.
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
                   one.name + ": the BMC took a cap of " + format_power(whole) + " and reports no limit in force",
                   "its power limit may be switched off, or need a licence: look in the BMC's own page, or activate it "
                   "by 'ipmitool dcmi power activate'"};
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
          // Newer BMCs report revolutions, which is SensorKind::fan.
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
      // After the limit, so that it is put back after it.
      if (!mild(now->exception)) out.push_back({names_[k], "LimitException", now->exception});
    }
    return out;
  }

  Result<void> restore(const std::vector<Original>& originals) override {
    std::optional<Error> first;
    bool silent = false;                   // it let one exchange run out: it is not waited for again
    std::vector<std::string> off, capped;  // where no limit was in force; where ours still is
    for (const auto& one : originals)
      if (one.setting == "ControlMode" && one.value == "Disabled") off.push_back(one.domain);
    const auto among = [](const std::vector<std::string>& all, const std::string& name) {
      return std::find(all.begin(), all.end(), name) != all.end();
    };
    for (const auto& one : originals) {
      // Each has its time: a chassis of many nodes is slow, and what is not put back stays.
      const Deadline deadline = Deadline::in_s(silent ? 0 : 2 * spec_.timeout_s);
      Result<void> done;
      double value = 0;
      const std::size_t at = called(one.domain);
      if (at == names_.size()) {
        done = Error{"power.unknown_domain", one.domain + " is not there any more", ""};
      } else if (one.setting == "ControlMode" && (one.value == "Automatic" || one.value == "Override" ||
                                                  one.value == "Manual" || one.value == "Disabled")) {
        done = set_mode(chassis_[at], one.value, deadline);
      } else if (one.setting == setting_of(chassis_[at]) &&
                 (one.value == "null" ||
                  (number(one.value, value) && value >= 0 && value * chassis_[at].unit_w <= most_w))) {
        // None, which BMCs refuse to be given; nobody misses it where none is in force.
        if (value > 0 || !among(off, one.domain))
          done = patch(chassis_[at], json_quote(one.setting) + ":" + one.value, deadline);
        if (!done) capped.push_back(one.domain);
      } else if (one.setting == "LimitException" && chassis_[at].way == Way::power_control &&
                 (one.value == "NoAction" || one.value == "HardPowerOff" || one.value == "LogEventOnly" ||
                  one.value == "Oem")) {
        // Not beside a cap of ours.
        if (!among(capped, one.domain))
          done = patch(chassis_[at], "\"LimitException\":" + json_quote(one.value), deadline);
      } else {
        done = Error{"power.bad_original",
                     one.domain + " has no setting " + shown(one.setting) + " that could be " + shown(one.value), ""};
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

  /// By its name, or by its Id: what was the only chassis once, and had another name, is the same.
  std::size_t called(const std::string& name) const {
    const auto at = static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
    if (at < names_.size()) return at;
    for (std::size_t k = 0; k < chassis_.size(); ++k)
      if (chassis_[k].id == name || (name == "node" && chassis_.size() == 1)) return k;
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

  /// Reports on chassis that did not answer in order; "": all do.
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
      } else {  // which has all of it opened anew
        return "power.hardware_gone: the chassis " + end_of(path) + " answers again, and was left out until now";
      }
    }
    if (ill_.empty()) return "";
    return told({ill_.front().error.code,
                 "the chassis " + end_of(ill_.front().path) +
                     " is left out, and what it draws is not counted: " + ill_.front().error.what,
                 ""});
  }

  /// "": it can be.
  std::string implausible(const Chassis& one, double power_w) const {
    const double max_w = narrowed(one.told, spec_).max_w;
    if (!(std::isfinite(power_w) && power_w > implausible_factor * max_w)) return "";
    return "it reports " + format_power(power_w) + ", and can be set to " + format_power(max_w) +
           " at most: it may count in milliwatts";
  }

  /// Those that tell their power. Each has its time: there may be many.
  Result<std::vector<Chassis>> look_at(const std::vector<std::string>& paths) {
    std::vector<Chassis> found;
    ill_.clear(), ill_asked_s_ = now_s();
    int late = 0;
    // One that is ill does not take the others with it: what it has is reported until it is well.
    const auto is_ill = [&](const std::string& path, const Error& error) {
      if (error.code == "power.bmc_timeout" && (++late > 2 || found.empty())) return false;
      if (chosen(spec_.domains, {end_of(path)}, [](const std::string&) { return true; })) ill_.push_back({path, error});
      return true;
    };
    for (std::size_t k = 0; k < std::min(paths.size(), most_chassis); ++k) {
      const Deadline deadline = Deadline::in_s(4 * spec_.timeout_s);  // some four exchanges
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
      found.push_back(std::move(*one));
    }
    return found;
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
    // One within another whose power is read, too, is a part of it, and its name says so.
    for (std::size_t k = 0; k < chassis_.size(); ++k) {
      std::string outer = within_[chassis_[k].path];
      for (std::size_t depth = 0; !outer.empty() && depth < 8; ++depth, outer = within_[outer]) {
        const auto at =
            std::find_if(chassis_.begin(), chassis_.end(), [&](const Chassis& c) { return c.path == outer; });
        if (at == chassis_.end() || at == chassis_.begin() + static_cast<std::ptrdiff_t>(k)) continue;
        chassis_[k].name = names_[k] = at->id + "/" + chassis_[k].id;
        break;
      }
    }
    return {};
  }

  /// What a chassis tells its power by, and how it is held.
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
        out.told.why_not = "the BMC has neither PowerLimitWatts, nor a Control of power, nor a PowerLimit";
      return out;
    }
    auto limit = limit_of(out, deadline);
    if (!limit) return limit.error();
    out.told = limit->range;
    return out;
  }

  /// Which of PowerControl's members has the power of all, and the limit of all: of several, those with less are parts
  /// of it.
  static void choose_control(Chassis& out, const JsonValue& controls) {
    const auto drawn = [&](std::size_t k) { return sane(controls[k]["PowerConsumedWatts"]); };
    const auto more = [&](std::size_t k, std::size_t than) {
      return std::isfinite(drawn(k)) && !(drawn(than) >= drawn(k));
    };
    std::optional<std::size_t> limited;
    std::size_t all = 0;
    for (std::size_t k = 0; k < controls.size(); ++k) {
      if (more(k, all)) all = k;
      if (controls[k]["PowerLimit"].object() && (!limited || more(k, *limited))) limited = k;
    }
    out.drawn = all;
    if (out.way != Way::none || !limited) return;
    if (std::isfinite(drawn(*limited)) && more(all, *limited)) {
      const auto name = [&](std::size_t k) { return shown(controls[k]["Name"].text(), 64); };
      out.told.why_not = "PowerControl " + name(all) + " has no PowerLimit, and that of " + name(*limited) +
                         " is of a part of it alone";
      return;
    }
    out.way = Way::power_control;
    out.index = *limited;
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
      const auto& control = answer.body["PowerControl"][one.index];
      out.power_w = sane(answer.body["PowerControl"][one.drawn]["PowerConsumedWatts"]);
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
    // 0 W is how some say that none is in force.
    if (out.mode != "Disabled" && out.kept_w > 0) out.set_w = out.kept_w;
    return out;
  }

  Result<Limit> limit_of(const Chassis& one, const Deadline& deadline) {
    auto answer = bmc_->get(path_of(one), deadline);
    if (!answer) return answer.error();
    return limit_in(one, *answer);
  }

  /// "": it tells none.
  static bool mild(const std::string& exception) {
    return exception.empty() || exception == "NoAction" || exception == "LogEventOnly";
  }

  /// What the BMC has as soon as `good` holds of it, or what it still has after the time of an exchange: some show what
  /// was for a moment.
  template <typename Good> Result<Limit> settled(const Chassis& one, const Good& good) {
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

  /// `etags`: of what was just read; without, they are asked for.
  Result<void> patch(const Chassis& one, const std::string& fields, const Deadline& deadline,
                     std::vector<std::string> etags = {}) {
    // Refused is that of somebody else's change, as it should be, or a form of it that this BMC does not understand.
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
                       "something else may set this limit all the time; or the BMC needs newer firmware"};
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
    const std::string& path = one.metrics.empty() ? one.power : one.metrics;
    auto answer = bmc_->get(path, deadline);
    if (!answer) return answer.error();
    const auto& body = answer->body;
    const auto& reported =
        one.metrics.empty() ? body["PowerControl"][one.drawn]["PowerConsumedWatts"] : body["PowerWatts"]["Reading"];
    // A text does not count as what is drawn: a cap would be judged by it.
    out.power_w = sane(reported.number(), most_w);
    if (std::isnan(out.power_w)) {
      const std::string instead = !std::isnan(reported.number()) ? exact(reported.number()) + " W"
                                  : reported.text().empty()      ? ""
                                                                 : "the text " + shown(reported.text(), 32);
      out.trouble = "power.hardware_failed: " + bmc_->base() + path + " tells no power" +
                    (instead.empty() ? "" : " but " + instead);
    }
    if (const std::string odd = implausible(one, out.power_w); !odd.empty()) {
      out.power_w = unknown;
      out.trouble = "power.hardware_failed: " + bmc_->base() + path + ": " + odd;
    }
    if (one.way != Way::none) {
      if (path_of(one) == path) {
        out.cap_w = limit_in(one, *answer).set_w;
      } else {
        auto limit = limit_of(one, deadline);
        if (!limit) return limit.error();
        out.cap_w = limit->set_w;
      }
    }
    count(one, out.power_w);
    out.energy_j = one.energy_j;
    return out;
  }

  /// BMCs count kWh, which is too coarse: between two readings it was what they told on average.
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
  std::map<std::string, std::string> within_;  // of each chassis which contains it
  std::size_t etag_form_ = 0;                  // of etags_of(), that it took last
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

const char* redfish_missing() { return "libcurl (libcurl4-openssl-dev), and build again"; }

Opened open_redfish(const HardwareSpec&) {
  return Error{"power.not_built", "this build has no Redfish", std::string("install ") + redfish_missing()};
}

}  // namespace sonde::power::kinds

#endif
