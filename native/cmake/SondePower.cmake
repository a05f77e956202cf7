# power: what decides (policies, leases, the ledger) without the bus, for the daemon, for Python and for tests.

file(GLOB power_sources CONFIGURE_DEPENDS power/*.cpp)
add_library(sonde_power STATIC ${power_sources})
set_target_properties(sonde_power PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(sonde_power PUBLIC sonde_core)

# --- hardware: what power is read from and held by (native/power/hardware), and its conformance suite ---
find_package(CURL QUIET)
if(CURL_FOUND AND CURL_VERSION_STRING VERSION_GREATER_EQUAL 7.85)  # CURLOPT_PROTOCOLS_STR
  sonde_feature(SONDE_POWER_REDFISH TRUE "libcurl ${CURL_VERSION_STRING}" "")
else()
  sonde_feature(SONDE_POWER_REDFISH FALSE "libcurl 7.85 or later (curl/curl.h) was not found" "libcurl4-openssl-dev")
endif()
file(GLOB power_hardware_sources CONFIGURE_DEPENDS power/hardware/*.cpp)
add_library(sonde_power_hardware STATIC ${power_hardware_sources})
set_target_properties(sonde_power_hardware PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(sonde_power_hardware PUBLIC sonde_power ${CMAKE_DL_LIBS})
if(SONDE_POWER_REDFISH_ENABLED)
  target_link_libraries(sonde_power_hardware PRIVATE CURL::libcurl)
  target_compile_definitions(sonde_power_hardware PRIVATE SONDE_HAVE_CURL)
endif()
file(GLOB power_conformance_sources CONFIGURE_DEPENDS power/conformance/*.cpp)
add_library(sonde_power_conformance STATIC ${power_conformance_sources})
target_link_libraries(sonde_power_conformance PUBLIC sonde_power_hardware)
add_executable(sonde-powerconform power/conform/main.cpp)
set_target_properties(sonde-powerconform PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/libexec")
target_link_libraries(sonde-powerconform PRIVATE sonde_power_conformance)
install(TARGETS sonde-powerconform DESTINATION sonde/libexec)
# --- end of hardware ---
