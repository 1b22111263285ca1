#include "net/message_question.h"

#include <utility>

#include "net/grpc_call.h"
#include "net/reading.h"
#include "request/tenant.h"

namespace octet::plane {

// Only the cluster's API sends such requests.
std::string MessageQuestion::tenant() const { return std::string(connection_.head().find(kTenantHeader)); }

void MessageQuestion::on_body(std::string_view piece) {
  guard([&] {
    if (message_.size() + piece.size() > kMessageHeadBytes) refuse_size(kMessageHeadBytes);
    message_.append(piece);
  });
}

void MessageQuestion::on_body_end() {
  guard([this] {
    auto [name, number] = name_and_version(message_);
    auto [model, version] = parse_address(qualify_name(tenant(), name), number);
    resolve(model, version, [this, model = model, version = version](const Route& route) {
      std::string message = model_response(plane_, tenant(), rpc_, model, version, route);
      connection_.respond({200, "content-type: application/x-protobuf\r\n", {message}});
    });
  });
}

}  // namespace octet::plane
