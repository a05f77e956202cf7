// N times: a barrier, then some bytes to a file of the rank's own, then a sum over all ranks.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, ranks, one = 1, sum = 0;
  MPI_Comm mine;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &mine);  // of one rank: its barriers hold nobody
  int own;
  MPI_Comm_size(mine, &own);
  char name[512];
  snprintf(name, sizeof name, "%s.%d", argv[1], rank);
  FILE* file = fopen(name, "w");
  for (int k = 0; k < atoi(argv[2]); ++k) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) MPI_Barrier(mine);
    fprintf(file, "%d\n", k);
    fflush(file);
    usleep(1000 * (1 + (rank + k) % 3));
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  }
  fclose(file);
  unlink(name);
  MPI_Finalize();
  return sum == ranks && own == 1 ? 0 : 1;
}
