// The examples of docs/reference/store-wire.md, held against what this build sends and understands.
#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "service.hpp"
#include "store/transport/tcp.hpp"

using namespace sonde::store;
using namespace sonde::store::test;

namespace {

std::vector<std::byte> example(const std::string& name) {
  std::ifstream page(SONDE_TEST_DATA "/../../docs/reference/store-wire.md");
  REQUIRE(page);
  std::vector<std::byte> bytes;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line == "```hex " + name) {
      inside = true;
    } else if (inside && line == "```") {
      break;
    } else if (inside) {
      std::istringstream words(line);
      for (std::string word; words >> word;) bytes.push_back(static_cast<std::byte>(std::stoul(word, nullptr, 16)));
    }
  }
  REQUIRE_FALSE(bytes.empty());
  return bytes;
}

}  // namespace

TEST_CASE("the page's put is what is sent, and its answer what comes back") {
  const auto put = example("put"), ok = example("ok");
  const auto h = wire::decode(put.data());
  REQUIRE(h);
  std::vector<wire::Record> records;
  REQUIRE(wire::read_table(*h, Bytes(put).subspan(wire::header_bytes, (*h).table_bytes), records));
  REQUIRE(records.size() == 1);
  CHECK(records[0].code == Code::kv_put);
  CHECK(records[0].space == "s");
  CHECK(records[0].key == "k");
  CHECK((*h).body_crc == wire::crc32c(Bytes(put).subspan(wire::header_bytes)));

  Service service;
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  service.servers[0]->serve(ends[1]);
  const auto say = [&](Bytes bytes) {
    REQUIRE(::send(ends[0], bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  };
  const auto hear = [&](std::size_t n) {
    std::vector<std::byte> bytes(n);
    REQUIRE(::recv(ends[0], bytes.data(), n, MSG_WAITALL) == static_cast<ssize_t>(n));
    return bytes;
  };
  say(plain_frame(wire::Kind::hello, bytes_of("client=page\nnonce=0\n")).head);
  say(plain_frame(wire::Kind::proof, {}).head);
  for (int k = 0; k < 2; ++k) hear((*wire::decode(hear(wire::header_bytes).data())).data_bytes);
  say(put);
  auto answer = hear(ok.size());
  // How long it took is its own.
  auto header = *wire::decode(answer.data());
  header.wait_us = header.backend_us = 0;
  wire::encode(header, answer.data());
  CHECK(answer == ok);
  ::close(ends[0]);
  auto client = service.client();
  auto b = client.batch();
  b.get("s", "k");
  REQUIRE(b.run());
  CHECK(text(b[0].data) == "v");
}
