/* Prints the class with the highest value: predict MODEL.octet INPUT, a file with the bytes of the model's input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "octet.h"

static void check(octet_status status) {
  if (status == OCTET_OK) return;
  fprintf(stderr, "%s\n", octet_error());
  exit(1);
}

static void* memory_for(const octet_tensor* tensor) {
  size_t bytes = ((size_t)tensor->bytes + OCTET_ALIGNMENT - 1) / OCTET_ALIGNMENT * OCTET_ALIGNMENT;
  return aligned_alloc(OCTET_ALIGNMENT, bytes);
}

static double value(const octet_tensor* tensor, const void* data, int64_t i) {
  if (strcmp(tensor->datatype, "FP32") == 0) return ((const float*)data)[i];
  int stored = strcmp(tensor->datatype, "UINT8") == 0 ? ((const uint8_t*)data)[i] : ((const int8_t*)data)[i];
  return tensor->scale * (double)(stored - tensor->zero_point);
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: predict MODEL.octet INPUT\n"), 2;
  octet_model* model;
  octet_instance* instance;
  octet_tensor in, out;
  check(octet_load(argv[1], &model));
  check(octet_instance_new(model, NULL, 0, &instance)); /* on all cores */
  check(octet_describe(model, OCTET_INPUT, 0, &in));
  check(octet_describe(model, OCTET_OUTPUT, 0, &out));
  void *input = memory_for(&in), *output = memory_for(&out);
  FILE* file = fopen(argv[2], "rb");
  if (file == NULL || fread(input, (size_t)in.bytes, 1, file) != 1) return perror(argv[2]), 1;
  check(octet_bind(instance, &input, &output));
  check(octet_run(instance));
  int64_t best = 0, classes = out.shape[out.rank - 1];
  for (int64_t i = 1; i < classes; ++i) best = value(&out, output, i) > value(&out, output, best) ? i : best;
  printf("class %d: %.3f\n", (int)best, value(&out, output, best));
  octet_instance_free(instance);
  octet_unload(model);
}
