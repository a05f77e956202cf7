#pragma once
/// The format of the file that sonde-busprobe writes into its run folder: one block file (core/block.hpp),
/// `rank-00000.blk`. Any-thread.
///
/// A series is one quantity of one case over one variant. A record has the samples of one series in one step
/// (epoch), or at the end the decision of the stopping rule about it. Fields, little-endian, in this order; K is the
/// header's `record_length`:
///   u4 kind      0 samples · 1 decision (n is 0, epoch the last one)
///   u4 variant, case, quantity   indices into the header's lists
///   u4 epoch, n  n: samples in the record, 0 … K. A quantity with one value in a step has n = 1
///   u4 code      kind 1: core/rule.hpp's Decision (1 converged, 2 cap, 3 drift). A series without such a record is
///                undecided
///   u4 zero
///   f8 t0        s since measuring began
///   f8 value[K]  in the quantity's unit. NaN: no value (a lost message)
///   f4 offset[K] s after t0 at which each sample began; 0 for quantities without a time of their own
///
/// Header, besides `fields`, `schema` ("bus/1"), `rank` 0, `ranks` 1:
///   epoch_length  requested samples in a step            record_length  K, at least that
///   variants, implementations, versions, transports, discoveries, options, details: lists of text, one entry for
///     each variant. A raw limit is implementation "raw", transport "udp4", "tcp4" or "shared-memory", version and
///     discovery
///     "". transports, discoveries: as found in the check, also for a profile; "in-process", "udp4-multicast"; "" for a
///     profile that could not be checked. options: the text after the implementation, as given. details: a note for the
///     user, or ""
///   present       list of booleans: whether the variant was available
///   cases, tests, sizes, subscribers, entities, processes, treatments: one entry for each case. cases: as given. sizes
///     in B, -1 and "": not applicable. processes: number of programs that run its subscribers, participants or
///     clients, for transports that leave a process
///   quantities, units: one entry for each quantity, as in `quantities` below, in the same order
///   deciding      list of [case, quantity]: the rule's decision about these quantities ends the measurement; others
///   are
///                 only recorded
///   cycles_per_s  of `cycles`           cycles_by "tsc", "cntvct", or "clock": then cycles are nanoseconds
///   instructions  "counted" (user and kernel), "counted in user mode", or the reason why not: then no series of
///   instructions
///                 has a sample
///   load          list of 3, load average at the start of measuring       cores  number of processors that the program
///   may use

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sonde::bus::probe {

struct Quantity {
  std::string_view name, unit, text;
};

/// The position of a quantity is its number in records: append only.
inline constexpr std::array quantities{
    Quantity{"rtt", "s", "from before the write to when the answer is in the writer's hands"},
    Quantity{"publish", "s", "duration of the call that writes"},
    Quantity{
        "one_way", "s",
        "from before the write to when the reader's program has it; of one host only; of fanout a sample a subscriber"},
    Quantity{"cycles", "1", "counter's ticks during the call that writes"},
    Quantity{"instructions", "1", "executed by the calling thread during the call that writes"},
    Quantity{"first", "s", "from before the write until the first subscriber has it"},
    Quantity{"last", "s", "from before the write until all subscribers have it; NaN where one never had it"},
    Quantity{"lost", "1",
             "share of messages, requests, that never came: of fanout, throughput one sample a subscriber"},
    Quantity{"message_rate", "1/s",
             "messages that a subscriber received, over the time from the first write to its last arrival; a sample a "
             "subscriber"},
    Quantity{"byte_rate", "B/s", "the same in bytes of samples"},
    Quantity{"publish_rate", "1/s", "writes that returned without error, over the time they took"},
    Quantity{"refused", "1", "share of writes that returned an error, as for want of place"},
    Quantity{"datagrams", "1",
             "UDP datagrams of the namespace (or host) until all had matched; NaN: they had not within the time"},
    Quantity{"wire_bytes", "B", "bytes that its IP layer was given to send until then, headers included"},
    Quantity{"cpu", "s",
             "CPU time of all programs together meanwhile: of discovery until all had matched, of throughput until the "
             "last arrival"},
    Quantity{"time_to_match", "s", "from the word to begin until each had all it should; NaN: not within the time"},
    Quantity{"matched", "1", "share of the matches that there should be"},
    Quantity{"steady_datagrams", "1/s", "datagrams a second when all had matched and nothing is written"},
    Quantity{"make", "s", "time to make a participant with its endpoints; a sample a participant"},
    Quantity{"make_cycles", "1", "counter's ticks of it"},
    Quantity{"make_instructions", "1", "executed by the calling thread meanwhile"},
    Quantity{"page_faults", "1",
             "of the writing program, all its threads, while the message and its answer were under way"},
    Quantity{"context_switches", "1", "likewise"},
    Quantity{"mismatched", "1", "share of replies that answered another request"},
    Quantity{"retried", "1", "requests sent again, for each request"},
    Quantity{"call_rate", "1/s", "answered requests a second, all clients together"},
    Quantity{"overflowed", "1", "UDP datagrams that found no place in a socket's buffer meanwhile (namespace or host)"},
    Quantity{"datagrams_unmatched", "1",
             "those of a visit whose time was over before all had matched; its `datagrams` is NaN"},
    Quantity{"early", "s",
             "rtt of the first messages of programs made anew, in their order: nothing was sent before the first of a "
             "visit"},
};

enum class Q : std::uint32_t {
  rtt,
  publish,
  one_way,
  cycles,
  instructions,
  first,
  last,
  lost,
  message_rate,
  byte_rate,
  publish_rate,
  refused,
  datagrams,
  wire_bytes,
  cpu,
  time_to_match,
  matched,
  steady_datagrams,
  make,
  make_cycles,
  make_instructions,
  page_faults,
  context_switches,
  mismatched,
  retried,
  call_rate,
  overflowed,
  datagrams_unmatched,
  early
};
static_assert(static_cast<std::size_t>(Q::early) + 1 == quantities.size());

/// The fields of a record before value[K] and offset[K].
struct RecordHead {
  std::uint32_t kind, variant, what, quantity, epoch, n, code, zero;
  double t0;
};
static_assert(sizeof(RecordHead) == 40);
inline constexpr std::size_t record_bytes(std::size_t length) { return sizeof(RecordHead) + length * 12; }

}  // namespace sonde::bus::probe
