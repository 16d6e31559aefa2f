// A stub of CUDA for tests: what Horovod's headers name.
#pragma once

#include <cstddef>

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
enum cudaError_t { cudaSuccess };
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice };
struct cudaPointerAttributes {
  int device;
};
