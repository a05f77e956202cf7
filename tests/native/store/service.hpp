#pragma once
// A server in this process and a client to it, or the same backends embedded: what the tests of clients run on.

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "store/server/server.hpp"

namespace sonde::store::test {

inline std::vector<BackendSpec> memory_backends() { return {{Role::data, "memory", {}}, {Role::kv, "memory", {}}}; }

struct Service {
  std::vector<std::unique_ptr<Server>> servers;
  Config config;

  explicit Service(unsigned n = 1, const std::vector<BackendSpec>& backends = memory_backends(),
                   ServerConfig base = {}) {
    for (unsigned k = 0; k < n; ++k) {
      base.listen = "127.0.0.1:0";
      if (base.auth == ServerConfig{}.auth) base.auth = config.auth = "none";  // what is tested is not who gets in
      base.backends = backends;
      auto server = Server::start(base);
      REQUIRE_MESSAGE(server, server.error().what);
      config.servers.push_back((*server)->address());
      servers.push_back(std::move(*server));
    }
  }
  Client client() {
    auto c = Client::open(config);
    REQUIRE_MESSAGE(c, c.error().what);
    return std::move(*c);
  }
};

inline std::vector<std::byte> noise(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(n);
  for (auto& b : out) b = static_cast<std::byte>(random());
  return out;
}

inline std::string text(Bytes b) { return std::string(text_of(b)); }

}  // namespace sonde::store::test
