//! Layouts drawn from a seed, over all that DESIGN.md allows, and the small model they train.
//!
//! One counter-based generator, so that a failing case is named by its seed alone.

use shardlab::config::schedule::Stages;
use shardlab::config::{
    CollectiveChoice, Layout, Model, OptimizerKind, Recompute, ScheduleName, Training, ZeroStage,
};
use shardlab::mesh::RankOrder;
use shardlab::planner::{Purpose, StepSpec};

/// A small generator (splitmix64).
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()].clone()
    }
}

/// A model that is awkward on purpose: nothing divides by everything.
pub(crate) fn small_model(draw: &mut Draw) -> Model {
    let (heads, kv) = draw.of(&[(6, 6), (6, 2), (4, 4), (4, 2), (12, 4), (6, 3)]);
    Model {
        vocab_size: draw.of(&[29, 32, 40]),
        hidden_size: draw.of(&[20, 24]),
        intermediate_size: draw.of(&[36, 37, 44]),
        num_hidden_layers: draw.of(&[1, 2, 3, 4]),
        num_attention_heads: heads,
        num_key_value_heads: kv,
        head_dim: draw.of(&[4, 6]),
        rope_theta: 10_000.0,
        rms_norm_eps: 1e-5,
        tie_word_embeddings: draw.below(2) == 0,
        initializer_range: 0.2,
    }
}

/// One rank, everything else the same.
pub(crate) fn unsplit(spec: &StepSpec) -> StepSpec {
    StepSpec { layout: Layout::default(), ..spec.clone() }
}

/// One of the schedules, and stages a position, that cut the units into no empty stage.
pub(crate) fn draw_schedule(
    draw: &mut Draw,
    pp: u32,
    units: u32,
    names: &[ScheduleName],
) -> (ScheduleName, u32) {
    loop {
        let name = draw.of(names);
        let chunks = match name.stages() {
            Stages::One => 1,
            Stages::V => 2,
            Stages::Loop | Stages::Given => draw.of(&[1, 2, 3]),
        };
        if pp * chunks <= units {
            return (name, chunks);
        }
    }
}

/// A legal layout of at most `ranks` ranks.
pub(crate) fn draw_spec(seed: u64, ranks: u32) -> StepSpec {
    let mut draw = Draw(seed);
    let model = small_model(&mut draw);
    let units = model.num_hidden_layers + 2;
    let tps: Vec<u32> = [1, 2, 3, 4]
        .into_iter()
        .filter(|&tp| model.num_attention_heads.is_multiple_of(tp))
        .collect();
    let (dp, tp, pp) = loop {
        let (dp, tp, pp) = (draw.of(&[1, 2, 3, 4]), draw.of(&tps), draw.of(&[1, 2, 3, 4]));
        if dp * tp * pp <= ranks && pp <= units {
            break (dp, tp, pp);
        }
    };
    let (schedule, chunks) = draw_schedule(&mut draw, pp, units, &ScheduleName::NAMED);
    let microbatches = draw.of(&[1, 2, 3, 4]);
    let batch = dp * microbatches + u32::try_from(draw.below(4)).unwrap();
    let layout = Layout {
        dp,
        tp,
        pp,
        zero: draw.of(&[ZeroStage::Zero0, ZeroStage::Zero1, ZeroStage::Zero2, ZeroStage::Zero3]),
        chunks,
        schedule,
        microbatches,
        sequence_parallel: draw.below(2) == 0,
        recompute: draw.of(&[Recompute::None, Recompute::Selective, Recompute::Full]),
        collective: draw.of(&[
            CollectiveChoice::Auto,
            CollectiveChoice::Ring,
            CollectiveChoice::Tree,
            CollectiveChoice::Direct,
            CollectiveChoice::Hierarchical,
        ]),
        overlap: draw.below(2) == 0,
        rank_order: draw.of(&[RankOrder::TpDpPp, RankOrder::TpPpDp]),
        bucket_bytes: draw.of(&[1, 8 << 10, 1 << 20]),
        chunk_bytes: draw.of(&[512, 1 << 20]),
        node_size: Some(draw.of(&[2, 4])),
        ..Layout::default()
    };
    let training = Training {
        steps: 2,
        batch,
        seq: draw.of(&[5, 6, 8]),
        lr: 0.1,
        optimizer: OptimizerKind::Sgd,
        clip_norm: 0.0,
        ..Training::default()
    };
    StepSpec { model, layout, training, purpose: Purpose::Train, device_kinds: Vec::new() }
}
