#pragma once
/// What `sonde-busprobe --help` prints: the contract with `sonde bus run` and `sonde bus ls`, beside records.hpp.

namespace sonde::bus::probe {

inline constexpr char help[] =
    R"(sonde-busprobe: measures what a data-distribution bus costs. Started by `sonde bus run` and `sonde bus ls`.

  sonde-busprobe run --dir FOLDER --variant V… --case C… [option value]…
  sonde-busprobe list [--variant V] [--domain N] [--seconds S]
  sonde-busprobe check --variant V…  --case C…     whether they are understood and there; measures nothing
  sonde-busprobe --help | --version

Of `run`:
  --dir FOLDER          gets rank-00000.blk (native/bus/probe/records.hpp)
  --variant NAME=IMPLEMENTATION[,KEY=VALUE]…       repeated
      IMPLEMENTATION    cyclonedds, fastdds, null …, or a limit of the machine: raw-udp, raw-tcp, raw-shm
      transport=        udp4 (default) | udp6 | tcp4 | shared-memory
      multicast=        none | discovery (default) | all
      discovery=        simple (default) | peers | server
      announce=TIME     between announcements
      security=FOLDER   of `sonde bus keys`;  identity=NAME  in it (default: probe)
      batch=TIME        latency budget of writers
      spin=             auto (default) | never | TIME   what is awaited is looked for before a thread sleeps
      receive-buffer=SIZE, send-buffer=SIZE        of sockets
      interfaces=A+B    names, addresses, networks (default: loopback, of several hosts those of --interfaces);  unprotected=yes  without security
      profile=FILE#NAME a profile's domain, transport, discovery, security instead of all these keys. Its cases have one domain, so their
                        programs are made anew for each visit
      without=TEST+…    tests that are not measured on it;  only=TEST+…  those that alone are
  --case TEST[:KEY=VALUE[,KEY=VALUE]…]             repeated
      latency      size=64 reliability=reliable    one message there and back between two programs
      fanout       subscribers=1 size=64 processes=P reliability=reliable      the next message when all have the last one
      throughput   subscribers=1 size=1KiB processes=P reliability=reliable|best-effort     as fast as write() returns, --burst-s long
      partitions   treatment=domain|topic|partition|wildcard count=1 size=64      a program holds so many, and uses them in turn
      discovery    entities=8 processes=P treatment=star|all stagger=0s steady=1s within=30s     participants that look for each other:
                   star: one has a writer, and begins before the others, who have a reader each, begin all at once; by peers all name
                   the first. all: each has a writer and a reader, and matches all; by peers each names all. stagger: from one's begin
                   to the next's
      first        treatment=T[+T]… pause=50ms size=64 reliability=reliable     one message, alone. T: steady, first-ever, pause, warm-other-topic,
                   warm-same-participant-new-writer; and, alone (then it is first-ever) or with one of these: prefaulted, after-lookup,
                   spinning-subscriber, awake-cores
      calls        clients=1 calls=100 size=64 processes=P     requests and replies
      processes: subscribers, participants and clients are spread over so many programs. Each subscriber is a participant of its own; clients
      are threads, and those of a program share its participant. Default: as many as there are, at most 8; discovery: one for each participant
  --rule SPEC           stopping rule, core/rule.hpp (default ci:2%)
  --epochs N            visits to a case on a variant at most (default 100000)
  --epoch-length N      samples a visit (default 50)
  --burst-s S           a visit's time, and that of a throughput burst (default 0.05)
  --gap-s S             least time between beginnings of epochs (default 0)
  --budget-s S          time for all (default 0: none); a visit that has begun may take a quarter more, 5 to 30 s
  --cap N               samples of a series at most (default 100000);  --cap-bytes N  of the file (default 0: none)
  --seed N              of the order (default 1)
  --domains A-B         domains to use, one for each case on a variant (default 1-100; above 101 ports meet those that the system gives away)
  --alive N             programs that stay between epochs at most (default: by memory, 8 to 64); more are made anew each time
  --namespace auto|no   auto (default): discovery runs in a network namespace of its own, whose counters are exact. no, or where it
                        may not be made: counters of the whole host, and a warning
  --host NAME           repeated: programs are spread over these hosts in turn. Default: this host alone. Over several hosts there is no fanout,
                        no shared memory and no one_way; what is on their network has security=, or unprotected=yes
  --start WORD          repeated, of the --host before it: a word that comes before a program to start it there. Default: none, it is this host
  --interfaces A,B      names, addresses, networks by which hosts reach each other. Default: where the way to the others leads
Standard input: `stop` ends it with what was measured; so does its end. Standard error: the log. Standard output, JSON lines:
  {"event":"start", cycles_per_s, cycles_by, instructions, clock_cost_s, load:[3], cores, namespace}
  {"event":"host", name, host, address}        of several hosts: what it calls itself, and where the others reach it
  {"event":"variant", name, implementation, version, transport, options, detail}
  {"event":"progress", done, active, steps, decided, cells, epoch, samples, elapsed_s}
  {"event":"warning", code, evidence, hint[, variant, why]}      why: code of the error that a variant was left out for. codes: bus.variant_absent bus.case_failed bus.case_left_out bus.not_counted
                                                            bus.whole_host bus.other_version
  {"event":"error", code, what, hint}
  {"event":"end", stop_reason, samples, elapsed_s, dropped, peak_rss_kib, load:[3], cpu_s, programs_cpu_s}
Exit: 0 done, 2 not understood, 3 failed.

Of `list`: prints one object, {"domain", "implementation", "participants":[{guid, name, host, pid}], "endpoints":[{guid, participant, writes,
topic, type, partitions, reliability, durability}]}, of what announces itself within S seconds (default 2).

All that waits sleeps, in the limits of the machine as well: raw-udp in recv(), raw-tcp likewise, raw-shm in a futex.
)";

}  // namespace sonde::bus::probe
