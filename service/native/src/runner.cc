#include "runner.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "tensors.h"

namespace octet {

namespace ffi = tvm::ffi;

namespace {

struct Spec {
  std::vector<int64_t> shape;
  DLDataType dtype;
};

void check(octet_status status) {
  if (status != OCTET_OK) TVM_FFI_THROW(RuntimeError) << octet_error();
}

// FP32 -> float32, INT8 -> int8: the Open Inference Protocol's names and NumPy's.
DLDataType dtype_of(std::string datatype) {
  if (datatype.compare(0, 2, "FP") == 0) return ffi::StringToDLDataType("float" + datatype.substr(2));
  for (char& letter : datatype) letter = static_cast<char>(std::tolower(letter));
  return ffi::StringToDLDataType(datatype);
}

std::vector<Spec> specs_of(const octet_model* model, octet_role role) {
  std::vector<Spec> specs;
  for (int32_t index = 0; index < octet_count(model, role); ++index) {
    octet_tensor tensor;
    check(octet_describe(model, role, index, &tensor));
    specs.push_back({{tensor.shape, tensor.shape + tensor.rank}, dtype_of(tensor.datatype)});
  }
  return specs;
}

std::vector<ffi::Tensor> made(const std::vector<Spec>& specs) {
  std::vector<ffi::Tensor> tensors;
  tensors.reserve(specs.size());
  for (const Spec& spec : specs) tensors.push_back(make_tensor(spec.shape, spec.dtype));
  return tensors;
}

template <typename Tensors>
std::vector<void*> addresses(const Tensors& tensors) {
  std::vector<void*> found;
  found.reserve(tensors.size());
  for (const ffi::Tensor& tensor : tensors) found.push_back(tensor.data_ptr());
  return found;
}

}  // namespace

Runner make_runner(const octet_model* model, octet_instance* instance) {
  std::shared_ptr<octet_instance> held(octet_instance_share(instance), octet_instance_free);
  size_t arguments = static_cast<size_t>(octet_count(model, OCTET_INPUT));
  std::vector<Spec> outputs = specs_of(model, OCTET_OUTPUT), states = specs_of(model, OCTET_STATE);
  return ffi::Function::FromTyped([=](ffi::Array<ffi::Tensor> inputs) {
    TVM_FFI_CHECK(inputs.size() == arguments + states.size(), ValueError)
        << "the model takes " << arguments + states.size() << " tensors, not " << inputs.size();
    std::vector<void*> in = addresses(inputs);
    std::vector<ffi::Tensor> out = made(outputs), after = made(states);
    check(octet_bind(held.get(), in.data(), addresses(out).data()));
    if (!states.empty()) check(octet_bind_states(held.get(), in.data() + arguments, addresses(after).data()));
    check(octet_run(held.get()));
    out.insert(out.end(), after.begin(), after.end());
    return ffi::Array<ffi::Tensor>(out.begin(), out.end());
  });
}

Runner make_choosing_runner(std::vector<Runner> runners, std::vector<std::vector<int64_t>> shapes) {
  TVM_FFI_CHECK(runners.size() == shapes.size(), ValueError) << "each runner has shapes of its own";
  return ffi::Function::FromTyped([=](ffi::Array<ffi::Tensor> inputs) {
    std::vector<int64_t> given;
    for (const ffi::Tensor& tensor : inputs) given.insert(given.end(), tensor.shape().begin(), tensor.shape().end());
    auto found = std::find(shapes.begin(), shapes.end(), given);
    TVM_FFI_CHECK(found != shapes.end(), ValueError) << "no runner takes inputs of these shapes";
    return runners[found - shapes.begin()](inputs).cast<ffi::Array<ffi::Tensor>>();
  });
}

}  // namespace octet
