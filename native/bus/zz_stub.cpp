#include "bus/idl.hpp"
#include "bus/request.hpp"
namespace sonde::bus {
#ifdef STUB_IDL
Result<std::map<std::string, TypePtr>> parse_idl(std::string_view, std::string_view) { return Error{"x","",""}; }
Result<std::map<std::string, TypePtr>> load_idl(const std::string&) { return Error{"x","",""}; }
#endif
Result<std::unique_ptr<Client>> Client::open(std::shared_ptr<Bus>, const std::string&, const ServiceTypes&, const Qos&) { return Error{"x","",""}; }
Result<std::unique_ptr<Server>> Server::open(std::shared_ptr<Bus>, const std::string&, const ServiceTypes&, Handler, const ServerOptions&, const Qos&) { return Error{"x","",""}; }
}
