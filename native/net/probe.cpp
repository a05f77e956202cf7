#include "net/probe.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "core/clock.hpp"
#include "core/json.hpp"
#include "core/pairing.hpp"
#include "core/random.hpp"
#include "core/stats/summary.hpp"
#include "mpi/polite.hpp"

namespace sonde::net {

namespace {

enum RecordKind : std::uint32_t { burst_record = 0, verdict_record = 1, clock_record = 2 };

// The record's fixed part; `value` and `offset` follow, epoch_length long each.
struct RecordHead {
  std::uint32_t kind, mode, src, dst, size, epoch, n, code;
  double t0;
};
static_assert(sizeof(RecordHead) == 40);

constexpr std::uint32_t interference_rounds = 7, interference_samples = 20;
constexpr int interference_pairs = 8;
// Parallel pairs may cost each other this much before they are measured one by one.
constexpr double tolerated_median = 1.05, tolerated_worst = 1.25;

std::byte* page_aligned(std::size_t bytes) {
  void* p = nullptr;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096;
  if (posix_memalign(&p, 4096, rounded) != 0) return nullptr;
  std::memset(p, 0x5a, rounded);  // touched now: a page fault in a sample would look like the network
  return static_cast<std::byte*>(p);
}

}  // namespace

NetProbe::NetProbe(const Options& options, MpiTeam& team, Forwarding& forwarding)
    : options_(options), team_(team), forwarding_(forwarding) {}

NetProbe::~NetProbe() {
  std::free(send_);
  std::free(recv_);
}

Result<std::unique_ptr<NetProbe>> NetProbe::make(const Options& options, MpiTeam& team, Forwarding& forwarding) {
  std::unique_ptr<NetProbe> probe(new NetProbe(options, team, forwarding));
  bool everyone = false;
  for (const auto& name : options.modes) {
    auto mode = make_mode(name);
    if (!mode) return Error{"net.unknown_mode", "mode '" + name + "' is not known", "see sonde net run --help"};
    everyone |= mode->info().pattern == Pattern::everyone;
    probe->modes_.push_back(std::move(mode));
  }
  const std::size_t longest = *std::max_element(options.sizes.begin(), options.sizes.end());
  const std::size_t stride = (std::max({longest, options.noise_bytes, std::size_t{64}}) + 63) / 64 * 64;
  const std::size_t room = stride * (everyone ? static_cast<std::size_t>(team.size()) : 1);
  probe->send_ = page_aligned(stride);
  probe->recv_ = page_aligned(room);
  if (!probe->send_ || !probe->recv_)
    return Error{"net.out_of_memory",
                 "no memory for messages of " + std::to_string(longest) + " B from " +
                     std::to_string(everyone ? team.size() : 1) + " ranks",
                 "ask for shorter messages with --sizes"};
  Context& ctx = probe->ctx_;
  ctx = {team.comm(),     team.rank(), team.size(), probe->send_,   probe->recv_,        stride,
         Value::rtt_half, 0,           0,           &probe->clock_, options.noise_bytes, options.noise_ranks,
         options.seed};
  for (const auto& [rank, error] : options.inject_clock)
    if (rank == team.rank()) std::tie(ctx.clock_ahead_s, ctx.clock_fast) = error;
  for (std::size_t m = 0; m < probe->modes_.size(); ++m) probe->needs_clock_ |= probe->value_of(m) == Value::one_way;
  if (!options.pairs.empty()) {
    const auto n = static_cast<std::size_t>(team.size());
    probe->wanted_.assign(n, std::vector<std::uint8_t>(n, 0));
    for (const auto& [a, b] : options.pairs) {
      if (a < 0 || b < 0 || a >= team.size() || b >= team.size() || a == b)
        return Error{"net.bad_pair",
                     "pair " + std::to_string(a) + "-" + std::to_string(b) + " is not one of two of the " +
                         std::to_string(team.size()) + " ranks",
                     "ranks are counted from 0"};
      probe->wanted_[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] = 1;
      probe->wanted_[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] = 1;
    }
  }
  return probe;
}

bool NetProbe::wanted(int a, int b) const {
  return a >= 0 && b >= 0 && (wanted_.empty() || wanted_[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)]);
}

Value NetProbe::value_of(std::size_t mode) const {
  const ModeInfo& info = modes_[mode]->info();
  return info.value_choice && options_.value ? *options_.value : info.value;
}

bool NetProbe::by_receiver(std::size_t mode) const {
  const Value value = value_of(mode);
  return modes_[mode]->info().by_receiver || value == Value::one_way || value == Value::recv_duration;
}

void NetProbe::open() {
  for (auto& mode : modes_) mode->open(ctx_);
  samples_.resize(static_cast<std::size_t>(std::max(team_.size(), 2)));
  team_.barrier();
  // One zero for the ranks of a node, else the times of two ranks differ by what they took to leave the barrier.
  began_s_ = team_.least_on_node(now_s());
  if (needs_clock_) {
    // A line needs points that stand apart; later points come after every epoch.
    for (int point = 0; point < 8; ++point) {
      synchronise_clocks();
      const timespec pause{0, 40'000'000};
      nanosleep(&pause, nullptr);
    }
  }
  check_interference();
  lay_out();
}

void NetProbe::close() {
  for (auto& mode : modes_) mode->close(ctx_);
}

void NetProbe::lay_out() {
  const int n = team_.size(), me = team_.rank();
  const auto sizes = static_cast<std::uint32_t>(options_.sizes.size());
  cell_index_.assign(modes_.size() * sizes * static_cast<std::size_t>(n), -1);
  for (std::uint32_t m = 0; m < modes_.size(); ++m) {
    const Pattern pattern = modes_[m]->info().pattern;
    for (std::uint32_t s = 0; s < sizes; ++s) {
      for (int peer = 0; peer < n; ++peer) {
        if (peer == me || ((pattern == Pattern::pairs || pattern == Pattern::one_pair) && !wanted(me, peer))) continue;
        cell_index_[(std::size_t{m} * sizes + s) * static_cast<std::size_t>(n) + static_cast<std::size_t>(peer)] =
            static_cast<std::int32_t>(cells_.size());
        cells_.push_back({m, s, peer, 0});
      }
      if (pattern == Pattern::everyone) {
        plan_.push_back({m, s, -1, -1});
      } else if (pattern == Pattern::rooted) {
        for (int root = 0; root < n; ++root) plan_.push_back({m, s, root, -1});
      } else if (pattern == Pattern::pairs && parallel_) {
        for (int round = 0; round < pairing_rounds(n); ++round) {
          bool any = wanted_.empty();
          for (int r = 0; r < n && !any; ++r) any = wanted(r, pairing_partner(r, round, n));
          if (any) plan_.push_back({m, s, round, -1});
        }
      } else {
        for (int a = 0; a < n; ++a)
          for (int b = a + 1; b < n; ++b)
            if (wanted(a, b)) plan_.push_back({m, s, a, b});
      }
    }
  }
}

int NetProbe::cell_of(std::uint32_t mode, std::uint32_t size, int peer) const {
  return cell_index_[(std::size_t{mode} * options_.sizes.size() + size) * static_cast<std::size_t>(team_.size()) +
                     static_cast<std::size_t>(peer)];
}

void NetProbe::cells_of(std::uint32_t step, std::vector<std::uint32_t>& out) const {
  const Plan& plan = plan_[step];
  const int me = team_.rank();
  auto push = [&](int peer) {
    if (peer < 0 || peer == me) return;
    if (const int cell = cell_of(plan.mode, plan.size, peer); cell >= 0)
      out.push_back(static_cast<std::uint32_t>(cell));
  };
  switch (modes_[plan.mode]->info().pattern) {
    case Pattern::everyone:
      for (int peer = 0; peer < team_.size(); ++peer) push(peer);
      break;
    case Pattern::rooted: push(plan.a); break;
    case Pattern::pairs:
    case Pattern::one_pair:
      if (plan.b < 0) push(pairing_partner(me, plan.a, team_.size()));
      else if (plan.a == me) push(plan.b);
      else if (plan.b == me) push(plan.a);
  }
}

// A burst should not outlast burst_s: many short bursts see more of the network's moods than few long ones.
std::uint32_t NetProbe::burst_length(int cell) const {
  const double one = cells_[static_cast<std::size_t>(cell)].sample_s;
  const std::uint32_t longest = options_.epoch_length;
  if (one <= 0)
    return std::min(longest, options_.sizes[cells_[static_cast<std::size_t>(cell)].size] > 65536 ? 4u : longest);
  return std::clamp(static_cast<std::uint32_t>(options_.burst_s / one), std::min(4u, longest), longest);
}

// scale: seconds of wall time that one second of value stands for.
void NetProbe::keep(int cell, std::size_t slot, double scale, std::vector<Burst>& out) {
  Samples& s = samples_[slot];
  if (cell < 0 || s.value.empty()) return;
  Cell& c = cells_[static_cast<std::size_t>(cell)];
  c.sample_s = std::max(1e-9, scale * stats::median(s.value));
  const bool mine_is_src = !by_receiver(c.mode);
  const int src = mine_is_src ? team_.rank() : c.peer, dst = mine_is_src ? c.peer : team_.rank();
  for (const auto& [pair, extra_s] : options_.inject_slow)
    if (pair.first == src && pair.second == dst)
      for (double& v : s.value) v += extra_s;
  out.push_back({static_cast<std::uint32_t>(cell), s.t0 - began_s_, s.value, s.offset});
}

Result<void> NetProbe::measure(const Step& step, std::span<const Decision> decided, std::vector<Burst>& out) {
  const Plan& plan = plan_[step.cell];
  const Pattern pattern = modes_[plan.mode]->info().pattern;
  ctx_.value = value_of(plan.mode);
  for (auto& s : samples_) s.value.clear();
  if (pattern == Pattern::everyone || pattern == Pattern::rooted) {
    measure_all(plan, out);
    return {};
  }
  const int me = team_.rank();
  int peer = -1;
  if (plan.b < 0) peer = pairing_partner(me, plan.a, team_.size());
  else if (plan.a == me) peer = plan.b;
  else if (plan.b == me) peer = plan.a;
  if (pattern == Pattern::pairs && !wanted(me, peer)) return {};
  measure_pair(plan, step, peer, decided, out);
  return {};
}

void NetProbe::measure_pair(const Plan& plan, const Step& step, int peer, std::span<const Decision> decided,
                            std::vector<Burst>& out) {
  Mode& mode = *modes_[plan.mode];
  const bool bystander = peer < 0;  // of a noise mode
  const int me = team_.rank();
  const int low = bystander ? plan.a : std::min(me, peer), high = bystander ? plan.b : std::max(me, peer);
  const bool receiver_measures = by_receiver(plan.mode);
  const std::size_t bytes = options_.sizes[plan.size];
  const int cell = bystander ? -1 : cell_of(plan.mode, plan.size, peer);

  // Both must know whether either direction still wants samples, and how many.
  std::uint32_t mine[2] = {0, 0}, theirs[2] = {0, 0};
  if (!bystander) {
    mine[0] = decided[static_cast<std::size_t>(cell)] == Decision::proceed || mode.info().pattern == Pattern::one_pair;
    mine[1] = burst_length(cell);
    MPI_Request both[2];
    MPI_Irecv(theirs, 2, MPI_UINT32_T, peer, tag_control, ctx_.comm, &both[0]);
    MPI_Isend(mine, 2, MPI_UINT32_T, peer, tag_control, ctx_.comm, &both[1]);
    polite::wait_all(2, both);
  }
  for (int turn = 0; turn < 2; ++turn) {
    const bool upwards = ((step.epoch + static_cast<std::uint32_t>(turn)) % 2) == 0;  // who goes first takes turns
    const int src = upwards ? low : high, dst = upwards ? high : low;
    const bool i_measure = !bystander && (receiver_measures ? dst == me : src == me);
    const std::uint32_t* who = i_measure ? mine : theirs;
    if (!bystander && !who[0]) continue;
    mode.pair(ctx_, src, dst, bytes, who[1], options_.warmup, samples_[static_cast<std::size_t>(turn)]);
    if (i_measure) keep(cell, static_cast<std::size_t>(turn), 2, out);
  }
}

void NetProbe::measure_all(const Plan& plan, std::vector<Burst>& out) {
  std::uint32_t n = options_.epoch_length;
  for (int peer = 0; peer < team_.size(); ++peer)
    if (const int cell = peer == team_.rank() ? -1 : cell_of(plan.mode, plan.size, peer); cell >= 0)
      n = std::min(n, burst_length(cell));
  MPI_Request agreed;
  MPI_Iallreduce(MPI_IN_PLACE, &n, 1, MPI_UINT32_T, MPI_MIN, ctx_.comm, &agreed);
  polite::wait(agreed);
  modes_[plan.mode]->all(ctx_, plan.a, options_.sizes[plan.size], n, options_.warmup, samples_);
  for (int peer = 0; peer < team_.size(); ++peer)
    if (peer != team_.rank()) keep(cell_of(plan.mode, plan.size, peer), static_cast<std::size_t>(peer), 2, out);
}

void NetProbe::record(const Step& step, const Burst& burst, Decision decision, void* out) const {
  const Cell& cell = cells_[burst.cell];
  const auto me = static_cast<std::uint32_t>(team_.rank()), peer = static_cast<std::uint32_t>(cell.peer);
  const bool receiver_measures = by_receiver(cell.mode);
  const auto n = static_cast<std::uint32_t>(burst.value.size());
  const RecordHead head{n == 0 ? verdict_record : burst_record,
                        cell.mode,
                        receiver_measures ? peer : me,
                        receiver_measures ? me : peer,
                        cell.size,
                        step.epoch,
                        n,
                        static_cast<std::uint32_t>(decision),
                        burst.t0};
  const std::size_t k = options_.epoch_length;
  auto* bytes = static_cast<std::byte*>(out);
  std::memset(bytes, 0, sizeof head + k * 12);
  std::memcpy(bytes, &head, sizeof head);
  std::memcpy(bytes + sizeof head, burst.value.data(), n * sizeof(double));
  std::memcpy(bytes + sizeof head + k * sizeof(double), burst.offset.data(), n * sizeof(float));
}

Result<void> NetProbe::between_epochs(RecordWriter& writer) {
  if (needs_clock_) {
    synchronise_clocks();
    if (void* out = options_.epoch_length >= 3 ? writer.reserve() : nullptr) {
      RecordHead head{clock_record, 0, static_cast<std::uint32_t>(team_.rank()), 0, 0, 0, 3, 0, now_s() - began_s_};
      const double value[3] = {clock_.offset(), clock_.drift(), clock_.error()};
      auto* bytes = static_cast<std::byte*>(out);
      std::memset(bytes, 0, sizeof head + std::size_t{options_.epoch_length} * 12);
      std::memcpy(bytes, &head, sizeof head);
      std::memcpy(bytes + sizeof head, value, sizeof value);
      writer.commit();
    }
    if (auto done = writer.flush(); !done) return done;
  }
  return forwarding_.drain();
}

RecordSchema NetProbe::schema(const Place& place) const {
  const std::string k = std::to_string(options_.epoch_length);
  std::string fields = "[";
  for (const char* name : {"kind", "mode", "src", "dst", "size", "epoch", "n", "code"})
    fields += "[\"" + std::string(name) + "\",\"<u4\",[]],";
  fields += R"(["t0","<f8",[]],["value","<f8",[)" + k + R"(]],["offset","<f4",[)" + k + "]]]";
  std::vector<std::string> values;
  for (std::size_t m = 0; m < modes_.size(); ++m) values.emplace_back(to_string(value_of(m)));
  JsonLine header;
  header.raw("fields", fields).add("schema", "net/1").add("rank", team_.rank()).add("ranks", team_.size());
  header.add("sizes", options_.sizes).add("modes", options_.modes).add("values", values);
  header.add("epoch_length", options_.epoch_length);
  header.add_name("host", place.host).add("cpu", place.cpu).add("core", place.core).add("l3", place.l3);
  header.add("numa", place.numa).add("package", place.package);
  return {header.text(), sizeof(RecordHead) + std::size_t{options_.epoch_length} * 12};
}

// Rank 0 answers one rank after the other; each keeps the best of twenty exchanges.
void NetProbe::synchronise_clocks() {
  constexpr int batch = 20;
  if (team_.rank() == 0) {
    for (int r = 1; r < team_.size(); ++r)
      for (int k = 0; k < batch; ++k) {
        polite::recv(nullptr, 0, MPI_BYTE, r, tag_clock, ctx_.comm);
        const double now = ctx_.now();
        polite::send(&now, 1, MPI_DOUBLE, r, tag_clock, ctx_.comm);
      }
    clock_.add({ctx_.now(), 0, 0});
  } else {
    std::vector<ClockExchange> exchanges;
    for (int k = 0; k < batch; ++k) {
      ClockExchange x{};
      x.before = ctx_.now();
      polite::send(nullptr, 0, MPI_BYTE, 0, tag_clock, ctx_.comm);
      polite::recv(&x.reference, 1, MPI_DOUBLE, 0, tag_clock, ctx_.comm);
      x.after = ctx_.now();
      exchanges.push_back(x);
    }
    clock_.add(best_clock_point(exchanges));
  }
}

// The same pairs, alone and together with the rest of their round, in turns, so that a change of the machine's
// load meets both alike.
void NetProbe::check_interference() {
  Mode* mode = nullptr;
  for (std::size_t m = 0; m < modes_.size() && !mode; ++m)
    if (modes_[m]->info().pattern == Pattern::pairs) {
      mode = modes_[m].get();
      ctx_.value = value_of(m) == Value::one_way || value_of(m) == Value::recv_duration ? Value::rtt_half : value_of(m);
    }
  parallel_ = options_.pairing != Pairing::serial && mode != nullptr;
  if (options_.pairing != Pairing::automatic || !mode) return;
  const int n = team_.size(), me = team_.rank();
  if (n < 4) {  // a round holds one pair
    parallel_ = true;
    return;
  }
  interference_.checked = true;
  const bool receiver = mode->info().by_receiver;
  const std::size_t sizes[2] = {options_.sizes.front(), std::min<std::size_t>(options_.sizes.back(), 1 << 16)};
  Random random(options_.seed);
  const int round = static_cast<int>(random.below(static_cast<std::uint64_t>(pairing_rounds(n))));
  const int peer = pairing_partner(me, round, n);
  std::vector<int> firsts;  // the lower rank of each sampled pair
  for (int r = 0; r < n && static_cast<int>(firsts.size()) < interference_pairs; ++r)
    if (const int p = pairing_partner(r, round, n); p > r) firsts.push_back(r);

  std::vector<double> ratios;  // this rank's: log(together / alone), one a repetition and size
  auto once = [&](std::size_t bytes) {
    Samples& s = samples_[0];
    const int low = std::min(me, peer), high = std::max(me, peer);
    s.value.clear();
    mode->pair(ctx_, low, high, bytes, interference_samples, options_.warmup, s);
    return s.value.empty() ? 0.0 : stats::median(s.value);
  };
  for (std::uint32_t rep = 0; rep < interference_rounds; ++rep)
    for (const std::size_t bytes : sizes) {
      double alone = 0, together = 0;
      for (const int first : firsts) {
        team_.barrier();
        if (peer >= 0 && (me == first || peer == first)) alone = once(bytes);
      }
      team_.barrier();
      if (peer >= 0) together = once(bytes);
      if (alone > 0 && together > 0 && (receiver ? me > peer : me < peer)) ratios.push_back(std::log(together / alone));
    }
  double mine = ratios.empty() ? std::nan("") : stats::median(ratios);
  std::vector<double> all(static_cast<std::size_t>(n));
  MPI_Allgather(&mine, 1, MPI_DOUBLE, all.data(), 1, MPI_DOUBLE, ctx_.comm);
  std::erase_if(all, [](double v) { return std::isnan(v); });
  interference_.pairs = static_cast<int>(all.size());
  if (!all.empty()) {
    interference_.median_ratio = std::exp(stats::median(all));
    interference_.worst_ratio = std::exp(*std::max_element(all.begin(), all.end()));
  }
  interference_.passed = interference_.median_ratio <= tolerated_median && interference_.worst_ratio <= tolerated_worst;
  parallel_ = interference_.passed;
}

}  // namespace sonde::net
