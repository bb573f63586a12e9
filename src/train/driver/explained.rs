//! An error in three parts, as a window shows it: what, why, what to do.

use std::fmt;

/// What went wrong, why, and what to do about it; without a full stop at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// What went wrong.
    pub what: String,
    /// Why; may be empty.
    pub why: String,
    /// What to do; may be empty.
    pub remedy: String,
}

impl Explained {
    /// Takes an error apart: the texts of this program read `what: why. What to do`.
    pub fn of(error: &impl fmt::Display) -> Self {
        let text = error.to_string();
        let (problem, remedy) = text.rsplit_once(". ").unwrap_or((&text, ""));
        let (what, why) = problem.split_once(": ").unwrap_or((problem, ""));
        Self { what: what.into(), why: why.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, why, remedy } = self;
        f.write_str(what)?;
        if !why.is_empty() {
            write!(f, ": {why}")?;
        }
        if !remedy.is_empty() {
            write!(f, ". {remedy}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::ExecError;
    use crate::train::TrainError;

    #[test]
    fn an_error_has_its_three_parts_and_reads_as_before() {
        let error = TrainError::from(ExecError::Device {
            device: "Radeon 680M".into(),
            why: "it failed its self test: wrong sum in matmul".into(),
            remedy: "Update the driver".into(),
        });
        let explained = Explained::of(&error);
        assert_eq!(explained.what, "Radeon 680M");
        assert_eq!(explained.why, "it failed its self test: wrong sum in matmul");
        assert_eq!(explained.remedy, "Update the driver");
        assert_eq!(explained.to_string(), error.to_string());
        let short = Explained::of(&"nothing was begun");
        assert_eq!((short.to_string().as_str(), short.why.as_str()), ("nothing was begun", ""));
    }
}
