// libFuzzer: a BMC's answers by Redfish, parted by NUL, one for each request in turn. The functions of libcurl that
// redfish.cpp calls are here instead, and hand them on. An answer begins with a letter: g it is gone (404), f failure
// (500), c changed meanwhile (412), t none in time, any other 200; then a line of the head, then the body.
#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <string>
#include <string_view>

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#undef curl_easy_setopt
#undef curl_easy_getinfo

#include "core/fuzz/input.hpp"
#include "power/hardware/kinds.hpp"

namespace {

using Taker = std::size_t (*)(char*, std::size_t, std::size_t, void*);

std::string_view answers;  // of this input
std::size_t asked = 0;     // where the next of them begins
Taker body_taker, head_taker;
void *body_to, *head_to;
long status;

std::string next_answer() {
  if (asked > answers.size()) asked = 0;
  const std::size_t end = std::min(answers.find('\0', asked), answers.size());
  std::string out(answers.substr(asked, end - asked));
  asked = end + 1;
  return out;
}

}  // namespace

// The option is an enumeration in libcurl's own declaration, too.
#pragma clang diagnostic ignored "-Wvarargs"

extern "C" {

CURLcode curl_global_init(long) { return CURLE_OK; }
CURL* curl_easy_init() { return &answers; }
void curl_easy_cleanup(CURL*) {}
void curl_easy_reset(CURL*) {}
curl_slist* curl_slist_append(curl_slist*, const char*) { return nullptr; }
void curl_slist_free_all(curl_slist*) {}
const char* curl_easy_strerror(CURLcode) { return "failed"; }

CURLcode curl_easy_setopt(CURL*, CURLoption option, ...) {
  va_list more;
  va_start(more, option);
  if (option == CURLOPT_WRITEFUNCTION) body_taker = va_arg(more, Taker);
  if (option == CURLOPT_HEADERFUNCTION) head_taker = va_arg(more, Taker);
  if (option == CURLOPT_WRITEDATA) body_to = va_arg(more, void*);
  if (option == CURLOPT_HEADERDATA) head_to = va_arg(more, void*);
  va_end(more);
  return CURLE_OK;
}

CURLcode curl_easy_getinfo(CURL*, CURLINFO info, ...) {
  va_list more;
  va_start(more, info);
  if (info == CURLINFO_RESPONSE_CODE) *va_arg(more, long*) = status;
  va_end(more);
  return CURLE_OK;
}

CURLcode curl_easy_perform(CURL*) {
  std::string answer = next_answer();
  const char kind = answer.empty() ? 'f' : answer[0];
  if (kind == 't') return CURLE_OPERATION_TIMEDOUT;
  status = kind == 'g' ? 404 : kind == 'f' ? 500 : kind == 'c' ? 412 : 200;
  const std::size_t body = std::min(answer.find('\n'), answer.size());
  if (body > 1) (void)head_taker(answer.data() + 1, 1, body - 1, head_to);
  const std::size_t n = answer.size() - std::min(body + 1, answer.size());
  return body_taker(answer.data() + answer.size() - n, 1, n, body_to) == n ? CURLE_OK : CURLE_WRITE_ERROR;
}

}  // extern "C"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  using namespace sonde::power;
  using sonde::fuzz::hold;
  answers = sonde::fuzz::text_of(bytes, n);
  asked = 0;
  HardwareSpec spec;
  spec.kind = Source::redfish;
  spec.url = "https://bmc";
  spec.timeout_s = 0.05;  // so that nothing is waited for
  auto opened = kinds::open_redfish(spec);
  if (!opened) {
    hold(opened.error(), "power.");
    return 0;
  }
  Hardware& bmc = **opened;
  const auto domains = bmc.domains();
  hold(!domains.empty() && bmc.model().size() <= 200, "no domain, or a model without end");
  if (auto now = bmc.read(); !now) {
    hold(now.error(), "power.");
  } else {
    hold(now->size() == domains.size(), "readings of other domains");
    for (const auto& one : *now)
      hold(!(one.power_w < 0) && !(one.power_w > 1e6) && !(one.cap_w < 0) && !(one.cap_w > 1e6) && one.energy_j >= 0,
           "a reading out of its bounds");
  }
  if (const auto sensors = bmc.sensors(); !sensors) hold(sensors.error(), "power.");
  const auto before = bmc.originals();
  if (!before) hold(before.error(), "power.");
  for (std::size_t k = 0; k < std::min<std::size_t>(domains.size(), 2); ++k) {
    const auto range = bmc.range(k);
    hold(!(range.min_w < 0) && !(range.max_w > 1e6), "a range out of its bounds");
    if (auto cap = bmc.cap(k, range.max_w > 0 ? range.max_w : 200); !cap) hold(cap.error(), "power.");
    else hold(*cap >= 0 && *cap <= 1e6, "a cap out of its bounds");
  }
  if (before)
    if (const auto done = bmc.restore(*before); !done) hold(done.error(), "power.");
  return 0;
}
