//! The desktop app of Shardlab: watches a transformer train, split over ranks.
//!
//! It sees Plans and Traces and drives training through `shardlab::train`, never deeper.
pub mod export;
