// sonde-storebench: measures a storage service from one client: every case on every variant, interleaved.
//
// Publishes: events on stdout, a block file in --dir. Consumes: `stop` on stdin. `sonde store run` starts it, with the
// servers.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.hpp"
#include "core/control.hpp"
#include "core/json.hpp"
#include "core/runner.hpp"
#include "store/module.hpp"
#include "store/storebench/hdf5.hpp"
#include "store/storebench/load.hpp"

namespace {

using namespace sonde;
using namespace sonde::store;
using namespace sonde::store::bench;

struct Options {
  std::string dir, rule = "ci:2%", token_file, auth, hdf5;
  std::vector<std::string> servers;
  std::vector<Variant> variants;
  std::vector<Case> cases;
  Safety safety = Safety::network;
  std::uint64_t seed = 1, cap = 100000, cap_bytes = 0;
  std::uint32_t epochs = 100000, epoch_length = 50;
  double budget_s = 0, burst_s = 0.02, gap_s = 0;
};

void emit(const JsonLine& line) { std::cout << line.text() << '\n' << std::flush; }
void emit_error(const Error& e) {
  emit(JsonLine().add("event", "error").add("code", e.code).add("what", e.what).add("hint", e.hint));
}

template <typename T> bool number(const std::string& text, T& out) {
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), out);
  return why == std::errc{} && end == text.data() + text.size();
}

Result<Options> parse(const std::vector<std::string>& args) {
  Options o;
  Error deeper;
  using Take = std::function<bool(const std::string&)>;
  const auto into = [](auto& target) { return Take([&target](const std::string& v) { return number(v, target); }); };
  const std::map<std::string, Take> known{
      {"--dir",
       [&](const std::string& v) {
         o.dir = v;
         return !v.empty();
       }},
      {"--server",
       [&](const std::string& v) {
         o.servers.push_back(v);
         return !v.empty();
       }},
      {"--auth",
       [&](const std::string& v) {
         o.auth = v;
         return true;
       }},
      {"--token-file",
       [&](const std::string& v) {
         o.token_file = v;
         return true;
       }},
      {"--hdf5",
       [&](const std::string& v) {
         o.hdf5 = v;
         return !v.empty();
       }},
      {"--module",
       [&](const std::string& v) {
         auto module = load_module(v);
         if (!module) deeper = module.error();
         return bool(module);
       }},
      {"--variant",
       [&](const std::string& v) {
         auto variant = Variant::parse(v);
         if (!variant) deeper = variant.error();
         if (variant) o.variants.push_back(*variant);
         return bool(variant);
       }},
      {"--case",
       [&](const std::string& v) {
         auto what = Case::parse(v);
         if (!what) deeper = what.error();
         if (what) o.cases.push_back(*what);
         return bool(what);
       }},
      {"--safety",
       [&](const std::string& v) {
         o.safety = v == "storage" ? Safety::storage : Safety::network;
         return v == "storage" || v == "network";
       }},
      {"--rule",
       [&](const std::string& v) {
         o.rule = v;
         return true;
       }},
      {"--seed", into(o.seed)},
      {"--cap", into(o.cap)},
      {"--cap-bytes", into(o.cap_bytes)},
      {"--epochs", into(o.epochs)},
      {"--epoch-length", into(o.epoch_length)},
      {"--budget-s", into(o.budget_s)},
      {"--burst-s", into(o.burst_s)},
      {"--gap-s", into(o.gap_s)},
  };
  for (std::size_t k = 0; k < args.size(); k += 2) {
    const auto it = known.find(args[k]);
    if (it == known.end() || k + 1 == args.size() || !it->second(args[k + 1])) {
      if (!deeper.code.empty()) return deeper;
      return Error{
          "store.bad_option",
          "sonde-storebench does not understand '" + args[k] + (k + 1 < args.size() ? " " + args[k + 1] : "") + "'",
          "use `sonde store run`, which starts this program"};
    }
  }
  if (o.dir.empty() || o.variants.empty() || o.cases.empty())
    return Error{"store.bad_option", "sonde-storebench needs --dir, --variant and --case",
                 "use `sonde store run`, which starts this program"};
  if (o.epoch_length < 1 || o.epoch_length > 100000 || !(o.burst_s > 0) || !(o.budget_s >= 0))
    return Error{"store.bad_option", "epoch length must be 1 to 100000 samples, burst and budget positive times", ""};
  return o;
}

/// The folder of the HDF5 connector: lib/hdf5 next to this program's folder.
std::string plugin_folder() {
  char path[4096];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  std::string folder(path, n > 0 ? static_cast<std::size_t>(n) : 0);
  folder.resize(std::min(folder.size(), folder.rfind('/')));
  return folder + "/../lib/hdf5";
}

/// A burst of a short case begins with this much unmeasured time. Connections adapt their waiting, and the kernel its
/// placement, within about a millisecond.
constexpr double settle_s = 3e-3;

/// One cell: a case on a variant. A variant that cannot be connected, or a case that fails, is reported and left out:
/// the other results do not depend on it.
class BenchProbe final : public Probe {
 public:
  /// peers: by variant; nullptr for those that are not raw limits.
  BenchProbe(const Options& o, std::vector<Result<std::unique_ptr<RawPeer>>>& peers) : options_(o), peers_(peers) {}

  Result<void> open() {
    std::size_t memory = 4096;
    for (const auto& c : options_.cases) memory = std::max(memory, memory_of(c));
    memory_.resize(memory);
    ways_.resize(options_.variants.size());
    filled_.resize(options_.cases.size());
    if (std::any_of(options_.cases.begin(), options_.cases.end(), is_hdf5)) {
      if (options_.hdf5.empty())
        return Error{"store.bad_option", "cases of HDF5 need --hdf5",
                     "use `sonde store run`, which starts this program"};
      auto hdf5 = Hdf5::open(options_.hdf5, plugin_folder());
      if (!hdf5) return hdf5.error();
      hdf5_ = std::move(*hdf5);
    }
    for (std::size_t k = 0; k < memory_.size(); ++k) memory_[k] = static_cast<std::byte>(k * 2654435761u >> 13);
    for (const auto& v : options_.variants) {
      std::unique_ptr<Client> client;
      Config config;
      if (!v.raw()) {
        config.servers = options_.servers;
        config.transport = v.transport;
        config.link = v.link;
        config.checksum = v.checksum;
        config.tls = v.tls;
        config.auth = options_.auth;
        config.token_file = options_.token_file;
        config.connections = 1;  // the comparison is of one connection from one client
        if (options_.budget_s > 0)
          config.timeout_s = std::clamp(options_.budget_s / 4, 2.0, 30.0);  // no case may take all of the time
        auto opened = Client::open(config);
        if (!opened) {
          absent(v, opened.error());
          continue;
        }
        client = std::make_unique<Client>(std::move(*opened));
        auto info = client->status();
        JsonLine line;
        line.add("event", "variant").add("name", v.name).add("transport", v.transport);
        if (info && !info->empty())
          ways_[static_cast<std::size_t>(&v - options_.variants.data())] = {true, (*info)[0].link.provider,
                                                                            (*info)[0].link.detail};
        if (info && !info->empty())
          line.add("provider", (*info)[0].link.provider).add("detail", (*info)[0].link.detail);
        emit(line);
      } else {
        auto& peer = peers_[static_cast<std::size_t>(&v - options_.variants.data())];
        if (auto ok = peer ? (*peer)->connect(v.link.provider, memory_) : Result<void>(peer.error()); !ok) {
          absent(v, ok.error());
          continue;
        }
        ways_[static_cast<std::size_t>(&v - options_.variants.data())] = {true, (*peer)->provider(), (*peer)->detail()};
        emit(JsonLine()
                 .add("event", "variant")
                 .add("name", v.name)
                 .add("transport", v.transport)
                 .add("provider", (*peer)->provider())
                 .add("detail", (*peer)->detail()));
      }
      const auto variant = static_cast<std::uint32_t>(&v - options_.variants.data());
      for (const auto& c : options_.cases) {
        const auto what = static_cast<std::uint32_t>(&c - options_.cases.data());
        if (!v.takes(c)) continue;
        std::unique_ptr<Load> load;
        const std::string name = "bench." + std::to_string(options_.seed) + '.' + std::to_string(what);
        if (client && is_hdf5(c)) {
          const auto settings = connector_settings(config, options_.safety);
          if (!settings) return settings.error();
          const std::string file = '/' + name;
          load =
              make_hdf5_load(c, *hdf5_, *settings, file + '.' + std::to_string(variant) + ".h5", file + ".h5", memory_);
        } else if (client) {
          auto made = make_load(c, *client, name, options_.safety, memory_);
          if (!made) return made.error();
          load = std::move(*made);
        } else {
          load = make_raw_load(c, **peers_[variant], memory_);
        }
        if (auto ok = load->prepare(client && !filled_[what]); !ok) {
          failed(v, c, ok.error());
          continue;
        }
        filled_[what] = filled_[what] || client;
        waiting();
        cells_.push_back({variant, what, std::move(load), client != nullptr, false, false, 0});
      }
      if (client) clients_.push_back(std::move(client));
    }
    if (cells_.empty()) return Error{"store.nothing_to_measure", "no variant could run any case", "see the warnings"};
    return {};
  }

  void close() {
    for (auto& cell : cells_) cell.load->clean();
    cells_.clear();
    hdf5_.reset();
    clients_.clear();
  }

  std::uint32_t steps() const override { return cells(); }
  std::uint32_t cells() const override { return static_cast<std::uint32_t>(cells_.size()); }
  /// All variants of a case continue until the last of them is decided: they are compared epoch by epoch. A broken cell
  /// no longer counts, so nothing waits for its rule.
  void cells_of(std::uint32_t step, std::vector<std::uint32_t>& out) const override {
    for (std::uint32_t k = 0; k < cells_.size(); ++k)
      if (cells_[k].what == cells_[step].what && !cells_[k].broken) out.push_back(k);
  }

  Result<void> measure(const Step& step, std::span<const Decision> decided, std::vector<Burst>& out) override {
    Cell& cell = cells_[step.cell];
    value_.clear();
    offset_.clear();
    sums_ = {0, 0, 0};
    if (cell.broken || overdrawn(cell, decided)) return {};
    const double came_s = now_s();
    if (began_s_ == 0) began_s_ = came_s;
    double t0 = came_s;
    bool settling = true;
    for (std::uint32_t k = 0; k < options_.epoch_length;) {
      Stages stages{};
      auto ok = cell.load->ready();
      const std::int64_t begin = now_ns();
      if (ok) ok = cell.load->iterate(stages);
      if (!ok) {
        // A fault in one variant must not end the others: its earlier results stay.
        failed(options_.variants[cell.variant], options_.cases[cell.what], ok.error());
        cell.broken = true;
        break;
      }
      const std::int64_t end = now_ns();
      // The first iterations are discarded, so that caches, connections and the placement of both ends are settled. For
      // slow cases only the very first is discarded, for the slowest not even that.
      const double took_s = static_cast<double>(end - begin) * 1e-9, end_s = static_cast<double>(end) * 1e-9;
      settling = settling && took_s < settle_s && end_s - came_s < settle_s;
      if (const bool first = !std::exchange(cell.warm, true); settling || (first && took_s < options_.burst_s)) {
        t0 = end_s;
        continue;
      }
      ++k;
      value_.push_back(static_cast<double>(end - begin) * 1e-9);
      offset_.push_back(static_cast<float>(static_cast<double>(begin) * 1e-9 - t0));
      sums_.serialise_s += stages.serialise_s;
      sums_.wait_s += stages.wait_s;
      sums_.backend_s += stages.backend_s;
      if (static_cast<double>(end) * 1e-9 - t0 > options_.burst_s) break;
    }
    cell.spent_s += now_s() - came_s;
    if (!value_.empty()) out.push_back({step.cell, t0 - began_s_, value_, offset_});
    if (cell.broken && std::all_of(cells_.begin(), cells_.end(), [](const Cell& c) { return c.broken || !c.store; }))
      return Error{"store.nothing_left", "every case failed on every variant",
                   "see the warnings, and the server's log"};
    return {};
  }

  void record(const Step& step, const Burst& burst, Decision decision, void* out) const override {
    const Cell& cell = cells_[burst.cell];
    const auto n = static_cast<std::uint32_t>(burst.value.size());
    const std::uint32_t head[6] = {
        n == 0 ? 1u : 0u, cell.variant, cell.what, step.epoch, n, static_cast<std::uint32_t>(decision)};
    const double mean = n ? 1.0 / n : 0;
    const double rest[4] = {burst.t0, sums_.serialise_s * mean, sums_.wait_s * mean, sums_.backend_s * mean};
    const std::size_t k = options_.epoch_length;
    auto* bytes = static_cast<std::byte*>(out);
    std::memset(bytes, 0, record_bytes());
    std::memcpy(bytes, head, sizeof head);
    std::memcpy(bytes + sizeof head, rest, sizeof rest);
    std::memcpy(bytes + sizeof head + sizeof rest, burst.value.data(), n * sizeof(double));
    std::memcpy(bytes + sizeof head + sizeof rest + k * sizeof(double), burst.offset.data(), n * sizeof(float));
  }

  RecordSchema schema() const {
    const std::string k = std::to_string(options_.epoch_length);
    std::string fields = "[";
    for (const char* name : {"kind", "variant", "case", "epoch", "n", "code"})
      fields += "[\"" + std::string(name) + "\",\"<u4\",[]],";
    for (const char* name : {"t0", "serialise", "wait", "backend"})
      fields += "[\"" + std::string(name) + "\",\"<f8\",[]],";
    fields += R"(["value","<f8",[)" + k + R"(]],["offset","<f4",[)" + k + "]]]";
    std::vector<std::string> variants, cases, providers, details;
    std::string connected = "[";
    for (const auto& v : options_.variants) variants.push_back(v.name);
    for (const auto& way : ways_) {
      connected += (connected.size() > 1 ? "," : "") + std::string(way.connected ? "true" : "false");
      providers.push_back(way.provider);
      details.push_back(way.detail);
    }
    for (const auto& c : options_.cases) cases.push_back(c.text());
    JsonLine header;
    header.raw("fields", fields).add("schema", "store/1").add("rank", 0).add("ranks", 1);
    header.add("variants", variants).add("cases", cases).add("epoch_length", options_.epoch_length);
    header.raw("connected", connected + "]").add("providers", providers).add("details", details);
    return {header.text(), record_bytes()};
  }

 private:
  struct Cell {
    std::uint32_t variant, what;
    std::unique_ptr<Load> load;
    bool store;  ///< not a raw limit
    bool broken;
    bool warm = false;
    double spent_s = 0;
  };
  /// A variant that takes seconds for one iteration must not take the time of all others: beyond four times the mean it
  /// waits for them. A variant below the mean is never delayed, so every epoch has a measurement.
  bool overdrawn(const Cell& cell, std::span<const Decision> decided) const {
    double spent_s = 0;
    std::size_t active = 0;
    for (std::size_t k = 0; k < cells_.size(); ++k)
      if (!cells_[k].broken && decided[k] == Decision::proceed) {
        spent_s += cells_[k].spent_s;
        ++active;
      }
    return active > 0 && cell.spent_s > 4 * spent_s / static_cast<double>(active) + options_.burst_s;
  }
  std::size_t record_bytes() const { return 6 * 4 + 4 * 8 + std::size_t{options_.epoch_length} * 12; }

  /// Reports that it is alive, while connections and data are made.
  void waiting() {
    if (now_s() - said_s_ < 0.2) return;
    said_s_ = now_s();
    emit(JsonLine()
             .add("event", "progress")
             .add("done", 0)
             .add("active", cells_.size())
             .add("steps", cells_.size())
             .add("decided", 0)
             .add("cells", options_.variants.size() * options_.cases.size())
             .add("epoch", 0)
             .add("samples", 0)
             .add("elapsed_s", 0.0));
  }

  static void absent(const Variant& v, const Error& e) {
    emit(JsonLine()
             .add("event", "warning")
             .add("code", "store.variant_absent")
             .add("variant", v.name)
             .add("evidence", v.name + ": " + e.what)
             .add("hint", e.hint));
  }
  /// A server that is too slow. The wait for it depends on the total time, which only the user can raise.
  void failed(const Variant& v, const Case& c, const Error& e) const {
    const bool late = e.code == "store.timed_out" && options_.budget_s > 0;
    emit(JsonLine()
             .add("event", "warning")
             .add("code", "store.case_failed")
             .add("variant", v.name)
             .add("evidence", v.name + ", " + c.text() + ": " + e.what)
             .add("hint",
                  late ? "give a longer --budget: the wait for an answer is a quarter of it, from 2 to 30 s" : e.hint));
  }

  /// The way in which a variant was connected to the server.
  struct Way {
    bool connected = false;
    std::string provider, detail;
  };

  const Options& options_;
  std::vector<Result<std::unique_ptr<RawPeer>>>& peers_;
  std::vector<Way> ways_;
  std::unique_ptr<Hdf5> hdf5_;  ///< destroyed after the loads
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Cell> cells_;
  std::vector<std::byte> memory_;
  std::vector<double> value_;
  std::vector<float> offset_;
  Stages sums_{};
  std::vector<bool> filled_;  ///< by case: whether the data for reads exists
  double began_s_ = 0, said_s_ = 0;
};

int measure(const Options& options, std::vector<Result<std::unique_ptr<RawPeer>>>& peers) {
  sonde::Control control(options.budget_s, true);
  BenchProbe probe(options, peers);
  const RuleContext rules{options.cap, 0, options.seed};
  auto rule = make_rule(options.rule, rules);
  if (!rule) {
    emit_error(rule.error());
    return 2;
  }
  emit(JsonLine()
           .add("event", "start")
           .add("ranks", 1)
           .add("mpi", "")
           .add("mpi_version", "")
           .add("oversubscribed", false)
           .add("ranks_on_node", 1)
           .add("clock_cost_s", clock_cost_s())
           .add("forwarding_ranks", 0));
  if (auto ok = probe.open(); !ok) {
    emit_error(ok.error());
    return 3;
  }
  auto sink = FileSink::create(options.dir + "/rank-00000.blk");
  if (!sink) {
    emit_error(sink.error());
    return 3;
  }
  const RecordSchema schema = probe.schema();
  auto writer = RecordWriter::open(
      *sink, schema, std::max<std::size_t>(64, (std::size_t{4} << 20) / schema.record_bytes), options.cap_bytes);
  if (!writer) {
    emit_error(writer.error());
    return 3;
  }
  control.leave_at_least(options.budget_s / 4);
  Solo team;
  const Stop stop = run(
      probe, {options.epochs, options.epoch_length, 0.5, options.gap_s}, options.seed,
      [&] { return std::move(*make_rule(options.rule, rules)); }, *writer, team, control,
      [](const Progress& p) {
        emit(JsonLine()
                 .add("event", "progress")
                 .add("done", p.steps_done)
                 .add("active", p.steps_active)
                 .add("steps", p.steps)
                 .add("decided", p.cells_decided)
                 .add("cells", p.cells)
                 .add("epoch", p.epoch)
                 .add("samples", p.samples)
                 .add("elapsed_s", p.elapsed_s));
      });
  probe.close();
  auto synced = sink->sync();
  if (!synced) emit_error(synced.error());
  if (stop.reason == StopReason::failed) emit_error(stop.error);
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  emit(JsonLine()
           .add("event", "end")
           .add("stop_reason", to_string(stop.reason))
           .add("samples", stop.samples)
           .add("elapsed_s", stop.elapsed_s)
           .add("dropped", stop.dropped)
           .add("peak_rss_kib", use.ru_maxrss));
  return synced && stop.reason != StopReason::failed ? 0 : 3;
}

pid_t parent;

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && args[0] == "--version") {
    std::cout << SONDE_VERSION << "\n";
    return 0;
  }
  if (args.size() == 2 && args[0] == "--try-hdf5") {
    const auto hdf5 = Hdf5::open(args[1], plugin_folder());
    if (!hdf5) {
      emit_error(hdf5.error());
      return 3;
    }
    emit(JsonLine().add("event", "hdf5").add("version", (*hdf5)->version()));
    return 0;
  }
  auto options = parse(args);
  if (!options) {
    emit_error(options.error());
    return 2;
  }
  std::vector<Result<std::unique_ptr<RawPeer>>> peers;
  // Sockets first: libfabric may start threads, and after that no process should be made by fork().
  for (const auto& v : options->variants)
    peers.push_back(v.transport == "raw-tcp" ? RawPeer::start_tcp() : Result<std::unique_ptr<RawPeer>>(nullptr));
  for (const auto& v : options->variants)
    if (v.transport == "raw-ofi") peers[static_cast<std::size_t>(&v - options->variants.data())] = RawPeer::start_ofi();
  // Three signs show that the parent has died: SIGTERM, the end of standard input, and a standard output that leads
  // nowhere. The end of input is handled between bursts: data on the user's servers is removed before this program
  // ends. If the parent is alive, SIGTERM is an order to stop. Which case it is, shows a second later: the kernel sends
  // the signal when the thread that started this process is gone, and the other threads of a killed process may not be
  // gone yet.
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
  ::signal(SIGPIPE, SIG_IGN);
  return measure(*options, peers);
}
