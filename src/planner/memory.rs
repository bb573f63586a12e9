//! memory.
