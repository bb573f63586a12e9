//! Waiting: which share of a step a rank does nothing of a microbatch.
