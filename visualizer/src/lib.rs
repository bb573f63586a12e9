//! The desktop app of Shardlab: watches a transformer train, split over ranks.
//!
//! It sees Plans and Traces and drives training through [`shardlab::train::driver`], never deeper.
//! Pictures are scenes of [`shardlab::trace::draw`]; this crate paints them ([`paint`]), lays the
//! window out ([`zones`]), plays steps ([`play`]) and obeys keys ([`keys`]). [`app`] is where all of
//! it meets, [`panels`] where a tab is added.

pub mod app;
pub mod args;
pub mod audit;
pub mod board;
pub mod broken;
pub mod export;
pub mod headless;
pub mod here;
pub mod icon;
pub mod keys;
pub mod latest;
pub mod over;
pub mod paint;
pub mod output;
pub mod panels;
pub mod play;
pub mod presets;
pub mod run;
pub mod saved;
pub mod shown;
pub mod software;
pub mod style;
pub mod texts;
pub mod zones;
