#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>
#include "horovod/common/gloo/http_store.h"

// PORT SCOPE: put a value, get it, and delete what rank 0 has put
int main(int, char** argv) {
  horovod::common::HTTPStore store("127.0.0.1", std::atoi(argv[1]), argv[2], 0);
  const std::string value("a\0value", 7);
  try {
    store.set("0", std::vector<char>(value.begin(), value.end()));
    const auto got = store.get("0");
    std::cout << (std::string(got.begin(), got.end()) == value ? "same" : "another") << std::endl;
    store.Finalize();
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
  }
}
