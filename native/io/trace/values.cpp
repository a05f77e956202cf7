#include "io/trace/values.hpp"

#include "io/trace/objects.hpp"

std::uint32_t sonde_io_vector_bytes;

namespace sonde::io {

int (*mpi_type_size)(std::uint64_t type, int* bytes);
std::uint64_t (*mpi_type_f2c)(std::int32_t type);

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

}  // namespace

std::uint64_t via(std::uint64_t caller) {
  return reinterpret_cast<std::uint64_t>(return_in(reinterpret_cast<const void*>(caller)));
}

std::uint64_t datatype_bytes(Thread& thread, std::uint64_t type, bool fortran) {
  if (mpi_type_size == nullptr || (fortran && mpi_type_f2c == nullptr) || sonde_io_vector_bytes == 0) return 0;
  Question question{type, 0, fortran};
  thread.busy = true;
  sonde_io_with_vectors(ask, &question);
  thread.busy = false;
  return question.bytes > 0 ? static_cast<std::uint64_t>(question.bytes) : 0;
}

}  // namespace sonde::io
