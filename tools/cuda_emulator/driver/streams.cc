// Streams, graphs and events.
#include "tools/cuda_emulator/driver/state.h"

using namespace octet::emulated;

API cuStreamCreate(Stream** stream, unsigned flags) {
  USABLE("cuStreamCreate");
  if (flags != 1) misuse("cuStreamCreate: only streams with CU_STREAM_NON_BLOCKING are emulated");
  *stream = made(new Stream{});
  current.back()->streams.insert(*stream);
  return kSuccess;
}

API cuStreamDestroy_v2(Stream* stream) {
  USABLE("cuStreamDestroy");
  Stream* found = of_now<Stream>(stream, "cuStreamDestroy");
  if (found->capture != nullptr) misuse("a stream is destroyed while it is captured");
  drain(*found, nullptr);
  current.back()->streams.erase(found);
  unmake(found);
  return kSuccess;
}

API cuStreamBeginCapture_v2(Stream* stream, int mode) {
  USABLE("cuStreamBeginCapture");
  Stream* found = of_now<Stream>(stream, "cuStreamBeginCapture");
  if (mode != 1) misuse("cuStreamBeginCapture: only the mode CU_STREAM_CAPTURE_MODE_THREAD_LOCAL is emulated");
  if (found->capture != nullptr) misuse("a stream is captured already");
  found->capture = std::make_unique<Graph>();
  return kSuccess;
}

API cuStreamEndCapture(Stream* stream, Graph** graph) {
  USABLE("cuStreamEndCapture");
  Stream* found = of_now<Stream>(stream, "cuStreamEndCapture");
  if (found->capture == nullptr) misuse("cuStreamEndCapture: the stream is not captured");
  *graph = made(found->capture.release());
  return kSuccess;
}

API cuGraphInstantiateWithFlags(GraphExec** exec, Graph* graph, unsigned long long) {
  USABLE("cuGraphInstantiateWithFlags");
  *exec = made(new GraphExec{});
  (*exec)->operations = of_now<Graph>(graph, "cuGraphInstantiateWithFlags")->operations;
  return kSuccess;
}

API cuGraphLaunch(GraphExec* exec, Stream* stream) {
  USABLE("cuGraphLaunch");
  for (const Operation& each : of_now<GraphExec>(exec, "cuGraphLaunch")->operations) {
    enqueue(of_now<Stream>(stream, "cuGraphLaunch"), each);
  }
  return kSuccess;
}

API cuGraphDestroy(Graph* graph) {
  USABLE("cuGraphDestroy");
  unmake(of_now<Graph>(graph, "cuGraphDestroy"));
  return kSuccess;
}

API cuGraphExecDestroy(GraphExec* exec) {
  USABLE("cuGraphExecDestroy");
  unmake(of_now<GraphExec>(exec, "cuGraphExecDestroy"));
  return kSuccess;
}

API cuEventCreate(Event** event, unsigned flags) {
  USABLE("cuEventCreate");
  if ((flags & 1) == 0) misuse("cuEventCreate: without CU_EVENT_BLOCKING_SYNC, a thread would wait actively");
  *event = made(new Event{});
  (*event)->is_timed = (flags & 2) == 0;
  return kSuccess;
}

API cuEventRecord(Event* event, Stream* stream) {
  USABLE("cuEventRecord");
  Event* found = of_now<Event>(event, "cuEventRecord");
  found->stream = of_now<Stream>(stream, "cuEventRecord");
  found->is_done = false;
  return enqueue(found->stream, {nullptr, found});
}

API cuEventSynchronize(Event* event) {
  USABLE("cuEventSynchronize");
  Event* found = of_now<Event>(event, "cuEventSynchronize");
  if (found->is_done) return kSuccess;
  return drain(*of_now<Stream>(found->stream, "cuEventSynchronize"), found);
}

API cuEventElapsedTime(float* ms, Event* first, Event* second) {
  USABLE("cuEventElapsedTime");
  Event* begun = of_now<Event>(first, "cuEventElapsedTime");
  Event* ended = of_now<Event>(second, "cuEventElapsedTime");
  if (!begun->is_timed || !ended->is_timed || !begun->is_done || !ended->is_done)
    misuse("cuEventElapsedTime: an event is not timed or not done");
  *ms = static_cast<float>(1e3 * (ended->at_s - begun->at_s));
  return kSuccess;
}

API cuEventDestroy_v2(Event* event) {
  USABLE("cuEventDestroy");
  unmake(of_now<Event>(event, "cuEventDestroy"));
  return kSuccess;
}
