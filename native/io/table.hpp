#pragma once
/// The layer table: `sonde io` compiles its layer maps into it. It is all that the tracer knows about layers.
/// Freestanding.
///
/// One file, little-endian, mapped read-only:
///   TableHeader · rules × Rule · text, NUL-terminated strings that rules point into
/// A rule states which functions of which libraries belong to a layer, and which of their arguments are the requested
/// bytes, the offset and the file. `src/sonde/io/maps/table.py` writes it; docs/reference/layer-maps.md describes maps.

#include <cstdint>

namespace sonde::io {

/// Where a number or a name is found.
enum class From : std::uint8_t {
  none,
  arg,             ///< argument a
  ref,             ///< the value b bytes after the address in argument a, before the call
  out,             ///< the value b bytes after the address in argument a, after the call
  product,         ///< argument a × argument b, both of this width
  mpi,             ///< argument a × the size of the MPI datatype in argument b
  mpi_ref,         ///< the same for pointers to INTEGER, as Fortran passes them
  iov,             ///< all lengths of the struct iovec array in argument a, of argument b elements
  result,          ///< the function's result
  result_product,  ///< the result × argument a
  text,            ///< argument a points to a NUL-terminated string
  hdf5,  ///< elements selected × bytes of one: arguments a..a+3 are a dataset, the type and space in memory, the space
         ///< in the file
  hdf5_attribute,  ///< the same for an attribute in argument a, whose type in memory is argument a + 1
  constant,        ///< a itself
  length,          ///< of the NUL-terminated string that argument a points to, before the call
  out_length,      ///< the same after the call; 0 if the function returned a null pointer
  counted_text,    ///< argument a points to argument b characters with trailing blanks, as Fortran passes names
  mpi_status,  ///< the bytes that argument a, an MPI_Status, counts of the MPI datatype in argument b, after the call
  mpi_ref_status,  ///< the same as Fortran passes them
  later,           ///< known only when another call has ended
};

/// The width of a value in memory or in a register: the upper bits of arguments below 64 bits are undefined.
enum class Width : std::uint8_t { i32, u32, i64 };

inline std::uint64_t widened(std::uint64_t value, Width width) {
  if (width == Width::i32)
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(value)));
  return width == Width::u32 ? static_cast<std::uint32_t>(value) : value;
}

struct Value {
  From from;
  std::uint8_t a, b;  ///< positions among the integer arguments, from 0; the seventh and later lie on the stack. Of
                      ///< `ref` and `out` b is bytes
  Width width;
};

/// The kind of a call; the tracer treats all kinds alike except `open`, whose names it stores.
enum class Kind : std::uint8_t { other, open, close, read, write, sync, meta, seek, communicate, wait, map, copy };

/// The results that mean failure.
enum class Fails : std::uint8_t { never, negative, nonzero, null };

struct Rule {
  std::uint32_t library,
      name;  ///< offsets in the text: globs of a file name ("libmpi.so*") and of a symbol ("MPI_File_write*")
  std::uint16_t layer;  ///< the map's own number
  Kind kind;
  Fails fails;
  Width result;
  std::uint8_t reserved[3];
  Value size, offset, file;
  Value path;  ///< the name; or, for what names no file, where the bytes that came are counted: size is what was asked
};
static_assert(sizeof(Rule) == 32);

struct TableHeader {
  char magic[8];          ///< "SONDELYR"
  std::uint32_t version;  ///< 1
  std::uint32_t rules, text_bytes;
  std::uint32_t reserved;
  std::uint64_t most_bytes;  ///< the most that all processes of a node may write; 0: no limit
};
static_assert(sizeof(TableHeader) == 32);

inline constexpr char table_magic[8] = {'S', 'O', 'N', 'D', 'E', 'L', 'Y', 'R'};
inline constexpr std::uint32_t table_version = 1;

}  // namespace sonde::io
