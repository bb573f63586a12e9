//! The sizes that each WGSL file reads: one struct a file, with the same members in the same order.
//!
//! A member `x_at` is the first element of the binding `x` inside its bound range; it is filled in
//! when the binding is made. `tests/shaders.rs` holds every struct against its WGSL by reflection.

use bytemuck::{Pod, Zeroable};

/// A member of a params struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, the same in WGSL.
    pub name: &'static str,
    /// First byte.
    pub offset: usize,
    /// Its Rust type: `u32` or `f32`.
    pub kind: &'static str,
}

macro_rules! params {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ident),* $(,)? })*) => { $(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
        pub(super) struct $name { $(pub(super) $field: $kind),* }

        impl $name {
            /// Its members in order.
            pub(super) const FIELDS: &'static [Field] = &[$(Field {
                name: stringify!($field),
                offset: std::mem::offset_of!($name, $field),
                kind: stringify!($kind),
            }),*];
        }
    )* };
}

params! {
    /// `shaders/matmul_block.wgsl`
    Matmul {
        m: u32, n: u32, k: u32, accumulate: u32, a_at: u32, b_at: u32, c_at: u32,
        a_i: u32, a_k: u32, b_k: u32, b_j: u32, c_i: u32,
    }
    /// `shaders/embedding.wgsl`
    Embedding {
        rows: u32, dim: u32, vocab_start: u32, vocab_len: u32, keep: u32,
        tokens_at: u32, table_at: u32, x_at: u32, d_x_at: u32, d_table_at: u32, links_at: u32,
    }
    /// `shaders/norm.wgsl`
    Norm {
        rows: u32, dim: u32, eps: f32, accumulate: u32,
        x_at: u32, w_at: u32, y_at: u32, rstd_at: u32, d_y_at: u32, d_x_at: u32, d_w_at: u32,
    }
    /// `shaders/rope.wgsl`
    Rope {
        rows: u32, first_row: u32, batch: u32, heads: u32, half: u32, width: u32, direction: f32,
        table_at: u32, qkv_at: u32,
    }
    /// `shaders/attention.wgsl`
    Attention {
        seq: u32, batch: u32, heads: u32, kv_heads: u32, head_dim: u32, group: u32,
        first_head: u32, first_kv_head: u32, member: u32, first_row: u32, scale: f32,
        qkv_at: u32, out_at: u32, lse_at: u32, d_out_at: u32, d_qkv_at: u32, delta_at: u32,
    }
    /// `shaders/swiglu.wgsl`
    SwiGlu {
        rows: u32, ffn: u32, gate_up_at: u32, act_at: u32, d_act_at: u32, d_gate_up_at: u32,
    }
    /// `shaders/cross_entropy.wgsl`
    CrossEntropy {
        rows: u32, vocab_start: u32, vocab_len: u32, slices: u32, accumulate: u32,
        logits_at: u32, labels_at: u32, stats_at: u32, merged_at: u32, loss_sum_at: u32,
        scalars_at: u32,
    }
    /// `shaders/elementwise.wgsl`
    Elementwise {
        len: u32, a_at: u32, b_at: u32, c_at: u32, x_at: u32, y_at: u32, value: f32,
    }
    /// `shaders/reduction.wgsl`
    Reduction {
        len: u32, count: u32, own_position: u32, accumulate: u32, has_guard: u32,
        x0_at: u32, x1_at: u32, x2_at: u32, x3_at: u32, x4_at: u32, x5_at: u32,
        x_at: u32, partials_at: u32, guard_at: u32, sum_at: u32,
    }
    /// `shaders/optimizer.wgsl`
    Optimizer {
        len: u32, beta1: f32, beta2: f32, eps: f32, weight_decay: f32, clip_norm: f32,
        g_at: u32, squared_norm_at: u32, scalars_at: u32, w_at: u32, m_at: u32, v_at: u32,
    }
    /// `shaders/cast.wgsl`
    Cast { len: u32, x_at: u32, y_at: u32 }
    /// `shaders/self_test.wgsl`
    SelfTest { trips: u32, counted_at: u32 }
}
