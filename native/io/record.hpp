#pragma once
/// What the tracer leaves behind, for each thread a block file (core/block.hpp) and what had not gone to it yet.
/// Freestanding.
///
/// A thread writes into one of two blocks of its ThreadFile, which is mapped from `<thread>.tail`: what stands there
/// survives a kill -9 and `_exit`, which run no code of ours. A full block is appended to `<thread>.blk` by one
/// write(2) while the other fills. Blocks carry no checksum when written: computing one costs as much as the event
/// itself; who reads the trace closes the files first (io/close.hpp): checksums are set and the tail's records become a
/// last block.

#include <cstddef>
#include <cstdint>

namespace sonde::io {

inline constexpr std::uint64_t unknown = ~std::uint64_t{0};

/// A finished call.
struct Record {
  std::uint64_t begin, end;  ///< ticks
  std::uint64_t size;        ///< B asked for, or moved where the result tells; `unknown`
  std::uint64_t offset;      ///< B; `unknown`
  std::uint32_t file;        ///< the handle, folded; 0 where the rule names none
  std::uint16_t function;    ///< the process's own number, see `<process>.functions`
  std::uint8_t depth;        ///< traced calls around it, at most 255
  std::uint8_t flags;
};
static_assert(sizeof(Record) == 40);

inline constexpr std::uint8_t flag_failed = 1, flag_thrown = 2, flag_entry_only = 4, flag_clock = 8;

/// `function` of records that are no call. A note is a Note and the slots of text that follow it. The other one tells
/// `begin` ticks and `end` ns of CLOCK_MONOTONIC of one moment; where `size` is not 0, the thread of that number goes
/// on in this file, for files of threads that ended are used again.
inline constexpr std::uint16_t note_function = 0xffff, thread_function = 0xfffe;

/// A record of this function is a call, but none of the program's: the tracer's own work, as appending a block or
/// looking for functions in a library that was loaded. Its time is nobody else's, and what the kernel sees meanwhile is
/// not the program's.
inline constexpr std::uint16_t own_function = 0xfffd;

/// The name of an opened file.
struct Note {
  std::uint64_t at;      ///< begin of the call that it belongs to
  std::uint64_t handle;  ///< whole
  std::uint64_t bytes;   ///< of text, in the next (bytes + 39) / 40 slots
  std::uint64_t zero;
  std::uint32_t file;
  std::uint16_t function;  ///< note_function
  std::uint8_t depth, flags;
};
static_assert(sizeof(Note) == sizeof(Record));

/// A handle in 32 bits: descriptors and Fortran's integers as they are, pointers by what tells them apart.
inline std::uint32_t folded(std::uint64_t handle) {
  return static_cast<std::uint32_t>(handle) ^ static_cast<std::uint32_t>(handle >> 32) * 0x9e3779b1u;
}

/// 24 B of block header and 409 records are four pages.
inline constexpr std::size_t block_records = 409, block_bytes = 24 + block_records * sizeof(Record);
static_assert(block_bytes == 16384);

struct BlockHeader {
  char magic[4];  ///< "SBLK"
  std::uint32_t crc32, sequence, records;
  std::uint64_t dropped;
};
static_assert(sizeof(BlockHeader) == 24);

/// A call under way: what the shadow stack holds, and what the thread was doing when it was killed.
struct Frame {
  std::uint64_t rbx;   ///< the register that the thunk borrows; its place is known to the thunk and its unwind table
  std::uint64_t back;  ///< the caller's return address; so is its
  std::uint64_t sp;  ///< the stack pointer after the return; so is its. `unfilled` until all of the frame is filled in
  std::uint64_t begin;  ///< ticks
  std::uint64_t size, offset, handle;
  std::uint64_t via;   ///< a return instruction of the caller's object, for functions that look who calls; 0; known to
                       ///< the thunk, too
  std::uint64_t path;  ///< text that the call was given
  std::uint16_t function;
  std::uint8_t depth, flags;
  std::uint32_t path_bytes;  ///< of `path`; 0: up to a NUL
  struct ThreadFile* file;   ///< that it is a frame of, always; it and `called` are known to the thunk, which has them
                             ///< from here soonest
  const struct Function* called;
};
static_assert(sizeof(Frame) == 96);

inline constexpr std::uint64_t unfilled = ~std::uint64_t{0};
inline constexpr std::uint8_t frame_recorded =
    128;  ///< in `flags`: its call has ended by an exception, and has its record
inline constexpr unsigned most_frames = 128;

/// `<thread>.tail`, mapped.
struct ThreadFile {
  char magic[8];                           ///< "SONDETHR"
  std::uint32_t version, pid, tid, depth;  ///< depth: frames in use; those behind them are `unfilled`
  std::uint32_t current, sequence;         ///< block being filled; blocks appended
  std::uint64_t dropped;                   ///< records
  std::uint64_t last_ticks, last_ns;       ///< one moment by both clocks (CLOCK_MONOTONIC), at the last append
  std::uint32_t used[2];                   ///< records in each block
  std::uint64_t stack_low, stack_high;
  std::uint64_t appended;  ///< B of the block file that are whole
  std::byte padding[4096 - 88];
  Frame frames[most_frames];
  std::byte blocks[2][block_bytes];
};
static_assert(offsetof(ThreadFile, blocks) % 4096 == 0 && sizeof(ThreadFile) == 49152);

}  // namespace sonde::io
