//! pipeline_parallel.
