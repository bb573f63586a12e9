//! The step of the run as it is predicted for this machine, from what `shardlab doctor --calibrate`
//! measured of it: asked for beside the window, once a Plan, when somebody looks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use eframe::egui;
use shardlab::exec::DeviceKind;
use shardlab::predict::here::{Calibration, predict_plan};
use shardlab::trace::Trace;
use shardlab::train::driver::Facts;

use crate::latest::{Cancel, Latest};

/// What is asked, and what has come of it.
type Question = (Arc<Facts>, PathBuf);
type Answer = (Arc<Facts>, Result<Arc<Trace>, String>);

/// The prediction for this machine.
#[derive(Debug)]
pub struct Here {
    /// What was measured of the machine.
    calibration: Result<PathBuf, String>,
    worker: Latest<Question, Answer>,
    asked: Option<Arc<Facts>>,
    answer: Option<Answer>,
}

impl Default for Here {
    fn default() -> Self {
        let calibration = Calibration::default_path().map_err(|error| error.to_string());
        Self { calibration, worker: Latest::new(predict), asked: None, answer: None }
    }
}

fn predict((facts, path): Question, _: &Cancel) -> Option<Answer> {
    let trace = trace(&facts, &path).map(Arc::new);
    Some((facts, trace))
}

fn trace(facts: &Facts, path: &Path) -> Result<Trace, String> {
    if facts.devices.iter().any(|device| device.kind != DeviceKind::Host) {
        return Err("Only steps on the CPU are predicted for this machine".into());
    }
    let calibration = Calibration::read(path).map_err(|error| error.to_string())?;
    predict_plan(&facts.plan, &calibration).map_err(|error| error.to_string())
}

impl Here {
    /// Takes what was measured of the machine from this file.
    pub fn calibrate_from(&mut self, path: PathBuf) {
        *self = Self { calibration: Ok(path), ..Self::default() };
    }

    /// Whether a prediction is under way.
    pub fn is_busy(&self) -> bool {
        self.worker.is_busy()
    }

    /// The step of a Plan on this machine; `None` while that is not known.
    ///
    /// # Errors
    /// Why there is no prediction.
    pub fn step(&self, facts: &Arc<Facts>) -> Option<Result<Arc<Trace>, String>> {
        if let Err(why) = &self.calibration {
            return Some(Err(why.clone()));
        }
        let (of, trace) = self.answer.as_ref()?;
        Arc::ptr_eq(of, facts).then(|| trace.clone())
    }

    /// Asks for a Plan, unless that has been done.
    pub(crate) fn ask(&mut self, ctx: &egui::Context, facts: &Arc<Facts>) {
        let Ok(path) = &self.calibration else { return };
        if self.asked.as_ref().is_some_and(|asked| Arc::ptr_eq(asked, facts)) {
            return;
        }
        self.asked = Some(Arc::clone(facts));
        if let Err(error) = self.worker.ask(ctx, (Arc::clone(facts), path.clone())) {
            self.answer = Some((Arc::clone(facts), Err(error.to_string())));
        }
    }

    /// Takes over what has come of it; whether there was anything.
    pub(crate) fn listen(&mut self, ctx: &egui::Context) -> bool {
        let Ok(Some(answer)) = self.worker.answer(ctx) else { return false };
        self.answer = Some(answer);
        true
    }
}
