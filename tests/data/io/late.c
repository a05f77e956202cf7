/* Ranks that write 64 KiB each, interleaved, in 20 collective calls, and one of them comes 20 ms later to each: late RANK FILE. */
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
  static char data[64][1024];
  int rank, ranks;
  MPI_File file;
  MPI_Datatype pieces, spread;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Type_vector(64, 1024, 1024 * ranks, MPI_CHAR, &pieces);
  MPI_Type_create_resized(pieces, 0, (MPI_Aint)64 * 1024 * ranks, &spread);
  MPI_Type_commit(&spread);
  if (MPI_File_open(MPI_COMM_WORLD, argv[2], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS) return 1;
  MPI_File_set_view(file, 1024 * rank, MPI_CHAR, spread, "native", MPI_INFO_NULL);
  for (int k = 0; k < 20; ++k) {
    const struct timespec pause = {0, 20000000};
    if (rank == atoi(argv[1])) nanosleep(&pause, NULL);
    if (MPI_File_write_all(file, data, sizeof data, MPI_CHAR, MPI_STATUS_IGNORE) != MPI_SUCCESS) return 1;
  }
  MPI_File_close(&file);
  MPI_Finalize();
  return 0;
}
