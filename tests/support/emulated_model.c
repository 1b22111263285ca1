/* Usage: model SAMPLES THREADS FOLDER, or CONFIG LIBRARY CONSTANTS instead of FOLDER. Reads the inputs of SAMPLES
   samples one after another from the standard input, and writes their outputs to the standard output. */
#include <stdio.h>
#include <stdlib.h>

#include "octet.h"

enum { MOST = 64 };

static void check(octet_status status) {
  if (status == OCTET_OK) return;
  fprintf(stderr, "%s\n", octet_error());
  exit(1);
}

static int32_t tensors(octet_model* model, octet_role role, void** memory, int64_t* bytes) {
  int32_t count = octet_count(model, role);
  if (count > MOST) exit(2);
  for (int32_t i = 0; i < count; ++i) {
    octet_tensor tensor;
    check(octet_describe(model, role, i, &tensor));
    bytes[i] = tensor.bytes;
    memory[i] =
        aligned_alloc(OCTET_ALIGNMENT, ((size_t)bytes[i] + OCTET_ALIGNMENT - 1) / OCTET_ALIGNMENT * OCTET_ALIGNMENT);
  }
  return count;
}

static octet_model* loaded(int count, char** paths) {
  static char config[1 << 22];
  octet_model* model;
  if (count == 1) return check(octet_load(paths[0], &model)), model;
  FILE* file = fopen(paths[0], "rb");
  size_t bytes = file == NULL ? 0 : fread(config, 1, sizeof config, file);
  check(octet_load_files(config, bytes, paths[1], paths[2], &model));
  return model;
}

int main(int argc, char** argv) {
  if (argc != 4 && argc != 6) return 2;
  octet_model* model = loaded(argc - 3, argv + 3);
  octet_instance* instance;
  check(octet_instance_new(model, NULL, atoi(argv[2]), &instance));
  void *inputs[MOST], *outputs[MOST];
  int64_t in[MOST], out[MOST];
  int32_t ins = tensors(model, OCTET_INPUT, inputs, in), outs = tensors(model, OCTET_OUTPUT, outputs, out);
  check(octet_bind(instance, inputs, outputs));
  for (int sample = atoi(argv[1]); sample-- > 0;) {
    for (int32_t i = 0; i < ins; ++i)
      if (fread(inputs[i], (size_t)in[i], 1, stdin) != 1) return 3;
    check(octet_run(instance));
    for (int32_t i = 0; i < outs; ++i)
      if (fwrite(outputs[i], (size_t)out[i], 1, stdout) != 1) return 3;
  }
  octet_instance_free(instance);
  octet_unload(model);
  return 0;
}
