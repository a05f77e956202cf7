#pragma once
/// The programs of one case on one variant, in a separate domain. Owner-thread.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "bus/probe/crew.hpp"
#include "bus/probe/options.hpp"

namespace sonde::bus::probe {

/// The result of the check of a variant.
struct Known {
  bool present = false;
  bool across = true;  ///< it reaches other processes; else all endpoints are in one program
  std::string version, transport, detail;
  DiscoveryKind discovery = DiscoveryKind::simple;
  std::uint32_t domain = 0;  ///< of its profile, if it has one
};

/// One of several hosts, as seen by its own programs.
struct Reached {
  std::string host;                                ///< its own host name
  std::string address;                             ///< for the other hosts
  std::vector<std::string> addresses, interfaces;  ///< PlaceOptions of its programs
  bool again = false;                              ///< an earlier host is the same machine
};

/// The domains in use by this run.
class Domains {
 public:
  /// The first domain differs between runs, because several runs may be active at the same time.
  Domains(std::uint32_t first, std::uint32_t last, std::uint32_t begin)
      : first_(first), span_(last - first + 1), next_(begin % span_) {}
  /// A free domain. If all are in use, one that is not in `own`: two cases then share a domain, with different topics.
  std::uint32_t take(const std::vector<std::uint32_t>& own = {});
  void give(std::uint32_t domain) { used_.erase(used_.find(domain)); }
  /// Reserves the domain that a profile names.
  void keep(std::uint32_t domain) { used_.insert(domain); }

 private:
  std::uint32_t first_, span_, next_;
  std::multiset<std::uint32_t> used_;
};

/// An endpoint in a program, with its name there.
struct End {
  Program* program;
  std::string place, id;
};

struct Channel {
  std::string topic = {};
  bool best_effort = false, keep_all = false;
  std::string to_partition = {}, from_partition = {};  ///< of the sender, and of the receivers
};

class Rig {
 public:
  /// reached: in the order of options.hosts; empty for a single host.
  Rig(const Options& options, const Variant& variant, const Known& known, const std::vector<Reached>& reached,
      Domains& domains, Foreman& foreman);
  ~Rig();

  /// Another program; always the first one for a transport that does not leave a process. The discovery server, if
  /// any, starts together with the first program.
  Result<Program*> add(ProgramOptions how = {});
  /// Opens a participant. domain: 0: the rig's own; else one of more_domain().
  Result<void> open(const std::vector<End>& ends, std::uint32_t domain = 0);
  std::uint32_t more_domain();
  /// Opens a channel from one sender to all receivers, and waits until all match.
  Result<void> channel(const End& sender, const std::vector<End>& receivers, const Channel& how);
  /// Opens another sender for existing receivers.
  Result<void> sender_for(const End& sender, std::size_t receivers, const Channel& how);
  /// The parameters with which a program creates participants itself.
  Talk told(Talk talk, const Program& program) const;
  /// One program on each machine of this rig: the sum of their counters is that of all. For a namespace, the program
  /// that holds it open.
  std::vector<Program*> counters() const;

  Foreman& foreman() { return foreman_; }
  const Variant& variant() const { return variant_; }
  const Known& known() const { return known_; }
  const Options& options() const { return options_; }
  const Programs& programs() const { return programs_; }
  bool same_host() const { return !options_.across(); }
  /// Whether the programs use the same clock as this one. If not, programs on one host still share one clock.
  bool same_clock() const { return same_host() && (options_.hosts.empty() || options_.hosts.front().start.empty()); }
  const std::string& topic() const { return topic_; }
  std::uint32_t domain() const { return domains_used_.front(); }
  std::uint32_t next_burst() { return ++burst_; }
  /// The largest number of participants, for discovery by peers, which contacts each of them.
  void expect(std::uint32_t participants) { expected_ = participants; }
  /// For discovery by peers: all name only the first participant, on the first host, instead of all participants.
  void name_first() { hub_ = true, expected_ = 1; }
  /// Starts the next programs in a separate namespace. False: that is not possible; `why`.
  bool enclose(std::string& why);
  Program* keeper() { return keeper_; }
  /// Starts to end all its programs.
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
