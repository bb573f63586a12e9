//! Integration tests: each module opens with its goal and its method.

mod equivalence;
mod formulas;
mod golden;
mod interpreter;
mod layouts;
