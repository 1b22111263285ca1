#include "runner.h"

#include <utility>
#include <vector>

#include "tensors.h"

namespace octet {

namespace ffi = tvm::ffi;

namespace {

class Marked {
 public:
  explicit Marked(volatile uint8_t* mark) : mark_(mark) { *mark_ = 1; }
  ~Marked() { *mark_ = 0; }
  Marked(const Marked&) = delete;
  Marked& operator=(const Marked&) = delete;

 private:
  volatile uint8_t* mark_;
};

// The buffers are written again by the next call, so the answer is copied out of them.
ffi::Array<ffi::Tensor> copied(const ffi::Any& result) {
  if (auto one = result.as<ffi::Tensor>()) return {copy_of(*one)};
  ffi::Array<ffi::Tensor> outputs;
  for (const ffi::Tensor& each : result.cast<ffi::Array<ffi::Tensor>>()) outputs.push_back(copy_of(each));
  return outputs;
}

}  // namespace

Runner make_runner(ffi::Function entry, ffi::Array<ffi::Any> memory, std::shared_ptr<ThreadTeam> team, int64_t threads,
                   volatile uint8_t* mark, ffi::Array<ffi::Any> keep) {
  std::vector<ffi::Any> owned(memory.begin(), memory.end());
  return ffi::Function::FromTyped([=](ffi::Array<ffi::Tensor> inputs) {
    std::vector<ffi::AnyView> arguments;
    arguments.reserve(inputs.size() + owned.size());
    for (size_t index = 0; index < inputs.size(); ++index) arguments.emplace_back(inputs[index]);
    for (const ffi::Any& each : owned) arguments.emplace_back(each);
    (void)keep;
    CoreLease lease(*team, threads);
    ffi::Any result;
    {
      Marked running(mark);
      entry.CallPacked(arguments.data(), static_cast<int32_t>(arguments.size()), &result);
    }
    return copied(result);
  });
}

}  // namespace octet
