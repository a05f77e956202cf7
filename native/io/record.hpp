#pragma once
/// The files of the tracer: for each thread a block file (core/block.hpp) and the records that are not in it yet.
/// Freestanding.
///
/// A thread writes into one of two blocks of its ThreadFile, which is mapped from `<thread>.tail`. Its content survives
/// a kill -9 and `_exit`, which run no code of the tracer. A full block is appended to `<thread>.blk` by one write(2)
/// while the other one fills. Blocks are written without a checksum, because computing it costs as much as the event
/// itself. The reader of a trace closes the files first (run_close.py): it sets the checksums, and the records of the
/// tail become a last block.

#include <cstddef>
#include <cstdint>

namespace sonde::io {

inline constexpr std::uint64_t unknown = ~std::uint64_t{0};

/// A finished call.
struct Record {
  std::uint64_t begin, end;  ///< ticks
  std::uint64_t size;        ///< B requested, or B moved if the result reports them; `unknown`
  std::uint64_t offset;      ///< B; `unknown`
  std::uint32_t file;        ///< the folded handle; 0 if the rule names no handle
  std::uint16_t function;    ///< the process's own number, see `<process>.functions`
  std::uint8_t depth;        ///< traced calls around it, at most 255
  std::uint8_t flags;
};
static_assert(sizeof(Record) == 40);

inline constexpr std::uint8_t flag_failed = 1, flag_thrown = 2, flag_entry_only = 4, flag_clock = 8;
/// The size is what the call was asked for, and what came is not known.
inline constexpr std::uint8_t flag_asked = 32;

/// `function` of records that are not calls. A note is a Note and the following slots of text. The other one holds one
/// moment by two clocks: `begin` in ticks, `end` in ns of CLOCK_MONOTONIC. If `size` is not 0, the thread of that
/// number continues in this file, because files of ended threads are used again.
inline constexpr std::uint16_t note_function = 0xffff, thread_function = 0xfffe;

/// A record of this function is the tracer's own work, such as appending a block or searching a loaded library for
/// functions. Its time, and the kernel's events meanwhile, do not belong to the program.
inline constexpr std::uint16_t own_function = 0xfffd;

/// The name of an opened file.
struct Note {
  std::uint64_t at;      ///< begin of the call that it belongs to
  std::uint64_t handle;  ///< whole
  std::uint64_t bytes;   ///< of text, in the next (bytes + 39) / 40 slots: the name; if that begins in no root, a NUL
                         ///< and the whole name by the kernel may follow
  std::uint64_t zero;
  std::uint32_t file;
  std::uint16_t function;  ///< note_function
  std::uint8_t depth, flags;
};
static_assert(sizeof(Note) == sizeof(Record));

/// A record of this function is a descriptor, `file`, that the program closed by syscall(2).
inline constexpr std::uint16_t closed_function = 0xfffc;

/// A handle in 32 bits: descriptors and Fortran's integers unchanged, pointers by their distinguishing bits.
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

/// A call in progress: an entry of the shadow stack, which also shows what a killed thread was doing.
struct Frame {
  std::uint64_t rbx;   ///< the register that the thunk uses; the thunk and its unwind table rely on its position
  std::uint64_t back;  ///< the caller's return address; position fixed too
  std::uint64_t sp;  ///< the stack pointer after the return; position fixed too. `unfilled` until the frame is complete
  std::uint64_t begin;  ///< ticks
  std::uint64_t size, offset, handle;
  std::uint64_t via;   ///< a return instruction in the caller's object, for functions that check their caller; else 0;
                       ///< position fixed too
  std::uint64_t path;  ///< text that the call was given, or its MPI_Status: a Status of thread.hpp
  std::uint16_t function;
  std::uint8_t depth, flags;
  std::uint32_t path_bytes;  ///< of `path`; 0: up to a NUL
  struct ThreadFile* file;   ///< the file of this frame, always set; the thunk reads it and `called` here, which is
                             ///< fastest
  const struct Function* called;
};
static_assert(sizeof(Frame) == 96);

inline constexpr std::uint64_t unfilled = ~std::uint64_t{0};
inline constexpr std::uint8_t frame_recorded =
    128;  ///< in `flags`: an exception ended the call, and its record is written
inline constexpr unsigned most_frames = 128;

/// `<thread>.tail`, mapped.
struct ThreadFile {
  char magic[8];                           ///< "SONDETHR"
  std::uint32_t version, pid, tid, depth;  ///< depth: frames in use; the frames after them are `unfilled`
  std::uint32_t current, sequence;         ///< block being filled; blocks appended
  std::uint64_t dropped;                   ///< records
  std::uint64_t last_ticks, last_ns;       ///< one moment by both clocks (CLOCK_MONOTONIC), at the last append
  std::uint32_t used[2];                   ///< records in each block
  std::uint64_t stack_low, stack_high;
  std::uint64_t appended;  ///< B of complete blocks in the block file
  std::byte padding[4096 - 88];
  Frame frames[most_frames];
  std::byte blocks[2][block_bytes];
};
static_assert(offsetof(ThreadFile, blocks) % 4096 == 0 && sizeof(ThreadFile) == 49152);

}  // namespace sonde::io
