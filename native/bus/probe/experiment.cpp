#include "bus/probe/experiment.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "bus/probe/drawn.hpp"
#include "core/clock.hpp"

namespace sonde::bus::probe {

namespace {

const double nan = std::nan("");

/// A pair of programs, with an endpoint pair for questions and one for answers.
class PairExperiment : public Experiment {
 public:
  using Experiment::Experiment;

 protected:
  Result<void> start(const ProgramOptions& how = {}) {
    rig_->expect(2);
    auto a = rig_->add(how), b = rig_->add(how);
    if (!a) return a.error();
    if (!b) return b.error();
    a_ = *a;
    b_ = *b;
    return {};
  }
  Result<void> open(std::uint32_t domain = 0, const std::string& suffix = "") {
    return rig_->open({{a_, "A" + suffix, ""}, {b_, "B" + suffix, ""}}, domain);
  }

  struct Lane {
    std::string name, topic, place;   ///< place: what follows A and B
    std::string partition, wildcard;  ///< of senders; of receivers
  };
  /// Opens the endpoints for questions and answers, and starts the thread that answers.
  Result<void> lane(const Lane& lane, bool spin = false) {
    const bool best_effort = what_.reliability == Reliability::best_effort;
    const Channel ask{.topic = lane.topic + "_ask",
                      .best_effort = best_effort,
                      .to_partition = lane.partition,
                      .from_partition = lane.wildcard};
    const Channel tell{.topic = lane.topic + "_tell",
                       .best_effort = best_effort,
                       .to_partition = lane.partition,
                       .from_partition = lane.wildcard};
    if (auto ok = rig_->channel({a_, "A" + lane.place, lane.name + ".ask"},
                                {{b_, "B" + lane.place, lane.name + ".asked"}}, ask);
        !ok)
      return ok;
    if (auto ok = rig_->channel({b_, "B" + lane.place, lane.name + ".tell"},
                                {{a_, "A" + lane.place, lane.name + ".told"}}, tell);
        !ok)
      return ok;
    return echo(lane.name, spin);
  }
  Result<void> echo(const std::string& name, bool spin) {
    auto ok = rig_->foreman().ask(*b_, Talk("echo")
                                           .with("id", name + ".echo")
                                           .with("from", name + ".asked")
                                           .with("to", name + ".tell")
                                           .with("size", what_.size)
                                           .with("spin", spin));
    if (!ok) return ok.error();
    return {};
  }
  Talk ping(const std::vector<std::string>& to, const std::vector<std::string>& from, std::uint32_t n, double burst_s) {
    return std::move(Talk("ping")
                         .with("to", to)
                         .with("from", from)
                         .with("size", what_.size)
                         .with("n", n)
                         .with("burst_s", burst_s)
                         .with("burst", rig_->next_burst())
                         .with("same_host", rig_->same_host()));
  }
  Result<void> take(const Talk& told, Results& r, double within_s) {
    auto answer = rig_->foreman().ask(*a_, told, within_s);
    if (!answer) return answer.error();
    r.t0_ns = answer->number<std::int64_t>("t0_ns");
    const auto offset = answer->numbers("offset");
    r.add(Q::rtt, answer->numbers("rtt"), offset);
    r.add(Q::publish, answer->numbers("publish"), offset);
    if (rig_->same_host()) r.add(Q::one_way, answer->numbers("one_way"), offset);
    r.add(Q::cycles, answer->numbers("cycles"), offset);
    r.add(Q::instructions, answer->numbers("instructions"));
    r.add(Q::page_faults, answer->numbers("page_faults"), offset);
    r.add(Q::context_switches, answer->numbers("context_switches"), offset);
    r.add(Q::lost, answer->numbers("lost"));
    return {};
  }
  double within_s() const { return 10 + 2 * rig_->options().burst_s; }

  Program *a_ = nullptr, *b_ = nullptr;
};

class Latency final : public PairExperiment {
 public:
  using PairExperiment::PairExperiment;
  Result<void> set_up() override {
    if (auto ok = start(); !ok) return ok;
    if (auto ok = open(); !ok) return ok;
    return lane({"l", rig_->topic(), "", "", ""});
  }
  Result<void> visit(Results& r) override {
    return take(ping({"l.ask"}, {"l.told"}, rig_->options().epoch_length, rig_->options().burst_s).with("settle", true),
                r, within_s());
  }
};

class Partitions final : public PairExperiment {
 public:
  using PairExperiment::PairExperiment;
  Result<void> set_up() override {
    if (auto ok = start(); !ok) return ok;
    if (auto ok = open(); !ok) return ok;
    const auto& o = rig_->options();
    if (const auto most = o.domain_last - o.domain_first + 1; what_.has("domain") && what_.count > most)
      return Error{"bus.unsupported",
                   std::to_string(what_.count) + " domains of " + std::to_string(most) + " that may be used",
                   "allow more by --domains, or ask for fewer"};
    const std::string base = rig_->topic();
    for (std::uint32_t k = 0; k < what_.count; ++k) {
      const std::string name = "l" + std::to_string(k), number = std::to_string(k);
      Result<void> ok;
      if (what_.has("domain")) {
        if (k > 0) {
          if (ok = open(rig_->more_domain(), number); !ok) return ok;
        }
        ok = lane({name, base, k > 0 ? number : "", "", ""});
      } else if (what_.has("topic")) {
        ok = lane({name, base + "_" + number, "", "", ""});
      } else if (what_.has("partition")) {
        ok = lane({name, base, "", "node" + number, "node" + number});
      } else if (k == 0) {
        // One reader for all partitions, and its answers likewise: what a wildcard is for.
        ok = lane({name, base, "", "node" + number, "node*"});
      } else {
        ok = rig_->sender_for({a_, "A", name + ".ask"}, 1, {.topic = base + "_ask", .to_partition = "node" + number});
      }
      if (!ok) return ok;
      to_.push_back(name + ".ask");
      if (k == 0 || !what_.has("wildcard")) from_.push_back(name + ".told");
    }
    return {};
  }
  Result<void> visit(Results& r) override {
    return take(ping(to_, from_, rig_->options().epoch_length, rig_->options().burst_s).with("settle", true), r,
                within_s());
  }

 private:
  std::vector<std::string> to_, from_;
};

/// A single message, in programs created for it.
class First final : public PairExperiment {
 public:
  using PairExperiment::PairExperiment;
  Result<void> set_up() override {
    if (auto ok = start({.bind_now = what_.has("after-lookup")}); !ok) return ok;
    if (what_.has("prefaulted")) {
      auto locked = rig_->foreman().ask({{a_, Talk("lock")}, {b_, Talk("lock")}});
      if (!locked) return locked.error();
    }
    if (auto ok = open(); !ok) return ok;
    const bool spin = what_.has("spinning-subscriber");
    if (auto ok = lane({"l", rig_->topic(), "", "", ""}, spin); !ok) return ok;
    if (what_.has("warm-other-topic"))
      if (auto ok = lane({"w", rig_->topic() + "_warm", "", "", ""}, spin); !ok) return ok;
    if (what_.has("warm-same-participant-new-writer"))
      if (auto ok = rig_->sender_for(
              {a_, "A", "new.ask"}, 1,
              {.topic = rig_->topic() + "_ask", .best_effort = what_.reliability == Reliability::best_effort});
          !ok)
        return ok;
    if (what_.has("awake-cores")) {
      std::vector<Foreman::Order> orders{{a_, Talk("awake").with("on", true)}};
      if (!rig_->same_host()) orders.push_back({b_, Talk("awake").with("on", true)});
      auto awake = rig_->foreman().ask(orders);
      if (!awake) return awake.error();
    }
    // The rest of discovery, which continues after the match, is not measured.
    return rig_->foreman().pause(quiet_s);
  }
  Result<void> visit(Results& r) override {
    const std::uint32_t length = rig_->options().epoch_length;
    const bool steady = what_.has("steady"), pause = what_.has("pause"),
               fresh = what_.has("warm-same-participant-new-writer");
    const std::uint32_t n = steady || what_.early() ? length : pause ? std::min(length, paused) : 1;
    Talk told =
        ping({fresh ? "new.ask" : "l.ask"}, {"l.told"}, n, steady || what_.early() ? rig_->options().burst_s : 600);
    told.with("audit", true)
        .with("spin", what_.has("spinning-subscriber"))
        .with("pause_s", pause ? what_.pause_s : 0.0);
    if (steady || pause || fresh || what_.has("warm-other-topic")) {
      const std::string warm = what_.has("warm-other-topic") ? "w" : "l";
      told.with("warm_to", std::vector<std::string>{warm + ".ask"})
          .with("warm_from", std::vector<std::string>{warm + ".told"})
          .with("warm_n", warm_n);
    }
    if (auto ok = take(told, r, 20 + n * (what_.pause_s + 1)); !ok || !what_.early()) return ok;
    // This quantity covers all messages; the others only the first.
    const Samples all = r.of[Q::rtt];
    for (auto& [quantity, samples] : r.of) {
      samples.value.resize(1);
      samples.offset.resize(1);
    }
    r.add(Q::lost, std::isnan(all.value.front()) ? 1.0 : 0.0);
    r.of[Q::early] = all;
    return {};
  }

 private:
  static constexpr double quiet_s = 0.1;
  static constexpr std::uint32_t paused = 5, warm_n = 500;
};

/// One writer, and subscribers in several programs.
class ManyExperiment : public Experiment {
 public:
  using Experiment::Experiment;

 protected:
  Result<void> start(bool keep_all) {
    rig_->expect(what_.subscribers + 1);
    auto writer = rig_->add();
    if (!writer) return writer.error();
    writer_ = *writer;
    std::vector<Program*> programs;
    for (std::uint32_t k = 0; k < what_.processes; ++k) {
      auto program = rig_->add();
      if (!program) return program.error();
      programs.push_back(*program);
    }
    std::vector<End> places{{writer_, "W", ""}};
    for (std::uint32_t k = 0; k < what_.subscribers; ++k) {
      const std::string name = "S" + std::to_string(k);
      subscribers_.push_back({programs[k % programs.size()], name, name + ".rx"});
      places.push_back(subscribers_.back());
    }
    if (auto ok = rig_->open(places); !ok) return ok;
    return rig_->channel(
        {writer_, "W", "tx"}, subscribers_,
        {.topic = rig_->topic(), .best_effort = what_.reliability == Reliability::best_effort, .keep_all = keep_all});
  }
  Result<void> collect(const std::string& board) {
    std::vector<Foreman::Order> orders;
    for (std::uint32_t k = 0; k < subscribers_.size(); ++k) {
      Talk talk("collect");
      talk.with("id", subscribers_[k].place + ".count").with("from", subscribers_[k].id).with("subscriber", k);
      if (!board.empty()) talk.with("board", board);
      orders.push_back({subscribers_[k].program, talk});
    }
    auto ok = rig_->foreman().ask(orders);
    if (!ok) return ok.error();
    return {};
  }
  Program* writer_ = nullptr;
  std::vector<End> subscribers_;
};

class Fanout final : public ManyExperiment {
 public:
  using ManyExperiment::ManyExperiment;
  Result<void> set_up() override {
    if (auto ok = start(false); !ok) return ok;
    auto board = rig_->foreman().ask(*writer_, Talk("board"));
    if (!board) return board.error();
    return collect(board->text("address"));
  }
  Result<void> visit(Results& r) override {
    const auto& o = rig_->options();
    auto answer = rig_->foreman().ask(*writer_,
                                      Talk("fan")
                                          .with("to", "tx")
                                          .with("subscribers", what_.subscribers)
                                          .with("size", what_.size)
                                          .with("n", o.epoch_length)
                                          .with("burst_s", o.burst_s)
                                          .with("burst", rig_->next_burst()),
                                      15 + 2 * o.burst_s);
    if (!answer) return answer.error();
    r.t0_ns = answer->number<std::int64_t>("t0_ns");
    const auto offset = answer->numbers("offset");
    r.add(Q::publish, answer->numbers("publish"), offset);
    r.add(Q::cycles, answer->numbers("cycles"), offset);
    r.add(Q::one_way, answer->numbers("one_way"), answer->numbers("one_way_offset"));
    r.add(Q::first, answer->numbers("first"), offset);
    r.add(Q::last, answer->numbers("last"), offset);
    r.add(Q::instructions, answer->numbers("instructions"));
    r.add(Q::lost, answer->numbers("lost"));
    return {};
  }
};

class Throughput final : public ManyExperiment {
 public:
  using ManyExperiment::ManyExperiment;
  Result<void> set_up() override {
    // Reliable messages must not be lost for lack of history space. Best-effort messages may be lost, which is
    // recorded.
    if (auto ok = start(what_.reliability == Reliability::reliable); !ok) return ok;
    for (const auto& s : subscribers_) {
      auto& ids = by_program_[s.program];
      ids.push_back(s.place + ".count");
    }
    return collect("");
  }
  Result<void> visit(Results& r) override {
    auto& foreman = rig_->foreman();
    const std::uint32_t burst = rig_->next_burst();
    std::vector<Foreman::Order> usage{{writer_, Talk("usage")}};
    for (const auto& [program, ids] : by_program_)
      if (program != writer_) usage.push_back({program, Talk("usage")});
    auto cpu_before = foreman.ask(usage);
    auto before = traffic();
    if (!cpu_before) return cpu_before.error();
    if (!before) return before.error();
    auto flood = foreman.ask(*writer_,
                             Talk("flood")
                                 .with("to", "tx")
                                 .with("size", what_.size)
                                 .with("burst_s", rig_->options().burst_s)
                                 .with("burst", burst),
                             30 + 2 * rig_->options().burst_s);
    if (!flood) return flood.error();
    const double sent = flood->number<double>("sent"), refused = flood->number<double>("refused");
    const double began_s = flood->number<double>("began_ns") * 1e-9,
                 took_s = flood->number<double>("ended_ns") * 1e-9 - began_s;

    // Until all subscribers have all messages, or no more arrive.
    std::vector<double> received, first_s, last_s;
    double total = -1, changed_s = now_s();
    const double until_s = now_s() + late_s;
    for (;;) {
      std::vector<Foreman::Order> orders;
      for (const auto& [program, ids] : by_program_)
        orders.push_back({program, Talk("count").with("ids", ids).with("burst", burst)});
      auto counts = foreman.ask(orders);
      if (!counts) return counts.error();
      received.clear();
      first_s.clear();
      last_s.clear();
      for (const auto& one : *counts) {
        for (const double n : one.numbers("received")) received.push_back(n);
        for (const double t : one.numbers("first_s")) first_s.push_back(t);
        for (const double t : one.numbers("last_s")) last_s.push_back(t);
      }
      const double now_total = std::accumulate(received.begin(), received.end(), 0.0);
      if (now_total != total) changed_s = now_s();
      total = now_total;
      if (total >= sent * static_cast<double>(received.size()) || now_s() - changed_s > silent_s || now_s() > until_s)
        break;
      if (auto ok = foreman.pause(20e-3); !ok) return ok;
    }
    auto cpu_after = foreman.ask(usage);
    auto after = traffic();
    if (!cpu_after) return cpu_after.error();
    if (!after) return after.error();

    r.t0_ns = flood->number<std::int64_t>("began_ns");
    std::vector<double> rate, bytes, lost;
    for (std::size_t k = 0; k < received.size(); ++k) {
      // Other hosts have other clocks, so the time there is from the first arrival to the last.
      const double arriving_s = received[k] > 0 ? last_s[k] - (rig_->same_host() ? began_s : first_s[k]) : 0;
      const double time_s = std::max(took_s, arriving_s);
      rate.push_back(received[k] / time_s);
      bytes.push_back(rate.back() * static_cast<double>(what_.size));
      lost.push_back(sent > 0 ? std::max(0.0, 1 - received[k] / sent) : nan);
    }
    r.add(Q::message_rate, rate);
    r.add(Q::byte_rate, bytes);
    r.add(Q::lost, lost);
    r.add(Q::publish_rate, sent / took_s);
    r.add(Q::refused, sent + refused > 0 ? refused / (sent + refused) : nan);
    r.add(Q::overflowed, after->overflowed - before->overflowed);
    double cpu_s = 0;
    for (std::size_t k = 0; k < cpu_after->size(); ++k)
      cpu_s += (*cpu_after)[k].number<double>("cpu") - (*cpu_before)[k].number<double>("cpu");
    r.add(Q::cpu, cpu_s);
    return {};
  }

 private:
  static constexpr double silent_s = 0.3, late_s = 15;
  std::map<Program*, std::vector<std::string>> by_program_;
};

class DiscoveryExperiment final : public Experiment {
 public:
  using Experiment::Experiment;
  Result<void> set_up() override {
    if (what_.has("star")) rig_->name_first();
    else rig_->expect(what_.entities);
    std::string why = "it was not requested";
    if (!rig_->same_host())
      whole_host_ = Error{
          "bus.whole_host",
          "datagrams of discovery include all traffic of the hosts: a network namespace cannot span several hosts",
          "measure on hosts without other traffic"};
    else if (!rig_->options().own_namespace || !rig_->enclose(why))
      whole_host_ =
          Error{"bus.whole_host",
                "datagrams of discovery include all traffic of the host: no separate network namespace (" + why + ")",
                "run it as root, or allow user namespaces"};
    for (std::uint32_t k = 0; k < what_.processes; ++k) {
      auto program = rig_->add();
      if (!program) return program.error();
      if (std::find(programs_.begin(), programs_.end(), *program) == programs_.end()) programs_.push_back(*program);
    }
    // The library is loaded before discovery starts.
    std::vector<Foreman::Order> orders;
    for (auto* p : programs_) orders.push_back({p, rig_->told(Talk("check"), *p)});
    auto loaded = rig_->foreman().ask(orders, 60);
    if (!loaded) return loaded.error();
    return {};
  }

  Result<void> visit(Results& r) override {
    auto& foreman = rig_->foreman();
    const bool same_clock = rig_->same_clock();
    if (!whole_host_.code.empty()) r.warnings.push_back(whole_host_);
    std::vector<Foreman::Order> orders, usage;
    for (const auto& p : rig_->programs())
      if (p.get() != rig_->keeper()) usage.push_back({p.get(), Talk("usage")});
    auto cpu_before = foreman.ask(usage);
    if (!cpu_before) return cpu_before.error();
    auto before = traffic();
    if (!before) return before.error();

    const auto join = [&](const Program& program, std::uint32_t first, std::uint32_t n) {
      Talk talk = rig_->told(Talk("join"), program);
      return std::move(talk.with("entities", what_.entities)
                           .with("first", first)
                           .with("n", n)
                           .with("treatment", what_.treatment.front())
                           .with("topic", rig_->topic()));
    };
    std::vector<double> make, cycles, counts;
    const auto made = [&](const Talk& one) {
      const auto more = [](std::vector<double>& to, const std::vector<double>& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      more(make, one.numbers("make"));
      more(cycles, one.numbers("make_cycles"));
      more(counts, one.numbers("make_instructions"));
    };
    // The writer of a star exists before the others search for it.
    const bool star = what_.has("star");
    if (star) {
      auto first = foreman.ask(*programs_.front(), join(*programs_.front(), 0, 1).with("wait", false), what_.within_s);
      if (!first) return first.error();
      made(*first);
    }
    const auto many = static_cast<std::uint32_t>(programs_.size());
    const double within_s = std::min(what_.within_s, foreman.left_s() - ending_s - what_.stagger_s * many);
    if (!(within_s > 0)) return Error{"bus.interrupted", "no time is left", ""};
    const std::int64_t at_ns = now_ns() + static_cast<std::int64_t>((0.05 + 1e-3 * many) * 1e9);
    for (std::uint32_t k = 0, first = 0; k < many; ++k) {
      const std::uint32_t n = what_.entities / many + (k < what_.entities % many), there = star && k == 0;
      Talk talk =
          join(*programs_[k], first + there, n - there).with("within_s", within_s).with("after_s", what_.stagger_s * k);
      if (same_clock) talk.with("at_ns", at_ns);
      orders.push_back({programs_[k], talk});
      first += n;
    }
    auto joined =
        foreman.ask_some(orders, std::min(within_s + what_.stagger_s * many + late_s, foreman.left_s() - ending_s / 2));
    if (!joined) return joined.error();
    auto after = traffic();
    if (!after) return after.error();

    r.t0_ns = at_ns;
    const double wanted = star ? 2.0 * (what_.entities - 1) : 2.0 * what_.entities * what_.entities;
    double have = 0, last_s = 0;
    bool all = true;
    std::int64_t first_ns = INT64_MAX;
    for (const auto& one : *joined)
      if (one) first_ns = std::min(first_ns, one->number<std::int64_t>("began_ns"));
    for (const auto& one : *joined) {
      all = all && one && one->number<std::int64_t>("done_ns");
      if (!one) continue;
      made(*one);
      have += one->number<double>("have");
      const std::int64_t began_ns = same_clock          ? at_ns
                                    : rig_->same_host() ? first_ns
                                                        : one->number<std::int64_t>("began_ns");
      last_s = std::max(last_s, static_cast<double>(one->number<std::int64_t>("done_ns") - began_ns) * 1e-9);
    }
    const double sent = after->datagrams - before->datagrams;
    r.add(Q::matched, wanted > 0 ? have / wanted : 1);
    r.add(Q::overflowed, after->overflowed - before->overflowed);
    r.add(Q::make, make);
    r.add(Q::make_cycles, cycles);
    r.add(Q::make_instructions, counts);
    r.add(Q::datagrams, all ? sent : nan);
    r.add(Q::wire_bytes, all ? after->bytes - before->bytes : nan);
    r.add(Q::time_to_match, all ? last_s : nan);
    if (!all) {
      r.add(Q::datagrams_unmatched, sent);
      r.add(Q::cpu, nan);
      r.warnings.push_back(
          {"bus.not_matched",
           rig_->variant().name + ", " + what_.text + ": discovery timed out before all participants matched",
           "the quantities 'matched' and 'datagrams_unmatched' show how far it came; give a longer --within and "
           "--budget, or fewer participants"});
      return {};
    }
    auto cpu_after = foreman.ask(usage, 60);
    if (!cpu_after) return cpu_after.error();
    double cpu_s = 0;
    for (std::size_t k = 0; k < cpu_after->size(); ++k)
      cpu_s += (*cpu_after)[k].number<double>("cpu") - (*cpu_before)[k].number<double>("cpu");
    r.add(Q::cpu, cpu_s);
    if (what_.steady_s > 0 && foreman.left_s() > what_.steady_s + ending_s) {
      auto from = traffic();
      if (!from) return from.error();
      if (!foreman.pause(what_.steady_s)) return {};  // asked to stop: the results so far stay
      auto to = traffic();
      if (!to) return to.error();
      r.add(Q::steady_datagrams, (to->datagrams - from->datagrams) / (to->at_s - from->at_s));
    }
    return {};
  }

 private:
  static constexpr double late_s =
      10;  ///< a program that needs this much longer than the time limit to create its participant is left out
  static constexpr double ending_s = 2;  ///< part of the remaining time, for the counters
  std::vector<Program*> programs_;
  Error whole_host_;
};

class Calls final : public Experiment {
 public:
  using Experiment::Experiment;
  Result<void> set_up() override {
    rig_->expect(what_.processes + 1);
    auto server = rig_->add();
    if (!server) return server.error();
    std::vector<End> places{{*server, "server", ""}};
    // One program would execute several commands one after the other.
    const std::uint32_t processes = rig_->known().across ? what_.processes : 1;
    for (std::uint32_t k = 0; k < processes; ++k) {
      auto program = rig_->add();
      if (!program) return program.error();
      clients_.push_back({*program, "C" + std::to_string(k), ""});
      places.push_back(clients_.back());
    }
    if (auto ok = rig_->open(places); !ok) return ok;
    auto served = rig_->foreman().ask(
        **server, Talk("serve").with("id", "service").with("at", "server").with("service", rig_->topic()));
    if (!served) return served.error();
    return {};
  }
  Result<void> visit(Results& r) override {
    std::vector<Foreman::Order> orders;
    const auto processes = static_cast<std::uint32_t>(clients_.size());
    const std::size_t keep = std::max<std::size_t>(1, told_at_most / ((what_.clients + processes - 1) / processes));
    const std::uint64_t seed = rig_->options().seed + (std::uint64_t{rig_->next_burst()} << 32);
    for (std::uint32_t k = 0, first = 0; k < processes; ++k) {
      const std::uint32_t n = what_.clients / processes + (k < what_.clients % processes);
      orders.push_back({clients_[k].program, Talk("call")
                                                 .with("at", clients_[k].place)
                                                 .with("service", rig_->topic())
                                                 .with("clients", n)
                                                 .with("first", first)
                                                 .with("calls", what_.calls)
                                                 .with("size", what_.size)
                                                 .with("keep", keep)
                                                 .with("seed", seed)});
      first += n;
    }
    auto answers = rig_->foreman().ask(orders, 60 + 0.05 * what_.calls * what_.clients);
    if (!answers) return answers.error();
    std::vector<std::pair<double, double>> told;  // offset, rtt
    double asked = 0, lost = 0, mismatched = 0, retried = 0, rate = 0;
    r.t0_ns = (*answers)[0].number<std::int64_t>("t0_ns");
    for (const auto& one : *answers) {
      const auto more_rtt = one.numbers("rtt"), more_offset = one.numbers("offset");
      const double shift_s =
          rig_->same_host() ? static_cast<double>(one.number<std::int64_t>("t0_ns") - r.t0_ns) * 1e-9 : 0;
      for (std::size_t k = 0; k < std::min(more_rtt.size(), more_offset.size()); ++k)
        told.emplace_back(more_offset[k] + shift_s, more_rtt[k]);
      asked += one.number<double>("asked");
      lost += one.number<double>("lost");
      mismatched += one.number<double>("mismatched");
      retried += one.number<double>("retried");
      rate += (one.number<double>("asked") - one.number<double>("lost")) / one.number<double>("took");
      if (!one.text("why").empty())
        r.warnings.push_back({"bus.case_failed", "a request was not answered: " + one.text("why"), ""});
    }
    // In order of time, not client by client: the chosen samples are from all clients and from the whole step.
    std::stable_sort(told.begin(), told.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<double> rtt, offset;
    for (const auto& [o, t] : told) offset.push_back(o), rtt.push_back(t);
    r.add(Q::rtt, rtt, offset);
    r.add(Q::lost, asked > 0 ? lost / asked : nan);
    r.add(Q::mismatched, asked > 0 ? mismatched / asked : nan);
    r.add(Q::retried, asked > 0 ? retried / asked : nan);
    r.add(Q::call_rate, rate);
    return {};
  }

 private:
  std::vector<End> clients_;
};

}  // namespace

void Results::add(Q quantity, std::vector<double> value, const std::vector<double>& offset) {
  if (value.empty()) return;
  Samples& s = of[quantity];
  s.value = std::move(value);
  s.offset.assign(offset.begin(), offset.end());
  if (s.offset.size() != s.value.size()) s.offset.assign(s.value.size(), 0.0f);
}

Result<Counted> Experiment::traffic() {
  std::vector<Foreman::Order> orders;
  for (auto* p : rig_->counters()) orders.push_back({p, Talk("traffic")});
  auto told = rig_->foreman().ask(orders);
  if (!told) return told.error();
  Counted all;
  for (const auto& one : *told) {
    all.datagrams += one.number<double>("datagrams");
    all.bytes += one.number<double>("bytes");
    all.overflowed += one.number<double>("overflowed");
    all.at_s += one.number<double>("at_ns") * 1e-9 / static_cast<double>(told->size());
  }
  return all;
}

std::size_t Experiment::programs(const Case& what, const Known& known) {
  if (!known.across) return 1;
  const std::size_t server = known.discovery == DiscoveryKind::server ? 1 : 0;
  switch (what.test) {
    case Test::latency:
    case Test::partitions:
    case Test::first: return 2 + server;
    case Test::fanout:
    case Test::throughput:
    case Test::calls:
    case Test::discovery: return what.processes + 1 + server;
  }
  return 2;
}

std::unique_ptr<Experiment> Experiment::make(const Case& what, std::unique_ptr<Rig> rig) {
  switch (what.test) {
    case Test::latency: return std::make_unique<Latency>(what, std::move(rig));
    case Test::fanout: return std::make_unique<Fanout>(what, std::move(rig));
    case Test::throughput: return std::make_unique<Throughput>(what, std::move(rig));
    case Test::partitions: return std::make_unique<Partitions>(what, std::move(rig));
    case Test::discovery: return std::make_unique<DiscoveryExperiment>(what, std::move(rig));
    case Test::first: return std::make_unique<First>(what, std::move(rig));
    case Test::calls: return std::make_unique<Calls>(what, std::move(rig));
  }
  return nullptr;
}

}  // namespace sonde::bus::probe
