// libFuzzer: addresses, backends, distributions and options of a link, as text. The first byte selects the kind.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/fuzz/input.hpp"
#include "store/link_options.hpp"
#include "store/store.hpp"
#include "store/striped.hpp"
#include "store/transport/tcp.hpp"

namespace {

using namespace sonde::store;
using sonde::fuzz::hold;

void address(std::string_view text) {
  auto parsed = parse_address(text);
  if (!parsed) return hold(parsed.error(), "store.");
  auto again = parse_address(parsed->text());
  hold(again && again->host == parsed->host && again->port == parsed->port,
       "an address changes when it is parsed and written");
}

void distribution(std::string_view text) {
  auto parsed = Distribution::parse(text);
  if (!parsed) return hold(parsed.error(), "");  // the error of a size has its own code
  auto again = Distribution::parse(parsed->text());
  hold(again && again->text() == parsed->text(), "a distribution changes when it is parsed and written");
}

void link(std::string_view text) {
  LinkOptions options;
  const auto equals = text.find('=');
  if (equals == text.npos || !set_link_option(options, text.substr(0, equals), text.substr(equals + 1))) return;
  (void)link_option_words(options, ',');
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  if (n < 1) return 0;
  const auto text = sonde::fuzz::text_of(bytes + 1, n - 1);
  switch (bytes[0] % 4) {
    case 0: address(text); break;
    case 1: distribution(text); break;
    case 2: link(text); break;
    default:
      if (const auto backend = parse_backend(static_cast<Role>(bytes[0] / 4 % 3), text); !backend)
        hold(backend.error(), "store.");
  }
  return 0;
}
