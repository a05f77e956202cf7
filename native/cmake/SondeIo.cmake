# The tracer: a library that `sonde io` preloads into programs that know nothing of it. Freestanding where calls are
# taken: no C++ run time, no stack protector, and no vector registers, which may hold arguments of the call it is in.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  sonde_feature(SONDE_IO TRUE "x86-64" "")
else()
  sonde_feature(SONDE_IO FALSE "thunks are written for x86-64, not for ${CMAKE_SYSTEM_PROCESSOR}" "a port")
endif()
if(SONDE_IO_ENABLED)
  enable_language(ASM)
  file(GLOB io_trace_sources CONFIGURE_DEPENDS io/trace/*.cpp io/trace/*.S)
  add_library(sonde-io MODULE ${io_trace_sources})
  set_target_properties(sonde-io PROPERTIES
    PREFIX lib LINKER_LANGUAGE C CXX_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/libexec")
  target_include_directories(sonde-io PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_definitions(sonde-io PRIVATE SONDE_IO_THUNKS=4096)
  target_compile_options(sonde-io PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions;-fno-rtti;-fno-stack-protector;-ftls-model=initial-exec;-fno-lto>")
  set_source_files_properties(io/trace/engine.cpp io/trace/thread.cpp io/trace/confinement.cpp io/trace/unseen.cpp PROPERTIES
    COMPILE_OPTIONS "-mgeneral-regs-only;-fno-tree-loop-distribute-patterns")
  target_link_options(sonde-io PRIVATE -Wl,-z,defs)
  install(TARGETS sonde-io DESTINATION sonde/libexec)
endif()

# Calls that only the kernel sees: a program that reads its trace ring buffer.
add_library(sonde_io_watch STATIC io/watch/spec.cpp)
target_link_libraries(sonde_io_watch PUBLIC sonde_core)
add_executable(sonde-io-watch io/watch/main.cpp)
set_target_properties(sonde-io-watch PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/libexec")
target_link_libraries(sonde-io-watch PRIVATE sonde_io_watch)
install(TARGETS sonde-io-watch DESTINATION sonde/libexec)
