//! Goal: the suite would see a fault. Method: drawn faults in drawn Plans; each must be found by
//! `check`, by the executor's report of a hang, or as a number that differs from one rank.
//!
//! A fault that nobody can see is none, and two rules say which are: what it spoils reaches neither
//! weights, gradients, norm nor loss (the slice of `influence`), or it changes no bit where it is
//! planted, in both of the steps that are run (the message brings what lay there already, zeros are
//! scaled, nothing is added or added to nothing). Faults that are left out by these rules are run
//! too, and must not be found. Examples: the statistics of a forward that is computed again, the
//! last product of a layer that is computed again, an untouched row of a gathered table.

use std::collections::{BTreeMap, BTreeSet};

use shardlab::exec::{ExecError, ExecOptions};
use shardlab::mesh::Rank;
use shardlab::ops::{Access, Kernel};
use shardlab::plan::check::check;
use shardlab::plan::mutate::{Mutated, Mutation};
use shardlab::plan::{Action, Held, Plan};
use shardlab::planner::{StepSpec, plan_step};

use crate::influence::{Follow, influence};
use crate::interpreter::{Batch, Interpreter};
use crate::layouts::{Draw, draw_spec, unsplit};
use crate::machine::{Trained, attempt, batches};
use crate::property::seeds;

/// Steps that are run.
const STEPS: u64 = 2;
/// What one rank may be off.
const ALLOWED: f64 = 1e-5;

/// How a fault was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Check,
    Hang,
    Refused,
    Scalar,
    Gradient,
    Weight,
    Copies,
}

/// A drawn Plan and what one rank makes of it.
struct Subject {
    seed: u64,
    spec: StepSpec,
    plan: Plan,
    batches: Vec<Batch>,
    one: Trained,
    /// By rank and instruction: which of the written views can be seen from outside.
    seen: Vec<Vec<Vec<bool>>>,
    /// The same for numbers that are not finite.
    seen_not_finite: Vec<Vec<Vec<bool>>>,
    idle: Idle,
}

impl Subject {
    /// SGD, with a clip that binds, so that the norm matters.
    fn draw(seed: u64) -> Self {
        let mut spec = draw_spec(seed, 8);
        spec.training.clip_norm = 0.5;
        spec.training.lr = 0.5;
        let plan = plan_step(&spec).unwrap();
        let batches = batches(&spec, seed, STEPS);
        let alone = unsplit(&spec);
        let plan_alone = plan_step(&alone).unwrap();
        let one = attempt(plan_alone, &alone, seed, ExecOptions::default(), &batches).unwrap();
        assert!(one.scalars[1] > 0.5, "the clip binds: {:?}", one.scalars);
        let idle = Idle::find(&plan, &spec, seed, &batches);
        let seen = influence(&plan, Follow::Value);
        let seen_not_finite = influence(&plan, Follow::NotFinite);
        let subject = Self { seed, spec, plan, batches, one, seen, seen_not_finite, idle };
        // Else everything would count as found.
        let faults = Self::check(&subject.plan).or(subject.run(&subject.plan));
        assert_eq!(faults, None, "seed {seed}: the Plan itself is right");
        subject
    }

    /// The first fault that `check` finds.
    fn check(plan: &Plan) -> Option<(Found, String)> {
        check(plan).first().map(|fault| (Found::Check, fault.to_string()))
    }

    /// What shows while a Plan runs, or in what it leaves behind.
    fn run(&self, plan: &Plan) -> Option<(Found, String)> {
        let options = ExecOptions::default();
        match attempt(plan.clone(), &self.spec, self.seed, options, &self.batches) {
            Err(error @ ExecError::Hang { .. }) => Some((Found::Hang, error.to_string())),
            Err(error) => Some((Found::Refused, error.to_string())),
            Ok(many) => first_difference(&self.plan, &self.one, &many),
        }
    }

    /// Whether anybody can see a fault of this kind at this place.
    fn is_visible(&self, mutation: Mutation, mutated: &Mutated) -> bool {
        let at = (mutated.rank, mutated.instr as usize);
        let seen = &self.seen[at.0.index()][at.1];
        match mutation {
            Mutation::DropMessage => seen[0] && !self.idle.messages.contains(&at),
            Mutation::ScaleOutput { .. } => {
                let output = spoiled_output(mutated);
                seen[output] && !self.idle.zeros.contains(&(at, output))
            }
            Mutation::Poison => self.seen_not_finite[at.0.index()][at.1][spoiled_output(mutated)],
            Mutation::SkipAccumulation => {
                let action = &self.plan.programs[at.0.index()].instrs[at.1].action;
                let Action::Launch { op, .. } = action else { panic!("a launch accumulates") };
                let slots = op.signature().outputs;
                let sum = slots.iter().position(|(_, access)| *access == Access::ReadWrite);
                seen[sum.unwrap()] && !self.idle.additions.contains(&at)
            }
            Mutation::DropSend | Mutation::DropRecv | Mutation::SwapCells => true,
        }
    }
}

/// Which output of the launch at fault the launch after it spoils.
fn spoiled_output(mutated: &Mutated) -> usize {
    let instrs = &mutated.plan.programs[mutated.rank.index()].instrs[mutated.instr as usize..];
    let [Action::Launch { outputs, .. }, Action::Launch { outputs: spoiled, .. }] =
        [&instrs[0].action, &instrs[1].action]
    else {
        panic!("a launch that spoils an output follows: {}", mutated.description)
    };
    outputs.iter().position(|view| *view == spoiled[0]).unwrap()
}

/// Places where a fault would change no bit in any of the steps.
#[derive(Default)]
struct Idle {
    /// Sends of messages that bring what lay there already.
    messages: BTreeSet<(Rank, usize)>,
    /// Launches that add nothing, or add to nothing.
    additions: BTreeSet<(Rank, usize)>,
    /// Outputs of launches that twice as much would not change: zeros and infinities.
    zeros: BTreeSet<((Rank, usize), usize)>,
}

impl Idle {
    fn find(plan: &Plan, spec: &StepSpec, seed: u64, batches: &[Batch]) -> Self {
        let peers = shardlab::plan::order::derive(plan).peer;
        let mut machine = Interpreter::new(plan);
        machine.scatter(Held::Weight, &crate::equivalence::weights(spec, seed));
        let mut steps = batches.iter().map(|batch| {
            let mut idle = Self::default();
            machine.run_watched(batch, &mut |at, before, after| {
                let (rank, index) = at;
                match &plan.programs[rank.index()].instrs[index].action {
                    Action::Recv { .. } if same_bits(&before[0], &after[0]) => {
                        let (from, send) = peers[rank.index()][index].unwrap();
                        idle.messages.insert((from, send as usize));
                    }
                    Action::Launch { .. } => {
                        for (output, values) in after.iter().enumerate() {
                            if values.iter().all(|x| (x * 2.0).to_bits() == x.to_bits()) {
                                idle.zeros.insert((at, output));
                            }
                        }
                        let to_nothing = before.iter().flatten().all(|x| *x == 0.0);
                        if to_nothing || before.iter().zip(after).all(|(a, b)| same_bits(a, b)) {
                            idle.additions.insert(at);
                        }
                    }
                    Action::Recv { .. } | Action::Send { .. } | Action::Copy { .. } => {}
                }
            });
            idle
        });
        let first = steps.next().unwrap();
        steps.fold(first, |all, step| Self {
            messages: &all.messages & &step.messages,
            additions: &all.additions & &step.additions,
            zeros: &all.zeros & &step.zeros,
        })
    }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
}

/// The first scalar or tensor, in the order of the model, that is not what one rank has.
fn first_difference(plan: &Plan, one: &Trained, many: &Trained) -> Option<(Found, String)> {
    let is_off = |off: f64, allowed: f64| off.is_nan() || off > allowed;
    for (index, (a, b)) in one.scalars.iter().zip(&many.scalars).enumerate() {
        if is_off((a - b).abs(), ALLOWED * a.abs()) {
            let what = ["loss", "norm"][index % 2];
            return Some((Found::Scalar, format!("{what} of step {}: {b}, not {a}", index / 2)));
        }
    }
    let held = [
        (Found::Gradient, "gradient of ", &one.gradients, &many.gradients),
        (Found::Weight, "", &one.weights, &many.weights),
    ];
    for (found, what, reference, other) in held {
        for tensor in &plan.tensors {
            let (a, b) = (&reference[&tensor.name].data, &other[&tensor.name].data);
            let largest = a.iter().fold(0.0, |max: f32, x| max.max(x.abs()));
            let off = a.iter().zip(b).map(|(x, y)| f64::from((x - y).abs()));
            if let Some(off) =
                off.into_iter().find(|off| is_off(*off, ALLOWED * f64::from(largest)))
            {
                return Some((found, format!("{what}{} is off by {off:e}", tensor.name)));
            }
        }
    }
    many.copies_differ.clone().map(|difference| (Found::Copies, difference))
}

/// What became of the faults of one kind.
#[derive(Default)]
struct Tally {
    drawn: u32,
    invisible: u32,
    found: BTreeMap<Found, u32>,
    /// Found while it ran, with no look at `check`.
    found_running: u32,
    examples: BTreeMap<Found, String>,
    survivors: Vec<String>,
}

impl Tally {
    fn row(&self, kind: &str) -> String {
        let killed: u32 = self.found.values().sum();
        let visible = self.drawn - self.invisible;
        let rate = 100.0 * f64::from(killed) / f64::from(visible.max(1));
        let Self { drawn, invisible, found, found_running, .. } = self;
        format!(
            "{kind:18} {drawn:4} drawn, {invisible:3} invisible, {rate:5.1} % found: {found:?}; \
             {found_running} of {visible} while running"
        )
    }
}

const KINDS: [(&str, Mutation, usize); 7] = [
    ("drop message", Mutation::DropMessage, 8),
    ("scale output", Mutation::ScaleOutput { factor: 2.0 }, 8),
    ("skip accumulation", Mutation::SkipAccumulation, 8),
    ("drop send", Mutation::DropSend, 2),
    ("drop receive", Mutation::DropRecv, 2),
    ("poison", Mutation::Poison, 2),
    ("swap cells", Mutation::SwapCells, 2),
];

impl Tally {
    fn add(&mut self, subject: &Subject, mutation: Mutation, nth: usize) {
        let mutated = mutation.plant(&subject.plan, nth).unwrap();
        self.drawn += 1;
        let Subject { seed, spec, .. } = subject;
        let description = &mutated.description;
        let context = || format!("SHARDLAB_SEED={seed}: {description}; {:?}", spec.layout);
        let running = subject.run(&mutated.plan);
        if !subject.is_visible(mutation, &mutated) {
            self.invisible += 1;
            // So nothing is left out that could be found.
            assert_eq!(running, None, "this was to be invisible; {}", context());
            return;
        }
        if matches!(mutation, Mutation::DropSend | Mutation::DropRecv) {
            let is_hang = matches!(running, Some((Found::Hang, _)));
            assert!(is_hang, "half a message is a hang, not {running:?}; {}", context());
        }
        self.found_running += u32::from(running.is_some());
        match Subject::check(&mutated.plan).or(running) {
            Some((found, how)) => {
                *self.found.entry(found).or_default() += 1;
                self.examples.entry(found).or_insert_with(|| format!("{description}\n    {how}"));
            }
            None => self.survivors.push(context()),
        }
    }
}

#[test]
fn every_visible_fault_is_found() {
    let mut tallies = KINDS.map(|_| Tally::default());
    for seed in seeds(16) {
        let subject = Subject::draw(seed);
        let mut draw = Draw(seed ^ 0xfa17);
        for ((_, mutation, draws), tally) in KINDS.iter().zip(&mut tallies) {
            let places = mutation.count(&subject.plan) as u64;
            for _ in 0..if places == 0 { 0 } else { *draws } {
                tally.add(&subject, *mutation, usize::try_from(draw.below(places)).unwrap());
            }
        }
    }
    for ((kind, ..), tally) in KINDS.iter().zip(&tallies) {
        println!("{}", tally.row(kind));
        for (found, words) in &tally.examples {
            println!("  {found:?}: {words}");
        }
    }
    let survivors = |kinds: &[Tally]| -> Vec<String> {
        kinds.iter().flat_map(|tally| tally.survivors.clone()).collect()
    };
    let (faults, swaps) = tallies.split_at(KINDS.len() - 1);
    // Cells in another order are another schedule; those that survive are right.
    println!("swaps that are schedules too:\n{}", survivors(swaps).join("\n"));
    let survivors = survivors(faults);
    assert!(survivors.is_empty(), "nobody found:\n{}", survivors.join("\n"));
    let drawn: u32 = tallies[..3].iter().map(|tally| tally.drawn - tally.invisible).sum();
    assert!(drawn >= 200 || seeds(16).count() < 16, "{drawn} faults were drawn");
}
