#pragma once
/// The layer table: what `sonde io` compiles its layer maps into, and all that the tracer knows of layers.
/// Freestanding.
///
/// One file, little-endian, mapped read-only:
///   TableHeader · rules × Rule · text, NUL-terminated strings that rules point into
/// A rule says which functions of which libraries belong to a layer, and where among their arguments stand the bytes
/// asked for, the offset and the file. `src/sonde/io/maps/table.py` writes it; docs/reference/layer-maps.md tells what
/// a map may say.

#include <cstdint>

namespace sonde::io {

/// How a number or a name is found.
enum class From : std::uint8_t {
  none,
  arg,             ///< argument a
  ref,             ///< what stands b bytes behind where argument a points to, before the call
  out,             ///< what argument a points to, after the call
  product,         ///< argument a × argument b, both of the width
  mpi,             ///< argument a × the size of the MPI datatype in argument b
  mpi_ref,         ///< the same where both are pointers to INTEGER, as Fortran passes them
  iov,             ///< all lengths of the struct iovec array in argument a, of argument b elements
  result,          ///< what the function returned
  result_product,  ///< what it returned × argument a
  text,            ///< argument a points to a NUL-terminated string
  hdf5,  ///< elements selected × bytes of one: arguments a..a+3 are a dataset, the type and space in memory, the space
         ///< in the file
  hdf5_attribute,  ///< the same of an attribute in argument a, whose type in memory is argument a + 1
  constant,        ///< a itself
  length,          ///< of the NUL-terminated string that argument a points to, before the call
  out_length,      ///< the same after the call; 0 where it returned a null pointer
  counted_text,    ///< argument a points to argument b characters, blanks behind them, as Fortran passes names
};

/// Widths of what a pointer points to, or a register holds: arguments narrower than 64 bits leave the rest undefined.
enum class Width : std::uint8_t { i32, u32, i64 };

inline std::uint64_t widened(std::uint64_t value, Width width) {
  if (width == Width::i32)
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(value)));
  return width == Width::u32 ? static_cast<std::uint32_t>(value) : value;
}

struct Value {
  From from;
  std::uint8_t a, b;  ///< positions among the integer arguments, from 0; the seventh and later lie on the stack. Of
                      ///< `ref` b is bytes
  Width width;
};

/// The kind of a call; the tracer treats all kinds alike except `open`, whose names it stores.
enum class Kind : std::uint8_t { other, open, close, read, write, sync, meta, seek, communicate, wait, map, copy };

/// Which results are failures.
enum class Fails : std::uint8_t { never, negative, nonzero, null };

struct Rule {
  std::uint32_t library,
      name;  ///< offsets in the text: globs of a file name ("libmpi.so*") and of a symbol ("MPI_File_write*")
  std::uint16_t layer;  ///< the map's own number
  Kind kind;
  Fails fails;
  Width result;
  std::uint8_t reserved[3];
  Value size, offset, file, path;
};
static_assert(sizeof(Rule) == 32);

struct TableHeader {
  char magic[8];          ///< "SONDELYR"
  std::uint32_t version;  ///< 1
  std::uint32_t rules, text_bytes;
  std::uint32_t reserved;
  std::uint64_t most_bytes;  ///< that all processes of a node may write; 0: no limit
};
static_assert(sizeof(TableHeader) == 32);

inline constexpr char table_magic[8] = {'S', 'O', 'N', 'D', 'E', 'L', 'Y', 'R'};
inline constexpr std::uint32_t table_version = 1;

}  // namespace sonde::io
