#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "cpu.h"
#include "layout.h"

octet_status octet_model::link() {
  octet_status status = config.plan.check(config.signature, constant_bytes);
  if (status != OCTET_OK) return status;
  if (!config.plan.is_for_card()) return link_functions();
  gpu = octet::create<octet::cuda::Model>();
  return gpu == nullptr ? OCTET_NO_MEMORY : gpu->find(*this);
}

octet_status octet_model::link_functions() {
  size_t index = 0;
  for (octet::Call& call : config.plan.calls()) {
    call.function = library.function(call.symbol);
    if (call.function == nullptr) {
      return octet::fail(OCTET_CORRUPT, "call %zu uses the function %s, which the library does not define", index,
                         call.symbol);
    }
    ++index;
  }
  return OCTET_OK;
}

void octet_model::release() {
  if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) octet::destroy(this);
}

namespace octet {

namespace {

// A model that is being loaded. It is released unless `finish` succeeds.
class Loading {
 public:
  Loading() = default;
  ~Loading() {
    if (model_ != nullptr) model_->release();
  }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;

  octet_status begin(const void* config, size_t config_bytes) {
    model_ = create<octet_model>();
    if (model_ == nullptr) return OCTET_NO_MEMORY;
    octet_status status = model_->config.read(config, config_bytes);
    return status != OCTET_OK ? status : check_cpu(model_->config.requires_flags);
  }

  octet_status finish(const File& library, octet_model** found) {
    octet_status status = model_->library.load(library);
    if (status == OCTET_OK) status = model_->link();
    if (status == OCTET_OK) *found = std::exchange(model_, nullptr);
    return status;
  }

  octet_model* operator->() { return model_; }
  octet_model& operator*() { return *model_; }

 private:
  octet_model* model_ = nullptr;
};

octet_status map_constants(octet_model& model, const File& file) {
  struct stat found;
  if (fstat(file.descriptor(), &found) != 0) return fail_system(errno, "the constants");
  if (!S_ISREG(found.st_mode)) return fail(OCTET_INVALID, "the constants are not a regular file");
  auto bytes = static_cast<size_t>(found.st_size);
  if (bytes == 0) return OCTET_OK;
  void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (mapped == MAP_FAILED) return fail_system(errno, "mapping %zu bytes of constants", bytes);
  model.mapped.reset(mapped, bytes);
  model.constants = model.mapped.begin();
  model.constant_bytes = found.st_size;
  return OCTET_OK;
}

octet_status load_open(const void* config, size_t config_bytes, const File& library, const File& constants,
                       octet_model** found) {
  Loading model;
  octet_status status = model.begin(config, config_bytes);
  if (status == OCTET_OK) status = map_constants(*model, constants);
  return status != OCTET_OK ? status : model.finish(library, found);
}

octet_status open_path(const char* path, File& file) {
  if (path == nullptr) return fail(OCTET_INVALID, "a path is NULL");
  file.reset(open(path, O_RDONLY | O_CLOEXEC));
  return file.is_open() ? OCTET_OK : fail_system(errno, "%s", path);
}

octet_status write_all(const File& file, const void* data, size_t bytes) {
  auto from = static_cast<const uint8_t*>(data);
  while (bytes != 0) {
    ssize_t written = write(file.descriptor(), from, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail_system(errno, "a copy of the library");
    from += written;
    bytes -= static_cast<size_t>(written);
  }
  return OCTET_OK;
}

bool is_missing(const void* data, size_t bytes) { return data == nullptr && bytes != 0; }

}  // namespace

}  // namespace octet

octet_status octet_load(const char* folder, octet_model** model) {
  if (folder == nullptr || model == nullptr) return octet::fail(OCTET_INVALID, "an argument is NULL");
  *model = nullptr;
  octet::Layout layout;
  octet_status status = layout.open(folder);
  if (status != OCTET_OK) return status;
  return octet::load_open(layout.config.begin(), layout.config.size(), layout.library, layout.constants, model);
}

octet_status octet_load_files(const void* config, size_t config_bytes, const char* library_path,
                              const char* constants_path, octet_model** model) {
  if (config == nullptr || model == nullptr) return octet::fail(OCTET_INVALID, "an argument is NULL");
  *model = nullptr;
  octet::File library, constants;
  octet_status status = octet::open_path(library_path, library);
  if (status == OCTET_OK) status = octet::open_path(constants_path, constants);
  return status != OCTET_OK ? status : octet::load_open(config, config_bytes, library, constants, model);
}

octet_status octet_load_memory(const void* config, size_t config_bytes, const void* library, size_t library_bytes,
                               const void* constants, size_t constants_bytes, octet_model** model) {
  if (config == nullptr || model == nullptr || octet::is_missing(library, library_bytes) ||
      octet::is_missing(constants, constants_bytes)) {
    return octet::fail(OCTET_INVALID, "an argument is NULL");
  }
  *model = nullptr;
  if (reinterpret_cast<uintptr_t>(constants) % OCTET_ALIGNMENT != 0 || constants_bytes > INT64_MAX) {
    return octet::fail(OCTET_INVALID, "the constants are not aligned to %d bytes", OCTET_ALIGNMENT);
  }
  octet::Loading loading;
  octet_status status = loading.begin(config, config_bytes);
  if (status != OCTET_OK) return status;
  loading->constants = static_cast<const uint8_t*>(constants);
  loading->constant_bytes = static_cast<int64_t>(constants_bytes);
  octet::File copy(memfd_create("octet-library", MFD_CLOEXEC));
  if (!copy.is_open()) return octet::fail_system(errno, "memfd_create");
  status = octet::write_all(copy, library, library_bytes);
  return status != OCTET_OK ? status : loading.finish(copy, model);
}

void octet_unload(octet_model* model) {
  if (model != nullptr) model->release();
}

int32_t octet_count(const octet_model* model, octet_role role) {
  if (model == nullptr) return 0;
  return role == OCTET_INPUT || role == OCTET_OUTPUT || role == OCTET_STATE ? model->config.signature.count(role) : 0;
}

octet_status octet_describe(const octet_model* model, octet_role role, int32_t index, octet_tensor* tensor) {
  if (tensor == nullptr || index < 0 || index >= octet_count(model, role)) {
    return octet::fail(OCTET_INVALID, "tensor index %d is out of range for role %d", index, static_cast<int>(role));
  }
  *tensor = model->config.signature.tensor(role, static_cast<size_t>(index));
  return OCTET_OK;
}

octet_status octet_initial_state(const octet_model* model, int32_t index, void* memory) {
  if (memory == nullptr || index < 0 || index >= octet_count(model, OCTET_STATE)) {
    return octet::fail(OCTET_INVALID, "state index %d is out of range, or memory is NULL", index);
  }
  model->config.signature.initialize(static_cast<size_t>(index), memory);
  return OCTET_OK;
}

int64_t octet_arena_bytes(const octet_model* model) { return model == nullptr ? 0 : model->config.plan.arena_bytes(); }
int64_t octet_longest(const octet_model* model) { return model == nullptr ? 0 : model->config.plan.longest(); }
int64_t octet_constant_bytes(const octet_model* model) { return model == nullptr ? 0 : model->constant_bytes; }

int32_t octet_calls(const octet_model* model) {
  return model == nullptr ? 0 : static_cast<int32_t>(model->config.plan.calls().size());
}

const char* octet_call_symbol(const octet_model* model, int32_t call) {
  return call < 0 || call >= octet_calls(model) ? nullptr
                                                : model->config.plan.calls()[static_cast<size_t>(call)].symbol;
}

int32_t octet_is_for_card(const octet_model* model) { return model != nullptr && model->gpu != nullptr ? 1 : 0; }

int32_t octet_is_lost(const octet_model* model) {
  return model != nullptr && model->gpu != nullptr && model->gpu->is_lost() ? 1 : 0;
}

octet_function octet_symbol(const octet_model* model, const char* name) {
  return model == nullptr || name == nullptr ? nullptr : model->library.function(name);
}
