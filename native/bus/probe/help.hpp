#pragma once
/// The text of `sonde-busprobe --help`: the contract with `sonde bus run` and `sonde bus ls`, together with
/// records.hpp.

namespace sonde::bus::probe {

inline constexpr char help[] =
    R"(sonde-busprobe: measures what a data-distribution bus costs. Started by `sonde bus run` and `sonde bus ls`.

  sonde-busprobe run --dir FOLDER --variant V… --case C… [option value]…
  sonde-busprobe list [--variant V] [--domain N] [--seconds S]
  sonde-busprobe check --variant V…  --case C…     checks that they are valid and available; measures nothing
  sonde-busprobe --help | --version

Options of `run`:
  --dir FOLDER          receives rank-00000.blk (native/bus/probe/records.hpp)
  --variant NAME=IMPLEMENTATION[,KEY=VALUE]…       repeated
      IMPLEMENTATION    cyclonedds, fastdds, null …, or a raw transport: raw-udp, raw-tcp, raw-shm
      transport=        udp4 (default) | udp6 | tcp4 | shared-memory
      multicast=        none | discovery (default) | all
      discovery=        simple (default) | peers | server
      announce=TIME     between announcements
      security=FOLDER   of `sonde bus keys`;  identity=NAME  in it (default: probe)
      batch=TIME        latency budget of writers
      spin=             auto (default) | never | TIME   how long a waiting thread polls before it sleeps
      receive-buffer=SIZE, send-buffer=SIZE        of sockets
      interfaces=A+B    names, addresses, networks (default: loopback; for several hosts those of --interfaces);  unprotected=yes  without security
      profile=FILE#NAME a profile's domain, transport, discovery, security instead of all these keys. Its cases share one domain, so
                        their programs are started again for each step
      without=TEST+…    tests that are not measured on it;  only=TEST+…  the only tests on it
  --case TEST[:KEY=VALUE[,KEY=VALUE]…]             repeated
      latency      size=64 reliability=reliable    one message there and back between two programs
      fanout       subscribers=1 size=64 processes=P reliability=reliable      the next message when all have the previous one
      throughput   subscribers=1 size=1KiB processes=P reliability=reliable|best-effort     as fast as write() returns, --burst-s long
      partitions   treatment=domain|topic|partition|wildcard count=1 size=64      a program has `count` of them, and uses them in turn
      discovery    entities=8 processes=P treatment=star|all stagger=0s steady=1s within=30s     participants that discover each other:
                   star: one has a writer and starts first; the others have a reader each and start together; as peers all name
                   the first. all: each has a writer and a reader, and matches all; as peers each names all. stagger: time
                   between two starts
      first        treatment=T[+T]… pause=50ms size=64 reliability=reliable     a single message. T: steady, first-ever, pause, warm-other-topic,
                   warm-same-participant-new-writer; and, alone (then it is first-ever) or with one of these: prefaulted, after-lookup,
                   spinning-subscriber, awake-cores
      calls        clients=1 calls=100 size=64 processes=P     requests and replies
      processes: number of programs that run the subscribers, participants or clients. Each subscriber is a separate participant; clients
      are threads, and those of a program share its participant. Default: one each, at most 8; discovery: one for each participant
  --rule SPEC           stopping rule, core/rule.hpp (default ci:2%)
  --epochs N            steps of a case on a variant at most (default 100000)
  --epoch-length N      samples in a step (default 50)
  --burst-s S           the time of a step, and of a throughput burst (default 0.05)
  --gap-s S             least time between the starts of epochs (default 0)
  --budget-s S          total time (default 0: no limit); a step that has begun may take a quarter more, 5 to 30 s
  --cap N               samples of a series at most (default 100000);  --cap-bytes N  of the file (default 0: no limit)
  --seed N              of the order (default 1)
  --domains A-B         domains to use, one for each case on a variant (default 1-100; above 101 their ports may collide with ephemeral ports)
  --alive N             programs that stay between epochs at most (default: by memory, 8 to 64); others start again each time
  --namespace auto|no   auto (default): discovery runs in a separate network namespace with exact counters. no, or without permission:
                        counters of the whole host, and a warning
  --host NAME           repeated: programs run on these hosts in turn. Default: only this host. Over several hosts there is no fanout,
                        no shared memory and no one_way; variants on their network need security= or unprotected=yes
  --start WORD          repeated, of the --host before it: a word of the command that starts a program there. Default: none, it is this host
  --interfaces A,B      names, addresses, networks between the hosts. Default: the routes to the other hosts
Standard input: `stop` ends the run and saves its results; so does the end of the input. Standard error: the log. Standard output, JSON lines:
  {"event":"start", cycles_per_s, cycles_by, instructions, clock_cost_s, load:[3], cores, namespace}
  {"event":"host", name, host, address}        for several hosts: its own host name, and its address for the others
  {"event":"variant", name, implementation, version, transport, options, detail}
  {"event":"progress", done, active, steps, decided, cells, epoch, samples, elapsed_s}
  {"event":"warning", code, evidence, hint[, variant, why]}      why: code of the error for which a variant was left out. codes: bus.variant_absent bus.case_failed bus.case_left_out bus.not_counted
                                                            bus.whole_host bus.other_version
  {"event":"error", code, what, hint}
  {"event":"end", stop_reason, samples, elapsed_s, dropped, peak_rss_kib, load:[3], cpu_s, programs_cpu_s}
Exit: 0 done, 2 wrong usage, 3 failed.

`list` prints one object, {"domain", "implementation", "participants":[{guid, name, host, pid}], "endpoints":[{guid, participant, writes,
topic, type, partitions, reliability, durability}]}, with all participants that announce themselves within S seconds (default 2).

All waiting threads sleep, also with raw transports: raw-udp and raw-tcp in recv(), raw-shm in a futex.
)";

}  // namespace sonde::bus::probe
