#pragma once
/// The programs of one case on one variant, in a domain of their own. Owner-thread.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bus/probe/crew.hpp"
#include "bus/probe/options.hpp"

namespace sonde::bus::probe {

/// What a program that tried said of a variant.
struct Known {
  bool present = false;
  bool across = true;  ///< it reaches other processes; else all ends are in one program
  std::string version, transport, detail;
  DiscoveryKind discovery = DiscoveryKind::simple;
  std::uint32_t domain = 0;  ///< of its profile, where it has one
};

/// A host of several, as its own programs see it.
struct Reached {
  std::string host;                                ///< what it calls itself
  std::string address;                             ///< by which the others reach it
  std::vector<std::string> addresses, interfaces;  ///< PlaceOptions of its programs
  bool again = false;                              ///< one before it is the same machine
};

/// Domains that are in use by this run.
class Domains {
 public:
  /// They are begun at a place of the range that differs between runs, for another may go on beside this one.
  Domains(std::uint32_t first, std::uint32_t last, std::uint32_t begin)
      : first_(first), span_(last - first + 1), next_(begin % span_) {}
  /// One that nobody has; where all are in use one that is not among `own`: two cases then share a domain, their topics
  /// differ.
  std::uint32_t take(const std::vector<std::uint32_t>& own = {});
  void give(std::uint32_t domain) { used_.erase(used_.find(domain)); }
  /// A domain that a profile names is not for others.
  void keep(std::uint32_t domain) { used_.insert(domain); }

 private:
  std::uint32_t first_, span_, next_;
  std::multiset<std::uint32_t> used_;
};

/// A program's end of a way: where it is, and what it is called there.
struct End {
  Program* program;
  std::string place, id;
};

struct Channel {
  std::string topic = {};
  bool best_effort = false, keep_all = false;
  std::string to_partition = {}, from_partition = {};  ///< of the sender, of the receivers
};

class Rig {
 public:
  /// reached: in the order of options.hosts; none where that is one host.
  Rig(const Options& options, const Variant& variant, const Known& known, const std::vector<Reached>& reached,
      Domains& domains, Foreman& foreman);
  ~Rig();

  /// Another program; of what does not leave a process always the first. Discovery's server, where there is one, is
  /// started with the first.
  Result<Program*> add(ProgramOptions how = {});
  /// A participant. domain: 0 the rig's own; else one of more_domain().
  Result<void> open(const std::vector<End>& ends, std::uint32_t domain = 0);
  std::uint32_t more_domain();
  /// From one to all of the others, all found.
  Result<void> channel(const End& sender, const std::vector<End>& receivers, const Channel& how);
  /// Receivers exist: another sender for them.
  Result<void> sender_for(const End& sender, std::size_t receivers, const Channel& how);
  /// What a program needs to know to make participants itself.
  Talk told(Talk talk, const Program& program) const;
  /// One program of each machine that programs of this rig are on: whose counters make up those of all. Of a namespace
  /// its keeper.
  std::vector<Program*> counters() const;

  Foreman& foreman() { return foreman_; }
  const Variant& variant() const { return variant_; }
  const Known& known() const { return known_; }
  const Options& options() const { return options_; }
  const Programs& programs() const { return programs_; }
  bool same_host() const { return !options_.across(); }
  /// Whether the programs' clock is this one's, too. Where it is not and they are on one host, it is at least the same
  /// for all of them.
  bool same_clock() const { return same_host() && (options_.hosts.empty() || options_.hosts.front().start.empty()); }
  const std::string& topic() const { return topic_; }
  std::uint32_t domain() const { return domains_used_.front(); }
  std::uint32_t next_burst() { return ++burst_; }
  /// How many participants there will be at most: of discovery by peers, who are announced to one by one.
  void expect(std::uint32_t participants) { expected_ = participants; }
  /// Discovery by peers: all name the participant that begins first, on the first host, instead of each naming all.
  void name_first() { hub_ = true, expected_ = 1; }
  /// Puts programs that follow into a namespace of their own. False: it cannot be had; `why`.
  bool enclose(std::string& why);
  Program* keeper() { return keeper_; }
  /// All its programs begin to end.
  void dismiss();

 private:
  Result<void> serve();
  Result<void> match(const End& sender, const std::vector<End>& receivers);
  std::size_t host_of(const Program& program) const {
    return program.host() ? static_cast<std::size_t>(program.host() - options_.hosts.data()) : 0;
  }
  const Host* host(std::size_t k) const {
    return options_.hosts.empty() ? nullptr : &options_.hosts[k % options_.hosts.size()];
  }
  Talk end(const char* verb, const End& end, const Channel& how, const std::string& partition) const;

  const Options& options_;
  const Variant& variant_;
  const Known& known_;
  const std::vector<Reached>& reached_;
  Domains& domains_;
  Foreman& foreman_;
  std::vector<std::uint32_t> domains_used_;
  std::string topic_, name_space_, server_;
  std::uint32_t burst_ = 0, expected_ = 8;
  bool hub_ = false;
  Program* keeper_ = nullptr;
  Programs programs_;
};

}  // namespace sonde::bus::probe
