// A stub of IBM DDL for tests: what Horovod 0.18.2 to 0.28.1 calls, and the one operation that
// every release of DDL is known to have.  IBM's own header is proprietary; this is not made from it.
#pragma once

#include <cstddef>

enum DDL_Result { DDL_SUCCESS };
enum DDL_Type { DDL_TYPE_FLOAT, DDL_TYPE_HALF };
enum DDL_Op { DDL_OP_SUM };

DDL_Result ddl_init(const char* options);
DDL_Result ddl_finalize();
DDL_Result ddl_allreduce(void* data, std::size_t count, DDL_Type type, DDL_Op op);
