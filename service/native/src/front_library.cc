// What Python sees of the front: `service/native/front.py` says what of it is for whom.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include "front.h"
#include "front_objects.h"

namespace octet {

namespace refl = tvm::ffi::reflection;

namespace {

class FrontObj : public ffi::Object {
 public:
  Front front;
  FrontObj(int listener, const Limits& limits, std::shared_ptr<PeerBudgets> budgets)
      : front(listener, limits, std::move(budgets)) {}
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("octet.Front", FrontObj, ffi::Object);
};

using FrontRef = Ref<FrontObj>;

std::vector<size_t> indices(const ffi::Array<int64_t>& given) {
  std::vector<size_t> found;
  for (int64_t each : given) {
    TVM_FFI_CHECK(each >= 0, ValueError) << "an index is negative";
    found.push_back(static_cast<size_t>(each));
  }
  return found;
}

void remember(EntryObj* self, ffi::Bytes inference_header, ffi::Array<ffi::Array<int64_t>> shapes,
              ffi::Array<DLDataType> dtypes,
              ffi::Array<int64_t> order, int64_t samples, int64_t level, double timeout_s, ffi::Bytes document,
              ffi::Array<int64_t> outputs, int64_t output_bytes) {
  TVM_FFI_CHECK(shapes.size() == dtypes.size() && output_bytes >= 0, ValueError) << "a request template makes no sense";
  RequestTemplate request_template;
  for (size_t index = 0; index < shapes.size(); ++index) {
    request_template.sent.push_back({{shapes[index].begin(), shapes[index].end()}, dtypes[index]});
  }
  request_template.order = indices(order);
  request_template.samples = samples;
  request_template.level = level;
  request_template.timeout_s = timeout_s;
  request_template.document = view(document);
  request_template.outputs = indices(outputs);
  request_template.answer_bytes = request_template.document.size() + static_cast<size_t>(output_bytes);
  self->entry->remember(std::string(view(inference_header)), std::move(request_template));
}

FrontRef make_front(int64_t listener, double head_timeout_s, double keep_alive_s, double stall_timeout_s,
                    int64_t min_body_bytes, double lend_after_s, int64_t max_head_bytes, int64_t longest_body_bytes,
                    ffi::Array<ffi::String> hosts, PeerBudgetsRef budgets) {
  Limits limits;
  limits.head_timeout_s = head_timeout_s;
  limits.keep_alive_s = keep_alive_s;
  limits.stall_timeout_s = stall_timeout_s;
  limits.min_body_bytes = static_cast<size_t>(std::max<int64_t>(1, min_body_bytes));
  limits.lend_after_s = lend_after_s;
  limits.max_head_bytes = std::min(limits.max_head_bytes, static_cast<size_t>(std::max<int64_t>(1, max_head_bytes)));
  limits.longest_body_bytes = static_cast<size_t>(std::max<int64_t>(0, longest_body_bytes));
  for (const ffi::String& host : hosts) limits.hosts.emplace_back(host);
  return FrontRef(ffi::make_object<FrontObj>(static_cast<int>(listener), limits, budgets->budgets));
}

ffi::Array<ffi::Array<ffi::Any>> events(FrontObj* self) {
  ffi::Array<ffi::Array<ffi::Any>> found;
  for (FrontEvent& each : self->front.events()) {
    if (auto* handover = std::get_if<Handover>(&each)) {
      SeatRef seat(ffi::make_object<SeatObj>(std::move(handover->seat)));
      found.push_back({ffi::String("connection"), handover->descriptor, ffi::Bytes(std::move(handover->bytes)), seat});
    } else {
      found.push_back(described(std::get<Problem>(each)));
    }
  }
  return found;
}

PeerBudgetsRef make_budgets(int64_t max_connections, int64_t max_calls, int64_t max_message_bytes, double share) {
  TVM_FFI_CHECK(share > 0 && share <= 1, ValueError) << share << " is no share";
  PeerLimits limits;
  limits.max_connections = static_cast<size_t>(std::max<int64_t>(1, max_connections));
  limits.max_calls = static_cast<size_t>(std::max<int64_t>(1, max_calls));
  limits.max_message_bytes = static_cast<size_t>(std::max<int64_t>(1, max_message_bytes));
  limits.share = share;
  return PeerBudgetsRef(ffi::make_object<PeerBudgetsObj>(limits));
}

ffi::Array<int64_t> held(PeerBudgetsObj* self) {
  auto amount = [&](Resource what) { return static_cast<int64_t>(self->budgets->held(what)); };
  return {amount(Resource::kConnections), amount(Resource::kCalls), amount(Resource::kMessageBytes)};
}

ffi::Array<int64_t> counts(FrontObj* self) { return {self->front.connections(), self->front.busy()}; }

TVM_FFI_STATIC_INIT_BLOCK() {
  refl::ObjectDef<EntryObj>(refl::init(false))
      .def("remember", remember)
      .def("refuse_with", [](EntryObj* self, ffi::String kind, int64_t status, ffi::Bytes answer) {
        self->entry->refuse_with(std::string(kind), ProblemTemplate(status, view(answer)));
      });
  refl::ObjectDef<PeerBudgetsObj>(refl::init(false)).def("held", held);
  refl::ObjectDef<SeatObj>(refl::init(false)).def("leave", [](SeatObj* self) { self->holding = {}; });
  refl::ObjectDef<FrontObj>(refl::init(false))
      .def("descriptor", [](FrontObj* self) { return self->front.descriptor(); })
      .def("events", events)
      .def("answer", [](FrontObj* self, int64_t exchange, ffi::Bytes answer) {
        self->front.reply(exchange, std::string(view(answer)));
      })
      .def("adopt", [](FrontObj* self, int64_t descriptor, ffi::Bytes bytes) {
        self->front.adopt(static_cast<int>(descriptor), std::string(view(bytes)));
      })
      .def("takes", [](FrontObj* self, ffi::Bytes bytes) { return self->front.takes(view(bytes)); })
      .def("routes", [](FrontObj* self, EntriesByPath entries) { self->front.route(routes_of(entries)); })
      .def("drain", [](FrontObj* self) { return table_of(self->front.records()); })
      .def("counts", counts)
      .def("stop", [](FrontObj* self) { self->front.stop(); })
      .def("join", [](FrontObj* self) { self->front.join(); });
  refl::GlobalDef()
      .def("octet.front", make_front)
      .def("octet.peer_budgets", make_budgets)
      .def("octet.entry", [](ModelQueueRef queue, int64_t key) { return EntryRef(ffi::make_object<EntryObj>(queue, key)); });
}

}  // namespace

}  // namespace octet
