//! Asks both judges on a thread of its own: a window goes on while they think.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Examination, examine};
use crate::config::Scenario;
use crate::train::driver::{Explained, lower_priority};
use crate::train::session::Options;

/// Asks the two judges as [`examine`] does, and tells the answer when it comes, from another thread.
/// It steps back behind whatever else runs, as training does.
///
/// # Errors
/// If the system gives no thread.
pub fn examine_aside(
    scenario: Scenario,
    options: Options,
    tell: impl FnOnce(Result<Examination, Explained>) + Send + 'static,
) -> io::Result<()> {
    let ask = move || {
        lower_priority();
        let answer = catch_unwind(AssertUnwindSafe(|| examine(&scenario, &options)));
        tell(match answer {
            Ok(answer) => answer.map_err(|error| Explained::of(&error)),
            Err(_) => Err(Explained {
                what: "the three steps".into(),
                why: "their thread panicked".into(),
                remedy: "This is a defect of the program, please report it".into(),
            }),
        });
    };
    std::thread::Builder::new().name("judges".into()).spawn(ask).map(drop)
}
