//! mutate.
