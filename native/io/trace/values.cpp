#include "io/trace/values.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "io/trace/objects.hpp"

std::uint32_t sonde_io_vector_bytes;

namespace sonde::io {

Mpi mpi;
Hdf5 hdf5[most_hdf5];

namespace {

/// The size of a datatype, B; negative: unknown.
std::int64_t type_bytes(std::uint64_t type) {
  if (mpi.type_size_x != nullptr) {
    std::int64_t bytes = -1;
    return mpi.type_size_x(type, &bytes) == 0 ? bytes : -1;
  }
  int bytes = -1;
  return mpi.type_size(type, &bytes) == 0 ? bytes : -1;
}

/// The C handle of a Fortran datatype. MPICH, whose handles are numbers in both languages, has a macro for it and no
/// function.
std::uint64_t c_type(std::uint64_t fortran) {
  const auto number = static_cast<std::int32_t>(fortran);
  return mpi.type_f2c != nullptr ? mpi.type_f2c(number) : static_cast<std::uint32_t>(number);
}

/// The content of the tracer's own MPI_Status before a read that wanted none: no MPI counts a negative number of bytes.
constexpr std::int32_t nothing = -1;

/// The bytes that came; negative: unknown.
std::int64_t came(const Status& status, bool fortran) {
  const void* counted = reinterpret_cast<const void*>(status.at);
  std::uint64_t type = status.type;
  Status mine;
  if (fortran) {
    type = c_type(type);
    if (mpi.status_f2c(static_cast<const std::int32_t*>(counted), mine.own) != 0) return -1;
    counted = mine.own;
  }
  const std::int64_t bytes = type_bytes(type);
  int elements = -1;
  if (bytes > 0 && mpi.get_count(counted, type, &elements) == 0 && elements >= 0) return elements * bytes;
  std::int64_t all = -1;  // a part of an element, or more than fits
  if (mpi.byte != 0 && mpi.get_elements_x != nullptr && mpi.get_elements_x(counted, mpi.byte, &all) == 0) return all;
  return bytes == 0 ? 0 : -1;
}

struct Question {
  std::uint64_t type;
  std::int64_t bytes;
  bool fortran;
};

void ask(void* what) {
  auto& question = *static_cast<Question*>(what);
  if (question.fortran) question.type = c_type(question.type);
  question.bytes = type_bytes(question.type);
}

struct Selection {
  const Hdf5* library;
  std::int64_t object, type, memory, file;
  bool attribute;
  std::uint64_t bytes;
};

/// Identifiers used instead of a dataspace: the whole dataset; the same amount as the file's selection.
constexpr std::int64_t all = 0, block = 1;

/// Whether elements of a type are pointers to data of any length. depth: of types within types.
bool varies(const Hdf5& library, std::int64_t type, unsigned depth = 0) {
  constexpr int text = 3, compound = 6, variable = 9, array = 10;  // H5T_class_t
  if (depth > 8 || library.has_class(type, variable) != 0) return true;
  if (library.has_class(type, text) == 0) return false;
  const auto within = [&](std::int64_t inner) {
    if (inner < 0) return true;
    const bool found = varies(library, inner, depth + 1);
    library.close_type(inner);
    return found;
  };
  switch (library.type_class(type)) {
    case text: return library.is_variable_text(type) != 0;
    case array: return within(library.element(type));
    case compound:
      for (int k = 0, count = library.members(type); k < count; ++k)
        if (within(library.member(type, static_cast<unsigned>(k)))) return true;
      return false;
    default: return false;
  }
}

void ask_hdf5(void* what) {
  auto& selection = *static_cast<Selection*>(what);
  const Hdf5& library = *selection.library;
  // For any other identifier, HDF5 would print an error into the program's output.
  if (library.kind(selection.object) <= 0 || library.kind(selection.type) <= 0) return;
  if (varies(library, selection.type)) return;
  std::int64_t space = selection.memory == all || selection.memory == block ? selection.file : selection.memory;
  std::int64_t own = -1;
  if (selection.attribute || space == all)
    space = own =
        selection.attribute ? library.attribute_space(selection.object) : library.dataset_space(selection.object);
  if (library.kind(space) > 0) {
    const std::int64_t points = library.points(space);
    if (points >= 0) selection.bytes = static_cast<std::uint64_t>(points) * library.type_bytes(selection.type);
  }
  if (own >= 0) library.close_space(own);
}

}  // namespace

std::uint64_t hdf5_bytes(Thread& thread, const Function& function, const Value& value, const Arguments& arguments) {
  const auto at = reinterpret_cast<std::uint64_t>(function.target);
  const auto id = [&](unsigned n) { return static_cast<std::int64_t>(arguments[n]); };
  for (const Hdf5& library : hdf5) {
    if (at < library.low || at >= library.high || sonde_io_vector_bytes == 0) continue;
    const bool attribute = value.from == From::hdf5_attribute;
    Selection selection{&library,
                        id(value.a),
                        id(value.a + 1u),
                        attribute ? all : id(value.a + 2u),
                        attribute ? all : id(value.a + 3u),
                        attribute,
                        unknown};
    const Busy busy(thread);
    sonde_io_with_vectors(ask_hdf5, &selection);
    return selection.bytes;
  }
  return unknown;
}

namespace {

/// False if more than a register is needed.
bool in_register(const Value& value, std::uint64_t otherwise, Reading& reading, std::uint16_t& at, bool& is_result) {
  is_result = value.from == From::result;
  reading = {0, 0, 0 - otherwise};
  at = 0;
  if (value.from == From::none || is_result) return !is_result || value.width != Width::u32;
  if (value.from != From::arg || value.a > 5) return false;
  // Arguments: r10 r9 r8 rcx rdx rsi rdi
  const std::uint64_t sign = value.width == Width::i32 ? 0x80000000u : 0;
  reading = {value.width == Width::i64 ? ~std::uint64_t{0} : 0xffffffffu, sign, sign};
  at = static_cast<std::uint16_t>((6u - value.a) * 8u);
  return true;
}

}  // namespace

void prepare(Function& function) {
  function.quick = false;
  function.number = static_cast<std::uint64_t>(&function - functions);
  if (function.rule == nullptr) return;
  const Rule& rule = *function.rule;
  bool unused = false;
  // All three are called, because each fills in its part.
  const bool size = in_register(rule.size, unknown, function.size, function.size_at, function.size_is_result);
  const bool offset = in_register(rule.offset, unknown, function.offset, function.offset_at, unused);
  const bool file = in_register(rule.file, 0, function.file, function.file_at, function.file_is_result);
  const bool readable = size && offset && file;
  // A value taken from the result must have the same width as the result, which also shows failures; else not quick.
  const auto same = [&](const Value& value) {
    return value.from != From::result || value.width == Width::i64 || value.width == rule.result;
  };
  function.narrow = rule.result == Width::i32;
  constexpr std::uint8_t masks[] = {0, 1, 3, 4};
  function.failures = masks[static_cast<unsigned>(rule.fails)];
  function.quick = tick_kind == register_ticks && readable && !unused && same(rule.size) && same(rule.file) &&
                   rule.result != Width::u32 && rule.path.from == From::none && function.after == nullptr;
}

std::uint64_t via(std::uint64_t caller) {
  return reinterpret_cast<std::uint64_t>(return_in(reinterpret_cast<const void*>(caller)));
}

std::uint64_t datatype_bytes(Thread& thread, std::uint64_t type, bool fortran) {
  if ((mpi.type_size_x == nullptr && mpi.type_size == nullptr) || sonde_io_vector_bytes == 0) return unknown;
  Question question{type, 0, fortran};
  const Busy busy(thread);
  sonde_io_with_vectors(ask, &question);
  return question.bytes >= 0 ? static_cast<std::uint64_t>(question.bytes) : unknown;
}

std::uint64_t status_of(Thread& thread, const Frame& frame, const Value& value, Arguments& arguments) {
  // A call whose end is not seen has no frame of its own.
  if (value.from == From::later || frame.called == nullptr || frame.depth >= std::size(thread.statuses)) return 0;
  if (mpi.get_count == nullptr || (mpi.type_size_x == nullptr && mpi.type_size == nullptr)) return 0;
  const bool fortran = value.from == From::mpi_ref_status;
  if (fortran && (mpi.status_f2c == nullptr || mpi.no_status == nullptr)) return 0;
  Status& status = thread.statuses[frame.depth];
  status.type = fortran ? pointed(arguments[value.b], Width::i32) : arguments[value.b];
  status.at = arguments[value.a];
  // MPI_STATUS_IGNORE is no address of a program's: 0 of Open MPI, 1 of MPICH.
  if (status.at < 4096 || (fortran && status.at == reinterpret_cast<std::uint64_t>(*mpi.no_status))) {
    if (value.a > 5) return 0;
    std::ranges::fill(status.own, nothing);
    arguments[value.a] = status.at = reinterpret_cast<std::uint64_t>(status.own);
  }
  return reinterpret_cast<std::uint64_t>(&status);
}

std::uint8_t read_moved(Thread& thread, Frame& frame, const Function& function) {
  if (frame.path == 0) return flag_asked;
  const Status& status = *reinterpret_cast<const Status*>(frame.path);
  const bool mine = status.at == reinterpret_cast<std::uint64_t>(status.own);
  if (mine && std::ranges::all_of(status.own, [](std::int32_t word) { return word == nothing; })) return flag_asked;
  const int error = errno;
  const Busy busy(thread);
  const std::int64_t bytes = came(status, function.rule->path.from == From::mpi_ref_status);
  errno = error;
  if (bytes < 0) return flag_asked;
  frame.size = static_cast<std::uint64_t>(bytes);
  return 0;
}

}  // namespace sonde::io
