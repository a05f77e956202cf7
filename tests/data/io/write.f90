! Each rank writes N doubles, collectively at an offset of its own, then alone through its pointer, and reads them back.
program write
  use mpi
  implicit none
  integer, parameter :: n = 1024
  integer :: ierr, rank, ranks, file, sum_of_ranks
  integer(kind=MPI_OFFSET_KIND) :: offset
  double precision :: sent(n), got(n)
  character(len=512) :: name
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  call get_command_argument(1, name)
  sent = rank
  call MPI_File_open(MPI_COMM_WORLD, trim(name), MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
  offset = int(rank, MPI_OFFSET_KIND) * n * 8
  call MPI_File_write_at_all(file, offset, sent, n, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, ierr)
  call MPI_File_seek(file, offset, MPI_SEEK_SET, ierr)
  call MPI_File_write(file, sent, n, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, ierr)
  call MPI_File_read_at(file, offset, got, n, MPI_DOUBLE_PRECISION, MPI_STATUS_IGNORE, ierr)
  call MPI_File_close(file, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  call MPI_Allreduce(rank, sum_of_ranks, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (any(got /= sent) .or. sum_of_ranks /= ranks * (ranks - 1) / 2) call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
  call MPI_Finalize(ierr)
end program write
