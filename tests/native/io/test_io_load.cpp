#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "io/load/grid.hpp"
#include "io/load/layout.hpp"
#include "io/load/options.hpp"
#include "io/load/pattern.hpp"

using namespace sonde::ioload;

namespace {

Options good(const std::vector<std::string>& args) {
  const auto parsed = parse_options(args);
  REQUIRE_MESSAGE(parsed, (parsed ? "" : parsed.error().what));
  return *parsed;
}

sonde::Error wrong(const std::vector<std::string>& args) {
  const auto parsed = parse_options(args);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().code == "ioload.bad_option");
  CHECK_FALSE(parsed.error().hint.empty());
  return parsed.error();
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("io load: without options it does what ior does") {
  const Options o = good({});
  CHECK(o.api == Api::posix);
  CHECK(o.file == "testFile");
  CHECK(o.transfer == 262144);
  CHECK(o.block == 1048576);
  CHECK(o.segments == 1);
  CHECK(o.repetitions == 1);
  CHECK(o.write);
  CHECK(o.read);
  CHECK_FALSE(o.check_write);
  CHECK_FALSE(o.check_read);
  CHECK(o.shift_nodes == 1);
}

TEST_CASE("io load: one of -w -r -W -R switches the others off") {
  for (const auto& [flag, w, r, cw, cr] : {std::tuple{"-w", true, false, false, false},
                                           {"-r", false, true, false, false},
                                           {"-W", false, false, true, false},
                                           {"-R", false, false, false, true}}) {
    const Options o = good({flag});
    CHECK(o.write == w);
    CHECK(o.read == r);
    CHECK(o.check_write == cw);
    CHECK(o.check_read == cr);
  }
}

TEST_CASE("io load: values may be written as ior takes them") {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"-b", "4K"}, {"-b=4k"}, {"-b4k"}, {"--block", "4KiB"}, {"--block=4096"}})
    CHECK(good([&] {
            auto all = args;
            all.insert(all.end(), {"-t", "1k"});
            return all;
          }())
              .block == 4096);
  CHECK(good({"-b", "2g"}).block == 2147483648u);
  CHECK(good({"-b", "1T"}).block == 1099511627776u);
  CHECK(good({"-b", "3m", "-t", "512k"}).transfer == 524288);
  const Options joined = good({"-wrke", "-Fzs3"});
  CHECK((joined.write && joined.read && joined.keep && joined.fsync && joined.per_process && joined.random));
  CHECK(joined.segments == 3);
  CHECK(good({"-D", "2min"}).stonewall_s == 120);
  CHECK(good({"-D", "30"}).stonewall_s == 30);
  CHECK(good({"-a", "mpiio", "-c"}).api == Api::mpiio);
  const Options volume = good({"-a", "gfapi", "--gfapi.volume", "v", "--gfapi.server=h"});
  CHECK((volume.api == Api::gfapi && volume.gfapi_volume == "v" && volume.gfapi_server == "h"));
  CHECK(good({"-a", "GFAPI", "--gfapi.volume", "v"}).gfapi_server == "localhost");
}

TEST_CASE("io load: what is wrong says which option, which value and what is allowed") {
  auto error = wrong({"-t", "10q"});
  CHECK(has(error.what, "-t (--transfer) is '10q'"));
  CHECK(has(error.hint, "-t 1m"));
  CHECK(has(wrong({"-t", "12"}).what, "multiples of 8"));
  CHECK(wrong({"-t", "12"}).hint == "use -t 16");
  CHECK(has(wrong({"-t", "2g", "-b", "4g"}).what, "up to 2147483647 B"));
  CHECK(has(wrong({"-t", "1000", "-b", "4096"}).what, "-b is 4096 B, which is not a multiple of -t, 1000 B"));
  CHECK(has(wrong({"-t", "1000", "-b", "4096"}).hint, "-b 5000"));
  CHECK(has(wrong({"-s", "0"}).what, "allowed: whole numbers from 1"));
  CHECK(has(wrong({"-i", "-1"}).what, "'-1'"));
  CHECK(has(wrong({"-a", "S3"}).what, "allowed: POSIX, MPIIO, HDF5"));
  CHECK(has(wrong({"-D", "soon"}).what, "'soon'"));
  CHECK(has(wrong({"-o", ""}).what, "empty"));
  CHECK(has(wrong({"-c"}).hint, "-a MPIIO"));
  CHECK(has(wrong({"-V", "-a", "HDF5"}).what, "-V"));
  CHECK(has(wrong({"-c", "-a", "GFAPI", "--gfapi.volume", "v"}).what, "-a is GFAPI"));
  CHECK(has(wrong({"-a", "GFAPI"}).what, "needs the name of a volume"));
  CHECK(has(wrong({"--gfapi.server", "h"}).what, "--gfapi.server has a meaning only with -a GFAPI"));
  CHECK(has(wrong({"--bt-io", "--gfapi.volume", "v"}).what, "IOR's workload"));
  CHECK(has(wrong({"-B"}).what, "IOR's -B does not exist"));
  CHECK(has(wrong({"-5"}).what, "no option -5"));
  CHECK(has(wrong({"-w5"}).what, "no option -5 (in -w5)"));
  CHECK(has(wrong({"testFile"}).hint, "-o testFile"));
  CHECK(has(wrong({""}).what, "'' is not an option"));
  CHECK(has(wrong({"-"}).what, "'-' is not an option"));
  CHECK(has(wrong({"--"}).what, "no option --"));
  CHECK(has(wrong({"-b"}).what, "-b (--block) needs a value, SIZE"));
  CHECK(has(wrong({"--block"}).what, "--block needs a value, SIZE"));
  CHECK(has(wrong({"--keep=1"}).what, "takes no value"));
  CHECK(has(wrong({"--transfr", "1k"}).hint, "--transfer"));
  CHECK(has(wrong({"--blok", "1k"}).hint, "--block"));
  CHECK(has(wrong({"--seg", "2"}).hint, "--segments"));
  CHECK(has(wrong({"--class", "S"}).hint, "--bt-io"));
  CHECK(has(wrong({"--bt-io", "-F"}).what, "-F belongs to IOR's workload"));
  CHECK(has(wrong({"--bt-io", "--class", "D"}).what, "allowed: S, W, A, B, C"));
  CHECK(has(wrong({"--bt-io", "--mode", "fast"}).what, "allowed: full, simple, fortran, epio"));
  CHECK(has(wrong({"--bt-io", "--size", "1g", "--niter", "5"}).what, "--size and --niter"));
  CHECK(has(wrong({"-s", "1099511627776", "-b", "1t"}).what, "2^61"));
  CHECK(has(wrong({"-z", "-t", "8", "-b", "64g"}).what, "-z"));
}

TEST_CASE("io load: the help fits 80 columns and names every option once") {
  const std::string text = help_text();
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string line = text.substr(begin, end - begin);
    std::erase_if(line, [](char ch) { return (static_cast<unsigned char>(ch) & 0xc0) == 0x80; });
    CHECK_MESSAGE(line.size() <= 80, line);
    CHECK((line.empty() || line.back() != ' '));
  }
  CHECK(begin == text.size());
  for (const char letter : std::string("abcdegikmorstwzCDEFGHKQRUVWh"))
    CHECK_MESSAGE(has(text, std::string("\n  -") + letter + ", --"), letter);
}

TEST_CASE("io load: hints come from variables and from a file, as ior takes them") {
  std::map<std::string, std::string> hints;
  REQUIRE(add_hints({"IOR_HINT__MPI__cb_nodes=4", "PATH=/bin", "IOR_HINT__MPI__=x", "IOR_HINT__MPI__a_b=c=d"}, "", "",
                    hints));
  CHECK(hints == std::map<std::string, std::string>{{"cb_nodes", "4"}, {"a_b", "c=d"}});
  const char* file =
      "# a comment\n\nIOR_HINT__MPI__cb_nodes = 8\nsetenv IOR_HINT__MPI__striping_unit 1048576\r\nexport "
      "IOR_HINT__MPI__x=y\nIOR_HINT__GPFS__z=1";
  REQUIRE(add_hints({}, file, "hints", hints));
  CHECK(hints == std::map<std::string, std::string>{
                     {"cb_nodes", "8"}, {"a_b", "c=d"}, {"striping_unit", "1048576"}, {"x", "y"}});
  const auto refused = add_hints({}, "IOR_HINT__MPI__x=y\ncb_nodes=4\n", "hints", hints);
  REQUIRE_FALSE(refused);
  CHECK(has(refused.error().what, "line 2 of hints is not a hint: 'cb_nodes=4'"));
  CHECK_FALSE(add_hints({}, "IOR_HINT__MPI__x\n", "hints", hints));
}

TEST_CASE("io load: a word depends on seed, file and place, and nothing else") {
  const Pattern pattern(7, 0);
  std::vector<std::uint64_t> all(64);
  pattern.fill(all, 0);
  for (const std::size_t begin : {1u, 8u, 63u}) {
    std::vector<std::uint64_t> part(64 - begin);
    pattern.fill(part, 8 * begin);
    CHECK(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(begin)));
    CHECK(pattern.word(8 * begin) == all[begin]);
  }
  std::set<std::uint64_t> seen(all.begin(), all.end());
  for (const auto& [seed, file] : {std::pair{7u, 1u}, {8u, 0u}, {8u, 1u}, {0u, 0u}}) {
    Pattern(seed, file).fill(all, 0);
    seen.insert(all.begin(), all.end());
  }
  CHECK(seen.size() == 5 * 64);
}

TEST_CASE("io load: wrong words are counted, and the first is told") {
  const Pattern pattern(1, 2);
  std::vector<std::uint64_t> words(16);
  pattern.fill(words, 800);
  std::optional<Mismatch> first;
  CHECK(pattern.compare(words, 800, first) == 0);
  CHECK_FALSE(first);
  const std::uint64_t right = words[3];
  words[3] ^= 1;
  words[9] = 0;
  CHECK(pattern.compare(words, 800, first) == 2);
  REQUIRE(first);
  CHECK(first->offset == 800 + 3 * 8);
  CHECK(first->expected == right);
  CHECK(first->found == (right ^ 1));
  CHECK(pattern.compare(words, 808, first) == 16);  // moved by one word, nothing is where it belongs
  CHECK(first->offset == 800 + 3 * 8);
}

TEST_CASE("io load: the pieces of all tasks cover the shared file once") {
  const Options o = good({"-t", "16", "-b", "48", "-s", "3"});
  const int tasks = 5;
  const Layout layout(o, tasks);
  CHECK(layout.pieces() == 9);
  CHECK(layout.file_bytes() == 3 * 5 * 48);
  std::set<std::uint64_t> offsets;
  for (int owner = 0; owner < tasks; ++owner)
    for (std::uint64_t k = 0; k < layout.pieces(); ++k)
      CHECK(offsets.insert(layout.offset(layout.piece(k), owner)).second);
  CHECK(offsets.size() == 45);
  CHECK(*offsets.rbegin() == layout.file_bytes() - 16);
  // segment 1, task 2, second transfer
  CHECK(layout.offset(layout.piece(4), 2) == 1 * 5 * 48 + 2 * 48 + 16);
}

TEST_CASE("io load: with a file per process a task's blocks follow each other") {
  const Options o = good({"-t", "16", "-b", "48", "-s", "3", "-F", "-o", "d/out"});
  const Layout layout(o, 5);
  CHECK(layout.file_bytes() == 3 * 48);
  for (std::uint64_t k = 0; k < layout.pieces(); ++k) CHECK(layout.offset(layout.piece(k), 4) == 16 * k);
  CHECK(file_name(o, 0, 4) == "d/out.00000004");
  CHECK(file_name(o, 0, 123456789) == "d/out.123456789");
  CHECK(file_name(good({"-m", "-o", "out"}), 2, 4) == "out.2");
  CHECK(file_name(good({"-m", "-F", "-o", "out"}), 2, 4) == "out.2.00000004");
  CHECK(folder_of("out") == ".");
  CHECK(folder_of("/out") == "/");
  CHECK(folder_of("a/b/out") == "a/b");
}

TEST_CASE("io load: the random order is a permutation, the same for the same owner and seed") {
  const auto drawn = [](std::size_t pieces, std::uint64_t seed, int owner) {
    std::vector<std::uint32_t> order(pieces);
    draw_order(order, seed, owner);
    return order;
  };
  const auto order = drawn(1000, 3, 1);
  CHECK(std::set<std::uint32_t>(order.begin(), order.end()).size() == 1000);
  CHECK(*std::max_element(order.begin(), order.end()) == 999);
  CHECK(order == drawn(1000, 3, 1));
  CHECK(order != drawn(1000, 3, 2));
  CHECK(order != drawn(1000, 4, 1));
  CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
  CHECK(drawn(1, 0, 0) == std::vector<std::uint32_t>{0});
  CHECK(drawn(0, 0, 0).empty());
}

TEST_CASE("io load: -C shifts by whole nodes where they are filled in turn, else by ranks") {
  CHECK(task_shift(1, 4, true, 16) == 4);
  CHECK(task_shift(2, 4, true, 16) == 8);
  CHECK(task_shift(5, 4, true, 16) == 4);
  CHECK(task_shift(1, 4, false, 16) == 1);
  CHECK(task_shift(1, 4, true, 4) == 0);  // one node
  CHECK(task_shift(0, 4, true, 16) == 0);
  CHECK(task_shift(1, 1, true, 1) == 0);
}

TEST_CASE("io load: BT's cells cover the grid once, one of each rank in every slab") {
  for (const auto& [side, points] : {std::pair{1, 12}, {2, 12}, {3, 24}, {3, 64}, {4, 102}, {5, 12}, {12, 12}}) {
    CAPTURE(side);
    CAPTURE(points);
    const int ranks = side * side;
    std::vector<int> owners(
        static_cast<std::size_t>(points) * static_cast<std::size_t>(points) * static_cast<std::size_t>(points), 0);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto cells = cells_of(rank, ranks, points);
      REQUIRE(cells.size() == static_cast<std::size_t>(side));
      for (std::size_t axis = 0; axis < 3; ++axis) {
        std::set<int> slabs;
        for (const Cell& cell : cells) slabs.insert(cell.low[axis]);
        CHECK(slabs.size() == cells.size());
      }
      CHECK(
          std::is_sorted(cells.begin(), cells.end(), [](const Cell& a, const Cell& b) { return a.low[2] < b.low[2]; }));
      for (const Cell& cell : cells)
        for (int z = 0; z < cell.size[2]; ++z)
          for (int y = 0; y < cell.size[1]; ++y)
            for (int x = 0; x < cell.size[0]; ++x)
              ++owners[static_cast<std::size_t>(((cell.low[2] + z) * points + cell.low[1] + y) * points + cell.low[0] +
                                                x)];
    }
    CHECK(std::all_of(owners.begin(), owners.end(), [](int times) { return times == 1; }));
  }
}

TEST_CASE("io load: only square numbers have a side, and dumps include one after the last step") {
  CHECK(side_of(1) == 1);
  CHECK(side_of(2) == 0);
  CHECK(side_of(9) == 3);
  CHECK(side_of(10) == 0);
  CHECK(bt_points('W') == 24);
  CHECK(bt_points('D') == 0);
  CHECK(bt_dumps(60, 5) == 12);
  CHECK(bt_dumps(61, 5) == 13);
  CHECK(bt_dumps(3, 5) == 1);
}
