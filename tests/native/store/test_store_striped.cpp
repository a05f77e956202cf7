#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "service.hpp"
#include "store/order.hpp"
#include "store/striped.hpp"

using namespace sonde::store;
using namespace sonde::store::test;

namespace {

Distribution parsed(std::string_view text) {
  auto d = Distribution::parse(text);
  REQUIRE_MESSAGE(d, d.error().what);
  return *d;
}

const char* const distributions[] = {"round-robin,block=7,start=1", "single,server=2", "weighted,block=5,weights=1:0:3",
                                     "round-robin,block=100000,start=0"};

}  // namespace

TEST_CASE("every byte of a striped object has one place, and none is left out") {
  for (const char* text : distributions) {
    CAPTURE(text);
    const Distribution d = parsed(text);
    std::map<std::pair<unsigned, std::uint64_t>, std::uint64_t> byte_at;
    for (std::uint64_t k = 0; k < 500; ++k) {
      const auto pieces = pieces_of(d, 3, k, 1);
      REQUIRE(pieces.size() == 1);
      CHECK(byte_at.emplace(std::pair{pieces[0].server, pieces[0].offset}, k).second);
    }
    // A range is the bytes it is made of.
    for (const auto& [offset, bytes] :
         {std::pair<std::uint64_t, std::uint64_t>{0, 500}, {3, 97}, {13, 1}, {250, 250}}) {
      std::uint64_t at = 0;
      for (const Piece& p : pieces_of(d, 3, offset, bytes)) {
        CHECK(p.at == at);
        for (std::uint64_t k = 0; k < p.bytes; ++k) CHECK(byte_at.at({p.server, p.offset + k}) == offset + at + k);
        at += p.bytes;
      }
      CHECK(at == bytes);
    }
  }
}

TEST_CASE("the size of the whole and the sizes of its pieces tell the same") {
  for (const char* text : distributions) {
    CAPTURE(text);
    const Distribution d = parsed(text);
    for (std::uint64_t size = 0; size < 200; ++size) {
      const auto sizes = piece_sizes(d, 3, size);
      CHECK(whole_size(d, sizes) == size);
      std::uint64_t sum = 0;
      for (const auto s : sizes) sum += s;
      CHECK(sum == size);
    }
  }
}

TEST_CASE("a distribution's text is read back, and nonsense is refused with what is allowed") {
  for (const char* text : distributions) CHECK(parsed(parsed(text).text()).text() == parsed(text).text());
  for (const char* text : {"", "stripes", "single,block=3", "round-robin,block=0", "weighted,weights=1:x",
                           "round-robin,start=-1", "single,server="}) {
    CAPTURE(text);
    CHECK_FALSE(Distribution::parse(text));
  }
  Service service(2);
  auto client = service.client();
  CHECK_FALSE(Striped::make(client, "s", "o", parsed("single,server=2")));
  CHECK_FALSE(Striped::make(client, "s", "o", parsed("weighted,weights=1:2:3")));
  CHECK_FALSE(Striped::make(client, "s", "o", parsed("weighted,weights=0:0")));
}

TEST_CASE("striped objects hold what was written, with holes, over three servers") {
  Service service(3);
  auto client = service.client();
  for (const char* text : distributions) {
    CAPTURE(text);
    auto object = Striped::make(client, "stripes", std::string("o/") + text, parsed(text));
    REQUIRE(object);
    CHECK(object->status().error().code == "store.not_found");
    const auto data = noise(1000, 5);
    REQUIRE(object->write(50, data));
    CHECK((*object->status()).size == 1050);
    std::vector<std::byte> into(2000, std::byte{1});
    auto n = object->read(0, into);
    REQUIRE(n);
    CHECK(*n == 1050);
    CHECK(std::all_of(into.begin(), into.begin() + 50, [](std::byte b) { return b == std::byte{}; }));
    CHECK(std::equal(data.begin(), data.end(), into.begin() + 50));
    // A read that ends within a hole is whole, not short.
    REQUIRE(object->write(5000, Bytes(data).first(10)));
    into.assign(100, std::byte{1});
    CHECK(*object->read(3000, into) == 100);
    CHECK(std::all_of(into.begin(), into.end(), [](std::byte b) { return b == std::byte{}; }));
    REQUIRE(object->truncate(60));
    CHECK((*object->status()).size == 60);
    into.assign(100, std::byte{1});
    CHECK(*object->read(0, into) == 60);
    CHECK(*object->read(60, into) == 0);
    REQUIRE(object->truncate(300));
    CHECK(*object->read(0, into) == 100);
    CHECK(std::all_of(into.begin() + 60, into.end(), [](std::byte b) { return b == std::byte{}; }));
    REQUIRE(object->remove());
    CHECK(object->remove().error().code == "store.not_found");
  }
}

TEST_CASE("many striped writes and reads share one batch") {
  Service service(3);
  auto client = service.client();
  auto object = Striped::make(client, "stripes", "o", parsed("round-robin,block=64KiB"));
  REQUIRE(object);
  const auto data = noise(4'000'000, 6);
  auto batch = client.batch();
  for (std::size_t k = 0; k < 1000; ++k) object->write(batch, k * 4000, Bytes(data).subspan(k * 4000, 4000));
  REQUIRE(batch.run());
  CHECK(batch.failed() == 0);
  std::vector<std::byte> into(data.size());
  CHECK(*object->read(0, into) == data.size());
  CHECK(into == data);
}

TEST_CASE("an item and an object of one name are two things, and so are items of names that join alike") {
  Service service(2);
  auto client = service.client();
  const auto theirs = noise(300, 1), mine = noise(200, 2), other = noise(100, 3);
  Batch batch = client.batch();
  batch.write("c", "x", 0, theirs);
  REQUIRE(batch.run());
  auto item = Item::create(client, "c", "x", {});
  REQUIRE(item);
  CHECK((*item->data().status()).size == 0);
  REQUIRE(item->data().write(0, mine));
  auto near = Item::create(client, "c1", "x", {}), far = Item::create(client, "c", "1x", {});
  REQUIRE(near);
  REQUIRE(far);
  REQUIRE(near->data().write(0, other));
  CHECK((*far->data().status()).size == 0);
  std::vector<std::byte> into(1000);
  batch.clear();
  batch.read("c", "x", 0, into);
  REQUIRE(batch.run());
  CHECK(std::vector<std::byte>(batch[0].data.begin(), batch[0].data.end()) == theirs);
  batch.clear();
  batch.remove_object("c", "x");
  REQUIRE(batch.run());
  CHECK(*item->data().read(0, into) == mine.size());
  CHECK(std::equal(mine.begin(), mine.end(), into.begin()));
  REQUIRE(Item::remove(client, "c", "x"));
  // What goes wrong is told by the item's name.
  const auto gone = item->data().status();
  REQUIRE_FALSE(gone);
  CHECK(gone.error().what.find("'x' in 'c'") != std::string::npos);
}

TEST_CASE("items: made once, opened by anyone, with metadata, listed and removed") {
  Service service(2);
  auto client = service.client();
  auto item =
      Item::create(client, "runs", "42", parsed("round-robin,block=1KiB"), {{"code", "a=b\\c\nd"}, {"", "empty name"}});
  REQUIRE(item);
  CHECK(Item::create(client, "runs", "42", parsed("single,server=0")).error().code == "store.exists");
  const auto data = noise(10'000, 7);
  REQUIRE(item->data().write(0, data));
  auto other_client = service.client();
  auto same = Item::open(other_client, "runs", "42");
  REQUIRE(same);
  CHECK(same->metadata() == item->metadata());
  CHECK(same->created_ns() == item->created_ns());
  std::vector<std::byte> into(data.size());
  CHECK(*same->data().read(0, into) == data.size());
  CHECK(into == data);
  REQUIRE(same->describe({{"state", "done"}}));
  CHECK((*Item::open(client, "runs", "42")).metadata() == Metadata{{"state", "done"}});
  REQUIRE(Item::create(client, "runs", "7", parsed("single,server=1")));
  REQUIRE(Item::create(client, "runs2", "1", parsed("single,server=1")));
  CHECK(*Item::list(client, "runs") == std::vector<std::string>{"42", "7"});
  CHECK(*Item::list(client, "runs", "4") == std::vector<std::string>{"42"});
  REQUIRE(Item::remove(client, "runs", "42"));
  CHECK(Item::open(client, "runs", "42").error().code == "store.not_found");
  CHECK(Item::remove(client, "runs", "42").error().code == "store.not_found");
}

namespace {

/// Keys on one server, bytes on another, of which one has so little room that a filler takes all of it.
struct Mixed {
  explicit Mixed(Role tight) : kv(1, {spec(Role::kv, tight)}), data(1, {spec(Role::data, tight)}), role(tight) {
    config = data.config;
    config.servers = {kv.config.servers[0], data.config.servers[0]};
  }
  static BackendSpec spec(Role role, Role tight) {
    return {role, "memory", role == tight ? Settings{{"limit", "200B"}} : Settings{}};
  }
  Client client() {
    auto c = Client::open(config);
    REQUIRE(c);
    return std::move(*c);
  }
  void fill(Client& client) {
    Batch batch = client.batch();
    batch.add({role == Role::kv ? Code::kv_put : Code::object_write, 0, "s", "filler", 0, 0, bytes_of(filler), {}});
    REQUIRE(batch.run());
    REQUIRE(batch.failed() == 0);
  }
  void empty(Client& client) {
    Batch batch = client.batch();
    batch.add({role == Role::kv ? Code::kv_remove : Code::object_remove, 0, "s", "filler", 0, 0, {}, {}});
    REQUIRE(batch.run());
    REQUIRE(batch.failed() == 0);
  }

  Service kv, data;
  Role role;
  Config config;
  std::string filler = std::string(190, 'f');
};

}  // namespace

TEST_CASE("items: what cannot be created whole is as if it had not been tried, and can be created when there is room") {
  for (const Role tight : {Role::kv, Role::data}) {
    CAPTURE(name_of(tight));
    Mixed mixed(tight);
    auto client = mixed.client();
    mixed.fill(client);
    CHECK(Item::create(client, "runs", "42", {}).error().code == "store.no_space");
    CHECK(Item::open(client, "runs", "42").error().code == "store.not_found");
    CHECK(Item::list(client, "runs")->empty());
    mixed.empty(client);
    const auto item = Item::create(client, "runs", "42", {});
    REQUIRE_MESSAGE(item, item.error().what);
    CHECK((*Item::open(client, "runs", "42")->data().status()).size == 0);
    CHECK(Item::create(client, "runs", "42", {}).error().code == "store.exists");
  }
}

TEST_CASE(
    "items: a description that is refused changes nothing, and one of an item that was removed does not bring it "
    "back") {
  Service service(2);
  auto client = service.client();
  auto item = Item::create(client, "runs", "42", {}, {{"case", "cavity"}});
  REQUIRE_MESSAGE(item, item.error().what);
  CHECK((*item).describe({{"large", std::string(limit::value_bytes, 'm')}}).error().code == "store.too_large");
  CHECK((*item).metadata() == Metadata{{"case", "cavity"}});
  REQUIRE((*item).describe({{"case", "duct"}}));
  CHECK(Item::open(client, "runs", "42")->metadata() == Metadata{{"case", "duct"}});
  REQUIRE(Item::remove(client, "runs", "42"));
  CHECK((*item).describe({{"case", "pipe"}}).error().code == "store.not_found");
  CHECK(Item::open(client, "runs", "42").error().code == "store.not_found");
  CHECK((*item).metadata() == Metadata{{"case", "duct"}});
}

TEST_CASE("items: names that a server would refuse are refused before anything is written") {
  Service service(1);
  auto client = service.client();
  const std::string_view nul("a\0b", 3);
  const std::string long_name(440, 'n');
  CHECK(Item::create(client, "runs", nul, {}).error().code == "store.bad_name");
  CHECK(Item::create(client, nul, "42", {}).error().code == "store.bad_name");
  CHECK(Item::create(client, "runs", nul, {}).error().what.find("byte 1 of the name of the item is NUL") !=
        std::string::npos);
  CHECK(Item::create(client, "runs", long_name, {}).error().code == "store.too_large");
  CHECK(Item::create(client, "runs", "42", {}, {{"large", std::string(limit::value_bytes, 'm')}}).error().code ==
        "store.too_large");
  unsigned seen = 0;
  REQUIRE(client.scan("sonde.items", "", true, [&](auto, auto) { return ++seen; }));
  REQUIRE(client.list("sonde.items", "", [&](auto) { return ++seen; }));
  CHECK(seen == 0);
}

TEST_CASE("another order of servers is told from another name of the same") {
  CHECK(other_order("a:1,b:2", "b:2,a:1"));
  CHECK(other_order("a:1,b:2,c:3", "c:3,x:9,a:1"));
  CHECK_FALSE(other_order("a:1,b:2", "a:1,b:2"));
  CHECK_FALSE(other_order("a:1,b:2", "10.0.0.1:1,10.0.0.2:2"));
  CHECK_FALSE(other_order("kv@a:1,data@b:2", "data@b:2,kv@a:1"));  // each alone in its role
  CHECK(other_order("data+kv@a:1,data@b:2", "data@b:2,data+kv@a:1"));
  CHECK(other_order("kv@a:1,data@b:2,c:3", "data@c:3,kv@a:1,b:2"));
  CHECK_FALSE(other_order("", "a:1"));
}

TEST_CASE("an item that is looked for with the servers in another order is refused, and both orders are named") {
  for (const unsigned n : {2u, 3u}) {
    CAPTURE(n);
    Service service(n);
    auto client = service.client();
    const auto bytes = noise(4000, 7);
    for (int k = 0; k < 8; ++k) {  // wherever their names put them
      auto item = Item::create(client, "runs", std::to_string(k), parsed("round-robin,block=100"));
      REQUIRE_MESSAGE(item, item.error().what);
      REQUIRE((*item).data().write(0, bytes));
      REQUIRE((*item).describe({{"case", "cavity"}}));
    }
    const auto then = service.config.servers;
    std::rotate(service.config.servers.begin(), service.config.servers.begin() + 1, service.config.servers.end());
    auto other = service.client();
    for (int k = 0; k < 8; ++k) {
      const auto opened = Item::open(other, "runs", std::to_string(k));
      REQUIRE_FALSE(opened);
      CHECK(opened.error().code == "store.other_servers");
      CHECK(opened.error().what.find(then[0] + ", " + then[1]) != std::string::npos);
      CHECK(opened.error().what.find("the named servers are " + then[1]) != std::string::npos);
      CHECK(Item::remove(other, "runs", std::to_string(k)).error().code == "store.other_servers");
    }
    CHECK(Item::open(other, "runs", "none").error().code == "store.not_found");
  }
}

TEST_CASE("an item is refused to who names fewer servers than it lies on") {
  Service service(3);
  auto client = service.client();
  for (int k = 0; k < 8; ++k) REQUIRE(Item::create(client, "runs", std::to_string(k), parsed("round-robin,block=100")));
  service.config.servers.pop_back();
  auto fewer = service.client();
  unsigned refused = 0, gone = 0;
  for (int k = 0; k < 8; ++k) {
    const auto opened = Item::open(fewer, "runs", std::to_string(k));
    REQUIRE_FALSE(opened);
    refused += opened.error().code == "store.other_servers";
    gone += opened.error().code == "store.not_found";  // its description is on the server that is not named
  }
  CHECK(refused > 0);
  CHECK(refused + gone == 8);
}
