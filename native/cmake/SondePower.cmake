# power: what decides (policies, leases, the ledger) without the bus, for the daemon, for Python and for tests.

file(GLOB power_sources CONFIGURE_DEPENDS power/*.cpp)
add_library(sonde_power STATIC ${power_sources})
set_target_properties(sonde_power PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(sonde_power PUBLIC sonde_core)
