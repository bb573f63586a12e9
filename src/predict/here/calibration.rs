//! What `doctor --calibrate` measured of this machine, and the file that keeps it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Curve, Sizes};
use crate::config::user_folder;
use crate::sim::Workers;
use crate::units::Nanos;

/// Workers of the largest machine that is believed.
const MOST_WORKERS: u32 = 4096;
/// How the file is written now; another number is read by nobody.
const FORM: u32 = 1;
/// What to do about any file that cannot be used.
const REMEDY: &str = "Run `shardlab doctor --calibrate`";

/// What the host pool of a machine takes for each kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Calibration {
    /// Form of the file.
    form: u32,
    /// Name of the machine's processor.
    pub machine: String,
    /// Workers that were measured together.
    pub worker_count: u32,
    /// What an instruction takes that does nothing.
    pub instruction: Nanos,
    /// From work to the start of a worker that slept.
    pub wake: Nanos,
    /// How long a worker without work looks for some before it sleeps.
    pub patience: Nanos,
    /// Flops + bytes of an op from which sleeping workers are woken for its parts.
    pub work_worth_waking: u64,
    /// Every kernel, copies and messages too, by name.
    pub kernels: BTreeMap<String, Curve>,
}

/// Why there is no calibration to read or write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// Nothing was measured yet, or the file is elsewhere.
    #[error("{}: {why}. {REMEDY}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        why: String,
    },
    /// It cannot be written.
    #[error("{}: cannot be written ({source}). Name another file with --output", path.display())]
    Unwritten {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system names no folder for settings.
    #[error(
        "this system names no folder for settings (no HOME). Name a file with --output FILE, and \
         give it with --calibration FILE"
    )]
    NoFolder,
}

/// Nanoseconds of one kernel on one worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// While no other worker works.
    pub alone: f64,
    /// While all of them do.
    pub crowded: f64,
}

impl Calibration {
    /// A calibration without kernels.
    pub fn new(machine: String, workers: &Workers, work_worth_waking: u64) -> Self {
        Self {
            form: FORM,
            machine,
            worker_count: workers.count,
            instruction: Nanos(0),
            wake: workers.wake,
            patience: workers.patience,
            work_worth_waking,
            kernels: BTreeMap::new(),
        }
    }

    /// The workers of the machine.
    pub fn workers(&self) -> Workers {
        Workers { count: self.worker_count, wake: self.wake, patience: self.patience }
    }

    /// How long a kernel takes if what it touches was touched so many bytes ago; `None` if it was
    /// not measured. The distance is the last axis of those that do little more than read and write.
    pub fn pace(&self, sizes: &Sizes, distance: f64) -> Option<Pace> {
        let curve = self.kernels.get(sizes.kernel)?;
        let mut at = sizes.at.clone();
        if curve.axes.len() == at.len() + 1 {
            at.push(distance);
        }
        let unit = curve.at(&at)?;
        let [alone, crowded] = unit.map(|unit| (unit * sizes.units).max(self.instruction.0 as f64));
        Some(Pace { alone, crowded })
    }

    /// Where it is kept if nobody says otherwise: in the user's folder for settings.
    ///
    /// # Errors
    /// If the system names no such folder.
    pub fn default_path() -> Result<PathBuf, CalibrationError> {
        let folder = user_folder().ok_or(CalibrationError::NoFolder)?;
        Ok(folder.join("calibration.toml"))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is of another form, or makes no sense.
    pub fn read(path: &Path) -> Result<Self, CalibrationError> {
        let unusable = |why| CalibrationError::Unusable { path: path.to_owned(), why };
        let text = std::fs::read_to_string(path).map_err(|error| {
            unusable(match error.kind() {
                std::io::ErrorKind::NotFound => "this machine has not been measured".into(),
                _ => format!("cannot be read ({error})"),
            })
        })?;
        Self::parse(&text).map_err(unusable)
    }

    /// Reads the text of a file; why it cannot be used otherwise.
    fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            form: u32,
        }
        let first_line = |error: toml::de::Error| error.message().lines().next().map(str::to_owned);
        let broken =
            |error| format!("is no calibration ({})", first_line(error).unwrap_or_default());
        let Form { form } = toml::from_str(text).map_err(broken)?;
        if form != FORM {
            return Err(format!("was written in form {form}, and this program reads form {FORM}"));
        }
        let read: Self = toml::from_str(text).map_err(broken)?;
        if read.worker_count == 0 {
            return Err("says that nobody works".into());
        }
        if read.worker_count > MOST_WORKERS {
            return Err(format!("has {} workers, more than any machine", read.worker_count));
        }
        let faults = read.kernels.iter().filter_map(|(name, curve)| Some((name, curve.fault()?)));
        match faults.into_iter().next() {
            Some((name, fault)) => Err(format!("{name} {fault}")),
            None => Ok(read),
        }
    }

    /// Writes the file and the folder that it lies in.
    ///
    /// # Errors
    /// If the system refuses.
    ///
    /// # Panics
    /// Never: all that is kept has a form in TOML.
    pub fn write(&self, path: &Path) -> Result<(), CalibrationError> {
        let text = toml::to_string(self).expect("numbers and words are TOML");
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let made = folder.map_or(Ok(()), std::fs::create_dir_all);
        made.and_then(|()| std::fs::write(path, text))
            .map_err(|source| CalibrationError::Unwritten { path: path.to_owned(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured() -> Calibration {
        let pool = Workers { count: 2, wake: Nanos(46_000), patience: Nanos(3_000) };
        let mut calibration = Calibration::new("A processor".into(), &pool, 200_000);
        calibration.instruction = Nanos(90);
        let curve = Curve {
            axes: vec![vec![16.0, 256.0], vec![8.0]],
            alone: vec![0.0125, 0.025],
            crowded: vec![0.013, 0.05],
        };
        calibration.kernels.insert("attention".into(), curve);
        calibration
    }

    #[test]
    fn a_file_gives_back_what_was_written_in_a_folder_that_it_makes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/calibration.toml");
        measured().write(&path).unwrap();
        assert_eq!(Calibration::read(&path).unwrap(), measured());
    }

    #[test]
    fn a_file_that_cannot_be_used_says_why_and_what_to_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calibration.toml");
        let refused = |text: Option<String>| {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let error = Calibration::read(&path).unwrap_err().to_string();
            assert!(error.ends_with("Run `shardlab doctor --calibrate`"), "{error}");
            error
        };
        assert!(refused(None).contains("has not been measured"));
        let good = toml::to_string(&measured()).unwrap();
        assert!(refused(Some("[scenario]".into())).contains("is no calibration (missing field"));
        let old = good.replace("form = 1", "form = 0");
        assert!(refused(Some(old)).contains("in form 0, and this program reads form 1"));
        let nobody = good.replace("worker-count = 2", "worker-count = 0");
        assert!(refused(Some(nobody)).contains("nobody works"));
        let short = good.replace("alone = [0.0125, 0.025]", "alone = [0.0125]");
        assert!(refused(Some(short)).contains("attention has not one time for each point"));
        assert!(refused(Some(good + "[more]\n")).contains("unknown field"));
    }

    #[test]
    fn a_kernel_takes_its_units_but_never_less_than_an_instruction() {
        let calibration = measured();
        let sizes = |units| Sizes { kernel: "attention", at: vec![16.0, 8.0], units };
        let pace = |sizes: &Sizes| {
            let Pace { alone, crowded } = calibration.pace(sizes, 1.0)?;
            Some(Pace { alone: alone.round(), crowded: crowded.round() })
        };
        assert_eq!(pace(&sizes(80_000.0)), Some(Pace { alone: 1_000.0, crowded: 1_040.0 }));
        assert_eq!(pace(&sizes(8.0)), Some(Pace { alone: 90.0, crowded: 90.0 }));
        assert_eq!(pace(&Sizes { kernel: "fill", ..sizes(8.0) }), None);
        assert_eq!(pace(&Sizes { at: Vec::new(), ..sizes(8.0) }), None);
        // One size fewer than axes: the last one is the distance, 8 bytes at the only point.
        let near = calibration.pace(&Sizes { at: vec![256.0], ..sizes(80_000.0) }, 8.0).unwrap();
        assert_eq!(near.alone.round(), 2_000.0);
    }
}
