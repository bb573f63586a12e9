//! Integration tests: each module opens with its goal and its method.

mod equivalence;
mod formulas;
mod golden;
mod interpreter;
mod layouts;
mod machine;
mod promises;
mod property;
mod refusals;
mod tidy;
