/* * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * *
 * Copyright by The HDF Group.                                               *
 * All rights reserved.                                                      *
 *                                                                           *
 * This file is part of HDF5.  The full HDF5 copyright notice, including     *
 * terms governing use, modification, and redistribution, is contained in    *
 * the LICENSE file, which can be found at the root of the source code       *
 * distribution tree, or in https://www.hdfgroup.org/licenses.               *
 * If you do not have access to either file, you may request a copy from     *
 * help@hdfgroup.org.                                                        *
 * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * * */

#ifndef H5pubconf_H
#define H5pubconf_H
#define H5_DEFAULT_PLUGINDIR "/usr/local/HDF_Group/HDF5/2.0.0/lib/plugin:/usr/local/hdf5/lib/plugin"
#define H5_FC_FUNC(name,NAME) name ## _
#define H5_FC_FUNC_(name,NAME) name ## _
#define H5_FORTRAN_C_BOOL_IS_UNIQUE
#define H5_Fortran_COMPILER_ID
#define H5_HAVE_ALARM 1
#define H5_HAVE_ARPA_INET_H 1
#define H5_HAVE_ASPRINTF 1
#define H5_HAVE_ATTRIBUTE 1
#define H5_HAVE_C99_COMPLEX_NUMBERS 1
#define H5_HAVE_CLOCK_GETTIME 1
#define H5_HAVE_COMPLEX_NUMBERS 1
#define H5_HAVE_DIRENT_H 1
#define H5_HAVE_DLFCN_H 1
#define H5_HAVE_EMBEDDED_LIBINFO 1
#define H5_HAVE_FCNTL 1
#define H5_HAVE__FLOAT16 1
#define H5_HAVE_FLOCK 1
#define H5_HAVE_FORK 1
#define H5_HAVE_GETHOSTNAME 1
#define H5_HAVE_GETRUSAGE 1
#define H5_HAVE_GETTIMEOFDAY 1
#define H5_HAVE_IOCTL 1
#define H5_HAVE_LIBDL 1
#define H5_HAVE_LIBM 1
#define H5_HAVE_NETDB_H 1
#define H5_HAVE_NETINET_IN_H 1
#define H5_HAVE_PREADWRITE 1
#define H5_HAVE_PTHREAD_H 1
#define H5_HAVE_PWD_H 1
#define H5_HAVE_QSORT_REENTRANT 1
#define H5_HAVE_STAT_ST_BLOCKS 1
#define H5_HAVE_STRCASESTR 1
#define H5_HAVE_STRDUP 1
#define H5_HAVE_STDATOMIC_H 1
#define H5_HAVE_SYMLINK 1
#define H5_HAVE_SYS_FILE_H 1
#define H5_HAVE_SYS_IOCTL_H 1
#define H5_HAVE_SYS_RESOURCE_H 1
#define H5_HAVE_SYS_SOCKET_H 1
#define H5_HAVE_SYS_STAT_H 1
#define H5_HAVE_SYS_TIME_H 1
# define H5_HAVE_THREADS 1
#if defined(_WIN32) && !defined(H5_BUILT_AS_DYNAMIC_LIB)
#else
#endif
#if defined(_WIN32) && !defined(H5_BUILT_AS_DYNAMIC_LIB)
#else
#endif
#define H5_HAVE_TIMEZONE 1
#define H5_HAVE_TIOCGETD 1
#define H5_HAVE_TIOCGWINSZ 1
#define H5_HAVE_TMPFILE 1
#define H5_HAVE_TM_GMTOFF 1
#define H5_HAVE_UNISTD_H 1
#define H5_HAVE_VASPRINTF 1
#define H5_HAVE_WAITPID 1
#define H5_IGNORE_DISABLED_FILE_LOCKS 1
#define H5_INCLUDE_HL 1
#define H5_LDOUBLE_TO_FLOAT16_CORRECT 1
#define H5_LDOUBLE_TO_LLONG_ACCURATE 1
#define H5_LLONG_TO_LDOUBLE_CORRECT 1
#define H5_PACKAGE "hdf5"
#define H5_PACKAGE_BUGREPORT "help@hdfgroup.org"
#define H5_PACKAGE_NAME "HDF5"
#define H5_PACKAGE_STRING "HDF5 2.0.0"
#define H5_PACKAGE_TARNAME "hdf5"
#define H5_PACKAGE_URL "https://www.hdfgroup.org"
#define H5_PACKAGE_VERSION "2.0.0"
#define H5_PAC_C_MAX_REAL_PRECISION
#define H5_PAC_FC_MAX_REAL_PRECISION
#define H5_SIZEOF_BOOL 1
#define H5_SIZEOF_CHAR 1
#define H5_SIZEOF_DOUBLE 8
#define H5_SIZEOF_DOUBLE_COMPLEX 16
#define H5_SIZEOF_FLOAT 4
#define H5_SIZEOF_FLOAT_COMPLEX 8
#define H5_SIZEOF_INT 4
#define H5_SIZEOF_INT16_T 2
#define H5_SIZEOF_INT32_T 4
#define H5_SIZEOF_INT64_T 8
#define H5_SIZEOF_INT8_T 1
#define H5_SIZEOF_INT_FAST16_T 8
#define H5_SIZEOF_INT_FAST32_T 8
#define H5_SIZEOF_INT_FAST64_T 8
#define H5_SIZEOF_INT_FAST8_T 1
#define H5_SIZEOF_INT_LEAST16_T 2
#define H5_SIZEOF_INT_LEAST32_T 4
#define H5_SIZEOF_INT_LEAST64_T 8
#define H5_SIZEOF_INT_LEAST8_T 1
#if !defined(__APPLE__)
#define H5_SIZEOF_SIZE_T 8
#define H5_SIZEOF_SSIZE_T 8
#define H5_SIZEOF_LONG 8
#define H5_SIZEOF_LONG_DOUBLE 16
#define H5_SIZEOF_LONG_DOUBLE_COMPLEX 32
#else
  # if defined(__LP64__) && __LP64__
  #define H5_SIZEOF_LONG 8
  #define H5_SIZEOF_SIZE_T 8
  #define H5_SIZEOF_SSIZE_T 8
  # else
  #define H5_SIZEOF_LONG 4
  #define H5_SIZEOF_SIZE_T 4
  #define H5_SIZEOF_SSIZE_T 4
  # endif
  # if defined(__i386__) || defined(__x86_64__)
  #define H5_SIZEOF_LONG_DOUBLE 16
  #define H5_SIZEOF_LONG_DOUBLE_COMPLEX 32
  # elif defined(__aarch64__)
  #define H5_SIZEOF_LONG_DOUBLE 8
  #define H5_SIZEOF_LONG_DOUBLE_COMPLEX 16
  # else
  #define H5_SIZEOF_LONG_DOUBLE 16
  #define H5_SIZEOF_LONG_DOUBLE_COMPLEX 32
  # endif
#endif
#if !defined(__APPLE__)
 #define H5_SIZEOF_LONG_LONG 8
#else
 #define H5_SIZEOF_LONG_LONG 8
#endif
#define H5_SIZEOF_OFF_T 8
#define H5_SIZEOF_PTRDIFF_T 8
#define H5_SIZEOF_SHORT 2
#define H5_SIZEOF_TIME_T 8
#define H5_SIZEOF_UINT16_T 2
#define H5_SIZEOF_UINT32_T 4
#define H5_SIZEOF_UINT64_T 8
#define H5_SIZEOF_UINT8_T 1
#define H5_SIZEOF_UINT_FAST16_T 8
#define H5_SIZEOF_UINT_FAST32_T 8
#define H5_SIZEOF_UINT_FAST64_T 8
#define H5_SIZEOF_UINT_FAST8_T 1
#define H5_SIZEOF_UINT_LEAST16_T 2
#define H5_SIZEOF_UINT_LEAST32_T 4
#define H5_SIZEOF_UINT_LEAST64_T 8
#define H5_SIZEOF_UINT_LEAST8_T 1
#define H5_SIZEOF_UNSIGNED 4
#define H5_SIZEOF__FLOAT16 2
#define H5_USE_FILE_LOCKING 1
#define H5_VERSION "2.0.0"
#define H5_WANT_DATA_ACCURACY 1
#define H5_WANT_DCONV_EXCEPTION 1
#if !defined(__APPLE__)
# ifndef WORDS_BIGENDIAN
#  undef WORDS_BIGENDIAN
# endif
#else
# if defined __BIG_ENDIAN__
#  define WORDS_BIGENDIAN 1
# endif
#endif
#endif
