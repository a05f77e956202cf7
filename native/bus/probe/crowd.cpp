// Discovery of participants.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bus/probe/agent.hpp"
#include "core/ticks.hpp"

namespace sonde::bus::probe {

namespace {

constexpr double most_ahead_s = 60;  ///< until a common start: a later time is from the clock of another machine

struct Member {
  std::shared_ptr<Bus> bus;
  std::unique_ptr<Writer> writer;  ///< null: it only reads
  std::unique_ptr<Reader> reader;  ///< null: it only writes
  std::size_t wanted = 0;          ///< number of endpoints that each of these should match
};

class Members final : public Crowd {
 public:
  ~Members() override {
    for (auto& m : all) {
      m.reader.reset();
      m.writer.reset();
    }
  }
  void count(std::size_t& have, std::size_t& wanted) override {
    const auto add = [&](const auto& endpoint, std::size_t most) {
      if (!endpoint) return;
      have += std::min(static_cast<std::size_t>(std::max<std::int64_t>(endpoint->status().matched, 0)), most);
      wanted += most;
    };
    for (auto& m : all) {
      add(m.writer, m.wanted);
      add(m.reader, m.wanted);
    }
  }
  std::vector<Member> all;
};

}  // namespace

Result<Talk> Agent::join(const Talk& told) {
  auto variant = Variant::parse(told.text("variant"));
  if (!variant) return variant.error();
  const auto entities = told.number<std::size_t>("entities", 1), first = told.number<std::size_t>("first"),
             n = told.number<std::size_t>("n", 1);
  const bool star = told.text("treatment") == "star";
  if (const double at_s = static_cast<double>(told.number<std::int64_t>("at_ns")) * 1e-9; at_s > now_s() + most_ahead_s)
    return Error{"bus.internal",
                 "a program was told to begin in " + std::to_string(static_cast<std::int64_t>(at_s - now_s())) + " s",
                 "check that both machines have the same clock"};
  else if (at_s > 0) sleep_until(at_s);
  if (const double after_s = told.number<double>("after_s"); after_s > 0) sleep_until(now_s() + after_s);
  const std::int64_t began_ns = now_ns();
  const Deadline deadline = Deadline::in_s(told.number<double>("within_s", 30));

  auto crowd = std::make_unique<Members>();
  std::vector<double> make, cycles, counts;
  for (std::size_t k = first; k < first + n; ++k) {
    if (ending()) return Error{"bus.interrupted", "the program was asked to end", ""};
    PlaceOptions at = place_in(told);
    at.participant = "probe-" + std::to_string(k);
    auto profile = profile_of(*variant, at);
    if (!profile) return profile.error();
    const std::uint64_t executed = instructions_.read();
    const std::int64_t made_ns = now_ns(), ticks_began = ticks();
    auto bus = Bus::open(*profile, variant->implementation);
    if (!bus) return bus.error();
    Member member;
    if (!star || k == 0) {
      auto writer = (*bus)->writer(told.text("topic"), message_type());
      if (!writer) return writer.error();
      member.writer = std::move(*writer);
    }
    if (!star || k > 0) {
      auto reader = (*bus)->reader(told.text("topic"), message_type());
      if (!reader) return reader.error();
      member.reader = std::move(*reader);
    }
    cycles.push_back(static_cast<double>(ticks() - ticks_began));
    make.push_back(static_cast<double>(now_ns() - made_ns) * 1e-9);
    if (instructions_.counted()) counts.push_back(static_cast<double>(instructions_.read() - executed));
    member.bus = std::move(*bus);
    member.wanted = !star ? entities : k == 0 ? entities - 1 : 1;
    crowd->all.push_back(std::move(member));
  }
  crowds_.push_back(std::move(crowd));

  // Checking costs time of the other programs, so the interval grows with the waiting time.
  std::size_t have = 0, wanted = 0;
  std::int64_t done_ns = 0;
  while (told.number<int>("wait", 1)) {
    have = wanted = 0;
    for (auto& one : crowds_) one->count(have, wanted);
    done_ns = now_ns();
    if (have == wanted || deadline.passed() || ending()) break;
    sleep_until(static_cast<double>(done_ns) * 1e-9 +
                std::clamp(static_cast<double>(done_ns - began_ns) * 3e-11, 1e-3, 50e-3));
  }
  return Talk::ok()
      .with("make", make)
      .with("make_cycles", cycles)
      .with("make_instructions", counts)
      .with("have", have)
      .with("wanted", wanted)
      .with("began_ns", began_ns)
      .with("done_ns", have == wanted ? done_ns : std::int64_t{0});
}

}  // namespace sonde::bus::probe
