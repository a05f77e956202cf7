// libFuzzer: what a page for scrapers answers to a request, and a page's text for scrapers of the older format. The
// first byte says which.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/fuzz/input.hpp"
#include "service/http.hpp"

namespace {

using sonde::fuzz::hold;

const std::string token = "0123456789abcdef";

std::string metrics() { return "# TYPE a counter\n# UNIT a s\na_total 1\n# TYPE b gauge\nb 2\n# EOF\n"; }

void request(std::string_view text, bool closed) {
  const std::string answer = sonde::service::http_answer(std::string(text), closed ? token : "", metrics);
  const std::size_t end = answer.find("\r\n\r\n");
  hold(answer.starts_with("HTTP/1.1 ") && end != answer.npos, "an answer that is no HTTP");
  const std::string_view head(answer.data(), end), body = std::string_view(answer).substr(end + 4);
  hold(head.find("\r\nContent-Length: " + std::to_string(body.size()) + "\r\n") != head.npos,
       "a length that is not the body's");
  const bool shown = answer.starts_with("HTTP/1.1 200 ");
  hold(shown || body.find("a_total") == body.npos, "an error with the page");
  hold(!closed || !shown || text.find(token) != text.npos, "the page is shown without the token");
  hold(!shown || text.starts_with("GET /"), "an answer to what is no GET");
  hold(answer.size() < 400 && std::ranges::all_of(answer, [](char c) { return c == '\r' || c == '\n' || c >= ' '; }),
       "an answer has something of its request");
}

void page(std::string_view text) {
  const std::string out = sonde::service::prometheus_text(std::string(text));
  const auto lines = static_cast<std::size_t>(std::ranges::count(text, '\n')) + 1;
  hold(out.size() <= text.size() + 7 * lines, "a page grows by more than the ends of its counters' names");
  hold(out.empty() || out.back() == '\n', "a page's last line has no end");
  for (std::size_t at = 0; at < out.size();) {
    const std::size_t end = out.find('\n', at);
    const std::string_view line = std::string_view(out).substr(at, end - at);
    hold(!line.starts_with("# UNIT ") && line != "# EOF", "a line that the older format has not");
    at = end + 1;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  if (n < 1) return 0;
  const auto text = sonde::fuzz::text_of(bytes + 1, n - 1);
  if (bytes[0] % 3 == 2) page(text);
  else request(text, bytes[0] % 3 == 1);
  return 0;
}
