//! tensor_parallel.
