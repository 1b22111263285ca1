// A model on the cards that its instances are on: its kernels, loaded, and its constants.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "../config.h"
#include "../library.h"
#include "../memory.h"
#include "../mutex.h"
#include "../octet.h"
#include "../plan.h"

struct octet_model;

namespace octet::cuda {

// What one card has of it. Shared by the instances there.
class LoadedModel {
 public:
  explicit LoadedModel(Device& device) : device_(device) {}
  ~LoadedModel();
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  // `kernels`: the code of each; `of_call`: which of them each call launches. To be called of the current device.
  octet_status load(const octet_model& model, const List<DataSymbol>& kernels, const List<uint32_t>& of_call);

  Device& device() const { return device_; }
  Function function(size_t call) const { return loaded_[(*of_call_)[call]].function; }
  Address constants() const { return constants_.begin(); }

 private:
  struct Kernel {
    Module module;
    Function function;
    uint32_t shared_bytes;  // dynamic, the most of its launches
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

  // Finds the kernels of the plan's calls in the library, and cards that run them. Nothing is loaded to any yet.
  octet_status find(const octet_model& model);

  // Cards that run the model, on which this process has allocated least first: `place` is 0, 1, … Null: there are no more.
  Device* candidate(int place) const;

  // What there is of it on a device, loaded if need be. To be called of the current device.
  octet_status on(Device& device, const octet_model& model, LoadedModel*& found);

  bool is_lost() const;  // one of the cards that it was loaded to failed

 private:
  struct Code {  // for one compute capability
    int capability = 0;
    List<DataSymbol> kernels;
    List<uint32_t> of_call;
  };

  octet_status find_kernels(const octet_model& model, const List<DataSymbol>& defined, Code& code);
  const Code* code_for(const Device& device) const;  // that of the highest capability; null: it runs none
  octet_status fail_without_card() const;

  Code codes_[kMostCapabilities];
  size_t count_ = 0;
  int devices_ = 0;
  mutable Mutex loading_;
  LoadedModel* loaded_[kMostDevices] = {};  // by the index of the device
};

}  // namespace octet::cuda
