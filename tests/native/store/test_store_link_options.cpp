#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "store/link_options.hpp"

using namespace sonde::store;

namespace {

LinkOptions read_back(const std::string& words, char end) {
  LinkOptions options;
  for (std::size_t at = 0; at < words.size();) {
    const std::size_t stop = words.find(end, at), equal = words.find('=', at);
    REQUIRE(stop != std::string::npos);
    CHECK(set_link_option(options, words.substr(at, equal - at), words.substr(equal + 1, stop - equal - 1)));
    at = stop + 1;
  }
  return options;
}

}  // namespace

TEST_CASE("link options: the usual ones need no words") { CHECK(link_option_words({}, ';').empty()); }

TEST_CASE("link options: words are read back") {
  LinkOptions options;
  options.provider = "tcp;ofi_rxm";
  options.nodelay = options.gather = false;
  options.cork = options.await = true;
  options.rma_from = 0;
  options.spin_s = 20e-6;
  const LinkOptions again = read_back(link_option_words(options, ','), ',');
  CHECK(again.provider == "tcp;ofi_rxm");
  CHECK_FALSE(again.nodelay);
  CHECK_FALSE(again.gather);
  CHECK(again.cork);
  CHECK(again.await);
  CHECK(again.rma_from == 0);
  CHECK(again.spin_s == doctest::Approx(20e-6));
}

TEST_CASE("link options: no spin at all is something else than the usual") {
  LinkOptions options;
  options.spin_s = 0;
  CHECK(read_back(link_option_words(options, ','), ',').spin_s == 0);
}

TEST_CASE("link options: what is none changes nothing") {
  LinkOptions options;
  options.rma_from = 7;
  for (const auto& [name, value] : {std::pair{"nodelay", "maybe"},
                                    {"nodelay", ""},
                                    {"provider", ""},
                                    {"rma", "many"},
                                    {"rma", "-1"},
                                    {"rma", "1x"},
                                    {"rma", ""},
                                    {"spin", "long"},
                                    {"spin", ""},
                                    {"colour", "red"},
                                    {"", ""}})
    CHECK_FALSE(set_link_option(options, name, value));
  CHECK(options.nodelay);
  CHECK(options.provider.empty());
  CHECK(options.rma_from == 7);
  CHECK(options.spin_s == -1);
}
