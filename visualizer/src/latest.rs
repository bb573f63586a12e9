//! Work beside the window, one question at a time: of questions that come while it thinks only the
//! newest is asked next, and whoever thinks is told that nobody waits for the old answer any more. So a
//! slider can be dragged as fast as one likes, and no frame waits.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use eframe::egui;

/// Tells whoever answers that nobody waits for the answer any more.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Whether that is so.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Somebody who answers questions on a thread of their own.
pub struct Latest<Q, A> {
    work: fn(Q, &Cancel) -> Option<A>,
    running: Option<(Receiver<A>, Cancel)>,
    next: Option<Q>,
    /// What is wanted by who tells that in every frame.
    wanted: Option<Q>,
}

impl<Q, A> std::fmt::Debug for Latest<Q, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latest").field("is_busy", &self.is_busy()).finish_non_exhaustive()
    }
}

impl<Q, A> Latest<Q, A> {
    /// Who answers questions in this way; with `None` once they are told that nobody waits. An answer
    /// that comes nevertheless is an answer.
    pub fn new(work: fn(Q, &Cancel) -> Option<A>) -> Self {
        Self { work, running: None, next: None, wanted: None }
    }

    /// Whether an answer is still to come.
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// What [`Latest::follow`] was told last.
    pub fn wanted(&self) -> Option<&Q> {
        self.wanted.as_ref()
    }

    /// Nobody waits for what was asked.
    pub fn cancel(&mut self) {
        self.next = None;
        if let Some((_, cancel)) = &self.running {
            cancel.ask();
        }
    }
}

impl<Q, A> Drop for Latest<Q, A> {
    /// Nobody looks any more.
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<Q: Send + 'static, A: Send + 'static> Latest<Q, A> {
    /// Takes over what is wanted now: asks if that is something new, and cancels if it is nothing;
    /// whether it is new.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn follow(&mut self, ctx: &egui::Context, wanted: Option<Q>) -> io::Result<bool>
    where
        Q: Clone + PartialEq,
    {
        if self.wanted == wanted {
            return Ok(false);
        }
        self.wanted.clone_from(&wanted);
        let Some(question) = wanted else {
            self.cancel();
            return Ok(false);
        };
        self.ask(ctx, question).map(|()| true)
    }

    /// Asks instead of what was asked before; the window is woken when there is an answer.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn ask(&mut self, ctx: &egui::Context, question: Q) -> io::Result<()> {
        if self.running.is_some() {
            self.cancel();
            self.next = Some(question);
            return Ok(());
        }
        let (sender, receiver) = channel();
        let (cancel, work, ctx) = (Cancel::default(), self.work, ctx.clone());
        let told = cancel.clone();
        let answer = move || {
            if let Some(answer) = work(question, &told) {
                // Nobody listens any more where the window has been closed.
                sender.send(answer).ok();
            }
            // The frame that is woken sees that no answer will follow.
            drop(sender);
            ctx.request_repaint();
        };
        std::thread::Builder::new().name("answers".into()).spawn(answer)?;
        self.running = Some((receiver, cancel));
        Ok(())
    }

    /// An answer, if there is a new one; what waits is asked then. `None` of a question that could
    /// not be answered.
    ///
    /// # Errors
    /// If the system gives no thread for the question that waits.
    pub fn answer(&mut self, ctx: &egui::Context) -> io::Result<Option<A>> {
        let Some((running, _)) = &self.running else { return Ok(None) };
        let answer = match running.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => return Ok(None),
            Err(TryRecvError::Disconnected) => None,
        };
        self.running = None;
        if let Some(question) = self.next.take() {
            self.ask(ctx, question)?;
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::time::Duration;

    /// Waits until the question may be answered.
    fn patiently((number, gate): (u32, Arc<Barrier>), _: &Cancel) -> Option<u32> {
        gate.wait();
        Some(number)
    }

    /// Works until nobody waits for it.
    fn in_vain(question: Option<u32>, cancel: &Cancel) -> Option<u32> {
        while question.is_none() && !cancel.is_asked() {
            std::thread::sleep(Duration::from_millis(1));
        }
        question
    }

    #[test]
    fn of_questions_that_come_meanwhile_only_the_newest_is_asked() {
        let ctx = egui::Context::default();
        let gate = Arc::new(Barrier::new(2));
        let mut latest = Latest::new(patiently);
        for number in 1..=9 {
            latest.ask(&ctx, (number, Arc::clone(&gate))).unwrap();
        }
        assert!(latest.answer(&ctx).unwrap().is_none());
        let mut answers = Vec::new();
        while latest.is_busy() {
            gate.wait();
            let answer = loop {
                match latest.answer(&ctx).unwrap() {
                    Some(answer) => break answer,
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            };
            answers.push(answer);
        }
        assert_eq!(answers, [1, 9]);
    }

    #[test]
    fn a_question_that_fails_does_not_keep_the_next_one_from_its_answer() {
        let ctx = egui::Context::default();
        let mut latest = Latest::new(|number: u32, _| Some(6 / number));
        for number in [0, 3] {
            latest.ask(&ctx, number).unwrap();
        }
        let mut answer = None;
        while latest.is_busy() && answer.is_none() {
            answer = latest.answer(&ctx).unwrap();
        }
        assert_eq!(answer, Some(2));
    }

    /// Waits until nothing is worked on.
    fn last(latest: &mut Latest<Option<u32>, u32>, ctx: &egui::Context) -> Option<u32> {
        let mut last = None;
        while latest.is_busy() {
            last = latest.answer(ctx).unwrap().or(last);
            std::thread::sleep(Duration::from_millis(1));
        }
        last
    }

    #[test]
    fn who_answers_a_question_that_was_replaced_is_told_so() {
        let ctx = egui::Context::default();
        let mut latest = Latest::new(in_vain);
        // This one would never end by itself.
        latest.ask(&ctx, None).unwrap();
        latest.ask(&ctx, Some(7)).unwrap();
        assert_eq!(last(&mut latest, &ctx), Some(7));
        latest.ask(&ctx, None).unwrap();
        latest.cancel();
        assert_eq!(last(&mut latest, &ctx), None);
    }
}
