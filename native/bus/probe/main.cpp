// sonde-busprobe: measures what a data-distribution bus costs: every case on every variant, interleaved.
//
// Publishes: events on stdout, a block file in --dir. Consumes: `stop` on stdin. `sonde bus run` and `sonde bus ls`
// start it. It uses no bus itself: it starts further copies of itself, which do, and sends them commands (agent.hpp).
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "bus/probe/agent.hpp"
#include "bus/probe/drawn.hpp"
#include "bus/probe/experiment.hpp"
#include "bus/probe/help.hpp"
#include "core/block.hpp"
#include "core/json.hpp"
#include "core/runner.hpp"
#include "core/ticks.hpp"

namespace {

using namespace sonde;
using namespace sonde::bus;
using namespace sonde::bus::probe;

void emit(const JsonLine& line) { std::cout << line.text() << '\n' << std::flush; }
void emit_error(const Error& e) {
  emit(JsonLine().add("event", "error").add("code", e.code).add("what", e.what).add("hint", e.hint));
}
void warn(const std::string& code, const std::string& variant, const std::string& evidence, const std::string& hint,
          const std::string& why = "") {
  JsonLine line;
  line.add("event", "warning").add("code", code);
  if (!variant.empty()) line.add("variant", variant);
  if (!why.empty()) line.add("why", why);
  emit(line.add("evidence", evidence).add("hint", hint));
}

std::vector<double> load_average() {
  double load[3] = {std::nan(""), std::nan(""), std::nan("")};
  (void)::getloadavg(load, 3);
  return {load, load + 3};
}

int cores() {
  cpu_set_t may;
  return ::sched_getaffinity(0, sizeof may, &may) == 0 ? CPU_COUNT(&may) : 1;
}

std::uint32_t programs_by_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kib = 0;
  while (file >> name)
    if (name == "MemAvailable:" && file >> kib) break;
  constexpr std::uint64_t each_kib = 64 << 10,
                          part = 4;  // size of a program with a Fast DDS participant; a part of the free memory
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kib / part / each_kib, 8, 64));
}

class BusProbe final : public Probe {
 public:
  BusProbe(const Options& options, Control& control)
      : options_(options),
        foreman_(control),
        domains_(options.domain_first, options.domain_last, static_cast<std::uint32_t>(::getpid()) * 37u),
        chance_(options.seed),
        alive_most_(options.alive ? options.alive : programs_by_memory()) {}

  Result<void> open() {
    known_.resize(options_.variants.size());
    if (auto ok = reach(); !ok) return ok;
    for (std::size_t v = 0; v < options_.variants.size(); ++v) {
      if (auto ok = learn(options_.variants[v], known_[v]); !ok) return ok;
      if (!known_[v].present) continue;
      for (std::size_t c = 0; c < options_.cases.size(); ++c) {
        auto why = options_.variants[v].excludes(options_.cases[c], options_.across());
        if (why.empty() && options_.across() && !known_[v].across) why = "the transport does not leave a process";
        // The transport of a profile is known only after its check.
        if (why.empty() && options_.across() && known_[v].transport == "shared-memory")
          why = "shared memory does not leave a host";
        if (!why.empty()) {
          warn("bus.case_left_out", options_.variants[v].name,
               options_.variants[v].name + ", " + options_.cases[c].text + ": not measured, " + why, "");
          continue;
        }
        Cell cell;
        cell.variant = static_cast<std::uint32_t>(v);
        cell.what = static_cast<std::uint32_t>(c);
        const auto deciding = options_.cases[c].deciding();
        for (const Q q : options_.cases[c].gives()) {
          cell.series.emplace(q, static_cast<std::uint32_t>(series_.size()));
          series_.push_back({static_cast<std::uint32_t>(cells_.size()), q,
                             std::find(deciding.begin(), deciding.end(), q) != deciding.end()});
        }
        cells_.push_back(std::move(cell));
      }
    }
    scouts_.clear();
    if (cells_.empty()) return Error{"bus.nothing_to_measure", "no variant can run any case", "see the warnings"};
    length_ = options_.epoch_length;
    for (const auto& c : options_.cases)
      length_ = std::max(
          {length_, c.shown_subscribers() > 0 ? c.subscribers : 0, c.test == Test::discovery ? c.entities : 0});
    return {};
  }

  /// Limits every step, so that nothing takes much longer than the budget.
  void limit_to(double s) { foreman_.limit(Deadline::in_s(s)); }
  void while_waiting(std::function<void()> say) { foreman_.while_waiting(std::move(say)); }

  void close() {
    for (auto& cell : cells_)
      if (cell.experiment) cell.experiment->dismiss();
    for (auto& cell : cells_) cell.experiment.reset();
    foreman_.limit({});
    if (Program::killed() == 0) return;
    // Shared memory of a killed program stays until its implementation removes it.
    std::set<std::string> asked;
    for (const auto& v : options_.variants) {
      if (v.raw() || !asked.insert(v.implementation).second) continue;
      for (std::size_t k = 0; k < hosts(); ++k)
        (void)ask_scout(k, Talk("check").with("variant", v.text).with("clean", true));
    }
    scouts_.clear();
  }

  std::uint32_t steps() const override { return static_cast<std::uint32_t>(cells_.size()); }
  std::uint32_t cells() const override { return static_cast<std::uint32_t>(series_.size()); }
  /// All variants of a case continue until the last of them is decided, because they are compared epoch by epoch. A
  /// broken variant does not count.
  void cells_of(std::uint32_t step, std::vector<std::uint32_t>& out) const override {
    for (std::uint32_t k = 0; k < series_.size(); ++k)
      if (series_[k].deciding && cells_[series_[k].cell].what == cells_[step].what && !cells_[series_[k].cell].broken)
        out.push_back(k);
  }

  Result<void> measure(const Step& step, std::span<const Decision> decided, std::vector<Burst>& out) override {
    Cell& cell = cells_[step.cell];
    results_ = {};
    if (cell.broken || overdrawn(cell, decided)) return {};
    const double came_s = now_s();
    if (began_s_ == 0) began_s_ = came_s;
    auto ok = visit(cell);
    cell.spent_s += now_s() - came_s;
    cell.used_s = now_s();
    if (!ok) {
      cell.experiment.reset();
      if (ok.error().code == "bus.interrupted") return {};
      // A failure of one variant must not end the others: its results stay, and it gets some more attempts.
      ++cell.failures;
      if (cell.failures == 1) failed(cell, ok.error());
      cell.broken = cell.failures >= most_failures;
      if (std::all_of(cells_.begin(), cells_.end(), [](const Cell& c) { return c.broken; }))
        return Error{"bus.nothing_left", "every case failed on every variant", "see the warnings"};
      return {};
    }
    cell.failures = 0;
    for (const auto& w : results_.warnings)
      if (told_.insert(w.code + options_.variants[cell.variant].name + w.what).second)
        warn(w.code, options_.variants[cell.variant].name, w.what, w.hint);
    // Other hosts have other clocks: their times are not comparable with this one's.
    const double t0_s = (options_.hosts.empty() ? static_cast<double>(results_.t0_ns) * 1e-9 : came_s) - began_s_;
    for (auto& [quantity, samples] : results_.of) {
      const auto it = cell.series.find(quantity);
      if (it == cell.series.end()) continue;
      thin(samples);
      out.push_back({it->second, t0_s, samples.value, samples.offset});
    }
    return {};
  }

  void record(const Step& step, const Burst& burst, Decision decision, void* out) const override {
    const Series& series = series_[burst.cell];
    const auto n = static_cast<std::uint32_t>(burst.value.size());
    const RecordHead head{n == 0 ? 1u : 0u,
                          cells_[series.cell].variant,
                          cells_[series.cell].what,
                          static_cast<std::uint32_t>(series.quantity),
                          step.epoch,
                          n,
                          static_cast<std::uint32_t>(decision),
                          0,
                          burst.t0};
    auto* bytes = static_cast<std::byte*>(out);
    std::memset(bytes, 0, record_bytes(length_));
    std::memcpy(bytes, &head, sizeof head);
    if (n == 0) return;
    std::memcpy(bytes + sizeof head, burst.value.data(), n * sizeof(double));
    std::memcpy(bytes + sizeof head + length_ * sizeof(double), burst.offset.data(), n * sizeof(float));
  }

  RecordSchema schema(double cycles_per_s, const std::string& instructions) const {
    const std::string k = std::to_string(length_);
    std::string fields = "[";
    for (const char* name : {"kind", "variant", "case", "quantity", "epoch", "n", "code", "zero"})
      fields += "[\"" + std::string(name) + "\",\"<u4\",[]],";
    fields += R"(["t0","<f8",[]],["value","<f8",[)" + k + R"(]],["offset","<f4",[)" + k + "]]]";
    std::vector<std::string> names, implementations, versions, transports, discoveries, options, details, cases, tests,
        treatments, quantity_names, units;
    std::vector<std::int64_t> sizes, subscribers, entities, processes;
    std::string present = "[", deciding = "[";
    for (std::size_t v = 0; v < options_.variants.size(); ++v) {
      const auto& variant = options_.variants[v];
      present += (v ? "," : "") + std::string(known_[v].present ? "true" : "false");
      names.push_back(variant.name);
      implementations.push_back(variant.raw() ? "raw" : variant.implementation);
      versions.push_back(known_[v].version);
      transports.push_back(known_[v].transport);
      discoveries.emplace_back(variant.raw() ? "" : name_of(known_[v].discovery));
      options.push_back(variant.options);
      details.push_back(known_[v].detail);
    }
    for (std::size_t c = 0; c < options_.cases.size(); ++c) {
      const auto& what = options_.cases[c];
      cases.push_back(what.text);
      tests.emplace_back(name_of(what.test));
      sizes.push_back(what.shown_size());
      subscribers.push_back(what.shown_subscribers());
      entities.push_back(what.shown_entities());
      processes.push_back(what.shown_processes());
      treatments.push_back(what.shown_treatment());
      for (const Q q : what.deciding())
        deciding += (deciding.size() > 1 ? ",[" : "[") + std::to_string(c) + "," +
                    std::to_string(static_cast<std::uint32_t>(q)) + "]";
    }
    for (const auto& q : quantities) {
      quantity_names.emplace_back(q.name);
      units.emplace_back(q.unit);
    }
    JsonLine header;
    header.raw("fields", fields)
        .add("schema", "bus/1")
        .add("rank", 0)
        .add("ranks", 1)
        .add("epoch_length", options_.epoch_length)
        .add("record_length", length_);
    header.add("variants", names)
        .add("implementations", implementations)
        .add("versions", versions)
        .add("transports", transports)
        .add("discoveries", discoveries)
        .add("options", options)
        .add("details", details);
    header.raw("present", present + "]")
        .add("cases", cases)
        .add("tests", tests)
        .add("sizes", sizes)
        .add("subscribers", subscribers)
        .add("entities", entities)
        .add("processes", processes)
        .add("treatments", treatments);
    header.add("quantities", quantity_names).add("units", units).raw("deciding", deciding + "]");
    header.add("cycles_per_s", cycles_per_s)
        .add("cycles_by", to_string(tick_kind))
        .add("instructions", instructions)
        .add("load", load_average())
        .add("cores", cores());
    return {header.text(), record_bytes(length_)};
  }

  /// Finds out how several hosts reach each other. Errors: bus.unknown_host, bus.unknown_interface, bus.network, each
  /// with the host that reported it.
  Result<void> reach() {
    if (!options_.across()) return {};
    for (std::size_t k = 0; k < hosts(); ++k) {
      std::vector<std::string> others;
      for (std::size_t j = 0; j < hosts(); ++j)
        if (j != k) others.push_back(options_.hosts[j].name);
      auto answer = ask_scout(k, Talk("reach").with("hosts", others).with("interfaces", options_.interfaces));
      if (!answer)
        return Error{answer.error().code, "on the host " + options_.hosts[k].name + ": " + answer.error().what,
                     answer.error().hint};
      Reached one{.host = answer->text("host"),
                  .address = answer->text("address"),
                  .addresses = answer->words("addresses"),
                  .interfaces = answer->words("interfaces")};
      one.again =
          std::any_of(reached_.begin(), reached_.end(), [&](const Reached& other) { return other.host == one.host; });
      const bool loopback = answer->number<int>("loopback") != 0;
      away_ = away_ || !loopback;
      reached_.push_back(one);
      emit(JsonLine()
               .add("event", "host")
               .add("name", options_.hosts[k].name)
               .add("host", one.host)
               .add("address", one.address));
      if (const bool elsewhere = one.host != reached_.front().host; loopback && elsewhere)
        return Error{"bus.network", "the host " + one.host + " reaches the other hosts only over its loopback",
                     "check how it resolves their names, in /etc/hosts, or name the network between the hosts with "
                     "--interfaces"};
    }
    return {};
  }

  /// Checks a variant with separate programs, so that this one loads no bus.
  Result<void> learn(const Variant& v, Known& known) {
    Result<Talk> answer = Error{};
    for (std::size_t k = hosts(); k-- > 0;) {  // the first host comes last, because its answer is used
      Talk what("check");
      what.with("variant", v.text).with("domain", options_.domain_first).with("clean", true).with("away", away_);
      if (!reached_.empty()) what.with("addresses", reached_[k].addresses).with("interfaces", reached_[k].interfaces);
      const std::string version = answer ? answer->text("version") : "";
      const bool other = bool(answer);
      answer = ask_scout(k, what);
      if (!answer) {
        if (answer.error().code == "bus.interrupted") return {};
        const std::string where = options_.hosts.empty() ? "" : ", on " + options_.hosts[k].name;
        warn("bus.variant_absent", v.name, v.name + where + ": " + answer.error().what, answer.error().hint,
             answer.error().code);
        known.transport = v.profile.empty() ? v.transport_name() : "";
        known.discovery = v.discovery.kind;
        return {};
      }
      if (other && answer->text("version") != version)
        warn("bus.other_version", v.name,
             v.name + " is version " + answer->text("version") + " on " + options_.hosts[k].name + " and " + version +
                 " on " + options_.hosts[k + 1].name,
             "the results mix both versions");
    }
    known.present = true;
    known.across = answer->number<int>("across") != 0;
    known.version = answer->text("version");
    known.transport = v.raw() ? v.transport_name() : known.across ? answer->text("transport") : "in-process";
    known.discovery = static_cast<DiscoveryKind>(answer->number<int>("discovery"));
    known.domain = answer->number<std::uint32_t>("domain");
    if (!v.profile.empty()) domains_.keep(known.domain);
    known.detail = v.raw()        ? answer->text("detail")
                   : known.across ? ""
                                  : "both ends are in one program: the transport does not leave a process";
    if (!known.across) known.discovery = DiscoveryKind::simple;
    emit(JsonLine()
             .add("event", "variant")
             .add("name", v.name)
             .add("implementation", v.raw() ? "raw" : v.implementation)
             .add("version", known.version)
             .add("transport", known.transport)
             .add("options", v.options)
             .add("detail", known.detail));
    return {};
  }

 private:
  struct Cell {
    std::uint32_t variant = 0, what = 0;
    std::map<Q, std::uint32_t> series;
    std::unique_ptr<Experiment> experiment;  ///< null: it must be set up (again)
    std::uint32_t failures = 0;
    bool broken = false;
    double spent_s = 0, used_s = 0;
  };
  struct Series {
    std::uint32_t cell;
    Q quantity;
    bool deciding;
  };
  static constexpr std::uint32_t most_failures = 3;

  std::size_t hosts() const { return std::max<std::size_t>(1, options_.hosts.size()); }

  /// A program that died or does not answer is replaced for the next question.
  Result<Talk> ask_scout(std::size_t k, const Talk& what) {
    scouts_.resize(hosts());
    for (std::size_t j = 0; j < hosts(); ++j) {  // start all before waiting for any
      if (scouts_[j]) continue;
      auto program = Program::start({.host = options_.hosts.empty() ? nullptr : &options_.hosts[j]});
      if (!program) return program.error();
      scouts_[j] = std::move(*program);
    }
    auto answer = foreman_.ask(*scouts_[k], what, 60);
    if (!answer && (answer.error().code == "bus.program_lost" || answer.error().code == "bus.timed_out"))
      scouts_[k].reset();
    return answer;
  }

  Result<void> visit(Cell& cell) {
    const Case& what = options_.cases[cell.what];
    const Known& known = known_[cell.variant];
    const bool fresh = Experiment::fresh(what);
    const Variant& variant = options_.variants[cell.variant];
    // All cases of a profile share one domain: discovery would also find idle programs there.
    if (!variant.profile.empty())
      for (auto& other : cells_)
        if (&other != &cell && !options_.variants[other.variant].profile.empty() &&
            known_[other.variant].domain == known.domain)
          other.experiment.reset();
    if (!cell.experiment) {
      make_room(Experiment::programs(what, known));
      cell.experiment =
          Experiment::make(what, std::make_unique<Rig>(options_, variant, known, reached_, domains_, foreman_));
      if (auto ok = cell.experiment->set_up(); !ok) return ok;
    }
    auto ok = cell.experiment->visit(results_);
    if (fresh) cell.experiment.reset();
    return ok;
  }

  /// Ends the least recently used programs until there is room for the number of new ones.
  void make_room(std::size_t programs) {
    for (;;) {
      std::size_t alive = programs;
      Cell* oldest = nullptr;
      for (auto& c : cells_) {
        if (!c.experiment) continue;
        alive += Experiment::programs(options_.cases[c.what], known_[c.variant]);
        if (!oldest || c.used_s < oldest->used_s) oldest = &c;
      }
      if (alive <= alive_most_ || !oldest) return;
      oldest->experiment.reset();
    }
  }

  /// A cell with slow steps must not take the time of all others: beyond four times the mean it waits for them. A cell
  /// below the mean never waits, so that every epoch measures something.
  bool overdrawn(const Cell& cell, std::span<const Decision> decided) const {
    double spent_s = 0;
    std::size_t active = 0;
    for (const auto& c : cells_) {
      const bool open = std::any_of(c.series.begin(), c.series.end(), [&](const auto& s) {
        return series_[s.second].deciding && decided[s.second] == Decision::proceed;
      });
      if (c.broken || !open) continue;
      spent_s += c.spent_s;
      ++active;
    }
    return active > 0 && cell.spent_s > 4 * spent_s / static_cast<double>(active) + 4 * options_.burst_s;
  }

  /// Limits the samples to the size of a record.
  void thin(Samples& s) {
    if (s.value.size() <= length_) return;
    const auto positions = drawn(s.value.size(), length_, chance_);
    keep_only(s.value, positions);
    keep_only(s.offset, positions);
  }

  void failed(const Cell& cell, const Error& e) const {
    const auto& v = options_.variants[cell.variant];
    warn("bus.case_failed", v.name, v.name + ", " + options_.cases[cell.what].text + ": " + e.what, e.hint);
  }

  const Options& options_;
  Foreman foreman_;
  Domains domains_;
  Programs scouts_;               ///< one on each host, during the checks
  std::vector<Reached> reached_;  ///< for several hosts
  bool away_ = false;             ///< the hosts are several machines
  std::vector<Known> known_;
  std::vector<Cell> cells_;
  std::vector<Series> series_;
  std::set<std::string> told_;
  Results results_;
  Random chance_;
  std::uint32_t length_ = 0;
  std::size_t alive_most_;
  double began_s_ = 0;
};

int run_probe(const Options& options) {
  Control control(options.budget_s, true);
  const RuleContext rules{options.cap, 0, options.seed};
  if (auto rule = make_rule(options.rule, rules); !rule) {
    emit_error(rule.error());
    return 2;
  }
  const Instructions instructions;
  const double cycles_per_s = 1 / tick_s();
  emit(JsonLine()
           .add("event", "start")
           .add("ranks", 1)
           .add("cycles_per_s", cycles_per_s)
           .add("cycles_by", to_string(tick_kind))
           .add("instructions", instructions.state())
           .add("clock_cost_s", clock_cost_s())
           .add("load", load_average())
           .add("cores", cores())
           .add("namespace", options.own_namespace));
  if (!instructions.counted())
    warn("bus.not_counted", "", "instructions are " + instructions.state(),
         "cycles are reported from the processor's time-stamp counter");
  BusProbe probe(options, control);
  if (auto ok = probe.open(); !ok) {
    emit_error(ok.error());
    return 3;
  }
  auto sink = FileSink::create(options.dir + "/rank-00000.blk");
  if (!sink) {
    emit_error(sink.error());
    return 3;
  }
  const RecordSchema schema = probe.schema(cycles_per_s, instructions.state());
  auto writer = RecordWriter::open(
      *sink, schema, std::max<std::size_t>(256, (std::size_t{4} << 20) / schema.record_bytes), options.cap_bytes);
  if (!writer) {
    emit_error(writer.error());
    return 3;
  }
  control.leave_at_least(options.budget_s / 4);
  if (options.budget_s > 0) probe.limit_to(options.budget_s + std::clamp(options.budget_s / 4, 5.0, 30.0));
  Solo team;
  Progress last{0, probe.steps(), probe.steps(), 0, probe.cells(), 0, 0, 0};
  const auto tell = [&last, began_s = now_s()] {
    emit(JsonLine()
             .add("event", "progress")
             .add("done", last.steps_done)
             .add("active", last.steps_active)
             .add("steps", last.steps)
             .add("decided", last.cells_decided)
             .add("cells", last.cells)
             .add("epoch", last.epoch)
             .add("samples", last.samples)
             .add("elapsed_s", now_s() - began_s));
  };
  probe.while_waiting(tell);
  const Stop stop = run(
      probe, {options.epochs, options.epoch_length, 0.5, options.gap_s}, options.seed,
      [&] { return std::move(*make_rule(options.rule, rules)); }, *writer, team, control,
      [&](const Progress& p) {
        last = p;
        tell();
      });
  probe.close();
  auto synced = sink->sync();
  if (!synced) emit_error(synced.error());
  if (stop.reason == StopReason::failed) emit_error(stop.error);
  rusage use{};
  ::getrusage(RUSAGE_SELF, &use);
  emit(JsonLine()
           .add("event", "end")
           .add("stop_reason", to_string(stop.reason))
           .add("samples", stop.samples)
           .add("elapsed_s", stop.elapsed_s)
           .add("dropped", stop.dropped)
           .add("peak_rss_kib", use.ru_maxrss)
           .add("load", load_average())
           .add("cpu_s", usage().cpu_s)
           .add("programs_cpu_s", usage(RUSAGE_CHILDREN).cpu_s));
  return synced && stop.reason != StopReason::failed ? 0 : 3;
}

int run_check(const Options& options) {
  Control control(0, false);
  BusProbe probe(options, control);
  std::vector<Known> known(options.variants.size());
  bool all = true;
  for (std::size_t v = 0; v < known.size(); ++v) {
    if (auto ok = probe.learn(options.variants[v], known[v]); !ok) {
      emit_error(ok.error());
      return 3;
    }
    all = all && known[v].present;
  }
  for (const auto& c : options.cases) {
    std::vector<std::string> gives;
    for (const Q q : c.gives()) gives.emplace_back(quantities[static_cast<std::size_t>(q)].name);
    emit(JsonLine()
             .add("event", "case")
             .add("case", c.text)
             .add("test", name_of(c.test))
             .add("size", c.shown_size())
             .add("subscribers", c.shown_subscribers())
             .add("entities", c.shown_entities())
             .add("treatment", c.shown_treatment())
             .add("processes", c.processes)
             .add("quantities", gives));
  }
  return all ? 0 : 3;
}

int run_list(const Options& options) {
  auto variant =
      options.variants.empty()
          ? Variant::parse("list=" + std::string(std::getenv("SONDE_BUS") ? std::getenv("SONDE_BUS") : "cyclonedds"))
          : Result<Variant>(options.variants.front());
  if (!variant) {
    emit_error(variant.error());
    return 2;
  }
  const bool said = options.domain_first == options.domain_last;
  auto profile =
      profile_of(*variant, {.domain = said ? options.domain_first : 0, .participant = "", .peers = {}, .servers = {}});
  if (!profile) {
    emit_error(profile.error());
    return 2;
  }
  auto bus = Bus::open(*profile, variant->implementation);
  if (!bus) {
    emit_error(bus.error());
    return 3;
  }
  sleep_until(now_s() + options.seconds);
  std::string participants = "[", endpoints = "[";
  for (const auto& p : (*bus)->peers()) {
    JsonLine one;
    one.add("guid", p.guid.text()).add("name", p.name).add("host", p.host).add("pid", p.pid);
    participants += (participants.size() > 1 ? "," : "") + one.text();
  }
  for (const auto& e : (*bus)->endpoints()) {
    JsonLine one;
    one.add("guid", e.guid.text())
        .add("participant", e.participant.text())
        .add("writes", e.writes)
        .add("topic", e.topic)
        .add("type", e.type)
        .add("partitions", e.partitions)
        .add("reliability", e.reliability == Reliability::reliable ? "reliable" : "best-effort")
        .add("durability", e.durability == Durability::volatile_ ? "volatile" : "transient-local");
    endpoints += (endpoints.size() > 1 ? "," : "") + one.text();
  }
  emit(JsonLine()
           .add("domain", profile->domain)
           .add("implementation", (*bus)->implementation())
           .add("version", (*bus)->version())
           .raw("participants", participants + "]")
           .raw("endpoints", endpoints + "]"));
  return 0;
}

pid_t parent;

/// The death of the parent shows as SIGTERM, as the end of standard input, and as a closed standard output. The end of
/// input takes effect between steps, so that programs end in order. A living parent also ends the input to stop the
/// probe. The two cases differ one second later, when all threads of a killed parent are gone. Ctrl-C is a request to
/// stop, like the end of input.
void listen_to_signals() {
  parent = ::getppid();
  struct sigaction told{};
  told.sa_flags = SA_RESTART;
  told.sa_handler = [](int) { ::alarm(1); };
  ::sigaction(SIGTERM, &told, nullptr);
  told.sa_handler = [](int) {
    if (::getppid() != parent) return;
    ::signal(SIGTERM, SIG_DFL);
    ::raise(SIGTERM);
  };
  ::sigaction(SIGALRM, &told, nullptr);
  told.sa_handler = [](int) {
    const int fd = ::open("/dev/null", O_RDONLY);
    if (fd >= 0) ::dup2(fd, STDIN_FILENO);
  };
  ::sigaction(SIGINT, &told, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  const std::string verb = args.empty() ? "--help" : args[0];
  if (!args.empty()) args.erase(args.begin());
  if (verb == "--version") {
    std::cout << SONDE_VERSION << "\n";
    return 0;
  }
  if (verb == "--help") {
    std::cout << help;
    return 0;
  }
  if (verb == "peer") return run_peer(args.size() == 2 && args[0] == "--namespace" ? args[1] : "");
  if (verb != "run" && verb != "check" && verb != "list") {
    emit_error(
        {"bus.bad_option", "sonde-busprobe has no '" + verb + "'", "run, list and check: see sonde-busprobe --help"});
    return 2;
  }
  auto options = Options::parse(args, verb == "run");
  if (!options) {
    emit_error(options.error());
    return 2;
  }
  if (verb == "list") return run_list(*options);
  listen_to_signals();
  return verb == "check" ? run_check(*options) : run_probe(*options);
}
