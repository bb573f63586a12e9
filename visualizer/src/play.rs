//! Playback: which step is shown, where the playhead stands, and whether training may run.
//!
//! Time comes in from outside as durations; nothing here looks at a clock, draws or trains. There
//! are two heads: the newest finished step (training) and the playhead inside the shown step. Live
//! shows the newest finished step in slow motion and jumps to the newest one at its end; pausing
//! stops everything that can be seen, training included.

use shardlab::trace::Span;
use shardlab::trace::draw::playback::{PAUSE, Speed};
use shardlab::units::Nanos;

/// What playback does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Follows training: at the end of a step to the newest finished one.
    #[default]
    Live,
    /// Plays on from the playhead, step after step.
    Playing,
    /// Stands still.
    Paused,
}

/// What becomes of training while playback is paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhilePaused {
    /// It waits as well.
    #[default]
    Hold,
    /// It goes on.
    Train,
}

/// The steps that can be shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The oldest one that is still known in detail, 0-based.
    pub oldest: u64,
    /// The newest finished one; `None` before the first.
    pub newest: Option<u64>,
}

/// The step that is on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnScreen {
    /// Which one, 0-based.
    pub step: u64,
    /// How long it took.
    pub length: Nanos,
    /// The speed at which it is best seen.
    pub slow_motion: Speed,
}

/// Playback of a run.
#[derive(Clone, Debug, Default)]
pub struct Play {
    mode: Mode,
    while_paused: WhilePaused,
    /// What a person has chosen; else each step has its own slow motion.
    speed: Option<Speed>,
    shown: Option<OnScreen>,
    playhead: Nanos,
    /// How long the playhead has stood at the end of the step.
    rested: Nanos,
    /// What is played over and over.
    section: Option<Span>,
    /// Where the playhead is put once the next step is shown.
    landing: Landing,
}

/// Where the playhead stands in a step that has just come onto the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Landing {
    #[default]
    Start,
    End,
}

/// From one stop to the next, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Later.
    Forward,
    /// Earlier.
    Back,
}

impl Play {
    /// What it does.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether training should run now.
    pub fn lets_train(&self) -> bool {
        self.mode != Mode::Paused || self.while_paused == WhilePaused::Train
    }

    /// What becomes of training while paused.
    pub fn while_paused(&self) -> WhilePaused {
        self.while_paused
    }

    /// The shown step.
    pub fn shown(&self) -> Option<OnScreen> {
        self.shown
    }

    /// Where the playhead stands in the shown step.
    pub fn playhead(&self) -> Nanos {
        self.playhead
    }

    /// The section that is played over and over.
    pub fn section(&self) -> Option<Span> {
        self.section
    }

    /// How fast the shown step is played.
    pub fn speed(&self) -> Speed {
        let slow_motion = self.shown.map_or(Speed::REAL, |shown| shown.slow_motion);
        self.speed.unwrap_or(slow_motion)
    }

    /// Whether a person has chosen the speed.
    pub fn speed_is_chosen(&self) -> bool {
        self.speed.is_some()
    }

    /// Lets `elapsed` pass; the step that should come onto the screen, if another one than now.
    pub fn pass(&mut self, elapsed: Nanos, steps: Steps) -> Option<u64> {
        let newest = steps.newest?;
        let Some(shown) = self.shown else { return Some(newest) };
        if self.mode == Mode::Paused {
            return None;
        }
        if let Some(section) = self.section {
            self.playhead += self.speed().played(elapsed);
            if self.playhead >= section.end || self.playhead < section.start {
                self.playhead = section.start;
            }
            return None;
        }
        if self.playhead < shown.length {
            self.playhead = (self.playhead + self.speed().played(elapsed)).min(shown.length);
            return None;
        }
        self.rested += elapsed;
        if self.rested < PAUSE {
            return None;
        }
        self.landing = Landing::Start;
        match self.mode {
            Mode::Live if newest != shown.step => Some(newest),
            Mode::Playing if shown.step < newest => Some(shown.step + 1),
            // There is no later one yet: the same once more.
            Mode::Live | Mode::Playing | Mode::Paused => {
                self.mode = Mode::Live;
                (self.playhead, self.rested) = (Nanos(0), Nanos(0));
                None
            }
        }
    }

    /// A step comes onto the screen.
    pub fn show(&mut self, step: OnScreen) {
        self.playhead = match std::mem::take(&mut self.landing) {
            Landing::Start => Nanos(0),
            Landing::End => step.length,
        };
        self.rested = Nanos(0);
        self.section = None;
        self.shown = Some(step);
    }

    /// What is shown has another length, because something else is shown of it: time goes on from
    /// where it is.
    pub fn reshape(&mut self, step: OnScreen) {
        self.shown = Some(step);
        self.playhead = self.playhead.min(step.length);
        self.section = self.section.filter(|section| section.end <= step.length);
    }

    /// Nothing is shown any more: another run begins.
    pub fn clear(&mut self) {
        *self = Self { while_paused: self.while_paused, speed: self.speed, ..Self::default() };
    }

    /// Play or pause.
    pub fn toggle(&mut self, steps: Steps) {
        self.mode = match self.mode {
            Mode::Live | Mode::Playing => Mode::Paused,
            Mode::Paused if self.follows(steps) => Mode::Live,
            Mode::Paused => Mode::Playing,
        };
    }

    /// Stands still.
    pub fn pause(&mut self) {
        self.mode = Mode::Paused;
    }

    /// Follows training again; the step that should come onto the screen, if another one.
    pub fn follow(&mut self, steps: Steps) -> Option<u64> {
        self.mode = Mode::Live;
        self.section = None;
        self.landing = Landing::Start;
        steps.newest.filter(|newest| self.shown.is_none_or(|shown| shown.step != *newest))
    }

    /// Trains on while paused, or not.
    pub fn toggle_while_paused(&mut self) {
        self.while_paused = match self.while_paused {
            WhilePaused::Hold => WhilePaused::Train,
            WhilePaused::Train => WhilePaused::Hold,
        };
    }

    /// Puts the playhead at an instant of the shown step and stands still there.
    pub fn seek(&mut self, at: Nanos) {
        self.pause();
        if let Some(shown) = self.shown {
            self.playhead = at.min(shown.length);
            self.rested = Nanos(0);
            if self.section.is_some_and(|s| !(s.start..s.end).contains(&self.playhead)) {
                self.section = None;
            }
        }
    }

    /// The same with the playhead at another instant of the shown step.
    #[must_use]
    pub fn with_playhead(self, at: Nanos) -> Self {
        let end = self.shown.map_or(Nanos(0), |shown| shown.length);
        Self { playhead: at.min(end), ..self }
    }

    /// Stands still in another step; the one that should come onto the screen.
    pub fn seek_step(&mut self, step: u64, steps: Steps) -> Option<u64> {
        self.pause();
        self.landing = Landing::Start;
        let step = step.max(steps.oldest).min(steps.newest?);
        self.shown.is_none_or(|shown| shown.step != step).then_some(step)
    }

    /// From the last stop of a step into the next one, or back from the first; the step that
    /// should come onto the screen, or `None` where there is none.
    pub fn cross(&mut self, direction: Direction, steps: Steps) -> Option<u64> {
        self.pause();
        let (shown, newest) = (self.shown?.step, steps.newest?);
        match direction {
            Direction::Forward if shown < newest => {
                self.landing = Landing::Start;
                Some(shown + 1)
            }
            Direction::Back if shown > steps.oldest => {
                self.landing = Landing::End;
                Some(shown - 1)
            }
            Direction::Forward | Direction::Back => None,
        }
    }

    /// Twice as fast or half as fast.
    pub fn change_speed(&mut self, direction: Direction) {
        let power = self.speed().power();
        self.speed = Some(Speed::new(match direction {
            Direction::Forward => power + 1,
            Direction::Back => power - 1,
        }));
    }

    /// The speed at which each step is best seen.
    pub fn choose_slow_motion(&mut self) {
        self.speed = None;
    }

    /// What a person has chosen, if anything.
    pub fn chosen_speed(&self) -> Option<Speed> {
        self.speed
    }

    /// The same choice again.
    pub fn choose_speed(&mut self, speed: Option<Speed>) {
        self.speed = speed;
    }

    /// Plays a section over and over from its start, or nothing but the step again.
    pub fn repeat(&mut self, section: Option<Span>, steps: Steps) {
        let Some(shown) = self.shown else { return };
        self.section = section
            .map(|s| Span { start: s.start.min(shown.length), end: s.end.min(shown.length) })
            .filter(|s| s.start < s.end);
        if let Some(section) = self.section {
            self.playhead = section.start;
            self.mode = Mode::Playing;
        } else if self.mode == Mode::Playing && self.follows(steps) {
            self.mode = Mode::Live;
        }
    }

    /// Whether the newest step is shown.
    fn follows(&self, steps: Steps) -> bool {
        self.section.is_none() && self.shown.map(|shown| shown.step) == steps.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn on_screen(step: u64) -> OnScreen {
        OnScreen { step, length: Nanos(100 * MS), slow_motion: Speed::new(-6) }
    }

    fn steps(newest: u64) -> Steps {
        Steps { oldest: 0, newest: Some(newest) }
    }

    fn showing(step: u64) -> Play {
        let mut play = Play::default();
        assert_eq!(play.pass(Nanos(0), steps(step)), Some(step));
        play.show(on_screen(step));
        play
    }

    /// Lets time pass in frames of 16 ms until another step is asked for; how long that took.
    fn until_next(play: &mut Play, steps: Steps) -> (u64, u64) {
        for frame in 1..100_000 {
            if let Some(step) = play.pass(Nanos(16 * MS), steps) {
                return (step, frame * 16);
            }
        }
        panic!("no other step is asked for: {play:?}");
    }

    #[test]
    fn nothing_is_shown_before_a_step_is_finished() {
        let mut play = Play::default();
        assert_eq!(play.pass(Nanos(MS), Steps::default()), None);
        assert_eq!(play.shown(), None);
        assert!(play.lets_train());
    }

    #[test]
    fn live_shows_a_step_in_slow_motion_rests_and_jumps_to_the_newest() {
        let mut play = showing(3);
        assert_eq!(play.pass(Nanos(1600 * MS), steps(50)), None);
        assert_eq!(play.playhead(), Nanos(25 * MS));
        // 100 ms at 1/64 last 6.4 s, then half a second of rest.
        let (next, took) = until_next(&mut play, steps(50));
        assert_eq!(next, 50, "steps between are skipped");
        assert!((5300..5400).contains(&took), "{took}");
    }

    #[test]
    fn live_repeats_the_step_while_there_is_no_newer_one() {
        let mut play = showing(3);
        for _ in 0..1000 {
            assert_eq!(play.pass(Nanos(16 * MS), steps(3)), None);
        }
        assert_eq!(play.mode(), Mode::Live);
        assert!(play.playhead() < Nanos(100 * MS));
    }

    #[test]
    fn pausing_stops_the_playhead_and_training() {
        let mut play = showing(3);
        play.pass(Nanos(1600 * MS), steps(3));
        play.toggle(steps(9));
        assert!(!play.lets_train());
        for _ in 0..100 {
            assert_eq!(play.pass(Nanos(16 * MS), steps(9)), None);
        }
        assert_eq!(play.playhead(), Nanos(25 * MS));
        play.toggle_while_paused();
        assert!(play.lets_train() && play.mode() == Mode::Paused);
    }

    #[test]
    fn playing_on_after_a_pause_visits_every_step_and_ends_live() {
        let mut play = showing(3);
        play.toggle(steps(3));
        play.toggle(steps(5));
        assert_eq!(play.mode(), Mode::Playing, "training has gone on");
        for expected in [4, 5] {
            let (next, _) = until_next(&mut play, steps(5));
            assert_eq!(next, expected);
            play.show(on_screen(next));
        }
        for _ in 0..1000 {
            assert_eq!(play.pass(Nanos(16 * MS), steps(5)), None);
        }
        assert_eq!(play.mode(), Mode::Live);
        // Paused in the newest step, it goes on live.
        play.toggle(steps(5));
        play.toggle(steps(5));
        assert_eq!(play.mode(), Mode::Live);
    }

    #[test]
    fn following_jumps_to_the_newest_step() {
        let mut play = showing(3);
        play.seek(Nanos(7));
        assert_eq!((play.mode(), play.playhead()), (Mode::Paused, Nanos(7)));
        assert_eq!(play.follow(steps(8)), Some(8));
        play.show(on_screen(8));
        assert_eq!((play.mode(), play.playhead()), (Mode::Live, Nanos(0)));
        assert_eq!(play.follow(steps(8)), None);
    }

    #[test]
    fn seeking_stays_within_the_step_and_within_what_is_known() {
        let mut play = showing(3);
        play.seek(Nanos(500 * MS));
        assert_eq!(play.playhead(), Nanos(100 * MS));
        let known = Steps { oldest: 2, newest: Some(6) };
        assert_eq!(play.seek_step(0, known), Some(2));
        assert_eq!(play.seek_step(99, known), Some(6));
        assert_eq!(play.seek_step(3, known), None, "it is shown already");
        assert_eq!(play.mode(), Mode::Paused);
    }

    #[test]
    fn crossing_into_a_neighbour_lands_at_the_end_that_is_nearer() {
        let mut play = showing(3);
        assert_eq!(play.cross(Direction::Back, steps(3)), Some(2));
        play.show(on_screen(2));
        assert_eq!(play.playhead(), Nanos(100 * MS));
        assert_eq!(play.cross(Direction::Forward, steps(3)), Some(3));
        play.show(on_screen(3));
        assert_eq!(play.playhead(), Nanos(0));
        assert_eq!(play.cross(Direction::Forward, steps(3)), None);
        let known = Steps { oldest: 3, newest: Some(3) };
        assert_eq!(play.cross(Direction::Back, known), None);
    }

    #[test]
    fn a_section_is_played_over_and_over() {
        let mut play = showing(3);
        let section = Span { start: Nanos(40 * MS), end: Nanos(60 * MS) };
        play.repeat(Some(section), steps(3));
        assert_eq!(play.mode(), Mode::Playing);
        for _ in 0..1000 {
            assert_eq!(play.pass(Nanos(16 * MS), steps(9)), None);
            assert!((section.start..section.end).contains(&play.playhead()));
        }
        play.repeat(None, steps(9));
        let (next, _) = until_next(&mut play, steps(9));
        assert_eq!(next, 4);
    }

    #[test]
    fn a_chosen_speed_holds_for_later_steps_until_it_is_given_back() {
        let mut play = showing(3);
        play.change_speed(Direction::Forward);
        assert_eq!((play.speed(), play.speed_is_chosen()), (Speed::new(-5), true));
        play.show(OnScreen { slow_motion: Speed::new(-2), ..on_screen(4) });
        assert_eq!(play.speed(), Speed::new(-5));
        play.choose_slow_motion();
        assert_eq!(play.speed(), Speed::new(-2));
        for _ in 0..40 {
            play.change_speed(Direction::Back);
        }
        assert_eq!(play.speed(), Speed::MIN);
    }
}
