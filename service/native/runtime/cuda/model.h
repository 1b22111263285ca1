// A model on the GPUs that its instances use: its loaded kernels and its constants.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "../config.h"
#include "../library.h"
#include "../memory.h"
#include "../mutex.h"
#include "../octet.h"
#include "../plan.h"
#include "device.h"

struct octet_model;

namespace octet::cuda {

// The state of a model on one GPU. The model's instances on this GPU share it.
class LoadedModel {
 public:
  explicit LoadedModel(Device& device) : device_(device) {}
  ~LoadedModel();
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  // `kernels` contains the code of each kernel. `of_call` maps each call to its kernel. The device must be current.
  octet_status load(const octet_model& model, const List<DataSymbol>& kernels, const List<uint32_t>& of_call);

  Device& device() const { return device_; }
  Function function(size_t call) const { return loaded_[(*of_call_)[call]].function; }
  Address constants() const { return constants_.begin(); }

 private:
  struct Kernel {
    Module module;
    Function function;
    uint32_t shared_bytes;  // the dynamic shared memory: the maximum of its launches
  };

  octet_status load_kernel(const DataSymbol& code, Kernel& kernel);
  octet_status check_launch(const Plan& plan, size_t call);

  Device& device_;
  List<Kernel> loaded_;
  const List<uint32_t>* of_call_ = nullptr;
  DeviceMemory constants_;
};

class Model {
 public:
  Model() = default;
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Finds the kernels of the plan's calls in the library, and the GPUs that can run the kernels. Does not load the
  // kernels onto a GPU.
  octet_status find(const octet_model& model);

  // Returns the GPU at index `rank` (0, 1, ...) among those that can run the model. These GPUs are sorted by the memory
  // that this process has allocated on each, least first. Returns null if `rank` is too large.
  Device* candidate(int rank) const;

  // Returns the model's state on `device`, loading it on first use. `device` must be current.
  octet_status on(Device& device, const octet_model& model, LoadedModel*& found);

  bool is_lost() const;  // true if a GPU on which the model is loaded has failed

 private:
  struct Code {  // the code for one compute capability
    int capability = 0;
    List<DataSymbol> kernels;
    List<uint32_t> of_call;
  };

  octet_status find_kernels(const octet_model& model, const List<DataSymbol>& defined, Code& code);
  // Returns the code for the highest capability that the device supports, or null.
  const Code* code_for(const Device& device) const;
  octet_status fail_without_gpu() const;

  Code codes_[kMostCapabilities];
  size_t count_ = 0;
  int devices_ = 0;
  mutable Mutex loading_;
  LoadedModel* loaded_[kMostDevices] = {};  // by device index
};

}  // namespace octet::cuda
