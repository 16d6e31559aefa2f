// A stub of CUDA for tests.
#pragma once
