//! How published training software runs a layer, by its name and its attention as printed.
//!
//! Facts about code (which kernels are fused, what overlaps), not constants: nothing here is fitted.

use crate::config::workload::{AttentionKernel, Fusion, Softmax, Software};

/// The software of a published run.
pub(super) fn of(framework: &str, attention: &str, precision: &str, is_rotary: bool) -> Software {
    let mut software = Software {
        attention: kernel(attention),
        deterministic: attention.contains("determ"),
        rope: is_rotary.then_some(Fusion::Fused),
        ..family(framework, attention)
    };
    if framework.starts_with("AA") {
        software.rope = Some(Fusion::Eager);
    }
    if framework.contains("NeoX") {
        // Rotates a quarter of each head, but copies whole queries and keys to join the parts.
        software.rope = Some(Fusion::Eager);
    }
    if framework.starts_with("torchtitan (eager") {
        software.rope = Some(Fusion::Eager);
    }
    if framework.contains("DeepSpeed") || framework.contains("6985e58") {
        // Before the product could add to the sum itself; bf16 sums in 32 bits.
        let wide = precision.contains("bf16");
        software.accumulate_bytes = if wide { 10 } else { 6 };
        software.gradient_bytes = if wide { 4 } else { 2 };
    }
    software
}

fn kernel(attention: &str) -> AttentionKernel {
    let word = attention.to_lowercase();
    let any = |words: &[&str]| words.iter().any(|part| word.contains(part));
    if word == "torch" {
        AttentionKernel::Unfused(Softmax::Eager)
    } else if any(&["unfused", "fused softmax", "not stated"]) || ["", "fused"].contains(&&*word) {
        AttentionKernel::Unfused(Softmax::Fused)
    } else if any(&["flash v1", "flash_attentionv1", "triton", "xformers"]) {
        AttentionKernel::Flash1
    } else if any(&["flash 2", "flash_attention2", "sdpa", "flash2"]) {
        AttentionKernel::Flash2
    } else {
        AttentionKernel::Tuned
    }
}

/// Everything but attention and rotary positions.
fn family(framework: &str, attention: &str) -> Software {
    let starts = |names: &[&str]| names.iter().any(|name| framework.starts_with(name));
    let fused = Software::default();
    if starts(&["AA"]) {
        // Aleph Alpha's scaling code (arXiv:2311.05610): eager, but for a norm kernel in some runs.
        let norm = if attention.contains("RMS") { Fusion::Fused } else { Fusion::Eager };
        Software {
            norm,
            activation: Fusion::Eager,
            gradient_bytes: 2,
            accumulate_bytes: 8,
            overlap_gradients: false,
            overlap_weights: false,
            scatter_pipeline: false,
            blocking_pipeline: true,
            sliced_loss: false,
            ..fused
        }
    } else if starts(&["Composer"]) {
        Software {
            norm: Fusion::Cast,
            activation: Fusion::Eager,
            gradient_bytes: 2,
            accumulate_bytes: 8,
            scatter_pipeline: false,
            ..fused
        }
    } else if starts(&["NeMo", "Megatron-Bridge"]) {
        Software { overlap_tensor: true, gradient_bytes: 2, ..fused }
    } else if starts(&["Megatron-Core"]) {
        fused
    } else if starts(&["torchtitan"]) {
        let eager = framework.contains("eager");
        let chain = if eager { Fusion::Eager } else { Fusion::Fused };
        Software {
            norm: chain,
            activation: chain,
            compiled: framework.contains("compile"),
            accumulate_bytes: 8,
            scatter_pipeline: false,
            ..fused
        }
    } else if starts(&["nanotron"]) {
        Software {
            activation: Fusion::Eager,
            accumulate_bytes: 12,
            overlap_gradients: false,
            overlap_tensor: true,
            scatter_pipeline: false,
            ..fused
        }
    } else if starts(&["PaxML", "MaxText"]) {
        Software { overlap_tensor: true, scatter_pipeline: false, ..fused }
    } else if starts(&["PyTorch FSDP"]) {
        Software { accumulate_bytes: 8, scatter_pipeline: false, ..fused }
    } else if framework.contains("NeoX") {
        Software {
            norm: Fusion::Cast,
            gradient_bytes: 2,
            accumulate_bytes: 6,
            overlap_weights: false,
            scatter_pipeline: false,
            ..fused
        }
    } else {
        // Megatron-LM and Megatron-DeepSpeed: fused kernels, nothing overlapped before 2023. Only
        // Megatron-LM scatters what it hands to the next stage (arXiv:2104.04473, section 4.1).
        let deepspeed = framework.contains("DeepSpeed");
        Software {
            overlap_gradients: false,
            overlap_weights: false,
            scatter_pipeline: framework.starts_with("Megatron-LM") && !deepspeed,
            // DeepSpeed's pipeline engine waits for each send (runtime/pipe/p2p.py).
            blocking_pipeline: deepspeed,
            ..fused
        }
    }
}
