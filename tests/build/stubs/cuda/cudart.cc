// A stub of CUDA's library for tests: it does nothing.  Horovod's kernels are in it, as nothing
// compiles them for Power.
#include "horovod/common/ops/cuda/cuda_kernels.h"

cudaError_t cudaDeviceGetStreamPriorityRange(int*, int*) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaGetDevice(int*) { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "a stub"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaHostAlloc(void**, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t*, unsigned, int) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }

namespace horovod {
namespace common {

void BatchedD2DMemcpyCudaImpl(BatchedD2DParams&, int, cudaStream_t) {}
void ScaleBufferCudaImpl(const void*, void*, const int64_t, double, DataType, cudaStream_t) {}
void BatchedScaledD2DMemcpyCudaImpl(BatchedD2DParams&, int, double, DataType, cudaStream_t) {}

} // namespace common
} // namespace horovod
