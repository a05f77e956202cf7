// Participants that begin at the same moment and look for each other.
#include <algorithm>

#include "bus/probe/agent.hpp"
#include "core/ticks.hpp"

namespace sonde::bus::probe {

namespace {

struct Member {
  std::shared_ptr<Bus> bus;
  std::unique_ptr<Writer> writer;
  std::unique_ptr<Reader> reader;
  std::size_t wanted = 0;  ///< others that its writer should find; its reader as many
};

class Members final : public Crowd {
 public:
  ~Members() override {
    for (auto& m : all) {
      m.reader.reset();
      m.writer.reset();
    }
  }
  std::vector<Member> all;
};

std::size_t least(std::int64_t have, std::size_t wanted) { return std::min(static_cast<std::size_t>(std::max<std::int64_t>(have, 0)), wanted); }

}  // namespace

Result<Talk> Agent::join(const Talk& told) {
  auto variant = Variant::parse(told.text("variant"));
  if (!variant) return variant.error();
  const auto entities = told.number<std::size_t>("entities", 1), first = told.number<std::size_t>("first"), n = told.number<std::size_t>("n", 1);
  const bool star = told.text("treatment") == "star";
  const double cpu_before_s = usage().cpu_s;
  if (const auto at_ns = told.number<std::int64_t>("at_ns"); at_ns) sleep_until(static_cast<double>(at_ns) * 1e-9);
  const std::int64_t began_ns = now_ns();
  const Deadline deadline = Deadline::in_s(told.number<double>("within_s", 30));

  auto crowd = std::make_unique<Members>();
  std::vector<double> make, cycles, counts;
  for (std::size_t k = first; k < first + n; ++k) {
    if (ending()) return Error{"bus.interrupted", "it was asked to end", ""};
    PlaceOptions at = place_in(told);
    at.participant = "probe-" + std::to_string(k);
    auto profile = profile_of(*variant, at);
    if (!profile) return profile.error();
    const std::uint64_t executed = instructions_.read();
    const std::int64_t made_ns = now_ns(), ticks_began = ticks();
    auto bus = Bus::open(*profile, variant->implementation);
    if (!bus) return bus.error();
    const std::string up = told.text("topic") + "_up", down = told.text("topic") + "_down";
    const bool centre = star && k == 0;
    auto writer = (*bus)->writer(star && !centre ? up : down, message_type());
    auto reader = (*bus)->reader(star && centre ? up : down, message_type());
    if (!writer) return writer.error();
    if (!reader) return reader.error();
    cycles.push_back(static_cast<double>(ticks() - ticks_began));
    make.push_back(static_cast<double>(now_ns() - made_ns) * 1e-9);
    if (instructions_.counted()) counts.push_back(static_cast<double>(instructions_.read() - executed));
    crowd->all.push_back({std::move(*bus), std::move(*writer), std::move(*reader), !star ? entities : centre ? entities - 1 : std::min<std::size_t>(1, entities - 1)});
  }

  // Looking costs time that the others want: the longer it takes, the seldomer.
  std::size_t have = 0, wanted = 0;
  std::int64_t done_ns = 0;
  for (;;) {
    have = wanted = 0;
    for (auto& m : crowd->all) {
      have += least(m.writer->status().matched, m.wanted) + least(m.reader->status().matched, m.wanted);
      wanted += 2 * m.wanted;
    }
    done_ns = now_ns();
    if (have == wanted || deadline.passed() || ending()) break;
    sleep_until(static_cast<double>(done_ns) * 1e-9 + std::clamp(static_cast<double>(done_ns - began_ns) * 3e-11, 1e-3, 50e-3));
  }
  crowds_.push_back(std::move(crowd));
  return Talk::ok().with("make", make).with("make_cycles", cycles).with("make_instructions", counts).with("have", have).with("wanted", wanted).with("began_ns", began_ns)
      .with("done_ns", have == wanted ? done_ns : std::int64_t{0}).with("cpu_before", cpu_before_s);
}

}  // namespace sonde::bus::probe
