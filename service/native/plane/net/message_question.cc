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
    if (connection_.plane().find(model, version) != nullptr) return answer(model, version);
    std::weak_ptr<bool> is_here = is_here_;
    auto found = [this, is_here, model = model, version = version](const Route* route, const Problem* problem) {
      if (is_here.expired()) return;
      guard([&] {
        if (route == nullptr) throw *problem;
        answer(model, version);
      });
    };
    connection_.plane().resolve(connection_.id(), model, version, std::move(found));
  });
}

void MessageQuestion::answer(const std::string& model, const std::string& version) {
  Plane& plane = connection_.plane();
  std::string message = model_response(plane, tenant(), rpc_, model, version, *plane.find(model, version));
  connection_.respond({200, "content-type: application/x-protobuf\r\n", {message}});
}

}  // namespace octet::plane
