// What Python sees of the front for gRPC: `service/native/grpc_front.py` says what of it is for whom.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include "front_objects.h"
#include "grpc_front.h"

namespace octet {

namespace refl = tvm::ffi::reflection;

namespace {

class GrpcFrontObj : public ffi::Object {
 public:
  GrpcFront front;
  GrpcFrontObj(int listener, const GrpcFrontLimits& limits, std::shared_ptr<PeerBudgets> budgets)
      : front(listener, limits, std::move(budgets)) {}
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.GrpcFront", GrpcFrontObj, ffi::Object);
};

using GrpcFrontRef = Ref<GrpcFrontObj>;

size_t natural(int64_t number) { return static_cast<size_t>(std::max<int64_t>(0, number)); }

// Metadata comes and goes as lines, a name and then its value, for neither holds any line's end.
h2::HeaderBlock block(std::string_view lines) {
  h2::HeaderBlock fields;
  while (!lines.empty()) {
    size_t middle = lines.find('\n'), end = middle == std::string_view::npos ? middle : lines.find('\n', middle + 1);
    TVM_FFI_CHECK(end != std::string_view::npos, ValueError) << "metadata is no pairs of lines";
    fields.add(lines.substr(0, middle), lines.substr(middle + 1, end - middle - 1));
    lines.remove_prefix(end + 1);
  }
  return fields;
}

GrpcFrontRef make_front(int64_t listener, double head_timeout_s, double stall_timeout_s, double idle_timeout_s,
                        int64_t min_body_bytes, int64_t max_message_bytes, PeerBudgetsRef budgets) {
  GrpcFrontLimits limits;
  limits.head_timeout_s = head_timeout_s;
  limits.stall_timeout_s = stall_timeout_s;
  limits.idle_timeout_s = idle_timeout_s;
  limits.min_body_bytes = std::max<size_t>(1, natural(min_body_bytes));
  limits.max_message_bytes = natural(max_message_bytes);
  return GrpcFrontRef(ffi::make_object<GrpcFrontObj>(static_cast<int>(listener), limits, budgets->budgets));
}

ffi::Array<ffi::Any> described(const CallEvent& event) {
  switch (event.kind) {
    case CallEvent::Kind::kCall:
      return {ffi::String("call"), event.call, ffi::Bytes(event.path), event.deadline_s, ffi::Bytes(event.metadata)};
    case CallEvent::Kind::kMessage:
      return {ffi::String("message"), event.call,
              ffi::Bytes(reinterpret_cast<const char*>(event.message.data), event.message.size), event.is_compressed};
    case CallEvent::Kind::kHalfClose:
      return {ffi::String("half_close"), event.call};
    case CallEvent::Kind::kProblem:
      return described(event.problem);
    default:
      return {ffi::String("cancel"), event.call};
  }
}

ffi::Array<ffi::Array<ffi::Any>> events(GrpcFrontObj* self) {
  ffi::Array<ffi::Array<ffi::Any>> found;
  for (const CallEvent& each : self->front.events()) found.push_back(described(each));
  return found;
}

Command command_of(int64_t call, Command::Kind kind) {
  Command command;
  command.call = call;
  command.kind = kind;
  return command;
}

void send_metadata(GrpcFrontObj* self, int64_t call, ffi::Bytes metadata) {
  Command command = command_of(call, Command::Kind::kMetadata);
  command.metadata = block(view(metadata));
  self->front.command(std::move(command));
}

void send_message(GrpcFrontObj* self, int64_t call, ffi::Bytes message, bool is_compressed) {
  Command command = command_of(call, Command::Kind::kMessage);
  command.message = h2::Buffer::copy_of(view(message));
  command.is_compressed = is_compressed;
  self->front.command(std::move(command));
}

void finish(GrpcFrontObj* self, int64_t call, int64_t status, ffi::Bytes details, ffi::Bytes metadata) {
  TVM_FFI_CHECK(status >= 0 && status <= 16, ValueError) << status << " is no status";
  Command command = command_of(call, Command::Kind::kFinish);
  command.status = static_cast<h2::GrpcStatus>(status);
  command.details = view(details);
  command.metadata = block(view(metadata));
  self->front.command(std::move(command));
}

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<GrpcFrontObj>(refl::init(false))
      .def("descriptor", [](GrpcFrontObj* self) { return self->front.descriptor(); })
      .def("events", events)
      .def("send_metadata", send_metadata)
      .def("send_message", send_message)
      .def("finish", finish)
      .def("resume", [](GrpcFrontObj* self, int64_t call) {
        self->front.command(command_of(call, Command::Kind::kResume));
      })
      .def("release", [](GrpcFrontObj* self, int64_t call) {
        self->front.command(command_of(call, Command::Kind::kRelease));
      })
      .def("flush", [](GrpcFrontObj* self) { self->front.flush(); })
      .def("routes", [](GrpcFrontObj* self, EntriesByPath entries) { self->front.route(routes_of(entries)); })
      .def("drain", [](GrpcFrontObj* self) { return table_of(self->front.records()); })
      .def("connections", [](GrpcFrontObj* self) { return self->front.connections(); })
      .def("stop", [](GrpcFrontObj* self) { self->front.stop(); })
      .def("join", [](GrpcFrontObj* self) { self->front.join(); });
  refl::GlobalDef().def("octet.grpc_front", make_front);
}

}  // namespace

}  // namespace octet
