// RAPL by powercap, over a folder that looks like sysfs.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "power/hardware/kinds.hpp"
#include "power_tree.hpp"

using namespace sonde;
using namespace sonde::power;

namespace {

constexpr std::int64_t second = 1'000'000'000;
const std::string zone_0 = "class/powercap/intel-rapl:0/", zone_1 = "class/powercap/intel-rapl:1/";

std::unique_ptr<Hardware> opened(const PowerTree& tree, const std::string& domains = "") {
  HardwareSpec spec;
  spec.kind = Source::powercap;
  spec.root = tree.root;
  spec.domains = domains;
  auto out = open_hardware(spec);
  REQUIRE_MESSAGE(out, (out ? "" : out.error().what));
  return std::move(*out);
}

Error refused(const PowerTree& tree, const std::string& domains = "") {
  HardwareSpec spec;
  spec.kind = Source::powercap;
  spec.root = tree.root;
  spec.domains = domains;
  auto out = open_hardware(spec);
  REQUIRE(!out);
  return out.error();
}

void moment() { sleep_until(now_s() + 0.01); }

/// Counters of two zones that count on in a thread, by these steps. Like the kernel's files they are never half
/// written.
class Counting {
 public:
  Counting(const PowerTree& tree, std::uint64_t first_step, std::uint64_t second_step)
      : thread_([this, &tree, first_step, second_step] {
          for (std::uint64_t turn = 1; !ended_; ++turn) {
            put(tree, zone_0, 1'000'000 + turn * first_step);
            put(tree, zone_1, 7'000'000 + turn * second_step);
            sleep_until(now_s() + 0.01);
          }
        }) {}
  ~Counting() {
    ended_ = true;
    thread_.join();
  }

 private:
  static void put(const PowerTree& tree, const std::string& zone, std::uint64_t count) {
    tree.put("next", std::to_string(count));
    std::filesystem::rename(tree.root + "/next", tree.root + "/" + zone + "energy_uj");
  }
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

/// Until the second domain is seen to be the first one's meter; on a busy machine the counters move late.
void look_on(Hardware& hardware) {
  for (int k = 0; k < 500 && hardware.repeats(1).empty(); ++k) {
    moment();
    REQUIRE(hardware.read());
  }
}

void two_dies(PowerTree& tree, bool limits = true) {
  tree.zone("intel-rapl:0", "package-0-die-0", limits);
  tree.zone("intel-rapl:1", "package-0-die-1", limits);
}

}  // namespace

TEST_CASE("powercap: a counter that wraps goes on") {
  kinds::EnergyCounter counter(1e-6, 999'999'999, 2000);
  counter.add(999'000'000, 1 * second);
  CHECK(std::isnan(counter.power_w()));
  counter.add(999'500'000, 2 * second);
  CHECK(counter.power_w() == doctest::Approx(0.5));
  counter.add(99'500'000, 3 * second);
  CHECK(counter.power_w() == doctest::Approx(100));
  CHECK(counter.energy_j() == doctest::Approx(100.5));
}

TEST_CASE("powercap: a counter that was set back begins anew, and what nobody can have drawn is not counted") {
  kinds::EnergyCounter counter(1e-6, 262'143'328'850, 2000);
  counter.add(100'000'000'000, 1 * second);
  counter.add(100'100'000'000, 2 * second);
  CHECK(counter.energy_j() == doctest::Approx(100));
  counter.add(50'000'000, 3 * second);  // round the range it would be 162 kJ in a second
  CHECK(std::isnan(counter.power_w()));
  CHECK(counter.energy_j() == doctest::Approx(150));
  counter.add(150'000'000, 4 * second);
  CHECK(counter.power_w() == doctest::Approx(100));
  counter.add(90'000'000'000, 5 * second);  // forth by what cannot be
  CHECK(std::isnan(counter.power_w()));
  CHECK(counter.energy_j() == doctest::Approx(250));
}

TEST_CASE("powercap: readings that follow at once do not make powers out of the counter's steps") {
  kinds::EnergyCounter counter(1e-6, 0, 2000);
  counter.add(0, second);
  counter.add(100'000'000, 2 * second);
  counter.add(100'500'000, 2 * second + 1000);
  CHECK(counter.power_w() == doctest::Approx(100));
  counter.add(200'000'000, 3 * second);
  CHECK(counter.power_w() == doctest::Approx(100));
}

TEST_CASE("powercap: a counter that stands still is not 0 W, and says for how long it has") {
  kinds::EnergyCounter counter(1e-6, 0, 2000);
  counter.add(100'000'000, second);
  counter.add(150'000'000, 2 * second);
  CHECK(counter.power_w() == doctest::Approx(50));
  counter.add(150'000'000, 2 * second + second / 2);
  CHECK(counter.power_w() == 0);  // one that counts coarsely
  counter.add(150'000'000, 3 * second);
  CHECK(std::isnan(counter.power_w()));
  CHECK(counter.still_s() == doctest::Approx(1));
  counter.add(150'000'000, 33 * second);
  CHECK(counter.still_s() == doctest::Approx(31));
  counter.add(190'000'000, 34 * second);
  CHECK(counter.still_s() == 0);
  CHECK(counter.power_w() == doctest::Approx(40));
  CHECK(counter.energy_j() == doctest::Approx(90));
}

TEST_CASE("powercap: a node whose counter stands still says so after 30 s, with the file and the time, and no longer") {
  const PowerTree tree;
  for (const char* folder : {"intel-rapl:0", "intel-rapl:1"}) tree.zone(folder, std::string("package-") + folder[11]);
  std::int64_t now = 1000 * second;
  HardwareSpec spec;
  spec.kind = Source::powercap;
  spec.root = tree.root;
  spec.clock = [&] { return now; };
  const auto hardware = open_hardware(spec);
  REQUIRE(hardware);
  /// One package's counter moves on, the other's does not.
  const auto trouble_after = [&](double seconds) {
    now += static_cast<std::int64_t>(seconds * second);
    tree.put(zone_1 + "energy_uj", std::to_string(now / 1000));
    const auto read = (*hardware)->read();
    REQUIRE(read);
    CHECK((*read)[1].trouble.empty());
    return (*read)[0].trouble;
  };
  CHECK(trouble_after(29.5).empty());
  const std::string said = trouble_after(1);
  CHECK_MESSAGE(
      said.find(tree.root + "/" + zone_0 +
                "energy_uj has not changed for 30.0 s: the power of package-0 is not known") != std::string::npos,
      said);
  // A text that changes is an event: at each doubling of the time.
  const std::string later = trouble_after(40);
  CHECK_MESSAGE(later.find("has not changed for 1 min:") != std::string::npos, later);
  CHECK(trouble_after(20) == later);
  CHECK(trouble_after(40) != later);
  tree.put(zone_0 + "energy_uj", "2000000");
  CHECK(trouble_after(1).empty());
  CHECK(trouble_after(29).empty());
  CHECK(!trouble_after(2).empty());
}

TEST_CASE("powercap: two packages of one name and one driver are two, and both are capped") {
  const PowerTree tree;
  for (const char* folder : {"intel-rapl:0", "intel-rapl:1", "intel-rapl-mmio:0"}) tree.zone(folder, "package-0");
  for (const char* folder : {"intel-rapl:0:0", "intel-rapl:1:0", "intel-rapl-mmio:0:0"})
    tree.zone(folder, "dram", false);
  const auto hardware = opened(tree);
  CHECK(hardware->domains() == std::vector<std::string>{"package-0", "package-0#2"});
  for (std::size_t k = 0; k < 2; ++k) CHECK(*hardware->cap(k, 100) == 100);
  CHECK(tree.get(zone_0 + "constraint_0_power_limit_uw") == "100000000");
  CHECK(tree.get(zone_1 + "constraint_0_power_limit_uw") == "100000000");
  CHECK(tree.get("class/powercap/intel-rapl-mmio:0/constraint_0_power_limit_uw") == "200000000");
  CHECK(opened(tree, "*")->domains().size() == 4);
}

TEST_CASE("powercap: two counters that move as one are one meter; several looks show it, and several end it") {
  kinds::Mirror mirror;
  std::int64_t now = second;
  std::uint64_t first = 5, other = 9'000'000;
  for (int k = 0; k < 100; ++k) mirror.add(first, other, first, now += second);  // idle
  CHECK(!mirror.same());
  CHECK(!mirror.decided());
  const auto looks = [&](int many, std::uint64_t grown) {
    for (int k = 0; k < many; ++k) {
      first += 1000, other += grown;
      mirror.add(first, other, first, now += second);
    }
  };
  looks(3, 1000);
  CHECK(!mirror.same());
  looks(1, 1000);
  CHECK(mirror.same());
  mirror.add(first, other + 500, first + 500, now += second);  // it moved in between: nothing is learnt
  looks(3, 900);
  CHECK(mirror.same());
  looks(1, 900);
  CHECK(!mirror.same());
  CHECK(mirror.decided());
}

TEST_CASE("powercap: counters with one count, but for the time between two readings, are one meter after seconds") {
  for (const std::uint64_t drift : {0u, 100'000u}) {  // uJ in a look: 0.15 % of the power
    kinds::Mirror mirror;
    std::uint64_t first = 1'000'000;
    for (std::uint64_t look = 0; look < (drift ? 20 : 6); ++look) {
      CHECK(!mirror.same());
      first += 68'000'000;
      mirror.add(first, first + look % 3 * 5'000 + drift * (look + 1), first, static_cast<std::int64_t>(look) * second);
    }
    CHECK(mirror.same() == (drift == 0));
  }
}

TEST_CASE("powercap: dies that mirror the package's counter are counted once, and that is said") {
  PowerTree tree;
  two_dies(tree);
  const Counting counting(tree, 680'000, 680'000);
  const auto hardware = opened(tree);
  look_on(*hardware);
  CHECK(hardware->domains().size() == 2);
  CHECK(hardware->repeats(0) == "");
  const std::string said = hardware->repeats(1);
  CHECK_MESSAGE(said.find("package-0-die-0 and package-0-die-1 move as one") != std::string::npos, said);
  // The limits are two files: each of them is compared with the power of the whole package.
  CHECK(*hardware->cap(0, 100) == 100);
  CHECK(tree.get(zone_0 + "constraint_0_power_limit_uw") == "100000000");
  CHECK(tree.get(zone_1 + "constraint_0_power_limit_uw") == "100000000");
  tree.put(zone_1 + "constraint_0_power_limit_uw", "150000000");
  CHECK((*hardware->read())[0].cap_w == doctest::Approx(150));
}

TEST_CASE("powercap: dies of one package that count differently are two, and so are idle ones and other packages") {
  PowerTree tree;
  two_dies(tree);
  {
    const Counting counting(tree, 340'000, 341'000);
    CHECK(opened(tree)->repeats(1) == "");
  }
  CHECK(opened(tree)->repeats(1) == "");
  PowerTree packages;
  packages.zone("intel-rapl:0", "package-0");
  packages.zone("intel-rapl:1", "package-1");
  const Counting counting(packages, 340'000, 340'000);
  CHECK(opened(packages)->repeats(1) == "");
}

TEST_CASE("powercap: a meter that shows only later to be another's is found by looking on") {
  PowerTree tree;
  two_dies(tree, false);
  const auto hardware = opened(tree);
  CHECK(hardware->repeats(1) == "");
  const Counting counting(tree, 680'000, 680'000);
  look_on(*hardware);
  CHECK(hardware->repeats(1) != "");
}

TEST_CASE("powercap: a kernel that has the platform alone is capped by it") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "psys");
  CHECK(opened(tree)->domains() == std::vector<std::string>{"psys"});
}

TEST_CASE("powercap: packages are the domains; parts, psys and a second driver of the same package are not") {
  const PowerTree tree;
  for (const char* folder : {"intel-rapl:0", "intel-rapl-mmio:0"}) tree.zone(folder, "package-0");
  tree.zone("intel-rapl:1", "package-1");
  tree.zone("intel-rapl:10", "package-10");
  tree.zone("intel-rapl:2", "psys");
  tree.zone("intel-rapl:0:0", "core", false);
  tree.zone("intel-rapl:0:1", "dram", false);
  tree.put("class/powercap/dtpm/enabled", "1");
  const auto hardware = opened(tree);
  CHECK(hardware->domains() == std::vector<std::string>{"package-0", "package-1", "package-10"});
  CHECK(hardware->source() == Source::powercap);
  (void)hardware->read();
  (void)hardware->sensors();
  moment();
  tree.put("class/powercap/intel-rapl:0:1/energy_uj", "1100000");
  auto sensors = hardware->sensors();
  REQUIRE(sensors);
  std::vector<std::string> names;
  for (const auto& one : *sensors) names.push_back(one.name);
  CHECK(names == std::vector<std::string>{"package-0/core", "package-0/dram", "psys"});
  CHECK((*sensors)[0].value == 0);
  CHECK((*sensors)[1].value > 0);
  CHECK(opened(tree, "*")->domains().size() == 6);
  CHECK(opened(tree, "psys")->domains() == std::vector<std::string>{"psys"});
  const Error none = refused(tree, "package-7*");
  CHECK(none.code == "power.unknown_domain");
  CHECK(none.hint.find("package-10") != std::string::npos);
}

TEST_CASE("powercap: a cap is for the long and the short term, and switches the zone on") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  tree.put(zone_0 + "enabled", "0");
  const auto hardware = opened(tree);
  auto before = hardware->read();
  REQUIRE(before);
  CHECK(std::isnan((*before)[0].cap_w));  // its limits are in nobody's way
  auto saved = hardware->originals();
  REQUIRE(saved);
  auto back = hardware->cap(0, 120.5);
  REQUIRE(back);
  CHECK(*back == doctest::Approx(120.5));
  CHECK(tree.get(zone_0 + "constraint_0_power_limit_uw") == "120500000");
  CHECK(tree.get(zone_0 + "constraint_1_power_limit_uw") == "120500000");
  CHECK(tree.get(zone_0 + "enabled") == "1");
  // Somebody raises the short term: that is what the package may draw.
  tree.put(zone_0 + "constraint_1_power_limit_uw", "180000000");
  CHECK((*hardware->read())[0].cap_w == doctest::Approx(180));
  REQUIRE(opened(tree)->restore(*saved));
  CHECK(tree.get(zone_0 + "constraint_0_power_limit_uw") == "200000000");
  CHECK(tree.get(zone_0 + "constraint_1_power_limit_uw") == "240000000");
  CHECK(tree.get(zone_0 + "enabled") == "0");
}

TEST_CASE("powercap: caps out of range are not written") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  const auto hardware = opened(tree);
  CHECK(hardware->range(0).min_w == doctest::Approx(50));
  CHECK(hardware->range(0).max_w == doctest::Approx(200));
  for (const double w : {99999.0, 200.1, 49.9, 0.0, -1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    const auto back = hardware->cap(0, w);
    REQUIRE(!back);
    CHECK(back.error().code == "power.out_of_range");
    CHECK(back.error().hint == "use 50 W to 200 W");
  }
  CHECK(tree.get(zone_0 + "constraint_0_power_limit_uw") == "200000000");
}

TEST_CASE("powercap: without limits it is read only, and says why") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0", false);
  const auto hardware = opened(tree);
  CHECK(!hardware->range(0).settable);
  CHECK(hardware->range(0).why_not == "constraint_0_power_limit_uw does not exist");
  const auto back = hardware->cap(0, 100);
  REQUIRE(!back);
  CHECK(back.error().code == "power.read_only");
  auto saved = hardware->originals();
  REQUIRE(saved);
  CHECK(saved->empty());
  moment();
  auto now = hardware->read();
  REQUIRE(now);
  CHECK((*now)[0].power_w == 0);
  CHECK(std::isnan((*now)[0].cap_w));
}

TEST_CASE("powercap: a highest cap that nobody tells has to be given") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  tree.put(zone_0 + "constraint_0_max_power_uw", "0");
  CHECK(opened(tree)->range(0).why_not.find("`min`") != std::string::npos);
  HardwareSpec spec;
  spec.kind = Source::powercap;
  spec.root = tree.root;
  spec.min_w = 40;
  spec.max_w = 150;
  auto given = open_hardware(spec);
  REQUIRE(given);
  CHECK((*given)->range(0).settable);
  CHECK((*given)->cap(0, 150));
}

TEST_CASE("powercap: what vanishes is named; of several packages the others go on") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  tree.zone("intel-rapl:1", "package-1");
  const auto hardware = opened(tree);
  moment();
  tree.gone("class/powercap/intel-rapl:1");
  auto now = hardware->read();
  REQUIRE(now);
  CHECK((*now)[0].power_w == 0);
  CHECK((*now)[0].trouble.empty());
  CHECK(std::isnan((*now)[1].power_w));
  CHECK((*now)[1].trouble.starts_with("power.hardware_gone: "));
  CHECK((*now)[1].trouble.find("intel-rapl:1/energy_uj") != std::string::npos);
  const auto back = hardware->cap(1, 100);
  REQUIRE(!back);
  CHECK(back.error().code == "power.hardware_gone");
  tree.gone("class/powercap/intel-rapl:0");
  now = hardware->read();
  REQUIRE(!now);
  CHECK(now.error().code == "power.hardware_gone");
}

TEST_CASE("powercap: files with nonsense are named, not believed") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  const auto hardware = opened(tree);
  tree.put(zone_0 + "energy_uj", "-17");
  tree.put(zone_0 + "constraint_0_power_limit_uw", "nan");
  auto now = hardware->read();
  REQUIRE(!now);
  CHECK(now.error().code == "power.hardware_failed");
  CHECK(now.error().what.find("'-17'") != std::string::npos);
}

TEST_CASE("powercap: who may not write learns it from the range; who may not read, from the reading") {
  if (::geteuid() != 0) return;  // needs another user than who runs the test
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  std::filesystem::permissions(tree.root, std::filesystem::perms(0755));
  std::filesystem::permissions(tree.root + "/" + zone_0 + "energy_uj", std::filesystem::perms(0400));
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    // Codes of what was wrong, for a process that must not go on in the test's framework.
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(9);
    HardwareSpec spec;
    spec.kind = Source::powercap;
    spec.root = tree.root;
    auto hardware = open_hardware(spec);
    if (!hardware) ::_exit(1);
    const Range range = (*hardware)->range(0);
    if (range.settable || !range.why_not.ends_with("constraint_0_power_limit_uw: Permission denied")) ::_exit(2);
    auto now = (*hardware)->read();
    if (!now || !((*now)[0].cap_w == 200)) ::_exit(3);
    if (!std::isnan((*now)[0].power_w) || (*now)[0].trouble.find("energy_uj: Permission denied") == std::string::npos)
      ::_exit(4);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("powercap: a limit that could not be written has what it had, and counts as put back") {
  const std::string fixed = "/proc/sys/kernel/ngroups_max";  // a number that nobody can write
  const auto number = kinds::read_text(fixed);
  if (!number || kinds::write_text(fixed, *number)) return;
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  tree.put(zone_0 + "constraint_1_power_limit_uw", *number);
  const auto hardware = opened(tree);
  auto saved = hardware->originals();
  REQUIRE(saved);
  tree.gone(zone_0 + "constraint_1_power_limit_uw");
  std::filesystem::create_symlink(fixed, tree.root + "/" + zone_0 + "constraint_1_power_limit_uw");
  REQUIRE(hardware->cap(0, 120));
  const auto done = hardware->restore(*saved);
  CHECK_MESSAGE(done, (done ? "" : done.error().what));
  CHECK(tree.get(zone_0 + "constraint_0_power_limit_uw") == "200000000");
  // One that has something else by now is told.
  const auto other = hardware->restore({{"package-0", "constraint_1_power_limit_uw", "1"}});
  REQUIRE(!other);
  CHECK(other.error().code != "power.bad_original");
}

TEST_CASE("powercap: originals that are damaged write nothing else, and do not keep the rest from being put back") {
  const PowerTree tree;
  tree.zone("intel-rapl:0", "package-0");
  tree.put("secret", "1");
  const auto hardware = opened(tree);
  const auto done = hardware->restore({{"package-0", "../../../secret", "2"},
                                       {"package-0", "constraint_0_power_limit_uw", "12; rm"},
                                       {"package-9", "constraint_0_power_limit_uw", "1"},
                                       {"package-0", "constraint_0_power_limit_uw", "77000000"}});
  REQUIRE(!done);
  CHECK(done.error().code == "power.bad_original");
  CHECK(tree.get("secret") == "1");
  CHECK(tree.get(zone_0 + "constraint_0_power_limit_uw") == "77000000");
}

TEST_CASE("powercap: a machine without RAPL is told to be one") {
  const PowerTree tree;
  CHECK(refused(tree).code == "power.no_hardware");
  CHECK(refused(tree).hint.find("virtual machine") != std::string::npos);
  std::filesystem::create_directories(tree.root + "/class/powercap");
  CHECK(refused(tree).code == "power.no_hardware");
}

TEST_CASE("hwmon: temperatures, fans and voltages by their labels") {
  const PowerTree tree;
  tree.put("class/hwmon/hwmon0/name", "coretemp");
  tree.put("class/hwmon/hwmon0/temp1_input", "45500");
  tree.put("class/hwmon/hwmon0/temp1_label", "Package id 0");
  tree.put("class/hwmon/hwmon0/temp1_max", "100000");
  tree.put("class/hwmon/hwmon1/name", "nct");
  tree.put("class/hwmon/hwmon1/fan2_input", "1200");
  tree.put("class/hwmon/hwmon1/in0_input", "1024");
  tree.put("class/hwmon/hwmon1/in1_input", "nonsense");
  tree.put("class/hwmon/hwmon1/intrusion0_input", "1");
  const auto all = kinds::hwmon_sensors(tree.root);
  REQUIRE(all.size() == 3);
  CHECK(all[0].name == "coretemp/Package id 0");
  CHECK(all[0].kind == SensorKind::temperature);
  CHECK(all[0].value == doctest::Approx(45.5));
  CHECK(all[1].name == "nct/fan2");
  CHECK(all[1].value == 1200);
  CHECK(all[2].kind == SensorKind::voltage);
  CHECK(all[2].value == doctest::Approx(1.024));
}

TEST_CASE("hwmon: two sockets and two drives have eight temperatures of eight names") {
  const PowerTree tree;
  const char* const labels[][3] = {{"Package id 0", "Core 0", "Core 1"}, {"Package id 1", "Core 0", "Core 1"}};
  for (int chip = 0; chip < 2; ++chip) {
    const std::string socket = "class/hwmon/hwmon" + std::to_string(chip) + "/",
                      drive = "class/hwmon/hwmon" + std::to_string(chip + 2) + "/";
    tree.put(socket + "name", "coretemp");
    std::filesystem::create_symlink("../../../coretemp." + std::to_string(chip), tree.root + "/" + socket + "device");
    for (int k = 0; k < 3; ++k) {
      const std::string channel = socket + "temp" + std::to_string(k + 1);
      tree.put(channel + "_input", std::to_string(40000 + 10000 * chip + 1000 * k));
      tree.put(channel + "_label", labels[chip][k]);
    }
    tree.put(drive + "name", "nvme");
    tree.put(drive + "temp1_input", "60000");
    tree.put(drive + "temp1_label", "Composite");
  }
  std::vector<std::string> names;
  for (const auto& one : kinds::hwmon_sensors(tree.root)) names.push_back(one.name);
  CHECK(names == std::vector<std::string>{"coretemp@coretemp.0/Core 0", "coretemp@coretemp.0/Core 1",
                                          "coretemp@coretemp.0/Package id 0", "coretemp@coretemp.1/Core 0",
                                          "coretemp@coretemp.1/Core 1", "coretemp@coretemp.1/Package id 1",
                                          "nvme@hwmon2/Composite", "nvme@hwmon3/Composite"});
}
