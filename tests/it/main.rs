//! Integration tests: each module opens with its goal and its method.

mod equivalence;
mod formulas;
mod interpreter;
mod layouts;
