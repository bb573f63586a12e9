//! Training uses every core; here it steps back behind what a person looks at.

/// How far training steps back: a window that wants a core gets it at once, and an idle machine
/// trains as fast as without.
#[cfg(target_os = "linux")]
const NICER: i32 = 5;

/// Lowers the priority of this thread, and so of all that it starts: the workers of its executors.
#[cfg(target_os = "linux")]
pub fn lower_priority() {
    // On Linux a nice value is a thread's own and is handed down. Where it is refused, training
    // competes with the window, as elsewhere.
    rustix::process::nice(NICER).ok();
}

/// Elsewhere threads cannot be told apart without unsafe code: the run competes with the window.
#[cfg(not(target_os = "linux"))]
pub fn lower_priority() {}
