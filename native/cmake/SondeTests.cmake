# C++ tests: one program for each library, bin/sonde-test-NAME. `all` leaves them out, and so does what is installed: the
# target sonde-tests builds them, with all that they load or start. tests/native/run.py runs those of tests/programs.txt.

find_path(DOCTEST_INCLUDE doctest/doctest.h)
if(DOCTEST_INCLUDE)
  sonde_feature(SONDE_NATIVE_TESTS TRUE "${DOCTEST_INCLUDE}" "")
else()
  sonde_feature(SONDE_NATIVE_TESTS FALSE "doctest.h was not found" "doctest-dev")
endif()
if(NOT SONDE_NATIVE_TESTS_ENABLED)
  return()
endif()

set(tests "${CMAKE_SOURCE_DIR}/tests/native")
set(test_programs "")
add_custom_target(sonde-tests)
add_library(sonde_test_main OBJECT EXCLUDE_FROM_ALL "${tests}/main.cpp")
target_include_directories(sonde_test_main SYSTEM PUBLIC "${DOCTEST_INCLUDE}")

# sonde_test(NAME SOURCES sources LIBRARIES libraries [LOADS targets that are opened or started, where they are built])
macro(sonde_test name)
  cmake_parse_arguments(test "" "" "SOURCES;LIBRARIES;LOADS" ${ARGN})
  add_executable(sonde-test-${name} EXCLUDE_FROM_ALL ${test_SOURCES})
  target_link_libraries(sonde-test-${name} PRIVATE sonde_test_main)
  target_compile_definitions(sonde-test-${name} PRIVATE SONDE_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
  foreach(library IN LISTS test_LIBRARIES)
    if(TARGET ${library})
      target_link_libraries(sonde-test-${name} PRIVATE ${library})
    endif()
  endforeach()
  # Without them their tests would find nothing to test, and pass.
  foreach(loaded IN LISTS test_LOADS)
    if(TARGET ${loaded})
      add_dependencies(sonde-test-${name} ${loaded})
    endif()
  endforeach()
  add_dependencies(sonde-tests sonde-test-${name})
  list(APPEND test_programs sonde-test-${name})
endmacro()

file(GLOB core_tests CONFIGURE_DEPENDS "${tests}/core/*.cpp")
sonde_test(core SOURCES ${core_tests} LIBRARIES sonde_core)

file(GLOB noise_tests CONFIGURE_DEPENDS "${tests}/noise/*.cpp")
sonde_test(noise SOURCES ${noise_tests} LIBRARIES sonde_noise)

file(GLOB io_tests CONFIGURE_DEPENDS "${tests}/io/*.cpp")
sonde_test(io SOURCES ${io_tests} LIBRARIES sonde_io_watch sonde_ioload)

if(SONDE_STORE_ENABLED)
  file(GLOB store_tests CONFIGURE_DEPENDS "${tests}/store/*.cpp")
  sonde_test(store SOURCES ${store_tests} "${tests}/hostile/stranger.cpp" LIBRARIES sonde_store sonde_store_server
    LOADS sonde_store_ofi sonde-ofi-probe sonde_store_rocksdb)
  target_link_libraries(sonde-test-store PRIVATE ${SSL_LIBRARY} ${CRYPTO_LIBRARY})  # a peer of TLS that is not ours

  # What attacks the server. A program of its own: it stands between all others and their memory and threads.
  file(GLOB hostile_tests CONFIGURE_DEPENDS "${tests}/hostile/*.cpp")
  if(TARGET sonde_store_ofi)  # a stranger at an endpoint of libfabric is one of libfabric's own
    list(APPEND hostile_tests store/module/ofi/fabric.cpp store/module/ofi/strict.cpp)
  else()
    list(FILTER hostile_tests EXCLUDE REGEX "/test_hostile_fabric\\.cpp$")
  endif()
  sonde_test(hostile SOURCES ${hostile_tests} "${tests}/store/store_faults.cpp" LIBRARIES sonde_store sonde_store_server sonde_service
    sonde_h5_records LOADS sonde_store_ofi sonde-ofi-probe)
  if(TARGET sonde_store_ofi)
    target_link_libraries(sonde-test-hostile PRIVATE ${LIBFABRIC_LIBRARY})
    target_include_directories(sonde-test-hostile SYSTEM PRIVATE ${LIBFABRIC_INCLUDE})
  endif()
  add_library(sonde-hostile-waits MODULE EXCLUDE_FROM_ALL "${tests}/hostile/modules/waits.cpp")
  set_target_properties(sonde-hostile-waits PROPERTIES PREFIX "" OUTPUT_NAME sonde-store-waits
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/hostile-modules")
  target_link_libraries(sonde-hostile-waits PRIVATE sonde_store)
  add_dependencies(sonde-test-hostile sonde-hostile-waits)
  target_compile_definitions(sonde-test-hostile PRIVATE SONDE_TEST_HOSTILE_MODULES="${CMAKE_BINARY_DIR}/tests/hostile-modules")
endif()

file(GLOB power_tests CONFIGURE_DEPENDS "${tests}/power/*.cpp")
sonde_test(power SOURCES ${power_tests} LIBRARIES sonde_power sonde_powerconform LOADS sonde-powerconform)
add_library(sonde-test-nvml SHARED EXCLUDE_FROM_ALL "${tests}/power/nvml/fake_nvml.cpp")
set_target_properties(sonde-test-nvml PROPERTIES OUTPUT_NAME nvidia-ml SOVERSION 1 LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/nvml")
target_compile_definitions(sonde-test-power PRIVATE SONDE_TEST_NVML="$<TARGET_FILE:sonde-test-nvml>")
add_dependencies(sonde-test-power sonde-test-nvml)

if(SONDE_POWER_ENABLED)
  file(GLOB powerd_tests CONFIGURE_DEPENDS "${tests}/power/powerd/*.cpp")
  if(NOT "SONDE_POWERD_NODE" IN_LIST powerd_roles)
    list(FILTER powerd_tests EXCLUDE REGEX "/test_powerd_node\\.cpp$")
  endif()
  if(NOT "SONDE_POWERD_BRIDGE" IN_LIST powerd_roles)
    list(FILTER powerd_tests EXCLUDE REGEX "/test_powerd_(bridge|hostile|link|packets|wire)\\.cpp$")
  endif()
  sonde_test(powerd SOURCES ${powerd_tests} LIBRARIES sonde_powerd sonde_power_fuzz
    LOADS sonde-powerd sonde-powerfuzz sonde_bus_cyclonedds sonde_bus_fastdds)
  target_compile_definitions(sonde-test-powerd PRIVATE SONDE_TEST_POWERD="$<TARGET_FILE:sonde-powerd>")
endif()

if(SONDE_BUS_ENABLED)
  file(GLOB bus_tests CONFIGURE_DEPENDS "${tests}/bus/*.cpp")
  sonde_test(bus SOURCES ${bus_tests} LIBRARIES sonde_bus sonde_bus_fuzz sonde_busprobe
    LOADS sonde_bus_cyclonedds sonde_bus_fastdds sonde-busprobe sonde-busconform sonde-busfuzz)
  foreach(kind mock abi throws nothing symbol incomplete taken)
    add_library(sonde-bus-test-${kind} MODULE EXCLUDE_FROM_ALL "${tests}/bus/modules/module.cpp")
    set_target_properties(sonde-bus-test-${kind} PROPERTIES PREFIX "" OUTPUT_NAME sonde-bus-${kind} CXX_VISIBILITY_PRESET hidden
      LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/bus-modules")
    target_compile_definitions(sonde-bus-test-${kind} PRIVATE MODULE_KIND="${kind}" $<$<STREQUAL:${kind},symbol>:MODULE_WITHOUT_SYMBOL>)
    target_link_libraries(sonde-bus-test-${kind} PRIVATE sonde_bus)
    add_dependencies(sonde-test-bus sonde-bus-test-${kind})
  endforeach()
  # What the conformance suite is tried on: the page's example, and an implementation with mistakes.
  foreach(module "room|examples/bus-module/room.cpp" "mistaken|tests/native/bus/modules/mistaken.cpp")
    string(REPLACE "|" ";" module "${module}")
    list(GET module 0 name)
    list(GET module 1 source)
    add_library(sonde-bus-conform-${name} MODULE EXCLUDE_FROM_ALL "${CMAKE_SOURCE_DIR}/${source}")
    set_target_properties(sonde-bus-conform-${name} PROPERTIES PREFIX "" OUTPUT_NAME sonde-bus-${name}
      LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/bus-conform-modules")
    target_link_libraries(sonde-bus-conform-${name} PRIVATE sonde_bus)
    add_dependencies(sonde-test-bus sonde-bus-conform-${name})
  endforeach()
  target_compile_definitions(sonde-test-bus PRIVATE
    SONDE_TEST_BUS_MODULES="${CMAKE_BINARY_DIR}/tests/bus-modules"
    SONDE_TEST_BUS_CONFORM_MODULES="${CMAKE_BINARY_DIR}/tests/bus-conform-modules"
    SONDE_TEST_BUSCONFORM="$<TARGET_FILE:sonde-busconform>")
endif()

list(JOIN test_programs "\n" test_programs)
file(GENERATE OUTPUT "${CMAKE_BINARY_DIR}/tests/programs.txt" CONTENT "${test_programs}\n")
