//! data_parallel.
