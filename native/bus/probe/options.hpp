#pragma once
/// Options of the probe: variants (an implementation and its transport) and cases (tests with their numbers).
/// Any-thread.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bus/probe/records.hpp"
#include "bus/profile.hpp"

namespace sonde::bus::probe {

enum class Test : std::uint8_t { latency, fanout, throughput, partitions, discovery, first, calls };
std::string_view name_of(Test test);
std::string_view name_of(DiscoveryKind kind);

/// A host on which programs run.
struct Host {
  std::string name;
  std::vector<std::string> start;  ///< command that starts a program there; empty: this host
};

/// "shm=fastdds,transport=shared-memory": a name, and how to connect.
struct Variant {
  std::string name, implementation, options;  ///< options: the text after the implementation, as written
  Transport transport;
  Discovery discovery;
  std::string security, identity = "probe";  ///< a folder of `sonde bus keys`, and an identity in it
  double batch_s = 0, spin_s = -1;
  std::string profile, profile_name;  ///< a file and a profile in it, instead of all of the above
  bool unprotected = false;
  std::string only, without;  ///< "latency+fanout": tests
  std::string text;           ///< the whole variant, as written

  /// A raw transport between programs, not a bus.
  bool raw() const { return implementation.starts_with("raw-"); }
  /// Whether it uses files of the user, keys or a profile, which are checked first.
  bool brought() const { return !security.empty() || !profile.empty(); }
  std::string transport_name() const;  ///< "udp4-multicast" if samples are multicast
  /// The reason why the case is not measured on it; empty: it is. across: its programs are on several hosts.
  std::string excludes(const struct Case& what, bool across = false) const;
  /// Errors: bus.bad_variant.
  static Result<Variant> parse(std::string_view text);
};

struct Case {
  Test test = Test::latency;
  std::size_t size = 64;  ///< of a sample, B, including its index and times (Message)
  std::uint32_t subscribers = 1, processes = 0, entities = 0, count = 1, clients = 1, calls = 100;
  Reliability reliability = Reliability::reliable;
  std::vector<std::string> treatment;  ///< words
  double pause_s = 0.05, steady_s = 1, within_s = 30, stagger_s = 0;
  std::string pause = "50ms";  ///< pause_s as written
  std::string text;            ///< as written

  bool has(std::string_view word) const;
  /// Whether the messages after the first one are recorded, too.
  bool early() const { return test == Test::first && treatment.size() == 1 && has("first-ever"); }
  /// As in the dataset; -1, "": not applicable in this test.
  std::int64_t shown_size() const, shown_subscribers() const, shown_entities() const, shown_processes() const;
  std::string shown_treatment() const;
  /// The quantities of the case, and those that the stopping rule waits for.
  std::vector<Q> gives() const, deciding() const;
  /// Errors: bus.bad_case.
  static Result<Case> parse(std::string_view text);
};

struct Options {
  std::string dir, rule = "ci:2%";
  std::vector<Host> hosts;              ///< empty: only this host
  std::vector<std::string> interfaces;  ///< interfaces between the hosts; empty: those of the routes to the others
  std::vector<Variant> variants;
  std::vector<Case> cases;
  std::uint64_t seed = 1, cap = 100000, cap_bytes = 0;
  std::uint32_t epochs = 100000, epoch_length = 50, domain_first = 1, domain_last = 100, alive = 0;
  double budget_s = 0, burst_s = 0.05, gap_s = 0, seconds = 2;
  bool own_namespace = true;
  bool across() const { return hosts.size() > 1; }
  /// Errors: bus.bad_option, bus.bad_variant, bus.bad_case.
  static Result<Options> parse(const std::vector<std::string>& args, bool to_measure);
};

}  // namespace sonde::bus::probe
