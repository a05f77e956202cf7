/* Counts calls of MPI through its profiling interface: preloaded, it leaves "NAME COUNT" lines in $COUNT_FILE.<rank>.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNTED(name, formal, actual)       \
  static long count_##name;                 \
  int MPI_##name formal {                   \
    __sync_fetch_and_add(&count_##name, 1); \
    return PMPI_##name actual;              \
  }

COUNTED(File_open, (MPI_Comm c, const char* n, int m, MPI_Info i, MPI_File* f), (c, n, m, i, f))
COUNTED(File_close, (MPI_File * f), (f))
COUNTED(File_write_at, (MPI_File f, MPI_Offset o, const void* b, int n, MPI_Datatype t, MPI_Status* s),
        (f, o, b, n, t, s))
COUNTED(File_read_at, (MPI_File f, MPI_Offset o, void* b, int n, MPI_Datatype t, MPI_Status* s), (f, o, b, n, t, s))
COUNTED(File_write_at_all, (MPI_File f, MPI_Offset o, const void* b, int n, MPI_Datatype t, MPI_Status* s),
        (f, o, b, n, t, s))
COUNTED(File_read_at_all, (MPI_File f, MPI_Offset o, void* b, int n, MPI_Datatype t, MPI_Status* s), (f, o, b, n, t, s))
COUNTED(Allreduce, (const void* a, void* b, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c), (a, b, n, t, o, c))
COUNTED(Bcast, (void* b, int n, MPI_Datatype t, int r, MPI_Comm c), (b, n, t, r, c))
COUNTED(Allgather, (const void* a, int n, MPI_Datatype t, void* b, int m, MPI_Datatype u, MPI_Comm c),
        (a, n, t, b, m, u, c))

int MPI_Finalize(void) {
  int rank;
  char name[4096];
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int status = PMPI_Finalize();
  snprintf(name, sizeof name, "%s.%d", getenv("COUNT_FILE"), rank);
  FILE* out = fopen(name, "w");
#define TOLD(name) fprintf(out, "MPI_" #name " %ld\n", count_##name)
  TOLD(File_open);
  TOLD(File_close);
  TOLD(File_write_at);
  TOLD(File_read_at);
  TOLD(File_write_at_all);
  TOLD(File_read_at_all);
  TOLD(Allreduce);
  TOLD(Bcast);
  TOLD(Allgather);
  fclose(out);
  return status;
}
