/* Preprocessed, never compiled: the last line tells which MPI this compiler wrapper belongs to. */
#include <mpi.h>
#if defined(OPEN_MPI)
sonde_mpi_is openmpi OMPI_MAJOR_VERSION.OMPI_MINOR_VERSION.OMPI_RELEASE_VERSION
#elif defined(MPICH_VERSION)
sonde_mpi_is mpich MPICH_VERSION
#else
sonde_mpi_is other 0
#endif
