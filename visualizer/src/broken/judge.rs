//! Asks the two judges, one question at a time, and keeps their answer.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use shardlab::config::Scenario;
use shardlab::train::Options;
use shardlab::train::driver::Explained;
use shardlab::train::faults::{Examination, Fault, examine_aside};

/// How far the judges are.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// They think.
    Asked,
    /// What they say.
    Given(Box<Examination>),
    /// They could not be asked.
    Failed(Explained),
}

type Answer = Result<Examination, Explained>;
type Wake = Arc<dyn Fn() + Send + Sync>;

/// What is to be asked.
struct Question {
    scenario: Scenario,
    faults: Vec<Fault>,
    wake: Wake,
}

/// The judges: three steps that begun are trained to their end, so a new question waits for those
/// of the one before, and only the newest is asked then.
#[derive(Default)]
pub struct Judge {
    running: Option<Receiver<Answer>>,
    next: Option<Question>,
    verdict: Option<Verdict>,
    /// The answer that is under way is no longer wanted.
    is_stale: bool,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Judge").field("verdict", &self.verdict).finish_non_exhaustive()
    }
}

impl Judge {
    /// The newest answer.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// Asks; `wake` is called from another thread when there is an answer.
    pub(super) fn ask(
        &mut self,
        scenario: Scenario,
        faults: Vec<Fault>,
        wake: impl Fn() + Send + Sync + 'static,
    ) {
        let question = Question { scenario, faults, wake: Arc::new(wake) };
        self.verdict = Some(Verdict::Asked);
        self.is_stale = true;
        if self.running.is_some() {
            self.next = Some(question);
        } else {
            self.begin(question);
        }
    }

    /// Nothing is asked any more.
    pub(super) fn forget(&mut self) {
        (self.next, self.verdict, self.is_stale) = (None, None, true);
    }

    fn begin(&mut self, question: Question) {
        let Question { scenario, faults, wake } = question;
        let (sender, receiver) = channel();
        let options = Options { faults, ..Options::on_cpu() };
        let tell = move |answer| {
            // Nobody listens any more where the window has been closed.
            sender.send(answer).ok();
            wake();
        };
        self.is_stale = false;
        match examine_aside(scenario, options, tell) {
            Ok(()) => self.running = Some(receiver),
            Err(error) => {
                self.verdict = Some(Verdict::Failed(Explained {
                    what: "the three steps cannot start".into(),
                    why: error.to_string(),
                    remedy: "Close other programs and break it again".into(),
                }));
            }
        }
    }

    /// Takes an answer over, if there is one, and asks what waits.
    pub(super) fn listen(&mut self) {
        let Some(running) = &self.running else { return };
        let answer = match running.try_recv() {
            Ok(answer) => answer,
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => Err(Explained::of(&"the judges are gone")),
        };
        self.running = None;
        if !std::mem::take(&mut self.is_stale) {
            self.verdict = Some(match answer {
                Ok(examination) => Verdict::Given(Box::new(examination)),
                Err(why) => Verdict::Failed(why),
            });
        }
        if let Some(question) = self.next.take() {
            self.begin(question);
        }
    }
}
