# Finds every MPI of this machine and makes one target for each: sonde_mpi_<flavour>.
#
# The probes are built once per MPI because two MPIs share no ABI; the one that fits the mpirun found at run
# time is taken then. Candidates, in this order: $MPI_HOME, the virtual environment (an MPI from PyPI), the mpicc on
# PATH, Debian's mpicc.openmpi and mpicc.mpich, and the folders of Fedora's and SUSE's modules. The first of each
# flavour wins. src/sonde/core/launch/mpirun.py looks for mpirun in the same order.

set(SONDE_MPI_FLAVOURS "" CACHE INTERNAL "")

function(sonde_find_mpis)
  set(candidates "")
  if(DEFINED ENV{MPI_HOME})
    list(APPEND candidates "$ENV{MPI_HOME}/bin/mpicc")
  endif()
  if(DEFINED ENV{VIRTUAL_ENV})
    list(APPEND candidates "$ENV{VIRTUAL_ENV}/bin/mpicc")
  endif()
  foreach(name mpicc mpicc.openmpi mpicc.mpich)
    find_program(sonde_candidate ${name} NO_CACHE)
    if(sonde_candidate)
      list(APPEND candidates "${sonde_candidate}")
    endif()
    unset(sonde_candidate)
  endforeach()
  foreach(folder openmpi/bin mpich/bin mpi/gcc/openmpi5/bin mpi/gcc/openmpi4/bin mpi/gcc/mpich/bin)
    list(APPEND candidates "/usr/lib64/${folder}/mpicc")
  endforeach()

  set(flavours "")
  set(detail "")
  foreach(mpicc IN LISTS candidates)
    if(NOT EXISTS "${mpicc}")
      continue()
    endif()
    execute_process(
      COMMAND "${mpicc}" -E "${CMAKE_SOURCE_DIR}/native/cmake/which_mpi.c"
      OUTPUT_VARIABLE seen ERROR_QUIET RESULT_VARIABLE failed)
    if(failed OR NOT seen MATCHES "sonde_mpi_is ([a-z]+) \"?([0-9A-Za-z. ]+)")
      message(STATUS "MPI: ${mpicc} does not preprocess a program that includes <mpi.h>; left out")
      continue()
    endif()
    set(flavour "${CMAKE_MATCH_1}")
    string(REGEX REPLACE " " "" version "${CMAKE_MATCH_2}")
    if(flavour IN_LIST flavours)
      continue()
    endif()

    # FindMPI keeps everything in the cache, so a second MPI needs a clean one.
    get_cmake_property(cached CACHE_VARIABLES)
    foreach(var IN LISTS cached)
      if(var MATCHES "^(MPI_|OMPI_|MPICH_)")
        unset(${var} CACHE)
      endif()
    endforeach()
    set(MPI_C_COMPILER "${mpicc}")
    set(MPI_CXX_SKIP_MPICXX ON)
    find_package(MPI QUIET COMPONENTS C)
    if(NOT MPI_C_FOUND)
      message(STATUS "MPI: ${mpicc} was found, but does not build a program; left out")
      continue()
    endif()
    add_library(sonde_mpi_${flavour} INTERFACE)
    target_compile_definitions(sonde_mpi_${flavour} INTERFACE
      OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX SONDE_MPI_FLAVOUR="${flavour}" ${MPI_C_COMPILE_DEFINITIONS})
    target_include_directories(sonde_mpi_${flavour} SYSTEM INTERFACE ${MPI_C_INCLUDE_DIRS})
    target_link_libraries(sonde_mpi_${flavour} INTERFACE ${MPI_C_LIBRARIES})
    # The loader must find this MPI and not another that happens to be on its path.
    set(dirs "")
    foreach(lib IN LISTS MPI_C_LIBRARIES)
      get_filename_component(dir "${lib}" DIRECTORY)
      if(IS_ABSOLUTE "${dir}")
        list(APPEND dirs "${dir}")
      endif()
    endforeach()
    list(REMOVE_DUPLICATES dirs)
    set_property(GLOBAL PROPERTY SONDE_MPI_RPATH_${flavour} "${dirs}")
    list(APPEND flavours "${flavour}")
    list(APPEND detail "${flavour} ${version}")
  endforeach()
  set(SONDE_MPI_FLAVOURS "${flavours}" CACHE INTERNAL "")
  list(JOIN detail ", " detail)
  set(SONDE_MPI_DETAIL "${detail}" CACHE INTERNAL "")
endfunction()

sonde_find_mpis()

# sonde_mpi_program(NAME SOURCES...): one executable per MPI, installed as libexec/<flavour>/NAME.
function(sonde_mpi_program name)
  foreach(flavour IN LISTS SONDE_MPI_FLAVOURS)
    set(target ${name}-${flavour})
    add_executable(${target} ${ARGN})
    set_target_properties(${target} PROPERTIES
      OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/libexec/${flavour}")
    target_link_libraries(${target} PRIVATE sonde_core sonde_mpi_${flavour})
    get_property(rpath GLOBAL PROPERTY SONDE_MPI_RPATH_${flavour})
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "${rpath}" BUILD_RPATH "${rpath}")
    install(TARGETS ${target} DESTINATION sonde/libexec/${flavour})
  endforeach()
endfunction()
