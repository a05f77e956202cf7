#include "io/trace/values.hpp"

#include "io/trace/objects.hpp"

std::uint32_t sonde_io_vector_bytes;

namespace sonde::io {

int (*mpi_type_size)(std::uint64_t type, int* bytes);
std::uint64_t (*mpi_type_f2c)(std::int32_t type);
Hdf5 hdf5[most_hdf5];

namespace {

struct Question {
  std::uint64_t type;
  int bytes;
  bool fortran;
};

void ask(void* what) {
  auto& question = *static_cast<Question*>(what);
  if (question.fortran) question.type = mpi_type_f2c(static_cast<std::int32_t>(question.type));
  if (mpi_type_size(question.type, &question.bytes) != 0) question.bytes = 0;
}

struct Selection {
  const Hdf5* library;
  std::int64_t object, type, memory, file;
  bool attribute;
  std::uint64_t bytes;
};

/// Identifiers that stand for no space: all of the dataset; as much as the file's selection.
constexpr std::int64_t all = 0, block = 1;

void ask_hdf5(void* what) {
  auto& selection = *static_cast<Selection*>(what);
  const Hdf5& library = *selection.library;
  // Asked of anything else, HDF5 would print its error where the program prints its own.
  if (library.kind(selection.object) <= 0 || library.kind(selection.type) <= 0) return;
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

/// False where more than a register is needed.
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
  // All three are asked, as each fills in its part.
  const bool size = in_register(rule.size, unknown, function.size, function.size_at, function.size_is_result);
  const bool offset = in_register(rule.offset, unknown, function.offset, function.offset_at, unused);
  const bool file = in_register(rule.file, 0, function.file, function.file_at, function.file_is_result);
  const bool readable = size && offset && file;
  // Widths of what the result tells beside failures are those of the result, or it is not quick.
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
  if (mpi_type_size == nullptr || (fortran && mpi_type_f2c == nullptr) || sonde_io_vector_bytes == 0) return 0;
  Question question{type, 0, fortran};
  const Busy busy(thread);
  sonde_io_with_vectors(ask, &question);
  return question.bytes > 0 ? static_cast<std::uint64_t>(question.bytes) : 0;
}

}  // namespace sonde::io
