#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/trace.hpp"

using namespace sonde::store;

TEST_CASE("a place calls what it stands for, once, with what it was handed") {
  int calls = 0;
  std::string text = "kept";
  trace::call(sonde_store_serve_write, 4096, 1, [&, own = std::move(text)] { calls += own == "kept"; });
  CHECK(calls == 1);
  const auto unchangeable = [&calls] { ++calls; };
  trace::call(sonde_store_later, trace::unknown, 1, unchangeable);
  CHECK(calls == 2);
}

TEST_CASE("what is thrown in a place comes out of it") {
  CHECK_THROWS_AS(trace::call(sonde_store_execute_read, 0, 0, [] { throw 7; }), int);
}

TEST_CASE("every place is a function of its own") {
  // Taken together, as a linker or compiler may do with equal functions, a trace could not tell them apart.
  std::vector<trace::Point> points;
#define SONDE_STORE_TRACE_POINT(name) points.push_back(&sonde_store_##name);
  SONDE_STORE_TRACE_POINTS(SONDE_STORE_TRACE_POINT)
#undef SONDE_STORE_TRACE_POINT
  CHECK(points.size() == 24);
  std::sort(points.begin(), points.end());
  const bool all_differ = std::adjacent_find(points.begin(), points.end()) == points.end();
  CHECK(all_differ);
}

TEST_CASE("a request's number is its connection's and its own") {
  const std::uint64_t a = trace::connection("0123"), b = trace::connection("0124");
  CHECK(a != b);
  CHECK(a == trace::connection("0123"));
  CHECK(trace::request(a, 1) / (std::uint64_t{1} << 32) == a);
  CHECK(trace::request(a, 1) % (std::uint64_t{1} << 32) == 1);
  CHECK(trace::request(a, 1) != trace::request(a, 2));
  CHECK(trace::request(a, 1) != trace::request(b, 1));
  CHECK(trace::request(a, (std::uint64_t{5} << 32) + 9) == trace::request(a, 9));
}

TEST_CASE("what is asked for: bytes, and reads, writes or others") {
  const std::vector<std::byte> data(100);
  const auto asked = [](std::initializer_list<Op> ops) {
    trace::Asked sum;
    for (const Op& op : ops) sum.add(op);
    return sum;
  };
  const auto kind = [](const trace::Asked& sum) {
    const trace::Point point = sum.of(sonde_store_run_read, sonde_store_run_write, sonde_store_run_other);
    return std::string(point == sonde_store_run_read ? "read" : point == sonde_store_run_write ? "write" : "other");
  };
  const Op write{Code::object_write, 0, "s", "o", 0, 0, data, {}},
      read{Code::object_read, 0, "s", "o", 0, 5000, {}, {}};
  const Op put{Code::kv_put, 0, "s", "k", 0, 0, data, {}}, get{Code::kv_get, 0, "s", "k", 0, 0, {}, {}};
  const Op create{Code::object_create, 0, "s", "o", 0, 0, {}, {}};
  CHECK(kind(asked({write, put})) == "write");
  CHECK(asked({write, put}).bytes == 200);
  CHECK(kind(asked({read, read})) == "read");
  CHECK(asked({read, read}).bytes == 10000);
  CHECK(kind(asked({create})) == "other");
  CHECK(kind(asked({create, write})) == "other");
  CHECK(kind(asked({read, write})) == "other");
  CHECK(kind(asked({})) == "other");
  // How long a value is, its server knows.
  CHECK(kind(asked({get})) == "read");
  CHECK(asked({get}).bytes == trace::unknown);
  CHECK(asked({get, read}).bytes == trace::unknown);
  CHECK(asked({read, get}).bytes == trace::unknown);
}
